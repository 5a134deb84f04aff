/*
 * map_test.c - whose an instance is: configuration, address, and prompts; other hash recipes; questions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "feeds/lmcache/diagnose.h"
#include "tests/unit/suite.h"
#include "world.h"

#define CHUNK 16

static const struct kvw_lmreg_worker workers[WORLD_WORKERS] = {
	{"", "10.0.0.1"}, {"", "10.0.0.9"}, {"named", "10.0.0.9"}, {"", "10.0.0.4"}};
/* Two workers behind one address. */
static const struct kvw_lmreg_worker shared[WORLD_WORKERS] = {
	{"", "10.0.0.7"}, {"", "10.0.0.7"}, {"", "10.0.0.8"}, {"", "10.0.0.8"}};
static const struct kvw_lmcache_recipe configured = {.chunk_size = CHUNK, .seed = "0"};

static struct world world;
static struct kvw_kvspaces *spaces;
static struct kvw_lmdiag *diag;

static void open_with(const struct kvw_lmreg_worker *list)
{
	struct kvw_lmdiag_options options = {.configured = &configured, .detect = true};
	uint32_t space;

	world_open(&world, list, WORLD_WORKERS);
	ck_assert_int_eq(kvw_kvspaces_create(&spaces), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_lmcache(spaces, &configured, &space), KVW_OK);
	ck_assert_uint_eq(space, 0);
	options.reg = world.reg;
	options.spaces = spaces;
	ck_assert_int_eq(kvw_lmdiag_create(&options, &diag), KVW_OK);
}

static void teardown(void)
{
	kvw_lmdiag_destroy(diag);
	kvw_kvspaces_destroy(spaces);
	world_close(&world);
}

static void setup(void)
{
	open_with(workers);
}

static void setup_shared(void)
{
	open_with(shared);
}

START_TEST(by_configuration)
{
	world_register(&world, "named", 0, "10.0.0.1"); /* whatever address it gives */
	ck_assert_int_eq(world.coverages[2], KVW_COVERAGE_FULL);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_NONE);
}
END_TEST

/* The other worker at that address is the configured one's: one is left. */
START_TEST(by_address)
{
	world_register(&world, "i1", 0, "10.0.0.9");
	ck_assert_int_eq(world.coverages[1], KVW_COVERAGE_FULL);
	world_register(&world, "i5", 0, "10.0.0.5"); /* no worker's */
	ck_assert_ptr_null(world.reg->by_worker[3]);
	ck_assert_uint_eq(world.reg->count, 2);
}
END_TEST

START_TEST(configuration_beats_address)
{
	world_register(&world, "i2", 0, "10.0.0.9");
	ck_assert_ptr_eq(world.reg->by_worker[1], kvw_lmreg_find(world.reg, KVW_SLICE("i2")));
	world_register(&world, "named", 1, "10.0.0.9");
	ck_assert_ptr_eq(world.reg->by_worker[2], kvw_lmreg_find(world.reg, KVW_SLICE("named")));
	ck_assert_ptr_eq(world.reg->by_worker[1], kvw_lmreg_find(world.reg, KVW_SLICE("i2")));
}
END_TEST

START_TEST(shared_address_is_no_proof)
{
	world_register(&world, "a", 0, "10.0.0.1");
	world_ops(&world, "a", 0, 0, "+1");
	ck_assert_uint_eq(world_held(&world, 0), 1);
	world_push(&world, "{'type':'RegisterMsg','instance_id':'b','worker_id':0,'ip':'10.0.0.1',"
			   "'port':9999,'peer_init_url':null}");
	ck_assert_uint_eq(world_held(&world, 0), 0);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_NONE);
	world_push(&world, "{'type':'DeRegisterMsg','instance_id':'b','worker_id':0,"
			   "'ip':'10.0.0.1','port':9999}");
	kvw_lmreg_tick(world.reg, world.now_ns);
	ck_assert_uint_eq(world_held(&world, 0), 1); /* alone again, and nothing is lost */
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
}
END_TEST

/* What was found out of a worker by its address, or by prompts to it, says nothing of another address. */
START_TEST(another_address_ends_the_mapping)
{
	static struct kvw_lmreg_worker list[WORLD_WORKERS];

	memcpy(list, workers, sizeof(list));
	teardown();
	open_with(list);
	world_register(&world, "a", 0, "10.0.0.1");
	world_register(&world, "named", 1, "10.0.0.9");
	world_ops(&world, "a", 0, 0, "+1");
	ck_assert_uint_eq(world_held(&world, 0), 1);
	list[0].ip = "10.0.0.3";
	list[2].ip = "10.0.0.3";
	kvw_lmreg_worker_moved(world.reg, 0);
	kvw_lmreg_worker_moved(world.reg, 2);
	kvw_lmreg_worker_came(world.reg);
	ck_assert_uint_eq(world_held(&world, 0), 0);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_NONE);
	ck_assert_int_eq(world.coverages[2], KVW_COVERAGE_FULL); /* by configuration */
	list[0].ip = "10.0.0.1"; /* back */
	kvw_lmreg_worker_moved(world.reg, 0);
	kvw_lmreg_worker_came(world.reg);
	ck_assert_uint_eq(world_held(&world, 0), 1);
}
END_TEST

/* An engine chooses a new name at each start. */
START_TEST(same_port_takes_the_place)
{
	world_register(&world, "lmcache_instance_1", 0, NULL);
	world_ops(&world, "lmcache_instance_1", 0, 0, "+1");
	world_register(&world, "lmcache_instance_2", 0, NULL);
	ck_assert_uint_eq(world.reg->count, 1);
	ck_assert_uint_eq(world_held(&world, 0), 0);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
	world_ops(&world, "lmcache_instance_2", 0, 0, "+1 +2");
	ck_assert_uint_eq(world_held(&world, 0), 2);
}
END_TEST

/* Many instances that belong to no worker: the bound holds, those with a worker stay. */
START_TEST(bounded)
{
	char id[32];

	world_register(&world, "mine", 0, "10.0.0.1");
	for (int i = 0; i < KVW_LMREG_INSTANCES + 100; i++) {
		world.now_ns++;
		snprintf(id, sizeof(id), "foreign%d", i);
		world_ops(&world, id, 0, 0, "+1");
	}
	ck_assert_uint_eq(world.reg->count, KVW_LMREG_INSTANCES);
	ck_assert_ptr_nonnull(kvw_lmreg_find(world.reg, KVW_SLICE("mine")));
	ck_assert_ptr_null(kvw_lmreg_find(world.reg, KVW_SLICE("foreign0")));
	ck_assert_ptr_nonnull(kvw_lmreg_find(world.reg, kvw_slice_of(id)));
	for (uint32_t r = 0; r < KVW_LMREG_RANKS + 5; r++)
		world_ops(&world, "mine", r, 0, "+1");
	ck_assert_uint_eq(world.reg->stats.refused[KVW_LMCACHE_NO_ROOM], 5);
}
END_TEST

/* --- prompts --- */

static void make_prompt(uint32_t *tokens, uint32_t first)
{
	for (uint32_t i = 0; i < 256; i++)
		tokens[i] = first + i;
}

/* A prompt goes to a worker. */
static void route(uint32_t worker, uint32_t first)
{
	uint32_t tokens[256];

	make_prompt(tokens, first);
	kvw_lmdiag_routed(diag, worker, tokens, 256, world.now_ns);
}

/* An instance stores it. */
static void store(const char *instance, uint32_t first, const struct kvw_lmcache_recipe *recipe)
{
	struct kvw_lmreg_instance *found = kvw_lmreg_find(world.reg, kvw_slice_of(instance));
	struct kvw_lmreg_place *place;
	uint32_t tokens[256];
	uint64_t keys[32], state;
	char ops[800] = "";
	size_t count = 0, len = 0;

	make_prompt(tokens, first);
	ck_assert_int_eq(kvw_lmcache_begin(recipe, &state), KVW_OK);
	ck_assert_int_eq(kvw_lmcache_hash(recipe, &state, tokens, 256, keys, 32, &count), KVW_OK);
	for (size_t i = 0; i < count; i++)
		len += (size_t)snprintf(
			ops + len, sizeof(ops) - len, "+%llu ", (unsigned long long)keys[i]);
	place = found->ranks[0].place_count > 0 ? &found->ranks[0].places[0] : NULL;
	world_ops(&world, instance, 0, place != NULL ? place->next : 0, ops);
}

/* Time passes, a tenth of a second at a time. */
static void wait_s(int seconds)
{
	for (int i = 0; i < seconds * 10; i++) {
		world.now_ns += SECOND / 10;
		kvw_lmdiag_tick(diag, world.now_ns);
	}
}

START_TEST(learned_by_two_prompts)
{
	world_register(&world, "a", 0, "10.0.0.7");
	world_register(&world, "b", 1, "10.0.0.7");
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_NONE);
	wait_s(1);
	route(1, 1000);
	store("a", 1000, &configured); /* at once: before the first search */
	wait_s(2);
	ck_assert_ptr_null(world.reg->by_worker[1]);
	route(1, 5000);
	store("a", 5000, &configured);
	wait_s(2);
	ck_assert_ptr_eq(world.reg->by_worker[1], kvw_lmreg_find(world.reg, KVW_SLICE("a")));
	ck_assert_int_eq(world.coverages[1], KVW_COVERAGE_FULL);
	ck_assert_uint_eq(world.reg->stats.learned, 1);
}
END_TEST

/* Both instances store it: it says nothing. */
START_TEST(not_learned_where_two_hold)
{
	world_register(&world, "a", 0, "10.0.0.7");
	world_register(&world, "b", 1, "10.0.0.7");
	wait_s(1);
	for (uint32_t i = 0; i < 5; i++) {
		route(0, 1000 * i);
		store("a", 1000 * i, &configured);
		world_ops(&world, "b", 1, 0, "+1"); /* something */
		wait_s(2);
		if (i == 0)
			ck_assert_ptr_null(world.reg->by_worker[0]);
	}
	ck_assert_ptr_nonnull(world.reg->by_worker[0]);
}
END_TEST

/* The same prompt was sent to two workers. */
START_TEST(not_learned_from_what_two_were_sent)
{
	world_register(&world, "a", 0, "10.0.0.7");
	wait_s(1);
	for (uint32_t i = 0; i < 6; i++) {
		route(i % 2, 1000 * i);
		route((i + 1) % 2, 1000 * i);
		store("a", 1000 * i, &configured);
		wait_s(2);
	}
	ck_assert_ptr_null(world.reg->by_worker[0]);
	ck_assert_ptr_null(world.reg->by_worker[1]);
}
END_TEST

START_TEST(understood)
{
	world_register(&world, "i0", 0, NULL);
	wait_s(1);
	for (uint32_t i = 0; i < 10; i++) {
		route(0, 1000 * i);
		store("i0", 1000 * i, &configured);
		wait_s(1);
	}
	ck_assert_uint_eq(world.reg->stats.matched, KVW_LMDIAG_ENOUGH);
	ck_assert_uint_eq(
		world.reg->stats.routed, KVW_LMDIAG_ENOUGH); /* then the search has ended */
	ck_assert_uint_eq(world.reg->stats.detected, 0);
}
END_TEST

START_TEST(another_recipe_is_found)
{
	const struct kvw_lmcache_recipe others[] = {
		{.algorithm = KVW_LMCACHE_SHA256_CBOR, .chunk_size = CHUNK, .seed = "0"},
		{.chunk_size = 64, .seed = "0"},
		{.algorithm = KVW_LMCACHE_SHA256_CBOR, .chunk_size = 32},
		{.siphash = KVW_SIPHASH_24, .chunk_size = CHUNK, .seed = "0"},
		{.root = KVW_LMCACHE_ROOT_NUMBER, .chunk_size = CHUNK},
		{.chunk_size = CHUNK, .seed = "123"},
	};
	const struct kvw_lmcache_recipe *other = &others[_i];
	uint32_t space;

	world_register(&world, "i0", 0, NULL);
	wait_s(2);
	route(0, 1000);
	store("i0", 1000, other);
	wait_s(3);
	space = world.reg->by_worker[0]->space;
	ck_assert_uint_ne(space, 0);
	ck_assert_uint_eq(kvw_kvspaces_get(spaces, space)->recipe.chunk_size, other->chunk_size);
	ck_assert_int_eq(kvw_kvspaces_get(spaces, space)->recipe.algorithm, other->algorithm);
	ck_assert_uint_eq(world.reg->stats.detected, 1);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
	world_ops(&world, "i0", 0, world.reg->by_worker[0]->ranks[0].places[0].next, "+1 +2 +3");
	ck_assert_uint_eq(world_held_in(&world, 0, space), 3);
	ck_assert_uint_eq(world_held_in(&world, 0, 0), 0);
}
END_TEST

/* Keys reported before the recipe was found are known under it, and forgotten under the old one. */
START_TEST(keys_move_with_the_recipe)
{
	const struct kvw_lmcache_recipe other = {.chunk_size = 32, .seed = "0"};

	world_register(&world, "i0", 0, NULL);
	world_ops(&world, "i0", 0, 0, "+1 +2");
	ck_assert_uint_eq(world_held_in(&world, 0, 0), 2);
	wait_s(2);
	route(0, 1000);
	store("i0", 1000, &other);
	wait_s(3);
	ck_assert_uint_eq(world_held_in(&world, 0, 0), 0);
	ck_assert_uint_eq(world_held_in(&world, 0, world.reg->by_worker[0]->space), 2);
}
END_TEST

START_TEST(never_understood_is_blind)
{
	const struct kvw_lmcache_recipe odd = {.chunk_size = CHUNK, .seed = "8675309"};

	ck_assert_uint_le(KVW_LMDIAG_MISSES, 5);
	world_register(&world, "i0", 0, NULL);
	wait_s(2);
	for (uint32_t i = 0; i < KVW_LMDIAG_MISSES; i++) {
		ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
		route(0, 1000 * i);
		store("i0", 1000 * i, &odd);
		wait_s(16);
	}
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_BLIND);
	ck_assert_uint_eq(world.reg->stats.unmatched, KVW_LMDIAG_MISSES);
	store("i0", 77, &configured); /* it was set right, and restarted or not */
	route(0, 77);
	wait_s(1);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
}
END_TEST

/* The engine had them, so nothing was stored: no sign of another recipe. */
START_TEST(what_stores_nothing_is_no_miss)
{
	world_register(&world, "i0", 0, NULL);
	wait_s(2);
	store("i0", 1000, &configured);
	wait_s(1);
	for (uint32_t i = 0; i < 2 * KVW_LMDIAG_MISSES; i++) {
		route(0, 2000);
		wait_s(16);
	}
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
	ck_assert_uint_eq(world.reg->stats.unmatched, 0);
}
END_TEST

START_TEST(too_many_prompts)
{
	world_register(&world, "i0", 0, NULL);
	kvw_lmdiag_tick(diag, world.now_ns);
	for (uint32_t i = 0; i < 100; i++)
		route(0, i * 300);
	route(900, 1); /* no such worker */
	kvw_lmdiag_tick(diag, world.now_ns);
	ck_assert_uint_eq(world.reg->stats.routed, KVW_LMDIAG_PENDING);
	ck_assert_uint_eq(world.reg->stats.routed_dropped, 100 - KVW_LMDIAG_PENDING);
}
END_TEST

/* --- questions --- */

static void register_p2p(const char *id, unsigned rank, const char *p2p)
{
	char json[300];

	snprintf(json, sizeof(json),
		"{'type':'RegisterMsg','instance_id':'%s','worker_id':%u,'ip':'10.1.0.1',"
		"'port':%u,'peer_init_url':'%s'}",
		id, rank, 7000 + rank + (unsigned)id[0], p2p);
	world_ask(&world, json);
}

static void check_p2p(const char *hashes, const struct kvw_lmc_holder *expected)
{
	struct kvw_mp_out out;
	uint8_t bytes[512];
	char json[300];

	snprintf(json, sizeof(json),
		"{'type':'BatchedP2PLookupMsg','hashes':[%s],'instance_id':'a','worker_id':0}",
		hashes);
	world_ask(&world, json);
	kvw_mp_out_init(&out, bytes, sizeof(bytes));
	kvw_lmc_put_p2p(&out, expected);
	ck_assert_uint_eq(world.answer_len, out.len);
	ck_assert_mem_eq(world.answer, bytes, out.len);
}

/* Which other worker of the same rank holds the longest beginning and can be reached. */
START_TEST(p2p_lookup)
{
	struct kvw_lmc_holder c = {
		KVW_SLICE("c"), KVW_SLICE("LocalCPUBackend"), KVW_SLICE("10.1.0.3:9"), 3};

	register_p2p("a", 0, "10.1.0.1:9");
	register_p2p("b", 0, "10.1.0.2:9");
	register_p2p("c", 0, "10.1.0.3:9");
	register_p2p("d", 1, "10.1.0.4:9");         /* another rank */
	world_register(&world, "e", 0, "10.1.0.5"); /* not reachable */
	world_ops(&world, "a", 0, 0, "+1 +2 +3 +4");
	world_ops(&world, "b", 0, 0, "+1 +2 +9");
	world_ops(&world, "c", 0, 0, "+1 +2 +3");
	world_ops(&world, "d", 1, 0, "+1 +2 +3 +4");
	world_ops(&world, "e", 0, 0, "+1 +2 +3 +4");
	check_p2p("1,2,3,4", &c);
	check_p2p("4,3", NULL);
	check_p2p("", NULL);
	ck_assert_uint_eq(world.reg->stats.p2p_hits, 1);
}
END_TEST

static TCase *make_case(const char *name, void (*open)(void))
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, open, teardown);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("lmcache map");
	TCase *alone = make_case("alone", setup), *together = make_case("together", setup_shared);

	tcase_add_test(alone, by_configuration);
	tcase_add_test(alone, by_address);
	tcase_add_test(alone, configuration_beats_address);
	tcase_add_test(alone, shared_address_is_no_proof);
	tcase_add_test(alone, another_address_ends_the_mapping);
	tcase_add_test(alone, same_port_takes_the_place);
	tcase_add_test(alone, bounded);
	tcase_add_test(alone, understood);
	tcase_add_loop_test(alone, another_recipe_is_found, 0, 6);
	tcase_add_test(alone, keys_move_with_the_recipe);
	tcase_add_test(alone, never_understood_is_blind);
	tcase_add_test(alone, what_stores_nothing_is_no_miss);
	tcase_add_test(alone, too_many_prompts);
	tcase_add_test(alone, p2p_lookup);
	tcase_add_test(together, learned_by_two_prompts);
	tcase_add_test(together, not_learned_where_two_hold);
	tcase_add_test(together, not_learned_from_what_two_were_sent);
	tcase_set_timeout(alone, 60);
	suite_add_tcase(suite, alone);
	suite_add_tcase(suite, together);
	return run_suite(suite);
}
