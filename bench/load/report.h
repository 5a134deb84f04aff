/*
 * report.h - writes results as JSON, as a table, and several next to each other.
 */
#ifndef KVB_REPORT_H
#define KVB_REPORT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"
#include "bench/load/options.h"
#include "bench/load/outcome.h"

struct json_t;

/* Data about a run in addition to its figures. */
struct kvb_report {
	const struct kvb_options *options; /* borrowed */
	const char *model;
	const struct kvb_tally *tally; /* for the kinds of errors */
	struct kvb_result result;
	uint64_t stale;
	uint64_t retried; /* number of answers 429 and 503 after which the request was sent again */
};

/*
 * Makes the result as a JSON object, which the caller owns. An unknown figure is null: percentiles
 * without samples, or the cached share if no answer reports it.
 */
struct json_t *kvb_report_json(const struct kvb_report *report);
/* Writes it to the file that the options name, or to standard output. */
enum kvw_err kvb_report_write(const struct kvb_report *report) KVW_MUST_CHECK;
void kvb_report_print(const struct kvb_report *report, FILE *out);
/* Prints tables of files that kvb_report_write() wrote. KVW_EIO, KVW_EPROTO: a message was written
 * to error. */
enum kvw_err kvb_report_compare(char **files, size_t count, FILE *out, FILE *error) KVW_MUST_CHECK;

#endif
