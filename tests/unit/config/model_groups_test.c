/*
 * model_groups_test.c - the list `model_groups`: which workers a group has, and what is no good list.
 */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/diff.h"
#include "config/model_groups.h"
#include "helpers.h"
#include "tests/unit/suite.h"

#define TWO                                                                                                            \
	"model_groups:\n"                                                                                              \
	"  - {model: llama, group: stable, weight: 90, workers: [stable, \"http://10.0.0.9:80/\"]}\n"                  \
	"  - {model: llama, group: canary, weight: 10, workers: [canary], to: llama-next}\n"                           \
	"  - {model: another, group: all}\n"

START_TEST(test_groups_of_a_model)
{
	struct loaded loaded = load_text(TWO TEST_WORKER);
	struct kvw_model_groups groups;

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	groups = kvw_config_groups(loaded.config, KVW_SLICE("llama"));
	ck_assert_uint_eq(groups.count, 2);
	ck_assert_str_eq(groups.items[0].group, "canary");
	ck_assert_str_eq(groups.items[0].serves, "llama-next");
	ck_assert_str_eq(groups.items[1].group, "stable");
	ck_assert_str_eq(groups.items[1].serves, "llama");
	ck_assert(atomic_load(groups.items[1].weight_now) == 90);
	ck_assert_uint_eq(kvw_config_groups(loaded.config, KVW_SLICE("another")).count, 1);
	ck_assert_uint_eq(kvw_config_groups(loaded.config, KVW_SLICE("llama-next")).count, 0);
	ck_assert_uint_eq(kvw_config_groups(loaded.config, KVW_SLICE("z")).count, 0);
	ck_assert_uint_eq(kvw_config_groups(loaded.config, KVW_SLICE("")).count, 0);
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_workers_by_name_and_url)
{
	struct loaded loaded = load_text(TWO TEST_WORKER);
	struct kvw_model_groups groups = kvw_config_groups(loaded.config, KVW_SLICE("llama"));
	uint64_t url = kvw_group_key("http://10.0.0.9:80"), other = kvw_group_key("http://10.0.0.8:80");

	ck_assert(kvw_group_has(&groups.items[1], kvw_group_key("stable"), other));
	ck_assert(kvw_group_has(&groups.items[1], 0, url));
	ck_assert(!kvw_group_has(&groups.items[1], kvw_group_key("canary"), other));
	ck_assert(!kvw_group_has(&groups.items[0], 0, url));
	groups = kvw_config_groups(loaded.config, KVW_SLICE("another"));
	ck_assert(kvw_group_has(&groups.items[0], 0, url));
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_a_group_that_is_only_watched_shares_workers)
{
	struct loaded loaded = load_text("model_groups:\n"
					 "  - {model: m, group: a, workers: [x]}\n"
					 "  - {model: m, group: b, workers: [x, y], weight: 0, shadow: 0.1}\n"
					 "  - {model: m, group: c, weight: 0, shadow: 1}\n" TEST_WORKER);

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	loaded_release(&loaded);
}
END_TEST

static const struct {
	const char *text, *said;
} mistakes[] = {
	{"model_groups: {a: b}\n", "t.yaml:1:15: model_groups: found a mapping, expected a list with an entry such as"},
	{"model_groups: [{group: a}]\n", "t.yaml:1:16: model_groups[0]: found a `model` of 0 bytes"},
	{"model_groups: [{model: m}]\n", "model_groups[0]: found no name, expected `group`"},
	{"model_groups: [{model: m, group: 'a b'}]\n", "t.yaml:1:34: model_groups[0]: found another name"},
	{"model_groups: [{model: m, group: a, weight: -1}]\n", "model_groups[0].weight: found `-1`"},
	{"model_groups: [{model: m, group: a, wait: 1}]\n", "t.yaml:1:37: model_groups[0].wait: found an unknown key"},
	{"model_groups: [{model: m, group: a, workers: ['http://x:y']}]\n",
		"model_groups[0].workers: found a URL that is none"},
	{"model_groups: [{model: m, group: a}, {model: m, group: a, to: b}]\n",
		"t.yaml:1:38: model_groups[1]: found the same model and group again"},
	{"model_groups: [{model: m, group: a, workers: [x]}, {model: m, group: b}]\n",
		"t.yaml:1:52: model_groups[1]: found the same workers as those of group `a`"},
	{"model_groups: [{model: m, group: b, workers: [y, x]}, {model: m, group: a, workers: [x]}]\n",
		"t.yaml:1:16: model_groups[0]: found `x` in `workers`, expected other workers than those of group `a`"},
	{"model_groups: [{model: m, group: b, workers: [y, x], weight: 0}, {model: m, group: a, workers: [x]}]\n",
		"model_groups[0]: found `x` in `workers`, expected other workers than those of group `a`"},
	{"model_groups: [{model: m, group: a, weight: 0}]\n",
		"model_groups[0]: found no group with a `weight` above 0"},
	{"models: {x: {to: m}}\nmodel_groups: [{model: x, group: a}]\n",
		"t.yaml:2:24: model_groups[0].model: found an alias of `models`"},
	{"groups: {sticky: client}\n", "groups.sticky: found `client`"},
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

START_TEST(test_most)
{
	char *text = malloc((KVW_MAX_MODEL_GROUPS + 1) * 64);

	ck_assert_ptr_nonnull(text);
	for (int count = KVW_MAX_MODEL_GROUPS; count <= KVW_MAX_MODEL_GROUPS + 1; count++) {
		struct loaded loaded;
		size_t len = (size_t)sprintf(text, "model_groups:\n");

		for (int i = 0; i < count; i++)
			len += (size_t)sprintf(text + len, "  - {model: m, group: g%d, to: t%d}\n", i, i);
		strcpy(text + len, TEST_WORKER);
		loaded = load_text(text);
		ck_assert_msg(
			loaded.err == (count <= KVW_MAX_MODEL_GROUPS ? KVW_OK : KVW_EINVAL), "%s", loaded.errors);
		if (loaded.err == KVW_OK)
			ck_assert_uint_eq(
				kvw_config_groups(loaded.config, KVW_SLICE("m")).count, KVW_MAX_MODEL_GROUPS);
		loaded_release(&loaded);
	}
	free(text);
}
END_TEST

/* A weight that the admin address changed outlives a reload, unless the file's weights have changed. */
START_TEST(test_changed_weights_are_kept)
{
	static const struct {
		const char *after;
		double weight;
	} cases[] = {
		{TWO "loops: 2\n", 25},
		{"model_groups:\n  - {model: llama, group: stable, weight: 80, workers: [stable]}\n"
		 "  - {model: llama, group: canary, weight: 20, workers: [canary]}\n", 20},
		{"model_groups:\n  - {model: llama, group: canary, weight: 10}\n", 10},
		{"model_groups: []\n", -1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[1024];
		struct loaded before = load_text(TWO TEST_WORKER), after;
		struct kvw_model_groups groups;

		snprintf(text, sizeof(text), "%s" TEST_WORKER, cases[i].after);
		after = load_text(text);
		ck_assert_msg(after.err == KVW_OK, "%s", after.errors);
		atomic_store(kvw_config_groups(before.config, KVW_SLICE("llama")).items[0].weight_now, 25);
		kvw_model_groups_keep(before.config, after.config);
		groups = kvw_config_groups(after.config, KVW_SLICE("llama"));
		if (cases[i].weight >= 0)
			ck_assert(atomic_load(groups.items[0].weight_now) == cases[i].weight);
		else
			ck_assert_uint_eq(groups.count, 0);
		loaded_release(&before);
		loaded_release(&after);
	}
}
END_TEST

/* Which entry of rate_limits holds for requests of a name. */
START_TEST(test_limits_hold_under_a_groups_own_name)
{
	static const struct {
		const char *name, *model;
	} cases[] = {{"llama", "llama"}, {"llama-next", "llama"}, {"another", "another"}, {"own", "own"}, {"other", NULL}, {"", NULL}};
	struct loaded loaded = load_text(
		"model_groups:\n"
		"  - {model: llama, group: canary, workers: [a], to: llama-next}\n"
		"  - {model: llama, group: third, workers: [b], to: own}\n"
		"  - {model: unlimited, group: all, workers: [c], to: other}\n"
		"rate_limits:\n"
		"  - {model: llama, requests_per_minute: 1}\n"
		"  - {model: another, requests_per_minute: 2}\n"
		"  - {model: own, requests_per_minute: 3}\n" TEST_WORKER);

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct kvw_rate_limit *limit =
			kvw_config_served_rate(loaded.config, kvw_slice_of(cases[i].name));

		if (cases[i].model == NULL)
			ck_assert_ptr_null(limit);
		else
			ck_assert_str_eq(limit->model, cases[i].model);
	}
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_differences_are_told)
{
	struct loaded before = load_text(TWO TEST_WORKER), after = load_text(TEST_WORKER);
	struct kvw_config_diff *diff = NULL;

	ck_assert_int_eq(kvw_config_diff(before.config, after.config, test_strategies, &diff), KVW_OK);
	ck_assert_uint_eq(diff->key_count, 1);
	ck_assert_str_eq(diff->keys[0].path, "model_groups");
	ck_assert(diff->keys[0].reload);
	ck_assert_msg(strstr(diff->keys[0].before, "{model: llama, group: canary, weight: 10") != NULL, "%s",
		diff->keys[0].before);
	kvw_config_diff_destroy(diff);
	loaded_release(&before);
	loaded_release(&after);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("model_groups");

	tcase_add_test(tcase, test_groups_of_a_model);
	tcase_add_test(tcase, test_workers_by_name_and_url);
	tcase_add_test(tcase, test_a_group_that_is_only_watched_shares_workers);
	tcase_add_loop_test(tcase, test_mistakes, 0, sizeof(mistakes) / sizeof(mistakes[0]));
	tcase_add_test(tcase, test_most);
	tcase_add_test(tcase, test_changed_weights_are_kept);
	tcase_add_test(tcase, test_limits_hold_under_a_groups_own_name);
	tcase_add_test(tcase, test_differences_are_told);
	return run_tcase("model_groups", tcase);
}
