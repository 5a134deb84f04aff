/*
 * endpoints_test.c - what engines say of their sockets, and configured templates.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "feeds/vllm_endpoints.h"
#include "tests/unit/suite.h"

static struct kvw_vllm_endpoints list;

static void teardown(void)
{
	kvw_vllm_endpoints_finish(&list);
}

static enum kvw_err parse(const char *body, const char *host)
{
	return kvw_vllm_endpoints_parse(body, strlen(body), host, &list);
}

START_TEST(what_an_engine_says)
{
	/* As vLLM 0.32 writes it, with the members that we do not read. */
	ck_assert_int_eq(
		parse("{\"1\": {\"enable_kv_cache_events\": true, \"publisher\": \"zmq\", "
		      "\"endpoint\": \"tcp://*:9102\", \"replay_endpoint\": \"tcp://*:9202\", "
		      "\"buffer_steps\": 10000, \"hwm\": 100000, \"max_queue_size\": 100000, "
		      "\"topic\": \"kv@tiny\"}, \"0\": {\"endpoint\": \"tcp://*:9101\", "
		      "\"replay_endpoint\": null}}",
			"10.0.0.7"),
		KVW_OK);
	ck_assert_uint_eq(list.count, 2);
	ck_assert_uint_eq(list.items[0].rank, 0);
	ck_assert_str_eq(list.items[0].events, "tcp://10.0.0.7:9101");
	ck_assert_str_eq(list.items[0].replay, "");
	ck_assert_str_eq(list.items[0].topic, "");
	ck_assert_uint_eq(list.items[1].rank, 1);
	ck_assert_str_eq(list.items[1].events, "tcp://10.0.0.7:9102");
	ck_assert_str_eq(list.items[1].replay, "tcp://10.0.0.7:9202");
	ck_assert_str_eq(list.items[1].topic, "kv@tiny");
	ck_assert_uint_eq(list.items[1].buffer_steps, 10000);
	ck_assert(!list.items[0].connects && !list.items[1].connects);
}
END_TEST

START_TEST(all_ways_to_say_all_addresses)
{
	static const struct {
		const char *told, *host, *wanted;
		bool connects;
	} cases[] = {
		{"tcp://*:1", "::1", "tcp://[::1]:1", false},
		{"tcp://0.0.0.0:2", "10.0.0.7", "tcp://10.0.0.7:2", false},
		{"tcp://[::]:3", "10.0.0.7", "tcp://10.0.0.7:3", false},
		{"tcp://:::4", "10.0.0.7", "tcp://10.0.0.7:4", false},
		{"tcp://router:5557", "10.0.0.7", "tcp://router:5557", true},
		{"tcp://10.1.1.1:5557", "10.0.0.7", "tcp://10.1.1.1:5557", true},
		{"ipc:///run/events", "10.0.0.7", "ipc:///run/events", false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char body[128];

		snprintf(body, sizeof(body), "{\"0\":{\"endpoint\":\"%s\"}}", cases[i].told);
		ck_assert_int_eq(parse(body, cases[i].host), KVW_OK);
		ck_assert_str_eq(list.items[0].events, cases[i].wanted);
		ck_assert_int_eq(list.items[0].connects, cases[i].connects);
		kvw_vllm_endpoints_finish(&list);
	}
}
END_TEST

START_TEST(no_events_is_an_answer)
{
	ck_assert_int_eq(parse("{}", "h"), KVW_OK);
	ck_assert_uint_eq(list.count, 0);
}
END_TEST

START_TEST(nonsense_is_refused)
{
	static const char *const bad[] = {"", "[]", "null", "{", "{\"0\": 3}", "{\"0\": {}}",
		"{\"x\": {\"endpoint\": \"tcp://*:1\"}}", "{\"-1\": {\"endpoint\": \"tcp://*:1\"}}",
		"{\"99999999999999999999\": {\"endpoint\": \"tcp://*:1\"}}",
		"{\"0\": {\"endpoint\": \"tcp://*:0\"}}",
		"{\"0\": {\"endpoint\": \"tcp://*:65536\"}}",
		"{\"0\": {\"endpoint\": \"tcp://*:1x\"}}", "{\"0\": {\"endpoint\": \"tcp://*\"}}",
		"{\"0\": {\"endpoint\": \"udp://*:1\"}}", "{\"0\": {\"endpoint\": \"inproc://x\"}}",
		"{\"0\": {\"endpoint\": \"tcp://*:1\", \"topic\": 1}}",
		"{\"0\": {\"endpoint\": \"tcp://*:1\", \"replay_endpoint\": \"x\"}}"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(parse(bad[i], "h") == KVW_EPROTO, "%s", bad[i]);
}
END_TEST

/* Recorded of vLLM 0.32 with --data-parallel-size 2. */
START_TEST(sources_of_two_ranks)
{
	static const char body[] =
		"{\"0\":{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":"
		"\"tcp://*:9105\",\"replay_endpoint\":\"tcp://*:10105\",\"buffer_steps\":10000,"
		"\"hwm\":100000,\"max_queue_size\":100000,\"topic\":\"kv@tiny\"},\"1\":{"
		"\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":"
		"\"tcp://*:9106\",\"replay_endpoint\":\"tcp://*:10106\",\"buffer_steps\":10000,"
		"\"hwm\":100000,\"max_queue_size\":100000,\"topic\":\"kv@tiny\"}}";

	ck_assert_int_eq(parse(body, "10.0.0.7"), KVW_OK);
	ck_assert_uint_eq(list.count, 2);
	ck_assert_uint_eq(list.items[1].rank, 1);
	ck_assert_str_eq(list.items[1].events, "tcp://10.0.0.7:9106");
	ck_assert_str_eq(list.items[1].replay, "tcp://10.0.0.7:10106");
}
END_TEST

START_TEST(ranks_beyond_the_bound_are_reported)
{
	char body[8192] = "{", *at = body + 1;

	for (int i = 80; i > 0; i--)
		at += sprintf(at, "\"%d\": {\"endpoint\": \"tcp://*:%d\"}%s", i, 100 + i,
			i > 1 ? "," : "}");
	ck_assert_int_eq(parse(body, "h"), KVW_OK);
	ck_assert_uint_eq(list.count, KVW_VLLM_RANKS);
	ck_assert(list.more);
	for (size_t i = 1; i < list.count; i++)
		ck_assert_uint_lt(list.items[i - 1].rank, list.items[i].rank);
}
END_TEST

START_TEST(templates_are_filled)
{
	ck_assert_int_eq(kvw_vllm_endpoints_make(
				 "tcp://{host}:5557", "tcp://{host}:6557", 0, 3, "10.0.0.7", &list),
		KVW_OK);
	ck_assert_uint_eq(list.count, 3);
	ck_assert_str_eq(list.items[0].events, "tcp://10.0.0.7:5557");
	ck_assert_str_eq(list.items[2].events, "tcp://10.0.0.7:5559");
	ck_assert_str_eq(list.items[2].replay, "tcp://10.0.0.7:6559");
	ck_assert_uint_eq(list.items[2].rank, 2);
	kvw_vllm_endpoints_finish(&list);
	ck_assert_int_eq(
		kvw_vllm_endpoints_make("tcp://{host}:5557", "", 5, 1, "h", &list), KVW_OK);
	ck_assert_uint_eq(list.count, 1);
	ck_assert_str_eq(list.items[0].events, "tcp://h:5562");
	ck_assert_uint_eq(list.items[0].rank, 5);
	kvw_vllm_endpoints_finish(&list);
	ck_assert_int_eq(
		kvw_vllm_endpoints_make("tcp://{host}:1", "", 0, 1, "fe80::1", &list), KVW_OK);
	ck_assert_str_eq(list.items[0].events, "tcp://[fe80::1]:1");
	ck_assert_str_eq(list.items[0].replay, "");
	kvw_vllm_endpoints_finish(&list);
	ck_assert_int_eq(kvw_vllm_endpoints_make("ipc:///run/x", "", 0, 1, "h", &list), KVW_OK);
	ck_assert_str_eq(list.items[0].events, "ipc:///run/x");
}
END_TEST

START_TEST(templates_that_are_none)
{
	static const char *const bad[] = {"{host}:5557", "tcp://{host}", "tcp://{host}:0",
		"tcp://{host}:65536", "tcp://:5557", "http://{host}:1", "tcp://{host}:1/x", "x"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_int_eq(kvw_vllm_endpoints_make(bad[i], "", 0, 1, "h", &list), KVW_EINVAL);
		ck_assert_int_eq(
			kvw_vllm_endpoints_make("tcp://h:1", bad[i], 0, 1, "h", &list), KVW_EINVAL);
	}
	ck_assert_int_eq(kvw_vllm_endpoints_make("tcp://h:65535", "", 0, 2, "h", &list), KVW_EINVAL);
	ck_assert_int_eq(kvw_vllm_endpoints_make("ipc:///run/x", "", 0, 2, "h", &list), KVW_EINVAL);
}
END_TEST

START_TEST(a_topic_names_its_worker)
{
	struct kvw_slice authority;

	ck_assert(kvw_vllm_topic_worker(KVW_SLICE("kv@10.0.0.7:8000@a/model"), &authority));
	ck_assert(kvw_slice_equal(authority, KVW_SLICE("10.0.0.7:8000")));
	ck_assert(kvw_vllm_topic_worker(KVW_SLICE("kv@pod"), &authority));
	ck_assert(kvw_slice_equal(authority, KVW_SLICE("pod")));
	ck_assert(!kvw_vllm_topic_worker(KVW_SLICE("kv@"), &authority));
	ck_assert(!kvw_vllm_topic_worker(KVW_SLICE("kv@@model"), &authority));
	ck_assert(!kvw_vllm_topic_worker(KVW_SLICE("events@h:1@m"), &authority));
	ck_assert(!kvw_vllm_topic_worker((struct kvw_slice){NULL, 0}, &authority));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("endpoints");

	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, what_an_engine_says);
	tcase_add_test(tc, all_ways_to_say_all_addresses);
	tcase_add_test(tc, no_events_is_an_answer);
	tcase_add_test(tc, nonsense_is_refused);
	tcase_add_test(tc, sources_of_two_ranks);
	tcase_add_test(tc, ranks_beyond_the_bound_are_reported);
	tcase_add_test(tc, templates_are_filled);
	tcase_add_test(tc, templates_that_are_none);
	tcase_add_test(tc, a_topic_names_its_worker);
	return run_tcase("endpoints", tc);
}
