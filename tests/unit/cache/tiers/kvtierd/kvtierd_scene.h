/*
 * kvtierd_scene.h - the tiered-storage tier in a test's hands, with a fake daemon.
 *
 * The payload of a chunk is a function of its number, so whatever a read gives can be checked; wrong
 * bytes end the test at once.
 */
#ifndef KVTIERD_SCENE_H
#define KVTIERD_SCENE_H

#include "fake_daemon.h"
#include "tiers/tiers.h"

struct scene {
	struct kvt_config config;
	struct kvt_surroundings surroundings;
	struct kvt_tier *tier;
	struct fake_daemon *daemon;
	char url[64];
	char why[KVT_REASON_BYTES];
	int64_t ahead_ns; /* of the machine's clock */
	struct kvt_clock clock;
	unsigned stored;
};

/* Defaults of tests: 4 connections, a deadline of 10 s, answers believed for 60 s. */
void scene_init(struct scene *s, struct fake_daemon *d);
void scene_open(struct scene *s);
void scene_close(struct scene *s);

struct kvt_key scene_key(uint64_t n);
uint64_t scene_bytes(uint64_t n); /* some length up to 300 KiB */

/* A request and what it needs; freed by wish_end. */
struct kvtierd_wish {
	struct kvt_tier_request request;
	struct kvt_key *keys, parent;
	struct kvt_item item;
	struct kvt_blocks blocks;
	uint8_t *bytes;
	uint64_t first, room;
	struct kvt_segment segments[3];
	_Atomic bool done;
	bool had_names;
};
struct kvtierd_wish *wish_begin(
	struct scene *s, enum kvt_tier_verb verb, uint64_t first, size_t count, int64_t within_ns);
/* As above, of a tenant, with a length of its own. */
struct kvtierd_wish *wish_put(
	struct scene *s, uint64_t n, uint64_t bytes, const struct kvt_tenant *tenant, bool blocks);
struct kvtierd_wish *wish_get(struct scene *s, uint64_t n, int64_t within_ns);
void wish_submit(struct scene *s, struct kvtierd_wish *w);
enum kvt_status wish_end(struct scene *s, struct kvtierd_wish *w); /* steps until done */

enum kvt_status scene_put(struct scene *s, uint64_t n);
enum kvt_status scene_put_of(struct scene *s, uint64_t n, const struct kvt_tenant *tenant);
enum kvt_status scene_get(struct scene *s, uint64_t n); /* KVT_OK: and it was right */
enum kvt_status scene_get_within(struct scene *s, uint64_t n, int64_t within_ns);
enum kvt_status scene_erase(struct scene *s, uint64_t n);
enum kvt_status scene_flush(struct scene *s);
/* How many of so many keys from the first on are there; status in *status (NULL is allowed). */
size_t scene_probe(struct scene *s, uint64_t first, size_t count, enum kvt_status *status);
void scene_step(struct scene *s, unsigned rounds);
/* Steps until the daemon holds that many leases at most, and the tier waits for no release's answer:
 * a fault then meets the next request, never a release or its repetition. */
void scene_wait_leases(struct scene *s, int held);
struct kvt_tier_stats scene_stats(struct scene *s);

#endif
