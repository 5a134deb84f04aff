/*
 * write.c - writes numbers, dates and start lines.
 */
#include "http/write.h"

#include <time.h>

void kvw_write_u64(struct kvw_writer *w, uint64_t value)
{
	char digits[20];
	size_t i = sizeof(digits);

	do {
		digits[--i] = (char)('0' + value % 10);
		value /= 10;
	} while (value > 0);
	kvw_write(w, (struct kvw_slice){digits + i, sizeof(digits) - i});
}

void kvw_write_hex(struct kvw_writer *w, uint64_t value)
{
	char digits[16];
	size_t i = sizeof(digits);

	do {
		digits[--i] = "0123456789abcdef"[value & 15];
		value >>= 4;
	} while (value > 0);
	kvw_write(w, (struct kvw_slice){digits + i, sizeof(digits) - i});
}

void kvw_write_field(struct kvw_writer *w, struct kvw_slice name, struct kvw_slice value)
{
	kvw_write(w, name);
	kvw_write_literal(w, ": ");
	kvw_write(w, value);
	kvw_write_literal(w, "\r\n");
}

void kvw_status_line(struct kvw_writer *w, int status)
{
	kvw_write_literal(w, "HTTP/1.1 ");
	kvw_write_u64(w, (uint64_t)status);
	kvw_write_literal(w, " ");
	kvw_write(w, kvw_slice_of(kvw_status_text(status)));
	kvw_write_literal(w, "\r\n");
}

void kvw_chunk_line(struct kvw_writer *w, uint64_t len)
{
	kvw_write_hex(w, len);
	kvw_write_literal(w, "\r\n");
}

/* Two decimal digits at p. */
static void put_two(char *p, int value)
{
	p[0] = (char)('0' + value / 10 % 10);
	p[1] = (char)('0' + value % 10);
}

/* Formats a date as "Sun, 06 Nov 1994 08:49:37 GMT". strftime is not used because it takes names
 * from the locale. */
static void format_date(char text[32], int64_t second)
{
	static const char days[] = "SunMonTueWedThuFriSat";
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	time_t t = (time_t)second;
	struct tm tm = {0};
	int year;

	(void)gmtime_r(&t, &tm); /* fails only if the year is too large for an int */
	year = tm.tm_year + 1900;
	memcpy(text, "Sun, 06 Nov 1994 08:49:37 GMT", 30);
	memcpy(text, days + (size_t)tm.tm_wday * 3, 3);
	put_two(text + 5, tm.tm_mday);
	memcpy(text + 8, months + (size_t)tm.tm_mon * 3, 3);
	put_two(text + 12, year / 100);
	put_two(text + 14, year);
	put_two(text + 17, tm.tm_hour);
	put_two(text + 20, tm.tm_min);
	put_two(text + 23, tm.tm_sec);
}

struct kvw_slice kvw_date(struct kvw_date_cache *cache, int64_t wall_ns)
{
	int64_t second = wall_ns / 1000000000;

	if (cache->second != second || cache->text[0] == '\0') {
		format_date(cache->text, second);
		cache->second = second;
	}
	return (struct kvw_slice){cache->text, 29};
}
