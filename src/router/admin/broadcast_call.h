/*
 * broadcast_call.h - one worker's part of a broadcast: the request to it, the change of kvway's
 * state that follows from the answer, and that answer as JSON. Private to broadcast.c.
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

/* Effects of a request on a worker that carries it out. Bits. */
enum kvw_effect { KVW_SLEEPS = 1, KVW_WAKES = 2, KVW_EMPTIES = 4, KVW_OTHER_MODELS = 8 };

/* The question to all workers of a broadcast. All borrowed, until the last call has ended. */
struct kvw_broadcast_ask {
	int effects;
	const char *method, *target;
	const char *body, *type; /* type: a field line */
	size_t body_len;
};

/* Zeroed it stands for nothing. */
struct kvw_call {
	struct cast *cast;         /* of the caller */
	struct kvw_worker *worker; /* held until it has ended */
	char *id;                  /* owned */
	struct kvw_probe_request request;
	char *body;
	size_t len;
	bool running, barred, cut; /* barred: by this call. cut: its answer is longer */
	long status;               /* 0: error says why there is none */
	char error[CURL_ERROR_SIZE];
};

/* False: it has ended, and call->error says why. */
bool kvw_call_start(struct kvw_call *call, const struct kvw_broadcast_ask *ask,
	struct kvw_fleet *fleet, struct kvw_curl_loop *curl);

/* curl has ended it with this code. prober: NULL, there is none. */
void kvw_call_end(struct kvw_call *call, const struct kvw_broadcast_ask *ask, CURLcode code,
	struct kvw_fleet *fleet, struct kvw_prober *prober);

/* Result of the call. NULL: out of memory. */
json_t *kvw_call_json(const struct kvw_call *call);

/* Aborts the call if it runs, and frees its memory. */
void kvw_call_release(struct kvw_call *call, struct kvw_curl_loop *curl);

#endif
