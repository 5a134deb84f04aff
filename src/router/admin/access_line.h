/*
 * access_line.h - one request as one line of JSON.
 */
#ifndef KVW_ACCESS_LINE_H
#define KVW_ACCESS_LINE_H

#include "base/record.h"

/* Longest line, its newline included. Long names, targets and ids are cut to fit. */
#define KVW_ACCESS_LINE_MAX 5400

/* The text of a second, kept by the formatting thread: most lines reuse it. Zeroed: none. */
struct kvw_access_clock {
	int64_t second; /* since 1970 */
	char text[20];  /* 2026-01-31T12:00:00 */
};

/* Writes the line to out[KVW_ACCESS_LINE_MAX], its newline included; returns its length. */
size_t kvw_access_line(
	struct kvw_access_clock *clock, const struct kvw_request_record *record, char *out);

#endif
