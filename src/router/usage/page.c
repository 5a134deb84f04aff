/* page.c - usage as JSON and as CSV. */
#include "usage/page.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* entries of all hours together; beyond them `other` counts */
#define ENTRIES_MOST ((size_t)1 << 20)

static const char *const names[KVW_USED_KINDS] = {
	[KVW_USED_REQUESTS] = "requests",
	[KVW_USED_REFUSED] = "refused",
	[KVW_USED_FAILED] = "failed",
	[KVW_USED_PROMPT] = "prompt_tokens",
	[KVW_USED_CACHED] = "cached_tokens",
	[KVW_USED_COMPLETION] = "completion_tokens",
	[KVW_USED_PROMPT_ESTIMATED] = "estimated_prompt_tokens",
	[KVW_USED_COMPLETION_ESTIMATED] = "estimated_completion_tokens",
	[KVW_USED_MICROSECONDS] = "seconds",
};

/* --- a time --- */

/* Reads "24h": a whole number and one of s, m, h, d. */
static bool read_duration(const char *text, int64_t *seconds)
{
	char *end;
	long long n = strtoll(text, &end, 10);
	int64_t unit = *end == 's' ? 1 : *end == 'm' ? 60 : *end == 'h' ? 3600 : 86400;

	if (*end == '\0' || strchr("smhd", *end) == NULL || end[1] != '\0' || n > 36500)
		return false;
	*seconds = n * unit;
	return true;
}

bool kvw_usage_since(const char *text, int64_t wall_s, int64_t *since_s)
{
	static const char *const forms[] = {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"};
	int64_t back_s;
	char *end;

	if (*text < '0' || *text > '9' || strlen(text) > 32)
		return false;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct tm utc = {0};
		const char *rest = strptime(text, forms[i], &utc);

		if (rest == NULL || *rest != '\0')
			continue;
		*since_s = (int64_t)timegm(&utc);
		return *since_s >= 0;
	}
	if (read_duration(text, &back_s)) {
		*since_s = back_s < wall_s ? wall_s - back_s : 0;
		return true;
	}
	*since_s = strtoll(text, &end, 10);
	return *end == '\0' && *since_s < INT64_C(1) << 40;
}

static void put_time(struct kvw_page *page, int64_t seconds)
{
	time_t t = (time_t)seconds;
	char text[32];
	struct tm utc;

	gmtime_r(&t, &utc);
	(void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
	kvw_page_string(page, text);
}

/* --- entries --- */

struct sorted {
	uint64_t tokens, requests;
	uint32_t index;
};

static int by_use(const void *a, const void *b)
{
	const struct sorted *x = a, *y = b;

	if (x->tokens != y->tokens)
		return x->tokens > y->tokens ? -1 : 1;
	if (x->requests != y->requests)
		return x->requests > y->requests ? -1 : 1;
	return x->index < y->index ? -1 : 1;
}

/* Returns the entries' order, which the caller frees; those beyond *count go to `other`. NULL: out
 * of memory. */
static struct sorted *sort_entries(struct kvw_usage_table *table, size_t top, size_t *count)
{
	struct sorted *order = malloc((table->count + 1) * sizeof(*order));

	if (order == NULL)
		return NULL;
	for (size_t i = 0; i < table->count; i++) {
		const uint64_t *n = table->entries[i].used.n;

		order[i] = (struct sorted){n[KVW_USED_PROMPT] + n[KVW_USED_COMPLETION],
			n[KVW_USED_REQUESTS], (uint32_t)i};
	}
	qsort(order, table->count, sizeof(*order), by_use);
	*count = top > 0 && top < table->count ? top : table->count;
	for (size_t i = *count; i < table->count; i++) {
		kvw_used_add(&table->other, &table->entries[order[i].index].used);
		table->others++;
	}
	return order;
}

static void put_count(struct kvw_page *page, const struct kvw_used *used, size_t kind)
{
	if (kind == KVW_USED_MICROSECONDS)
		kvw_page_seconds(page, (int64_t)(used->n[kind] * 1000));
	else
		kvw_page_u64(page, used->n[kind]);
}

/* --- JSON --- */

static void put_json_name(struct kvw_page *page, const char *member, struct kvw_slice name)
{
	kvw_page_string(page, member);
	if (name.len == 0)
		kvw_page_string(page, "null");
	else
		kvw_page_json(page, name);
}

/* Writes the counts as members. */
static void put_json_counts(struct kvw_page *page, const struct kvw_used *used)
{
	for (size_t i = 0; i < KVW_USED_KINDS; i++) {
		kvw_page_member(page, names[i]);
		put_count(page, used, i);
	}
}

static void put_json(struct kvw_page *page, const struct kvw_usage_table *table,
	const struct sorted *order, size_t count, int64_t since_s, int64_t until_s)
{
	kvw_page_string(page, "{\"since\":\"");
	put_time(page, since_s);
	kvw_page_string(page, "\",\"until\":\"");
	put_time(page, until_s);
	kvw_page_string(page, "\",\"entries\":[");
	for (size_t i = 0; i < count; i++) {
		const struct kvw_usage_entry *entry = &table->entries[order[i].index];
		struct kvw_user user = kvw_usage_entry_user(table, entry);

		put_json_name(page, i == 0 ? "\n{\"key\":" : ",\n{\"key\":", user.key);
		put_json_name(page, ",\"tenant\":", user.tenant);
		put_json_name(page, ",\"model\":", user.model);
		put_json_counts(page, &entry->used);
		kvw_page_string(page, "}");
	}
	kvw_page_string(page, "],\n\"other\":{");
	put_json_counts(page, &table->other);
	kvw_page_string(page, ",\"entries\":");
	kvw_page_u64(page, table->others);
	kvw_page_string(page, "}}\n");
}

/* --- CSV --- */

static void put_csv_name(struct kvw_page *page, struct kvw_slice name)
{
	kvw_page_string(page, ",\"");
	for (size_t i = 0; i < name.len; i++) {
		if (name.data[i] == '"')
			kvw_page_string(page, "\"");
		kvw_page_put(page, &name.data[i], 1);
	}
	kvw_page_string(page, "\"");
}

static void put_csv_row(struct kvw_page *page, const char *kind, const struct kvw_user *user,
	const struct kvw_used *used)
{
	kvw_page_string(page, kind);
	put_csv_name(page, user->key);
	put_csv_name(page, user->tenant);
	put_csv_name(page, user->model);
	for (size_t i = 0; i < KVW_USED_KINDS; i++) {
		kvw_page_string(page, ",");
		put_count(page, used, i);
	}
}

static void put_csv(struct kvw_page *page, const struct kvw_usage_table *table,
	const struct sorted *order, size_t count, int64_t since_s, int64_t until_s)
{
	kvw_page_string(page, "what,key,tenant,model");
	for (size_t i = 0; i < KVW_USED_KINDS; i++) {
		kvw_page_string(page, ",");
		kvw_page_string(page, names[i]);
	}
	kvw_page_string(page, ",since,until\r\n");
	for (size_t i = 0; i <= count; i++) {
		const struct kvw_usage_entry *entry = NULL;
		struct kvw_user user = {{"", 0}, {"", 0}, {"", 0}};

		if (i < count) {
			entry = &table->entries[order[i].index];
			user = kvw_usage_entry_user(table, entry);
		} else if (table->others == 0) {
			break;
		}
		put_csv_row(page, entry == NULL ? "other" : "entry", &user,
			entry == NULL ? &table->other : &entry->used);
		kvw_page_string(page, ",");
		put_time(page, since_s);
		kvw_page_string(page, ",");
		put_time(page, until_s);
		kvw_page_string(page, "\r\n");
	}
}

void kvw_usage_page(struct kvw_ledger *ledger, const struct kvw_usage_question *question,
	int64_t wall_s, struct kvw_page *page)
{
	struct kvw_usage_table table;
	struct sorted *order = NULL;
	int64_t since_s;
	size_t count;

	if (!kvw_usage_table_init(&table, ENTRIES_MOST, false)) {
		page->failed = true;
		return;
	}
	since_s = kvw_ledger_sum(ledger, question->since_s, question->key, wall_s, &table);
	order = sort_entries(&table, question->top, &count);
	if (order == NULL)
		page->failed = true;
	else if (question->csv)
		put_csv(page, &table, order, count, since_s, wall_s);
	else
		put_json(page, &table, order, count, since_s, wall_s);
	free(order);
	kvw_usage_table_finish(&table);
}
