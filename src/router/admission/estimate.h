/*
 * estimate.h - predicts the fate of a request that would arrive now, without sending it.
 *
 * A gate of its own judges the request. Nothing waits in this gate; the limit on prices (as long as
 * it is fresh), the mean request and the lag are those that the loops' gates publish. Work that
 * waits in any gate counts as before this request, whatever its class and model; workers, programs
 * and deadlines are those of the real path. The estimate changes nothing.
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
	KVW_WHY_PROGRAMS, /* running programs have as much context as the workers can keep */
	KVW_WHY_PRICE     /* too expensive for the offered load, or no room for its class */
};

/* The request. */
struct kvw_estimate_ask {
	struct kvw_gate_terms terms;
	struct kvw_promise promise;
	struct kvw_turn turn;
	uint64_t tokens;     /* of its prompt */
	int64_t deadline_ns; /* useful for this time after its arrival; 0: no limit */
	uint64_t waiting;    /* requests that wait, in all loops */
	uint64_t most;       /* that may */
	uint8_t class;
	bool impatient;      /* to be refused instead of waiting */
};

struct kvw_estimate {
	enum kvw_estimated verdict;
	enum kvw_refused refusal;
	int64_t wait_ns; /* time until it could be sent */
	enum kvw_estimated_why why;
};

/* costs, wish: results of the strategy's explain for `set`. */
struct kvw_estimate kvw_estimate(struct kvw_admission *admission,
	const struct kvw_estimate_ask *ask, const struct kvw_candidates *set,
	const struct kvw_cost *costs, const struct kvw_decision *wish, int64_t now_ns);

#endif
