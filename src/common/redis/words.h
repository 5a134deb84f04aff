/*
 * words.h - writes a command as Redis reads it (RESP2): the number of its words, then each word
 * with its length.
 *
 * Each function writes at `at` and returns the end. The caller has room: besides a word's own bytes
 * KVW_REDIS_WORD_ROOM.
 */
#ifndef KVW_REDIS_WORDS_H
#define KVW_REDIS_WORDS_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KVW_REDIS_WORD_ROOM 32

static inline char *kvw_redis_put_count(char *at, size_t words)
{
	return at + sprintf(at, "*%zu\r\n", words);
}

static inline char *kvw_redis_put_word(char *at, const char *data, size_t len)
{
	at += sprintf(at, "$%zu\r\n", len);
	memcpy(at, data, len);
	memcpy(at + len, "\r\n", 2);
	return at + len + 2;
}

static inline char *kvw_redis_put_text(char *at, const char *text)
{
	return kvw_redis_put_word(at, text, strlen(text));
}

static inline char *kvw_redis_put_number(char *at, int64_t number)
{
	char digits[24];

	(void)snprintf(digits, sizeof(digits), "%" PRId64, number);
	return kvw_redis_put_text(at, digits);
}

#endif
