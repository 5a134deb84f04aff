/*
 * estimate.h - what would become of a request that came now, without sending it.
 *
 * An estimate: it looks at what all loops share, the workers' paces and queues and the work that waits in
 * all gates. It takes all of that work as before this request, whatever its class and model, and knows of
 * no price limit, no program and no lag that a gate has learned. Nothing changes by it.
 *
 * Threads: any.
 */
#ifndef KVW_ESTIMATE_H
#define KVW_ESTIMATE_H

#include "admission/gate.h"

enum kvw_estimated { KVW_WOULD_GO, KVW_WOULD_WAIT, KVW_WOULD_BE_REFUSED };

/* The request. */
struct kvw_estimate_ask {
	struct kvw_gate_terms terms;
	struct kvw_promise promise;
	uint64_t tokens; /* of its prompt */
	uint8_t class;
	bool impatient;  /* it is refused rather than that it waits */
};

struct kvw_estimate {
	enum kvw_estimated verdict;
	enum kvw_refused refusal;
	int64_t wait_ns;    /* until it could be sent */
	bool behind_others; /* what waits already is a part of that */
};

/* costs, wish: as the strategy's explain gives them for `set`. */
struct kvw_estimate kvw_estimate(struct kvw_admission *admission, const struct kvw_estimate_ask *ask,
	const struct kvw_candidates *set, const struct kvw_cost *costs,
	const struct kvw_decision *wish, int64_t now_ns);

#endif
