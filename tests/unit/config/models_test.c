/*
 * models_test.c - the mapping `models`: what an alias leads to, and what is no good one.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helpers.h"
#include "tests/unit/suite.h"

static const char *target(const struct loaded *loaded, const char *name)
{
	const struct kvw_model_alias *alias = kvw_config_alias(loaded->config, kvw_slice_of(name));

	return alias == NULL ? "none" : alias->target;
}

START_TEST(test_aliases_lead_to_their_end)
{
	struct loaded loaded = load_text(
		"models:\n  gpt-4o: {to: llama-70b}\n  fast:\n    to: gpt-4o\n  '0': {to: fast}\n" TEST_WORKER);

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_str_eq(target(&loaded, "gpt-4o"), "llama-70b");
	ck_assert_str_eq(target(&loaded, "fast"), "llama-70b");
	ck_assert_str_eq(target(&loaded, "0"), "llama-70b");
	ck_assert_str_eq(target(&loaded, "llama-70b"), "none");
	ck_assert_str_eq(target(&loaded, "gpt-4"), "none");
	ck_assert_str_eq(target(&loaded, NULL), "none");
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_none)
{
	struct loaded loaded = load_text("models: {}\n" TEST_WORKER);

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_uint_eq(loaded.config->model_alias_count, 0);
	loaded_release(&loaded);
}
END_TEST

static const struct {
	const char *text, *said;
} mistakes[] = {
	{"models: {a: {to: a}}\n", "t.yaml:1:10: models.a: found a loop"},
	{"models: {x: {to: a}, a: {to: b}, b: {to: a}}\n", "t.yaml:1:10: models.x: found a loop"},
	{"models: {a: b}\n", "t.yaml:1:13: models.a: found text, expected the one key `to`, such as `{to: MODEL}`"},
	{"models: {a: {too: b}}\n", "models.a: found other keys, expected the one key `to`"},
	{"models: {a: {to: b, x: 1}}\n", "models.a: found other keys, expected the one key `to`"},
	{"models: {a: {}}\n", "models.a: found other keys, expected the one key `to`"},
	{"models: {a: {to: ''}}\n", "models.a.to: found 0 bytes, expected a model's name of 1 to 256"},
	{"models: {a: {to: [b]}}\n", "models.a.to: found a list"},
	{"models: [a]\n", "t.yaml:1:9: models: found a list, expected a mapping such as `gpt-4o: {to: MODEL}`"},
	{"models: {'': {to: b}}\n", "models: found 0 bytes"},
	{"service_levels: [{model: a, ttft: 1s}, {model: x, ttft: 2s}]\nmodels: {x: {to: y}, y: {to: a}}\n",
		"t.yaml:1:48: service_levels[1].model: found an alias of `models`, expected the model that it stands for, `a`"},
};

START_TEST(test_mistakes)
{
	char text[512];
	struct loaded loaded;

	snprintf(text, sizeof(text), "%s" TEST_WORKER, mistakes[_i].text);
	loaded = load_text(text);
	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	ck_assert_msg(strstr(loaded.errors, mistakes[_i].said) != NULL, "%s", loaded.errors);
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_long_names)
{
	for (size_t len = KVW_ALIAS_MOST; len <= KVW_ALIAS_MOST + 1; len++) {
		char name[KVW_ALIAS_MOST + 2], text[2048];
		struct loaded loaded;

		memset(name, 'n', len);
		name[len] = '\0';
		snprintf(text, sizeof(text), "models: {%s: {to: t%s}}\n" TEST_WORKER, name, name + 1);
		loaded = load_text(text);
		ck_assert_int_eq(loaded.err, len <= KVW_ALIAS_MOST ? KVW_OK : KVW_EINVAL);
		loaded_release(&loaded);
	}
}
END_TEST

START_TEST(test_most)
{
	char *text = malloc(KVW_MAX_ALIASES * 32);

	ck_assert_ptr_nonnull(text);
	for (int count = KVW_MAX_ALIASES; count <= KVW_MAX_ALIASES + 1; count++) {
		struct loaded loaded;
		size_t len = (size_t)sprintf(text, "models:\n");

		for (int i = 0; i < count; i++) /* each leads to the next */
			len += (size_t)sprintf(text + len, "  a%d: {to: a%d}\n", i, i + 1);
		strcpy(text + len, TEST_WORKER);
		loaded = load_text(text);
		ck_assert_msg(loaded.err == (count <= KVW_MAX_ALIASES ? KVW_OK : KVW_EINVAL), "%s", loaded.errors);
		if (loaded.err == KVW_OK)
			ck_assert_str_eq(target(&loaded, "a0"), "a256");
		loaded_release(&loaded);
	}
	free(text);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("models");

	tcase_add_test(tcase, test_aliases_lead_to_their_end);
	tcase_add_test(tcase, test_none);
	tcase_add_loop_test(tcase, test_mistakes, 0, sizeof(mistakes) / sizeof(mistakes[0]));
	tcase_add_test(tcase, test_long_names);
	tcase_add_test(tcase, test_most);
	return run_tcase("models", tcase);
}
