/*
 * word_pool.h - words that cost one token each, for prompts of a given length.
 *
 * From a model's tokenizer.json they are chosen as `lmcache bench engine` chooses them: entries of
 * the vocabulary that begin a word and go on in plain lowercase letters, 8,000 of them drawn by the
 * seed. Without a tokenizer they are the 128 common words of text.h, which are a token each in the
 * usual vocabularies and for kvsim.
 */
#ifndef KVB_WORD_POOL_H
#define KVB_WORD_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"
#include "bench/load/mem.h"
#include "bench/load/pyrandom.h"

struct kvb_word_pool {
	char **words; /* owned */
	uint32_t count;
	/* a text begins with a blank, so that its first word is tokenized like the others */
	bool leading_blank;
	bool from_model;    /* false: the words are the built-in ones */
};

/* The built-in words. */
void kvb_word_pool_builtin(struct kvb_word_pool *pool);
/*
 * Loads the words of a tokenizer. path: a tokenizer.json, or its folder. KVW_EIO, KVW_EPROTO: a
 * message was written to error, and there is nothing to release.
 */
enum kvw_err kvb_word_pool_load(
	struct kvb_word_pool *pool, const char *path, int64_t seed, FILE *error) KVW_MUST_CHECK;
/* Does the same with the text of a tokenizer.json. name: the text's name in messages. */
enum kvw_err kvb_word_pool_read(struct kvb_word_pool *pool, const char *text, size_t len,
	const char *name, int64_t seed, FILE *error) KVW_MUST_CHECK;
/* Appends a text of `count` words, which random chooses. */
void kvb_word_pool_text(const struct kvb_word_pool *pool, struct kvb_py_random *random,
	uint64_t count, struct kvb_buf *out);
void kvb_word_pool_finish(struct kvb_word_pool *pool);

#endif
