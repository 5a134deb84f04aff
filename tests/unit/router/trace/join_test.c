/*
 * join_test.c - which requests are exported, and that their records are read before others use
 * them.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "tests/unit/suite.h"
#include "trace/trace.h"

#define MS     INT64_C(1000000)
#define START  (1000 * MS)
#define WALL   INT64_C(1700000000000000000)
#define ALL    (UINT64_C(1) << 56)
#define PARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"

static struct kvw_trace *create(size_t requests, struct kvw_trace_sampling sampling)
{
	struct kvw_trace_options options = {
		.loops = 1, .requests = requests, .kept = 1, .sampling = sampling};
	struct kvw_trace *trace = NULL;

	options.sampling.on = true;
	ck_assert_int_eq(kvw_trace_create(&options, &trace), KVW_OK);
	return trace;
}

/* A request with this traceparent that takes so long and ends with this status. */
static void one(struct kvw_trace *trace, const char *parent, int64_t ns, int status)
{
	struct kvw_trace_way *way = kvw_trace_begin(kvw_trace_ring(trace, 0), START, WALL);

	ck_assert_ptr_nonnull(way);
	kvw_trace_join(way, kvw_slice_of(parent));
	kvw_trace_end(way, START + ns, KVW_END_COMPLETE, status, KVW_API_CHAT);
}

/* Why the next request is exported; KVW_TRACE_EXPORT_NOT: none waits. */
static enum kvw_trace_export next(struct kvw_trace *trace)
{
	struct kvw_trace_story story;

	return kvw_trace_take(trace, 0, &story) ? story.export : KVW_TRACE_EXPORT_NOT;
}

START_TEST(the_client_decides_or_the_ratio)
{
	struct kvw_trace *trace = create(8, (struct kvw_trace_sampling){.parent = true});

	one(trace, PARENT "01", MS, 200);
	ck_assert_int_eq(next(trace), KVW_TRACE_EXPORT_SAMPLED);
	one(trace, PARENT "00", MS, 200);
	one(trace, "", MS, 200);
	one(trace, "bad", MS, 200);
	ck_assert_int_eq(next(trace), KVW_TRACE_EXPORT_NOT);
	kvw_trace_destroy(trace);
	trace = create(8, (struct kvw_trace_sampling){.below = ALL});
	one(trace, PARENT "00", MS, 200);
	one(trace, "", MS, 200);
	ck_assert_int_eq(next(trace), KVW_TRACE_EXPORT_SAMPLED);
	ck_assert_int_eq(next(trace), KVW_TRACE_EXPORT_SAMPLED);
	ck_assert_int_eq(next(trace), KVW_TRACE_EXPORT_NOT);
	kvw_trace_destroy(trace);
}
END_TEST

START_TEST(the_ratio_is_a_share_of_new_traces)
{
	struct kvw_trace *trace = create(8, (struct kvw_trace_sampling){.below = ALL / 4});
	unsigned sampled = 0;

	for (int i = 0; i < 10000; i++) {
		one(trace, "", MS, 200);
		sampled += next(trace) == KVW_TRACE_EXPORT_SAMPLED;
	}
	ck_assert_uint_gt(sampled, 2200); /* 7 standard deviations */
	ck_assert_uint_lt(sampled, 2800);
	kvw_trace_destroy(trace);
}
END_TEST

/* As the SDKs decide, whose TraceIdRatioBased compares the last 64 bits of the id with the share. */
START_TEST(the_ratio_chooses_the_traces_that_sdks_choose)
{
	struct kvw_trace *trace = create(8, (struct kvw_trace_sampling){.below = ALL / 4});

	one(trace, "00-4bf92f3577b34da63fce929d0e0e4736-00f067aa0ba902b7-00", MS, 200);
	ck_assert_int_eq(next(trace), KVW_TRACE_EXPORT_SAMPLED);
	one(trace, "00-4bf92f3577b34da640000000000e4736-00f067aa0ba902b7-00", MS, 200);
	ck_assert_int_eq(next(trace), KVW_TRACE_EXPORT_NOT);
	kvw_trace_destroy(trace);
}
END_TEST

START_TEST(slow_and_failed_requests_are_kept_within_a_limit)
{
	struct kvw_trace *trace =
		create(16, (struct kvw_trace_sampling){
				   .slow_ns = 5 * MS, .failed = true, .tail_per_second = 3});

	one(trace, "", 4 * MS, 200);
	ck_assert_int_eq(next(trace), KVW_TRACE_EXPORT_NOT);
	one(trace, "", 5 * MS, 200);
	ck_assert_int_eq(next(trace), KVW_TRACE_EXPORT_SLOW);
	one(trace, "", MS, 503);
	ck_assert_int_eq(next(trace), KVW_TRACE_EXPORT_FAILED);
	one(trace, "", MS, 429);
	ck_assert_int_eq(next(trace), KVW_TRACE_EXPORT_FAILED);
	one(trace, "", MS, 500);
	ck_assert_int_eq(next(trace), KVW_TRACE_EXPORT_NOT);
	ck_assert_uint_eq(kvw_trace_dropped(trace, KVW_TRACE_DROP_LIMIT), 1);
	one(trace, "", 2000 * MS, 200); /* ends in another second */
	ck_assert_int_eq(next(trace), KVW_TRACE_EXPORT_SLOW);
	kvw_trace_destroy(trace);
}
END_TEST

START_TEST(workers_get_their_own_spans)
{
	struct kvw_trace *trace = create(4, (struct kvw_trace_sampling){.parent = true});
	struct kvw_trace_way *way = kvw_trace_begin(kvw_trace_ring(trace, 0), START, WALL);
	char first[KVW_TRACEPARENT_LEN], leg[KVW_TRACEPARENT_LEN], again[KVW_TRACEPARENT_LEN];
	struct kvw_trace_story story;

	ck_assert(!kvw_trace_call(way, false, first)); /* it has not joined a trace yet */
	kvw_trace_join(way, KVW_SLICE(PARENT "01"));
	kvw_trace_attempt(way, START, 1, 1, &(struct kvw_decision){0}, 0);
	ck_assert(kvw_trace_call(way, false, first));
	ck_assert(kvw_trace_call(way, true, leg));
	kvw_trace_leg(way, START, 2, 1, 0);
	ck_assert(kvw_trace_call(way, false, again));
	ck_assert_mem_eq(first, again, sizeof(first));
	ck_assert_mem_eq(first, PARENT, 36);
	ck_assert_mem_ne(first, leg, sizeof(first));
	kvw_trace_attempt(way, START, 3, 1, &(struct kvw_decision){0}, 0);
	ck_assert(kvw_trace_call(way, false, again));
	ck_assert_mem_ne(first, again, sizeof(first));
	kvw_trace_asks(way, KVW_SLICE("POST /v1/x"));
	kvw_trace_end(way, START + MS, KVW_END_COMPLETE, 200, KVW_API_CHAT);
	ck_assert(kvw_trace_take(trace, 0, &story));
	kvw_traceparent_write(again, story.context.trace, story.context.span + 2, 1);
	ck_assert_mem_eq(leg, again, sizeof(leg));
	ck_assert(kvw_slice_equal(kvw_trace_story_text(&story, story.path_word, story.path_len),
		KVW_SLICE("POST /v1/x")));
	kvw_trace_destroy(trace);
}
END_TEST

START_TEST(a_record_that_waits_is_not_used_again)
{
	struct kvw_trace *trace = create(4, (struct kvw_trace_sampling){.below = ALL});
	struct kvw_trace_story story;

	/* Half of the records may wait; the others serve the requests that come. */
	for (int i = 0; i < 20; i++)
		one(trace, i < 2 ? PARENT "01" : "", (i + 1) * MS, 200);
	ck_assert_uint_eq(kvw_trace_dropped(trace, KVW_TRACE_DROP_FULL), 18);
	for (int i = 0; i < 2; i++) {
		ck_assert(kvw_trace_take(trace, 0, &story));
		ck_assert_int_eq(story.total_ns, (i + 1) * MS);
	}
	ck_assert(!kvw_trace_take(trace, 0, &story));
	for (int i = 0; i < 2; i++)
		one(trace, "", 50 * MS, 200);
	ck_assert(kvw_trace_take(trace, 0, &story));
	ck_assert_int_eq(story.total_ns, 50 * MS);
	kvw_trace_destroy(trace);
}
END_TEST

#define REQUESTS 200000

/* Takes what comes until it has to stop; each story must be whole. */
struct taker {
	struct kvw_trace *trace;
	_Atomic bool stop;
	uint64_t taken;
};

static void *take_all(void *arg)
{
	struct taker *taker = arg;
	struct kvw_trace_story story;
	bool stopping;

	do {
		stopping = atomic_load(&taker->stop);
		while (kvw_trace_take(taker->trace, 0, &story)) {
			struct kvw_slice id =
				kvw_trace_story_text(&story, story.id_word, story.id_len);
			char expected[32];

			(void)snprintf(expected, sizeof(expected), "%lld",
				(long long)(story.total_ns / MS));
			ck_assert(kvw_slice_equal(id, kvw_slice_of(expected)));
			ck_assert_uint_eq(story.note_count, 1); /* its end */
			taker->taken++;
		}
	} while (!stopping);
	return NULL;
}

START_TEST(another_thread_takes_whole_requests)
{
	struct kvw_trace *trace = create(64, (struct kvw_trace_sampling){.below = ALL});
	struct taker taker = {.trace = trace};
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, take_all, &taker), 0);
	for (int i = 1; i <= REQUESTS; i++) {
		struct kvw_trace_way *way = kvw_trace_begin(kvw_trace_ring(trace, 0), START, WALL);
		char id[32];

		ck_assert_ptr_nonnull(way);
		(void)snprintf(id, sizeof(id), "%d", i);
		kvw_trace_name(way, kvw_slice_of(id), KVW_API_CHAT);
		kvw_trace_join(way, KVW_SLICE(""));
		kvw_trace_end(way, START + i * MS, KVW_END_COMPLETE, 200, KVW_API_CHAT);
	}
	atomic_store(&taker.stop, true);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(taker.taken + kvw_trace_dropped(trace, KVW_TRACE_DROP_FULL), REQUESTS);
	ck_assert_uint_gt(taker.taken, 0);
	kvw_trace_destroy(trace);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("join");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, the_client_decides_or_the_ratio);
	tcase_add_test(tcase, the_ratio_is_a_share_of_new_traces);
	tcase_add_test(tcase, the_ratio_chooses_the_traces_that_sdks_choose);
	tcase_add_test(tcase, slow_and_failed_requests_are_kept_within_a_limit);
	tcase_add_test(tcase, workers_get_their_own_spans);
	tcase_add_test(tcase, a_record_that_waits_is_not_used_again);
	tcase_add_test(tcase, another_thread_takes_whole_requests);
	return run_tcase("trace-join", tcase);
}
