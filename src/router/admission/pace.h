/*
 * pace.h - limits a worker's prompts so that the promises of its running streams are kept.
 *
 * An engine computes prompts and answers in the same steps, so a worker whose prefill never rests
 * gives each stream a token per 400 ms instead of one per 20. The share of time for prefill follows
 * from the promised time per token T, and is not computed but measured: each token of a stream that
 * comes dt after the last one moves the worker's balance by dt - m T, averaged over its streams.
 * Tokens that come sooner than promised earn what a prompt then spends. While the balance is above
 * 0 (its answers are behind) the worker gets no new prompt; credit is limited, so that a quiet hour
 * does not pay for a long stall. No engine's speed is assumed.
 *
 * m, the margin, is below 1 because a promise is for the mean of each answer, and short ones meet
 * more prefill than the mean. In replays 0.8 is best or next to it at all loads.
 *
 * Besides, a worker computes one prompt after the other, so that a second prompt better waits in
 * kvway, where its order and its worker can still change. It is sent when the worker will have done
 * its earlier work within a moment (kvw_load_queue_ns).
 *
 * Other routers' streams are unknown here; the prefill that they send to a worker is known
 * (kvw_pace_set_peers).
 *
 * Threads: any. Each worker's members lie in one cache line, changed by atomic operations alone.
 */
#ifndef KVW_PACE_H
#define KVW_PACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KVW_PACE_CREDIT_NS INT64_C(500000000)   /* a balance falls no further below 0 than this */
#define KVW_PACE_DEBT_NS   INT64_C(20000000000) /* a balance rises no further above 0 than this */
#define KVW_PACE_MARGIN    0.8
/* Age at which an unchanged balance is ignored. */
#define KVW_PACE_STALE_NS  INT64_C(2000000000)

/* Pace of one worker. Zeroed, it describes an idle worker. */
struct kvw_pace {
	_Alignas(64) _Atomic int64_t behind_ns; /* the balance */
	_Atomic int64_t moved_ns;               /* time of the balance's last change */
	_Atomic int32_t unanswered; /* requests that were sent and have no first token yet */
	_Atomic int32_t answering;              /* streams that have had at least two tokens */
	/* Unanswered prompts whose first token kvway will see. */
	_Atomic int32_t shown;
	/* 1: other routers have prompts there that are not computed yet. */
	_Atomic int32_t peers;
	_Atomic int64_t undone_ns;              /* predicted prefill of the `shown` prompts */
	/* Time of the last first token of a `shown` prompt, or of the first one sent after idle
	 * time. */
	_Atomic int64_t since_ns;
	/* Predicted end of the other routers' prefill on this worker. */
	_Atomic int64_t peers_until_ns;
	/* the other routers' share of unanswered prefill on this worker: 0..1 */
	_Atomic float peers_share;
};

/* Counts a request sent to the worker. work_ns: its predicted prefill; 0: its first token will not
 * be visible. */
void kvw_pace_sent(struct kvw_pace *pace, int64_t work_ns, int64_t now_ns);
/* Records the prompt's first token; work_ns as in kvw_pace_sent. */
void kvw_pace_first_token(struct kvw_pace *pace, int64_t work_ns, int64_t now_ns);
/* Records the stream's second token; kvw_pace_token will be called for this token and each further
 * one. The first token does not count: in the step that computes a prompt, the prompt's own first
 * token waits for nothing, while all other streams on the worker wait for the prompt. */
void kvw_pace_follows(struct kvw_pace *pace);
/* Ends a request. work_ns as in kvw_pace_sent; answered: kvw_pace_first_token was called; follows:
 * kvw_pace_follows, too. */
void kvw_pace_ended(struct kvw_pace *pace, int64_t work_ns, bool answered, bool follows);

/* Sets how many ns of other routers' prefill are unanswered on the worker; 0: none. own_ns: this
 * router's. */
void kvw_pace_set_peers(struct kvw_pace *pace, int64_t work_ns, int64_t own_ns, int64_t now_ns);

/* Returns the share of a busy worker's time that goes to this router's prompts. */
double kvw_pace_own_share(const struct kvw_pace *pace);

/* Returns the time until the worker can begin another prompt, judged by the unanswered requests
 * whose first token kvway will see. Any cause of their delay counts: prefill, or the engine's limit
 * on running requests. rate: predicted ns of prefill that a worker does in one ns. */
int64_t kvw_pace_undone_ns(const struct kvw_pace *pace, double rate, int64_t now_ns);

/* Records the next token of a stream, gap_ns after the previous one; allowed_ns: m T (see the
 * top). */
void kvw_pace_token(struct kvw_pace *pace, int64_t gap_ns, int64_t allowed_ns, int64_t now_ns);

/* A worker's pace at a moment. */
struct kvw_pace_seen {
	/* about the time until the worker's streams keep their promise again; 0: they keep it
	 * now */
	int64_t late_ns;
	bool computes;   /* a prompt */
	bool busy;       /* the worker is not idle, because of prefill or late answers */
};

struct kvw_pace_seen kvw_pace_see(const struct kvw_pace *pace, int64_t now_ns);

/* About the time until the worker can take a prompt; 0: now. queue_ns: prefill before this prompt;
 * ahead_ns: how much of that is allowed. */
static inline int64_t kvw_pace_seen_wait_ns(
	const struct kvw_pace_seen *seen, int64_t queue_ns, int64_t ahead_ns)
{
	int64_t early = seen->computes ? queue_ns - ahead_ns : 0;

	return early > seen->late_ns ? early : seen->late_ns;
}

int64_t kvw_pace_wait_ns(
	const struct kvw_pace *pace, int64_t queue_ns, int64_t ahead_ns, int64_t now_ns);

/* Returns whether the worker is busy with prefill or late answers. */
bool kvw_pace_busy(const struct kvw_pace *pace, int64_t now_ns);

#endif
