/*
 * text.h - a growing text, and the escapes of JSON and of Prometheus labels.
 *
 * A text that could not grow remembers it (`failed`) and ignores what follows, so that writers
 * need no check after each piece: whoever takes the result checks once.
 */
#ifndef KVW_TEXT_H
#define KVW_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/slice.h"

/* Zeroed is empty. data is owned; free() it. Not NUL-terminated. */
struct kvw_text {
	char *data;
	size_t len, capacity;
	bool failed; /* memory ran out; data holds a part */
};

void kvw_text_put(struct kvw_text *text, const char *data, size_t len);
void kvw_text_string(struct kvw_text *text, const char *string);
void kvw_text_u64(struct kvw_text *text, uint64_t value);
void kvw_text_i64(struct kvw_text *text, int64_t value);
void kvw_text_double(struct kvw_text *text, double value); /* 15 digits; +Inf, -Inf, NaN */
void kvw_text_seconds(struct kvw_text *text, int64_t ns);  /* exact, for example 1.25 */
void kvw_text_json(struct kvw_text *text, struct kvw_slice value);  /* with its quotes */
void kvw_text_label(struct kvw_text *text, struct kvw_slice value); /* inside its quotes */

/*
 * Writes value as the inside of a JSON string: quotes, backslashes and controls escaped, bytes that
 * are not UTF-8 replaced by U+FFFD. Stops before the character that would not fit into `room`.
 * Returns the bytes written, at most `room`. One input byte needs at most 6.
 */
size_t kvw_json_escape(char *out, size_t room, struct kvw_slice value);

/* Decimal digits of value; returns their number, at most 20. */
size_t kvw_decimal(char *out, uint64_t value);

#endif
