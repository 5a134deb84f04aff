/*
 * access_line.h - formats a request as one line of JSON for the access log.
 */
#ifndef KVW_ACCESS_LINE_H
#define KVW_ACCESS_LINE_H

#include "base/record.h"

/* Longest line, its newline included. Long names, targets and ids are cut to fit. */
#define KVW_ACCESS_LINE_MAX 5664

/* The text of the present second, kept by the formatting thread, since most lines can use it again.
 * Zeroed: none yet. */
struct kvw_access_clock {
	int64_t second; /* second since 1970 */
	char text[20];  /* 2026-01-31T12:00:00 */
};

/* Writes the line to out[KVW_ACCESS_LINE_MAX], its newline included; returns its length. */
size_t kvw_access_line(
	struct kvw_access_clock *clock, const struct kvw_request_record *record, char *out);

#endif
