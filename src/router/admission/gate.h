/*
 * gate.h - the requests of one model that wait in one event loop.
 *
 * A request that has been understood is offered: if nothing waits before it and a worker can take
 * it, it goes on at once (kvw_gate_open, then kvw_gate_passed). Otherwise the strategy says what it
 * would cost on each worker (explain), kvw_gate_judge chooses where it would go and by when it must
 * be sent, and it waits. kvw_gate_next then says, whenever something has changed, which request is
 * to be sent or refused; before it sends one it has it judged again, since what workers hold and do
 * has changed.
 *
 * Where it would go: the lowest cost, with the time until that worker can take a prompt and with
 * what it should have done by now. A long prompt
 * counts more on a worker that answers many streams: it holds all of them up. Where the strategy
 * does not weigh costs, its choice stands.
 *
 * Without a promise of a time to first token nothing is refused by prediction: what waits is in
 * order of arrival, for max_wait at most; then it goes on to the worker that costs least, whose
 * engine queues it.
 *
 * A request that could not keep its promise on an idle worker is not refused for that: its limit is
 * what it needs there, and half of that again.
 *
 * A request whose class has no room after more important ones goes to a worker that has nothing to
 * do when no other can take it. One that has waited for half of max_wait counts as one class
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

/* What a request is promised; 0: nothing. */
struct kvw_promise {
	int64_t ttft_ns, ttft_per_1k_ns, tpot_ns;
};

/* When the first token of a prompt of so many tokens is due; 0: nothing is promised of it. */
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
	KVW_REFUSED_SERVICE_LEVEL, /* its promise cannot be kept */
	/* It waited for max_wait, with a promise or for engines that are full,
	 * or for as long as it allows. */
	KVW_REFUSED_DEADLINE,
	KVW_REFUSED_QUEUE_FULL,    /* too many wait, or it does not want to */
	KVW_REFUSED_COUNT
};

enum kvw_next { KVW_NOTHING, KVW_SEND, KVW_REFUSE };

/* A request as the gate knows it. Its owner zeroes it, and sets `wait.class` and what is marked. */
struct kvw_entrant {
	struct kvw_waiter wait;     /* first: a queue holds this */
	struct kvw_promise promise; /* the owner's */
	struct kvw_turn turn;       /* the owner's */
	uint64_t tokens;            /* of its prompt; the owner's, before kvw_gate_judge */
	int64_t deadline_ns;        /* it is of no use later, by its client; 0: none. The owner's */
	/* Where it would go among the candidates of the last judgement. */
	size_t pos;
	enum kvw_refused refusal;
	int64_t retry_after_ns;     /* of one that is refused */
	bool offered;               /* it counts in the price */
	/* Its first token will be seen; the owner's, before kvw_gate_passed. */
	bool shows;
	bool sent, answered, stream, follows; /* as passed to kvw_pace */
	int64_t undone_ns;          /* work_ns, as passed to it; 0: its first token does not show */
	int64_t expected_ns;        /* its time to first token when it was sent, as predicted */
	/* The same as admission counts on it: corrected by what the workers did. */
	int64_t counted_ns;
	int64_t sent_ns;
	uint64_t held_tokens;       /* of it, that the worker which holds most of it has */
	double whole_ns;            /* its prefill where nothing of it is held */
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
	int64_t queue_ns; /* what it has to compute, in the time that it will really take */
	struct kvw_pace_seen pace;
	uint32_t foreign_running; /* requests of others that it answers */
	bool foreign;             /* others that ask it directly wait there, or it is full */
};

/* Of all workers, for all gates of a loop: 50 KB. Zeroed at first. */
struct kvw_outlooks {
	int64_t seen_ns; /* the time and rate of `epoch` */
	double seen_rate;
	uint64_t epoch;  /* another time: workers are looked at again */
	struct kvw_outlook workers[KVW_MAX_WORKERS]; /* by id */
};

/* One for each model that was asked for lately, so it is small. */
struct kvw_gate {
	struct kvw_admission *admission;
	struct kvw_outlooks *outlooks; /* of the loop; borrowed */
	struct kvw_gate_terms terms;
	struct kvw_queue queue;
	struct kvw_price price;
	double mean_ns;      /* work of a request, in the mean */
	double lag;          /* time to first token over what was predicted, as most take at most */
	double more_ns;      /* what most take at most beyond lag times that */
	size_t usable;       /* workers among the candidates of the last judgement */
	bool any_open;       /* one of them can take a prompt */
	bool any_idle;       /* one of them has nothing to do */
	/* The engine of each candidate, usable for it or not, would refuse it. */
	bool all_full;
	/* Others that ask them directly, or their own limits, keep a prompt out of all of them. */
	bool all_foreign;
	double ahead_sum_ns; /* until they can, in sum */
	int64_t open_until_ns; /* all workers count as open */
	int64_t open_ahead_ns; /* for a request that may have so much before it */
	int64_t planned_ns;  /* when the queue was planned last */
	int64_t due_ns;      /* none that waits is overdue before */
	/* Requests have been overdue from then on; the last one was then. */
	int64_t late_since_ns, late_ns;
	int64_t told_waiting_ns, told_first_ns, told_offered; /* what admission has of this gate */
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

/* May no further one wait, where so many do in this loop? most: in all loops. */
static inline bool kvw_gate_is_full(uint64_t waiting, uint64_t loops, uint64_t most)
{
	return waiting * loops >= most;
}

/* Would its program push out what running ones will come back to? So it waits if it cannot go at
 * once. Of entrant the turn and what kvw_gate_judge found are read. */
bool kvw_gate_crowds(const struct kvw_gate *gate, const struct kvw_entrant *entrant);
#define KVW_CROWDED_NS INT64_C(30000000000) /* until a program has ended, perhaps */

/* Can every one of these take this prompt now? Of entrant the promise is read. Once that was found
 * it is so for the next KVW_OPEN_NS, or until this gate fills one: looking at a thousand workers
 * takes longer than to route a request. */
bool kvw_gate_open(struct kvw_gate *gate, const struct kvw_entrant *entrant,
	const struct kvw_candidates *set, int64_t now_ns);

/* Where it would go, and by when; not while it is sent.
 * costs: as explain fills them; wish: what it decided. False: no worker. */
bool kvw_gate_judge(struct kvw_gate *gate, struct kvw_entrant *entrant,
	const struct kvw_candidates *set, const struct kvw_cost *costs,
	const struct kvw_decision *wish, int64_t now_ns);

/* A judged request waits from now on; it came at wait.came_ns. KVW_ENOMEM: it does not. */
enum kvw_err kvw_gate_wait(
	struct kvw_gate *gate, struct kvw_entrant *entrant, int64_t now_ns) KVW_MUST_CHECK;
/* It waits no longer: its client has left, or it is answered otherwise. */
void kvw_gate_leave(struct kvw_gate *gate, struct kvw_entrant *entrant);

/* KVW_SEND: *out is to be sent to the worker out->wait.worker now; KVW_REFUSE: it is to be answered
 * 429. In both cases it waits no longer. To be called until it says NOTHING. */
enum kvw_next kvw_gate_next(struct kvw_gate *gate, int64_t now_ns, kvw_gate_judge_fn *judge,
	void *user, struct kvw_entrant **out);

/* Is a judged request whose wait is over sent to a worker that has much to do before it? Else it is
 * refused. With a promise it is sent while a late answer is worth more than none. Without one it
 * is, and its engine queues it, as it would have without kvway; unless its client has given it up,
 * or every engine would refuse it. */
static inline bool kvw_gate_sends_late(const struct kvw_entrant *e, int64_t now_ns)
{
	if (e->wait.promised)
		return e->wait.late == KVW_LATE_SENT && now_ns < e->wait.until_ns;
	return (e->deadline_ns == 0 || now_ns < e->deadline_ns) &&
	       e->wait_ns < KVW_LOAD_FULL_NS / 2;
}

/* When a request that is refused now may come back, by what waits and what the workers do. */
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
/* Its second token comes, as kvw_gate_token notes by itself. */
void kvw_gate_follows(struct kvw_gate *gate, struct kvw_entrant *entrant);
void kvw_gate_token(
	struct kvw_gate *gate, struct kvw_entrant *entrant, int64_t gap_ns, int64_t now_ns);
/* The attempt has ended, as each that passed does once. */
void kvw_gate_ended(struct kvw_gate *gate, struct kvw_entrant *entrant, int64_t now_ns);

#endif
