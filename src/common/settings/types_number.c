/*
 * types_number.c - converts truth values, numbers, sizes and durations.
 *
 * There are only few and exact forms, so that two people read the same file alike: no octal or hex,
 * no underscores, no "MB" that may mean a million, no duration without its unit. A similar but
 * wrong form gets a suggestion.
 */
#include "settings/types.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_MS UINT64_C(1000000)

/* A unit of sizes or durations. */
struct unit {
	const char *name;
	uint64_t factor;
	/* other spellings, for which this unit is suggested; ended by NULL */
	const char *const *mistaken;
};

static const char *const for_bytes[] = {"B", "b", "bytes", NULL};
static const char *const for_kib[] = {"K", "k", "KB", "kB", "kb", "Ki", "KIB", "kib", "kiB", NULL};
static const char *const for_mib[] = {"M", "m", "MB", "mb", "Mi", "MIB", "mib", "miB", NULL};
static const char *const for_gib[] = {"G", "g", "GB", "gb", "Gi", "GIB", "gib", "giB", NULL};
static const char *const for_tib[] = {"T", "t", "TB", "tb", "Ti", "TIB", "tib", "tiB", NULL};

static const struct unit size_units[] = {
	{"", 1, for_bytes},
	{"KiB", UINT64_C(1) << 10, for_kib},
	{"MiB", UINT64_C(1) << 20, for_mib},
	{"GiB", UINT64_C(1) << 30, for_gib},
	{"TiB", UINT64_C(1) << 40, for_tib},
	{NULL, 0, NULL},
};

static const char *const for_ms[] = {"msec", "msecs", "millis", "milliseconds", "MS", NULL};
static const char *const for_s[] = {"", "S", "sec", "secs", "second", "seconds", NULL};
static const char *const for_m[] = {"M", "min", "mins", "minute", "minutes", NULL};
static const char *const for_h[] = {"H", "hr", "hrs", "hour", "hours", NULL};

static const struct unit duration_units[] = {
	{"ms", 1, for_ms},
	{"s", 1000, for_s},
	{"m", UINT64_C(60) * 1000, for_m},
	{"h", UINT64_C(60) * 60 * 1000, for_h},
	{NULL, 0, NULL},
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Reads the digits at the front of text. Returns false if there are none, or the number does not
 * fit. */
static bool take_digits(struct kvw_slice *text, uint64_t *out)
{
	uint64_t value = 0;
	size_t i = 0;

	for (; i < text->len && is_digit(text->data[i]); i++) {
		if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
			__builtin_add_overflow(value, (uint64_t)(text->data[i] - '0'), &value))
			return false;
	}
	if (i == 0)
		return false;
	text->data += i;
	text->len -= i;
	*out = value;
	return true;
}

static enum kvw_err parse_bool(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	static const char *const likely[][2] = {{"True", "true"}, {"TRUE", "true"}, {"yes", "true"},
		{"on", "true"}, {"1", "true"}, {"False", "false"}, {"FALSE", "false"},
		{"no", "false"}, {"off", "false"}, {"0", "false"}};

	(void)type, (void)strategies;
	if (kvw_slice_equal(text, KVW_SLICE("true")) || kvw_slice_equal(text, KVW_SLICE("false"))) {
		out->flag = text.len == 4;
		return KVW_OK;
	}
	for (size_t i = 0; i < sizeof(likely) / sizeof(likely[0]); i++)
		if (kvw_slice_equal(text, kvw_slice_of(likely[i][0])))
			kvw_fault_suggest(fault, "%s", likely[i][1]);
	return KVW_EINVAL;
}

static enum kvw_err parse_int(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	bool negative = text.len > 0 && text.data[0] == '-';
	uint64_t value = 0;

	(void)type, (void)strategies, (void)fault;
	if (negative)
		text = (struct kvw_slice){text.data + 1, text.len - 1};
	if (!take_digits(&text, &value) || text.len > 0 || value > INT64_MAX)
		return KVW_EINVAL;
	out->integer = negative ? -(int64_t)value : (int64_t)value;
	return KVW_OK;
}

static enum kvw_err parse_flag(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	union kvw_value value;
	enum kvw_err err = parse_bool(type, text, strategies, &value, fault);

	if (err == KVW_OK)
		out->word = value.flag;
	return err;
}

static enum kvw_err parse_count(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	union kvw_value value;
	enum kvw_err err = parse_int(type, text, strategies, &value, fault);

	if (err == KVW_OK && (value.integer < 0 || value.integer > UINT32_MAX))
		err = KVW_EINVAL;
	if (err == KVW_OK)
		out->count = (uint32_t)value.integer;
	return err;
}

static enum kvw_err parse_node(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	union kvw_value value;
	enum kvw_err err = parse_int(type, text, strategies, &value, fault);

	if (err == KVW_OK && (value.integer < INT32_MIN || value.integer > INT32_MAX))
		err = KVW_EINVAL;
	if (err == KVW_OK)
		out->word = (int32_t)value.integer;
	return err;
}

/* Digits and a unit. */
static enum kvw_err parse_measure(
	const struct unit *units, struct kvw_slice text, uint64_t *out, struct kvw_fault *fault)
{
	struct kvw_slice rest = text;
	uint64_t value = 0;

	if (!take_digits(&rest, &value))
		return KVW_EINVAL;
	for (const struct unit *unit = units; unit->name != NULL; unit++)
		if (kvw_slice_equal(rest, kvw_slice_of(unit->name)))
			return __builtin_mul_overflow(value, unit->factor, out) ? KVW_EINVAL
										: KVW_OK;
	while (rest.len > 0 && rest.data[0] == ' ')
		rest = (struct kvw_slice){rest.data + 1, rest.len - 1};
	for (const struct unit *unit = units; unit->name != NULL; unit++) {
		bool likely = kvw_slice_equal(rest, kvw_slice_of(unit->name));

		for (size_t i = 0; unit->mistaken[i] != NULL && !likely; i++)
			likely = kvw_slice_equal(rest, kvw_slice_of(unit->mistaken[i]));
		if (likely) {
			kvw_fault_suggest(fault, "%" PRIu64 "%s", value, unit->name);
			break;
		}
	}
	return KVW_EINVAL;
}

static enum kvw_err parse_size(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	(void)type, (void)strategies;
	return parse_measure(size_units, text, &out->size, fault);
}

static enum kvw_err parse_duration(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	uint64_t ms = 0;
	enum kvw_err err = parse_measure(duration_units, text, &ms, fault);

	(void)type, (void)strategies;
	if (err == KVW_OK && ms > INT64_MAX)
		err = KVW_EINVAL;
	if (err == KVW_OK)
		out->integer = (int64_t)ms;
	return err;
}

static enum kvw_err parse_time(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	union kvw_value value;
	enum kvw_err err = parse_duration(type, text, strategies, &value, fault);

	if (err == KVW_OK && (uint64_t)value.integer > UINT64_MAX / NS_PER_MS)
		err = KVW_EINVAL;
	if (err == KVW_OK)
		out->size = (uint64_t)value.integer * NS_PER_MS;
	return err;
}

/* Returns whether the text is [-]digits[.digits][e[+-]digits]. strtod alone would accept more (hex,
 * inf, nan). */
static bool is_decimal(const char *text)
{
	size_t whole, part;

	text += *text == '-';
	whole = strspn(text, "0123456789");
	text += whole;
	if (*text == '.') {
		part = strspn(text + 1, "0123456789");
		if (part == 0)
			return false;
		text += 1 + part;
	}
	if (*text == 'e' || *text == 'E') {
		text++;
		text += *text == '-' || *text == '+';
		part = strspn(text, "0123456789");
		if (part == 0)
			return false;
		text += part;
	}
	return whole > 0 && *text == '\0';
}

static enum kvw_err parse_ratio(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	char copy[64];
	char *end = NULL;
	double value;

	(void)type, (void)strategies, (void)fault;
	if (text.len >= sizeof(copy))
		return KVW_EINVAL;
	memcpy(copy, text.data, text.len);
	copy[text.len] = '\0';
	if (strlen(copy) != text.len || !is_decimal(copy))
		return KVW_EINVAL;
	errno = 0;
	value = strtod(copy, &end);
	if (*end != '\0' || (errno == ERANGE && (value > 1 || value < -1)))
		return KVW_EINVAL;
	out->ratio = value;
	return KVW_OK;
}

static int compare_integers(const union kvw_value *a, const union kvw_value *b)
{
	return (a->integer > b->integer) - (a->integer < b->integer);
}

static int compare_sizes(const union kvw_value *a, const union kvw_value *b)
{
	return (a->size > b->size) - (a->size < b->size);
}

static int compare_counts(const union kvw_value *a, const union kvw_value *b)
{
	return (a->count > b->count) - (a->count < b->count);
}

static int compare_nodes(const union kvw_value *a, const union kvw_value *b)
{
	return (a->word > b->word) - (a->word < b->word);
}

/* NaN counts as beyond every limit. */
static int compare_ratios(const union kvw_value *a, const union kvw_value *b)
{
	if (isnan(a->ratio))
		return 1;
	return (a->ratio > b->ratio) - (a->ratio < b->ratio);
}

static void print_flag(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room)
{
	(void)type;
	snprintf(out, room, "%s", value->word != 0 ? "true" : "false");
}

static void print_bool(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room)
{
	(void)type;
	snprintf(out, room, "%s", value->flag ? "true" : "false");
}

static void print_int(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room)
{
	(void)type;
	snprintf(out, room, "%" PRId64, value->integer);
}

static void print_count(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room)
{
	(void)type;
	snprintf(out, room, "%" PRIu32, value->count);
}

static void print_node(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room)
{
	(void)type;
	snprintf(out, room, "%d", value->word);
}

static void print_ratio(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room)
{
	(void)type;
	snprintf(out, room, "%.15g", value->ratio);
	if (strtod(out, NULL) < value->ratio || strtod(out, NULL) > value->ratio)
		snprintf(out, room, "%.17g", value->ratio);
}

/* Writes a number in the largest unit, from `units` on, that divides it. */
static void print_measure(const struct unit *units, uint64_t number, char *out, size_t room)
{
	const struct unit *best = units;

	for (const struct unit *unit = units; number != 0 && unit->name != NULL; unit++)
		if (number % unit->factor == 0)
			best = unit;
	snprintf(out, room, "%" PRIu64 "%s", number / best->factor, best->name);
}

static void print_size(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room)
{
	(void)type;
	print_measure(size_units, value->size, out, room);
}

static void print_ms(uint64_t ms, char *out, size_t room)
{
	print_measure(ms == 0 ? duration_units + 1 : duration_units, ms, out, room); /* "0s" */
}

static void print_duration(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room)
{
	(void)type;
	print_ms((uint64_t)value->integer, out, room);
}

/* Drops nanoseconds that no unit can express; only C callers can set them. */
static void print_time(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room)
{
	(void)type;
	print_ms(value->size / NS_PER_MS, out, room);
}

#define BYTES_EXPECTED "a size such as 64MiB (KiB, MiB, GiB, TiB or plain bytes)"
#define TIME_EXPECTED  "a duration such as 250ms, 2s, 10m or 1h"

#define NUMBER_TYPE(type, words, says, member, parser, comparer, printer, ...)                     \
	const struct kvw_type kvw_type_##type = {.name = (words),                                  \
		.expected = (says),                                                                \
		.size = sizeof(((union kvw_value *)NULL)->member),                                 \
		.parse = (parser),                                                                 \
		.compare = (comparer),                                                             \
		.print = (printer),                                                                \
		__VA_ARGS__}

NUMBER_TYPE(BOOL, "truth value", "true or false", flag, parse_bool, NULL, print_bool, );
NUMBER_TYPE(FLAG, "truth value", "true or false", word, parse_flag, NULL, print_flag, );
NUMBER_TYPE(
	INT, "whole number", "a whole number", integer, parse_int, compare_integers, print_int, );
NUMBER_TYPE(
	COUNT, "whole number", "a whole number", count, parse_count, compare_counts, print_count, );
NUMBER_TYPE(NODE, "whole number", "a whole number", word, parse_node, compare_nodes, print_node, );
NUMBER_TYPE(AUTO_COUNT, "whole number or `auto`", "auto, or a whole number", count, parse_count,
	compare_counts, print_count, .automatic = true);
NUMBER_TYPE(SIZE, "size", BYTES_EXPECTED, size, parse_size, compare_sizes, print_size, );
NUMBER_TYPE(AUTO_SIZE, "size or `auto`", "auto, or " BYTES_EXPECTED, size, parse_size,
	compare_sizes, print_size, .automatic = true);
NUMBER_TYPE(DURATION, "duration", TIME_EXPECTED, integer, parse_duration, compare_integers,
	print_duration, );
NUMBER_TYPE(TIME, "duration", TIME_EXPECTED, size, parse_time, compare_sizes, print_time, );
NUMBER_TYPE(RATIO, "number", "a number such as 0.25", ratio, parse_ratio, compare_ratios,
	print_ratio, );
