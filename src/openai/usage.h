/*
 * usage.h - token counts out of an answer that streams by.
 *
 * Looks for the usage object of completions, chat, responses and messages (their differing names
 * are in vLLM 0.32's recorded answers) in a plain JSON body or in SSE events, without a DOM and
 * without keeping more than the last KVW_USAGE_WINDOW bytes. Costs little: only bytes near the end
 * of an answer, or events that contain "usage", are looked at.
 */
#ifndef KVW_USAGE_H
#define KVW_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVW_USAGE_WINDOW 1024

/* Zeroed by kvw_usage_init. Belongs to one exchange. */
struct kvw_usage {
	bool prompt_known, cached_known, completion_known;
	uint32_t prompt_tokens;     /* whole prompt, cached tokens included */
	uint32_t cached_tokens;     /* absent in the answer: cached_known stays false (D8) */
	uint32_t completion_tokens;
	/* private */
	char window[KVW_USAGE_WINDOW];
	size_t window_len;
};

void kvw_usage_init(struct kvw_usage *usage);

/* Next payload bytes (transfer coding removed), cut anywhere. */
void kvw_usage_feed(struct kvw_usage *usage, const char *data, size_t len);

/* Call once at the answer's end. */
void kvw_usage_finish(struct kvw_usage *usage);

#endif
