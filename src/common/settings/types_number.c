/*
 * types_number.c - truth values, numbers, sizes and durations.
 *
 * Written forms are few and exact, so that two people read the same file alike: no octal or hex, no
 * underscores, no "MB" that may mean a million, no duration without its unit. A near miss gets a
 * suggestion instead.
 */
#include "settings/types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A unit of sizes or durations. */
struct unit {
	const char *name;
	uint64_t factor;
	const char *const *mistaken; /* other spellings, for the suggestion; NULL-terminated */
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

/* Digits at the front of text. False: none, or more than fits. */
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

/* [-]digits[.digits][e[+-]digits]: leaves out what strtod knows beyond that (hex, inf, nan). */
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

static int compare_ratios(const union kvw_value *a, const union kvw_value *b)
{
	return (a->ratio > b->ratio) - (a->ratio < b->ratio);
}

const struct kvw_type kvw_type_BOOL = {
	.name = "truth value",
	.expected = "true or false",
	.size = sizeof(bool),
	.parse = parse_bool,
};

const struct kvw_type kvw_type_INT = {
	.name = "whole number",
	.expected = "a whole number",
	.size = sizeof(int64_t),
	.parse = parse_int,
	.compare = compare_integers,
};

const struct kvw_type kvw_type_SIZE = {
	.name = "size",
	.expected = "a size such as 64MiB (KiB, MiB, GiB, TiB or plain bytes)",
	.size = sizeof(uint64_t),
	.parse = parse_size,
	.compare = compare_sizes,
};

const struct kvw_type kvw_type_DURATION = {
	.name = "duration",
	.expected = "a duration such as 250ms, 2s, 10m or 1h",
	.size = sizeof(int64_t),
	.parse = parse_duration,
	.compare = compare_integers,
};

const struct kvw_type kvw_type_RATIO = {
	.name = "number",
	.expected = "a number such as 0.25",
	.size = sizeof(double),
	.parse = parse_ratio,
	.compare = compare_ratios,
};
