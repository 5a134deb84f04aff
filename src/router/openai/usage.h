/*
 * usage.h - reads token counts from an answer as it streams through.
 *
 * The functions find the usage objects of completions, chat, responses, messages and Cohere's paths
 * in a plain JSON body or in SSE events, without building a tree, and only where these protocols
 * put them: echoes of the request do not count. Between calls at most one usage object is kept, and
 * no other bytes. Costs a search for `"usage"` at some 10 GB/s, tens of nanoseconds an event; for
 * events with usage, and whole answers, a test of each bracket and string.
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
	uint32_t prompt_tokens; /* the whole prompt, including cached tokens */
	uint32_t cached_tokens; /* valid if cached_known; the answer may not state it */
	uint32_t completion_tokens;
	/* private */
	bool begun;      /* a byte other than white space has been seen */
	bool in_body;    /* in the object with which the answer begins: no event */
	bool collecting; /* the window has the beginning of an object */
	bool in_string, escaped;
	/* a string that may be a key has just ended: a colon would make it one */
	bool string_ended;
	/* The container of depth 2 is a `response`, `message` or `delta`, which may hold a
	 * usage. */
	bool held;
	uint8_t meaning; /* meaning of the next value (an enum in usage.c) */
	uint8_t key_len;
	char key[10];    /* the last string, which may be a key; longer strings do not count */
	uint32_t depth;  /* depth of containers in the answer */
	uint32_t inside; /* the same within the object that is being copied */
	char window[KVW_USAGE_WINDOW];
	size_t window_len;
};

void kvw_usage_init(struct kvw_usage *usage);

/* Takes the next payload bytes of the answer (without transfer coding), cut anywhere. */
void kvw_usage_feed(struct kvw_usage *usage, const char *data, size_t len);

/* Called once at the answer's end. An incomplete object is ignored. */
void kvw_usage_finish(struct kvw_usage *usage);

#endif
