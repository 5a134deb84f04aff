/*
 * gate.h - the requests of one model that wait in one event loop.
 *
 * A request that has been understood is offered: if nothing waits before it and a worker can take
 * it, it goes on at once (kvw_gate_open, then kvw_gate_passed). Otherwise the strategy says what
 * the request would cost on each worker (explain), kvw_gate_judge chooses a worker and the time by
 * which the request must be sent, and the request waits. Whenever something has changed,
 * kvw_gate_next says which request is to be sent or refused; before it sends a request it has the
 * request judged again, since caches and loads of the workers have changed.
 *
 * The worker of a judged request is the one with the lowest cost, including the time until that
 * worker can take a prompt and the work that it should have done by now. A long prompt counts more
 * on a worker that answers many streams: it holds all of them up. Where the strategy does not weigh
 * costs, its choice stands.
 *
 * A request without a promised time to first token is not refused by prediction. Such requests wait
 * in order of arrival, for max_wait at most; then each goes to the worker that costs least, whose
 * engine queues it.
 *
 * A request that could not keep its promise on an idle worker is not refused for that: its limit is
 * one and a half times the time that it needs there.
 *
 * A request whose class has no room after more important ones goes to a worker that has nothing to
 * do when no other can take it. A request that has waited for half of max_wait counts as one class
 * better.
 *
 * Threads: a gate belongs to one event loop; `admission` is shared.
 */
#ifndef KVW_GATE_H
#define KVW_GATE_H

#include "admission/admission.h"
#include "admission/price.h"
#include "admission/queue.h"
#include "kvway/route.h"

/* Times that a request is promised; 0: no promise. */
struct kvw_promise {
	int64_t ttft_ns, ttft_per_1k_ns, tpot_ns;
};

/* Promised time to the first token of a prompt of this many tokens; 0: no promise. */
static inline int64_t kvw_promise_first_ns(const struct kvw_promise *promise, uint64_t tokens)
{
	return promise->ttft_ns +
	       (int64_t)((double)tokens / 1000 * (double)promise->ttft_per_1k_ns);
}

struct kvw_gate_terms {
	int64_t max_wait_ns;
	int64_t ahead_ns; /* of work that a worker may have before it without a promise */
};

enum kvw_refused {
	KVW_REFUSED_NONE,
	KVW_REFUSED_SERVICE_LEVEL, /* the promise cannot be kept */
	/* The request has waited for max_wait (with a promise, or for engines that are full), or
	 * for as long as its deadline allows. */
	KVW_REFUSED_DEADLINE,
	KVW_REFUSED_QUEUE_FULL,    /* too many requests wait, or the client does not want to */
	KVW_REFUSED_COUNT
};

enum kvw_next { KVW_NOTHING, KVW_SEND, KVW_REFUSE };

/* A request as the gate knows it. The owner zeroes it, and sets `wait.class` and the members marked
 * as the owner's. */
struct kvw_entrant {
	struct kvw_waiter wait;     /* first: a queue holds this */
	struct kvw_promise promise; /* the owner's */
	struct kvw_turn turn;       /* the owner's */
	uint64_t tokens;            /* of its prompt; the owner's, before kvw_gate_judge */
	int64_t deadline_ns;        /* it is of no use later, by its client; 0: none. The owner's */
	/* Index of the chosen worker among the candidates of the last judgement. */
	size_t pos;
	enum kvw_refused refusal;
	int64_t retry_after_ns;     /* if the request is refused */
	bool offered;               /* it counts in the price */
	/* Will kvway see the first token? The owner's, before kvw_gate_passed. */
	bool shows;
	bool sent, answered, stream, follows; /* as passed to kvw_pace */
	int64_t undone_ns;          /* work_ns, as passed to it; 0: its first token does not show */
	int64_t expected_ns;        /* its time to first token when it was sent, as predicted */
	/* expected_ns, corrected by the rate that the workers have shown. */
	int64_t counted_ns;
	int64_t sent_ns;
	uint64_t held_tokens;       /* cached on the worker that holds most of the prompt */
	double whole_ns;            /* prefill on a worker that holds none of the prompt */
	int64_t wait_ns;            /* until it can be sent there, by the last judgement */
};

/* Judges `entrant` by the strategy's explain and kvw_gate_judge.
 * False: it cannot go anywhere now. */
typedef bool kvw_gate_judge_fn(void *user, struct kvw_entrant *entrant, int64_t now_ns);

#define KVW_OPEN_NS INT64_C(500000)

/* A worker as a gate has seen it. It looks once at a time of its calls, and again when it has
 * learned something of the worker; where a request would go it looks in any case. */
struct kvw_outlook {
	uint64_t epoch;   /* of the outlooks when it looked */
	int64_t queue_ns; /* time that its unanswered work will really take */
	struct kvw_pace_seen pace;
	uint32_t foreign_running; /* requests of others that it answers */
	bool foreign;             /* others that ask it directly wait there, or it is full */
};

/* Outlooks on all workers, shared by all gates of a loop: 50 KB. Zeroed at first. */
struct kvw_outlooks {
	int64_t seen_ns; /* the time and rate of `epoch` */
	double seen_rate;
	uint64_t epoch;  /* another time: workers are looked at again */
	struct kvw_outlook workers[KVW_MAX_WORKERS]; /* by id */
};

/* A loop has one gate for each model that was asked for lately, so a gate is small. */
struct kvw_gate {
	struct kvw_admission *admission;
	struct kvw_outlooks *outlooks; /* of the loop; borrowed */
	struct kvw_gate_terms terms;
	struct kvw_queue queue;
	struct kvw_price price;
	double mean_ns;      /* work of a request, in the mean */
	double lag;          /* actual over predicted time to first token: four of five are below */
	double more_ns;      /* ns beyond lag times the prediction: nine of ten are below */
	size_t usable;       /* workers among the candidates of the last judgement */
	bool any_open;       /* one of them can take a prompt */
	bool any_idle;       /* one of them has nothing to do */
	/* The engine of each candidate, usable or not, would refuse a prompt. */
	bool all_full;
	/* Requests of others, or the engines' own limits, keep a prompt out of every worker. */
	bool all_foreign;
	double ahead_sum_ns; /* until they can, in sum */
	int64_t open_until_ns; /* all workers count as open */
	int64_t open_ahead_ns; /* for a request that may have so much before it */
	int64_t planned_ns;  /* when the queue was planned last */
	int64_t due_ns;      /* none that waits is overdue before */
	/* Requests have been overdue since late_since_ns; the last one was at late_ns. */
	int64_t late_since_ns, late_ns;
	/* This gate's part of the sums in admission. */
	int64_t told_waiting_ns, told_first_ns, told_offered;
	int64_t told_ns;     /* the latter: since when */
	uint64_t of;         /* the owner's: whose it is */
	uint32_t users;      /* the owner's: requests that came to it and have not ended */
	int64_t used_ns;     /* the owner's: when the last of these came */
};

void kvw_gate_init(
	struct kvw_gate *gate, struct kvw_admission *admission, struct kvw_outlooks *outlooks);
void kvw_gate_finish(struct kvw_gate *gate); /* nothing waits */

static inline size_t kvw_gate_waiting(const struct kvw_gate *gate)
{
	return gate->queue.count;
}

/* Is the queue full? waiting: requests that wait in this loop; most: limit for all loops. */
static inline bool kvw_gate_is_full(uint64_t waiting, uint64_t loops, uint64_t most)
{
	return waiting * loops >= most;
}

/* Would the entrant's program push out contexts to which running programs will come back? Then the
 * entrant waits if it cannot go at once. Reads the turn and the results of kvw_gate_judge. */
bool kvw_gate_crowds(const struct kvw_gate *gate, const struct kvw_entrant *entrant);
#define KVW_CROWDED_NS INT64_C(30000000000) /* until a program has ended, perhaps */

/* Can each of these workers take this prompt now? Reads the entrant's promise. A yes holds for the
 * next KVW_OPEN_NS, or until this gate fills a worker: looking at a thousand workers takes longer
 * than to route a request. */
bool kvw_gate_open(struct kvw_gate *gate, const struct kvw_entrant *entrant,
	const struct kvw_candidates *set, int64_t now_ns);

/* Chooses the entrant's worker and the time by which it must be sent; not for an entrant that is
 * sent. costs, wish: costs and decision of the strategy's explain. False: no worker. */
bool kvw_gate_judge(struct kvw_gate *gate, struct kvw_entrant *entrant,
	const struct kvw_candidates *set, const struct kvw_cost *costs,
	const struct kvw_decision *wish, int64_t now_ns);

/* A judged request waits from now on; it came at wait.came_ns. KVW_ENOMEM: it does not. */
enum kvw_err kvw_gate_wait(
	struct kvw_gate *gate, struct kvw_entrant *entrant, int64_t now_ns) KVW_MUST_CHECK;
/* Takes the entrant out of the queue: its client has left, or it is answered otherwise. */
void kvw_gate_leave(struct kvw_gate *gate, struct kvw_entrant *entrant);

/* KVW_SEND: *out is to be sent to the worker out->wait.worker now; KVW_REFUSE: it is to be answered
 * 429. In both cases it waits no longer. To be called until it says NOTHING. */
enum kvw_next kvw_gate_next(struct kvw_gate *gate, int64_t now_ns, kvw_gate_judge_fn *judge,
	void *user, struct kvw_entrant **out);

/* Is a judged request whose wait is over sent to a busy worker? Else it is refused. A request with
 * a promise is sent while a late answer is worth more than none. A request without a promise is
 * sent, and the engine queues it, as it would have without kvway; unless the client has given up,
 * or every engine would refuse the request. */
static inline bool kvw_gate_sends_late(const struct kvw_entrant *e, int64_t now_ns)
{
	if (e->wait.promised)
		return e->wait.late == KVW_LATE_SENT && now_ns < e->wait.until_ns;
	return (e->deadline_ns == 0 || now_ns < e->deadline_ns) &&
	       e->wait_ns < KVW_LOAD_FULL_NS / 2;
}

/* After how long a request that is refused now may come back, by the waiting work and the workers'
 * rate. */
int64_t kvw_gate_retry_after_ns(const struct kvw_gate *gate);

/* When kvw_gate_next wants to be called although nothing happens; INT64_MAX: not. */
int64_t kvw_gate_wake_ns(const struct kvw_gate *gate, int64_t now_ns);

/* The request goes to a worker, by kvw_gate_next's word or because the gate was open.
 * decision: of the pick. */
void kvw_gate_passed(struct kvw_gate *gate, struct kvw_entrant *entrant,
	const struct kvw_decision *decision, int64_t now_ns);
/* stream: every further token will be passed to kvw_gate_token. */
void kvw_gate_first_token(
	struct kvw_gate *gate, struct kvw_entrant *entrant, bool stream, int64_t now_ns);
/* Notes the entrant's second token, for callers that do not use kvw_gate_token. */
void kvw_gate_follows(struct kvw_gate *gate, struct kvw_entrant *entrant);
void kvw_gate_token(
	struct kvw_gate *gate, struct kvw_entrant *entrant, int64_t gap_ns, int64_t now_ns);
/* The attempt has ended, as each that passed does once. */
void kvw_gate_ended(struct kvw_gate *gate, struct kvw_entrant *entrant, int64_t now_ns);

#endif
