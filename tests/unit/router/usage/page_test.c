/*
 * page_test.c - times in a question, and usage as JSON and CSV.
 */
#include <check.h>
#include <stdlib.h>

#include "tests/unit/suite.h"
#include "usage/page.h"

#define NOW (INT64_C(490000) * KVW_USAGE_HOUR_S + 60)

START_TEST(times_are_read_or_refused)
{
	static const struct {
		const char *text;
		int64_t since_s;
	} good[] = {
		{"0", 0},
		{"1764000000", 1764000000},
		{"90m", NOW - 5400},
		{"24h", NOW - 86400},
		{"7d", NOW - 7 * 86400},
		{"36500d", 0},
		{"1970-01-02", 86400},
		{"2026-11-30T08:00:00Z", 1796025600},
	};
	static const char *const bad[] = {"", "soon", "-1", "24hours", "1h30m", "h", "36501d",
		"2026-11-30T08:00:00", "2026-13-30", "2026-11-30 ", "+5", " 5",
		"99999999999999999999999", "1099511627776"};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		int64_t since_s = -1;

		ck_assert_msg(kvw_usage_since(good[i].text, NOW, &since_s), "%s", good[i].text);
		ck_assert_int_eq(since_s, good[i].since_s);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int64_t since_s;

		ck_assert_msg(!kvw_usage_since(bad[i], NOW, &since_s), "%s", bad[i]);
	}
}
END_TEST

static void count(struct kvw_ledger *ledger, struct kvw_slice key, struct kvw_slice model,
	uint64_t prompt)
{
	const struct kvw_user user = {key, KVW_SLICE("lab"), model};
	const struct kvw_used used = {{[KVW_USED_REQUESTS] = 1,
		[KVW_USED_PROMPT] = prompt,
		[KVW_USED_MICROSECONDS] = 1250000}};

	kvw_usage_count(kvw_ledger_shard(ledger, 0), &user, &used);
}

/* The caller frees the text. */
static char *page_of(struct kvw_ledger *ledger, const struct kvw_usage_question *question)
{
	struct kvw_page page = {0};

	kvw_usage_page(ledger, question, NOW, &page);
	kvw_page_put(&page, "", 1);
	ck_assert(!page.failed);
	return page.data;
}

START_TEST(usage_is_written)
{
	const struct kvw_ledger_options options = {1, 10, 4, 0, false};
	const struct kvw_slice key = KVW_SLICE("alice");
	struct kvw_ledger *ledger;
	char *text;

	ck_assert_int_eq(kvw_ledger_create(&options, &ledger), KVW_OK);
	count(ledger, key, KVW_SLICE("a \"model\""), 5);
	count(ledger, KVW_SLICE(""), KVW_SLICE("m"), 9);
	kvw_ledger_settle(ledger, NOW);
	text = page_of(ledger, &(struct kvw_usage_question){.top = 1});
	ck_assert_str_eq(text,
		"{\"since\":\"2025-11-24T13:00:00Z\",\"until\":\"2025-11-24T16:01:00Z\","
		"\"entries\":[\n{\"key\":null,\"tenant\":\"lab\",\"model\":\"m\",\"requests\":1,"
		"\"refused\":0,\"failed\":0,\"prompt_tokens\":9,\"cached_tokens\":0,"
		"\"completion_tokens\":0,\"estimated_prompt_tokens\":0,"
		"\"estimated_completion_tokens\":0,\"seconds\":1.25}],\n\"other\":{\"requests\":1,"
		"\"refused\":0,\"failed\":0,\"prompt_tokens\":5,\"cached_tokens\":0,"
		"\"completion_tokens\":0,\"estimated_prompt_tokens\":0,"
		"\"estimated_completion_tokens\":0,\"seconds\":1.25,\"entries\":1}}\n");
	free(text);
	text = page_of(ledger, &(struct kvw_usage_question){.key = &key, .csv = true});
	ck_assert_str_eq(text,
		"what,key,tenant,model,requests,refused,failed,prompt_tokens,cached_tokens,"
		"completion_tokens,estimated_prompt_tokens,estimated_completion_tokens,seconds,"
		"since,until\r\nentry,\"alice\",\"lab\",\"a \"\"model\"\"\",1,0,0,5,0,0,0,0,1.25,"
		"2025-11-24T13:00:00Z,2025-11-24T16:01:00Z\r\n");
	free(text);
	kvw_ledger_destroy(ledger);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("page");

	tcase_add_test(tc, times_are_read_or_refused);
	tcase_add_test(tc, usage_is_written);
	return run_tcase("usage-page", tc);
}
