/*
 * fuzz_usage.c - whatever a snapshot, Redis or a question has in place of usage: no crash, names within their bounds,
 * and pages that a JSON parser reads. A field that was read is written so that it is read as the same.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "usage/field.h"
#include "usage/page.h"

#define NOW (INT64_C(490000) * KVW_USAGE_HOUR_S + 60)

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void check_page(struct kvw_ledger *ledger)
{
	struct kvw_usage_question question = {.top = 1};
	struct kvw_page page = {0};
	json_t *root;

	kvw_usage_page(ledger, &question, NOW, &page);
	root = json_loadb(page.data, page.len, JSON_ALLOW_NUL, NULL);
	require(json_is_array(json_object_get(root, "entries")));
	json_decref(root);
	page.len = 0;
	question.csv = true;
	kvw_usage_page(ledger, &question, NOW, &page);
	require(page.len > 2 && memcmp(page.data + page.len - 2, "\r\n", 2) == 0);
	free(page.data);
}

static void read_field(struct kvw_slice field, struct kvw_slice value)
{
	char name[KVW_USAGE_FIELD_ROOM], counts[KVW_USAGE_COUNTS_ROOM];
	struct kvw_usage_table table, again;

	require(kvw_usage_table_init(&table, 4, false) && kvw_usage_table_init(&again, 4, false));
	kvw_usage_field_add(&table, field, value);
	require(table.count + table.others == 1);
	if (table.count == 1) {
		struct kvw_user user = kvw_usage_entry_user(&table, &table.entries[0]);
		struct kvw_slice written = {name, kvw_usage_field(&user, name)};

		require(user.key.len <= KVW_USER_NAME_MOST && user.model.len <= KVW_USER_MODEL_MOST);
		kvw_usage_field_add(&again, written,
			(struct kvw_slice){counts, kvw_usage_counts(&table.entries[0].used, counts)});
		/* A lone byte 1 names those without an entry, also if cutting has made it so. */
		require(again.count == 1 ? memcmp(&again.entries[0].used, &table.entries[0].used,
						   sizeof(struct kvw_used)) == 0
					 : again.others == 1);
	}
	kvw_usage_table_finish(&table);
	kvw_usage_table_finish(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct kvw_ledger_options options = {1, 4, 4, 2, false};
	struct kvw_ledger *ledger;
	char text[64] = "";
	int64_t since_s;

	if (size < 2)
		return 0;
	require(kvw_ledger_create(&options, &ledger) == KVW_OK);
	for (size_t at = 0; at < size;) { /* records, each behind a byte of length */
		size_t len = data[at] < size - at - 1 ? data[at] : size - at - 1;

		kvw_ledger_recall(ledger, data + at + 1, len, NOW);
		at += 1 + len;
	}
	check_page(ledger);
	kvw_ledger_destroy(ledger);
	data++;
	size--;
	memcpy(text, data, size < sizeof(text) - 1 ? size : sizeof(text) - 1);
	if (kvw_usage_since(text, NOW, &since_s))
		require(since_s >= 0 && since_s < INT64_C(1) << 40);
	read_field((struct kvw_slice){(const char *)data, size / 2},
		(struct kvw_slice){(const char *)data + size / 2, size - size / 2});
	return 0;
}
