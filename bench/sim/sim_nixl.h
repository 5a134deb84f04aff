/*
 * sim_nixl.h - KV cache that a decoding worker pulls from a prefilling one, as vLLM's NixlConnector.
 *
 * A request with kv_transfer_params.do_remote_decode is answered with the parameters of a transfer, and its
 * KV is held for a lease. A request with such parameters (do_remote_prefill) pulls: the worker asks the
 * one that they name over a connection of its own, and the prompt is computed but for its last token when
 * the bytes could have passed. As the real one:
 *
 *	parameters that lack something      the prompt is computed, without a word
 *	nothing listens there, or another
 *	engine does                         500
 *	the lease has passed, or the KV was
 *	pulled already                      the answer is WRONG: what lies in freed blocks is decoded
 *
 * Not modelled: the device memory that held KV takes, heartbeats that prolong a lease.
 * A worker's own; not thread-safe.
 */
#ifndef KVB_SIM_NIXL_H
#define KVB_SIM_NIXL_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/load/mem.h"
#include "bench/sim/sim_http.h"

struct kvb_exchange;
struct kvb_worker;

/* KV of another worker. Texts borrowed. */
struct kvb_nixl_source {
	const char *engine;  /* its engine id; "": any */
	const char *request; /* the name under which that worker holds it */
	const char *host;
	int port; /* port of its HTTP server */
};

/* KV that waits to be pulled. */
struct kvb_nixl_held {
	char request[160];
	int64_t until_ns; /* simulated */
	uint32_t tokens;
	bool taken;
};

#define KVB_NIXL_HELD 4096

struct kvb_nixl_counts {
	uint64_t held, pulled, wrong, refused, recomputed;
};

struct kvb_nixl {
	char engine_id[40];
	/* a ring of KVB_NIXL_HELD entries; owned; NULL: not needed so far */
	struct kvb_nixl_held *held;
	uint64_t held_count;        /* ever */
	struct kvb_nixl_counts counts;
};

/* Called for a new engine: the KV of the former one cannot be pulled. */
void kvb_nixl_restart(struct kvb_worker *worker);
void kvb_nixl_finish(struct kvb_worker *worker);

/* Called for a computed request: holds its KV, and writes the parameters of the answer; null if the
 * request did not ask for them. */
void kvb_nixl_answer(struct kvb_exchange *x, struct kvb_buf *out);

/* Called for a computed request whose answer has no parameters: holds its KV. */
void kvb_nixl_computed(struct kvb_exchange *x);

/* Begins to pull that. False: it names none. True: the request goes into the engine later, or is given
 * up. waits: what is not there yet will be; else see above, or without wrong answers (p2p) computed. */
bool kvb_nixl_pull(struct kvb_exchange *x, const struct kvb_nixl_source *source, bool waits);
/* A member `nixl` for /sim/stats. */
void kvb_nixl_stats(const struct kvb_worker *worker, struct kvb_buf *out);
/* The exchange ends. */
void kvb_nixl_drop(struct kvb_exchange *x);

/* Serves GET /sim/nixl?engine=ID&request=ID, by which another worker pulls. */
void kvb_nixl_read(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request);

#endif
