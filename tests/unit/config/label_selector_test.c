/*
 * label_selector_test.c - label selectors of Kubernetes.
 */
#include <check.h>

#include "config/label_selector.h"
#include "tests/unit/suite.h"

/* Labels of the object: app=vllm, tier=a, empty="". */
static struct kvw_slice label(const void *arg, struct kvw_slice key)
{
	(void)arg;
	if (kvw_slice_equal(key, KVW_SLICE("app")))
		return KVW_SLICE("vllm");
	if (kvw_slice_equal(key, KVW_SLICE("x.io/tier")))
		return KVW_SLICE("a");
	if (kvw_slice_equal(key, KVW_SLICE("empty")))
		return KVW_SLICE("");
	return (struct kvw_slice){NULL, 0};
}

static bool matches(const char *text)
{
	ck_assert_msg(kvw_label_selector_is_valid(kvw_slice_of(text)), "%s", text);
	return kvw_label_selector_matches(kvw_slice_of(text), label, NULL);
}

START_TEST(test_matches)
{
	static const char *const yes[] = {"app=vllm", "app==vllm", " app = vllm ", "app", "!canary",
		"app!=web", "canary!=yes", "app in (web, vllm)", "app notin (web)", "canary notin (x)",
		"app=vllm,x.io/tier in (a,b),!canary", "x.io/tier", "empty=", "empty", "empty in ()",
		"! canary", "app in(vllm)"};
	static const char *const no[] = {"app=web", "app!=vllm", "!app", "canary", "canary=yes",
		"app in (web)", "app notin (vllm)", "canary in (x)", "app=vllm,canary", "empty!=",
		"app=vllmx", "app=vll", "canary in ()"};

	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
		ck_assert_msg(matches(yes[i]), "%s", yes[i]);
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
		ck_assert_msg(!matches(no[i]), "%s", no[i]);
}
END_TEST

START_TEST(test_what_is_no_selector)
{
	static const char *const bad[] = {"", ",", "app=a=b", "app=a,", "=a", "app=a b", "app in",
		"app in (a", "app in a", "app like (a)", "app=(a)", "app!a", "-app", "app-", "a/b/c", "/a",
		"a/", "!", "app=a&limit=1", "app=a\n", "app in (a))", "app=%61",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

	ck_assert(kvw_label_selector_is_valid(KVW_SLICE("app=")));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!kvw_label_selector_is_valid(kvw_slice_of(bad[i])), "%s", bad[i]);
}
END_TEST

START_TEST(test_keys)
{
	ck_assert(kvw_label_key_is_valid(KVW_SLICE("app")));
	ck_assert(kvw_label_key_is_valid(KVW_SLICE("app.kubernetes.io/name")));
	ck_assert(!kvw_label_key_is_valid(KVW_SLICE("")));
	ck_assert(!kvw_label_key_is_valid(KVW_SLICE("a b")));
	ck_assert(!kvw_label_key_is_valid(KVW_SLICE("a/b/c")));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("label_selector");

	tcase_add_test(tc, test_matches);
	tcase_add_test(tc, test_what_is_no_selector);
	tcase_add_test(tc, test_keys);
	return run_tcase("config label_selector", tc);
}
