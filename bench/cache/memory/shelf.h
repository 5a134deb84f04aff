/*
 * shelf.h - something with chunks in chains that can be looked up: the library, or its index alone.
 *
 * The chunks have a place and no bytes: what is measured is finding them. The library's arena
 * bounds how many there can be; the index alone has no such bound.
 */
#ifndef KVB_SHELF_H
#define KVB_SHELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

struct kvb_shelf;

/* The memory that a shelf needs for its chunks besides their own bytes. */
struct kvb_shelf_cost {
	uint64_t chunks, metadata, ghosts, names;
};

/* Makes room for `chunks` chunks under a policy. NULL: it could not be allocated. */
struct kvb_shelf *kvb_shelf_of_index(uint32_t chunks, const char *policy);
struct kvb_shelf *kvb_shelf_of_cache(uint32_t chunks, const char *policy);
void kvb_shelf_close(struct kvb_shelf *shelf);

/* Returns false if the operation is refused. */
bool kvb_shelf_put(
	struct kvb_shelf *shelf, const struct kvt_key *key, const struct kvt_key *parent);

/* Returns how many of the keys, from the first one on, are present. Any thread may call it. */
size_t kvb_shelf_match(struct kvb_shelf *shelf, const struct kvt_key *keys, size_t n);

struct kvb_shelf_cost kvb_shelf_cost(struct kvb_shelf *shelf);
const char *kvb_shelf_name(const struct kvb_shelf *shelf); /* "kvt_lookup" or "index" */

/* Returns a key made of a number, with bits that look random. */
struct kvt_key kvb_key(uint64_t number);

#endif
