/*
 * estimate.h - predicts the fate of a request that would arrive now, without sending it.
 *
 * A temporary gate judges the request. No request waits in it; the limit on prices (as long as it
 * is recent), the mean request and the lag are those that the loops' gates have published. Work
 * that waits in any gate counts as ahead of this request, whatever its class and model; workers,
 * programs and deadlines are judged as for real requests. The estimate changes nothing.
 *
 * Threads: any.
 */
#ifndef KVW_ESTIMATE_H
#define KVW_ESTIMATE_H

#include "admission/gate.h"

enum kvw_estimated { KVW_WOULD_GO, KVW_WOULD_WAIT, KVW_WOULD_BE_REFUSED };

/* Why the request would wait; the last reason that applies. */
enum kvw_estimated_why {
	KVW_WHY_WORKERS,  /* no worker can take it yet */
	KVW_WHY_OTHERS,   /* others wait already */
	/* running programs already have as much context as the workers can keep */
	KVW_WHY_PROGRAMS,
	/* the request is too expensive for the offered load, or its class has no room */
	KVW_WHY_PRICE
};

/* The request. */
struct kvw_estimate_ask {
	struct kvw_gate_terms terms;
	struct kvw_promise promise;
	struct kvw_turn turn;
	uint64_t tokens;     /* tokens of its prompt */
	/* the request is useful for this long after its arrival; 0: no limit */
	int64_t deadline_ns;
	uint64_t waiting;    /* number of waiting requests, in all loops */
	uint64_t most;       /* that may */
	uint8_t class;
	bool impatient;      /* the request is to be refused instead of waiting */
};

struct kvw_estimate {
	enum kvw_estimated verdict;
	enum kvw_refused refusal;
	int64_t wait_ns; /* time until the request could be sent */
	enum kvw_estimated_why why;
};

/* Estimates a request's fate. costs, wish: what the strategy's explain returned for `set`. */
struct kvw_estimate kvw_estimate(struct kvw_admission *admission,
	const struct kvw_estimate_ask *ask, const struct kvw_candidates *set,
	const struct kvw_cost *costs, const struct kvw_decision *wish, int64_t now_ns);

#endif
