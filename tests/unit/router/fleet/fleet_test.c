/*
 * fleet_test.c - candidates, models, health and learning of a fleet.
 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "fleet/epoch.h"
#include "fleet_support.h"
#include "tests/unit/suite.h"

#define FIRST_PORT 18000

static struct kvw_config *config;
static struct kvw_fleet *fleet;

static void setup(void)
{
	config = fleet_test_config(3, FIRST_PORT);
	fleet = fleet_test_create(config, 1);
}

static void teardown(void)
{
	kvw_fleet_destroy(fleet);
	kvw_config_destroy(config);
}

static void probes(size_t worker, bool ok, int count)
{
	for (int i = 0; i < count; i++)
		kvw_fleet_set_probe(fleet, fleet->workers[worker], ok, "test");
}

static void requests_fail(size_t worker, int count)
{
	for (int i = 0; i < count; i++)
		kvw_fleet_judge(fleet, fleet->workers[worker], KVW_GRADE_BAD, false, "test",
			kvw_clock_ns());
}

START_TEST(workers_are_what_the_configuration_says)
{
	static const char text[] = "workers:\n"
				   "  - url: http://localhost:8001/a/b/\n"
				   "    api_key: secret\n"
				   "    models: [x]\n"
				   "  - url: http://[::1]:8002\n";
	struct kvw_config *own = NULL;
	struct kvw_fleet *small;

	ck_assert_int_eq(
		kvw_config_parse("test", text, sizeof(text) - 1, kvw_strategies, stderr, &own), KVW_OK);
	small = fleet_test_create(own, 1);
	ck_assert_uint_eq(small->count, 2);
	ck_assert_str_eq(small->workers[0]->url, "http://localhost:8001/a/b");
	ck_assert_str_eq(small->workers[0]->authority, "localhost:8001");
	ck_assert_str_eq(small->workers[0]->path_prefix, "/a/b");
	ck_assert_str_eq(small->workers[0]->api_key, "secret");
	ck_assert_str_eq(small->workers[1]->authority, "[::1]:8002");
	ck_assert_str_eq(small->workers[1]->path_prefix, "");
	ck_assert_int_eq(small->workers[1]->addresses.items[0].ss_family, AF_INET6);
	ck_assert_str_eq(kvw_worker_state_name(small->workers[0]), "without an address");
	ck_assert_uint_eq(small->workers[1]->id, 1);
	ck_assert_uint_ne(small->workers[0]->key, small->workers[1]->key);
	ck_assert_str_eq(fleet_test_ids(small, "x"), "0"); /* given: known at once */
	kvw_fleet_destroy(small);
	kvw_config_destroy(own);
}
END_TEST

START_TEST(host_that_has_no_address_waits_for_one)
{
	static const char text[] = "workers: [{url: \"http://no-such-host.invalid:1\"}]\n";
	struct sockaddr_storage address = {.ss_family = AF_INET}, found;
	struct kvw_config *own = NULL;
	struct kvw_fleet *small;

	ck_assert_int_eq(
		kvw_config_parse("test", text, sizeof(text) - 1, kvw_strategies, stderr, &own), KVW_OK);
	small = fleet_test_create(own, 1);
	ck_assert(!kvw_worker_usable(small->workers[0]));
	ck_assert(!kvw_worker_address(small->workers[0], 0, &found));
	kvw_fleet_set_addresses(small, small->workers[0], &address, 1);
	ck_assert(kvw_worker_usable(small->workers[0]));
	ck_assert(kvw_worker_address(small->workers[0], 0, &found));
	kvw_fleet_set_addresses(small, small->workers[0], NULL, 0);
	ck_assert(!kvw_worker_usable(small->workers[0]));
	kvw_fleet_destroy(small);
	kvw_config_destroy(own);
}
END_TEST

/* --- workers that come and go --- */

static struct kvw_worker *add(const char *url, enum kvw_err expected)
{
	char copy[64], why[256] = "";
	struct kvw_worker_config one = config->workers[0];
	struct kvw_worker *added = NULL;

	snprintf(copy, sizeof(copy), "%s", url);
	one.url = copy;
	ck_assert_int_eq(kvw_fleet_add(fleet, &one, why, sizeof(why), &added), expected);
	ck_assert_str_ne(expected == KVW_OK ? "-" : why, "");
	return added;
}

static size_t freed_count;
static uint32_t freed_slot;

static void note_freed(void *arg, uint32_t slot)
{
	(void)arg;
	freed_count++;
	freed_slot = slot;
}

START_TEST(a_worker_joins_at_once)
{
	struct kvw_worker *added = add("http://127.0.0.1:9", KVW_OK);

	ck_assert_uint_eq(added->id, 3);
	ck_assert_uint_eq(fleet->live, 4);
	ck_assert_str_eq(fleet_test_ids(fleet, NULL), "0 1 2 3");
	ck_assert_int_eq(kvw_worker_life(added), KVW_WORKER_LIVE);
}
END_TEST

START_TEST(a_slot_is_used_again_when_all_have_let_go)
{
	struct kvw_worker *gone = fleet->workers[1];
	uint32_t generation = gone->generation, use = gone->use;

	freed_count = 0;
	fleet->freed = note_freed;
	fleet_test_models(fleet, 1, "a");
	ck_assert(kvw_worker_hold(gone));
	kvw_fleet_remove(fleet, gone);
	ck_assert_str_eq(fleet_test_ids(fleet, NULL), "0 2");
	ck_assert_str_eq(fleet_test_ids(fleet, "a"), "unknown");
	ck_assert(!kvw_worker_hold(gone)); /* no more */
	ck_assert_uint_eq(kvw_fleet_reap(fleet), 1); /* a loop and a holder have not let go */
	atomic_fetch_sub(&gone->loops_left, 1);
	ck_assert_uint_eq(kvw_fleet_reap(fleet), 1);
	ck_assert_uint_eq(add("http://127.0.0.1:9", KVW_OK)->id, 3); /* not its slot yet */
	kvw_worker_let_go(gone);
	ck_assert_uint_eq(kvw_fleet_reap(fleet), 0);
	ck_assert_uint_eq(freed_count, 1);
	ck_assert_uint_eq(freed_slot, 1);
	ck_assert_ptr_null(gone->url);
	ck_assert_ptr_eq(add("http://127.0.0.1:10", KVW_OK), gone);
	ck_assert_uint_gt(gone->generation, generation);
	ck_assert_uint_eq(gone->use, use + 1);
	ck_assert_str_eq(fleet_test_ids(fleet, NULL), "0 1 2 3");
	ck_assert_str_eq(fleet_test_ids(fleet, "a"), "unknown");
}
END_TEST

START_TEST(nothing_of_a_worker_stays_in_its_slot)
{
	struct kvw_worker *gone = fleet->workers[0];

	probes(0, false, 3);
	requests_fail(0, 20);
	kvw_fleet_set_capacity(gone, 1000, 16);
	ck_assert_uint_eq(fleet->down, 1);
	kvw_fleet_remove(fleet, gone);
	atomic_fetch_sub(&gone->loops_left, 1);
	ck_assert_uint_eq(kvw_fleet_reap(fleet), 0);
	ck_assert_uint_eq(fleet->down, 0);
	ck_assert_uint_eq(fleet->ejections.out, 0);
	ck_assert_ptr_eq(add("http://127.0.0.1:9", KVW_OK), gone);
	ck_assert(kvw_worker_usable(gone));
	ck_assert_uint_eq(gone->capacity_tokens, 0);
	ck_assert_uint_eq(gone->probes_failed, 0);
	probes(0, false, 1); /* not the fourth in a row */
	ck_assert(kvw_worker_is_up(gone));
}
END_TEST

START_TEST(a_worker_that_rests_is_not_usable_even_if_all_others_are_ejected)
{
	kvw_fleet_bar(fleet, fleet->workers[0], KVW_BARRED_DRAINING, true);
	ck_assert_str_eq(kvw_worker_state_name(fleet->workers[0]), "draining");
	ck_assert(kvw_worker_rests(fleet->workers[0]));
	ck_assert_uint_eq(kvw_fleet_usable_count(fleet), 2);
	probes(1, false, 3);
	probes(2, false, 3);
	ck_assert_uint_eq(kvw_fleet_usable_count(fleet), 0);
	kvw_fleet_bar(fleet, fleet->workers[0], KVW_BARRED_DRAINING, false);
	ck_assert_uint_eq(kvw_fleet_usable_count(fleet), 1);
}
END_TEST

START_TEST(a_full_fleet_refuses)
{
	char url[64];

	for (size_t i = 3; i < KVW_MAX_WORKERS; i++) {
		snprintf(url, sizeof(url), "http://127.0.0.1:%zu", 10000 + i);
		(void)add(url, KVW_OK);
	}
	ck_assert_ptr_null(add("http://127.0.0.1:9", KVW_ELIMIT));
	ck_assert_uint_eq(fleet->live, KVW_MAX_WORKERS);
	kvw_fleet_remove(fleet, fleet->workers[700]);
	atomic_fetch_sub(&fleet->workers[700]->loops_left, 1);
	(void)kvw_fleet_reap(fleet);
	ck_assert_uint_eq(add("http://127.0.0.1:9", KVW_OK)->id, 700);
	ck_assert_uint_eq(fleet->count, KVW_MAX_WORKERS);
}
END_TEST

START_TEST(candidates_are_those_that_serve_the_model)
{
	fleet_test_models(fleet, 0, "a,b");
	fleet_test_models(fleet, 1, "b");
	fleet_test_models(fleet, 2, "b,c");
	ck_assert_str_eq(fleet_test_ids(fleet, "a"), "0");
	ck_assert_str_eq(fleet_test_ids(fleet, "b"), "0 1 2");
	ck_assert_str_eq(fleet_test_ids(fleet, "c"), "2");
	ck_assert_str_eq(fleet_test_ids(fleet, NULL), "0 1 2");
	ck_assert_str_eq(fleet_test_ids(fleet, "d"), "unknown");
	fleet_test_models(fleet, 2, "c");
	ck_assert_str_eq(fleet_test_ids(fleet, "b"), "0 1");
	fleet_test_models(fleet, 0, "");
	ck_assert_str_eq(fleet_test_ids(fleet, "a"), "unknown");
}
END_TEST

START_TEST(names_are_compared_whole)
{
	struct kvw_candidate items[3];
	struct kvw_model *entry;
	bool known;

	fleet_test_models(fleet, 0, "model,model-7b,model-7b-chat,Model");
	ck_assert_str_eq(fleet_test_ids(fleet, "model-7b"), "0");
	ck_assert_str_eq(fleet_test_ids(fleet, "model-7"), "unknown");
	ck_assert_str_eq(fleet_test_ids(fleet, "model-7b-"), "unknown");
	ck_assert_str_eq(fleet_test_ids(fleet, "mode"), "unknown");
	ck_assert_str_eq(fleet_test_ids(fleet, "MODEL"), "unknown");
	/* A JSON string may hold a NUL; ours do not. */
	ck_assert_uint_eq(
		kvw_fleet_candidates(fleet, KVW_SLICE("model\0x"), items, &known, &entry), 0);
	ck_assert(!known);
	ck_assert_ptr_null(entry);
}
END_TEST

START_TEST(lists_are_known_when_all_have_been_read)
{
	ck_assert(!atomic_load(&fleet->view)->all_known);
	fleet_test_models(fleet, 0, "a");
	fleet_test_models(fleet, 1, "a");
	ck_assert(!atomic_load(&fleet->view)->all_known);
	fleet_test_models(fleet, 2, "");
	ck_assert(atomic_load(&fleet->view)->all_known);
}
END_TEST

START_TEST(only_model_is_meant_when_none_is_named)
{
	struct kvw_candidate items[3];
	struct kvw_model *entry;
	bool known;

	fleet_test_models(fleet, 0, "a");
	ck_assert_uint_eq(
		kvw_fleet_candidates(fleet, kvw_slice_of(NULL), items, &known, &entry), 3);
	ck_assert(known);
	ck_assert_str_eq(entry->name, "a");
	fleet_test_models(fleet, 1, "b");
	(void)kvw_fleet_candidates(fleet, kvw_slice_of(NULL), items, &known, &entry);
	ck_assert(known);
	ck_assert_ptr_null(entry);
}
END_TEST

START_TEST(models_keep_their_index_and_what_was_learned)
{
	struct kvw_model *first, *again;
	struct kvw_candidate items[3];
	bool known;

	fleet_test_models(fleet, 0, "a,b");
	(void)kvw_fleet_candidates(fleet, KVW_SLICE("b"), items, &known, &first);
	fleet_test_models(fleet, 0, "c");
	fleet_test_models(fleet, 1, "0,b");
	(void)kvw_fleet_candidates(fleet, KVW_SLICE("b"), items, &known, &again);
	ck_assert_ptr_eq(first, again);
	ck_assert_uint_eq(fleet->model_total, 4);
}
END_TEST

START_TEST(candidates_carry_what_is_known_of_a_worker)
{
	struct kvw_candidate items[3];
	struct kvw_model *entry;
	bool known;

	kvw_fleet_set_capacity(fleet->workers[1], 16368, 16);
	kvw_fleet_cache_lost(fleet, fleet->workers[2], "test");
	requests_fail(0, (int)config->health_passive_failures);
	ck_assert_uint_eq(
		kvw_fleet_candidates(fleet, kvw_slice_of(NULL), items, &known, &entry), 3);
	ck_assert(!items[0].usable && items[1].usable && items[2].usable);
	ck_assert_uint_eq(items[1].capacity_tokens, 16368);
	ck_assert_uint_eq(items[1].block_size, 16);
	ck_assert_uint_eq(items[2].capacity_tokens, 0);
	ck_assert_uint_eq(items[1].generation, 0);
	ck_assert_uint_eq(items[2].generation, 1);
	ck_assert_ptr_eq(items[1].load, &fleet->workers[1]->load);
	ck_assert_uint_eq(items[1].key, fleet->workers[1]->key);
	ck_assert_uint_eq(kvw_fleet_usable_count(fleet), 2);
}
END_TEST

START_TEST(probes_fall_and_rise)
{
	struct kvw_worker *worker = fleet->workers[0];

	config->health_fall = 3;
	config->health_rise = 2;
	ck_assert(kvw_worker_usable(worker)); /* unknown: usable */
	probes(0, true, 1);
	ck_assert_int_eq(atomic_load(&worker->health), KVW_HEALTH_UP);
	probes(0, false, 2);
	probes(0, true, 1);
	probes(0, false, 2);
	ck_assert(kvw_worker_usable(worker)); /* never three in a row */
	probes(0, false, 1);
	ck_assert(!kvw_worker_usable(worker));
	probes(0, true, 1);
	ck_assert(!kvw_worker_usable(worker));
	probes(0, false, 1);
	probes(0, true, 1);
	ck_assert(!kvw_worker_usable(worker)); /* never two in a row */
	probes(0, true, 1);
	ck_assert(kvw_worker_usable(worker));
	ck_assert_uint_eq(atomic_load(&worker->probes_failed), 6);
}
END_TEST

START_TEST(worker_that_never_answered_is_out_after_fall)
{
	probes(0, false, (int)config->health_fall);
	ck_assert(!kvw_worker_usable(fleet->workers[0]));
	ck_assert(kvw_worker_usable(fleet->workers[1]));
}
END_TEST

START_TEST(bad_answers_in_a_row_eject_a_worker_whatever_its_probes_say)
{
	struct kvw_worker *worker = fleet->workers[0];
	int64_t now_ns = kvw_clock_ns();

	config->health_passive_failures = 3;
	config->ejection_min_answers = 100; /* their share says nothing */
	requests_fail(0, 2);
	kvw_fleet_judge(fleet, worker, KVW_GRADE_GOOD, false, "", now_ns);
	requests_fail(0, 2);
	ck_assert(kvw_worker_usable(worker));
	requests_fail(0, 1);
	ck_assert(!kvw_worker_usable(worker));
	ck_assert_str_eq(kvw_worker_state_name(worker), "ejected after bad answers");
	kvw_fleet_judge(fleet, worker, KVW_GRADE_GOOD, false, "", now_ns); /* one that was on its way */
	probes(0, true, 5);
	ck_assert(!kvw_worker_usable(worker));
	ck_assert(!kvw_fleet_picked(fleet, worker, now_ns));
	ck_assert(kvw_fleet_picked(fleet, worker, now_ns + 3600 * KVW_NS_PER_S));
	kvw_fleet_judge(fleet, worker, KVW_GRADE_GOOD, true, "", now_ns);
	ck_assert(kvw_worker_usable(worker));
	ck_assert_str_eq(kvw_worker_state_name(worker), "up");
}
END_TEST

START_TEST(a_worker_that_passes_its_probes_again_is_tried_at_once)
{
	struct kvw_worker *worker = fleet->workers[0];

	probes(0, true, 1);
	requests_fail(0, (int)config->health_passive_failures);
	probes(0, false, (int)config->health_fall);
	ck_assert_str_eq(kvw_worker_state_name(worker), "down");
	probes(0, true, (int)config->health_rise);
	ck_assert(!kvw_worker_usable(worker));
	ck_assert(kvw_fleet_picked(fleet, worker, kvw_clock_ns()));
	ck_assert(!kvw_fleet_picked(fleet, worker, kvw_clock_ns())); /* one request, no more */
}
END_TEST

START_TEST(ejected_workers_are_used_if_there_is_no_other)
{
	struct kvw_candidate items[3];
	struct kvw_model *entry;
	bool known;

	fleet_test_models(fleet, 0, "a,b");
	fleet_test_models(fleet, 1, "b");
	fleet_test_models(fleet, 2, "b");
	requests_fail(0, (int)config->health_passive_failures);
	ck_assert_uint_eq(kvw_fleet_candidates(fleet, KVW_SLICE("b"), items, &known, &entry), 3);
	ck_assert(!items[0].usable && items[1].usable && items[2].usable);
	ck_assert_uint_eq(kvw_fleet_candidates(fleet, KVW_SLICE("a"), items, &known, &entry), 1);
	ck_assert(items[0].usable);
	probes(0, false, (int)config->health_fall);
	ck_assert_uint_eq(kvw_fleet_candidates(fleet, KVW_SLICE("a"), items, &known, &entry), 1);
	ck_assert(!items[0].usable); /* down is down */
}
END_TEST

/* The one candidate of a worker. */
static struct kvw_candidate candidate(size_t worker)
{
	struct kvw_candidate items[3];
	struct kvw_model *entry;
	bool known;

	ck_assert_uint_eq(
		kvw_fleet_candidates(fleet, kvw_slice_of(NULL), items, &known, &entry), 3);
	return items[worker];
}

static void sleep_ms(long ms)
{
	const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&pause, NULL);
}

/* Those that are there at the start have a full share; one that comes later starts slowly. */
START_TEST(a_worker_that_comes_back_starts_slowly)
{
	config->routing_slow_start_ms = 3600 * 1000;
	probes(0, true, 1);
	ck_assert_float_eq(candidate(0).share, 1);
	probes(0, false, (int)config->health_fall);
	probes(0, true, (int)config->health_rise);
	ck_assert_float_lt(candidate(0).share, 0.1f);
	ck_assert_float_eq(candidate(1).share, 1);
	probes(1, false, (int)config->health_fall); /* never seen up, then new */
	probes(1, true, (int)config->health_rise);
	ck_assert_float_lt(candidate(1).share, 0.1f);
}
END_TEST

START_TEST(slow_start_ends)
{
	float before = 0;

	config->routing_slow_start_ms = 200;
	kvw_fleet_start_slowly(fleet, fleet->workers[0]);
	for (float share = candidate(0).share; share < 1; share = candidate(0).share) {
		ck_assert_float_ge(share, before);
		before = share;
		sleep_ms(5);
	}
	ck_assert_int_eq(atomic_load(&fleet->workers[0]->slow_since_ns), 0);
	config->routing_slow_start_ms = 0;
	kvw_fleet_start_slowly(fleet, fleet->workers[0]);
	ck_assert_float_eq(candidate(0).share, 1);
}
END_TEST

START_TEST(requests_of_others_are_work_before_ours)
{
	struct kvw_load *load = &fleet->workers[0]->load;
	struct kvw_foreign_found found = {.waiting = 3, .running = 2, .prompt_tokens = 2000, .cached_tokens = 1000};
	int64_t from_ns, now_ns;

	config->routing_prefill_rate = 1000;
	config->routing_attention_ns = 1000;
	from_ns = kvw_clock_ns();
	kvw_fleet_set_foreign(fleet, fleet->workers[0], &found);
	now_ns = kvw_clock_ns();
	/* A second for 1,000 tokens, 1.5 for 1,500,000 pairs; each. */
	ck_assert_int_le(kvw_load_foreign_ns(load, now_ns, now_ns), INT64_C(7500000000));
	ck_assert_int_ge(kvw_load_foreign_ns(load, now_ns, now_ns), INT64_C(7500000000) - (now_ns - from_ns));
	ck_assert_uint_eq(kvw_load_foreign_running(load), 2);
	/* The one that is computed is longer. */
	found.since_ns = 20e9;
	kvw_fleet_set_foreign(fleet, fleet->workers[0], &found);
	now_ns = kvw_clock_ns();
	ck_assert_int_gt(kvw_load_foreign_ns(load, now_ns, now_ns), INT64_C(20000000000));
	/* As it was seen. */
	found.since_ns = 5e5;
	found.each_ns = 1e6;
	kvw_fleet_set_foreign(fleet, fleet->workers[0], &found);
	now_ns = kvw_clock_ns();
	ck_assert_int_le(kvw_load_foreign_ns(load, now_ns, now_ns), 3000000);
	found.waiting = 1000000;
	kvw_fleet_set_foreign(fleet, fleet->workers[0], &found);
	now_ns = kvw_clock_ns();
	ck_assert_int_le(kvw_load_foreign_ns(load, now_ns, now_ns), 60 * KVW_NS_PER_S);
	found.waiting = 0;
	kvw_fleet_set_foreign(fleet, fleet->workers[0], &found);
	ck_assert_int_eq(kvw_load_foreign_ns(load, now_ns, now_ns), 0);
}
END_TEST

/* Whether reading the table fills it again; its first item is marked meanwhile. */
static bool is_filled(struct kvw_fleet_table *table, const char *model)
{
	struct kvw_model *entry;
	bool known;

	table->items[0].block_size = UINT32_MAX;
	kvw_fleet_read(fleet, kvw_slice_of(model), table, &known, &entry);
	ck_assert(known);
	return table->items[0].block_size != UINT32_MAX;
}

START_TEST(a_table_is_filled_again_after_a_change)
{
	struct kvw_candidate items[3];
	struct kvw_fleet_table table = {.items = items};
	uint64_t version;

	fleet_test_models(fleet, 0, "a");
	fleet_test_models(fleet, 1, "a,b");
	ck_assert(is_filled(&table, NULL));
	ck_assert_uint_eq(table.count, 3);
	version = table.version;
	ck_assert_uint_ne(version, 0);
	ck_assert(!is_filled(&table, NULL));

	kvw_fleet_set_capacity(fleet->workers[1], 16368, 16);
	ck_assert(is_filled(&table, NULL) && items[1].capacity_tokens == 16368);
	ck_assert_uint_ne(table.version, version);
	kvw_fleet_set_capacity(fleet->workers[1], 16368, 16);
	ck_assert(!is_filled(&table, NULL));
	kvw_fleet_set_capacity(fleet->workers[1], 16368, 32);
	ck_assert(is_filled(&table, NULL) && items[1].block_size == 32);
	kvw_fleet_cache_lost(fleet, fleet->workers[2], "test");
	ck_assert(is_filled(&table, NULL) && items[2].generation == 1);
	requests_fail(0, (int)config->health_passive_failures);
	ck_assert(is_filled(&table, NULL) && !items[0].usable);
	ck_assert(is_filled(&table, NULL)); /* until its trial, which comes with time */
	for (int i = 0; i < config->health_fall; i++)
		kvw_fleet_set_probe(fleet, fleet->workers[2], false, "test");
	ck_assert(is_filled(&table, NULL) && !items[2].usable);

	ck_assert(is_filled(&table, "a"));
	ck_assert_uint_eq(table.count, 2);
	version = table.version;
	ck_assert(is_filled(&table, "b"));
	ck_assert_uint_eq(table.count, 1);
	ck_assert_uint_ne(table.version, version);
	fleet_test_models(fleet, 2, "b");
	ck_assert(is_filled(&table, "b"));
	ck_assert_uint_eq(table.count, 2);
	ck_assert(!is_filled(&table, "b"));
}
END_TEST

START_TEST(a_table_is_filled_again_while_time_changes_it)
{
	struct kvw_candidate items[3];
	struct kvw_fleet_table table = {.items = items};
	struct kvw_model *entry;
	bool known;

	config->routing_slow_start_ms = 3600 * 1000;
	ck_assert(is_filled(&table, NULL));
	kvw_fleet_start_slowly(fleet, fleet->workers[1]);
	ck_assert(is_filled(&table, NULL) && items[1].share < 1);
	ck_assert(is_filled(&table, NULL));
	ck_assert_uint_eq(table.version, 0);
	config->routing_slow_start_ms = 1;
	sleep_ms(5);
	ck_assert(is_filled(&table, NULL)); /* it is over from here on */
	ck_assert(is_filled(&table, NULL) && items[1].share == 1);
	ck_assert(!is_filled(&table, NULL));

	kvw_fleet_read(fleet, KVW_SLICE("unknown"), &table, &known, &entry);
	ck_assert(!known);
	ck_assert_uint_eq(table.count, 0);
	ck_assert(is_filled(&table, NULL));
}
END_TEST

static uint32_t purged_worker;

static void note_purge(struct kvw_strategy *self, uint32_t worker_id)
{
	(void)self;
	purged_worker = worker_id;
}

START_TEST(lost_cache_is_reported_to_the_strategy)
{
	static const struct kvw_strategy_ops ops = {.purge = note_purge};
	struct kvw_strategy strategy = {.ops = &ops};

	purged_worker = UINT32_MAX;
	fleet->strategy = &strategy;
	kvw_fleet_cache_lost(fleet, fleet->workers[2], "test");
	ck_assert_uint_eq(purged_worker, 2);
	ck_assert_uint_eq(atomic_load(&fleet->workers[2]->generation), 1);
	fleet->strategy = NULL;
}
END_TEST

START_TEST(units_per_token_are_learned)
{
	struct kvw_model model = {.name = NULL};

	ck_assert_float_eq_tol(kvw_model_tokens_per_unit(&model, 4.0), 0.25f, 1e-6f);
	ck_assert_float_eq_tol(kvw_model_tokens_per_unit(NULL, 5.0), 0.2f, 1e-6f);
	kvw_model_learn(&model, 255, 100);    /* too little text */
	kvw_model_learn(&model, 3000, 31);    /* too few tokens */
	kvw_model_learn(&model, 100000, 100); /* a thousand bytes a token: not this prompt's */
	kvw_model_learn(&model, 1000, 100000);
	ck_assert_float_eq_tol(kvw_model_tokens_per_unit(&model, 4.0), 0.25f, 1e-6f);
	kvw_model_learn(&model, 3000, 1000);
	ck_assert_float_eq_tol(kvw_model_tokens_per_unit(&model, 4.0), 1 / 3.0f, 1e-3f);
	kvw_model_learn(&model, 5000, 1000); /* one sample moves it little */
	ck_assert_float_lt(kvw_model_tokens_per_unit(&model, 4.0), 1 / 3.0f);
	ck_assert_float_gt(kvw_model_tokens_per_unit(&model, 4.0), 1 / 3.2f);
	for (int i = 0; i < 500; i++)
		kvw_model_learn(&model, 5000, 1000);
	ck_assert_float_eq_tol(kvw_model_tokens_per_unit(&model, 4.0), 1 / 5.0f, 1e-3f);
}
END_TEST

/* Whatever the order of answers, a few strange ones do not carry the ratio away, and short prompts
 * with their template move it less than long ones. */
START_TEST(units_per_token_withstand_strange_prompts)
{
	struct kvw_model model = {.name = NULL};
	unsigned seed = 1;

	kvw_model_learn(&model, 8000, 2000);
	for (int i = 0; i < 4000; i++) {
		uint32_t tokens = 40 + (uint32_t)rand_r(&seed) % 4000;
		uint64_t units = (uint64_t)(tokens - 20) * 4;

		if (rand_r(&seed) % 20 == 0)
			kvw_model_learn(&model, 4000, 12000); /* mostly images */
		else
			kvw_model_learn(&model, units, tokens);
	}
	ck_assert_float_gt(1 / kvw_model_tokens_per_unit(&model, 4.0), 3.6f);
	ck_assert_float_lt(1 / kvw_model_tokens_per_unit(&model, 4.0), 4.1f);
	for (int i = 0; i < 32; i++) {
		float before = kvw_model_tokens_per_unit(&model, 4.0);

		kvw_model_learn(&model, 300, 100);
		ck_assert_float_lt(kvw_model_tokens_per_unit(&model, 4.0) / before, 1.008f);
	}
}
END_TEST

/* --- readers while the writer writes --- */

#define LOOPS 3

static _Atomic bool stop;

/* A loop that looks models up, turn after turn. */
static void *look_up(void *arg)
{
	size_t index = *(size_t *)arg, seen = 0;

	while (!atomic_load(&stop)) {
		struct kvw_candidate items[3];
		struct kvw_model *entry;
		bool known;

		for (int i = 0; i < 10; i++) {
			size_t n = kvw_fleet_candidates(
				fleet, KVW_SLICE("always"), items, &known, &entry);

			if (!known || n < 1 || strcmp(entry->name, "always") != 0)
				abort();
			(void)kvw_fleet_candidates(fleet, KVW_SLICE("m3"), items, &known, &entry);
			seen += known;
		}
		kvw_epochs_turn(fleet->epochs, index);
	}
	return (void *)(seen > 0 ? arg : NULL);
}

START_TEST(views_are_replaced_under_readers)
{
	static const char *const lists[] = {
		"always", "always,m1,m2,m3", "m9,always", "m3,m4,m5,m6,m7,always"};
	pthread_t threads[LOOPS];
	size_t indexes[LOOPS];

	kvw_fleet_destroy(fleet);
	fleet = fleet_test_create(config, LOOPS);
	fleet_test_models(fleet, 0, "always");
	for (size_t i = 0; i < LOOPS; i++) {
		indexes[i] = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, look_up, &indexes[i]), 0);
	}
	for (int i = 0; i < 3000; i++)
		fleet_test_models(fleet, 1 + (size_t)i % 2, lists[i / 2 % 4]);
	atomic_store(&stop, true);
	for (size_t i = 0; i < LOOPS; i++) {
		pthread_join(threads[i], NULL);
	}
	ck_assert_str_eq(fleet_test_ids(fleet, "always"), "0 1 2");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("fleet");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, workers_are_what_the_configuration_says);
	tcase_add_test(tcase, host_that_has_no_address_waits_for_one);
	tcase_add_test(tcase, a_worker_joins_at_once);
	tcase_add_test(tcase, a_slot_is_used_again_when_all_have_let_go);
	tcase_add_test(tcase, nothing_of_a_worker_stays_in_its_slot);
	tcase_add_test(tcase, a_worker_that_rests_is_not_usable_even_if_all_others_are_ejected);
	tcase_add_test(tcase, a_full_fleet_refuses);
	tcase_add_test(tcase, candidates_are_those_that_serve_the_model);
	tcase_add_test(tcase, names_are_compared_whole);
	tcase_add_test(tcase, lists_are_known_when_all_have_been_read);
	tcase_add_test(tcase, only_model_is_meant_when_none_is_named);
	tcase_add_test(tcase, models_keep_their_index_and_what_was_learned);
	tcase_add_test(tcase, candidates_carry_what_is_known_of_a_worker);
	tcase_add_test(tcase, a_table_is_filled_again_after_a_change);
	tcase_add_test(tcase, a_table_is_filled_again_while_time_changes_it);
	tcase_add_test(tcase, probes_fall_and_rise);
	tcase_add_test(tcase, worker_that_never_answered_is_out_after_fall);
	tcase_add_test(tcase, bad_answers_in_a_row_eject_a_worker_whatever_its_probes_say);
	tcase_add_test(tcase, a_worker_that_passes_its_probes_again_is_tried_at_once);
	tcase_add_test(tcase, ejected_workers_are_used_if_there_is_no_other);
	tcase_add_test(tcase, lost_cache_is_reported_to_the_strategy);
	tcase_add_test(tcase, units_per_token_are_learned);
	tcase_add_test(tcase, units_per_token_withstand_strange_prompts);
	tcase_add_test(tcase, a_worker_that_comes_back_starts_slowly);
	tcase_add_test(tcase, slow_start_ends);
	tcase_add_test(tcase, requests_of_others_are_work_before_ours);
	tcase_add_test(tcase, views_are_replaced_under_readers);
	return run_tcase("fleet", tcase);
}
