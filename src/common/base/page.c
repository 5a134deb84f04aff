/*
 * page.c - appends to a text, and escapes strings.
 *
 * The access log escapes every string of each request for JSON. So a table finds runs of plain
 * ASCII, which are copied whole. UTF-8 is checked because a request target may hold any byte, and
 * one bad byte would make the whole line unreadable for strict consumers of the log.
 */
#include "base/page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(struct kvw_page *page, size_t more)
{
	size_t capacity = page->capacity == 0 ? 4096 : page->capacity;
	char *data;

	if (page->failed)
		return false;
	if (more <= page->capacity - page->len)
		return true;
	while (capacity - page->len < more)
		capacity *= 2;
	data = realloc(page->data, capacity);
	if (data == NULL) {
		page->failed = true;
		return false;
	}
	page->data = data;
	page->capacity = capacity;
	return true;
}

void kvw_page_put(struct kvw_page *page, const char *data, size_t len)
{
	if (len == 0 || !reserve(page, len))
		return;
	memcpy(page->data + page->len, data, len);
	page->len += len;
}

void kvw_page_string(struct kvw_page *page, const char *string)
{
	kvw_page_put(page, string, strlen(string));
}

void kvw_page_member(struct kvw_page *page, const char *name)
{
	bool first = page->len == 0 || page->data[page->len - 1] == '{';

	kvw_page_string(page, first ? "\"" : ",\"");
	kvw_page_string(page, name);
	kvw_page_string(page, "\":");
}

size_t kvw_decimal(char *out, uint64_t value)
{
	char digits[20];
	size_t n = 0;

	do {
		digits[n++] = (char)('0' + value % 10);
		value /= 10;
	} while (value != 0);
	for (size_t i = 0; i < n; i++)
		out[i] = digits[n - 1 - i];
	return n;
}

void kvw_page_u64(struct kvw_page *page, uint64_t value)
{
	char digits[20];

	kvw_page_put(page, digits, kvw_decimal(digits, value));
}

void kvw_page_i64(struct kvw_page *page, int64_t value)
{
	if (value < 0)
		kvw_page_put(page, "-", 1);
	kvw_page_u64(page, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

void kvw_page_double(struct kvw_page *page, double value)
{
	char number[40];

	if (isnan(value)) {
		kvw_page_string(page, "NaN");
	} else if (isinf(value)) {
		kvw_page_string(page, value > 0 ? "+Inf" : "-Inf");
	} else {
		snprintf(number, sizeof(number), "%.15g", value);
		kvw_page_string(page, number);
	}
}

void kvw_page_seconds(struct kvw_page *page, int64_t ns)
{
	uint64_t magnitude = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
	uint64_t rest = magnitude % 1000000000;
	char fraction[9];
	size_t digits = 9;

	if (ns < 0)
		kvw_page_put(page, "-", 1);
	kvw_page_u64(page, magnitude / 1000000000);
	if (rest == 0)
		return;
	for (size_t i = 9; i-- > 0; rest /= 10)
		fraction[i] = (char)('0' + rest % 10);
	while (fraction[digits - 1] == '0')
		digits--;
	kvw_page_put(page, ".", 1);
	kvw_page_put(page, fraction, digits);
}

size_t kvw_utf8_length(const unsigned char *p, size_t left)
{
	unsigned char least = 0x80, most = 0xBF; /* allowed range of the second byte */
	size_t n;

	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xC2 && p[0] <= 0xDF)
		n = 2;
	else if (p[0] >= 0xE0 && p[0] <= 0xEF)
		n = 3;
	else if (p[0] >= 0xF0 && p[0] <= 0xF4)
		n = 4;
	else
		return 0;
	if (n > left)
		return 0;
	if (p[0] == 0xE0)
		least = 0xA0; /* overlong forms */
	else if (p[0] == 0xED)
		most = 0x9F; /* surrogates */
	else if (p[0] == 0xF0)
		least = 0x90;
	else if (p[0] == 0xF4)
		most = 0x8F; /* beyond U+10FFFF */
	if (p[1] < least || p[1] > most)
		return 0;
	for (size_t i = 2; i < n; i++)
		if (p[i] < 0x80 || p[i] > 0xBF)
			return 0;
	return n;
}

/* Writes the escape of the character U+00cc into out[6]. Returns its length. */
static size_t escape_code(char *out, unsigned char c)
{
	static const char hex[] = "0123456789abcdef";
	static const char shorts[] = "b\bf\fn\nr\rt\t\"\"\\\\";

	for (size_t i = 0; i + 1 < sizeof(shorts); i += 2) {
		if ((unsigned char)shorts[i + 1] == c) {
			out[0] = '\\';
			out[1] = shorts[i];
			return 2;
		}
	}
	memcpy(out, "\\u00", 4);
	out[4] = hex[c >> 4];
	out[5] = hex[c & 15];
	return 6;
}

static bool is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7F && c != '"' && c != '\\';
}

size_t kvw_json_escape(char *out, size_t room, struct kvw_slice value)
{
	const unsigned char *p = (const unsigned char *)value.data;
	size_t at = 0, i = 0;

	while (i < value.len) {
		size_t run = i, piece, used = 1;
		char escaped[6];

		while (run < value.len && run - i < room - at && is_plain(p[run]))
			run++;
		memcpy(out + at, p + i, run - i);
		at += run - i;
		i = run;
		if (i == value.len || is_plain(p[i]))
			break; /* everything is escaped, or there is no room */
		if (p[i] < 0x80) {
			piece = escape_code(escaped, p[i]);
		} else if ((used = kvw_utf8_length(p + i, value.len - i)) == 2 && p[i] == 0xC2 &&
			   p[i + 1] < 0xA0) {
			piece = escape_code(
				/* some terminals take this for a control character */
				escaped, p[i + 1]);
			;
		} else if (used > 0) {
			memcpy(escaped, p + i, used);
			piece = used;
		} else {
			memcpy(escaped, "\\ufffd", 6);
			piece = 6;
			used = 1;
		}
		if (piece > room - at)
			break;
		memcpy(out + at, escaped, piece);
		at += piece;
		i += used;
	}
	return at;
}

void kvw_page_json(struct kvw_page *page, struct kvw_slice value)
{
	if (!reserve(page, value.len * 6 + 2))
		return;
	page->data[page->len++] = '"';
	page->len += kvw_json_escape(page->data + page->len, value.len * 6, value);
	page->data[page->len++] = '"';
}

void kvw_page_label(struct kvw_page *page, struct kvw_slice value)
{
	const unsigned char *p = (const unsigned char *)value.data;

	for (size_t i = 0, n; i < value.len; i += n) {
		n = kvw_utf8_length(p + i, value.len - i);
		if (n == 0) {
			kvw_page_string(page, "\xEF\xBF\xBD");
			n = 1;
		} else if (p[i] == '\n') {
			kvw_page_put(page, "\\n", 2);
		} else if (p[i] == '"' || p[i] == '\\') {
			kvw_page_put(page, "\\", 1);
			kvw_page_put(page, value.data + i, 1);
		} else {
			kvw_page_put(page, value.data + i, n);
		}
	}
}
