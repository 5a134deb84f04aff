/*
 * worker_body_test.c - workers in bodies, and their IDs.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "admin/worker_body.h"
#include "admin/worker_id.h"
#include "tests/unit/suite.h"

/* Reads a body that must be good. */
static struct kvw_config *read_good(const char *body, bool *many)
{
	struct kvw_config *config = NULL;
	char *why = NULL;
	enum kvw_err err = kvw_worker_body_read(kvw_slice_of(body), many, &config, &why);

	ck_assert_msg(err == KVW_OK, "%s: %s", body, why == NULL ? "no reason" : why);
	return config;
}

START_TEST(test_one_worker)
{
	bool many;
	struct kvw_config *config = read_good("{\"url\":\"http:\\/\\/h:1/\",\"models\":[\"\\u00e9\",\"# b: c\"],"
					      "\"api_key\":\"k\"}",
		&many);

	ck_assert(!many);
	ck_assert_uint_eq(config->worker_count, 1);
	ck_assert_uint_eq(config->workers[0].models.count, 2);
	ck_assert_str_eq(config->workers[0].models.items[0], "\xc3\xa9");
	ck_assert_str_eq(config->workers[0].models.items[1], "# b: c");
	ck_assert_str_eq(config->workers[0].api_key, "k");
	ck_assert_str_eq(config->workers[0].events_endpoint, "");
	kvw_config_destroy(config);
}
END_TEST

START_TEST(test_a_list)
{
	bool many;
	struct kvw_config *config = read_good("[{\"url\":\"http://a:1\"},{\"url\":\"http://b:1\"}]", &many);

	ck_assert(many);
	ck_assert_uint_eq(config->worker_count, 2);
	ck_assert_str_eq(config->workers[1].url, "http://b:1");
	kvw_config_destroy(config);
	config = read_good("[{\"url\":\"http://a:1\"}]", &many);
	ck_assert(many);
	kvw_config_destroy(config);
}
END_TEST

static const char *const wrongs[][2] = {
	{"", "found no body"},
	{"{", "the body is not JSON"},
	{"\xff", "the body is not JSON"},
	{"{\"url\":\"a\",\"url\":\"b\"}", "duplicate"},
	{"1", "found another kind of value"},
	{"null", "found another kind of value"},
	{"[]", "found an empty list, expected a worker"},
	{"[[]]", "[0]: found"},
	{"{}", "url: found nothing"},
	{"{\"url\":1}", "url: found `1`"},
	{"{\"url\":null}", "url: found"},
	{"{\"url\":\"http://h:1\",\"models\":{}}", "models: found a mapping"},
	{"{\"url\":\"http://h:1\",\"modles\":[]}", "modles: found an unknown key"},
	{"{\"url\":\"http://h:1\",\"a: b\\nc\":1}", "found an unknown key"},
	{"{\"url\":\"http://h:1\",\"api_key\":\"a\\nb\"}", "api_key: found"},
	{"[{\"url\":\"http://h:1\"},{\"url\":\"http://h:1\"}]", "[1].url: "},
	{"{\"url\":\"http://h:1\",\"models\":[1,\"\"],\"x\":1}", "x: found an unknown key"},
};

START_TEST(test_wrong_bodies)
{
	struct kvw_config *config = NULL;
	char *why = NULL;
	bool many;

	ck_assert_int_eq(kvw_worker_body_read(kvw_slice_of(wrongs[_i][0]), &many, &config, &why), KVW_EINVAL);
	ck_assert_ptr_nonnull(why);
	ck_assert_msg(strstr(why, wrongs[_i][1]) != NULL, "%s: %s", wrongs[_i][0], why);
	ck_assert_msg(strstr(why, "body:") == NULL && strchr(why, '\n') == NULL, "%s", why);
	free(why);
}
END_TEST

START_TEST(test_all_mistakes_are_in_one_message)
{
	struct kvw_config *config = NULL;
	char *why = NULL;
	bool many;

	ck_assert_int_eq(kvw_worker_body_read(
				 KVW_SLICE("[{\"url\":\"x\"},{\"url\":\"http://h:1\",\"models\":1}]"), &many,
				 &config, &why),
		KVW_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "[0].url: found `x`"));
	ck_assert_ptr_nonnull(strstr(why, "; [1].models: found"));
	free(why);
}
END_TEST

/* A change that must be good. */
static struct kvw_config *change_good(const char *body, const struct kvw_worker_config *base)
{
	struct kvw_config *config = NULL;
	char *why = NULL;
	enum kvw_err err = kvw_worker_body_change(kvw_slice_of(body), base, &config, &why);

	ck_assert_msg(err == KVW_OK, "%s: %s", body, why == NULL ? "no reason" : why);
	ck_assert_uint_eq(config->worker_count, 1);
	return config;
}

START_TEST(test_changes)
{
	bool many;
	struct kvw_config *base = read_good("{\"url\":\"http://h:1/p\",\"models\":[\"a\",\"b\"],\"api_key\":\"k\","
					    "\"events_endpoint\":\"tcp://h:2\"}",
		&many);
	struct kvw_config *config = change_good("{\"models\":[\"c\"]}", &base->workers[0]);

	ck_assert_uint_eq(config->workers[0].models.count, 1);
	ck_assert_str_eq(config->workers[0].api_key, "k");
	ck_assert_str_eq(config->workers[0].events_endpoint, "tcp://h:2");
	kvw_config_destroy(config);
	config = change_good("{\"url\":\"http://h:1/p\",\"models\":null,\"api_key\":null}", &base->workers[0]);
	ck_assert_uint_eq(config->workers[0].models.count, 0);
	ck_assert_str_eq(config->workers[0].api_key, "");
	kvw_config_destroy(config);
	config = change_good("{\"events_replay\":\"tcp://h:3\"}", &base->workers[0]);
	ck_assert(!kvw_worker_config_equal(&config->workers[0], &base->workers[0]));
	ck_assert_uint_eq(config->workers[0].models.count, 2);
	kvw_config_destroy(config);
	kvw_config_destroy(base);
}
END_TEST

START_TEST(test_wrong_changes)
{
	static const char *const bodies[][2] = {
		{"{}", "found no key"},
		{"[]", "found another kind"},
		{"{\"url\":\"http://h:2\"}", "url: found another one, expected `http://h:1`"},
		{"{\"url\":null}", "url: found another one"},
		{"{\"modles\":null}", "modles: found an unknown key"},
		{"{\"models\":\"a\"}", "models: found"},
	};
	bool many;
	struct kvw_config *base = read_good("{\"url\":\"http://h:1\"}", &many), *config = NULL;

	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		char *why = NULL;

		ck_assert_int_eq(kvw_worker_body_change(kvw_slice_of(bodies[i][0]), &base->workers[0],
					 &config, &why),
			KVW_EINVAL);
		ck_assert_msg(strstr(why, bodies[i][1]) != NULL, "%s: %s", bodies[i][0], why);
		free(why);
	}
	kvw_config_destroy(base);
}
END_TEST

START_TEST(test_ids)
{
	static struct kvw_worker worker;
	struct kvw_member_view items[] = {
		{.url = "http://a:1", .worker = &worker},
		{.url = "http://b:1", .worker = &worker},
		{.url = "http://b:1/p", .worker = &worker},
		{.url = "http://c:1"},
		{.url = "http://c:1", .worker = &worker, .leaves = true},
		{.url = "http://a:1", .worker = &worker, .leaves = true},
	};
	bool twins[] = {false, true, true, false, false, false};
	const struct kvw_worker_list list = {items, twins, sizeof(items) / sizeof(items[0])};
	size_t index;

	ck_assert(kvw_slice_equal(kvw_worker_list_id(&list, 0), KVW_SLICE("a:1")));
	ck_assert(kvw_slice_equal(kvw_worker_list_id(&list, 1), KVW_SLICE("http://b:1")));
	ck_assert(kvw_slice_equal(kvw_worker_list_id(&list, 2), KVW_SLICE("http://b:1/p")));
	ck_assert(kvw_slice_equal(kvw_worker_list_id(&list, 3), KVW_SLICE("c:1")));
	ck_assert_int_eq(kvw_worker_list_find(&list, KVW_SLICE("a:1"), &index), KVW_OK);
	ck_assert_uint_eq(index, 0);
	ck_assert_int_eq(kvw_worker_list_find(&list, KVW_SLICE("http://b:1/"), &index), KVW_OK);
	ck_assert_uint_eq(index, 1);
	ck_assert_int_eq(kvw_worker_list_find(&list, KVW_SLICE("c:1"), &index), KVW_OK);
	ck_assert_uint_eq(index, 4);
	ck_assert_int_eq(kvw_worker_list_find(&list, KVW_SLICE("b:1"), &index), KVW_ELIMIT);
	ck_assert_int_eq(kvw_worker_list_find(&list, KVW_SLICE("d:1"), &index), KVW_ENOTFOUND);
	ck_assert_int_eq(kvw_worker_list_find(&list, KVW_SLICE(""), &index), KVW_ENOTFOUND);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("worker-body");

	tcase_add_test(tc, test_one_worker);
	tcase_add_test(tc, test_a_list);
	tcase_add_loop_test(tc, test_wrong_bodies, 0, (int)(sizeof(wrongs) / sizeof(wrongs[0])));
	tcase_add_test(tc, test_all_mistakes_are_in_one_message);
	tcase_add_test(tc, test_changes);
	tcase_add_test(tc, test_wrong_changes);
	tcase_add_test(tc, test_ids);
	return run_tcase("worker-body", tc);
}
