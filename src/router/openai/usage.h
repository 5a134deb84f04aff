/*
 * usage.h - reads token counts from an answer as it streams through.
 *
 * Finds the usage objects of completions, chat, responses, messages and Cohere's paths in a plain
 * JSON body or in SSE events, without a DOM, where these protocols put them: echoes of the request
 * do not count. Between calls at most one usage object is kept, and no other bytes. Costs a search
 * for `"usage"` at some 10 GB/s, tens of nanoseconds an event; for events with usage, and whole
 * answers, a test of each bracket and string.
 *
 * Several usage objects may pass (message_start and message_delta; one per event with continuous
 * usage statistics). A later object replaces the counts that it has: one with the prompt's length
 * replaces the cached count, too, so that no count survives from an earlier object.
 */
#ifndef KVW_USAGE_H
#define KVW_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVW_USAGE_WINDOW 1024 /* longest usage object, bytes; a longer one is ignored */

/* Zeroed by kvw_usage_init. Belongs to one exchange. */
struct kvw_usage {
	bool prompt_known, cached_known, completion_known;
	uint32_t prompt_tokens; /* whole prompt, cached tokens included */
	uint32_t cached_tokens; /* absent or null in the answer: cached_known is false */
	uint32_t completion_tokens;
	/* private */
	bool collecting; /* the window holds an object's beginning */
	bool in_string, escaped;
	bool string_ended; /* a possible key has just ended: a colon makes it one */
	/* The container of depth 2 is the `response`, `message` or `delta` that holds a usage. */
	bool held;
	uint8_t meaning; /* meaning of the next value: in usage.c */
	uint8_t key_len;
	char key[10];    /* the last string, perhaps a key; longer ones do not count */
	uint32_t depth;  /* of the answer's containers */
	uint32_t inside; /* likewise, of the object that is copied */
	char window[KVW_USAGE_WINDOW];
	size_t window_len;
};

void kvw_usage_init(struct kvw_usage *usage);

/* Next payload bytes (transfer coding removed), cut anywhere. */
void kvw_usage_feed(struct kvw_usage *usage, const char *data, size_t len);

/* Call once at the answer's end. An object that was cut is ignored. */
void kvw_usage_finish(struct kvw_usage *usage);

#endif
