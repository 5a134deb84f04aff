/*
 * broadcast_call.h - one worker's part of a broadcast: sends the request, updates what kvway knows
 * of the worker, and keeps the answer as JSON. Private to broadcast.c.
 *
 * Threads: the control thread.
 */
#ifndef KVW_ADMIN_BROADCAST_CALL_H
#define KVW_ADMIN_BROADCAST_CALL_H

#include <jansson.h>

#include "fleet/curl_loop.h"
#include "fleet/probe.h"
#include "fleet/probe_request.h"

struct cast;

/* Effects that a request has on a worker that carries it out. Bits. */
enum kvw_effect { KVW_SLEEPS = 1, KVW_WAKES = 2, KVW_EMPTIES = 4, KVW_OTHER_MODELS = 8 };

/* The question to all workers of a broadcast. All borrowed, until the last call has ended. */
struct kvw_broadcast_ask {
	int effects;
	const char *method, *target;
	const char *body, *type; /* type: a field line */
	size_t body_len;
};

/* A call to one worker. Zeroed: none. */
struct kvw_call {
	struct cast *cast;         /* the cast to which the call belongs */
	struct kvw_worker *worker; /* held until the call has ended */
	char *id;                  /* owned */
	struct kvw_probe_request request;
	char *body;
	size_t len;
	/* barred: this call has barred the worker from requests; cut: the answer was longer than is
	 * kept */
	bool running, barred, cut;
	long status; /* HTTP status of the answer; 0: there is none, and `error` says why */
	char error[CURL_ERROR_SIZE];
};

/* Starts the call. False: it has ended already, and call->error says why. */
bool kvw_call_start(struct kvw_call *call, const struct kvw_broadcast_ask *ask,
	struct kvw_fleet *fleet, struct kvw_curl_loop *curl);

/* Handles the end of the transfer with this code. prober NULL: there is none. */
void kvw_call_end(struct kvw_call *call, const struct kvw_broadcast_ask *ask, CURLcode code,
	struct kvw_fleet *fleet, struct kvw_prober *prober);

/* Returns the result of the call. NULL: out of memory. */
json_t *kvw_call_json(const struct kvw_call *call);

/* Aborts the call if it runs, and frees its memory. */
void kvw_call_release(struct kvw_call *call, struct kvw_curl_loop *curl);

#endif
