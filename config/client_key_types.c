/*
 * client_key_types.c - the types SHA-256 and date, for entries of `auth.keys_file`.
 */
#include "config/client_key_types.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/hex.h"
#include "config/config.h"

static enum kvw_err parse_digest(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	unsigned char bytes[sizeof(struct kvw_digest)];

	(void)type, (void)strategies, (void)fault;
	if (text.len != 2 * sizeof(bytes))
		return KVW_EINVAL;
	for (size_t i = 0; i < sizeof(bytes); i++) {
		int high = kvw_hex_value(text.data[2 * i]), low = kvw_hex_value(text.data[2 * i + 1]);

		if (high < 0 || low < 0)
			return KVW_EINVAL;
		bytes[i] = (unsigned char)(high << 4 | low);
	}
	memcpy(out->bytes, bytes, sizeof(bytes));
	return KVW_OK;
}

/* Reads a number of `len` digits at `at`; -1: these are no digits. */
static int digits(struct kvw_slice text, size_t at, size_t len)
{
	int value = 0;

	for (size_t i = at; i < at + len; i++) {
		if (i >= text.len || text.data[i] < '0' || text.data[i] > '9')
			return -1;
		value = value * 10 + text.data[i] - '0';
	}
	return value;
}

static bool has(struct kvw_slice text, size_t at, char c)
{
	return at < text.len && text.data[at] == c;
}

static enum kvw_err parse_date(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	struct tm tm = {.tm_year = digits(text, 0, 4) - 1900,
		.tm_mon = digits(text, 5, 2) - 1,
		.tm_mday = digits(text, 8, 2)};
	struct tm same;
	int64_t seconds;

	(void)type, (void)strategies, (void)fault;
	if (text.len == 0) {
		out->integer = 0;
		return KVW_OK;
	}
	if (!has(text, 4, '-') || !has(text, 7, '-') || (text.len != 10 && text.len != 20))
		return KVW_EINVAL;
	if (text.len == 20) {
		tm.tm_hour = digits(text, 11, 2);
		tm.tm_min = digits(text, 14, 2);
		tm.tm_sec = digits(text, 17, 2);
		if (!has(text, 10, 'T') || !has(text, 13, ':') || !has(text, 16, ':') || !has(text, 19, 'Z'))
			return KVW_EINVAL;
	}
	same = tm;
	seconds = timegm(&same);
	/* For a day or an hour that does not exist, the conversion gives another one. */
	if (tm.tm_year < 70 || seconds <= 0 || same.tm_year != tm.tm_year || same.tm_mon != tm.tm_mon ||
		same.tm_mday != tm.tm_mday || same.tm_hour != tm.tm_hour || same.tm_min != tm.tm_min ||
		same.tm_sec != tm.tm_sec)
		return KVW_EINVAL;
	out->integer = seconds;
	return KVW_OK;
}

static void print_date(const struct kvw_type *type, const union kvw_value *value, char *out, size_t room)
{
	time_t seconds = (time_t)value->integer;
	struct tm tm;

	(void)type;
	out[0] = '\0';
	if (value->integer != 0 && gmtime_r(&seconds, &tm) != NULL)
		(void)strftime(out, room, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

const struct kvw_type kvw_type_DIGEST = {
	.name = "SHA-256",
	.expected = "a SHA-256 in 64 hexadecimal digits, as `kvway key new` prints it",
	.size = sizeof(struct kvw_digest),
	.secret = true,
	.parse = parse_digest,
};

const struct kvw_type kvw_type_DATE = {
	.name = "date",
	.expected = "a date such as 2027-01-31 or 2027-01-31T18:00:00Z",
	.size = sizeof(int64_t),
	.parse = parse_date,
	.print = print_date,
};
