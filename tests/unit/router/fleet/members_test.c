/*
 * members_test.c - which workers the fleet has after what sources and the admin address say.
 *
 * The fleet has no loop here: a worker that is removed waits for none.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "base/clock.h"
#include "fleet/members.h"
#include "fleet_support.h"
#include "tests/unit/suite.h"

#define FIRST_PORT 18000

static struct event_base *base;
static struct kvw_config *config;
static struct kvw_fleet *fleet;
static struct kvw_members *members;
static struct kvw_members_change change;
static size_t freed;

static void note_freed(void *arg, uint32_t slot)
{
	(void)arg;
	(void)slot;
	freed++;
}

static void setup(void)
{
	freed = 0;
	base = event_base_new();
	config = fleet_test_config(2, FIRST_PORT);
	fleet = fleet_test_create(config, 1);
	fleet->loops = 0; /* none has to let go */
	fleet->freed = note_freed;
	ck_assert_int_eq(kvw_members_create(base, fleet, NULL, NULL, &members), KVW_OK);
}

static void teardown(void)
{
	kvw_members_destroy(members);
	kvw_fleet_destroy(fleet);
	kvw_config_destroy(config);
	event_base_free(base);
}

static void turn_for_ms(long ms)
{
	const struct timeval span = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_base_loopexit(base, &span);
	event_base_dispatch(base);
}

/* Turns until so many workers are LIVE and none leaves. */
static void await(size_t live)
{
	for (int i = 0; i < 1000 && (fleet->live != live || fleet->leaving > 0); i++)
		turn_for_ms(10);
	ck_assert_uint_eq(fleet->live, live);
	ck_assert_uint_eq(fleet->leaving, 0);
}

/* "8 9" stands for workers at ports 18008 and 18009. api_key: of all of them. */
static void say_with_key(enum kvw_member_source source, const char *ports, const char *api_key)
{
	char urls[16][64], *copy = strdup(ports), *rest = copy, *port, *key = strdup(api_key);
	struct kvw_worker_config list[16];
	size_t count = 0;

	while ((port = strsep(&rest, " ")) != NULL) {
		if (port[0] == '\0')
			continue;
		snprintf(urls[count], sizeof(urls[0]), "http://127.0.0.1:%d", FIRST_PORT + atoi(port));
		list[count] = config->workers[0];
		list[count].url = urls[count];
		list[count].api_key = key;
		count++;
	}
	ck_assert_int_eq(kvw_members_set(members, source, list, count, &change), KVW_OK);
	free(copy);
	free(key);
}

static void say(enum kvw_member_source source, const char *ports)
{
	say_with_key(source, ports, "");
}

static struct kvw_worker *worker_at(int port)
{
	char url[64];

	snprintf(url, sizeof(url), "http://127.0.0.1:%d", FIRST_PORT + port);
	for (size_t i = 0; i < fleet->count; i++) {
		struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

		if (worker != NULL && !worker->hidden && strcmp(worker->url, url) == 0)
			return worker;
	}
	return NULL;
}

static const char *url_of(int port)
{
	static char url[64];

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/", FIRST_PORT + port);
	return url;
}

static bool rests(const struct kvw_worker *worker)
{
	return (worker->barred & KVW_BARRED_DRAINING) != 0;
}

START_TEST(a_list_adds_and_removes)
{
	say(KVW_SOURCE_CONFIG, "1 2 3");
	ck_assert_uint_eq(change.joined, 2);
	ck_assert_uint_eq(change.left, 1);
	ck_assert(rests(worker_at(0))); /* no new request from now on */
	ck_assert(!rests(worker_at(1)));
	await(3);
	ck_assert_ptr_null(worker_at(0));
	ck_assert_uint_eq(freed, 1);
	say(KVW_SOURCE_CONFIG, "3 2 1");
	ck_assert_uint_eq(change.joined + change.left + change.changed, 0);
}
END_TEST

START_TEST(a_worker_with_requests_leaves_when_they_have_ended)
{
	struct kvw_worker *busy = worker_at(0);
	struct kvw_lease lease = {0};

	kvw_lease_take(&lease, &busy->load, 0, kvw_clock_ns());
	say(KVW_SOURCE_CONFIG, "1");
	turn_for_ms(300);
	ck_assert_uint_eq(fleet->live, 2);
	ck_assert(rests(busy));
	kvw_lease_release(&lease, kvw_clock_ns());
	await(1);
}
END_TEST

START_TEST(a_worker_with_requests_leaves_when_its_time_is_over)
{
	struct kvw_worker *busy = worker_at(0);
	struct kvw_lease lease = {0};

	config->drain_worker_ms = 150;
	kvw_lease_take(&lease, &busy->load, 0, kvw_clock_ns());
	say(KVW_SOURCE_CONFIG, "1");
	await(1);
	kvw_lease_release(&lease, kvw_clock_ns());
}
END_TEST

START_TEST(one_that_leaves_and_is_listed_again_goes_on)
{
	struct kvw_worker *back = worker_at(0);

	say(KVW_SOURCE_CONFIG, "1");
	ck_assert(rests(back));
	say(KVW_SOURCE_CONFIG, "0 1");
	ck_assert_uint_eq(change.joined, 1);
	ck_assert(!rests(back));
	turn_for_ms(300);
	ck_assert_ptr_eq(worker_at(0), back); /* the same, with all that is known of it */
	ck_assert_uint_eq(fleet->live, 2);
	ck_assert_uint_eq(freed, 0);
}
END_TEST

START_TEST(a_worker_stays_while_one_source_lists_it)
{
	say(KVW_SOURCE_DNS, "0 5");
	say(KVW_SOURCE_CONFIG, "1");
	ck_assert_uint_eq(change.left, 0);
	await(3);
	say(KVW_SOURCE_DNS, "5");
	ck_assert_uint_eq(change.left, 1);
	await(2);
}
END_TEST

START_TEST(another_key_needs_another_worker_which_takes_its_place_at_once)
{
	struct kvw_worker *old = worker_at(0), *new;
	struct kvw_lease lease = {0};

	kvw_lease_take(&lease, &old->load, 0, kvw_clock_ns());
	say_with_key(KVW_SOURCE_CONFIG, "0", "other");
	ck_assert_uint_eq(change.changed, 1);
	new = worker_at(0);
	ck_assert_ptr_ne(new, old);
	ck_assert_str_eq(new->api_key, "other");
	ck_assert(!rests(new));
	ck_assert(old->hidden && rests(old)); /* one series of the URL in the metrics */
	ck_assert_str_eq(old->api_key, "");   /* its requests go on */
	kvw_lease_release(&lease, kvw_clock_ns());
	await(1);
}
END_TEST

START_TEST(new_models_are_taken_over_in_place)
{
	char name[] = "m", *names[] = {name};
	struct kvw_worker_config list = config->workers[0];
	struct kvw_worker *worker = worker_at(0);

	list.models = (struct kvw_strings){names, 1};
	ck_assert_int_eq(kvw_members_set(members, KVW_SOURCE_CONFIG, &list, 1, &change), KVW_OK);
	ck_assert_uint_eq(change.changed, 1);
	ck_assert_ptr_eq(worker_at(0), worker);
	ck_assert_str_eq(fleet_test_ids(fleet, "m"), "0");
	list.models = (struct kvw_strings){NULL, 0};
	ck_assert_int_eq(kvw_members_set(members, KVW_SOURCE_CONFIG, &list, 1, &change), KVW_OK);
	ck_assert(!worker->models_given); /* it is asked from now on */
	ck_assert_str_eq(fleet_test_ids(fleet, "m"), "0");
}
END_TEST

START_TEST(the_admin_address_adds_and_removes)
{
	struct kvw_worker_config one = config->workers[0];
	char url[64], why[256] = "";

	snprintf(url, sizeof(url), "%s", url_of(7));
	one.url = url;
	ck_assert_int_eq(kvw_members_add(members, &one, why, sizeof(why)), KVW_OK);
	ck_assert_ptr_nonnull(worker_at(7));
	ck_assert_int_eq(kvw_members_add(members, &one, why, sizeof(why)), KVW_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "already"));
	say(KVW_SOURCE_CONFIG, "0"); /* no word of it, and it stays */
	await(2);
	ck_assert_int_eq(kvw_members_remove(members, url_of(7), true), KVW_OK);
	ck_assert_int_eq(kvw_members_remove(members, url_of(7), true), KVW_ENOTFOUND);
	await(1);
}
END_TEST

START_TEST(what_the_admin_address_removed_comes_back_with_a_reload)
{
	ck_assert_int_eq(kvw_members_rest(members, url_of(0), true), KVW_OK);
	ck_assert_int_eq(kvw_members_remove(members, url_of(0), false), KVW_OK);
	await(1);
	say(KVW_SOURCE_CONFIG, "0 1"); /* as before: it stays away */
	await(1);
	kvw_members_forgive(members);
	await(2);
	ck_assert(!rests(worker_at(0)));
}
END_TEST

/* Removed and added again by the admin address, it has the settings that were given then, until the source that
 * lists it says others. */
START_TEST(added_again_a_worker_has_the_new_settings)
{
	struct kvw_worker_config one = config->workers[0];
	char key[] = "b", why[256] = "";

	one.api_key = key;
	ck_assert_int_eq(kvw_members_remove(members, url_of(0), true), KVW_OK);
	await(1);
	ck_assert_int_eq(kvw_members_add(members, &one, why, sizeof(why)), KVW_OK);
	ck_assert_str_eq(worker_at(0)->config.api_key, "b");
	say(KVW_SOURCE_CONFIG, "0 1");
	ck_assert_str_eq(worker_at(0)->config.api_key, "");
	say(KVW_SOURCE_CONFIG, "1");
	ck_assert_ptr_nonnull(worker_at(0)); /* the admin address lists it, too */
}
END_TEST

START_TEST(one_that_rests_is_kept_and_works_again)
{
	ck_assert_int_eq(kvw_members_rest(members, url_of(0), true), KVW_OK);
	turn_for_ms(200);
	ck_assert(rests(worker_at(0)));
	say(KVW_SOURCE_CONFIG, "0 1");
	ck_assert(rests(worker_at(0)));
	ck_assert_int_eq(kvw_members_rest(members, url_of(0), false), KVW_OK);
	ck_assert(!rests(worker_at(0)));
	ck_assert_int_eq(kvw_members_rest(members, url_of(9), true), KVW_ENOTFOUND);
}
END_TEST

START_TEST(members_are_shown_with_those_that_leave)
{
	struct kvw_member_view view;
	size_t leaving = 0, count = 0;

	say(KVW_SOURCE_FILE, "1 4");
	say(KVW_SOURCE_CONFIG, "1");
	while (kvw_members_view(members, count, &view)) {
		leaving += view.leaves;
		if (strcmp(view.url, "http://127.0.0.1:18001") == 0)
			ck_assert_uint_eq(
				view.sources, 1u << KVW_SOURCE_CONFIG | 1u << KVW_SOURCE_FILE);
		count++;
	}
	ck_assert_uint_eq(count, 3);
	ck_assert_uint_eq(leaving, 1);
}
END_TEST

/* So many more that the fleet has no free slot. */
static void fill_fleet(void)
{
	struct kvw_worker_config one = config->workers[0];
	char url[64], why[256];
	struct kvw_worker *worker;

	one.url = url;
	for (size_t i = fleet->live; i < KVW_MAX_WORKERS; i++) {
		snprintf(url, sizeof(url), "http://127.0.0.1:%zu", 30000 + i);
		ck_assert_int_eq(kvw_fleet_add(fleet, &one, why, sizeof(why), &worker), KVW_OK);
	}
}

START_TEST(in_a_full_fleet_nothing_is_lost)
{
	struct kvw_worker *old = worker_at(0);
	char key[] = "b", why[256] = "", url[64];
	struct kvw_worker_config other = old->config;

	fill_fleet();
	say(KVW_SOURCE_CONFIG, "0 1 2");
	ck_assert_uint_eq(change.refused, 1);
	ck_assert_ptr_nonnull(strstr(change.why, "1024"));
	other.api_key = key;
	ck_assert_int_eq(kvw_members_change(members, &other, why, sizeof(why)), KVW_ELIMIT);
	ck_assert_ptr_nonnull(strstr(why, "1024"));
	ck_assert_ptr_eq(worker_at(0), old); /* with what it had */
	ck_assert(!rests(old) && !old->hidden);
	snprintf(url, sizeof(url), "%s", url_of(1));
	ck_assert_int_eq(kvw_members_remove(members, url, true), KVW_OK);
	for (int i = 0; i < 1000 && worker_at(2) == NULL; i++)
		turn_for_ms(10); /* its slot is free, and the refused one joins by itself */
	ck_assert_ptr_nonnull(worker_at(2));
	ck_assert_ptr_null(worker_at(1));
}
END_TEST

/* The slots whose worker metrics show, as digits. */
static const char *shown(void)
{
	static char text[16];
	size_t len = 0;

	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

		if (worker != NULL && !worker->hidden)
			text[len++] = (char)('0' + i);
	}
	text[len] = '\0';
	return text;
}

START_TEST(metrics_show_one_worker_of_each_url)
{
	say(KVW_SOURCE_CONFIG, "0");
	await(1);
	ck_assert_str_eq(shown(), "0");
	say_with_key(KVW_SOURCE_CONFIG, "0", "b"); /* changed: 0 leaves, 1 is its successor */
	ck_assert_str_eq(shown(), "1");
	say(KVW_SOURCE_CONFIG, ""); /* both leave */
	ck_assert_str_eq(shown(), "1");
	say(KVW_SOURCE_CONFIG, "0"); /* the older one is called back */
	ck_assert_str_eq(shown(), "0");
	say(KVW_SOURCE_CONFIG, "");
	say_with_key(KVW_SOURCE_CONFIG, "0", "c"); /* listed again with other settings while it leaves */
	ck_assert_str_eq(shown(), "2");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("members");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_list_adds_and_removes);
	tcase_add_test(tcase, a_worker_with_requests_leaves_when_they_have_ended);
	tcase_add_test(tcase, a_worker_with_requests_leaves_when_its_time_is_over);
	tcase_add_test(tcase, one_that_leaves_and_is_listed_again_goes_on);
	tcase_add_test(tcase, a_worker_stays_while_one_source_lists_it);
	tcase_add_test(tcase, another_key_needs_another_worker_which_takes_its_place_at_once);
	tcase_add_test(tcase, new_models_are_taken_over_in_place);
	tcase_add_test(tcase, the_admin_address_adds_and_removes);
	tcase_add_test(tcase, what_the_admin_address_removed_comes_back_with_a_reload);
	tcase_add_test(tcase, added_again_a_worker_has_the_new_settings);
	tcase_add_test(tcase, one_that_rests_is_kept_and_works_again);
	tcase_add_test(tcase, members_are_shown_with_those_that_leave);
	tcase_add_test(tcase, in_a_full_fleet_nothing_is_lost);
	tcase_add_test(tcase, metrics_show_one_worker_of_each_url);
	return run_tcase("members", tcase);
}
