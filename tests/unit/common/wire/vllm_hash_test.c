/*
 * vllm_hash_test.c - block hashes of a real vLLM, and the router's own keys.
 *
 * data/vllm-0.32.json: events that vLLM 0.32.0 published, and vectors that its own functions
 * computed.
 */
#include <check.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "wire/block_key.h"
#include "wire/vllm_hash.h"

#define MOST_TOKENS 8192u
#define MOST_BLOCKS 512u

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static size_t number_of(const json_t *object, const char *key)
{
	return (size_t)json_integer_value(json_object_get(object, key));
}

static json_t *load(void)
{
	json_error_t error;
	json_t *root = json_load_file(DATA_DIR "/vllm-0.32.json", 0, &error);

	ck_assert_msg(root != NULL, "line %d: %s", error.line, error.text);
	return root;
}

static struct kvw_vllm_recipe recipe_of(const json_t *object)
{
	const json_t *lora = json_object_get(object, "lora");
	struct kvw_vllm_recipe recipe = {
		.seed = text_of(object, "pythonhashseed"),
		.block_size = (uint32_t)number_of(object, "block_size"),
		.lora = lora != NULL,
		.lora_name = kvw_slice_of(json_string_value(json_array_get(lora, 0))),
		.lora_path = kvw_slice_of(json_string_value(json_array_get(lora, 1))),
		.cache_salt = kvw_slice_of(text_of(object, "salt")),
	};

	ck_assert_int_eq(
		kvw_object_hash_parse(kvw_slice_of(text_of(object, "algorithm")), &recipe.hash),
		KVW_OK);
	return recipe;
}

static void hex_of(const struct kvw_vllm_digest *digest, char hex[2 * KVW_DIGEST_MAX + 1])
{
	for (size_t i = 0; i < digest->size; i++)
		(void)sprintf(hex + 2 * i, "%02x", digest->bytes[i]);
}

/* As an event of that engine calls it: all bytes, or the number. */
static void name_of(const struct kvw_vllm_digest *digest, size_t length, char *name)
{
	if (length == 16)
		(void)sprintf(name, "%016" PRIx64, kvw_vllm_event_hash(digest));
	else
		hex_of(digest, name);
}

/* Blocks that events have named. */
struct known {
	char name[2 * KVW_DIGEST_MAX + 1];
	struct kvw_vllm_digest digest;
};

static struct known known[MOST_BLOCKS];
static size_t known_count;

static const struct kvw_vllm_digest *find(const char *name)
{
	for (size_t i = 0; i < known_count; i++) {
		if (strcmp(known[i].name, name) == 0)
			return &known[i].digest;
	}
	ck_abort_msg("no event has named the parent %s", name);
	return NULL;
}

static void check_event(const struct kvw_vllm_recipe *engine, const json_t *event)
{
	const json_t *names = json_object_get(event, "hashes"),
		     *ids = json_object_get(event, "token_ids");
	struct kvw_vllm_recipe recipe = *engine;
	static struct kvw_vllm_digest digests[MOST_BLOCKS];
	static uint32_t tokens[MOST_TOKENS];
	struct kvw_vllm_chain chain;
	size_t count = json_array_size(ids), blocks = 0;

	recipe.cache_salt = kvw_slice_of(text_of(event, "salt"));
	for (size_t i = 0; i < count; i++)
		tokens[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
	ck_assert_int_eq(kvw_vllm_chain_begin(&recipe, &chain), KVW_OK);
	if (text_of(event, "parent") != NULL)
		chain = (struct kvw_vllm_chain){*find(text_of(event, "parent")), true};
	ck_assert_int_eq(
		kvw_vllm_hash(&recipe, &chain, tokens, count, digests, MOST_BLOCKS, &blocks),
		KVW_OK);
	ck_assert_uint_eq(blocks, json_array_size(names));
	for (size_t i = 0; i < blocks; i++) {
		const char *wanted = json_string_value(json_array_get(names, i));
		struct known *block = &known[known_count++];

		name_of(&digests[i], strlen(wanted), block->name);
		block->digest = digests[i];
		ck_assert_str_eq(block->name, wanted);
	}
}

START_TEST(recorded_events_are_reproduced)
{
	json_t *root = load(), *run, *event;
	size_t i, j, checked = 0;

	json_array_foreach(json_object_get(root, "recorded"), i, run)
	{
		struct kvw_vllm_recipe engine = recipe_of(run);

		known_count = 0;
		json_array_foreach(json_object_get(run, "events"), j, event)
			check_event(&engine, event);
		checked += known_count;
	}
	ck_assert_uint_eq(checked, 3 * 36);
	json_decref(root);
}
END_TEST

static void check_computed(const json_t *vector)
{
	struct kvw_vllm_recipe recipe = recipe_of(vector);
	static struct kvw_vllm_digest digests[MOST_BLOCKS];
	static uint32_t tokens[MOST_TOKENS];
	struct kvw_vllm_chain chain;
	uint32_t first = (uint32_t)number_of(vector, "first_token");
	size_t count = number_of(vector, "ntokens"), blocks = 0;
	char hex[2 * KVW_DIGEST_MAX + 1];

	for (uint32_t i = 0; i < count; i++)
		tokens[i] = first + i;
	ck_assert_int_eq(kvw_vllm_chain_begin(&recipe, &chain), KVW_OK);
	hex_of(&chain.parent, hex);
	ck_assert_str_eq(hex, text_of(vector, "none_hash"));
	ck_assert_int_eq(
		kvw_vllm_hash(&recipe, &chain, tokens, count, digests, MOST_BLOCKS, &blocks),
		KVW_OK);
	ck_assert_uint_eq(blocks, number_of(vector, "blocks"));
	if (blocks == 0)
		return;
	hex_of(&digests[blocks - 1], hex);
	ck_assert_str_eq(hex, text_of(vector, "last"));
	ck_assert_mem_eq(&chain.parent, &digests[blocks - 1], sizeof(chain.parent));
}

START_TEST(vllm_computes_the_same)
{
	json_t *root = load(), *vector;
	size_t i;

	json_array_foreach(json_object_get(root, "computed"), i, vector) check_computed(vector);
	ck_assert_uint_eq(i, 138);
	json_decref(root);
}
END_TEST

START_TEST(a_chain_can_be_continued)
{
	static const enum kvw_object_hash hashes[] = {KVW_OBJECT_SHA256, KVW_OBJECT_XXHASH_CBOR};
	struct kvw_vllm_digest whole[4], part[4];
	uint32_t tokens[70];
	size_t done = 0;

	for (uint32_t i = 0; i < 70; i++)
		tokens[i] = i * 1000003u;
	for (size_t i = 0; i < 2; i++) {
		struct kvw_vllm_recipe recipe = {.hash = hashes[i],
			.seed = "7",
			.block_size = 16,
			.cache_salt = KVW_SLICE("salt")};
		struct kvw_vllm_chain chain, begun;

		ck_assert_int_eq(kvw_vllm_chain_begin(&recipe, &begun), KVW_OK);
		chain = begun;
		ck_assert_int_eq(
			kvw_vllm_hash(&recipe, &chain, tokens, 70, whole, 4, &done), KVW_OK);
		ck_assert_uint_eq(done, 4);
		chain = begun;
		ck_assert_int_eq(
			kvw_vllm_hash(&recipe, &chain, tokens, 70, part, 1, &done), KVW_OK);
		ck_assert_uint_eq(done, 1);
		ck_assert_int_eq(
			kvw_vllm_hash(&recipe, &chain, tokens + 16, 54, part + 1, 3, &done),
			KVW_OK);
		ck_assert_uint_eq(done, 3);
		ck_assert_mem_eq(whole, part, sizeof(whole));
	}
}
END_TEST

START_TEST(what_cannot_be_computed_is_said)
{
	struct kvw_vllm_recipe recipe = {.hash = KVW_OBJECT_XXHASH, .block_size = 16};
	struct kvw_vllm_digest digest;
	struct kvw_vllm_chain chain;
	enum kvw_object_hash hash;
	static char salt[70000];
	uint32_t tokens[16] = {0};
	size_t done = 77;

	ck_assert_int_eq(kvw_vllm_chain_begin(&recipe, &chain), KVW_ENOTFOUND);
	recipe.hash = KVW_OBJECT_SHA256;
	recipe.block_size = 0;
	ck_assert_int_eq(kvw_vllm_chain_begin(&recipe, &chain), KVW_EINVAL);
	recipe.block_size = KVW_VLLM_BLOCK_MAX + 1;
	ck_assert_int_eq(kvw_vllm_chain_begin(&recipe, &chain), KVW_EINVAL);
	recipe.block_size = 16;
	memset(salt, 'x', sizeof(salt));
	recipe.cache_salt = (struct kvw_slice){salt, sizeof(salt)};
	ck_assert_int_eq(kvw_vllm_chain_begin(&recipe, &chain), KVW_OK);
	ck_assert_int_eq(kvw_vllm_hash(&recipe, &chain, tokens, 16, &digest, 1, &done), KVW_ELIMIT);
	ck_assert_uint_eq(done, 0);
	ck_assert(!chain.started);
	ck_assert_int_eq(kvw_object_hash_parse(KVW_SLICE("sha512"), &hash), KVW_ENOTFOUND);
	ck_assert_int_eq(kvw_object_hash_parse(KVW_SLICE("sha256_"), &hash), KVW_ENOTFOUND);
}
END_TEST

START_TEST(own_keys_chain_and_differ_by_space)
{
	struct kvw_block_space spaces[] = {
		{16, KVW_SLICE("m"), {NULL, 0}, {NULL, 0}},
		{32, KVW_SLICE("m"), {NULL, 0}, {NULL, 0}},
		{16, KVW_SLICE("n"), {NULL, 0}, {NULL, 0}},
		{16, KVW_SLICE("m"), KVW_SLICE("a"), {NULL, 0}},
		{16, KVW_SLICE("m"), {NULL, 0}, KVW_SLICE("a")},
		{16, KVW_SLICE("ma"), {NULL, 0}, {NULL, 0}},
		{16, {NULL, 0}, KVW_SLICE("m"), {NULL, 0}},
		{16, KVW_SLICE("m"), KVW_SLICE("a"), KVW_SLICE("a")},
	};
	uint64_t keys[8][4], again[4];
	uint32_t tokens[70];

	for (uint32_t i = 0; i < 70; i++)
		tokens[i] = i % 16; /* equal blocks: only what precedes them tells them apart */
	for (size_t i = 0; i < 8; i++) {
		uint64_t parent = kvw_block_root(&spaces[i]);

		ck_assert_uint_eq(kvw_block_keys(&parent, tokens, 70, 16, keys[i], 4), 4);
		ck_assert_uint_eq(parent, keys[i][3]);
		parent = kvw_block_root(&spaces[i]);
		ck_assert_uint_eq(kvw_block_keys(&parent, tokens, 70, 16, again, 2), 2);
		ck_assert_uint_eq(kvw_block_keys(&parent, tokens + 32, 38, 16, again + 2, 2), 2);
		ck_assert_mem_eq(keys[i], again, sizeof(again));
		ck_assert_uint_eq(kvw_block_key(keys[i][0], tokens, 16), keys[i][1]);
	}
	for (size_t i = 0; i < 32; i++) {
		for (size_t j = 0; j < i; j++)
			ck_assert_uint_ne(keys[i / 4][i % 4], keys[j / 4][j % 4]);
	}
}
END_TEST

/* Replicas of different versions would share nothing if these moved. */
START_TEST(own_keys_stay_what_they_are)
{
	struct kvw_block_space space = {
		16, KVW_SLICE("model"), KVW_SLICE("lora"), KVW_SLICE("salt")};
	uint64_t parent = kvw_block_root(&space), key;
	uint32_t tokens[16];

	for (uint32_t i = 0; i < 16; i++)
		tokens[i] = 100 + i;
	ck_assert_uint_eq(kvw_block_keys(&parent, tokens, 15, 16, &key, 1), 0);
	ck_assert_uint_eq(parent, UINT64_C(17172254280572741421));
	ck_assert_uint_eq(kvw_block_keys(&parent, tokens, 16, 16, &key, 1), 1);
	ck_assert_uint_eq(key, UINT64_C(14400764509113901360));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("vllm_hash");

	tcase_add_test(tcase, recorded_events_are_reproduced);
	tcase_add_test(tcase, vllm_computes_the_same);
	tcase_add_test(tcase, a_chain_can_be_continued);
	tcase_add_test(tcase, what_cannot_be_computed_is_said);
	tcase_add_test(tcase, own_keys_chain_and_differ_by_space);
	tcase_add_test(tcase, own_keys_stay_what_they_are);
	return run_tcase("vllm_hash", tcase);
}
