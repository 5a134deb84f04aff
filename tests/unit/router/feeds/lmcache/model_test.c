/*
 * model_test.c - random messages in random order: registry and index agree after each, and what is
 * believed of a worker that lost nothing is what it holds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "invariants.h"
#include "tests/unit/suite.h"
#include "world.h"

#define KEYS  12
#define STEPS 4000

static const struct kvw_lmreg_worker workers[WORLD_WORKERS] = {
	{"", "10.0.0.1"}, {"", "10.0.0.2"}, {"named", "10.0.0.3"}, {"", "10.0.0.3"}};
static const uint64_t keys[KEYS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static uint64_t state;

static uint32_t pick(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 20) % below;
}

static const char *any_id(void)
{
	static const char *const ids[] = {"a", "b", "named", "c"};

	return ids[pick(4)];
}

static const char *any_ip(void)
{
	static const char *const ips[] = {"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.9.9.9"};

	return ips[pick(4)];
}

static const char *any_place(void)
{
	static const char *const places[] = {"LocalCPUBackend", "LocalDiskBackend", "GdsBackend"};

	return places[pick(3)];
}

static void any_ops(struct world *world)
{
	char ops[64] = "";
	size_t len = 0;

	for (uint32_t i = 1 + pick(4); i > 0; i--)
		len += (size_t)snprintf(ops + len, sizeof(ops) - len, "%c%u ",
			pick(3) > 0 ? '+' : '-', 1 + pick(KEYS));
	world_ops_at(world, any_id(), pick(2), any_place(), pick(6), ops);
}

static void any_sync(struct world *world)
{
	const char *id = any_id();
	uint32_t rank = pick(2);
	char json[400];

	switch (pick(4)) {
	case 0:
		snprintf(json, sizeof(json),
			"{'type':'FullSyncStartMsg','instance_id':'%s','worker_id':%u,"
			"'location':'%s','sync_id':'s%u','total_keys':4,'batch_count':%u}",
			id, rank, any_place(), pick(2), pick(3));
		world_ask(world, json);
		break;
	case 1:
		snprintf(json, sizeof(json),
			"{'type':'FullSyncStatusMsg','instance_id':'%s','worker_id':%u,"
			"'sync_id':'s%u'}",
			id, rank, pick(2));
		world_ask(world, json);
		break;
	default:
		snprintf(json, sizeof(json),
			"{'type':'FullSyncBatchMsg','instance_id':'%s','worker_id':%u,"
			"'location':'LocalCPUBackend','sync_id':'s%u','batch_id':%u,"
			"'keys':[%u,%u]}",
			id, rank, pick(2), pick(3), 1 + pick(KEYS), 1 + pick(KEYS));
		world_push(world, json);
		break;
	}
}

static void deregister(struct world *world)
{
	char json[200];

	snprintf(json, sizeof(json),
		"{'type':'DeRegisterMsg','instance_id':'%s','worker_id':%u,'ip':'10.0.0.1',"
		"'port':1}",
		any_id(), pick(2));
	world_push(world, json);
}

static void step(struct world *world)
{
	switch (pick(16)) {
	case 0:
		world_register(world, any_id(), pick(2), any_ip());
		break;
	case 1:
	case 2:
		world_heartbeat(world, any_id(), pick(2), any_ip());
		break;
	case 3:
		deregister(world);
		break;
	case 4:
		world->now_ns += pick(40) * SECOND;
		kvw_lmreg_tick(world->reg, world->now_ns);
		break;
	case 5:
		kvw_lmreg_worker_down(world->reg, pick(WORLD_WORKERS), world->now_ns - pick(5));
		break;
	case 6: {
		uint32_t worker = pick(WORLD_WORKERS);

		kvw_kvindex_purge(world->index, worker);
		kvw_lmreg_worker_purged(world->reg, worker);
		break;
	}
	case 7:
		if (world->reg->count > 0)
			kvw_lmreg_set_space(world->reg,
				world->reg->instances[pick((uint32_t)world->reg->count)], pick(2));
		break;
	case 8:
	case 9:
	case 10:
	case 11:
		any_sync(world);
		break;
	default:
		any_ops(world);
	}
}

START_TEST(registry_and_index_agree)
{
	struct world world;
	const char *fault;

	state = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(_i + 1);
	world_open(&world, workers, WORLD_WORKERS);
	for (int i = 0; i < STEPS; i++) {
		step(&world);
		fault = lmreg_fault(world.reg, keys, KEYS);
		ck_assert_msg(fault == NULL, "seed %d step %d: %s", _i, i, fault);
	}
	ck_assert_uint_gt(world.reg->stats.syncs_done, 0);
	ck_assert_uint_gt(world.reg->stats.gaps, 0);
	world_close(&world);
}
END_TEST

/* A worker as it should be, on a line that loses messages: a full view never promises too much. */
START_TEST(never_promises_what_is_gone)
{
	struct world world;
	bool held[KEYS + 1] = {false};
	uint64_t number = 0;

	state = UINT64_C(0xd1b54a32d192ed03) * (uint64_t)(_i + 1);
	world_open(&world, workers, WORLD_WORKERS);
	world_register(&world, "named", 0, "10.0.0.3");
	for (int i = 0; i < STEPS; i++) {
		uint32_t key = 1 + pick(KEYS);
		char op[16];

		held[key] = !held[key];
		snprintf(op, sizeof(op), "%c%u", held[key] ? '+' : '-', key);
		if (pick(200) != 0)
			world_ops(&world, "named", 0, number, op);
		else
			i++; /* lost; the next one shows it */
		number++;
		for (uint32_t k = 1; k <= KEYS && world.reg->stats.gaps == 0; k++)
			ck_assert(kvw_lmreg_has(world.reg->by_worker[2], k) == held[k] ||
				  world.reg->by_worker[2]->ranks[0].places[0].next != number);
		if (world.reg->by_worker[2]->ranks[0].places[0].next != number)
			continue; /* it cannot know yet */
		for (uint32_t k = 1; k <= KEYS; k++)
			if (kvw_lmreg_has(world.reg->by_worker[2], k))
				ck_assert(held[k]);
	}
	ck_assert_uint_gt(world.reg->stats.gaps, 0);
	ck_assert_int_eq(world.coverages[2], KVW_COVERAGE_BLIND);
	world_close(&world);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("model");

	tcase_add_loop_test(tc, registry_and_index_agree, 0, 8);
	tcase_add_loop_test(tc, never_promises_what_is_gone, 0, 4);
	tcase_set_timeout(tc, 100);
	return run_tcase("lmcache model", tc);
}
