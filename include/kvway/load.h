/*
 * load.h - what a worker has been given and not yet answered.
 *
 * Belongs to a worker of the fleet; changes only through a lease that an exchange takes when
 * its worker is picked and gives back exactly once, on whatever path it ends. Health checks and
 * scrapes never touch that, so the counters cannot drift from the requests that they count. What a
 * worker's metrics say of requests that are not ours (foreign) stands apart from it, with the
 * counts of our own sequences with which those metrics are compared.
 *
 * Q_w, the predicted prefill seconds ahead of a new request, is W - D: W is all prefill work
 * ever added, D how far the worker is believed to have come. Both only grow. D advances with
 * the clock (a worker works while it has work), jumps to a lease's own position when its first
 * token proves that the worker has come that far, and skips what is left of a lease that ends
 * without one. So neither a release nor the passing of time can subtract the same work twice.
 * Work whose requests are all answered or gone cannot delay a new request: W - D is also kept
 * within U, the work of the leases that still wait for their first token.
 *
 * Besides Q_w it counts the requests in flight and the tokens of their prompts: what a worker reads
 * again for each token that it answers, and what fills its KV memory.
 *
 * An engine begins a prompt only when its KV memory has room for it. What is in flight beyond that
 * room (struct kvw_load_room) waits until requests before it end, however little prefill there is
 * to do. A worker gives back all of its room in the mean time that a request keeps its part, which
 * each release of a lease shows; so every token beyond the room waits that time divided by the room
 * (kvw_load_room_wait_ns). The room itself comes from the worker's metrics (fleet/room.h);
 * everything else is what kvway sends and sees end, so that the wait is right between two scrapes.
 *
 * Where other routers send to the same workers, what they say of theirs (kvw_load_set_peers) counts
 * as part of the queue and of what is in flight. A worker does the work of all, so its time is
 * divided among own work and theirs in proportion. What they say counts as far as it is trusted,
 * worker by worker (`trust`). First tokens check it: a request that was to wait for their queue and
 * did not makes it all count for half from then on. Where they claim a queue for half a minute
 * without a break, and no request comes there to check it, it does not count any more (after less
 * where some trust was lost before). Requests that do wait, and time without claims, win trust
 * back. What first tokens say of the one router that claims most is collected apart
 * (kvw_load_set_claim), so that a liar can be found among them.
 *
 * An engine with a limit of its own refuses what comes beyond it (vLLM's --max-num-queued-reqs,
 * TGI's --max-concurrent-requests). What was in flight when it did is taken for its limit
 * (kvw_load_refused), which grows with time until the engine refuses again: what fits depends on
 * how long the prompts are.
 *
 * Threads: every function may be called from any thread; a short spin lock guards W, D, U, the
 * clock of D and the time of the last first token, words that must change together; it is held for
 * some ten instructions. Readers do not take it: Q_w falls by one each nanosecond until it is 0, so
 * the writer publishes the moment at which that happens, and a reader subtracts its own time.
 * The counts are one word, written under the lock. What readers need lies apart from what writers
 * do, and for a fleet side by side on a board.
 */
#ifndef KVW_LOAD_H
#define KVW_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KVW_MAX_WORKERS 1024

/* The other router whose queue on a worker counts most. */
struct kvw_load_claim {
	uint32_t of;      /* which one, as the caller counts them; 0: none */
	int64_t queue_ns; /* as it says, trusted or not */
};

/* What first tokens said of such claims: requests that did not wait as long as that router alone
 * has work there, and those that did. */
struct kvw_load_verdict {
	uint32_t of; /* 0: nothing was said */
	uint32_t wrong, right;
};

/* What readers see of one worker's load; written together, so both lie in one cache line. */
struct kvw_load_seen {
	/* Clock + W - D + what peers have there: when the queue will be drained. */
	_Atomic int64_t idle_at_ns;
	_Atomic uint64_t held;      /* as kvw_load_held() */
};

/* KV memory of one worker, in prompt tokens in flight.
 * Both are written under the lock of its load. */
struct kvw_load_room {
	_Atomic float tokens;       /* that fit; INFINITY: unknown */
	_Atomic float ns_per_token; /* that each token more has to wait; 0 with unknown room */
};

/*
 * The same numbers of a whole fleet in one array: a pick reads all of them, four in a cache line.
 * Index: the worker's id. Written through each worker's kvw_load.
 */
struct kvw_load_board {
	_Alignas(64) struct kvw_load_seen workers[KVW_MAX_WORKERS];
	_Alignas(64) struct kvw_load_room rooms[KVW_MAX_WORKERS];
};

/* One worker's load. What only writers need has a cache line: loops write it for every request. */
struct kvw_load {
	_Alignas(64) atomic_bool lock; /* guards the next five and writes of *seen */
	int64_t added_ns;              /* W: prefill work ever added, predicted ns */
	int64_t done_ns;               /* D: of that, believed done; <= added_ns */
	int64_t waiting_ns;            /* U: work of leases without a first token; >= W - D */
	int64_t clock_ns;              /* monotonic time when done_ns was last advanced */
	int64_t answered_ns;           /* when the last first token of a stream came */
	/* That the engine has of leases: a prompt, and each answer to it, is one. */
	uint32_t sequences;
	uint32_t unanswered;           /* of these, of streams without a first token */
	uint64_t sent;                 /* sequences ever */
	/* Prompt tokens of requests that have ended, the later the more they count ... */
	double kept_tokens;
	/* ... and of these, times the time that each kept its part of the KV memory. */
	double kept_ns;
	_Alignas(64) struct kvw_load_seen *seen; /* own, or on a board */
	struct kvw_load_room *room;              /* likewise */
	struct kvw_load_seen own;
	struct kvw_load_room own_room;
	/* Requests that are not ours, by the worker's metrics; written by one thread. */
	_Atomic int64_t foreign_until_ns; /* when those that waited will be computed, as expected */
	_Atomic int64_t foreign_ns;       /* how long that takes */
	_Atomic uint32_t foreign_waiting, foreign_running;
	/* The limit of its engine, as learned; each is written alone,
	 * and a mixture of two refusals does no harm. */
	_Atomic uint32_t full_at;      /* requests in flight when it took no further one */
	_Atomic int64_t full_since_ns; /* from then on the limit grows; 0: it never refused one */
	/* Of other routers, as far as they are trusted; guarded by the lock. */
	int64_t peers_ns;          /* of their prefill, still to be done at clock_ns */
	int64_t peers_waiting_ns;  /* their U */
	uint64_t peers_held;       /* as kvw_load_held(); part of seen->held */
	uint32_t peers_sequences, peers_unanswered;
	float trust;               /* 0..1 */
	int64_t claim_ns;          /* their queue as they said last, trusted or not */
	/* What time says of their claims was taken into account until then. */
	int64_t judged_ns;
	struct kvw_load_claim claim; /* of one of them */
	struct kvw_load_verdict verdict;
};

/* Sequences on a worker: our own, and those that other routers say they have there. */
struct kvw_load_sequences {
	uint32_t all, unanswered;
	uint64_t sent; /* own */
};

/* One router's part of a worker's load, or several routers' together. */
struct kvw_load_part {
	int64_t queue_ns;   /* W - D: prefill still to be done, as predicted */
	int64_t waiting_ns; /* U */
	uint32_t inflight;
	uint32_t context;   /* tokens of the prompts in flight */
	uint32_t sequences, unanswered;
};

/* One request's share of one worker. Owned by its exchange; zeroed means "holds nothing". */
struct kvw_lease {
	struct kvw_load *load; /* NULL: nothing held */
	int64_t prefill_ns;    /* what this request added to W */
	int64_t position_ns;   /* W just after it was added */
	int64_t taken_ns;      /* when */
	int64_t first_ns;      /* when its first token came, if it was */
	uint32_t context;      /* tokens of its prompt */
	uint32_t sequences;    /* that the engine makes of it; 0: they are not counted yet */
	int64_t ahead_ns;      /* U when it was taken: work that may have delayed its first token */
	int64_t behind_ns; /* work added after it and before its first token: it may have, too */
	int64_t claim_ns;  /* of work that other routers were said to have before it */
	struct kvw_load_claim claim; /* of this, the one that says the most */
	/* Until its first token, from its taking or from the first token before it on this worker:
	 * what the worker needed for it if it works in turn. */
	int64_t served_ns;
	bool plain;        /* not a stream: its first byte says nothing of prefill */
	bool answered;     /* its first token was reported */
	bool unanswered;   /* its sequences count among these */
};

/* A load that stands for itself; it is not moved in memory while in use. */
void kvw_load_init(struct kvw_load *load);

/* A load whose words lie on a board, which outlives it, under the worker's id. */
void kvw_load_init_on(struct kvw_load *load, struct kvw_load_board *board, uint32_t worker);

/* Q_w in nanoseconds, with what peers have there, never negative. Takes no lock. */
static inline int64_t kvw_load_queue_ns(struct kvw_load *load, int64_t now_ns)
{
	int64_t idle_at = atomic_load_explicit(&load->seen->idle_at_ns, memory_order_relaxed);

	return idle_at > now_ns ? idle_at - now_ns : 0;
}

/* Leases taken and not released, and << 32 the tokens of their prompts: two counts in a word, for
 * they change together. */
static inline uint64_t kvw_load_held(uint32_t inflight, uint32_t context)
{
	return (uint64_t)context << 32 | inflight;
}

static inline uint32_t kvw_load_inflight(struct kvw_load *load)
{
	return (uint32_t)atomic_load_explicit(&load->seen->held, memory_order_relaxed);
}

/* Prompt tokens of all requests in flight. */
static inline uint32_t kvw_load_context(struct kvw_load *load)
{
	return (uint32_t)(atomic_load_explicit(&load->seen->held, memory_order_relaxed) >> 32);
}

/* How long a prompt of so many tokens waits there for KV memory that requests in flight give back;
 * 0: it fits, or nothing is known. Takes no lock. */
static inline double kvw_load_room_wait_ns(struct kvw_load *load, double tokens)
{
	double over = (double)kvw_load_context(load) + tokens -
		      (double)atomic_load_explicit(&load->room->tokens, memory_order_relaxed);

	return over > 0 ? over * (double)atomic_load_explicit(
					 &load->room->ns_per_token, memory_order_relaxed)
			: 0;
}

/* What keeps the worker from beginning a prompt of so many tokens: prefill before it, or missing KV
 * memory. The second passes while it does the first. */
static inline double kvw_load_delay_ns(struct kvw_load *load, double tokens, int64_t now_ns)
{
	double queue = (double)kvw_load_queue_ns(load, now_ns);
	double room = kvw_load_room_wait_ns(load, tokens);

	return queue > room ? queue : room;
}

/* How long the foreign requests keep the worker from one that came at came_ns; 0: not.
 * Those that have come after it are not before it: what waits at the worker now is an upper bound
 * of what it found there. Takes no lock. */
static inline int64_t kvw_load_foreign_ns(struct kvw_load *load, int64_t came_ns, int64_t now_ns)
{
	int64_t until = atomic_load_explicit(&load->foreign_until_ns, memory_order_relaxed);
	int64_t work = 0;

	if (until <= now_ns)
		return 0;
	work = atomic_load_explicit(&load->foreign_ns, memory_order_relaxed);
	if (came_ns + work < until)
		until = came_ns + work;
	return until > now_ns ? until - now_ns : 0;
}

/* Foreign requests that the worker answers. */
static inline uint32_t kvw_load_foreign_running(struct kvw_load *load)
{
	return atomic_load_explicit(&load->foreign_running, memory_order_relaxed);
}

/* How often a learned limit grows, by one and an eighth. */
#define KVW_LOAD_GROW_NS   INT64_C(1000000000)
#define KVW_LOAD_FORGET_NS INT64_C(60000000000) /* after which it is none any more */

/* Its engine refused a request because it has enough; leases that are held now, that one's too, say
 * how much that is. It wants none for pause_ns. */
void kvw_load_refused(struct kvw_load *load, int64_t pause_ns, int64_t now_ns);

/* As if it had refused none: the slot becomes another worker's. */
void kvw_load_forget_refusals(struct kvw_load *load);

/* Would its engine refuse a further request, by what is learned of its limit? Takes no lock. */
static inline bool kvw_load_is_full(struct kvw_load *load, int64_t now_ns)
{
	int64_t since = atomic_load_explicit(&load->full_since_ns, memory_order_relaxed);
	uint64_t limit = 0;

	if (since == 0 || now_ns - since >= KVW_LOAD_FORGET_NS)
		return false;
	limit = atomic_load_explicit(&load->full_at, memory_order_relaxed);
	if (now_ns > since)
		limit += (uint64_t)((now_ns - since) / KVW_LOAD_GROW_NS) * (1 + limit / 8);
	return kvw_load_inflight(load) >= limit;
}

/* The same, and one that ends makes room there. */
static inline bool kvw_load_will_have_room(struct kvw_load *load, int64_t now_ns)
{
	return kvw_load_is_full(load, now_ns) && kvw_load_inflight(load) > 0;
}

/* When one ends is not known: longer than anything is waited for. */
#define KVW_LOAD_FULL_NS INT64_C(3600000000000)

/* How long requests before one that came at came_ns keep the worker from it, foreign ones or those
 * that fill it; 0: they do not. */
static inline int64_t kvw_load_before_ns(struct kvw_load *load, int64_t came_ns, int64_t now_ns)
{
	return kvw_load_will_have_room(load, now_ns) ? KVW_LOAD_FULL_NS
						     : kvw_load_foreign_ns(load, came_ns, now_ns);
}

/* So many wait and run there, and those that wait will take foreign_ns. One thread at a time. */
void kvw_load_set_foreign(struct kvw_load *load, uint32_t waiting, uint32_t running,
	int64_t foreign_ns, int64_t now_ns);

/* Prompts of so many tokens in flight fit its KV memory; INFINITY: unknown. */
void kvw_load_set_room(struct kvw_load *load, double tokens);

/* Nor is it known any more how long requests keep their parts:
 * the slot becomes another worker's. */
void kvw_load_forget_room(struct kvw_load *load);

struct kvw_load_sequences kvw_load_sequences(struct kvw_load *load);

/* Leases taken and not released, without what peers have. Takes the lock. */
uint32_t kvw_load_own_inflight(struct kvw_load *load);

/* The part of it that is ours. Takes the lock. */
struct kvw_load_part kvw_load_own(struct kvw_load *load, int64_t now_ns);

/* The part of all other routers, which replaces what was set before; all zeroes: they have nothing
 * there. Returns the share of it that counts: less than 1 where it was seen to be wrong. */
float kvw_load_set_peers(struct kvw_load *load, const struct kvw_load_part *peers, int64_t now_ns);

/* Which of them claims most there, from now on.
 * Returns what first tokens said since the last call, of one of them. */
struct kvw_load_verdict kvw_load_set_claim(
	struct kvw_load *load, const struct kvw_load_claim *claim);

/* As if no other router had ever said anything: the slot becomes another worker's. */
void kvw_load_forget_peers(struct kvw_load *load);

/* Asks for the cache lines that a lease will write. Changes nothing. */
void kvw_load_expect(struct kvw_load *load);

/* Takes prefill_ns (>= 0) of load. The lease must hold nothing. */
void kvw_lease_take(
	struct kvw_lease *lease, struct kvw_load *load, int64_t prefill_ns, int64_t now_ns);

/* Adds the prompt's length and one sequence to the load, once, after taking; the release subtracts
 * them. Unless the lease is plain by then, the sequence is without a first token. */
void kvw_lease_hold(struct kvw_lease *lease, uint32_t tokens);

/* The engine makes so many more sequences of it. Once, after kvw_lease_hold. */
void kvw_lease_widen(struct kvw_lease *lease, uint32_t more);

/* The first token arrived. Does nothing the second time, or on an empty lease. */
void kvw_lease_first_token(struct kvw_lease *lease, int64_t now_ns);

/* Gives everything back and empties the lease. Does nothing on an empty lease. */
void kvw_lease_release(struct kvw_lease *lease, int64_t now_ns);

#endif
