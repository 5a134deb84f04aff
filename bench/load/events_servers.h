/*
 * events_servers.h - LMCache servers of many nodes, as their coordinator sees them: they register
 * and post cache events (LMCache 0.5.6), each on a connection of its own.
 *
 * A post is written whole; its answer is read before the next one of the same server, so a slow
 * coordinator makes the caller late and loses nothing. Belongs to one thread.
 */
#ifndef KVB_EVENTS_SERVERS_H
#define KVB_EVENTS_SERVERS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "bench/load/mem.h"

struct kvb_servers;

/* Registers servers mp-0, mp-1 ..., whose memory has `capacity` bytes. NULL: a message on standard
 * error says why. */
struct kvb_servers *kvb_servers_create(
	const struct sockaddr_in *coordinator, uint32_t count, uint64_t capacity);
void kvb_servers_destroy(struct kvb_servers *servers); /* NULL is allowed */

/* Begins the next batch of a server: store or delete. Its entries follow, then kvb_servers_end. */
void kvb_servers_begin(struct kvb_servers *servers, uint32_t server, const char *type);
/* An entry: a chunk's hash is made of `name`. tokens NULL: none, as in a batch that deletes. */
void kvb_servers_entry(struct kvb_servers *servers, uint64_t name, uint32_t bytes,
	const uint32_t *tokens, uint32_t count, uint64_t offset);
void kvb_servers_end(struct kvb_servers *servers);
/* Posts the batches since the last post. false: the coordinator did not take them, or the ones
 * before. */
bool kvb_servers_post(struct kvb_servers *servers, uint32_t server);
/* Reads the answers that are still to come; false: one was bad. */
bool kvb_servers_wait(struct kvb_servers *servers);

#endif
