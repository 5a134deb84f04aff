/*
 * redis_rig.c - Redis tiers in a test's hands.
 */
#include "redis_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tiers/redis/redis_value.h"
#include "tiers/tiers.h"

#define STEP_NS    20000
#define STEPS_MOST 4000000

static int64_t now_of(void *self)
{
	struct redis_rig *r = self;
	struct timespec now;

	if (r->real == 0)
		return r->now_ns;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t wall_of(void *self)
{
	return 1700000000000000000 + now_of(self);
}

static void keep_log(void *self, uint32_t level, const char *line)
{
	struct redis_rig *r = self;

	if (level < KVT_LOG_WARN)
		return;
	r->warnings++;
	(void)snprintf(r->last_log, sizeof(r->last_log), "%s", line);
}

void rig_init(struct redis_rig *r)
{
	memset(r, 0, sizeof(*r));
	kvt_config_init(&r->config, sizeof(r->config));
	r->now_ns = 1000000000;
	r->clock = (struct kvt_clock){.now_ns = now_of, .wall_ns = wall_of, .self = r};
	r->surroundings =
		(struct kvt_surroundings){.clock = r->clock, .log = keep_log, .log_self = r};
	r->config.l2_url = "redis://127.0.0.1:6379";
	memset(r->config.fingerprint.bytes, 0xf1, sizeof(r->config.fingerprint.bytes));
}

enum kvt_status rig_open(struct redis_rig *r, int handle)
{
	struct kvt_tier_options options = {
		.config = &r->config,
		.surroundings = &r->surroundings,
	};

	r->why[0] = '\0';
	return kvt_redis_ops.create(&options, r->why, &r->tiers[handle]);
}

void rig_close(struct redis_rig *r, int handle)
{
	if (r->tiers[handle] != NULL)
		r->tiers[handle]->ops->destroy(r->tiers[handle]);
	r->tiers[handle] = NULL;
}

void rig_finish(struct redis_rig *r)
{
	for (int i = 0; i < RIG_HANDLES; i++)
		rig_close(r, i);
}

struct kvt_key rig_key(uint64_t n)
{
	struct kvt_key key;

	for (size_t i = 0; i < sizeof(key.bytes); i++)
		key.bytes[i] = (uint8_t)((n * 0x9e3779b97f4a7c15u) >> (i % 8 * 8)) ^ (uint8_t)i;
	return key;
}

uint8_t rig_byte(uint64_t n, uint64_t at)
{
	uint64_t z = (n + 1) * 0xbf58476d1ce4e5b9u + at * 0x94d049bb133111ebu;

	return (uint8_t)(z >> 32);
}

const char *rig_name(struct redis_rig *r, uint64_t n, unsigned part)
{
	static char name[REDIS_KEY_ROOM];
	struct kvt_key key = rig_key(n);

	(void)redis_chunk_name(&r->config.fingerprint, &key, part, name);
	return name;
}

static void request_done(struct kvt_tier_request *request)
{
	struct redis_rig *r = request->user;

	r->had_names = request->names != NULL && request->names->count > 0;
	request->user = NULL;
}

void rig_steps(struct redis_rig *r, int handle, unsigned count)
{
	int64_t next;

	for (unsigned i = 0; i < count; i++) {
		(void)r->tiers[handle]->ops->step(
			r->tiers[handle], r->real != 0 ? 1000000 : 0, &next);
		r->now_ns += STEP_NS;
	}
}

enum kvt_status rig_run(struct redis_rig *r, int handle, struct kvt_tier_request *request)
{
	request->done = request_done;
	request->user = r;
	request->begun_ns = now_of(r);
	request->wanted_ns = request->begun_ns;
	r->tiers[handle]->ops->submit(r->tiers[handle], request);
	for (unsigned i = 0; request->user != NULL; i++) {
		if (i == STEPS_MOST)
			ck_abort_msg("a request does not end");
		rig_steps(r, handle, 1);
	}
	return (enum kvt_status)request->status;
}

/* A chunk in two segments, whose border lies at an odd place. */
struct chunk {
	uint8_t *bytes;
	struct kvt_segment segments[2];
	uint32_t count;
};

static void chunk_init(struct chunk *c, uint64_t bytes)
{
	uint64_t cut = bytes > 100 ? bytes / 3 + 1 : bytes;

	c->bytes = malloc(bytes);
	memset(c->bytes, 0xee, bytes);
	c->segments[0] = (struct kvt_segment){.base = c->bytes, .bytes = cut};
	c->segments[1] = (struct kvt_segment){.base = c->bytes + cut, .bytes = bytes - cut};
	c->count = cut < bytes ? 2 : 1;
}

enum kvt_status rig_put_item(struct redis_rig *r, int handle, uint64_t n, struct kvt_item *item)
{
	struct kvt_key key = rig_key(n);
	struct kvt_tier_request request = {.verb = KVT_TIER_WRITE,
		.keys = &key,
		.key_count = 1,
		.bytes = item->bytes,
		.item = item};
	struct chunk c;
	enum kvt_status status;

	item->key = key;
	chunk_init(&c, item->bytes);
	for (uint64_t i = 0; i < item->bytes; i++)
		c.bytes[i] = rig_byte(n, i);
	request.segments = c.segments;
	request.segment_count = c.count;
	kvt_checksum_segments(c.segments, c.count, item->bytes, &request.checksum);
	status = rig_run(r, handle, &request);
	free(c.bytes);
	return status;
}

enum kvt_status rig_put(struct redis_rig *r, int handle, uint64_t n, uint64_t bytes)
{
	struct kvt_item item = {.size = sizeof(item), .tokens = 256, .bytes = bytes};

	return rig_put_item(r, handle, n, &item);
}

enum kvt_status rig_get_by(
	struct redis_rig *r, int handle, uint64_t n, uint64_t bytes, int64_t deadline_ns)
{
	struct kvt_key key = rig_key(n);
	struct kvt_tier_request request = {.verb = KVT_TIER_READ,
		.keys = &key,
		.key_count = 1,
		.bytes = bytes,
		.deadline_ns = deadline_ns};
	struct chunk c;
	enum kvt_status status;
	uint64_t wrong = 0;

	chunk_init(&c, bytes);
	request.segments = c.segments;
	request.segment_count = c.count;
	status = rig_run(r, handle, &request);
	for (uint64_t i = 0; i < bytes && status == KVT_OK; i++)
		wrong += c.bytes[i] != rig_byte(n, i);
	ck_assert_uint_eq(wrong, 0);
	r->checksum = request.checksum;
	free(c.bytes);
	return status;
}

enum kvt_status rig_get(struct redis_rig *r, int handle, uint64_t n, uint64_t bytes)
{
	return rig_get_by(r, handle, n, bytes, KVT_TIER_NEVER);
}

enum kvt_status rig_erase(struct redis_rig *r, int handle, uint64_t n)
{
	struct kvt_key key = rig_key(n);
	struct kvt_tier_request request = {.verb = KVT_TIER_ERASE, .keys = &key, .key_count = 1};

	return rig_run(r, handle, &request);
}

enum kvt_status rig_flush(struct redis_rig *r, int handle)
{
	struct kvt_tier_request request = {.verb = KVT_TIER_FLUSH};

	return rig_run(r, handle, &request);
}

enum kvt_status rig_ask_table(struct redis_rig *r, int handle, struct kvt_table_ask *ask)
{
	struct kvt_tier_request request = {.verb = KVT_TIER_TABLE, .table = ask};

	return rig_run(r, handle, &request);
}

size_t rig_probe(struct redis_rig *r, int handle, uint64_t first, size_t count)
{
	struct kvt_key *keys = calloc(count, sizeof(*keys));
	struct kvt_tier_request request = {
		.verb = KVT_TIER_PROBE, .keys = keys, .key_count = count};
	enum kvt_status status;

	for (size_t i = 0; i < count; i++)
		keys[i] = rig_key(first + i);
	status = rig_run(r, handle, &request);
	free(keys);
	return status == KVT_OK ? request.found : SIZE_MAX;
}

bool rig_knows(struct redis_rig *r, int handle, uint64_t n)
{
	struct kvt_key key = rig_key(n);

	return r->tiers[handle]->ops->match(r->tiers[handle], &key, 1) == 1;
}

struct kvt_tier_stats rig_stats(struct redis_rig *r, int handle)
{
	struct kvt_tier_stats stats = {0};

	r->tiers[handle]->ops->stats(r->tiers[handle], &stats);
	return stats;
}
