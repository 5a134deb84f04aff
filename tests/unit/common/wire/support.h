/*
 * support.h - recorded frames from files, bytes from hex, and text to compare.
 *
 * Bytes live in a block of exactly their size, so that a sanitizer sees one byte read too far.
 */
#ifndef KVT_KV_SUPPORT_H
#define KVT_KV_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

#include "kvway/slice.h"

struct bytes {
	uint8_t *data; /* owned */
	size_t len;
};

struct bytes bytes_of_hex(const char *hex); /* blanks are ignored, as is a lone "-" */
struct bytes bytes_copy(const void *data, size_t len);
struct bytes bytes_of_text(const char *text);
void bytes_free(struct bytes *bytes);

static inline struct kvw_slice slice_of(struct bytes bytes)
{
	return (struct kvw_slice){(const char *)bytes.data, bytes.len};
}

/* A line that grows. */
struct text {
	char *data; /* owned */
	size_t len, size;
};

void text_clear(struct text *text);
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *text);

/* Lines of a file in data/ that begin neither with '#' nor are empty. */
struct lines {
	char *content; /* owned */
	char **items;  /* owned */
	size_t count;
};

struct lines lines_read(const char *name);
void lines_free(struct lines *lines);

/* What follows "key " in a line, NULL if the line begins otherwise. */
const char *line_value(const char *line, const char *key);

#endif
