/*
 * programs_test.c - which requests are turns of one program, and which programs run.
 */
#include <check.h>
#include <pthread.h>

#include "admission/programs.h"
#include "tests/unit/suite.h"

#define SECOND INT64_C(1000000000)
#define CHUNK  256u
#define MOST   64
#define SLICES 16
#define WAYS   4

static struct kvw_programs *programs;

static void setup(void)
{
	programs = kvw_programs_create(64); /* 16 sets */
	ck_assert_ptr_nonnull(programs);
}

static void teardown(void)
{
	kvw_programs_destroy(programs);
}

/* A prompt of this many full chunks, which begins as every other one of this root does. */
static struct kvw_turn find(uint64_t root, uint32_t chunks)
{
	struct kvw_chunk items[MOST];
	struct kvw_route_request request = {
		.content_known = true, .teaches = true, .chunks = items, .chunk_count = chunks, .chain_count = 1};

	for (uint32_t i = 0; i < chunks; i++)
		items[i] = (struct kvw_chunk){.hash = (root * 1000 + i + 1) * UINT64_C(0x9E3779B97F4A7C15),
			.end = (i + 1) * CHUNK};
	return kvw_programs_find(programs, &request, 0);
}

static struct kvw_turn find_named(uint64_t named)
{
	struct kvw_route_request request = {0};

	return kvw_programs_find(programs, &request, named);
}

static struct kvw_programs_stats stats(int64_t now_ns)
{
	struct kvw_programs_stats out;

	for (int i = 0; i < SLICES; i++)
		kvw_programs_look(programs, true, now_ns);
	kvw_programs_stats(programs, &out);
	return out;
}

START_TEST(known_by_its_prompts_beginning)
{
	struct kvw_turn turn = find(1, 16);

	ck_assert_uint_eq(turn.turns, 0);
	kvw_programs_sent(programs, &turn, 1000, SECOND);
	kvw_programs_ended(programs, &turn, 2 * SECOND);
	ck_assert_uint_eq(find(2, 40).turns, 0);
	turn = find(1, 40);
	ck_assert_uint_eq(turn.turns, 1);
	ck_assert_uint_eq(turn.context, 1000);
	kvw_programs_sent(programs, &turn, 2500, 3 * SECOND);
	/* The next turn took its place over. */
	ck_assert_uint_eq(find(1, 16).turns, 0);
	ck_assert_uint_eq(find(1, 41).turns, 2);
	ck_assert_uint_eq(stats(4 * SECOND).known, 1);
	ck_assert_uint_eq(stats(4 * SECOND).context, 2500);
}
END_TEST

START_TEST(known_by_its_key)
{
	struct kvw_turn turn = find_named(77);

	ck_assert_uint_eq(turn.key, 77);
	ck_assert_uint_eq(turn.turns, 0);
	kvw_programs_sent(programs, &turn, 10, SECOND);
	ck_assert_uint_eq(find_named(77).turns, 1);
	ck_assert_uint_eq(find_named(78).turns, 0);
}
END_TEST

START_TEST(clients_keys_share_no_program)
{
	uint64_t named = kvw_program_named(KVW_SLICE("agent"));
	uint64_t alice = kvw_program_of_key(named, KVW_SLICE("alice"));

	ck_assert_uint_eq(kvw_program_of_key(named, KVW_SLICE("")), named);
	ck_assert_uint_eq(kvw_program_of_key(named, KVW_SLICE("alice")), alice);
	ck_assert_uint_ne(alice, named);
	ck_assert_uint_ne(kvw_program_of_key(named, KVW_SLICE("bob")), alice);
	ck_assert_uint_ne(kvw_program_of_key(kvw_program_named(KVW_SLICE("other")), KVW_SLICE("alice")), alice);
	ck_assert_uint_eq(kvw_program_of_key(0, KVW_SLICE("alice")), 0);
}
END_TEST

START_TEST(a_request_without_either_is_of_none)
{
	struct kvw_turn turn = find(1, 0);

	ck_assert_uint_eq(turn.key, 0);
	kvw_programs_sent(programs, &turn, 10, SECOND);
	kvw_programs_ended(programs, &turn, SECOND);
	ck_assert_uint_eq(stats(SECOND).known, 0);
}
END_TEST

/* Keys of one set: the table has 16. */
START_TEST(the_oldest_yields_its_place)
{
	for (uint64_t i = 1; i <= WAYS + 1; i++) {
		struct kvw_turn turn = find_named(i * SLICES);

		kvw_programs_sent(programs, &turn, 10, (int64_t)i * SECOND);
	}
	ck_assert_uint_eq(find_named(SLICES).turns, 0);
	for (uint64_t i = 2; i <= WAYS + 1; i++)
		ck_assert_uint_eq(find_named(i * SLICES).turns, 1);
}
END_TEST

START_TEST(runs_until_it_is_away_for_too_long)
{
	struct kvw_turn turn = find_named(5);

	kvw_programs_sent(programs, &turn, 100, SECOND);
	ck_assert_uint_eq(stats(1000 * SECOND).running, 1); /* under way */
	kvw_programs_ended(programs, &turn, 1000 * SECOND);
	ck_assert_uint_eq(stats(1050 * SECOND).running, 1);
	ck_assert_uint_eq(stats(1061 * SECOND).running, 0);
	ck_assert_uint_eq(stats(1061 * SECOND).known, 1);
	/* One that takes two minutes each time is expected for longer. */
	for (int i = 0; i < 20; i++) {
		turn = find_named(5);
		kvw_programs_sent(programs, &turn, 100, (1120 + 120 * i) * SECOND);
		kvw_programs_ended(programs, &turn, (1120 + 120 * i) * SECOND);
	}
	ck_assert_uint_eq(stats((1120 + 120 * 19 + 150) * SECOND).running, 1);
}
END_TEST

/* A worker failed and the same turn goes to another, or the same prompt comes twice. */
START_TEST(a_repeated_turn_counts_once)
{
	struct kvw_turn turn = find(1, 16);
	struct kvw_programs_stats before;

	kvw_programs_sent(programs, &turn, 1000, SECOND);
	kvw_programs_ended(programs, &turn, SECOND);
	turn = find(1, 24);
	kvw_programs_sent(programs, &turn, 1500, SECOND);
	before = stats(SECOND);
	kvw_programs_ended(programs, &turn, SECOND);
	kvw_programs_sent(programs, &turn, 1500, SECOND);
	ck_assert_uint_eq(find(1, 24).turns, 2);
	ck_assert_double_eq(stats(SECOND).returning, before.returning);
	kvw_programs_sent(programs, &turn, 1500, SECOND);
	kvw_programs_ended(programs, &turn, SECOND);
	ck_assert_uint_eq(stats(1000 * SECOND).running, 1); /* the other one */
	kvw_programs_ended(programs, &turn, SECOND);
	ck_assert_uint_eq(stats(1000 * SECOND).running, 0);
}
END_TEST

/* Two turns at once: the end of the first is not missed for ever. */
START_TEST(a_turn_taken_over_while_under_way_leaves_nothing)
{
	struct kvw_turn first = find(1, 16);
	struct kvw_turn second;

	kvw_programs_sent(programs, &first, 1000, SECOND);
	second = find(1, 24);
	ck_assert_uint_eq(second.turns, 1);
	kvw_programs_sent(programs, &second, 1500, 2 * SECOND);
	kvw_programs_ended(programs, &first, 3 * SECOND);
	ck_assert_uint_eq(stats(3 * SECOND).running, 1);
	kvw_programs_ended(programs, &second, 4 * SECOND);
	ck_assert_uint_eq(stats(1000 * SECOND).running, 0);
}
END_TEST

START_TEST(the_limit_follows_what_is_lost)
{
	double low;
	int64_t at = SECOND;

	for (uint64_t i = 1; i <= 10; i++) {
		struct kvw_turn turn = find_named(i);

		kvw_programs_sent(programs, &turn, 100000, at);
	}
	ck_assert_double_gt(stats(at).limit, 1e11);
	for (int i = 0; i < 10; i++) {
		kvw_programs_lost(programs, 500, 1000);
		(void)stats(at += SECOND);
	}
	low = stats(at).limit;
	ck_assert_double_lt(low, 1e6);
	ck_assert_double_ge(low, 1e5);
	ck_assert_double_eq_tol(stats(at).lost, 0.5, 0.01);
	/* Quiet seconds do not lower it. */
	for (int i = 0; i < 10; i++)
		(void)stats(at += SECOND);
	ck_assert_double_eq(stats(at).limit, low);
	for (int i = 0; i < 200; i++) {
		kvw_programs_lost(programs, 0, 1000);
		(void)stats(at += SECOND);
	}
	ck_assert_double_gt(stats(at).limit, low);
}
END_TEST

static void *live(void *user)
{
	uint64_t base = *(uint64_t *)user;

	for (int i = 0; i < 20000; i++) {
		/* Half of the keys are everyone's. */
		uint64_t key = i % 2 == 0 ? (uint64_t)(i % 40) + 1 : base * 100 + (uint64_t)(i % 40);
		struct kvw_turn turn = find_named(key);

		kvw_programs_sent(programs, &turn, 10, i);
		kvw_programs_lost(programs, 1, 10);
		if (i % 16 == 0)
			kvw_programs_look(programs, true, i);
		kvw_programs_ended(programs, &turn, i);
	}
	return NULL;
}

START_TEST(threads_leave_nothing_under_way)
{
	pthread_t threads[4];
	uint64_t bases[4] = {1, 2, 3, 4};
	struct kvw_programs_stats after;

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, live, &bases[i]), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	after = stats(300 * SECOND);
	ck_assert_uint_le(after.known, 64);
	/* What was evicted under way and came again may count once more; nothing else does. */
	ck_assert_uint_le(after.running, after.known);
	ck_assert(after.returning >= 0 && after.returning <= 1);
	ck_assert_uint_eq(stats(7200 * SECOND).running, 0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("programs");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, known_by_its_prompts_beginning);
	tcase_add_test(tcase, known_by_its_key);
	tcase_add_test(tcase, clients_keys_share_no_program);
	tcase_add_test(tcase, a_request_without_either_is_of_none);
	tcase_add_test(tcase, the_oldest_yields_its_place);
	tcase_add_test(tcase, runs_until_it_is_away_for_too_long);
	tcase_add_test(tcase, a_repeated_turn_counts_once);
	tcase_add_test(tcase, a_turn_taken_over_while_under_way_leaves_nothing);
	tcase_add_test(tcase, the_limit_follows_what_is_lost);
	tcase_add_test(tcase, threads_leave_nothing_under_way);
	return run_tcase("admission programs", tcase);
}
