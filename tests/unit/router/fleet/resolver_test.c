/*
 * resolver_test.c - the resolver against a name server of its own, on loopback in the same loop.
 */
#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <event2/event.h>

#include "base/clock.h"
#include "fake_dns.h"
#include "fleet/dns.h"
#include "fleet/dns_srv.h"
#include "fleet/resolver.h"
#include "tests/unit/suite.h"

static struct event_base *base;
static struct fake_dns *fake;
static struct kvw_resolver *resolver;

/* What `found` was called with: the last addresses as one text, and how often. */
static struct {
	size_t calls, failures;
	char list[1024], why[128];
	struct kvw_resolver_watch *unwatch; /* unwatched by `found` */
} got;

static void on_found(
	void *arg, const struct sockaddr_storage *addresses, size_t count, const char *why)
{
	ck_assert_ptr_eq(arg, &got);
	got.calls++;
	if (why != NULL) {
		ck_assert_uint_eq(count, 0);
		got.failures++;
		snprintf(got.why, sizeof(got.why), "%s", why);
	} else {
		got.list[0] = '\0';
	}
	for (size_t i = 0; i < count; i++) {
		const struct sockaddr_in *v4 = (const void *)&addresses[i];
		const struct sockaddr_in6 *v6 = (const void *)&addresses[i];
		char text[INET6_ADDRSTRLEN], entry[80];

		inet_ntop(addresses[i].ss_family,
			addresses[i].ss_family == AF_INET ? (const void *)&v4->sin_addr
							  : (const void *)&v6->sin6_addr,
			text, sizeof(text));
		snprintf(entry, sizeof(entry), "%s%s/%u", i > 0 ? " " : "", text,
			ntohs(addresses[i].ss_family == AF_INET ? v4->sin_port : v6->sin6_port));
		if (strlen(got.list) + strlen(entry) < sizeof(got.list))
			strcat(got.list, entry);
	}
	kvw_resolver_unwatch(got.unwatch);
	got.unwatch = NULL;
}

static void turn_until_calls(size_t calls)
{
	int64_t until = kvw_clock_ns() + 20 * KVW_NS_PER_S;

	while (got.calls < calls && kvw_clock_ns() < until)
		event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
	ck_assert_uint_ge(got.calls, calls);
}

static void turn_until_asked(size_t least)
{
	int64_t until = kvw_clock_ns() + 20 * KVW_NS_PER_S;

	while (fake_dns_asked(fake, "w.example", FAKE_DNS_A) < least && kvw_clock_ns() < until)
		event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
	ck_assert_uint_ge(fake_dns_asked(fake, "w.example", FAKE_DNS_A), least);
}

static void turn_for(int64_t ms)
{
	int64_t until = kvw_clock_ns() + ms * KVW_NS_PER_MS;

	while (kvw_clock_ns() < until) {
		event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
		nanosleep(&(struct timespec){.tv_nsec = KVW_NS_PER_MS}, NULL);
	}
}

/* When a question without an answer is sent again: soon only where a server is silent. */
static int timeout_ms = 5000;

static void start_with(const char *search)
{
	struct kvw_dns_options dns = {.timeout_ms = timeout_ms, .tries = 2};
	struct kvw_resolver_options options = {.retry_ms = 50, .retry_most_ms = 200, .dns = &dns};

	setenv("LOCALDOMAIN", search, 1);
	setenv("RES_OPTIONS", "ndots:1", 1);
	memset(&got, 0, sizeof(got));
	base = event_base_new();
	fake = fake_dns_create(base);
	dns.servers = fake_dns_servers(fake);
	ck_assert_int_eq(kvw_resolver_create(base, &options, &resolver), KVW_OK);
}

static void start(void)
{
	start_with("nowhere.example");
}

static void stop(void)
{
	kvw_resolver_destroy(resolver);
	fake_dns_destroy(fake);
	event_base_free(base);
}

static struct kvw_resolver_watch *watch(const char *host)
{
	struct kvw_resolver_watch *out = NULL;

	ck_assert_int_eq(kvw_resolver_watch(resolver, host, 8000, on_found, &got, &out), KVW_OK);
	return out;
}

START_TEST(addresses_in_digits_and_localhost_are_there_at_once)
{
	static const struct {
		const char *host, *list;
	} cases[] = {
		{"10.1.2.3", "10.1.2.3/8000"},
		{"2001:db8::1", "2001:db8::1/8000"},
		{"localhost", "127.0.0.1/8000 ::1/8000"},
		{"LocalHost.", "127.0.0.1/8000 ::1/8000"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		watch(cases[i].host);
		ck_assert_uint_eq(got.calls, i + 1);
		ck_assert_str_eq(got.list, cases[i].list);
	}
	turn_for(50);
	ck_assert_uint_eq(got.calls, sizeof(cases) / sizeof(cases[0]));
	ck_assert_uint_eq(fake_dns_asked(fake, NULL, FAKE_DNS_ANY), 0);
}
END_TEST

START_TEST(all_addresses_are_reported_in_one_order)
{
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.9");
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.2");
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.9");
	fake_dns_add(fake, "w.example", FAKE_DNS_AAAA, 60, "fd00::2");
	watch("w.example");
	ck_assert_uint_eq(got.calls, 0);
	turn_until_calls(1);
	ck_assert_str_eq(got.list, "10.0.0.2/8000 10.0.0.9/8000 fd00::2/8000");
	ck_assert_uint_eq(got.failures, 0);
}
END_TEST

START_TEST(the_name_is_asked_again_when_the_ttl_has_passed_and_changes_are_reported)
{
	int64_t begin;

	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.2");
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 1, "10.0.0.1");
	begin = kvw_clock_ns();
	watch("w.example");
	turn_until_calls(1);
	ck_assert_uint_eq(fake_dns_asked(fake, "w.example", FAKE_DNS_A), 1);
	turn_until_asked(2); /* the least TTL is 1 s; nothing has changed */
	turn_for(100);
	ck_assert_int_le((int64_t)fake_dns_asked(fake, "w.example", FAKE_DNS_A),
		2 + (kvw_clock_ns() - begin) / KVW_NS_PER_S);
	ck_assert_uint_eq(got.calls, 1);
	fake_dns_clear(fake);
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.3");
	turn_until_calls(2);
	ck_assert_int_ge(kvw_clock_ns() - begin, 1900 * KVW_NS_PER_MS);
	ck_assert_str_eq(got.list, "10.0.0.3/8000");
}
END_TEST

START_TEST(a_ttl_of_zero_does_not_make_it_ask_without_a_pause)
{
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 0, "10.0.0.2");
	watch("w.example");
	turn_for(500);
	ck_assert_uint_eq(got.calls, 1);
	ck_assert_uint_eq(fake_dns_asked(fake, "w.example", FAKE_DNS_A), 1);
}
END_TEST

START_TEST(a_name_that_does_not_exist_is_tried_again_until_it_does)
{
	int64_t begin = kvw_clock_ns();

	watch("w.example");
	turn_until_calls(1);
	ck_assert_uint_eq(got.failures, 1);
	ck_assert_str_eq(got.why, "no such name (NXDOMAIN)");
	turn_until_asked(3); /* after 50 and 100 ms */
	ck_assert_int_lt(kvw_clock_ns() - begin, 10 * KVW_NS_PER_S);
	ck_assert_uint_eq(got.calls, 1); /* the first failure in a row alone */
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 1, "10.0.0.2");
	turn_until_calls(2);
	ck_assert_str_eq(got.list, "10.0.0.2/8000");
	fake_dns_clear(fake);
	turn_until_calls(3);
	ck_assert_uint_eq(got.failures, 2);
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 1, "10.0.0.2");
	turn_until_calls(4); /* the same list, but it is known again */
	ck_assert_uint_eq(got.failures, 2);
}
END_TEST

START_TEST(a_server_that_fails_is_a_failure_and_says_why)
{
	static const struct {
		enum fake_dns_rule rule;
		const char *why;
	} cases[] = {
		{FAKE_DNS_SERVFAIL,
			"no name server gave an answer (SERVFAIL, refused, unreachable)"},
		{FAKE_DNS_SILENT, "no name server answered in time"},
		{FAKE_DNS_GARBAGE, "the name server's answer is malformed"},
	};

	stop();
	timeout_ms = 400;
	start();
	timeout_ms = 5000;
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 1, "10.0.0.2");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvw_resolver_watch *one;

		fake_dns_rule(fake, "w.example", FAKE_DNS_ANY, cases[i].rule);
		one = watch("w.example");
		turn_until_calls(i + 1);
		/* c-ares from 1.21 on passes over a malformed answer and waits for a better one */
		if (cases[i].rule != FAKE_DNS_GARBAGE ||
			strcmp(got.why, "no name server answered in time") != 0)
			ck_assert_str_eq(got.why, cases[i].why);
		kvw_resolver_unwatch(one);
	}
}
END_TEST

START_TEST(addresses_of_a_kind_that_cannot_be_asked_for_are_kept)
{
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 1, "10.0.0.2");
	fake_dns_add(fake, "w.example", FAKE_DNS_AAAA, 1, "fd00::2");
	watch("w.example");
	turn_until_calls(1);
	fake_dns_clear(fake);
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 1, "10.0.0.3");
	fake_dns_rule(fake, "w.example", FAKE_DNS_AAAA, FAKE_DNS_SERVFAIL);
	turn_until_calls(2);
	ck_assert_str_eq(got.list, "10.0.0.3/8000 fd00::2/8000");
	/* IPv4 is said to have nothing, IPv6 fails: that is not "no address". */
	fake_dns_clear(fake);
	fake_dns_rule(fake, "w.example", FAKE_DNS_AAAA, FAKE_DNS_SERVFAIL);
	turn_until_calls(3);
	ck_assert_uint_eq(got.failures, 1);
	ck_assert_str_eq(got.why, "no name server gave an answer (SERVFAIL, refused, unreachable)");
}
END_TEST

START_TEST(a_truncated_answer_is_fetched_by_tcp)
{
	char text[16];

	for (int i = 1; i <= 60; i++) {
		snprintf(text, sizeof(text), "10.0.0.%d", i);
		fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, text);
	}
	fake_dns_rule(fake, "w.example", FAKE_DNS_A, FAKE_DNS_TRUNCATED);
	watch("w.example");
	turn_until_calls(1);
	ck_assert_uint_eq(fake_dns_asked_tcp(fake), 1);
	ck_assert_ptr_nonnull(strstr(got.list, "10.0.0.60/8000"));
}
END_TEST

START_TEST(search_domains_are_tried)
{
	stop();
	start_with("svc.example");
	fake_dns_add(fake, "vllm.svc.example", FAKE_DNS_A, 60, "10.0.0.2");
	watch("vllm");
	turn_until_calls(1);
	ck_assert_str_eq(got.list, "10.0.0.2/8000");
	ck_assert_uint_ge(fake_dns_asked(fake, "vllm.svc.example", FAKE_DNS_A), 1);
}
END_TEST

START_TEST(unwatching_is_allowed_at_any_time)
{
	struct kvw_resolver_watch *one;

	fake_dns_add(fake, "w.example", FAKE_DNS_A, 1, "10.0.0.2");
	one = watch("w.example"); /* while the question is open */
	kvw_resolver_unwatch(one);
	turn_for(200);
	ck_assert_uint_eq(got.calls, 0);
	got.unwatch = watch("w.example"); /* by its own answer */
	turn_until_calls(1);
	turn_for(1300);
	ck_assert_uint_eq(got.calls, 1);
	watch("w.example"); /* left open for the end */
}
END_TEST

START_TEST(it_can_be_hurried)
{
	struct kvw_resolver_watch *one;

	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.2");
	one = watch("w.example");
	turn_until_calls(1);
	fake_dns_clear(fake);
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.3");
	kvw_resolver_hurry(one);
	kvw_resolver_hurry(one);
	turn_until_calls(2);
	ck_assert_str_eq(got.list, "10.0.0.3/8000");
}
END_TEST

/* --- SRV answers, byte by byte --- */

/* A head with one question for "s", then `count` answers. */
#define HEAD(count)                 "\x12\x34\x81\x80\0\1\0" count "\0\0\0\0\1s\0\0\x21\0\1"
#define SRV(ttl, len, port, target) "\xC0\x0C\0\x21\0\1\0\0\0" ttl "\0" len "\0\1\0\2" port target

static enum kvw_err read_srv(const char *bytes, size_t len, struct kvw_dns_target **targets,
	size_t *count, uint32_t *ttl_s)
{
	unsigned char *copy = malloc(len > 0 ? len : 1); /* so that a sanitizer sees the end */
	enum kvw_err err;

	memcpy(copy, bytes, len);
	err = kvw_dns_srv_read(copy, len, targets, count, ttl_s);
	free(copy);
	return err;
}

START_TEST(srv_targets_are_read_in_order_with_the_least_ttl)
{
	static const char bytes[] = HEAD("\3") SRV("\x3C", "\x0A", "\x1F\x41", "\2bb\0")
		SRV("\x1E", "\x09", "\x1F\x40", "\1a\0") SRV("\x3C", "\x0A", "\x1F\x41", "\2BB\0");
	struct kvw_dns_target *targets = NULL;
	uint32_t ttl_s = 0;
	size_t count = 0;

	ck_assert_int_eq(read_srv(bytes, sizeof(bytes) - 1, &targets, &count, &ttl_s), KVW_OK);
	ck_assert_uint_eq(count, 2);
	ck_assert_str_eq(targets[0].host, "a");
	ck_assert_uint_eq(targets[0].port, 8000);
	ck_assert_str_eq(targets[1].host, "bb");
	ck_assert_uint_eq(ttl_s, 30);
	free(targets);
	for (size_t len = 0; len < sizeof(bytes) - 1; len++) {
		targets = NULL;
		ck_assert_int_eq(read_srv(bytes, len, &targets, &count, &ttl_s), KVW_EPROTO);
		ck_assert_ptr_null(targets);
	}
}
END_TEST

START_TEST(srv_answers_without_a_target_are_none)
{
	static const char none[] = HEAD("\0"),
			  away[] = HEAD("\1") SRV("\x3C", "\x07", "\x1F\x40", "\0");
	struct kvw_dns_target *targets = NULL;
	uint32_t ttl_s = 0;
	size_t count = 0;

	ck_assert_int_eq(read_srv(none, sizeof(none) - 1, &targets, &count, &ttl_s), KVW_ENOTFOUND);
	ck_assert_int_eq(read_srv(away, sizeof(away) - 1, &targets, &count, &ttl_s), KVW_ENOTFOUND);
}
END_TEST

START_TEST(srv_answers_with_names_in_a_circle_or_short_data_are_refused)
{
	static const char circle[] = HEAD("\1") SRV("\x3C", "\x08", "\x1F\x40", "\xC0\x25");
	static const char brief[] = HEAD("\1") SRV("\x3C", "\x06", "\x1F\x40", "");
	struct kvw_dns_target *targets = NULL;
	uint32_t ttl_s = 0;
	size_t count = 0;

	ck_assert_int_eq(
		read_srv(circle, sizeof(circle) - 1, &targets, &count, &ttl_s), KVW_EPROTO);
	ck_assert_int_eq(read_srv(brief, sizeof(brief) - 1, &targets, &count, &ttl_s), KVW_EPROTO);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("resolver");

	tcase_add_checked_fixture(tcase, start, stop);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, addresses_in_digits_and_localhost_are_there_at_once);
	tcase_add_test(tcase, all_addresses_are_reported_in_one_order);
	tcase_add_test(
		tcase, the_name_is_asked_again_when_the_ttl_has_passed_and_changes_are_reported);
	tcase_add_test(tcase, a_ttl_of_zero_does_not_make_it_ask_without_a_pause);
	tcase_add_test(tcase, a_name_that_does_not_exist_is_tried_again_until_it_does);
	tcase_add_test(tcase, a_server_that_fails_is_a_failure_and_says_why);
	tcase_add_test(tcase, addresses_of_a_kind_that_cannot_be_asked_for_are_kept);
	tcase_add_test(tcase, a_truncated_answer_is_fetched_by_tcp);
	tcase_add_test(tcase, search_domains_are_tried);
	tcase_add_test(tcase, unwatching_is_allowed_at_any_time);
	tcase_add_test(tcase, it_can_be_hurried);
	tcase_add_test(tcase, srv_targets_are_read_in_order_with_the_least_ttl);
	tcase_add_test(tcase, srv_answers_without_a_target_are_none);
	tcase_add_test(tcase, srv_answers_with_names_in_a_circle_or_short_data_are_refused);
	return run_tcase("resolver", tcase);
}
