/*
 * ranks_test.c - names of data-parallel ranks, the numbers that servers take for them, and the workers
 * that they are.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <event2/event.h>

#include "base/clock.h"
#include "fleet/expected.h"
#include "fleet/member.h"
#include "fleet/members.h"
#include "fleet/probe_share.h"
#include "fleet_support.h"
#include "tests/unit/suite.h"

#define FIRST_PORT 18400
#define URL        "http://127.0.0.1:18400"
#define MINUTE     (60 * KVW_NS_PER_S)

static struct event_base *base;
static struct kvw_config *config;
static struct kvw_fleet *fleet;
static struct kvw_members *members;
static struct kvw_members_change change;

static void setup_with(int64_t ranks)
{
	base = event_base_new();
	config = fleet_test_config(1, FIRST_PORT);
	config->workers[0].ranks = ranks;
	fleet = fleet_test_create(config, 1);
	fleet->loops = 0; /* none has to let go */
	ck_assert_int_eq(kvw_members_create(base, fleet, NULL, NULL, &members), KVW_OK);
}

static void teardown(void)
{
	kvw_members_destroy(members);
	kvw_fleet_destroy(fleet);
	kvw_config_destroy(config);
	event_base_free(base);
}

/* Turns until so many workers are LIVE and none leaves. */
static void await(size_t live)
{
	const struct timeval span = {.tv_usec = 10000};

	for (int i = 0; i < 1000 && (fleet->live != live || fleet->leaving > 0); i++) {
		event_base_loopexit(base, &span);
		event_base_dispatch(base);
	}
	ck_assert_uint_eq(fleet->live, live);
	ck_assert_uint_eq(fleet->leaving, 0);
}

static void say(int64_t ranks)
{
	struct kvw_worker_config entry = config->workers[0];

	entry.ranks = ranks;
	ck_assert_int_eq(
		kvw_members_set(members, KVW_SOURCE_CONFIG, &entry, 1, &change), KVW_OK);
}

static struct kvw_worker *worker_of(const char *url)
{
	for (size_t i = 0; i < fleet->count; i++) {
		struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

		if (worker != NULL && !worker->hidden && strcmp(worker->url, url) == 0)
			return worker;
	}
	return NULL;
}

START_TEST(names_have_an_index)
{
	static const struct {
		const char *url;
		int rank;
		size_t len;
	} rows[] = {{"http://h:1@0", 0, 10}, {"http://h:1/p@63", 63, 12}, {"http://h:1", -1, 10},
		{"http://h:1@", -1, 11}, {"http://h:1@x", -1, 12}, {"http://h:1@07", -1, 13},
		{"http://h:1@64", -1, 13}};
	size_t len;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		ck_assert_int_eq(kvw_rank_split(rows[i].url, &len), rows[i].rank);
		ck_assert_uint_eq(len, rows[i].len);
	}
}
END_TEST

START_TEST(a_recorded_refusal_is_understood)
{
	char path[512], text[2048];
	const char *body;
	size_t len;
	FILE *in;

	snprintf(path, sizeof(path), "%s/vllm_dp_rank2.resp", DATA_DIR);
	in = fopen(path, "re");
	ck_assert_ptr_nonnull(in);
	len = fread(text, 1, sizeof(text) - 1, in);
	fclose(in);
	text[len] = '\0';
	body = strstr(text, "\r\n\r\n") + 4;
	ck_assert(kvw_rank_denies(body, strlen(body), 2));
	ck_assert(!kvw_rank_denies(body, strlen(body), 1));
	ck_assert(!kvw_rank_denies(body, strlen(body), 20));
	/* a piece that ends before the number does */
	ck_assert(!kvw_rank_denies(body, (size_t)(strstr(body, " is out") - body), 2));
}
END_TEST

START_TEST(the_words_of_other_servers)
{
	static const char *const bodies[] = {
		"{\"error\":{\"message\":\"data parallel rank 2 is not connected to this frontend; connected ranks: [4, 5]\"}}",
		"{\"error\":{\"message\":\"data parallel rank 2 is out of range for 2 engine(s)\"}}",
		"{\"object\":\"error\",\"message\":\"routed_dp_rank=2 out of range [0, 2)\",\"code\":400}"};

	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		ck_assert(kvw_rank_denies(bodies[i], strlen(bodies[i]), 2));
		ck_assert(!kvw_rank_denies(bodies[i], strlen(bodies[i]), 4));
	}
}
END_TEST

/* What a client wrote and an error repeats is no refusal. */
START_TEST(other_errors_are_no_refusals)
{
	static const char *const bodies[] = {"",
		"{\"error\":{\"message\":\"bad value data_parallel_rank 2 is out of range\"}}",
		"{\"error\":{\"message\":\"data_parallel_rank x\"}}",
		"{\"error\":{\"message\":\"bad value data parallel rank 2 is out of range\"}}",
		"{\"error\":{\"message\":\"data_parallel_rank 22 is out of range\"}}"};

	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
		ck_assert(!kvw_rank_denies(bodies[i], strlen(bodies[i]), 2));
}
END_TEST

START_TEST(each_rank_is_a_worker_of_one_server)
{
	char url[64];

	setup_with(4);
	ck_assert_uint_eq(fleet->live, 4);
	for (int rank = 0; rank < 4; rank++) {
		struct kvw_worker *worker;

		snprintf(url, sizeof(url), URL "@%d", rank);
		worker = worker_of(url);
		ck_assert_ptr_nonnull(worker);
		ck_assert_int_eq(worker->rank, rank);
		ck_assert_str_eq(worker->endpoint, URL);
		ck_assert_str_eq(worker->authority, "127.0.0.1:18400");
		ck_assert_ptr_eq(worker->lead, worker_of(URL "@0"));
		ck_assert_uint_eq(worker->addresses.count, 1);
	}
	ck_assert_uint_eq(worker_of(URL "@0")->followers, 3);
	teardown();
}
END_TEST

START_TEST(a_list_that_is_read_is_all_ranks_own)
{
	setup_with(3);
	fleet_test_models(fleet, 0, "a,b");
	ck_assert_str_eq(fleet_test_ids(fleet, "a"), "0 1 2");
	for (size_t i = 0; i < 3; i++)
		ck_assert(fleet->workers[i]->models_known);
	teardown();
}
END_TEST

START_TEST(ranks_come_and_go_with_the_settings)
{
	struct kvw_worker *second;
	uint32_t use;

	setup_with(2);
	second = worker_of(URL "@1");
	use = second->use;
	say(4);
	ck_assert_uint_eq(change.joined, 2);
	ck_assert_ptr_eq(worker_of(URL "@1"), second);
	ck_assert_uint_eq(second->use, use);
	say(2);
	ck_assert_uint_eq(change.left, 2);
	await(2);
	ck_assert_ptr_eq(worker_of(URL "@1"), second);
	say(1);
	await(1);
	ck_assert_int_eq(worker_of(URL)->rank, KVW_RANK_NONE);
	say(2);
	await(2);
	ck_assert_ptr_null(worker_of(URL));
	ck_assert_ptr_eq(worker_of(URL "@1")->lead, worker_of(URL "@0"));
	teardown();
}
END_TEST

/* The lead has the connections of its ranks: it is there as long as one of them. */
START_TEST(the_lead_leaves_last)
{
	const struct timeval span = {.tv_usec = 400000};
	struct kvw_lease lease = {0};
	struct kvw_worker *busy, *lead;

	setup_with(3);
	busy = worker_of(URL "@2");
	lead = busy->lead;
	kvw_lease_take(&lease, &busy->load, 0, 0);
	ck_assert_int_eq(kvw_members_remove(members, URL, false), KVW_OK);
	event_base_loopexit(base, &span);
	event_base_dispatch(base);
	ck_assert_int_eq(kvw_worker_life(lead), KVW_WORKER_LIVE);
	ck_assert_uint_eq(fleet->live, 2);
	kvw_lease_release(&lease, 0);
	await(0);
	teardown();
}
END_TEST

START_TEST(one_rank_or_all_rest)
{
	setup_with(3);
	ck_assert_int_eq(kvw_members_rest(members, URL "@1", true), KVW_OK);
	ck_assert((worker_of(URL "@1")->barred & KVW_BARRED_DRAINING) != 0);
	ck_assert((worker_of(URL "@0")->barred & KVW_BARRED_DRAINING) == 0);
	ck_assert_int_eq(kvw_members_rest(members, URL, true), KVW_OK);
	ck_assert((worker_of(URL "@0")->barred & KVW_BARRED_DRAINING) != 0);
	say(4); /* one that joins meanwhile rests, too */
	ck_assert((worker_of(URL "@3")->barred & KVW_BARRED_DRAINING) != 0);
	ck_assert_int_eq(kvw_members_remove(members, URL "@1", false), KVW_EINVAL);
	teardown();
}
END_TEST

START_TEST(ranks_of_a_former_process_are_expected)
{
	uint32_t slot, generation;

	base = event_base_new();
	config = fleet_test_config(1, FIRST_PORT);
	fleet = fleet_test_create(config, 1);
	fleet->loops = 0;
	for (int rank = 0; rank < 3; rank++) {
		char url[64];

		snprintf(url, sizeof(url), URL "@%d", rank);
		ck_assert_int_eq(kvw_fleet_expect(fleet, url, 1, &slot, &generation), KVW_OK);
		ck_assert_uint_eq(slot, (uint32_t)rank + 1);
	}
	ck_assert_int_eq(kvw_members_create(base, fleet, NULL, NULL, &members), KVW_OK);
	await(3);
	ck_assert_uint_eq(worker_of(URL "@2")->id, 3);
	teardown();
}
END_TEST

START_TEST(a_cache_is_lost_by_all_ranks)
{
	uint32_t before[3];

	setup_with(3);
	for (size_t i = 0; i < 3; i++)
		before[i] = fleet->workers[i]->generation;
	kvw_fleet_cache_lost(fleet, worker_of(URL "@1"), "test");
	for (size_t i = 0; i < 3; i++)
		ck_assert_uint_eq(fleet->workers[i]->generation, before[i] + 1);
	teardown();
}
END_TEST

START_TEST(the_other_number_follows_a_refused_one)
{
	struct kvw_worker *worker;

	setup_with(2);
	worker = worker_of(URL "@1");
	atomic_store(&worker->global_rank, 5);
	ck_assert_int_eq(kvw_rank_number(worker, false, 1), 1);
	ck_assert_int_eq(kvw_rank_number(worker, true, 1), KVW_RANK_NONE); /* not known to be taken */
	kvw_rank_refused(worker, 1, 1);
	ck_assert_int_eq(kvw_rank_number(worker, false, 1), 5);
	kvw_rank_refused(worker, 1, 1); /* of a request that was under way */
	ck_assert_int_eq(kvw_rank_number(worker, false, 1), 5);
	kvw_rank_accepted(worker, 5);
	ck_assert_int_eq(kvw_rank_number(worker, true, 1), 5);
	kvw_rank_refused(worker, 5, 1);
	ck_assert_int_eq(kvw_rank_number(worker, false, MINUTE), KVW_RANK_NONE);
	ck_assert_int_eq(kvw_rank_number(worker, false, MINUTE + 2), 1);
	kvw_rank_refused(worker, 1, 1);
	kvw_rank_forget(worker); /* another process */
	ck_assert_int_eq(kvw_rank_number(worker, false, 1), 1);
	teardown();
}
END_TEST

START_TEST(equal_numbers_are_tried_once)
{
	struct kvw_worker *worker;

	setup_with(2);
	worker = worker_of(URL "@1");
	atomic_store(&worker->global_rank, 1);
	kvw_rank_refused(worker, 1, 1);
	ck_assert_int_eq(kvw_rank_number(worker, false, 2), KVW_RANK_NONE);
	teardown();
}
END_TEST

START_TEST(fewer_ranks_are_believed_on_the_third_page)
{
	struct kvw_member member = {.seen_ranks = 4};

	ck_assert(!kvw_member_believes(&member, 3));
	ck_assert(!kvw_member_believes(&member, 2));
	ck_assert(kvw_member_believes(&member, 4));
	ck_assert(!kvw_member_believes(&member, 3));
	ck_assert(!kvw_member_believes(&member, 3));
	ck_assert(kvw_member_believes(&member, 3));
	ck_assert(kvw_member_believes(&member, 5));
}
END_TEST

START_TEST(a_page_with_fewer_ranks_says_nothing)
{
	struct kvw_probe_share *shares[KVW_RANKS_MOST] = {NULL};
	struct kvw_scrape_page page;

	setup_with(2);
	kvw_scrape_ranks("vllm:num_requests_running{engine=\"5\"} 1\n", 39, &page);
	ck_assert_uint_eq(page.rank_count, 1);
	for (size_t i = 0; i < 2; i++)
		ck_assert_int_eq(kvw_probe_share_create(fleet->workers[i], &shares[i]), KVW_OK);
	atomic_store(&fleet->workers[0]->global_rank, 4);
	kvw_probe_shares_take(shares, fleet, &page);
	ck_assert_int_eq(atomic_load(&fleet->workers[0]->global_rank), 4);
	kvw_probe_share_destroy(shares[1]);
	shares[1] = NULL;
	kvw_probe_shares_take(shares, fleet, &page);
	ck_assert_int_eq(atomic_load(&fleet->workers[0]->global_rank), 5);
	kvw_probe_share_destroy(shares[0]);
	teardown();
}
END_TEST

START_TEST(a_rank_has_the_address_that_worked_for_its_lead)
{
	struct sockaddr_storage addresses[2] = {0};
	char ip[64];

	setup_with(2);
	for (size_t i = 0; i < 2; i++) {
		struct sockaddr_in *in = (struct sockaddr_in *)&addresses[i];

		in->sin_family = AF_INET;
		in->sin_port = htons(FIRST_PORT);
		in->sin_addr.s_addr = htonl(0x7f000001u + (uint32_t)i);
	}
	kvw_fleet_set_addresses(fleet, fleet->workers[0], addresses, 2);
	kvw_worker_address_worked(fleet->workers[0], &addresses[1]);
	kvw_worker_ip(worker_of(URL "@1"), ip, sizeof(ip));
	ck_assert_str_eq(ip, "127.0.0.2");
	teardown();
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("ranks");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, names_have_an_index);
	tcase_add_test(tcase, a_recorded_refusal_is_understood);
	tcase_add_test(tcase, the_words_of_other_servers);
	tcase_add_test(tcase, other_errors_are_no_refusals);
	tcase_add_test(tcase, each_rank_is_a_worker_of_one_server);
	tcase_add_test(tcase, a_list_that_is_read_is_all_ranks_own);
	tcase_add_test(tcase, ranks_come_and_go_with_the_settings);
	tcase_add_test(tcase, the_lead_leaves_last);
	tcase_add_test(tcase, one_rank_or_all_rest);
	tcase_add_test(tcase, ranks_of_a_former_process_are_expected);
	tcase_add_test(tcase, a_cache_is_lost_by_all_ranks);
	tcase_add_test(tcase, the_other_number_follows_a_refused_one);
	tcase_add_test(tcase, equal_numbers_are_tried_once);
	tcase_add_test(tcase, fewer_ranks_are_believed_on_the_third_page);
	tcase_add_test(tcase, a_page_with_fewer_ranks_says_nothing);
	tcase_add_test(tcase, a_rank_has_the_address_that_worked_for_its_lead);
	return run_tcase("ranks", tcase);
}
