/*
 * dns_source_test.c - workers from a name server of the test's own.
 */
#include "found.h"

#include "fleet/discovery/dns_source.h"
#include "tests/unit/router/fleet/fake_dns.h"
#include "tests/unit/suite.h"

static struct event_base *base;
static struct fake_dns *fake;
static struct kvw_source *source;
static struct found got;
static int timeout_ms; /* of a question; its end is a failure, so only tests of silence have it end soon */

static void begin(const char *names)
{
	struct kvw_dns_options options = {
		.servers = fake_dns_servers(fake), .timeout_ms = timeout_ms, .tries = 2};
	struct kvw_config *config;
	char lines[512];

	snprintf(lines, sizeof(lines), "  dns: [%s]\n  dns_least: 200ms\n  dns_most: 400ms\n",
		names);
	config = config_with(lines);
	ck_assert(kvw_source_dns.configured(config));
	ck_assert_int_eq(
		kvw_dns_source_start(base, config, &options, on_found, &got, &source), KVW_OK);
	kvw_config_destroy(config);
}

static void start(void)
{
	memset(&got, 0, sizeof(got));
	timeout_ms = 5000;
	setenv("LOCALDOMAIN", "nowhere.example", 1);
	setenv("RES_OPTIONS", "ndots:1", 1);
	base = event_base_new();
	fake = fake_dns_create(base);
	source = NULL;
}

static void stop(void)
{
	kvw_source_dns.stop(source);
	fake_dns_destroy(fake);
	event_base_free(base);
}

START_TEST(each_address_is_a_worker)
{
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.9");
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.2");
	fake_dns_add(fake, "w.example", FAKE_DNS_AAAA, 60, "fd00::2");
	begin("'http://w.example:8000/p', 'https://10.1.1.1:443'");
	turn_until(base, &got.lists, 1);
	ck_assert_str_eq(got.urls, "http://10.0.0.2:8000/p http://10.0.0.9:8000/p "
				   "http://[fd00::2]:8000/p https://10.1.1.1:443");
	turn_for(base, 900); /* asked again, nothing has changed */
	ck_assert_uint_ge(fake_dns_asked(fake, "w.example", FAKE_DNS_A), 2);
	ck_assert_uint_eq(got.lists, 1);
	fake_dns_clear(fake);
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.3");
	turn_until(base, &got.lists, 2);
	ck_assert_str_eq(got.urls, "http://10.0.0.3:8000/p https://10.1.1.1:443");
}
END_TEST

START_TEST(each_srv_target_is_a_worker_at_its_port)
{
	fake_dns_add(fake, "_http._tcp.w.example", FAKE_DNS_SRV, 60, "8001 a.w.example");
	fake_dns_add(fake, "_http._tcp.w.example", FAKE_DNS_SRV, 60, "8002 b.w.example");
	fake_dns_add(fake, "_http._tcp.w.example", FAKE_DNS_SRV, 60, "8003 gone.w.example");
	fake_dns_add(fake, "a.w.example", FAKE_DNS_AAAA, 60, "fd00::a");
	fake_dns_add(fake, "a.w.example", FAKE_DNS_A, 60, "10.0.0.1");
	fake_dns_add(fake, "b.w.example", FAKE_DNS_AAAA, 60, "fd00::b");
	begin("'srv+https://_http._tcp.w.example/p'");
	turn_until(base, &got.lists, 1);
	ck_assert_str_eq(got.urls, "https://10.0.0.1:8001/p https://[fd00::b]:8002/p");
	fake_dns_rule(fake, "b.w.example", FAKE_DNS_ANY, FAKE_DNS_SERVFAIL);
	turn_for(base, 900); /* b keeps the address that it had */
	ck_assert_uint_eq(got.lists, 1);
	ck_assert_uint_eq(got.failures, 0);
	fake_dns_clear(fake);
	fake_dns_add(fake, "_http._tcp.w.example", FAKE_DNS_SRV, 60, "8001 a.w.example");
	fake_dns_add(fake, "a.w.example", FAKE_DNS_A, 60, "10.0.0.7");
	turn_until(base, &got.lists, 2);
	ck_assert_str_eq(got.urls, "https://10.0.0.7:8001/p");
}
END_TEST

START_TEST(a_target_of_which_one_kind_of_address_is_lost_stays_the_same_worker)
{
	fake_dns_add(fake, "_http._tcp.w.example", FAKE_DNS_SRV, 60, "8001 a.w.example");
	fake_dns_add(fake, "a.w.example", FAKE_DNS_AAAA, 60, "fd00::a");
	fake_dns_add(fake, "a.w.example", FAKE_DNS_A, 60, "10.0.0.1");
	begin("'srv://_http._tcp.w.example'");
	turn_until(base, &got.lists, 1);
	ck_assert_str_eq(got.urls, "http://10.0.0.1:8001");
	fake_dns_rule(fake, "a.w.example", FAKE_DNS_A, FAKE_DNS_SERVFAIL);
	turn_for(base, 900);
	ck_assert_uint_eq(got.lists, 1);
	fake_dns_clear(fake); /* the kind that answers may change meanwhile */
	fake_dns_add(fake, "_http._tcp.w.example", FAKE_DNS_SRV, 60, "8001 a.w.example");
	fake_dns_add(fake, "a.w.example", FAKE_DNS_A, 60, "10.0.0.9");
	fake_dns_rule(fake, "a.w.example", FAKE_DNS_AAAA, FAKE_DNS_SERVFAIL);
	turn_until(base, &got.lists, 2);
	ck_assert_str_eq(got.urls, "http://10.0.0.9:8001");
}
END_TEST

START_TEST(many_targets_come_by_tcp_and_all_are_asked_for)
{
	char name[32], text[64];

	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "p%d.w.example", i);
		snprintf(text, sizeof(text), "8000 %s", name);
		fake_dns_add(fake, "_http._tcp.w.example", FAKE_DNS_SRV, 60, text);
		snprintf(text, sizeof(text), "10.0.%d.%d", i / 200, i % 200 + 1);
		fake_dns_add(fake, name, FAKE_DNS_A, 60, text);
	}
	fake_dns_rule(fake, "_http._tcp.w.example", FAKE_DNS_SRV, FAKE_DNS_TRUNCATED);
	begin("'srv://_http._tcp.w.example'");
	turn_until(base, &got.lists, 1);
	ck_assert_uint_eq(got.count, 300);
	ck_assert_uint_ge(fake_dns_asked_tcp(fake), 1);
}
END_TEST

START_TEST(workers_are_gone_when_a_server_says_so_twice)
{
	int64_t begun;

	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.2");
	begin("'http://w.example:8000'");
	turn_until(base, &got.lists, 1);
	fake_dns_clear(fake);
	begun = kvw_clock_ns();
	turn_until(base, &got.lists, 2);
	ck_assert_uint_eq(got.count, 0);
	ck_assert_int_ge(kvw_clock_ns() - begun, 200 * KVW_NS_PER_MS); /* not at the first */
	ck_assert_uint_eq(got.failures, 0);
	turn_for(base, 900);
	ck_assert_uint_eq(got.lists, 2);
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.2");
	turn_until(base, &got.lists, 3);
	ck_assert_uint_eq(got.count, 1);
}
END_TEST

static const struct {
	enum fake_dns_rule rule;
	const char *why;
} outages[] = {
	{FAKE_DNS_SERVFAIL, "no name server gave an answer"},
	{FAKE_DNS_SILENT, "no name server answered in time"},
	{FAKE_DNS_GARBAGE, ""}, /* "malformed" or "in time": it depends on the version of c-ares */
};

START_TEST(an_outage_of_the_dns_empties_nothing)
{
	fake_dns_add(fake, "_h._tcp.w.example", FAKE_DNS_SRV, 60, "8000 10.0.0.2");
	fake_dns_add(fake, "10.0.0.2", FAKE_DNS_A, 60, "10.0.0.2");
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.2");
	timeout_ms = 400;
	begin("'http://w.example:8000', 'srv://_h._tcp.w.example'");
	turn_until(base, &got.lists, 1);
	ck_assert_uint_eq(got.count, 1); /* both say the same worker */
	fake_dns_rule(fake, "w.example", FAKE_DNS_ANY, outages[_i].rule);
	fake_dns_rule(fake, "_h._tcp.w.example", FAKE_DNS_ANY, outages[_i].rule);
	turn_until(base, &got.failures, 2); /* once for each name */
	ck_assert_ptr_nonnull(strstr(got.why, outages[_i].why));
	turn_for(base, 1500);
	ck_assert_uint_eq(got.lists, 1);
	ck_assert_uint_eq(got.failures, 2);
	fake_dns_clear(fake);
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.2");
	turn_until(base, &got.lists, 2); /* the same list: the outage is over */
	ck_assert_str_eq(got.urls, "http://10.0.0.2:8000");
}
END_TEST

/* Another name's answer is no reason to take the source for readable. */
START_TEST(a_list_with_a_name_that_cannot_be_asked_for_is_partial)
{
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.2");
	fake_dns_add(fake, "x.example", FAKE_DNS_A, 60, "10.0.0.3");
	begin("'http://w.example:8000', 'http://x.example:8000'");
	turn_until(base, &got.lists, 1);
	ck_assert(!got.partial);
	fake_dns_rule(fake, "x.example", FAKE_DNS_ANY, FAKE_DNS_SERVFAIL);
	turn_until(base, &got.failures, 1);
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.1");
	turn_until(base, &got.lists, 2);
	ck_assert(got.partial);
	ck_assert_str_eq(got.urls, "http://10.0.0.1:8000 http://10.0.0.2:8000 http://10.0.0.3:8000");
	fake_dns_clear(fake);
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.1");
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.2");
	fake_dns_add(fake, "x.example", FAKE_DNS_A, 60, "10.0.0.3");
	turn_until(base, &got.lists, 3);
	ck_assert(!got.partial);
	ck_assert_uint_eq(got.failures, 1);
}
END_TEST

START_TEST(the_first_list_waits_for_all_names)
{
	fake_dns_add(fake, "w.example", FAKE_DNS_A, 60, "10.0.0.2");
	fake_dns_rule(fake, "v.example", FAKE_DNS_ANY, FAKE_DNS_SILENT);
	timeout_ms = 400;
	begin("'http://w.example:8000', 'http://v.example:8000'");
	turn_until(base, &got.lists, 1);
	ck_assert_uint_eq(got.failures, 1); /* and not for ever */
	ck_assert_str_eq(got.urls, "http://10.0.0.2:8000");
	ck_assert_ptr_nonnull(strstr(got.why, "http://v.example:8000: "));
}
END_TEST

START_TEST(it_stops_while_questions_are_open)
{
	fake_dns_add(fake, "_h._tcp.w.example", FAKE_DNS_SRV, 60, "8000 a.w.example");
	fake_dns_rule(fake, "a.w.example", FAKE_DNS_ANY, FAKE_DNS_SILENT);
	begin("'srv://_h._tcp.w.example', 'http://w.example:1'");
	for (size_t asked = 0; asked == 0; asked = fake_dns_asked(fake, "a.w.example", FAKE_DNS_ANY))
		turn_for(base, 10);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("dns-source");

	tcase_add_checked_fixture(tcase, start, stop);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, each_address_is_a_worker);
	tcase_add_test(tcase, each_srv_target_is_a_worker_at_its_port);
	tcase_add_test(tcase, a_target_of_which_one_kind_of_address_is_lost_stays_the_same_worker);
	tcase_add_test(tcase, many_targets_come_by_tcp_and_all_are_asked_for);
	tcase_add_test(tcase, workers_are_gone_when_a_server_says_so_twice);
	tcase_add_loop_test(tcase, an_outage_of_the_dns_empties_nothing, 0,
		sizeof(outages) / sizeof(outages[0]));
	tcase_add_test(tcase, a_list_with_a_name_that_cannot_be_asked_for_is_partial);
	tcase_add_test(tcase, the_first_list_waits_for_all_names);
	tcase_add_test(tcase, it_stops_while_questions_are_open);
	return run_tcase("dns-source", tcase);
}
