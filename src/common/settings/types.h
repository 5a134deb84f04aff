/*
 * types.h - the types that a table of keys may use: conversion of texts to values, and back.
 *
 * One `struct kvw_type` per type, named kvw_type_<TYPE>; a program may define types of its own. A
 * type does not know keys or places: it converts a text to a value or returns what it expected.
 */
#ifndef KVW_CONFIG_TYPES_H
#define KVW_CONFIG_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/slice.h"

/* A value of any type. All members begin at the same byte, so a member of a struct is set by
 * copying its size. */
union kvw_value {
	bool flag;
	int word; /* enums, FLAG, NODE */
	uint32_t count;
	int64_t integer;
	uint64_t size;
	double ratio;
	char *text;              /* the struct that has the value owns the text */
	unsigned char bytes[32]; /* for types of a program */
};

/* The reason for which a text is no value. */
struct kvw_fault {
	const char *found; /* printed in place of the text; NULL: the text is printed, in quotes */
	char expected[320];
	char suggestion[128]; /* "": none */
};

/* A list of texts, which belongs to its configuration. */
struct kvw_strings {
	char **items;
	size_t count;
};

/* A word, and the value for which it stands. */
struct kvw_word {
	const char *name; /* NULL ends the list */
	int value;        /* value of an enum */
};

struct kvw_type {
	const char *name;             /* as in REFERENCE.md */
	const char *expected; /* "a size such as 64MiB"; NULL: parse sets a more exact text */
	const char *usual; /* text for the default in REFERENCE.md; NULL: the value itself */
	const struct kvw_word *words; /* all words of the type; NULL: the type has no words */
	const struct kvw_type *item;  /* the type of a list's entries; NULL: the type is no list */
	size_t size;                  /* bytes of the field */
	bool owned;                   /* the value is a text on the heap */
	bool secret;                  /* never printed */
	bool automatic;               /* the word `auto` stands for 0, which is outside the range */

	/* Converts a text, after which there must be a NUL. KVW_EINVAL sets *fault, where
	 * `expected` above is not enough. `strategies`: the names of all strategies. Not for
	 * lists. */
	enum kvw_err (*parse)(const struct kvw_type *type, struct kvw_slice text,
		const char *const *strategies, union kvw_value *out, struct kvw_fault *fault);

	/* Returns <0, 0 or >0. NULL: the type has no range. */
	int (*compare)(const union kvw_value *a, const union kvw_value *b);

	/* Writes the value as YAML from which the same value is read. NULL: the type is a list or a
	 * secret. */
	void (*print)(
		const struct kvw_type *type, const union kvw_value *value, char *out, size_t room);
};

/* C types: bool, int64_t, uint64_t (bytes), int64_t (ms), double. */
extern const struct kvw_type kvw_type_BOOL, kvw_type_INT, kvw_type_SIZE, kvw_type_DURATION,
	kvw_type_RATIO;
/* Types for structs with members of fixed size: uint32_t, int32_t, uint32_t, uint64_t (ns). */
extern const struct kvw_type kvw_type_FLAG, kvw_type_NODE, kvw_type_COUNT, kvw_type_TIME,
	kvw_type_AUTO_COUNT, kvw_type_AUTO_SIZE;
/* char * */
extern const struct kvw_type kvw_type_STRING, kvw_type_SECRET, kvw_type_ADDRESS, kvw_type_URL,
	kvw_type_PATH, kvw_type_TOKEN, kvw_type_STRATEGY;
/* struct kvw_strings */
extern const struct kvw_type kvw_type_STRINGS, kvw_type_TOKENS;

/* parse and print for a type with `words`. Values are the words' numbers, or texts if the type is
 * `owned`. */
enum kvw_err kvw_word_parse(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out,
	struct kvw_fault *fault) KVW_MUST_CHECK;
void kvw_word_print(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room);

/* A copy on the heap. */
enum kvw_err kvw_text_copy(struct kvw_slice text, union kvw_value *out) KVW_MUST_CHECK;

/* Writes a text without control characters: plain if YAML reads it as the same text, also in a
 * list; else in double quotes. Needs at most twice the text's length and 3 bytes. */
void kvw_text_print(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room);

/* Writes a text for "did you mean", or none if it does not fit. */
void kvw_fault_suggest(struct kvw_fault *fault, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
