/*
 * kvtierd_scene.c - requests made, waited for, and checked.
 */
#include "kvtierd_scene.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tiers/kvtierd/kvtierd.h"

#define PATIENCE_NS INT64_C(60000000000) /* then the test has hung */

static int64_t machine_ns(clockid_t id)
{
	struct timespec t;

	(void)clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t now_ns(void *self)
{
	struct scene *s = self;

	return machine_ns(CLOCK_MONOTONIC) + s->ahead_ns;
}

static int64_t wall_ns(void *self)
{
	struct scene *s = self;

	return machine_ns(CLOCK_REALTIME) + s->ahead_ns;
}

static void no_log(void *self, uint32_t level, const char *line)
{
	(void)self;
	(void)level;
	(void)line;
}

void scene_init(struct scene *s, struct fake_daemon *d)
{
	memset(s, 0, sizeof(*s));
	s->daemon = d;
	kvt_config_init(&s->config, sizeof(s->config));
	s->clock = (struct kvt_clock){.now_ns = now_ns, .wall_ns = wall_ns, .self = s};
	s->config.clock = &s->clock;
	s->config.log = no_log;
	s->config.threads = KVT_THREADS_CALLER;
	(void)snprintf(s->url, sizeof(s->url), "kvtierd://127.0.0.1:%u", d->port);
	s->config.l2_url = s->url;
	s->config.l2_segment = d->segment;
	s->config.l2_deadline_ns = 10000000000;
	s->config.l2_seen_ns = 60000000000;
	s->config.l2_missing_ns = 60000000000;
	memset(s->config.fingerprint.bytes, 0x5f, sizeof(s->config.fingerprint.bytes));
}

static void stored(
	void *self, uint32_t tier, const struct kvt_key *key, const struct kvt_blocks *names)
{
	struct scene *s = self;

	ck_assert_uint_eq(tier, KVT_TIER_L2);
	ck_assert(key != NULL && names != NULL);
	s->stored++;
}

void scene_open(struct scene *s)
{
	struct kvt_tier_options options = {
		.config = &s->config,
		.surroundings = &s->surroundings,
		.watch = {.stored = stored, .self = s},
	};

	kvt_surroundings_init(&s->surroundings, &s->config);
	ck_assert_int_eq(kvt_kvtierd_ops.create(&options, s->why, &s->tier), KVT_OK);
}

void scene_close(struct scene *s)
{
	s->tier->ops->destroy(s->tier);
	s->tier = NULL;
}

struct kvt_key scene_key(uint64_t n)
{
	struct kvt_key key;

	for (size_t i = 0; i < sizeof(key.bytes); i++)
		key.bytes[i] = (uint8_t)((n * UINT64_C(0x9e3779b97f4a7c15) + i) >> (i % 8 * 8));
	memcpy(key.bytes, &n, sizeof(n));
	return key;
}

uint64_t scene_bytes(uint64_t n)
{
	return 1 + n * UINT64_C(2654435761) % 300000;
}

static uint8_t byte_of(uint64_t n, uint64_t at)
{
	return (uint8_t)((n + 1) * 31 + at * 7 + (at >> 9));
}

struct kvtierd_wish *wish_begin(
	struct scene *s, enum kvt_tier_verb verb, uint64_t first, size_t count, int64_t within_ns)
{
	struct kvtierd_wish *w = calloc(1, sizeof(*w));

	ck_assert(w != NULL);
	w->keys = calloc(count + 1, sizeof(w->keys[0]));
	for (size_t i = 0; i < count; i++)
		w->keys[i] = scene_key(first + i);
	w->first = first;
	w->request = (struct kvt_tier_request){.verb = verb,
		.keys = w->keys,
		.key_count = count,
		.deadline_ns = within_ns == 0 ? KVT_TIER_NEVER : now_ns(s) + within_ns};
	return w;
}

/* Room, or bytes, in three segments. */
static void cut(struct kvtierd_wish *w, uint64_t bytes)
{
	uint64_t a = bytes / 3, b = bytes / 2 - a;

	w->room = bytes;
	w->bytes = malloc(bytes);
	ck_assert(w->bytes != NULL);
	w->segments[0] = (struct kvt_segment){.base = w->bytes, .bytes = a};
	w->segments[1] = (struct kvt_segment){.base = w->bytes + a, .bytes = b};
	w->segments[2] = (struct kvt_segment){.base = w->bytes + a + b, .bytes = bytes - a - b};
	w->request.segments = w->segments;
	w->request.segment_count = 3;
	w->request.bytes = bytes;
}

struct kvtierd_wish *wish_put(
	struct scene *s, uint64_t n, uint64_t bytes, const struct kvt_tenant *tenant, bool blocks)
{
	static const uint8_t hashes[32] = {1, 2, 3};
	static const uint32_t tokens[32] = {7, 8, 9};
	struct kvtierd_wish *w = wish_begin(s, KVT_TIER_WRITE, n, 1, 0);

	cut(w, bytes);
	for (uint64_t i = 0; i < bytes; i++)
		w->bytes[i] = byte_of(n, i);
	w->parent = scene_key(n - 1);
	w->item = (struct kvt_item){.size = sizeof(w->item),
		.tokens = 256,
		.key = w->keys[0],
		.parent = n % 2 == 1 ? &w->parent : NULL,
		.bytes = bytes};
	if (tenant != NULL)
		w->item.tenant = *tenant;
	if (blocks) {
		w->blocks = (struct kvt_blocks){.hashes = hashes,
			.hash_bytes = 16,
			.count = 2,
			.tokens = tokens,
			.block_size = 16};
		w->item.blocks = &w->blocks;
		w->request.announce = true;
	}
	w->request.item = &w->item;
	kvt_checksum_segments(w->segments, 3, bytes, &w->request.checksum);
	return w;
}

static void check_bytes(const struct kvtierd_wish *w)
{
	struct kvt_checksum sum;

	for (uint64_t i = 0; i < w->room; i++)
		ck_assert_uint_eq(w->bytes[i], byte_of(w->first, i));
	kvt_checksum_segments(w->segments, 3, w->room, &sum);
	ck_assert(kvt_checksum_equal(&sum, &w->request.checksum));
}

static void wish_done(struct kvt_tier_request *r)
{
	struct kvtierd_wish *w = r->user;

	ck_assert(!w->done);
	if (r->verb == KVT_TIER_READ && r->status == KVT_OK && r->names != NULL) {
		ck_assert_uint_eq(r->names->count, 2);
		ck_assert_uint_eq(r->names->hashes[2], 3);
		w->had_names = true;
	}
	w->done = true;
}

void wish_submit(struct scene *s, struct kvtierd_wish *w)
{
	w->request.begun_ns = now_ns(s);
	w->request.done = wish_done;
	w->request.user = w;
	s->tier->ops->submit(s->tier, &w->request);
}

void scene_step(struct scene *s, unsigned rounds)
{
	int64_t next_ns;

	while (rounds-- > 0)
		(void)s->tier->ops->step(s->tier, 1000000, &next_ns);
}

enum kvt_status wish_end(struct scene *s, struct kvtierd_wish *w)
{
	int64_t give_up_ns = machine_ns(CLOCK_MONOTONIC) + PATIENCE_NS;
	enum kvt_status status;

	while (!w->done) {
		scene_step(s, 1);
		ck_assert_int_lt(machine_ns(CLOCK_MONOTONIC), give_up_ns);
	}
	status = w->request.status;
	if (w->request.verb == KVT_TIER_READ && status == KVT_OK)
		check_bytes(w);
	free(w->keys);
	free(w->bytes);
	free(w);
	return status;
}

static enum kvt_status simple(struct scene *s, enum kvt_tier_verb verb, uint64_t n, size_t count)
{
	struct kvtierd_wish *w = wish_begin(s, verb, n, count, 0);

	wish_submit(s, w);
	return wish_end(s, w);
}

enum kvt_status scene_put_of(struct scene *s, uint64_t n, const struct kvt_tenant *tenant)
{
	struct kvtierd_wish *w = wish_put(s, n, scene_bytes(n), tenant, n % 3 == 0);

	wish_submit(s, w);
	return wish_end(s, w);
}

enum kvt_status scene_put(struct scene *s, uint64_t n)
{
	return scene_put_of(s, n, NULL);
}

struct kvtierd_wish *wish_get(struct scene *s, uint64_t n, int64_t within_ns)
{
	struct kvtierd_wish *w = wish_begin(s, KVT_TIER_READ, n, 1, within_ns);

	cut(w, scene_bytes(n));
	return w;
}

enum kvt_status scene_get_within(struct scene *s, uint64_t n, int64_t within_ns)
{
	struct kvtierd_wish *w = wish_get(s, n, within_ns);

	wish_submit(s, w);
	return wish_end(s, w);
}

enum kvt_status scene_get(struct scene *s, uint64_t n)
{
	return scene_get_within(s, n, 0);
}

enum kvt_status scene_erase(struct scene *s, uint64_t n)
{
	return simple(s, KVT_TIER_ERASE, n, 1);
}

enum kvt_status scene_flush(struct scene *s)
{
	return simple(s, KVT_TIER_FLUSH, 0, 0);
}

size_t scene_probe(struct scene *s, uint64_t first, size_t count, enum kvt_status *status)
{
	struct kvtierd_wish *w = wish_begin(s, KVT_TIER_PROBE, first, count, 0);
	enum kvt_status ended;
	size_t found;

	wish_submit(s, w);
	while (!w->done)
		scene_step(s, 1);
	found = w->request.found;
	ended = wish_end(s, w);
	if (status != NULL)
		*status = ended;
	return found;
}

void scene_wait_leases(struct scene *s, int held)
{
	const struct kvtierd *t = (const struct kvtierd *)s->tier;
	int64_t give_up_ns = machine_ns(CLOCK_MONOTONIC) + PATIENCE_NS;

	while (s->daemon->live > held || t->release_count > 0) {
		scene_step(s, 1);
		ck_assert_int_lt(machine_ns(CLOCK_MONOTONIC), give_up_ns);
	}
}

struct kvt_tier_stats scene_stats(struct scene *s)
{
	struct kvt_tier_stats stats = {0};

	s->tier->ops->stats(s->tier, &stats);
	return stats;
}
