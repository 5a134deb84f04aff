/*
 * recorded_test.c - a session with a real engine: what its events make of the index predicts what it said
 * was cached, for every prompt of it.
 *
 * The cache has 16 blocks, so the session evicts; a block is stored a second time, tenants differ by salt
 * alone, and the cache is emptied twice.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "feeds/vllm_apply.h"
#include "tests/unit/suite.h"

#define BLOCK  32u
#define WORKER 3u
#define TOKENS 512u

/* The feed's side of it. */
struct session {
	struct kvw_kvindex *index;
	struct kvw_kvspaces *spaces;
	struct kvw_vllm_applier applier;
	struct kvw_vllm_map map;
	unsigned asked, hit, batches, purges;
};

static void session_init(struct session *s)
{
	const struct kvw_kvindex_options options = {
		.bytes = 4u << 20, .park_bytes = 1u << 18, .park_ns = INT64_C(1000000000)};

	memset(s, 0, sizeof(*s));
	s->map.worker = WORKER;
	ck_assert_int_eq(kvw_kvindex_create(&options, &s->index), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_create(&s->spaces), KVW_OK);
	kvw_vllm_applier_init(&s->applier, s->index, s->spaces);
}

static void session_finish(struct session *s)
{
	kvw_vllm_applier_finish(&s->applier);
	kvw_kvspaces_destroy(s->spaces);
	kvw_kvindex_destroy(s->index);
}

static void apply_batch(struct session *s, const char *hex)
{
	struct kvw_vllm_applied applied;
	size_t len = strlen(hex) / 2;
	char *payload = malloc(len + 1);

	ck_assert_ptr_nonnull(payload);
	for (size_t i = 0; i < len; i++) {
		unsigned byte;

		ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
		payload[i] = (char)byte;
	}
	kvw_vllm_apply(&s->applier, &s->map, 0, (struct kvw_slice){payload, len}, 1, &applied);
	ck_assert_ptr_null(applied.hole);
	ck_assert_uint_gt(applied.events, 0);
	s->batches++;
	free(payload);
}

/* Tokens that an engine reuses of a prompt of which it holds so many blocks. */
static uint32_t reused(uint32_t blocks, size_t tokens)
{
	uint32_t most = (uint32_t)(tokens - 1) / BLOCK;

	return (blocks < most ? blocks : most) * BLOCK;
}

static void ask(struct session *s, uint32_t cached, const char *salt, char *ids)
{
	static struct kvw_kvindex_hits hits;
	struct kvw_kvchains chains = {.count = 0};
	struct kvw_kvprompt prompt = {.count = 0};
	uint32_t tokens[TOKENS], blocks = 0;

	for (char *id = strtok(ids, " "); id != NULL; id = strtok(NULL, " ")) {
		ck_assert_uint_lt(prompt.count, TOKENS);
		tokens[prompt.count++] = (uint32_t)strtoul(id, NULL, 10);
	}
	prompt.tokens = tokens;
	if (strcmp(salt, "-") != 0)
		prompt.cache_salt = kvw_slice_of(salt);
	ck_assert_int_eq(kvw_kvchains_fill(&chains, s->spaces, &prompt), KVW_OK);
	for (uint32_t i = 0; i < chains.count; i++) {
		ck_assert_uint_eq(chains.chains[i].block_tokens, BLOCK);
		kvw_kvindex_match(s->index, chains.chains[i].space, chains.chains[i].keys,
			chains.chains[i].count, BLOCK, &hits);
		blocks = hits.blocks[WORKER];
	}
	kvw_kvchains_finish(&chains);
	ck_assert_msg(reused(blocks, prompt.count) == cached,
		"prompt %u: %u blocks, %u tokens were cached", s->asked, blocks, cached);
	s->asked++;
	s->hit += cached > 0;
}

static void play(struct session *s, char *line)
{
	char salt[64];
	unsigned cached;
	int at = 0;

	line[strcspn(line, "\n")] = '\0';
	if (line[0] == '#' || line[0] == '\0')
		return;
	if (strncmp(line, "batch ", 6) == 0) {
		apply_batch(s, line + 6);
	} else if (strcmp(line, "purge") == 0) {
		kvw_kvindex_purge(s->index, WORKER);
		s->purges++;
	} else {
		ck_assert_int_eq(sscanf(line, "ask %u %63s %n", &cached, salt, &at), 2);
		ask(s, cached, salt, line + at);
	}
}

START_TEST(what_was_cached_is_what_the_index_says)
{
	static const char *const files[] = {
		DATA_DIR "/vllm_session.txt", DATA_DIR "/vllm_session_bytes.txt"};
	FILE *file = fopen(files[_i], "r");
	struct session s;
	char *line = NULL;
	size_t room = 0;

	ck_assert_ptr_nonnull(file);
	session_init(&s);
	while (getline(&line, &room, file) > 0)
		play(&s, line);
	ck_assert_uint_eq(s.asked, 14);
	ck_assert_uint_eq(s.hit, 2);
	ck_assert_uint_eq(s.batches, 15);
	ck_assert_uint_eq(s.purges, 2);
	free(line);
	fclose(file);
	session_finish(&s);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("recorded");

	tcase_add_loop_test(tc, what_was_cached_is_what_the_index_says, 0, 2);
	return run_tcase("recorded", tc);
}
