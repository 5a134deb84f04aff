/*
 * store.h - an NVMe tier in a test's hands: opened, asked, and its answers checked.
 *
 * The payload of a chunk is a function of its key, so whatever a read gives can be checked without
 * knowing what was put; wrong bytes end the test program at once.
 */
#ifndef STORE_H
#define STORE_H

#include <stdbool.h>

#include "io/testing/test_clock.h"
#include "tiers/tier.h"

struct store {
	struct kvt_config config;
	struct kvt_surroundings surroundings;
	struct kvt_clock clock;
	struct kvt_test_clock time;    /* its time, which tests move */
	struct kvt_test_clock *shared; /* instead of it, if not NULL */
	struct kvt_tier *tier;
	char folder[128];
	char why[KVT_REASON_BYTES];
	unsigned stored, removed; /* reported by the watch */
	bool no_room;             /* what the watch says */
	uint64_t lmcache_hash;    /* of the last stored one; 0: it has none */
	struct kvt_key last_removed;
	char last_log[512];
	bool quiet;
	uint64_t more_bytes; /* every chunk's length is bytes_of() and these; 0 by default */
};

/* A folder of its own, defaults of tests: 64 MiB, 16 operations, CALLER threads. */
void store_init(struct store *s);
void store_copy(
	struct store *s, const struct store *like); /* closed, the same settings and times */
void store_advance(struct store *s, int64_t ns);
void store_advance_wall(struct store *s, int64_t ns);
enum kvt_status store_open(struct store *s);
void store_close(struct store *s);
void store_finish(struct store *s); /* closes and removes the folder */

/* Keys are numbers here. */
struct kvt_key key_of(uint64_t n);
uint64_t bytes_of(uint64_t n); /* some length, by the key, up to 300 KiB */
void fill(uint64_t n, uint8_t *out, uint64_t bytes);
void must_be(uint64_t n, const uint8_t *bytes, uint64_t len);

/* One request at a time, waited for. */
enum kvt_status store_put(struct store *s, uint64_t n);
enum kvt_status store_put_item(struct store *s, uint64_t n, struct kvt_item *item, bool announce);
enum kvt_status store_get(struct store *s, uint64_t n); /* KVT_OK: and it was right */
enum kvt_status store_erase(struct store *s, uint64_t n);
enum kvt_status store_flush(struct store *s);
bool store_has(struct store *s, uint64_t n);
void store_step(struct store *s, unsigned rounds);
struct kvt_tier_stats store_stats(struct store *s);

/* As the above, given back when done() says so. */
struct wish {
	struct kvt_tier_request request;
	struct kvt_key key, parent;
	struct kvt_item item;
	struct kvt_blocks blocks;
	uint64_t n;
	uint8_t *bytes;
	uint64_t room;
	struct kvt_segment segments[2];
	bool done;
	struct store *store;
	bool had_names;
};
/* `cut`: where the buffer is cut in two segments, 0: one. */
struct wish *wish_new(struct store *s, enum kvt_tier_verb verb, uint64_t n, uint64_t cut);
void wish_free(struct wish *w);
enum kvt_status wish_wait(struct store *s, struct wish *w);

void remove_tree(const char *path);

/* Path of a file of the store. */
void store_path(struct store *s, const char *name, char *out, size_t size);

#endif
