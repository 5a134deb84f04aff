/*
 * trace.h - events of a cache's trace, as `kvtier trace` chooses and shows them.
 *
 * Requests to tiers that a get waited for belong to that get: the verb chooses and shows them
 * together.
 */
#ifndef KVT_COMMAND_TRACE_H
#define KVT_COMMAND_TRACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct kvt_traced {
	json_t *json;     /* owned */
	const char *time; /* "ts"; borrowed from json */
	json_int_t get;   /* number of the event's get; 0: none */
	size_t head;      /* index of the get that the event belongs to, or its own */
	unsigned fits; /* bits of kvt_trace_filter that the event, or an event of its get, fits */
};

enum { KVT_FITS_KEY = 1, KVT_FITS_SLOW = 2, KVT_FITS_MISS = 4, KVT_FITS_FAILED = 8 };

/* The conditions of the command line. */
struct kvt_trace_filter {
	unsigned wanted; /* bits that must all fit */
	const char *key; /* hex digits; the first 8 count */
	double slow_ms;
	size_t last;
};

/* Events of one cache; once sorted, in the order of their ends. */
struct kvt_traces {
	struct kvt_traced *items; /* owned */
	size_t count, room;
};

/* Takes an event; ignores JSON that is none. False: no memory. */
bool kvt_traces_add_take(struct kvt_traces *t, json_t *event);
/* Sorts, and finds events that belong together and fit. */
void kvt_traces_sort(struct kvt_traces *t, const struct kvt_trace_filter *filter);
/* Prints the last events that fit; as_json: a line for each. Returns the number of heads. */
size_t kvt_traces_print(
	const struct kvt_traces *t, const struct kvt_trace_filter *filter, bool as_json, FILE *out);
void kvt_traces_finish(struct kvt_traces *t);

#endif
