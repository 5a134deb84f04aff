/*
 * gate.h - the requests of one model that wait in one event loop.
 *
 * A scanned request is offered: if none waits before it and a worker can take it, it goes on at
 * once (kvw_gate_open, then kvw_gate_passed). Otherwise the strategy computes the request's cost on
 * each worker (explain), kvw_gate_judge chooses a worker and the time by which the request must be
 * sent, and the request waits. After each change kvw_gate_next returns requests to send or to
 * refuse; it has a request judged again before that, since caches and loads of the workers have
 * changed.
 *
 * A judged request gets the worker with the lowest cost; the cost includes the time until that
 * worker can take a prompt, and work that the worker is behind with. A long prompt costs more on a
 * worker with many streams, which it delays. If the strategy does not compare costs, its choice
 * stands.
 *
 * A request without a promised time to first token is not refused by prediction. Such requests wait
 * in order of arrival, for max_wait at most; then each goes to the worker of the lowest cost, whose
 * engine queues it.
 *
 * A request that could not keep its promise even on an idle worker is not refused for that: it may
 * take one and a half times its time on an idle worker.
 *
 * A request whose class has no room after more important ones goes to an idle worker if no other
 * request can use it. A request that has waited for half of max_wait counts as one class better.
 *
 * Threads: a gate belongs to one event loop; `admission` is shared.
 */
#ifndef KVW_GATE_H
#define KVW_GATE_H

#include "admission/admission.h"
#include "admission/price.h"
#include "admission/queue.h"
#include "admission/scale.h"
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
	int64_t ahead_ns; /* limit of a worker's work before it, without a promise */
};

enum kvw_refused {
	KVW_REFUSED_NONE,
	KVW_REFUSED_SERVICE_LEVEL, /* the promise cannot be kept */
	/* The request has waited for max_wait (with a promise, or for engines that are full), or
	 * for as long as its deadline allows. */
	KVW_REFUSED_DEADLINE,
	KVW_REFUSED_QUEUE_FULL,    /* too many requests wait, or the client refuses to wait */
	KVW_REFUSED_COUNT
};

enum kvw_next { KVW_NOTHING, KVW_SEND, KVW_REFUSE };

/* A gate's view of a request. The owner zeroes it, and sets `wait.class` and the members marked as
 * the owner's. */
struct kvw_entrant {
	struct kvw_waiter wait;     /* first: a queue holds this */
	struct kvw_promise promise; /* the owner's */
	struct kvw_turn turn;       /* the owner's */
	uint64_t tokens; /* number of the prompt's tokens; set by the owner before kvw_gate_judge */
	int64_t deadline_ns;        /* the client's deadline; 0: none. Set by the owner */
	/* Index of the chosen worker among the candidates of the last judgement. */
	size_t pos;
	enum kvw_refused refusal;
	int64_t retry_after_ns;     /* Retry-After of a request that is refused */
	bool offered;               /* the request was counted in the price */
	/* Whether kvway will see the first token. Set by the owner before kvw_gate_passed. */
	bool shows;
	/* the arguments with which kvw_pace was called for this request */
	bool sent, answered, stream, follows;
	/* the work_ns that kvw_pace was given; 0: kvway will not see the first token */
	int64_t undone_ns;
	int64_t expected_ns; /* time to first token that was predicted when the request was sent */
	/* expected_ns, corrected by the workers' learned rate, and the part of it until the worker
	 * begins the prompt. */
	int64_t counted_ns, counted_queue_ns;
	int64_t sent_ns;
	uint64_t held_tokens; /* cached tokens of the prompt on the worker that has most of them */
	double whole_ns; /* prefill time on a worker that has none of the prompt cached */
	/* time until the request can be sent to its worker, and until that worker has done its
	 * present work, by the last judgement */
	int64_t wait_ns, queue_ns;
};

/* Judges `entrant` by the strategy's explain and kvw_gate_judge. False: no worker is possible
 * now. */
typedef bool kvw_gate_judge_fn(void *user, struct kvw_entrant *entrant, int64_t now_ns);

#define KVW_OPEN_NS INT64_C(500000)

/* A gate's cached view of a worker. It is refreshed once per time that the gate's calls pass, after
 * news of the worker, and always for the worker that a request would go to. */
struct kvw_outlook {
	uint64_t epoch;   /* epoch of the outlooks when this one was refreshed */
	int64_t queue_ns; /* time that the worker's unanswered work will really take */
	struct kvw_pace_seen pace;
	uint32_t foreign_running; /* running foreign requests */
	bool foreign;             /* foreign requests wait at the worker, or its engine is full */
};

/* Outlooks on all workers, shared by all gates of a loop: 50 KB. Zeroed at first. */
struct kvw_outlooks {
	int64_t seen_ns; /* time and rate that belong to `epoch` */
	double seen_rate;
	uint64_t epoch;  /* a new epoch makes all outlooks stale */
	struct kvw_outlook workers[KVW_MAX_WORKERS]; /* indexed by worker id */
};

/* A loop has one gate for each recently requested model, so a gate is small. */
struct kvw_gate {
	struct kvw_admission *admission;
	struct kvw_outlooks *outlooks; /* shared by the loop's gates; borrowed */
	struct kvw_gate_terms terms;
	struct kvw_queue queue;
	struct kvw_price price;
	double mean_ns;      /* mean work of a request */
	double lag; /* actual over predicted time to first token: four of five requests are below */
	double more_ns; /* ns beyond lag times the prediction: nine of ten requests are below */
	size_t usable;       /* number of usable workers at the last judgement */
	bool any_open;       /* at least one usable worker can take a prompt */
	bool any_idle;       /* at least one usable worker is idle */
	/* The engine of each candidate, usable or not, would refuse a prompt. */
	bool all_full;
	/* Every worker is kept from taking a prompt by foreign requests or its engine's own
	 * limits. */
	bool all_foreign;
	double ahead_sum_ns; /* sum of the times until each worker can take a prompt */
	int64_t open_until_ns; /* until then all workers count as open */
	int64_t open_ahead_ns; /* ... for a request that allows this much work before it */
	int64_t planned_ns;  /* time of the last plan */
	int64_t due_ns;      /* no waiting request is overdue before this time */
	/* Requests have been overdue since late_since_ns; the last one was at late_ns. */
	int64_t late_since_ns, late_ns;
	/* Amounts that this gate has added to the sums in `admission`. */
	int64_t told_waiting_ns, told_first_ns, told_offered;
	int64_t told_ns;     /* when told_offered was last published */
	uint64_t of;         /* identifies the model; belongs to the owner */
	uint32_t users;      /* the model's requests that have not ended; belongs to the owner */
	int64_t used_ns;     /* arrival of the last of these; belongs to the owner */
};

void kvw_gate_init(
	struct kvw_gate *gate, struct kvw_admission *admission, struct kvw_outlooks *outlooks);
void kvw_gate_finish(struct kvw_gate *gate); /* requires that no request waits */

static inline size_t kvw_gate_waiting(const struct kvw_gate *gate)
{
	return gate->queue.count;
}

/* Returns whether the queue is full. waiting: requests that wait in this loop; most: limit over all
 * loops. */
static inline bool kvw_gate_is_full(uint64_t waiting, uint64_t loops, uint64_t most)
{
	return waiting * loops >= most;
}

/* Returns whether the entrant's program would evict contexts of running programs that will come
 * back. If so, the entrant waits if it cannot be sent at once. Reads the entrant's turn and the
 * results of kvw_gate_judge. */
bool kvw_gate_crowds(const struct kvw_gate *gate, const struct kvw_entrant *entrant);
/* assumed time until a program ends, after which another may begin */
#define KVW_CROWDED_NS INT64_C(30000000000)

/* Returns whether each of these workers can take this prompt now. Reads the entrant's promise. True
 * is cached for KVW_OPEN_NS, or until this gate fills a worker: examining a thousand workers takes
 * longer than routing a request. */
bool kvw_gate_open(struct kvw_gate *gate, const struct kvw_entrant *entrant,
	const struct kvw_candidates *set, int64_t now_ns);

/* Chooses the entrant's worker and the time by which it must be sent; not for an entrant that is
 * sent. costs, wish: costs and decision of the strategy's explain. False: no worker. */
bool kvw_gate_judge(struct kvw_gate *gate, struct kvw_entrant *entrant,
	const struct kvw_candidates *set, const struct kvw_cost *costs,
	const struct kvw_decision *wish, int64_t now_ns);

/* Predicts the first token of a judged request that is not sent and does not wait yet: what waits
 * for the gate's model is before it, and it waits for max_wait at most. loops: number of loops,
 * which have as much waiting as this one. */
struct kvw_scale_prediction kvw_gate_predict(const struct kvw_gate *gate,
	const struct kvw_entrant *entrant, uint64_t loops, int64_t now_ns);
/* Returns the prediction for a request that was sent, as kvw_gate_passed made it. */
struct kvw_scale_prediction kvw_gate_predicted(const struct kvw_entrant *entrant);

/* Begins the wait of a judged request, which arrived at wait.came_ns. KVW_ENOMEM: the request does
 * not wait. */
enum kvw_err kvw_gate_wait(
	struct kvw_gate *gate, struct kvw_entrant *entrant, int64_t now_ns) KVW_MUST_CHECK;
/* Removes the entrant from the queue: its client has left, or it is answered otherwise. */
void kvw_gate_leave(struct kvw_gate *gate, struct kvw_entrant *entrant);

/* Finds the next request whose wait ends. KVW_SEND: *out is to be sent to the worker
 * out->wait.worker now; KVW_REFUSE: *out is to be answered 429. In both cases *out has left the
 * queue. The caller repeats the call until it returns KVW_NOTHING. */
enum kvw_next kvw_gate_next(struct kvw_gate *gate, int64_t now_ns, kvw_gate_judge_fn *judge,
	void *user, struct kvw_entrant **out);

/* Returns whether a judged request whose wait is over is sent to a busy worker rather than refused.
 * A request with a promise is sent while a late answer is worth more than none. A request without a
 * promise is sent, and its engine queues it, as it would have without kvway; unless its client has
 * given up, or every engine would refuse it. */
static inline bool kvw_gate_sends_late(const struct kvw_entrant *e, int64_t now_ns)
{
	if (e->wait.promised)
		return e->wait.late == KVW_LATE_SENT && now_ns < e->wait.until_ns;
	return (e->deadline_ns == 0 || now_ns < e->deadline_ns) &&
	       e->wait_ns < KVW_LOAD_FULL_NS / 2;
}

/* Retry-After of a request refused now, from the waiting work and the workers' rate. */
int64_t kvw_gate_retry_after_ns(const struct kvw_gate *gate);

/* Time of the next call of kvw_gate_next if nothing happens before; INT64_MAX: none. */
int64_t kvw_gate_wake_ns(const struct kvw_gate *gate, int64_t now_ns);

/* Records that the request goes to a worker, after kvw_gate_next or because the gate was open.
 * decision: of the pick. */
void kvw_gate_passed(struct kvw_gate *gate, struct kvw_entrant *entrant,
	const struct kvw_decision *decision, int64_t now_ns);
/* Records the entrant's first token. stream: every further token will be passed to
 * kvw_gate_token. */
void kvw_gate_first_token(
	struct kvw_gate *gate, struct kvw_entrant *entrant, bool stream, int64_t now_ns);
/* Records the entrant's second token, for callers that do not use kvw_gate_token. */
void kvw_gate_follows(struct kvw_gate *gate, struct kvw_entrant *entrant);
void kvw_gate_token(
	struct kvw_gate *gate, struct kvw_entrant *entrant, int64_t gap_ns, int64_t now_ns);
/* Ends an attempt; exactly once after each kvw_gate_passed. */
void kvw_gate_ended(struct kvw_gate *gate, struct kvw_entrant *entrant, int64_t now_ns);

#endif
