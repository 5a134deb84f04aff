/*
 * trace.h - events of a cache's trace, as `kvtier trace` chooses and shows them.
 *
 * Requests to tiers that a get waited for belong to it: they are chosen and shown with it.
 */
#ifndef KVT_COMMAND_TRACE_H
#define KVT_COMMAND_TRACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct kvt_traced {
	json_t *json;     /* owned */
	const char *time; /* "ts"; of json */
	json_int_t get;   /* number of the get that it is, or is for; 0: none */
	size_t head;      /* index of the get that it belongs to, or its own */
	unsigned fits;    /* enum of kvt_trace_filter that it, or what belongs to it, fits */
};

enum { KVT_FITS_KEY = 1, KVT_FITS_SLOW = 2, KVT_FITS_MISS = 4, KVT_FITS_FAILED = 8 };

/* What is asked for. */
struct kvt_trace_filter {
	unsigned wanted; /* all of these */
	const char *key; /* hex digits; the first 8 count */
	double slow_ms;
	size_t last;
};

/* Events of one cache, in the order in which they ended once they are sorted. */
struct kvt_traces {
	struct kvt_traced *items; /* owned */
	size_t count, room;
};

/* Takes an event; what is none is left out. False: no memory. */
bool kvt_traces_add_take(struct kvt_traces *t, json_t *event);
/* Sorts, and finds what belongs together and fits. */
void kvt_traces_sort(struct kvt_traces *t, const struct kvt_trace_filter *filter);
/* The last ones that fit; as_json: a line for each. Returns how many heads there were. */
size_t kvt_traces_print(
	const struct kvt_traces *t, const struct kvt_trace_filter *filter, bool as_json, FILE *out);
void kvt_traces_finish(struct kvt_traces *t);

#endif
