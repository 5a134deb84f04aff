/*
 * word_pool.c - words that cost one token each, for prompts of a given length.
 *
 * A tokenizer's file is read, not run: a key of its vocabulary is taken for a token of its own.
 * That holds where the tokenizer cuts text into words before it looks them up, as those with
 * byte-level BPE and SentencePiece do; what a prompt really costs is in the server's usage.
 */
#include "bench/load/word_pool.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/load/text.h"

#define WANTED 8000 /* size of the pool, as in `lmcache bench engine` */
#define LEAST  16   /* fewer would make all prompts alike */

/* Marks by which vocabularies show that a token begins a word: of byte-level BPE, of
 * SentencePiece, none. */
static const char *const markers[] = {"\xc4\xa0", "\xe2\x96\x81", " "};

void kvb_word_pool_builtin(struct kvb_word_pool *pool)
{
	*pool = (struct kvb_word_pool){.count = KVB_TEXT_WORDS};
	pool->words = kvb_alloc(pool->count, sizeof(*pool->words));
	for (uint32_t i = 0; i < pool->count; i++)
		pool->words[i] = kvb_strdup(kvb_text_word(i));
}

/* Returns the word of a vocabulary's key, NULL if it is no word; *marker: how the vocabulary marks
 * its begin. */
static const char *word_of(const char *key, size_t *marker)
{
	const char *word = NULL;

	for (size_t i = 0; i < 3 && word == NULL; i++)
		if (strncmp(key, markers[i], strlen(markers[i])) == 0) {
			word = key + strlen(markers[i]);
			*marker = i;
		}
	if (word == NULL || *word == '\0' ||
		word[strspn(word, "abcdefghijklmnopqrstuvwxyz")] != '\0')
		return NULL;
	return word;
}

static void add_word(struct kvb_word_pool *pool, const char *key, size_t *by_marker)
{
	size_t marker = 0;
	const char *word = word_of(key, &marker);

	if (word == NULL)
		return;
	if ((pool->count & (pool->count - 1)) == 0)
		pool->words = kvb_realloc(
			pool->words, pool->count ? 2 * pool->count : 1, sizeof(*pool->words));
	pool->words[pool->count++] = kvb_strdup(word);
	by_marker[marker]++;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Collects all words of a vocabulary, sorted and without repetitions. */
static void collect(struct kvb_word_pool *pool, json_t *vocabulary)
{
	size_t by_marker[3] = {0}, i;
	uint32_t kept = 0;
	const char *key;
	json_t *value;

	if (json_is_object(vocabulary)) {
		json_object_foreach(vocabulary, key, value) add_word(pool, key, by_marker);
	} else {
		json_array_foreach(vocabulary, i, value)
		{ /* this vocabulary is a list of [text, score] */
			key = json_string_value(json_array_get(value, 0));
			add_word(pool, key ? key : "", by_marker);
		}
	}
	if (pool->count > 0)
		qsort(pool->words, pool->count, sizeof(*pool->words), by_text);
	for (uint32_t w = 0; w < pool->count; w++) {
		if (kept > 0 && strcmp(pool->words[kept - 1], pool->words[w]) == 0)
			free(pool->words[w]);
		else
			pool->words[kept++] = pool->words[w];
	}
	pool->count = kept;
	/* SentencePiece puts a blank of its own before the first word. */
	pool->leading_blank = by_marker[1] < by_marker[0] + by_marker[2];
}

/* Keeps only the words that the seed draws. */
static void draw(struct kvb_word_pool *pool, int64_t seed)
{
	uint32_t count = pool->count < WANTED ? pool->count : WANTED;
	uint32_t *chosen = kvb_alloc(count, sizeof(*chosen));
	char **words = kvb_alloc(count, sizeof(*words));
	struct kvb_py_random random;

	kvb_py_seed(&random, seed);
	kvb_py_sample(&random, pool->count, chosen, count);
	for (uint32_t i = 0; i < count; i++) {
		words[i] = pool->words[chosen[i]];
		pool->words[chosen[i]] = NULL;
	}
	for (uint32_t i = 0; i < pool->count; i++)
		free(pool->words[i]);
	free(pool->words);
	free(chosen);
	pool->words = words;
	pool->count = count;
}

/* Reads the words of a parsed file and frees root; root is NULL where the text was not JSON, for
 * the reason `why`. */
static enum kvw_err read_root(struct kvb_word_pool *pool, json_t *root_take,
	const json_error_t *why, const char *name, int64_t seed, FILE *error)
{
	*pool = (struct kvb_word_pool){.from_model = true};
	if (root_take == NULL) {
		fprintf(error, "kvbench: tokenizer %s: %s\n", name, why->text);
		return KVW_EIO;
	}
	collect(pool, json_object_get(json_object_get(root_take, "model"), "vocab"));
	json_decref(root_take);
	if (pool->count < LEAST) {
		fprintf(error,
			"kvbench: tokenizer %s: %u words that begin with a blank, at least %d are "
			"needed\n",
			name, pool->count, LEAST);
		kvb_word_pool_finish(pool);
		return KVW_EPROTO;
	}
	draw(pool, seed);
	return KVW_OK;
}

enum kvw_err kvb_word_pool_read(struct kvb_word_pool *pool, const char *text, size_t len,
	const char *name, int64_t seed, FILE *error)
{
	json_error_t why;
	json_t *root = json_loadb(text, len, 0, &why);

	return read_root(pool, root, &why, name, seed, error);
}

enum kvw_err kvb_word_pool_load(
	struct kvb_word_pool *pool, const char *path, int64_t seed, FILE *error)
{
	struct kvb_buf file = {0};
	json_error_t why;
	struct stat st;
	enum kvw_err err;
	json_t *root;

	kvb_buf_text(&file, path);
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		kvb_buf_text(&file, "/tokenizer.json");
	root = json_load_file(kvb_buf_str(&file), 0, &why);
	err = read_root(pool, root, &why, kvb_buf_str(&file), seed, error);
	kvb_buf_finish(&file);
	return err;
}

void kvb_word_pool_text(const struct kvb_word_pool *pool, struct kvb_py_random *random,
	uint64_t count, struct kvb_buf *out)
{
	for (uint64_t i = 0; i < count; i++) {
		if (i > 0 || pool->leading_blank)
			kvb_buf_add(out, " ", 1);
		kvb_buf_text(out, pool->words[kvb_py_choice(random, pool->count)]);
	}
}

void kvb_word_pool_finish(struct kvb_word_pool *pool)
{
	for (uint32_t i = 0; i < pool->count; i++)
		free(pool->words[i]);
	free(pool->words);
	*pool = (struct kvb_word_pool){0};
}
