/*
 * worker_list_test.c - the text of a worker file: both shapes, and what is said of mistakes.
 */
#include "found.h"

#include "fleet/discovery/worker_list.h"
#include "tests/unit/suite.h"

static struct found got;
static char *errors, *notes;

static void finish(void)
{
	free(errors);
	free(notes);
	errors = notes = NULL;
}

static enum kvw_err parse_len(const char *text, size_t len)
{
	size_t errors_len, notes_len;
	FILE *to_errors, *to_notes;
	struct kvw_config *list = NULL;
	enum kvw_err err;

	finish();
	to_errors = open_memstream(&errors, &errors_len);
	to_notes = open_memstream(&notes, &notes_len);
	err = kvw_worker_file_parse("w", text, len, to_errors, to_notes, &list);
	fclose(to_errors);
	fclose(to_notes);
	memset(&got, 0, sizeof(got));
	ck_assert((err == KVW_OK) == (list != NULL));
	ck_assert((err == KVW_OK) == (errors[0] == '\0'));
	if (list != NULL)
		found_write(&got, list->workers, list->worker_count);
	kvw_config_destroy(list);
	return err;
}

static enum kvw_err parse(const char *text)
{
	return parse_len(text, strlen(text));
}

struct row {
	const char *text, *said; /* urls, or the first mistake */
};

static const struct row good[] = {
	{"workers: []", ""},
	{"workers:\n- url: http://b:2/\n  models: [m, n]\n- url: https://a:443\n",
		"http://b:2[m,n] https://a:443"},
	{"{\"workers\": [{\"url\": \"http:\\/\\/a:1\", \"api_key\": \"k\"}]}", "http://a:1"},
	{"{\n\t\"static_backends\": \"http://a:1, http://b:1,http://a:1\",\n"
	 "\t\"static_models\": \"m,m,n\"\n}\n",
		"http://a:1[m,n] http://b:1[m]"},
	{"static_backends: [http://a:1, http://b:1]", "http://a:1 http://b:1"},
	{"static_backends: ''", ""},
	{"static_models:\n  m:\n    static_backends: [http://a:1, http://b:1]\n"
	 "  n:\n    static_backends: http://b:1\n",
		"http://a:1[m] http://b:1[m,n]"},
};

START_TEST(a_list_is_read_in_both_shapes)
{
	ck_assert_msg(parse(good[_i].text) == KVW_OK, "%s: %s", good[_i].text, errors);
	ck_assert_str_eq(got.urls, good[_i].said);
	ck_assert_str_eq(notes, "");
}
END_TEST

static const struct row bad[] = {
	{"", "w:1:1: found nothing, expected `workers:`"},
	{"workers:", "w:1:9: workers: found nothing, expected a list"},
	{"- a", "w:1:1: found a list, expected `workers:`"},
	{"{}", "w:1:1: workers: found nothing, expected a list"},
	{"wrokers: []", "w:1:1: wrokers: found an unknown key, expected `workers`"},
	{"workers:\n- url: http://a:1\n  modles: [m]\n",
		"w:3:3: workers[0].modles: found an unknown key"},
	{"workers:\n- url: ftp://a:1\n", "w:2:8: workers[0].url: found `ftp://a:1`, expected"},
	{"workers:\n- models: [m]\n", "w:2:3: workers[0].url: found nothing"},
	{"workers:\n- url: http://a:1\n- url: http://a:1\n", "w:3:8: workers[1].url: found"},
	{"workers: []\nworkers: []\n", "w:2:1: workers: found a second time"},
	{"workers: [\n", "w:"},
	{"workers: []\nstatic_backends: http://a:1\n",
		"w:2:1: static_backends: found together with `workers`"},
	{"static_models: m", "w:1:1: static_backends: found nothing"},
	{"static_backends: http://a:1,http://b:1\nstatic_models: m\n",
		"w:2:16: static_models: found 1 model, expected one for each of the 2 backends"},
	{"static_backends: http://a:1,nowhere", "w:1:18: static_backends[1]: found `nowhere`"},
	{"static_models: {m: {static_model_type: chat}}",
		"w:1:20: static_models.m.static_backends: found nothing"},
	{"static_backend: http://a:1", "w:1:1: static_backend: found an unknown key"},
};

START_TEST(a_mistake_is_said_with_its_place_and_key)
{
	ck_assert_int_eq(parse(bad[_i].text), KVW_EINVAL);
	ck_assert_msg(strncmp(errors, bad[_i].said, strlen(bad[_i].said)) == 0, "%s: %s",
		bad[_i].text, errors);
}
END_TEST

START_TEST(keys_without_a_meaning_are_named_and_do_no_harm)
{
	ck_assert_int_eq(parse("service_discovery: static\nrouting_logic: session\n"
			       "static_backends: http://a:1\n"),
		KVW_OK);
	ck_assert_str_eq(got.urls, "http://a:1");
	ck_assert_ptr_nonnull(strstr(notes, "w:1:1: service_discovery: ignored: "));
	ck_assert_ptr_nonnull(strstr(notes, "w:2:1: routing_logic: ignored: "));
	ck_assert_int_eq(
		parse("static_models: {m: {static_model_type: chat, static_backends: http://a:1}}"),
		KVW_OK);
	ck_assert_ptr_nonnull(strstr(notes, "static_models.m.static_model_type: ignored: "));
}
END_TEST

/* "workers:" with so many, or production-stack's list. */
static char *many(size_t count, bool stack)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	fputs(stack ? "static_backends: [" : "workers: [", out);
	for (size_t i = 0; i < count; i++)
		fprintf(out, stack ? "http://h%zu:1," : "{url: http://h%zu:1},", i);
	fputs("]", out);
	fclose(out);
	return text;
}

START_TEST(at_most_1024_workers)
{
	for (int stack = 0; stack <= 1; stack++) {
		char *most = many(KVW_MAX_WORKERS, stack), *more = many(KVW_MAX_WORKERS + 1, stack);

		ck_assert_int_eq(parse(most), KVW_OK);
		ck_assert_uint_eq(got.count, KVW_MAX_WORKERS);
		ck_assert_int_eq(parse(more), KVW_EINVAL);
		ck_assert_ptr_nonnull(strstr(
			errors, stack ? "expected at most 1024 workers"
				      : "workers: found 1025 workers, expected at most 1024"));
		free(most);
		free(more);
	}
}
END_TEST

START_TEST(urls_become_complete_workers)
{
	static const char *const urls[] = {"http://10.0.0.1:8000", "https://[fd00::1]:1/p"};
	static const char *const wrong[] = {"nowhere"};
	struct kvw_config *list = NULL;

	ck_assert_int_eq(kvw_worker_list_of_urls(urls, 2, &list), KVW_OK);
	found_write(&got, list->workers, list->worker_count);
	ck_assert_str_eq(got.urls, "http://10.0.0.1:8000 https://[fd00::1]:1/p");
	kvw_config_destroy(list);
	ck_assert_int_eq(kvw_worker_list_of_urls(NULL, 0, &list), KVW_OK);
	ck_assert_uint_eq(list->worker_count, 0);
	kvw_config_destroy(list);
	ck_assert_int_eq(kvw_worker_list_of_urls(wrong, 1, &list), KVW_EINVAL);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("worker-list");

	tcase_add_checked_fixture(tcase, NULL, finish);
	tcase_add_loop_test(
		tcase, a_list_is_read_in_both_shapes, 0, sizeof(good) / sizeof(good[0]));
	tcase_add_loop_test(
		tcase, a_mistake_is_said_with_its_place_and_key, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(tcase, keys_without_a_meaning_are_named_and_do_no_harm);
	tcase_add_test(tcase, at_most_1024_workers);
	tcase_add_test(tcase, urls_become_complete_workers);
	return run_tcase("worker-list", tcase);
}
