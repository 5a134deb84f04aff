/*
 * pace.h - how many prompts a worker can compute without breaking the promises of its running
 * streams.
 *
 * An engine computes prompts and answers in the same steps, so a worker whose prefill never rests
 * gives each stream a token per 400 ms instead of one per 20. The share of time for prefill follows
 * from the promised time per token T, and is not computed but measured: each token of a stream that
 * comes dt after the one before it moves the worker's balance by dt - m T, in the mean over its
 * streams. Tokens that come sooner than promised earn what a prompt then spends. While the balance
 * is above 0 (its answers are behind) the worker gets no new prompt; credit is limited, so that a
 * quiet hour does not pay for a long stall. No speed of any engine is assumed.
 *
 * m, the margin, is below 1 because a promise is for the mean of each answer, and short ones meet
 * more prefill than the mean. In replays 0.8 is best or next to it at all loads.
 *
 * The other half: a worker computes one prompt after the other, so a second one waits better at
 * kvway, where its order and place can still change. It is sent when the worker's earlier work will
 * be done within a moment (kvw_load_queue_ns).
 *
 * Other routers' streams are not seen here; the prefill that they send to a worker is
 * (kvw_pace_set_peers).
 *
 * Threads: any. Each worker's words lie in one cache line, changed by atomic operations alone.
 */
#ifndef KVW_PACE_H
#define KVW_PACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KVW_PACE_CREDIT_NS INT64_C(500000000)   /* most that a balance can be below 0 */
#define KVW_PACE_DEBT_NS   INT64_C(20000000000) /* most that it can be above */
#define KVW_PACE_MARGIN    0.8
/* A balance that has not moved for this long says nothing. */
#define KVW_PACE_STALE_NS  INT64_C(2000000000)

/* Pace of one worker. Zeroed: the worker has nothing to do. */
struct kvw_pace {
	_Alignas(64) _Atomic int64_t behind_ns; /* the balance */
	_Atomic int64_t moved_ns;               /* when it was moved last */
	_Atomic int32_t unanswered;             /* requests sent that have no first token */
	_Atomic int32_t answering;              /* streams that have two tokens */
	/* Unanswered prompts whose first token kvway will see. */
	_Atomic int32_t shown;
	/* 1: other routers have prompts there that are not computed. */
	_Atomic int32_t peers;
	_Atomic int64_t undone_ns;              /* predicted prefill of these */
	/* The last of their first tokens, or the first of them after a rest. */
	_Atomic int64_t since_ns;
	/* Other routers' prefill there will take until then, as predicted. */
	_Atomic int64_t peers_until_ns;
	_Atomic float peers_share;              /* of the unanswered prefill there, theirs: 0..1 */
};

/* A request was sent to the worker.
 * work_ns: its predicted prefill; 0: its first token will not show. */
void kvw_pace_sent(struct kvw_pace *pace, int64_t work_ns, int64_t now_ns);
/* The prompt's first token has come; work_ns as in kvw_pace_sent. */
void kvw_pace_first_token(struct kvw_pace *pace, int64_t work_ns, int64_t now_ns);
/* The stream's second token has come; kvw_pace_token will be called for it and each further token.
 * Not sooner: in the step that computes a prompt the prompt's own first token waits for nothing,
 * while all other streams on the worker wait for the prompt. */
void kvw_pace_follows(struct kvw_pace *pace);
/* The request has ended. work_ns as in kvw_pace_sent; answered: kvw_pace_first_token was called;
 * follows: kvw_pace_follows, too. */
void kvw_pace_ended(struct kvw_pace *pace, int64_t work_ns, bool answered, bool follows);

/* Other routers have this many ns of unanswered prefill on the worker; 0: none. own_ns: ours. */
void kvw_pace_set_peers(struct kvw_pace *pace, int64_t work_ns, int64_t own_ns, int64_t now_ns);

/* The share of its time that a worker which is busy spends on our prompts. */
double kvw_pace_own_share(const struct kvw_pace *pace);

/* Time until the worker can begin another prompt, by the unanswered requests whose first token
 * kvway will see, whatever delays them: prefill, or the engine's limit on running requests. rate:
 * predicted ns of prefill that a worker does in one ns. */
int64_t kvw_pace_undone_ns(const struct kvw_pace *pace, double rate, int64_t now_ns);

/* The next token of one stream came gap_ns after the one before it; allowed_ns: m T. */
void kvw_pace_token(struct kvw_pace *pace, int64_t gap_ns, int64_t allowed_ns, int64_t now_ns);

/* A worker's at a moment. */
struct kvw_pace_seen {
	int64_t late_ns; /* about how long until its streams are as promised; 0: they are */
	bool computes;   /* a prompt */
	bool busy;       /* prefill or late answers keep it from being idle */
};

struct kvw_pace_seen kvw_pace_see(const struct kvw_pace *pace, int64_t now_ns);

/* About how long until the worker can take a prompt; 0: now. queue_ns: prefill that it has before
 * this prompt; ahead_ns: how much of that it may have. */
static inline int64_t kvw_pace_seen_wait_ns(
	const struct kvw_pace_seen *seen, int64_t queue_ns, int64_t ahead_ns)
{
	int64_t early = seen->computes ? queue_ns - ahead_ns : 0;

	return early > seen->late_ns ? early : seen->late_ns;
}

int64_t kvw_pace_wait_ns(
	const struct kvw_pace *pace, int64_t queue_ns, int64_t ahead_ns, int64_t now_ns);

/* Prefill or late answers keep the worker from being idle. */
bool kvw_pace_busy(const struct kvw_pace *pace, int64_t now_ns);

#endif
