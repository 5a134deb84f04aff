/*
 * feed_test.c - the thread itself: posts, timers, sockets, purges, stop; and the lag's quantiles.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "base/clock.h"
#include "feeds/lag.h"
#include "support.h"
#include "tests/unit/suite.h"

static struct rig rig;

/* What the tests' module has seen. */
static struct {
	void *sockets[2];
	char addresses[2][64];
	_Atomic int ticks, purged, stops;
	_Atomic int order[4096]; /* which socket each message came from */
	_Atomic int count;
	struct kvw_feed *feed;
} seen;

static bool read_one(void *socket, void *ctx)
{
	zmq_msg_t message;
	bool got;

	zmq_msg_init(&message);
	got = zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) >= 0;
	if (got && zmq_msg_size(&message) == 4 && memcmp(zmq_msg_data(&message), "quit", 4) == 0) {
		kvw_feed_unwatch(seen.feed, socket);
		zmq_close(socket);
		*(void **)ctx = NULL;
	} else if (got && seen.count < 4096) {
		atomic_store(&seen.order[seen.count], (int)((void **)ctx - seen.sockets));
		atomic_fetch_add(&seen.count, 1);
	}
	zmq_msg_close(&message);
	return got;
}

static void on_tick(struct kvw_feed *feed, void *ctx)
{
	ck_assert_ptr_eq(ctx, &seen);
	ck_assert_int_gt(kvw_feed_now(feed), 0);
	atomic_fetch_add(&seen.ticks, 1);
}

static enum kvw_err module_start(struct kvw_feed *feed, FILE *errors, void **state)
{
	(void)errors;
	seen.feed = feed;
	for (int i = 0; i < 2; i++) {
		size_t len = sizeof(seen.addresses[i]);

		seen.sockets[i] = zmq_socket(kvw_feed_context(feed), ZMQ_PULL);
		ck_assert_int_eq(
			zmq_bind(seen.sockets[i], i == 0 ? "inproc://0" : "inproc://1"), 0);
		ck_assert_int_eq(zmq_bind(seen.sockets[i], "tcp://127.0.0.1:*"), 0);
		ck_assert_int_eq(
			zmq_getsockopt(seen.sockets[i], ZMQ_LAST_ENDPOINT, seen.addresses[i], &len),
			0);
		ck_assert_int_eq(
			kvw_feed_watch(feed, seen.sockets[i], read_one, &seen.sockets[i]), KVW_OK);
	}
	*state = &seen;
	return kvw_feed_every(feed, KVW_NS_PER_MS, on_tick, &seen);
}

static void module_purged(void *state, const uint32_t *workers, size_t count)
{
	ck_assert_ptr_eq(state, &seen);
	for (size_t i = 0; i < count; i++)
		ck_assert_uint_lt(workers[i], 100);
	atomic_fetch_add(&seen.purged, (int)count);
}

static void module_stop(void *state)
{
	ck_assert_ptr_eq(state, &seen);
	atomic_fetch_add(&seen.stops, 1);
	for (int i = 0; i < 2; i++)
		if (seen.sockets[i] != NULL)
			zmq_close(seen.sockets[i]);
}

static const struct kvw_feed_module module = {
	.name = "test", .start = module_start, .purged = module_purged, .stop = module_stop};

static void setup(void)
{
	memset(&seen, 0, sizeof(seen));
	rig_init(&rig, 100, 20000, "    discover: false\n");
}

static void teardown(void)
{
	rig_finish(&rig);
}

static bool counted(struct rig *r, void *ctx)
{
	(void)r;
	return atomic_load(&seen.count) >= *(int *)ctx;
}

static _Atomic bool held, released;

static void wait_for_release(struct kvw_feed *feed, void *arg)
{
	(void)feed;
	(void)arg;
	atomic_store(&held, true);
	while (!atomic_load(&released)) {
	}
}

static bool is_held(struct rig *r, void *ctx)
{
	(void)r;
	(void)ctx;
	return atomic_load(&held);
}

START_TEST(every_socket_has_its_turn)
{
	static const char *const names[] = {"inproc://0", "inproc://1"};
	void *push[2];
	int both = 2000;

	rig_start(&rig, &module);
	atomic_store(&held, false);
	atomic_store(&released, false);
	ck_assert_int_eq(kvw_feed_post(rig.feed, wait_for_release, NULL), KVW_OK);
	ck_assert(rig_wait(&rig, is_held, NULL)); /* else it would begin with what is there already */
	for (int i = 0; i < 2; i++) {
		push[i] = zmq_socket(kvw_feed_context(rig.feed), ZMQ_PUSH);
		ck_assert_int_eq(zmq_connect(push[i], names[i]), 0);
		for (int n = 0; n < 1000; n++)
			ck_assert_int_eq(zmq_send(push[i], "x", 1, 0), 1);
	}
	atomic_store(&released, true);
	ck_assert(rig_wait(&rig, counted, &both));
	/* Each of them had a burst, then the other one. */
	for (int n = 0; n < 1000; n++)
		ck_assert_int_eq(seen.order[n], n / KVW_FEED_BURST % 2);
	for (int i = 0; i < 2; i++)
		zmq_close(push[i]);
}
END_TEST

static bool only_one_socket(struct rig *r, void *ctx)
{
	struct kvw_feed_stats stats;

	(void)ctx;
	kvw_feed_stats(r->feed, &stats);
	return stats.sockets == 1;
}

START_TEST(a_socket_may_end_itself)
{
	void *context = zmq_ctx_new(), *push = zmq_socket(context, ZMQ_PUSH);

	rig_start(&rig, &module);
	ck_assert_int_eq(zmq_connect(push, seen.addresses[0]), 0);
	ck_assert_int_eq(zmq_send(push, "quit", 4, 0), 4);
	ck_assert_int_eq(zmq_send(push, "more", 4, 0), 4);
	ck_assert(rig_wait(&rig, only_one_socket, NULL));
	zmq_setsockopt(push, ZMQ_LINGER, &(int){0}, sizeof(int));
	zmq_close(push);
	zmq_ctx_term(context);
}
END_TEST

static bool ticked(struct rig *r, void *ctx)
{
	(void)r;
	return atomic_load(&seen.ticks) >= *(int *)ctx;
}

START_TEST(timers_go_on)
{
	int ticks = 5;

	rig_start(&rig, &module);
	ck_assert(rig_wait(&rig, ticked, &ticks));
}
END_TEST

static bool purged(struct rig *r, void *ctx)
{
	(void)r;
	return atomic_load(&seen.purged) >= *(int *)ctx;
}

START_TEST(purges_reach_the_module)
{
	int all = 100;

	rig_start(&rig, &module);
	for (uint32_t worker = 0; worker < 100; worker++)
		kvw_exact_purge(rig.exact, worker); /* more than one report holds */
	ck_assert(rig_wait(&rig, purged, &all));
}
END_TEST

static _Atomic int ran, freed;

static void run_it(struct kvw_feed *feed, void *arg)
{
	atomic_fetch_add(kvw_feed_stopped(feed) ? &freed : &ran, 1);
	free(arg);
}

static void *post_many(void *posted)
{
	for (int i = 0; i < 2000; i++) {
		void *arg = malloc(16);

		if (kvw_feed_post(rig.feed, run_it, arg) == KVW_OK)
			atomic_fetch_add((_Atomic int *)posted, 1);
		else
			free(arg);
	}
	return NULL;
}

static bool all_ran(struct rig *r, void *ctx)
{
	(void)r;
	return atomic_load(&ran) == atomic_load((_Atomic int *)ctx);
}

START_TEST(posts_of_many_threads_run_once)
{
	_Atomic int posted = 0;
	pthread_t threads[4];

	atomic_store(&ran, 0);
	rig_start(&rig, NULL);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, post_many, &posted), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_ge(posted, KVW_FEED_POSTS);
	ck_assert(rig_wait(&rig, all_ran, &posted));
	ck_assert_uint_eq(
		rig_count(&rig, KVW_FEED_POSTS_REFUSED), 8000 - (unsigned)atomic_load(&posted));
}
END_TEST

static _Atomic int blocked;

/* Keeps the thread busy until it is to stop. */
static void block(struct kvw_feed *feed, void *arg)
{
	(void)arg;
	atomic_store(&blocked, 1);
	while (!kvw_feed_stopped(feed)) {
	}
}

static bool is_blocked(struct rig *r, void *ctx)
{
	(void)r;
	(void)ctx;
	return atomic_load(&blocked) == 1;
}

START_TEST(posts_that_wait_at_the_end_are_called_by_stop)
{
	struct kvw_feed *feed;
	int waiting = 0;

	atomic_store(&ran, 0);
	atomic_store(&freed, 0);
	atomic_store(&blocked, 0);
	rig_start(&rig, &module);
	ck_assert_int_eq(kvw_feed_post(rig.feed, block, NULL), KVW_OK);
	ck_assert(rig_wait(&rig, is_blocked, NULL));
	for (; waiting <= KVW_FEED_POSTS; waiting++) {
		void *arg = malloc(16);

		if (kvw_feed_post(rig.feed, run_it, arg) == KVW_OK)
			continue;
		free(arg);
		break;
	}
	ck_assert_int_eq(waiting, KVW_FEED_POSTS);
	feed = rig.feed;
	rig.feed = NULL;
	kvw_feed_stop(feed);
	ck_assert_int_eq(ran, 0);
	ck_assert_int_eq(freed, waiting);
	ck_assert_int_eq(seen.stops, 1);
}
END_TEST

static enum kvw_err failing_start(struct kvw_feed *feed, FILE *errors, void **state)
{
	(void)feed;
	(void)state;
	fprintf(errors, "no\n");
	return KVW_EINVAL;
}

START_TEST(a_module_that_cannot_start_fails_all)
{
	static const struct kvw_feed_module failing = {.name = "failing", .start = failing_start};
	struct kvw_feed_deps deps = {.config = rig.config,
		.fleet = rig.fleet,
		.exact = rig.exact,
		.spaces = rig.spaces,
		.modules = {&module, &failing}};
	FILE *errors = fopen("/dev/null", "w");
	struct kvw_feed *feed = NULL;

	ck_assert_int_eq(kvw_feed_start(&deps, errors, &feed), KVW_EINVAL);
	ck_assert_ptr_null(feed);
	ck_assert_int_eq(seen.stops, 1);
	fclose(errors);
}
END_TEST

START_TEST(a_status_is_what_was_set)
{
	struct kvw_feed_status status;

	rig_start(&rig, &module);
	ck_assert_ptr_eq(kvw_feed_module_state(rig.feed, &module), &seen);
	kvw_feed_set_coverage(rig.feed, 3, KVW_REPORTER_LMCACHE, KVW_COVERAGE_BLIND, 2, "a reason");
	ck_assert_int_eq(kvw_feed_worker_status(rig.feed, 3, KVW_REPORTER_LMCACHE, &status), KVW_OK);
	ck_assert_int_eq(status.coverage, KVW_COVERAGE_BLIND);
	ck_assert_uint_eq(status.sources, 2);
	ck_assert_str_eq(status.wrong, "a reason");
	ck_assert_int_eq(kvw_feed_worker_status(rig.feed, 3, KVW_REPORTER_ENGINE, &status), KVW_OK);
	ck_assert_int_eq(status.coverage, KVW_COVERAGE_NONE);
	ck_assert_int_eq(
		kvw_feed_worker_status(rig.feed, 100, KVW_REPORTER_ENGINE, &status), KVW_ENOTFOUND);
}
END_TEST

START_TEST(the_lag_has_quantiles_of_late)
{
	static struct kvw_lag lag;
	struct kvw_feed_stats stats;
	int64_t now_ns = KVW_NS_PER_S;

	memset(&lag, 0, sizeof(lag));
	kvw_lag_init(&lag, now_ns);
	kvw_lag_read(&lag, &stats);
	ck_assert_double_lt(stats.lag_p99_ms, 0);
	for (int i = 0; i < 980; i++)
		kvw_lag_add(&lag, 3 * KVW_NS_PER_MS);
	for (int i = 0; i < 20; i++)
		kvw_lag_add(&lag, 700 * KVW_NS_PER_MS);
	kvw_lag_tick(&lag, now_ns += KVW_NS_PER_S);
	kvw_lag_read(&lag, &stats);
	ck_assert_double_ge(stats.lag_p50_ms, 3);
	ck_assert_double_le(stats.lag_p50_ms, 3 * 1.26);
	ck_assert_double_ge(stats.lag_p99_ms, 700);
	ck_assert_double_le(stats.lag_p99_ms, 700 * 1.26);
	ck_assert_uint_eq(stats.lags[3], 980); /* 2 to 5 ms */
	ck_assert_uint_eq(stats.lags[10], 20); /* 0.5 to 1 s */
	ck_assert_double_eq_tol(stats.lag_sum_s, 980 * 0.003 + 20 * 0.7, 1e-6);
	/* Both halves turn, and it is forgotten; the histogram stays. */
	for (int i = 0; i < 62; i++)
		kvw_lag_tick(&lag, now_ns += KVW_NS_PER_S);
	kvw_lag_tick(&lag, now_ns += KVW_NS_PER_S);
	kvw_lag_read(&lag, &stats);
	ck_assert_double_lt(stats.lag_p99_ms, 0);
	ck_assert_uint_eq(stats.lags[3], 980);
	kvw_lag_add(&lag, INT64_MAX);
	kvw_lag_add(&lag, -5);
	kvw_lag_read(&lag, &stats);
	ck_assert_uint_eq(stats.lags[KVW_FEED_LAGS], 1);
	ck_assert_uint_eq(stats.lags[0], 1);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("feed");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, every_socket_has_its_turn);
	tcase_add_test(tc, a_socket_may_end_itself);
	tcase_add_test(tc, timers_go_on);
	tcase_add_test(tc, purges_reach_the_module);
	tcase_add_test(tc, posts_of_many_threads_run_once);
	tcase_add_test(tc, posts_that_wait_at_the_end_are_called_by_stop);
	tcase_add_test(tc, a_module_that_cannot_start_fails_all);
	tcase_add_test(tc, a_status_is_what_was_set);
	tcase_add_test(tc, the_lag_has_quantiles_of_late);
	return run_tcase("feed", tc);
}
