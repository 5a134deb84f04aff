/*
 * pace.h - how many prompts a worker can compute without breaking the promise of those that it
 * answers.
 *
 * An engine computes prompts and answers in the same steps, so a worker whose prefill never rests
 * gives each stream a token per 400 ms instead of one per 20. What prefill may take follows from
 * the promised time per token T, and is not computed but measured: each token of a stream that
 * comes dt after the one before it moves the worker's balance by dt - m T, in the mean over its
 * streams. Tokens that come sooner than promised earn what a prompt then spends. While the balance
 * is above 0 (its answers are behind) the worker gets no new prompt; credit is limited, so that a
 * quiet hour does not pay for a long stall. No speed of any engine is assumed.
 *
 * m, the margin, is below 1 because a promise is for the mean of each answer, and short ones meet
 * more prefill than the mean. In replays 0.8 is best or next to it at all loads.
 *
 * The other half: a worker computes one prompt after the other, so a second one waits better at
 * kvway, where its order and place can still change. It is sent when what the worker was given
 * before will be done within a moment (kvw_load_queue_ns).
 *
 * Other routers' streams are not seen here; what they have a worker compute is
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
/* A balance that has not moved for so long says nothing. */
#define KVW_PACE_STALE_NS  INT64_C(2000000000)

/* One worker's. Zeroed: it has nothing to do. */
struct kvw_pace {
	_Alignas(64) _Atomic int64_t behind_ns; /* the balance */
	_Atomic int64_t moved_ns;               /* when it was moved last */
	_Atomic int32_t unanswered;             /* requests sent that have no first token */
	_Atomic int32_t answering;              /* streams that have two tokens */
	/* Of the unanswered ones those whose first token will show. */
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
/* Its first token came; work_ns as before. */
void kvw_pace_first_token(struct kvw_pace *pace, int64_t work_ns, int64_t now_ns);
/* Its second token has come, and kvw_pace_token will be called for it and each further one. Not
 * sooner: of the step that computes a prompt its own first token waits for nothing, while all other
 * streams there wait for the prompt. */
void kvw_pace_follows(struct kvw_pace *pace);
/* It has ended. work_ns: as before; answered: kvw_pace_first_token was called;
 * follows: kvw_pace_follows, too. */
void kvw_pace_ended(struct kvw_pace *pace, int64_t work_ns, bool answered, bool follows);

/* Other routers have unanswered prefill of so many ns there; 0: none. own_ns: ours. */
void kvw_pace_set_peers(struct kvw_pace *pace, int64_t work_ns, int64_t own_ns, int64_t now_ns);

/* The share of its time that a worker which is busy spends on our prompts. */
double kvw_pace_own_share(const struct kvw_pace *pace);

/* What the worker has to do before it can begin another prompt, by the requests whose first token
 * will show, whatever keeps it: prefill, or as many running requests as it takes. rate: predicted
 * ns of prefill that a worker does in one ns. */
int64_t kvw_pace_undone_ns(const struct kvw_pace *pace, double rate, int64_t now_ns);

/* The next token of one stream came gap_ns after the one before it; allowed_ns: m T. */
void kvw_pace_token(struct kvw_pace *pace, int64_t gap_ns, int64_t allowed_ns, int64_t now_ns);

/* A worker's at a moment. */
struct kvw_pace_seen {
	int64_t late_ns; /* about until its streams have what they were promised; 0: they do */
	bool computes;   /* a prompt */
	bool busy;       /* prefill or late answers keep it from being idle */
};

struct kvw_pace_seen kvw_pace_see(const struct kvw_pace *pace, int64_t now_ns);

/* How long about until the worker can take a prompt; 0: now. queue_ns: what it still has to compute
 * of others; ahead_ns: of that, how much it may have. */
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
