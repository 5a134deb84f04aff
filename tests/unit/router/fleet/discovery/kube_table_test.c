/*
 * kube_table_test.c - lists and events together: what is there in the end, whatever the order.
 */
#include "kube.h"

#include "fleet/discovery/kube_table.h"
#include "fleet/discovery/kube_workers.h"
#include "tests/unit/suite.h"

static struct kvw_config *config;
static struct kvw_kube_table table, incoming, second;
static struct found got;

static void setup(void)
{
	config = config_with_pools("[{selector: 'app=vllm', port: 8000, models: [m]}, "
				   "{name: b, selector: 'app=vllm', port: 8000, tls: false, api_key: k}]");
}

static void teardown(void)
{
	kvw_kube_table_finish(&table);
	kvw_kube_table_finish(&incoming);
	kvw_kube_table_finish(&second);
	kvw_config_destroy(config);
}

static bool say_in(struct kvw_kube_table *to, const char *type, const char *name, const char *uid,
	int version, const char *ip)
{
	struct kvw_kube_event event;
	bool changed;

	read_event_text(&config->pools[0], type, pod(name, uid, version, ip), &event);
	ck_assert_int_eq(kvw_kube_table_apply(to, &event, &changed), KVW_OK);
	kvw_kube_event_finish(&event);
	return changed;
}

static bool say(const char *type, const char *name, const char *uid, int version, const char *ip)
{
	return say_in(&table, type, name, uid, version, ip);
}

/* A page of one pod; name NULL: an empty one. */
static void page(const char *name, const char *uid, int version, const char *ip)
{
	struct kvw_kube_page read;
	char *text = NULL;

	ck_assert_int_ge(asprintf(&text, "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[%s]}",
				 name == NULL ? "" : pod(name, uid, version, ip)), 0);
	ck_assert_int_eq(kvw_kube_page_read(&config->pools[0], text, strlen(text), &read), KVW_OK);
	ck_assert_int_eq(kvw_kube_table_list_page(&incoming, &read), KVW_OK);
	free(text);
}

/* "URL=IDENTITY ..." of all tables. */
static const char *workers(void)
{
	static char text[1024];
	const struct kvw_kube_table *const tables[] = {&table, &second};
	struct kvw_config *list = NULL;
	uint64_t mark, again;
	size_t count, used = 0;

	ck_assert_int_eq(kvw_kube_workers(config, tables, &count, &mark, &list), KVW_OK);
	text[0] = '\0';
	ck_assert_uint_eq(count, list->worker_count);
	for (size_t i = 0; i < count; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s=%s", i > 0 ? " " : "",
			list->workers[i].url + strlen("http://10.0.0."), list->workers[i].identity);
	memset(&got, 0, sizeof(got));
	found_write(&got, list->workers, list->worker_count);
	kvw_config_destroy(list);
	list = NULL;
	ck_assert_int_eq(kvw_kube_workers(config, tables, &count, &again, &list), KVW_OK);
	ck_assert(mark == again);
	kvw_config_destroy(list);
	return text;
}

START_TEST(test_events)
{
	ck_assert(say("ADDED", "a", "u1", 1, "10.0.0.1"));
	ck_assert(say("ADDED", "b", "u2", 2, "10.0.0.2"));
	ck_assert_str_eq(workers(), "1:8000=u1 2:8000=u2");
	ck_assert_str_eq(got.urls, "http://10.0.0.1:8000[m] http://10.0.0.2:8000[m]");
	ck_assert(say("MODIFIED", "a", "u1", 3, ""));
	ck_assert_str_eq(workers(), "2:8000=u2");
	ck_assert(say("DELETED", "b", "u2", 4, "10.0.0.2"));
	ck_assert_str_eq(workers(), "");
	ck_assert(say("MODIFIED", "a", "u1", 5, "10.0.0.9"));
	ck_assert_str_eq(workers(), "9:8000=u1");
}
END_TEST

START_TEST(test_an_old_event_changes_nothing)
{
	say("ADDED", "a", "u1", 5, "10.0.0.1");
	ck_assert(!say("MODIFIED", "a", "u1", 4, "10.0.0.2"));
	ck_assert_str_eq(workers(), "1:8000=u1");
	say("DELETED", "a", "u1", 7, "10.0.0.1");
	ck_assert(!say("MODIFIED", "a", "u1", 6, "10.0.0.1"));
	ck_assert_str_eq(workers(), "");
}
END_TEST

START_TEST(test_a_predecessor_of_the_same_name)
{
	say("ADDED", "a", "u1", 1, "10.0.0.1");
	say("ADDED", "a", "u2", 5, "10.0.0.2");
	ck_assert(!say("DELETED", "a", "u1", 4, "10.0.0.1"));
	ck_assert(!say("DELETED", "a", "u1", 9, "10.0.0.1"));
	ck_assert_str_eq(workers(), "2:8000=u2");
}
END_TEST

START_TEST(test_an_address_has_one_owner)
{
	say("ADDED", "a", "u1", 1, "10.0.0.1");
	say("ADDED", "b", "u2", 3, "10.0.0.1"); /* its DELETED has been missed */
	ck_assert_str_eq(workers(), "1:8000=u2");
	say("MODIFIED", "a", "u1", 4, "");
	ck_assert_str_eq(workers(), "1:8000=u2");
}
END_TEST

START_TEST(test_the_first_pool_has_it)
{
	say_in(&second, "ADDED", "a", "u1", 9, "10.0.0.1");
	say_in(&second, "ADDED", "b", "u2", 9, "10.0.0.2");
	say("ADDED", "a", "u1", 1, "10.0.0.1");
	ck_assert_str_eq(workers(), "1:8000=u1 2:8000=u2");
	ck_assert_str_eq(got.urls, "http://10.0.0.1:8000[m] http://10.0.0.2:8000");
}
END_TEST

static void list_ends(uint64_t version)
{
	ck_assert_int_eq(kvw_kube_table_list_end(&table, &incoming, version), KVW_OK);
	ck_assert_uint_eq(incoming.count, 0);
}

START_TEST(test_a_list_replaces_all)
{
	say("ADDED", "a", "u1", 1, "10.0.0.1");
	say("ADDED", "b", "u2", 2, "10.0.0.2");
	say("DELETED", "c", "u3", 3, "10.0.0.3");
	kvw_kube_table_list_begin(&table, &incoming);
	page("b", "u2", 2, "10.0.0.2");
	page("d", "u4", 4, "10.0.0.4");
	ck_assert_str_eq(workers(), "1:8000=u1 2:8000=u2"); /* until it is complete */
	list_ends(10);
	ck_assert_str_eq(workers(), "2:8000=u2 4:8000=u4");
	ck_assert_uint_eq(table.count, 2);
}
END_TEST

START_TEST(test_a_list_that_breaks_off)
{
	say("ADDED", "a", "u1", 1, "10.0.0.1");
	kvw_kube_table_list_begin(&table, &incoming);
	page("b", "u2", 2, "10.0.0.2");
	kvw_kube_table_list_begin(&table, &incoming);
	page("c", "u3", 2, "10.0.0.3");
	list_ends(10);
	ck_assert_str_eq(workers(), "3:8000=u3");
}
END_TEST

START_TEST(test_events_while_a_list_comes_in)
{
	say("ADDED", "a", "u1", 1, "10.0.0.1");
	say("ADDED", "b", "u2", 2, "10.0.0.2");
	say("ADDED", "c", "u3", 3, "10.0.0.3");
	kvw_kube_table_list_begin(&table, &incoming); /* of version 10 */
	say("DELETED", "a", "u1", 11, "10.0.0.1");
	say("MODIFIED", "b", "u2", 12, "10.0.0.22");
	say("ADDED", "d", "u4", 13, "10.0.0.4");
	say("MODIFIED", "c", "u3", 9, "10.0.0.33"); /* before the list, which lacks it */
	page("a", "u1", 1, "10.0.0.1");
	page("b", "u2", 2, "10.0.0.2");
	list_ends(10);
	ck_assert_str_eq(workers(), "22:8000=u2 4:8000=u4");
}
END_TEST

START_TEST(test_versions_that_go_back)
{
	/* A server that was restored from a backup counts from a lower number. */
	say("ADDED", "a", "u1", 1000, "10.0.0.1");
	say("ADDED", "b", "u2", 1001, "10.0.0.2");
	kvw_kube_table_list_begin(&table, &incoming);
	page("a", "u9", 5, "10.0.0.9");
	list_ends(6);
	ck_assert_str_eq(workers(), "9:8000=u9");
	ck_assert(say("MODIFIED", "a", "u9", 7, "10.0.0.8"));
	ck_assert_str_eq(workers(), "8:8000=u9");
}
END_TEST

START_TEST(test_limits)
{
	struct kvw_kube_event event;
	char name[16];
	bool changed;

	for (int i = 0; i < KVW_KUBE_OBJECTS_MOST; i++) {
		snprintf(name, sizeof(name), "p%05d", i);
		say(i % 2 ? "DELETED" : "ADDED", name, "u", i + 1, "10.0.0.1");
	}
	read_event_text(&config->pools[0], "ADDED", pod("q", "u", 99999, "10.0.0.2"), &event);
	ck_assert_int_eq(kvw_kube_table_apply(&table, &event, &changed), KVW_ELIMIT);
	kvw_kube_event_finish(&event);
	kvw_kube_table_list_begin(&table, &incoming);
	page("q", "u", 99999, "10.0.0.2");
	list_ends(100000);
	ck_assert_str_eq(workers(), "2:8000=u");
	/* More workers than a fleet may have: no list, but their number. */
	for (int i = 0; i < KVW_MAX_WORKERS + 1; i++) {
		char ip[32];

		snprintf(name, sizeof(name), "p%05d", i);
		snprintf(ip, sizeof(ip), "10.1.%d.%d", i / 250, i % 250);
		say("ADDED", name, name, 200000 + i, ip);
	}
	{
		const struct kvw_kube_table *const tables[] = {&table, &second};
		struct kvw_config *list = NULL;
		uint64_t mark;
		size_t count;

		ck_assert_int_eq(kvw_kube_workers(config, tables, &count, &mark, &list), KVW_OK);
		ck_assert_ptr_null(list);
		ck_assert_uint_eq(count, KVW_MAX_WORKERS + 2);
	}
}
END_TEST

/* An object of so many endpoints, as an event or in a list. */
static enum kvw_err add_many(const char *name, size_t count, bool list)
{
	struct kvw_kube_event event = {.kind = KVW_KUBE_ADDED};
	struct kvw_kube_object *objects = calloc(1, sizeof(*objects));
	struct kvw_kube_page page = {.objects = objects, .count = 1};
	enum kvw_err err;
	bool changed;

	snprintf(objects->name, sizeof(objects->name), "%s", name);
	objects->endpoints = calloc(count, sizeof(*objects->endpoints));
	objects->endpoint_count = count;
	if (list)
		return kvw_kube_table_list_page(&incoming, &page);
	event.object = *objects;
	free(objects);
	err = kvw_kube_table_apply(&table, &event, &changed);
	kvw_kube_event_finish(&event);
	return err;
}

START_TEST(test_endpoints_are_bounded)
{
	ck_assert_int_eq(add_many("a", KVW_KUBE_ADDRESSES_MOST - 1, false), KVW_OK);
	ck_assert_int_eq(add_many("b", 2, false), KVW_ELIMIT);
	ck_assert_int_eq(add_many("b", 1, false), KVW_OK);
	ck_assert_int_eq(add_many("a", 7, false), KVW_OK);
	ck_assert_uint_eq(table.endpoints, 8);
	kvw_kube_table_list_begin(&table, &incoming);
	ck_assert_int_eq(add_many("a", 5, true), KVW_OK);
	ck_assert_int_eq(add_many("a", KVW_KUBE_ADDRESSES_MOST, true), KVW_OK);
	ck_assert_int_eq(add_many("c", 1, true), KVW_ELIMIT);
	kvw_kube_table_list_begin(&table, &incoming);
	ck_assert_int_eq(add_many("a", 5, true), KVW_OK);
	list_ends(9);
	ck_assert_uint_eq(table.endpoints, 5);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("kube_table");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_events);
	tcase_add_test(tc, test_an_old_event_changes_nothing);
	tcase_add_test(tc, test_a_predecessor_of_the_same_name);
	tcase_add_test(tc, test_an_address_has_one_owner);
	tcase_add_test(tc, test_the_first_pool_has_it);
	tcase_add_test(tc, test_a_list_replaces_all);
	tcase_add_test(tc, test_a_list_that_breaks_off);
	tcase_add_test(tc, test_events_while_a_list_comes_in);
	tcase_add_test(tc, test_versions_that_go_back);
	tcase_add_test(tc, test_limits);
	tcase_add_test(tc, test_endpoints_are_bounded);
	return run_tcase("fleet discovery kube_table", tc);
}
