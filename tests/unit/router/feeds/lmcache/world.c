#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void note_coverage(
	void *ctx, uint32_t worker, enum kvw_coverage coverage, uint32_t sources, const char *wrong)
{
	struct world *world = ctx;

	ck_assert_uint_lt(worker, WORLD_WORKERS);
	ck_assert_uint_le(sources, KVW_LMREG_RANKS);
	world->coverages[worker] = coverage;
	snprintf(world->wrong[worker], sizeof(world->wrong[worker]), "%s", wrong);
}

static const char *url_of(void *ctx, uint32_t worker)
{
	static const char *const urls[WORLD_WORKERS] = {"http://a", "http://b", "http://c", "http://d"};

	(void)ctx;
	return urls[worker];
}

void world_open(struct world *world, const struct kvw_lmreg_worker *workers, size_t count)
{
	struct kvw_kvindex_options index = {.bytes = 4 << 20, .seed = 7};
	struct kvw_lmreg_options options = {
		.coverage = note_coverage,
		.ctx = world,
		.worker_url = url_of,
		.workers = workers,
		.worker_count = count,
		.timeout_ns = 30 * SECOND,
		.key_limit = 4096,
		.seed = 11,
	};

	memset(world, 0, sizeof(*world));
	world->now_ns = 1000 * SECOND;
	ck_assert_int_eq(kvw_kvindex_create(&index, &world->index), KVW_OK);
	options.index = world->index;
	ck_assert_int_eq(kvw_lmreg_create(&options, &world->reg), KVW_OK);
	kvw_lmc_reader_init(&world->reader);
}

void world_close(struct world *world)
{
	kvw_lmc_reader_finish(&world->reader);
	kvw_lmreg_destroy(world->reg);
	kvw_kvindex_destroy(world->index);
}

void world_frame(struct world *world, struct kvw_slice frame, bool answered)
{
	struct kvw_lmc_message message;
	struct kvw_mp_out out;
	struct kvw_lmreg_request request = {
		.message = &message,
		.answered = answered,
		.heartbeat_url = KVW_SLICE("10.9.9.9:8082"),
		.now_ns = world->now_ns,
	};

	ck_assert_msg(kvw_lmc_read(&world->reader, frame, &message) == KVW_OK, "%s in %.*s",
		world->reader.error, (int)frame.len, frame.data);
	kvw_mp_out_init(&out, world->answer, sizeof(world->answer));
	kvw_lmreg_message(world->reg, &request, &out);
	ck_assert(!out.full);
	world->answer_len = out.len;
}

static void send_json(struct world *world, const char *json, bool answered)
{
	char *text = strdup(json);

	ck_assert_ptr_nonnull(text);
	for (char *at = text; *at != '\0'; at++)
		if (*at == '\'')
			*at = '"';
	world_frame(world, kvw_slice_of(text), answered);
	free(text);
}

void world_push(struct world *world, const char *json)
{
	send_json(world, json, false);
}

void world_ask(struct world *world, const char *json)
{
	send_json(world, json, true);
}

bool world_answered_bytes(const struct world *world, const void *data, size_t len)
{
	return memmem(world->answer, world->answer_len, data, len) != NULL;
}

bool world_answered(const struct world *world, const char *text)
{
	return world_answered_bytes(world, text, strlen(text));
}

void world_ops_at(struct world *world, const char *instance, uint32_t rank, const char *location,
	uint64_t number, const char *ops)
{
	char json[16384];
	int len = snprintf(json, sizeof(json),
		"{'type':'BatchedKVOperationMsg','instance_id':'%s','worker_id':%u,"
		"'location':'%s','operations':[",
		instance, rank, location);
	bool first = true;

	while (*ops != '\0') {
		char *end;
		bool admit = *ops++ == '+';
		uint64_t key = strtoull(ops, &end, 10);

		len += snprintf(json + len, sizeof(json) - (size_t)len,
			"%s{'op_type':'%s','key':%" PRIu64 ",'seq_num':%" PRIu64 "}",
			first ? "" : ",", admit ? "admit" : "evict", key, number++);
		ck_assert_int_lt(len, sizeof(json));
		first = false;
		ops = end + strspn(end, " ");
	}
	snprintf(json + len, sizeof(json) - (size_t)len, "]}");
	world_push(world, json);
}

void world_ops(
	struct world *world, const char *instance, uint32_t rank, uint64_t number, const char *ops)
{
	world_ops_at(world, instance, rank, "LocalCPUBackend", number, ops);
}

static void announce(
	struct world *world, const char *type, const char *instance, uint32_t rank, const char *ip)
{
	char json[512];

	snprintf(json, sizeof(json),
		"{'type':'%s','instance_id':'%s','worker_id':%u,'ip':'%s','port':%u,"
		"'peer_init_url':null}",
		type, instance, rank, ip == NULL ? "10.0.0.1" : ip, 8500 + rank);
	world_ask(world, json);
}

void world_register(struct world *world, const char *instance, uint32_t rank, const char *ip)
{
	announce(world, "RegisterMsg", instance, rank, ip);
}

void world_heartbeat(struct world *world, const char *instance, uint32_t rank, const char *ip)
{
	announce(world, "HeartbeatMsg", instance, rank, ip);
}

uint32_t world_held_in(const struct world *world, uint32_t worker, uint32_t space)
{
	static struct kvw_kvindex_hits hits;
	uint64_t keys[64];

	for (uint64_t i = 0; i < 64; i++)
		keys[i] = i + 1;
	kvw_kvindex_match(world->index, space, keys, 64, 256, &hits);
	return hits.blocks[worker];
}

uint32_t world_held(const struct world *world, uint32_t worker)
{
	return world_held_in(world, worker, 0);
}
