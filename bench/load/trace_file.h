/*
 * trace_file.h - reads request traces in the format of Mooncake's public ones.
 *
 * One JSON object a line: {"timestamp": ms, "input_length": tokens, "output_length": tokens,
 * "hash_ids": [...]}. Each id names a block of the prompt (512 tokens in the public traces); equal
 * ids mean equal text up to and including that block. Source: kvcache-ai/Mooncake, FAST25-release.
 */
#ifndef KVB_TRACE_FILE_H
#define KVB_TRACE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"

/* One request of a trace. */
struct kvb_trace_row {
	int64_t timestamp_ms; /* time since the trace's beginning */
	uint32_t input_tokens;
	uint32_t output_tokens;
	uint64_t *ids; /* owned by the trace */
	size_t id_count;
};

struct kvb_trace {
	struct kvb_trace_row *rows; /* owned, in the order of timestamps */
	size_t count;
};

/*
 * Reads at most `limit` rows (0: all). KVW_EIO: the file cannot be read; KVW_EPROTO: a line has
 * another form, or is out of order; KVW_ENOTFOUND: there is no request in it. A message with the
 * line's number is written to error.
 */
enum kvw_err kvb_trace_load(
	const char *path, size_t limit, struct kvb_trace *out, FILE *error) KVW_MUST_CHECK;
void kvb_trace_finish(struct kvb_trace *trace);

#endif
