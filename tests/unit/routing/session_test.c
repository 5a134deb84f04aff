/*
 * session_test.c - sessions stay, few move, newcomers respect the load; and the table behind it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "routing/session_table.h"
#include "strategy_fixture.h"
#include "tests/unit/suite.h"

#define S        INT64_C(1000000000)
#define SESSIONS 2000

static void setup(void)
{
	setup_strategy("session");
}

static struct kvw_decision pick_of(struct kvw_strategy *chooser, const struct fleet *workers,
	const char *session, const char *model, int64_t now_ns)
{
	struct kvw_route_request request = {
		.session = kvw_slice_of(session), .model = kvw_slice_of(model)};
	struct kvw_decision out = {0};

	EXPECT(chooser->ops->pick(chooser, &request, &workers->set, now_ns, &out) == KVW_OK);
	return out;
}

static struct kvw_decision pick(const char *session, const char *model, int64_t now_ns)
{
	return pick_of(strategy, &fleet, session, model, now_ns);
}

static struct kvw_decision pick_number_of(
	struct kvw_strategy *chooser, const struct fleet *workers, unsigned number)
{
	char name[24];

	snprintf(name, sizeof(name), "session-%u", number);
	return pick_of(chooser, workers, name, "m", 0);
}

static struct kvw_decision pick_number(unsigned number)
{
	return pick_number_of(strategy, &fleet, number);
}

static bool because(const struct kvw_decision *d, const char *reason)
{
	return strcmp(kvw_reason_name(d->reason), reason) == 0;
}

START_TEST(session_stays)
{
	struct kvw_decision first;
	struct kvw_lease leases[20] = {0};

	fleet_init(&fleet, 8);
	first = pick("alice", "m", 0);
	ck_assert_str_eq(kvw_reason_name(first.reason), "session_new");
	/* However loaded its worker is. */
	for (unsigned i = 0; i < 20; i++)
		kvw_lease_take(&leases[i], fleet.items[first.pos].load, 100, 0);
	for (unsigned i = 0; i < 20; i++) {
		struct kvw_decision again = pick("alice", "m", i);

		ck_assert_str_eq(kvw_reason_name(again.reason), "session");
		ck_assert_uint_eq(again.worker_id, first.worker_id);
	}
	for (unsigned i = 0; i < 20; i++)
		kvw_lease_release(&leases[i], 100);
}
END_TEST

START_TEST(sessions_spread_evenly)
{
	struct kvw_strategy_stats stats;
	unsigned count[8] = {0};

	fleet_init(&fleet, 8);
	for (unsigned i = 0; i < SESSIONS; i++)
		count[pick_number(i).pos]++;
	for (unsigned w = 0; w < 8; w++) {
		ck_assert_uint_gt(count[w], SESSIONS / 8 * 7 / 10);
		ck_assert_uint_lt(count[w], SESSIONS / 8 * 13 / 10);
	}
	strategy->ops->stats(strategy, &stats);
	ck_assert_uint_eq(stats.sessions, SESSIONS);
}
END_TEST

/* A worker goes: its sessions move, once, and no others. It comes back: none moves. */
START_TEST(only_sessions_of_a_lost_worker_move)
{
	uint32_t *home = calloc(SESSIONS, sizeof(*home));
	unsigned moved = 0;
	unsigned lost = 0;

	ck_assert_ptr_nonnull(home);
	fleet_init(&fleet, 8);
	for (unsigned i = 0; i < SESSIONS; i++)
		home[i] = pick_number(i).worker_id;
	fleet.items[3].usable = false;
	for (unsigned i = 0; i < SESSIONS; i++) {
		struct kvw_decision d = pick_number(i);

		lost += home[i] == 3;
		moved += d.worker_id != home[i];
		EXPECT(because(&d, "session_moved") == (home[i] == 3));
		EXPECT(d.worker_id != 3);
		home[i] = d.worker_id;
	}
	ck_assert_uint_eq(moved, lost);
	ck_assert_uint_gt(lost, 0);
	fleet.items[3].usable = true;
	for (unsigned i = 0; i < SESSIONS; i++) {
		struct kvw_decision d = pick_number(i);

		EXPECT(d.worker_id == home[i] && because(&d, "session"));
	}
	free(home);
}
END_TEST

/* Without any memory of them, a ninth worker takes about a ninth of the sessions, all its own. */
START_TEST(hash_moves_few_when_a_worker_joins)
{
	struct kvw_strategy *after = make_default("session");
	unsigned moved = 0;

	fleet_init(&fleet, 9);
	for (unsigned i = 0; i < SESSIONS; i++) {
		uint32_t old = 0;
		uint32_t new = 0;

		fleet.set.count = 8;
		old = pick_number(i).worker_id;
		fleet.set.count = 9;
		new = pick_number_of(after, &fleet, i).worker_id;
		EXPECT(new == old || new == 8);
		moved += new != old;
	}
	ck_assert_uint_gt(moved, SESSIONS / 9 * 7 / 10);
	ck_assert_uint_lt(moved, SESSIONS / 9 * 13 / 10);
	after->ops->destroy(after);
}
END_TEST

/* Replicas that never talked, with other ids and other secrets, agree by the workers' keys. */
START_TEST(replicas_agree)
{
	struct kvw_strategy_options other = test_options();
	struct kvw_strategy *a = make_default("session");
	struct kvw_strategy *b = NULL;
	struct fleet one;
	struct fleet two;

	other.seed = 4711;
	b = make_strategy("session", &other);
	fleet_init(&one, 8);
	fleet_init(&two, 8);
	for (unsigned w = 0; w < 8; w++)
		two.items[w].key = one.items[7 - w].key;
	for (unsigned i = 0; i < 500; i++)
		EXPECT(one.items[pick_number_of(a, &one, i).pos].key ==
			two.items[pick_number_of(b, &two, i).pos].key);
	fleet_finish(&one);
	fleet_finish(&two);
	a->ops->destroy(a);
	b->ops->destroy(b);
}
END_TEST

START_TEST(newcomers_respect_the_load_bound)
{
	struct kvw_lease *leases = calloc(800, sizeof(*leases));
	uint32_t most = 0;
	unsigned passed_on = 0;

	ck_assert_ptr_nonnull(leases);
	fleet_init(&fleet, 8);
	for (unsigned i = 0; i < 800; i++) {
		struct kvw_decision d = pick_number(i);
		uint32_t inflight = 0;

		kvw_lease_take(&leases[i], fleet.items[d.pos].load, 1000, 0);
		inflight = kvw_load_inflight(fleet.items[d.pos].load);
		if (inflight > most)
			most = inflight;
		/* ceil(1.25 * (i + 1) / 8) */
		EXPECT(inflight <= (125 * (i + 1) + 799) / 800);
		EXPECT(because(&d, "session_new") || because(&d, "session_moved"));
		passed_on += because(&d, "session_moved");
	}
	ck_assert_uint_le(most, 125);
	ck_assert_uint_gt(passed_on, 0);
	ck_assert_uint_lt(passed_on, 400);
	for (unsigned i = 0; i < 800; i++)
		kvw_lease_release(&leases[i], 0);
	free(leases);
}
END_TEST

START_TEST(no_session_goes_by_load)
{
	struct kvw_lease leases[80] = {0};

	fleet_init(&fleet, 8);
	for (unsigned i = 0; i < 80; i++) {
		struct kvw_decision d = pick("", "m", 0);

		ck_assert_str_eq(kvw_reason_name(d.reason), "no_session");
		kvw_lease_take(&leases[i], fleet.items[d.pos].load, 0, 0);
	}
	for (unsigned w = 0; w < 8; w++)
		ck_assert_uint_eq(kvw_load_inflight(fleet.items[w].load), 10);
	for (unsigned i = 0; i < 80; i++)
		kvw_lease_release(&leases[i], 0);
}
END_TEST

/* Workers of another model must not tear a session away from its own. */
START_TEST(models_are_apart)
{
	uint32_t llama = 0;
	uint32_t qwen = 0;

	fleet_init(&fleet, 8);
	for (unsigned w = 0; w < 8; w++)
		fleet.items[w].usable = w < 4;
	llama = pick("bob", "llama", 0).worker_id;
	for (unsigned w = 0; w < 8; w++)
		fleet.items[w].usable = w >= 4;
	qwen = pick("bob", "qwen", 0).worker_id;
	ck_assert_uint_ge(qwen, 4);
	for (unsigned w = 0; w < 8; w++)
		fleet.items[w].usable = true;
	ck_assert_uint_eq(pick("bob", "llama", 0).worker_id, llama);
	ck_assert_uint_eq(pick("bob", "qwen", 0).worker_id, qwen);
}
END_TEST

START_TEST(table_forgets_after_its_ttl)
{
	struct kvw_session_table *table = NULL;

	ck_assert_int_eq(kvw_session_table_create(100, 10 * S, &table), KVW_OK);
	ck_assert_uint_eq(kvw_session_table_use(table, 1, 0), KVW_NO_WORKER);
	ck_assert_uint_eq(kvw_session_table_place(table, 1, KVW_NO_WORKER, 7, 0), 7);
	ck_assert_uint_eq(kvw_session_table_use(table, 1, 10 * S), 7);
	ck_assert_uint_eq(kvw_session_table_use(table, 1, 20 * S), 7);
	ck_assert_uint_eq(kvw_session_table_use(table, 1, 30 * S + 1), KVW_NO_WORKER);
	ck_assert_uint_eq(kvw_session_table_count(table), 0);
	kvw_session_table_destroy(table);
	kvw_session_table_destroy(NULL);
}
END_TEST

/* Expired sessions leave although no request looks them up. */
START_TEST(table_drops_what_expired)
{
	struct kvw_session_table *table = NULL;

	ck_assert_int_eq(kvw_session_table_create(1000, 10 * S, &table), KVW_OK);
	for (uint64_t k = 0; k < 500; k++)
		kvw_session_table_place(table, k * 77, KVW_NO_WORKER, 1, 0);
	ck_assert_uint_eq(kvw_session_table_count(table), 500);
	for (unsigned i = 0; i < 260; i++)
		(void)kvw_session_table_use(table, 1, 11 * S);
	ck_assert_uint_eq(kvw_session_table_count(table), 0);
	kvw_session_table_destroy(table);
}
END_TEST

START_TEST(table_drops_the_least_recently_used)
{
	struct kvw_session_table *table = NULL;

	ck_assert_int_eq(kvw_session_table_create(100, 1000 * S, &table), KVW_OK);
	for (uint64_t k = 0; k < 100; k++)
		kvw_session_table_place(table, k, KVW_NO_WORKER, (uint32_t)k, 0);
	for (uint64_t k = 0; k < 50; k++)
		ck_assert_uint_eq(kvw_session_table_use(table, k, 1), k);
	for (uint64_t k = 100; k < 150; k++)
		kvw_session_table_place(table, k, KVW_NO_WORKER, (uint32_t)k, 2);
	for (uint64_t k = 0; k < 150; k++)
		ck_assert_uint_eq(
			kvw_session_table_use(table, k, 3), k >= 50 && k < 100 ? KVW_NO_WORKER : k);
	ck_assert_uint_eq(kvw_session_table_count(table), 100);
	kvw_session_table_destroy(table);
}
END_TEST

/* Two loops place the same new session: one wins, both see it. */
START_TEST(table_keeps_the_first_of_two)
{
	struct kvw_session_table *table = NULL;

	ck_assert_int_eq(kvw_session_table_create(100000, 1000 * S, &table), KVW_OK);
	ck_assert_uint_eq(kvw_session_table_place(table, 5, KVW_NO_WORKER, 1, 0), 1);
	ck_assert_uint_eq(kvw_session_table_place(table, 5, KVW_NO_WORKER, 2, 0), 1);
	ck_assert_uint_eq(kvw_session_table_place(table, 5, 1, 3, 0), 3);
	ck_assert_uint_eq(kvw_session_table_place(table, 5, 1, 4, 0), 3);
	kvw_session_table_destroy(table);
}
END_TEST

#define LOOPS 4

struct loop {
	struct kvw_strategy *strategy;
	struct fleet *fleet;
	uint32_t home[500];
	uint64_t moved;
};

static void *run_loop(void *arg)
{
	struct loop *loop = arg;

	for (unsigned round = 0; round < 40; round++)
		for (unsigned i = 0; i < 500; i++) {
			uint32_t id = pick_number_of(loop->strategy, loop->fleet, i).worker_id;

			loop->moved += round > 0 && id != loop->home[i];
			loop->home[i] = id;
		}
	return NULL;
}

START_TEST(loops_agree_on_sessions)
{
	struct loop *loops = calloc(LOOPS, sizeof(*loops));
	pthread_t threads[LOOPS];

	ck_assert_ptr_nonnull(loops);
	fleet_init(&fleet, 16);
	for (unsigned i = 0; i < LOOPS; i++) {
		loops[i].strategy = strategy;
		loops[i].fleet = &fleet;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_loop, &loops[i]), 0);
	}
	for (unsigned i = 0; i < LOOPS; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_uint_eq(loops[i].moved, 0);
		for (unsigned k = 0; k < 500; k++)
			EXPECT(loops[i].home[k] == loops[0].home[k]);
	}
	free(loops);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("session");
	TCase *tcase = tcase_create("session");
	TCase *table = tcase_create("table");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, session_stays);
	tcase_add_test(tcase, sessions_spread_evenly);
	tcase_add_test(tcase, only_sessions_of_a_lost_worker_move);
	tcase_add_test(tcase, hash_moves_few_when_a_worker_joins);
	tcase_add_test(tcase, replicas_agree);
	tcase_add_test(tcase, newcomers_respect_the_load_bound);
	tcase_add_test(tcase, no_session_goes_by_load);
	tcase_add_test(tcase, models_are_apart);
	tcase_add_test(tcase, loops_agree_on_sessions);
	tcase_add_test(table, table_forgets_after_its_ttl);
	tcase_add_test(table, table_drops_what_expired);
	tcase_add_test(table, table_drops_the_least_recently_used);
	tcase_add_test(table, table_keeps_the_first_of_two);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	suite_add_tcase(suite, table);
	return run_suite(suite);
}
