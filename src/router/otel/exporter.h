/*
 * exporter.h - the thread that makes spans of ended requests and sends them to a collector.
 *
 * Requests never wait for it: loops only put records into their outboxes (trace/join.c).
 *
 * Threads: start and stop by one; the state is read by any.
 */
#ifndef KVW_OTEL_EXPORTER_H
#define KVW_OTEL_EXPORTER_H

#include <stdatomic.h>

#include "otel/settings.h"

struct kvw_fleet;
struct kvw_otel;

/* Why the spans of a request did not reach the collector, once the thread had them. */
enum kvw_otel_drop {
	KVW_OTEL_DROP_BUFFER,  /* tracing.buffer was full */
	KVW_OTEL_DROP_REFUSED, /* the collector answered with a status that says so */
	KVW_OTEL_DROP_FAILED,  /* it could not be reached, or asked for a repeat, too often */
	KVW_OTEL_DROP_STOPPED, /* kvway ended before */
	KVW_OTEL_DROPS
};

/* For metrics. */
struct kvw_otel_state {
	const struct kvw_trace *trace; /* counts what the thread has never seen */
	_Atomic uint64_t exported;     /* requests whose spans the collector has taken */
	_Atomic uint64_t dropped[KVW_OTEL_DROPS];
	_Atomic uint64_t rejected;       /* spans that it has not taken, of messages that it took */
	_Atomic uint64_t sent, repeated; /* messages; those of them that were sent before */
	_Atomic uint64_t waiting;        /* bytes of spans that wait */
};

struct kvw_otel_deps {
	const struct kvw_otel_settings *settings; /* with an endpoint */
	const struct kvw_trace *trace;
	struct kvw_fleet *fleet;
	/* Called by the thread for each request whose spans it has made. NULL: not called. */
	void (*made)(void *arg, const struct kvw_trace_story *story);
	void *arg;
};

/* Starts the thread, on which signals are blocked as on the caller's. Everything is borrowed until
 * kvw_otel_stop. KVW_ENOMEM. */
enum kvw_err kvw_otel_start(const struct kvw_otel_deps *deps, struct kvw_otel **out) KVW_MUST_CHECK;
/* Ends the thread, after at most two seconds in which it sends what waits. Called when the loops
 * have ended. NULL is allowed. */
void kvw_otel_stop(struct kvw_otel *otel);

const struct kvw_otel_state *kvw_otel_state(const struct kvw_otel *otel);

#endif
