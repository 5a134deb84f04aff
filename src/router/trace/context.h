/*
 * context.h - a request's place in a distributed trace, as the header field `traceparent` says it.
 *
 * Format: W3C Trace Context, https://www.w3.org/TR/trace-context/: version, 16 bytes of trace id, 8
 * bytes of the caller's span id, flags, in lower-case hexadecimal digits with hyphens between.
 *
 * Threads: pure functions.
 */
#ifndef KVW_TRACE_CONTEXT_H
#define KVW_TRACE_CONTEXT_H

#include <stdint.h>

#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_TRACEPARENT_LEN 55 /* bytes of a traceparent of version 00 */
#define KVW_TRACE_ID_LEN    32 /* digits of a trace id */
#define KVW_TRACE_SAMPLED   1  /* flag: the caller records the trace */
#define KVW_TRACE_RANDOM    2  /* flag: the trace id was chosen at random */

struct kvw_trace_context {
	uint64_t trace[2]; /* the trace id: its first 8 bytes, and its last */
	uint64_t parent;   /* span id of the caller; 0: kvway began the trace */
	uint64_t span;     /* span id of kvway's own span; 0: there is no context */
	uint8_t flags;
};

/* Reads a field's value into trace, parent and flags of *out. False: it is not valid, and kvway
 * must begin a trace of its own. Of a later version only what version 00 has is read. */
bool kvw_traceparent_read(struct kvw_slice value, struct kvw_trace_context *out) KVW_MUST_CHECK;

/* Writes the field's value that names `span` as the caller; no NUL. */
void kvw_traceparent_write(
	char out[KVW_TRACEPARENT_LEN], const uint64_t trace[2], uint64_t span, uint8_t flags);

/* Write hexadecimal digits, and no NUL: of the trace id, of one number. */
void kvw_trace_id(char out[KVW_TRACE_ID_LEN], const struct kvw_trace_context *context);
void kvw_trace_hex(char out[16], uint64_t value);

#endif
