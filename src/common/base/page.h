/*
 * page.h - a growing text, and the escapes of JSON and of Prometheus labels.
 *
 * A text that could not grow remembers the failure (`failed`) and ignores later pieces, so that
 * functions that append need not check: only the one that takes the result does.
 */
#ifndef KVW_PAGE_H
#define KVW_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/slice.h"

/* A text. All zeroes: an empty one. `data` is owned, to be freed with free(), and has no NUL at its
 * end. */
struct kvw_page {
	char *data;
	size_t len, capacity;
	bool failed; /* memory ran out, so data lacks some of the text */
};

void kvw_page_put(struct kvw_page *page, const char *data, size_t len);
void kvw_page_string(struct kvw_page *page, const char *string);
void kvw_page_u64(struct kvw_page *page, uint64_t value);
void kvw_page_i64(struct kvw_page *page, int64_t value);
void kvw_page_double(struct kvw_page *page, double value);          /* 15 digits; +Inf, -Inf, NaN */
void kvw_page_seconds(struct kvw_page *page, int64_t ns);           /* exact, for example 1.25 */
void kvw_page_json(struct kvw_page *page, struct kvw_slice value);  /* with its quotes */
/* Begins a member of a JSON object: its name, and a comma before it unless it is the first. */
void kvw_page_member(struct kvw_page *page, const char *name);
void kvw_page_label(struct kvw_page *page, struct kvw_slice value); /* inside its quotes */

/*
 * Writes value as the inside of a JSON string: quotes, backslashes and controls escaped, bytes that
 * are not UTF-8 replaced by U+FFFD. Stops before the character that would not fit into `room`.
 * Returns the bytes written, at most `room`. One input byte needs at most 6.
 */
size_t kvw_json_escape(char *out, size_t room, struct kvw_slice value);

/* Returns the length of the well-formed UTF-8 sequence at p (RFC 3629), which has `left` bytes, at
 * least 1; 0: there is none. */
size_t kvw_utf8_length(const unsigned char *p, size_t left);

/* Writes the decimal digits of a value; returns their number, at most 20. */
size_t kvw_decimal(char *out, uint64_t value);

#endif
