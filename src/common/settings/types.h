/*
 * types.h - the types that a table of keys may use: how a text becomes a value, and a value its
 * text.
 *
 * One `struct kvw_type` per type, named kvw_type_<TYPE>; a room defines those that it alone needs.
 * A type knows nothing of keys or places: it turns text into a value or says what it expected
 * instead.
 */
#ifndef KVW_CONFIG_TYPES_H
#define KVW_CONFIG_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/slice.h"

/* A value of any type. Members start at the same byte, so a field is filled by copying its size. */
union kvw_value {
	bool flag;
	int word; /* enums, FLAG, NODE */
	uint32_t count;
	int64_t integer;
	uint64_t size;
	double ratio;
	char *text;              /* owned by the holder of the value */
	unsigned char bytes[32]; /* for types of a room */
};

/* Why a text is no value. */
struct kvw_fault {
	const char *found; /* said instead of the text itself; NULL: the text is quoted */
	char expected[320];
	char suggestion[128]; /* "": none */
};

/* The field of a list. Owned by its configuration. */
struct kvw_strings {
	char **items;
	size_t count;
};

/* One word of a type that has a list of them. */
struct kvw_word {
	const char *name; /* NULL ends the list */
	int value;        /* of an enum */
};

struct kvw_type {
	const char *name;             /* as in REFERENCE.md */
	const char *expected;         /* "a size such as 64MiB"; NULL: parse says more */
	const char *usual;            /* REFERENCE.md says this for the default; NULL: the value */
	const struct kvw_word *words; /* all that there are; else NULL */
	const struct kvw_type *item;  /* the type of a list's entries; NULL: not a list */
	size_t size;                  /* bytes of the field */
	bool owned;                   /* the value is text on the heap */
	bool secret;                  /* never printed */
	bool automatic;               /* `auto` stands for 0, which is outside of the range */

	/* KVW_EINVAL fills *fault, as far as `expected` above does not say it. `strategies`: the
	 * names that there are. text ends with a NUL beyond its length. Not for lists. */
	enum kvw_err (*parse)(const struct kvw_type *type, struct kvw_slice text,
		const char *const *strategies, union kvw_value *out, struct kvw_fault *fault);

	/* <0, 0, >0. NULL: the type has no range. */
	int (*compare)(const union kvw_value *a, const union kvw_value *b);

	/* As YAML that parses to the same value. NULL: a list or a secret. */
	void (*print)(
		const struct kvw_type *type, const union kvw_value *value, char *out, size_t room);
};

/* C types: bool, int64_t, uint64_t (bytes), int64_t (ms), double. */
extern const struct kvw_type kvw_type_BOOL, kvw_type_INT, kvw_type_SIZE, kvw_type_DURATION,
	kvw_type_RATIO;
/* The same for structs with members of fixed size: uint32_t, int32_t, uint32_t, uint64_t (ns). */
extern const struct kvw_type kvw_type_FLAG, kvw_type_NODE, kvw_type_COUNT, kvw_type_TIME,
	kvw_type_AUTO_COUNT, kvw_type_AUTO_SIZE;
/* char * */
extern const struct kvw_type kvw_type_STRING, kvw_type_SECRET, kvw_type_ADDRESS, kvw_type_URL,
	kvw_type_PATH, kvw_type_TOKEN, kvw_type_STRATEGY;
/* struct kvw_strings */
extern const struct kvw_type kvw_type_STRINGS, kvw_type_TOKENS;

/* Parse and print of a type whose values are `words`: their numbers, or texts if it is owned. */
enum kvw_err kvw_word_parse(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out,
	struct kvw_fault *fault) KVW_MUST_CHECK;
void kvw_word_print(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room);

/* A copy on the heap. */
enum kvw_err kvw_text_copy(struct kvw_slice text, union kvw_value *out) KVW_MUST_CHECK;

/* Prints a text without control characters: plain where that is safe, also in a list, else in
 * double quotes. Takes at most twice its length and 3 bytes. */
void kvw_text_print(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room);

/* Writes "did you mean" text, or none if it does not fit. */
void kvw_fault_suggest(struct kvw_fault *fault, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
