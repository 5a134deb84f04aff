/*
 * events_test.c - bodies of POST /events: what is read, and what each mistake is answered with.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "feeds/coordinator/events.h"
#include "tests/unit/suite.h"

#define KEY(hash)                                                                                  \
	"{\"chunk_hash_hex\":\"" hash "\",\"model_name\":\"m\",\"kv_rank\":16777472,"              \
	"\"object_group_id\":0,\"cache_salt\":\"\"}"
#define ENTRY(hash)                                                                                \
	"{\"key\":" KEY(hash) ",\"size_bytes\":8,\"token_ids\":[1,2],\"token_offset\":2}"
#define HEAD        "\"instance_id\":\"a\",\"incarnation\":7,\"seq\":1,"
#define BATCH(more) "{\"batches\":[{" HEAD more "}]}"

static struct kvw_ce_reader reader;

struct seen {
	size_t batches, entries;
	struct kvw_ce_batch batch;
	struct kvw_ce_entry entry;
	uint64_t token_sum;
	char hash[8], instance[16];
	bool unwanted;
};

static bool on_batch(void *ctx, const struct kvw_ce_batch *batch)
{
	struct seen *seen = ctx;

	seen->batches++;
	seen->batch = *batch;
	snprintf(seen->instance, sizeof(seen->instance), "%.*s", (int)batch->instance.len,
		batch->instance.data);
	return !seen->unwanted;
}

static void on_entry(void *ctx, const struct kvw_ce_batch *batch, const struct kvw_ce_entry *entry)
{
	struct seen *seen = ctx;

	ck_assert_uint_eq(batch->seq, seen->batch.seq);
	seen->entries++;
	seen->entry = *entry;
	for (size_t i = 0; i < entry->token_count; i++)
		seen->token_sum += entry->tokens[i];
	memcpy(seen->hash, entry->key.hash.data,
		entry->key.hash.len < sizeof(seen->hash) ? entry->key.hash.len
							 : sizeof(seen->hash));
}

static enum kvw_err read_body(const char *body, struct seen *seen)
{
	const struct kvw_ce_sink sink = {.batch = on_batch, .entry = on_entry, .ctx = seen};
	enum kvw_err checked = kvw_ce_read(&reader, kvw_slice_of(body), NULL);

	if (checked == KVW_OK)
		ck_assert_int_eq(kvw_ce_read(&reader, kvw_slice_of(body), &sink), KVW_OK);
	return checked;
}

START_TEST(a_batch_is_passed_before_its_entries_whatever_the_order_of_its_members)
{
	struct seen seen = {0};

	ck_assert_int_eq(
		read_body("{\"batches\":[{\"entries\":[" ENTRY("0aff") "," ENTRY(
				  "0bfe") "],"
					  "\"later\":{\"a\":[1,{\"b\":\"}\\\"\"}]},\"shared\":true,"
					  "\"ts\":1795452310.0995774,\"backend\":\"fs\",\"tier\":"
					  "\"l2\","
					  "\"event_type\":\"store\",\"seq\":3,\"incarnation\":7,"
					  "\"instance_id\":\"a\\u00e9\"}],\"more\":null}",
			&seen),
		KVW_OK);
	ck_assert_uint_eq(seen.batches, 1);
	ck_assert_uint_eq(seen.entries, 2);
	ck_assert_str_eq(seen.instance, "a\xc3\xa9");
	ck_assert(seen.batch.shared && seen.batch.tier == KVW_CE_L2);
	ck_assert_uint_eq(seen.batch.seq, 3);
	ck_assert(seen.batch.ts > 1795452310.09 && seen.batch.ts < 1795452310.1);
	ck_assert_uint_eq(seen.token_sum, 6);
	ck_assert_int_eq(seen.entry.offset, 2);
	ck_assert_uint_eq(seen.entry.key.rank, 0x01000100);
	ck_assert_int_eq(seen.hash[0], 0x0b);
}
END_TEST

START_TEST(entries_of_an_unwanted_batch_are_not_passed)
{
	struct seen seen = {.unwanted = true};

	ck_assert_int_eq(read_body(BATCH("\"event_type\":\"store\",\"tier\":\"l1\","
					 "\"backend\":\"dram\",\"entries\":[" ENTRY("00") "]"),
				 &seen),
		KVW_OK);
	ck_assert_uint_eq(seen.batches, 1);
	ck_assert_uint_eq(seen.entries, 0);
}
END_TEST

START_TEST(defaults_are_those_of_lmcache)
{
	struct seen seen = {0};

	ck_assert_int_eq(read_body("{}", &seen), KVW_OK);
	ck_assert_int_eq(read_body("{\"batches\":[]}", &seen), KVW_OK);
	ck_assert_uint_eq(seen.batches, 0);
	ck_assert_int_eq(
		read_body(BATCH("\"event_type\":\"access\",\"tier\":\"l1\",\"backend\":\"\","
				"\"entries\":[{\"key\":{\"chunk_hash_hex\":\"\","
				"\"model_name\":\"\",\"kv_rank\":0}}]"),
			&seen),
		KVW_OK);
	ck_assert(!seen.batch.shared && seen.batch.ts == 0);
	ck_assert_int_eq(seen.entry.offset, -1);
	ck_assert_uint_eq(seen.entry.token_count, 0);
	ck_assert_uint_eq(seen.entry.key.group, 0);
}
END_TEST

static const struct {
	const char *body, *error;
} mistakes[] = {
	{" ", "the body is not a JSON object"},
	{"[]", "the body is not a JSON object"},
	{"{\"batches\":{}}", "batches: expected a list"},
	{"{\"batches\":[]} x", "batches: something follows the JSON object"},
	{"{\"batches\":[],\"batches\":[]}", "`batches` stands there twice"},
	{"{\"batches\":[1]}", "batches[0].: expected an object"},
	{"{\"batches\":[{}]}", "batches[0].instance_id: field required"},
	{"{\"batches\":[{\"instance_id\":\"x\"}]}", "batches[0].incarnation: field required"},
	{"{\"batches\":[{\"instance_id\":\"\"}]}", "batches[0].instance_id: must not be empty"},
	{"{\"batches\":[{\"instance_id\":5}]}", "batches[0].instance_id: expected a string"},
	{"{\"batches\":[{\"seq\":0}]}", "batches[0].seq: the number is outside its limits"},
	{"{\"batches\":[{\"seq\":1.5}]}", "batches[0].seq: expected an integer"},
	{"{\"batches\":[{\"seq\":\"1\"}]}", "batches[0].seq: expected an integer"},
	{"{\"batches\":[{\"incarnation\":-1}]}",
		"batches[0].incarnation: the number is outside its limits"},
	{"{\"batches\":[{\"seq\":99999999999999999999}]}",
		"batches[0].seq: the number is too large"},
	{"{\"batches\":[{\"event_type\":\"sync\"}]}",
		"batches[0].event_type: expected store, delete, access or config"},
	{"{\"batches\":[{\"tier\":\"all\"}]}", "batches[0].tier: expected l1 or l2"},
	{"{\"batches\":[{\"ts\":-1}]}", "batches[0].ts: expected seconds, from 0 to 9e9"},
	{"{\"batches\":[{\"ts\":9.3e9}]}", "batches[0].ts: expected seconds, from 0 to 9e9"},
	{"{\"batches\":[{\"ts\":NaN}]}", "batches[0].ts: expected seconds, from 0 to 9e9"},
	{"{\"batches\":[{\"shared\":1}]}", "batches[0].shared: expected true or false"},
	{BATCH("\"event_type\":\"store\",\"tier\":\"l1\",\"backend\":\"\""),
		"batches[0].backend: must not be empty"},
	{BATCH("\"event_type\":\"config\",\"tier\":\"l1\",\"backend\":\"d\",\"entries\":[" ENTRY(
		 "00") "]"),
		"batches[0].entries[0].key: a config batch has no entries"},
	{BATCH("\"event_type\":\"store\",\"tier\":\"l1\",\"backend\":\"d\",\"entries\":[" ENTRY(
		 "00") ",{}]"),
		"batches[0].entries[1].key: field required"},
	{BATCH("\"event_type\":\"store\",\"tier\":\"l1\",\"backend\":\"d\",\"entries\":[" ENTRY(
		 "0") "]"),
		"batches[0].entries[0].key.chunk_hash_hex: expected an even number of hexadecimal "
		"digits"},
	{BATCH("\"event_type\":\"store\",\"tier\":\"l1\",\"backend\":\"d\",\"entries\":[" ENTRY(
		 "zz") "]"),
		"batches[0].entries[0].key.chunk_hash_hex: expected hexadecimal digits"},
	{BATCH("\"event_type\":\"store\",\"tier\":\"l1\",\"backend\":\"d\",\"entries\":[{\"key\":{"
	       "\"cache_salt\":\"a/b\"}}]"),
		"batches[0].entries[0].key.cache_salt: must have at most 128 "
		"characters, none of @, /, \\ and NUL"},
	{BATCH("\"event_type\":\"store\",\"tier\":\"l1\",\"backend\":\"d\",\"entries\":[{\"key\":{"
	       "\"model_name\":\"a@b\"}}]"),
		"batches[0].entries[0].key.model_name: must not contain @"},
	{BATCH("\"event_type\":\"store\",\"tier\":\"l1\",\"backend\":\"d\",\"entries\":[{"
	       "\"token_ids\":[4294967296]}]"),
		"batches[0].entries[0].token_ids: the number is outside its limits"},
	{BATCH("\"event_type\":\"store\",\"tier\":\"l1\",\"backend\":\"d\",\"entries\":[{"
	       "\"token_offset\":-2}]"),
		"batches[0].entries[0].token_offset: the number is outside its limits"},
	{"{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
		"values are nested too deeply"},
	{"{\"batches\":[{\"instance_id\":\"\\ud800\"}]}",
		"batches[0].instance_id: half of a character"},
};

START_TEST(a_mistake_is_named_with_its_place)
{
	struct seen seen = {0};
	const char *error = mistakes[_i].error;
	size_t len = strlen(error);

	ck_assert_int_eq(read_body(mistakes[_i].body, &seen), KVW_EINVAL);
	ck_assert_uint_ge(strlen(reader.error), len);
	ck_assert_str_eq(reader.error + strlen(reader.error) - len, error);
	ck_assert_uint_eq(seen.batches, 0);
}
END_TEST

/* Each beginning of a good body is a mistake, and no byte after its end is read. */
START_TEST(a_cut_body_is_refused)
{
	static const char whole[] = BATCH(
		"\"event_type\":\"store\",\"tier\":\"l1\",\"backend\":\"d\",\"entries\":[" ENTRY(
			"00") "]");

	for (size_t len = 0; len < sizeof(whole) - 1; len++) {
		char *cut = malloc(len + 1);

		memcpy(cut, whole, len);
		cut[len] = '!';
		ck_assert_int_eq(
			kvw_ce_read(&reader, (struct kvw_slice){cut, len}, NULL), KVW_EINVAL);
		free(cut);
	}
}
END_TEST

START_TEST(a_hundred_thousand_tokens_come_in_chunks_and_no_chunk_is_too_large)
{
	size_t room = (size_t)2 << 20, len;
	char *body = malloc(room);
	struct seen seen = {0};

	len = (size_t)snprintf(body, room,
		"{\"batches\":[{" HEAD "\"event_type\":\"store\","
		"\"tier\":\"l1\",\"backend\":\"dram\",\"entries\":[");
	for (int chunk = 0; chunk < 400; chunk++) {
		len += (size_t)snprintf(body + len, room - len,
			"%s{\"key\":" KEY("00") ",\"token_ids\":[", chunk == 0 ? "" : ",");
		for (int i = 0; i < 256; i++)
			len += (size_t)snprintf(
				body + len, room - len, "%s%d", i == 0 ? "" : ",", 100000 + i);
		len += (size_t)snprintf(body + len, room - len, "]}");
	}
	(void)snprintf(body + len, room - len, "]}]}");
	ck_assert_int_eq(read_body(body, &seen), KVW_OK);
	ck_assert_uint_eq(seen.entries, 400);
	ck_assert_uint_eq(seen.token_sum, 400ull * (256ull * 100000 + 255 * 128));

	len = (size_t)snprintf(body, room, "{\"batches\":[{\"entries\":[{\"token_ids\":[");
	for (int i = 0; i < 8193; i++)
		len += (size_t)snprintf(body + len, room - len, "%s7", i == 0 ? "" : ",");
	(void)snprintf(body + len, room - len,
		"]}]," HEAD "\"event_type\":\"store\",\"tier\":\"l1\",\"backend\":\"dram\"}]}");
	ck_assert_int_eq(read_body(body, &seen), KVW_EINVAL);
	ck_assert_str_eq(reader.error, "batches[0].entries[0].token_ids: at most 8192 token ids");
	free(body);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("events");

	tcase_add_test(tc, a_batch_is_passed_before_its_entries_whatever_the_order_of_its_members);
	tcase_add_test(tc, entries_of_an_unwanted_batch_are_not_passed);
	tcase_add_test(tc, defaults_are_those_of_lmcache);
	tcase_add_loop_test(
		tc, a_mistake_is_named_with_its_place, 0, sizeof(mistakes) / sizeof(mistakes[0]));
	tcase_add_test(tc, a_cut_body_is_refused);
	tcase_add_test(tc, a_hundred_thousand_tokens_come_in_chunks_and_no_chunk_is_too_large);
	return run_tcase("coordinator-events", tc);
}
