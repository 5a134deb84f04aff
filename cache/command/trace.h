/*
 * trace.h - events of a cache's trace, as `kvtier trace` selects and shows them.
 *
 * Requests to tiers for which a get waited belong to that get: the verb selects and shows them
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
	json_int_t get;   /* number of the get to which the event belongs; 0: none */
	/* index of that get in the list; the event's own index if it belongs to none */
	size_t head;
	/* which bits of kvt_trace_filter the event, or one that belongs to the same get, has */
	unsigned fits;
};

enum { KVT_FITS_KEY = 1, KVT_FITS_SLOW = 2, KVT_FITS_MISS = 4, KVT_FITS_FAILED = 8 };

/* The conditions that the command line gives. */
struct kvt_trace_filter {
	unsigned wanted; /* bits that an event must all have */
	const char *key; /* hex digits of a key; only the first 8 are compared */
	double slow_ms;
	size_t last;
};

/* Events of one cache; after sorting, in the order of their ends. */
struct kvt_traces {
	struct kvt_traced *items; /* owned */
	size_t count, room;
};

/* Takes over an event; JSON that is no event is ignored. Returns false if memory is short. */
bool kvt_traces_add_take(struct kvt_traces *t, json_t *event);
/* Sorts the events, and finds those that belong together and meet the conditions. */
void kvt_traces_sort(struct kvt_traces *t, const struct kvt_trace_filter *filter);
/* Prints the last of the events that meet the conditions; as_json: one line for each. Returns the
 * number of gets and other events that belong to no get. */
size_t kvt_traces_print(
	const struct kvt_traces *t, const struct kvt_trace_filter *filter, bool as_json, FILE *out);
void kvt_traces_finish(struct kvt_traces *t);

#endif
