/*
 * trace_test.c - what a handle says of gets, puts and requests: why a chunk was no hit, and where time went.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "support.h"
#include "tests/unit/suite.h"

static struct rig rig;

static void open_rig(void)
{
	rig_init(&rig);
	rig_open(&rig);
}

static void close_rig(void)
{
	if (rig.k != NULL)
		rig_close(&rig);
}

/* Chain 1 of n chunks below, and not in L1. */
static void below_only(uint32_t n)
{
	rig_put_chain(&rig, 1, n);
	rig_settle(&rig);
	rig_push_out(&rig);
}

/* Two chunks of chain 1, which take half a second in the tier. */
static void get_slowly(void)
{
	struct kvt_completion done;
	struct kvt_lease *lease;
	struct kvt_key keys[2];
	uint64_t op;

	keys_of(1, 2, keys);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 2, 10 * SECOND, 0, &op), KVT_OK);
	rig_advance(&rig, SECOND / 2);
	fake_hold(fake_tier(), KVT_TIER_READ, false);
	rig_settle(&rig);
	ck_assert_uint_eq(kvt_poll(rig.k, &done, 1), 1);
	ck_assert_int_eq(kvt_get_take(rig.k, op, &lease), KVT_OK);
	kvt_release(rig.k, lease);
}

/* Events of this kind among the newest `most` have this in one of their lines. */
static bool says(size_t most, const char *what, const char *words)
{
	char *text, *rest, kind[64];
	bool found = false;

	(void)snprintf(kind, sizeof(kind), "\"what\":\"%s\"", what);
	ck_assert_int_eq(kvt_trace(rig.k, most, &text), KVT_OK);
	for (char *line = strtok_r(text, "\n", &rest); line != NULL;
		line = strtok_r(NULL, "\n", &rest))
		found = found || (strstr(line, kind) != NULL && strstr(line, words) != NULL);
	kvt_text_free(text);
	return found;
}

static const char *name_of(const char *member, uint32_t chain, uint32_t index)
{
	static char text[64];
	struct kvt_key key = key_of(chain, index);

	(void)snprintf(text, sizeof(text), "\"%s\":\"%08" PRIx32 "\"", member, kvt_trace_key(&key));
	return text;
}

START_TEST(a_hit_from_memory)
{
	rig_put_chain(&rig, 1, 3);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, SECOND), 3);
	ck_assert(says(1, "get", "\"asked\":3,\"had\":3,\"memory\":3,\"nvme\":0,\"l2\":0"));
	ck_assert(says(1, "get", name_of("key", 1, 0)));
	ck_assert(!says(1, "get", "why"));
	ck_assert(says(9, "put", name_of("key", 1, 2)));
	ck_assert(says(9, "write", "\"tier\":\"nvme\""));
}
END_TEST

/* The read says how long it was in line and in the tier, and which get waited. */
START_TEST(a_hit_from_a_lower_tier)
{
	below_only(2);
	get_slowly();
	ck_assert(says(1, "get",
		"\"had\":2,\"memory\":0,\"nvme\":2,\"l2\":0,\"ms\":500.000,\"status\":\"ok\","
		"\"get\":1"));
	ck_assert(says(3, "read", "\"ms\":500.000,\"status\":\"ok\",\"get\":1"));
	ck_assert(says(3, "read", name_of("key", 1, 1)));
}
END_TEST

START_TEST(a_miss_names_the_chunk_and_why)
{
	rig_put_chain(&rig, 1, 2);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, SECOND), 2);
	ck_assert(says(1, "get", "\"why\":\"nowhere\""));
	ck_assert(says(1, "get", name_of("missing", 1, 2)));
	ck_assert_uint_eq(rig_lookup(&rig, 2, 3, NULL), 0);
	ck_assert(says(1, "lookup", "\"asked\":3,\"had\":0"));
	ck_assert(says(1, "lookup", name_of("missing", 2, 0)));
}
END_TEST

START_TEST(a_get_whose_time_is_over_says_so)
{
	struct kvt_key keys[2];
	uint64_t op;

	below_only(2);
	keys_of(1, 2, keys);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 2, SECOND, 0, &op), KVT_OK);
	rig_advance(&rig, 2 * SECOND);
	fake_hold(fake_tier(), KVT_TIER_READ, false);
	ck_assert(says(1, "get", "\"why\":\"late\""));
	ck_assert(says(1, "get", name_of("missing", 1, 0)));
	rig_settle(&rig);
}
END_TEST

/* A failed read, the tier that is left alone for it, and then a get that cannot ask it. */
START_TEST(a_tier_that_fails)
{
	rig.config.breaker_failures = 1;
	rig_open(&rig);
	below_only(2);
	fake_answer(fake_tier(), KVT_TIER_READ, KVT_EIO, UINT32_MAX);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 0);
	ck_assert(says(9, "read", "refused by the operating system"));
	ck_assert(says(9, "away", "\"tier\":\"nvme\""));
	ck_assert(says(9, "get", "\"why\":\"not_read\""));
	ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 0);
	ck_assert(says(1, "get", "\"tier\":\"nvme\""));
	ck_assert(says(1, "get", "\"why\":\"tier_away\""));
}
END_TEST

START_TEST(what_is_slower_than_computing)
{
	below_only(2);
	get_slowly(); /* the tier's rate is known now */
	rig_push_out(&rig);
	kvt_report_prefill(rig.k, 1000000000, 1000);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 0);
	ck_assert(says(1, "get", "\"why\":\"slower_than_computing\""));
}
END_TEST

START_TEST(a_refused_put)
{
	struct kvt_key keys[64];
	struct kvt_lease *lease;

	rig.with_tier = false;
	rig_open(&rig);
	rig_put_chain(&rig, 1, 64);
	keys_of(1, 64, keys);
	ck_assert_int_eq(kvt_get(rig.k, keys, 64, 0, &lease), KVT_OK);
	ck_assert_int_eq(rig_put(&rig, 2, 0), KVT_FULL);
	kvt_release(rig.k, lease);
	ck_assert(says(1, "put", name_of("key", 2, 0)));
	ck_assert(says(1, "put", "\"status\":\"no room\",\"why\":\"no_room\""));
}
END_TEST

/* Thousands of usual events do not push out one that went wrong. */
START_TEST(what_went_wrong_is_kept_longer)
{
	rig.config.trace_events = 16;
	rig_open(&rig);
	ck_assert_uint_eq(rig_get(&rig, 2, 1, SECOND), 0);
	rig_put_chain(&rig, 1, 1);
	for (int i = 0; i < 100; i++)
		ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 1);
	ck_assert(says(17, "get", name_of("missing", 2, 0)));
	ck_assert(!says(17, "put", ""));
}
END_TEST

START_TEST(off_is_said)
{
	char *text, out[256] = "";

	rig.config.trace_events = 0;
	rig_open(&rig);
	rig_put_chain(&rig, 1, 1);
	ck_assert_uint_eq(rig_get(&rig, 1, 2, SECOND), 1);
	ck_assert_int_eq(kvt_trace(rig.k, 10, &text), KVT_ENOTSUP);
	ck_assert(kvt_trace_answer(rig.k, "trace 1 0 0", out, sizeof(out)));
	ck_assert_str_eq(out, "{\"off\":true}");
}
END_TEST

/* Pages of the socket give each event once; other requests are none. */
START_TEST(pages_hold_every_event_once)
{
	static const char *const others[] = {
		"trace", "trace 1 2 0", "trace 1 0 0 0", "trace 2 0 0", "tenants 1 5"};
	unsigned long since = 1, next = 0;
	size_t puts = 0, pages = 0;
	char request[64], out[2048];

	rig_put_chain(&rig, 1, 30);
	for (; next != since; pages++) {
		since = next;
		(void)snprintf(request, sizeof(request), "trace 1 0 %lu", since);
		ck_assert(kvt_trace_answer(rig.k, request, out, sizeof(out)));
		for (const char *at = out; (at = strstr(at, "\"put\"")) != NULL; at++)
			puts++;
		next = strtoul(strstr(out, "\"next\":") + 7, NULL, 10);
	}
	ck_assert_uint_eq(puts, 30);
	ck_assert_uint_ge(pages, 3); /* the last one is empty */
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		ck_assert(!kvt_trace_answer(rig.k, others[i], out, sizeof(out)));
}
END_TEST

static void *note_many(void *self)
{
	for (uint32_t i = 1; i <= 20000; i++)
		kvt_trace_note(
			self, &(struct kvt_trace_event){
				      .key = i, .missing = i, .asked = i, .had = i, .bytes = i});
	return NULL;
}

/* A ring that goes round under several writers shows whole events only. */
START_TEST(writers_and_a_reader_at_once)
{
	pthread_t threads[3];
	char *text, *rest;

	rig.config.trace_events = 8;
	rig_open(&rig);
	for (size_t i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, note_many, rig.k->trace), 0);
	for (int i = 0; i < 200; i++) {
		ck_assert_int_eq(kvt_trace(rig.k, 8, &text), KVT_OK);
		for (char *line = strtok_r(text, "\n", &rest); line != NULL;
			line = strtok_r(NULL, "\n", &rest)) {
			unsigned long key = strtoul(strstr(line, "\"key\":\"") + 7, NULL, 16);

			ck_assert_uint_eq(strtoul(strstr(line, "\"asked\":") + 8, NULL, 10), key);
			ck_assert_uint_eq(strtoul(strstr(line, "\"had\":") + 6, NULL, 10), key);
		}
		kvt_text_free(text);
	}
	for (size_t i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

static void init_rig(void)
{
	rig_init(&rig);
}

int main(void)
{
	Suite *suite = suite_create("core-trace");
	TCase *as_is = tcase_create("as it is"), *own = tcase_create("with a configuration");

	tcase_set_timeout(as_is, 60);
	tcase_set_timeout(own, 60);
	tcase_add_checked_fixture(as_is, open_rig, close_rig);
	tcase_add_test(as_is, a_hit_from_memory);
	tcase_add_test(as_is, a_hit_from_a_lower_tier);
	tcase_add_test(as_is, a_miss_names_the_chunk_and_why);
	tcase_add_test(as_is, a_get_whose_time_is_over_says_so);
	tcase_add_test(as_is, what_is_slower_than_computing);
	tcase_add_test(as_is, pages_hold_every_event_once);
	suite_add_tcase(suite, as_is);
	tcase_add_checked_fixture(own, init_rig, close_rig);
	tcase_add_test(own, a_tier_that_fails);
	tcase_add_test(own, a_refused_put);
	tcase_add_test(own, what_went_wrong_is_kept_longer);
	tcase_add_test(own, off_is_said);
	tcase_add_test(own, writers_and_a_reader_at_once);
	suite_add_tcase(suite, own);
	return run_suite(suite);
}
