/*
 * load.h - a worker's load: the requests it was given and has not yet answered.
 *
 * A load belongs to a worker of the fleet and changes only through leases: an exchange takes one
 * when its worker is picked and releases it exactly once, on whatever path the exchange ends.
 * Health checks and scrapes never change leases, so the counters cannot drift from the requests
 * that they count. Foreign requests (of other clients, known from the worker's metrics) are counted
 * apart, with the counts of our own sequences to which those metrics are compared.
 *
 * Q_w, the predicted prefill seconds ahead of a new request, is W - D: W is all prefill work ever
 * added, D the part of W that the worker is estimated to have done. Both only grow. D advances with
 * the clock (a worker works while it has work), jumps to a lease's own position when the lease's
 * first token proves that the worker has come that far, and skips the rest of a lease that ends
 * without a first token. So neither a release nor the passing of time can subtract the same work
 * twice. Work whose requests are all answered or gone cannot delay a new request: W - D is also
 * kept within U, the work of the leases that still wait for their first token.
 *
 * Besides Q_w a load counts the requests in flight and the tokens of their prompts, which a worker
 * reads again for each token that it generates and which fill its KV memory.
 *
 * An engine begins a prompt only when its KV memory has room for it. Requests in flight beyond that
 * room (struct kvw_load_room) wait until earlier requests end, however little prefill there is to
 * do. All of a worker's room becomes free in the mean time that a request holds its part, known
 * from the releases of leases; so every token beyond the room waits that time divided by the room
 * (kvw_load_room_wait_ns). The room itself comes from the worker's metrics (fleet/room.h); the rest
 * is counted from kvway's own requests, so that the wait is right between two scrapes.
 *
 * Other routers (peers) that send to the same workers report their load there (kvw_load_set_peers),
 * which counts as part of the queue and of the requests in flight. The time of a worker is divided
 * between our work and the peers' in proportion. Peers' reports count in proportion to the `trust`
 * in them, worker by worker. First tokens check the reports: a request that should have waited for
 * the peers' queue and did not halves the trust. Where peers claim a queue for half a minute
 * without a break, and no request of ours checks the claim, trust becomes 0 (sooner where it was
 * below 1). Requests that do wait, and time without claims, restore trust. Evidence on the one
 * router that claims most is collected apart (kvw_load_set_claim), to find a router whose reports
 * are wrong.
 *
 * An engine with a limit of its own refuses requests beyond it (vLLM's --max-num-queued-reqs, TGI's
 * --max-concurrent-requests). The number in flight at a refusal is taken for the limit
 * (kvw_load_refused), which grows with time until the engine refuses again, because the real limit
 * depends on the length of the prompts.
 *
 * Threads: every function may be called from any thread; a short spin lock guards W, D, U, the
 * clock of D and the time of the last first token, words that must change together; writers hold
 * the lock for some ten instructions. Readers do not take it: Q_w falls by one each nanosecond
 * until it is 0, so the writer publishes the moment at which that happens, and a reader subtracts
 * its own time. The counts are one word, written under the lock. Members for readers lie apart from
 * members for writers, and those of a whole fleet lie side by side on a board.
 */
#ifndef KVW_LOAD_H
#define KVW_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KVW_MAX_WORKERS 1024

/* The other router whose queue on a worker counts most. */
struct kvw_load_claim {
	uint32_t of;      /* the router's number, given by the caller; 0: none */
	int64_t queue_ns; /* the queue that the router reports, trusted or not */
};

/* Evidence of first tokens on a claim: requests that waited less than that router's queue
 * alone would take (wrong), and requests that waited as long (right). */
struct kvw_load_verdict {
	uint32_t of; /* 0: no evidence */
	uint32_t wrong, right;
};

/* The part of a worker's load that other threads read without the lock; both words are written
 * together and share a cache line. */
struct kvw_load_seen {
	/* Clock + W - D + peers' queue: the time at which the queue will be empty. */
	_Atomic int64_t idle_at_ns;
	_Atomic uint64_t held;      /* packed as by kvw_load_held() */
};

/* KV memory of one worker, in prompt tokens in flight. Both members are written with the lock of
 * the worker's load held. */
struct kvw_load_room {
	_Atomic float tokens;       /* tokens that fit; INFINITY: unknown */
	_Atomic float ns_per_token; /* wait per token beyond the room; 0: room unknown */
};

/*
 * The same numbers of a whole fleet in one array: a pick reads all of them, four in a cache line.
 * Index: the worker's id. Written through each worker's kvw_load.
 */
struct kvw_load_board {
	_Alignas(64) struct kvw_load_seen workers[KVW_MAX_WORKERS];
	_Alignas(64) struct kvw_load_room rooms[KVW_MAX_WORKERS];
};

/* One worker's load. Members for writers have their own cache line: loops write it for every
 * request. */
struct kvw_load {
	_Alignas(64) atomic_bool lock; /* guards the next five members and writes to *seen */
	int64_t added_ns;              /* W: prefill work ever added, predicted ns */
	int64_t done_ns;               /* D: part of W that is estimated done; <= added_ns */
	int64_t waiting_ns;            /* U: work of leases without a first token; >= W - D */
	int64_t clock_ns;              /* monotonic time when done_ns was last advanced */
	int64_t answered_ns;           /* time of the last first token of a stream */
	/* Sequences that the engine has from leases: one for each answer to a prompt. */
	uint32_t sequences;
	uint32_t unanswered; /* those of them that belong to streams without a first token */
	uint64_t sent;                 /* sequences ever */
	/* Prompt tokens of ended requests, in which later requests count more ... */
	double kept_tokens;
	/* ... and the same tokens, each times the time for which its request held its part of the
	 * KV memory. */
	double kept_ns;
	_Alignas(64) struct kvw_load_seen *seen; /* either in this struct or on a board */
	struct kvw_load_room *room;              /* likewise */
	struct kvw_load_seen own;
	struct kvw_load_room own_room;
	/* Foreign requests, from the worker's metrics; written by one thread. */
	_Atomic int64_t foreign_until_ns; /* expected end of the prefill of the waiting requests */
	_Atomic int64_t foreign_ns;       /* duration of that prefill */
	_Atomic uint32_t foreign_waiting, foreign_running;
	/* The engine's learned limit. Each member is written separately: values of two refusals may
	 * mix, which does no harm. */
	_Atomic uint32_t full_at;      /* requests in flight at the refusal */
	/* End of the pause after the refusal, from which full_at grows; 0: no refusal. */
	_Atomic int64_t full_since_ns;
	/* Other routers' load, multiplied by the trust in their reports; guarded by the lock. */
	int64_t peers_ns;          /* the peers' prefill that is not done at clock_ns */
	int64_t peers_waiting_ns;  /* their U */
	uint64_t peers_held;       /* packed as by kvw_load_held(); part of seen->held */
	uint32_t peers_sequences, peers_unanswered;
	float trust;               /* 0..1 */
	int64_t claim_ns;          /* the queue of their last report, trusted or not */
	/* Time up to which `trust` was adjusted for the passing of time. */
	int64_t judged_ns;
	struct kvw_load_claim claim; /* the router that claims most */
	struct kvw_load_verdict verdict;
};

/* Sequences on a worker: this router's own, and those that other routers report. */
struct kvw_load_sequences {
	uint32_t all, unanswered;
	uint64_t sent; /* own */
};

/* The part of a worker's load that comes from one router, or from several together. */
struct kvw_load_part {
	int64_t queue_ns;   /* W - D: predicted prefill that is still to be done */
	int64_t waiting_ns; /* U */
	uint32_t inflight;
	uint32_t context;   /* tokens of the prompts in flight */
	uint32_t sequences, unanswered;
};

/* The load that one request has booked on one worker. Owned by the request's exchange; zeroed means
 * "nothing". */
struct kvw_lease {
	struct kvw_load *load; /* NULL: nothing held */
	int64_t prefill_ns;    /* prefill that this request has added to W */
	int64_t position_ns;   /* value of W just after this */
	int64_t taken_ns;      /* when */
	int64_t first_ns;      /* time of the first token, if `answered` */
	uint32_t context;      /* tokens of the request's prompt */
	uint32_t sequences; /* sequences that the engine makes of the request; 0: not counted yet */
	/* value of U when the lease was taken: work that may delay the first token */
	int64_t ahead_ns;
	/* work added after the lease was taken and before its first token, which may delay it,
	 * too */
	int64_t behind_ns;
	int64_t claim_ns;  /* queue that other routers reported when the lease was taken */
	struct kvw_load_claim claim; /* the router that claims most of that queue */
	/* Time up to the first token, since the lease was taken or since the worker's last first
	 * token before: the prefill time of this request if the worker computes requests in
	 * turn. */
	int64_t served_ns;
	bool plain;        /* not a stream: the first byte does not show that prefill has ended */
	bool answered;     /* the first token was reported */
	bool unanswered;   /* the request's sequences are counted in load->unanswered */
};

/* Initializes a load that has its own words; it must not move in memory while in use. */
void kvw_load_init(struct kvw_load *load);

/* Initializes a load whose words are on a board, at the worker's id; the board must outlive the
 * load. */
void kvw_load_init_on(struct kvw_load *load, struct kvw_load_board *board, uint32_t worker);

/* Returns Q_w in nanoseconds, including the peers' queue; never negative. Takes no lock. */
static inline int64_t kvw_load_queue_ns(struct kvw_load *load, int64_t now_ns)
{
	int64_t idle_at = atomic_load_explicit(&load->seen->idle_at_ns, memory_order_relaxed);

	return idle_at > now_ns ? idle_at - now_ns : 0;
}

/* Packs two counts into a word, since they change together: leases taken and not released, and <<
 * 32 the tokens of their prompts. */
static inline uint64_t kvw_load_held(uint32_t inflight, uint32_t context)
{
	return (uint64_t)context << 32 | inflight;
}

static inline uint32_t kvw_load_inflight(struct kvw_load *load)
{
	return (uint32_t)atomic_load_explicit(&load->seen->held, memory_order_relaxed);
}

/* Returns the prompt tokens of all requests in flight. */
static inline uint32_t kvw_load_context(struct kvw_load *load)
{
	return (uint32_t)(atomic_load_explicit(&load->seen->held, memory_order_relaxed) >> 32);
}

/* Returns how many nanoseconds a prompt of `tokens` tokens waits for requests in flight to free KV
 * memory; 0: the prompt fits, or the room is unknown. Takes no lock. */
static inline double kvw_load_room_wait_ns(struct kvw_load *load, double tokens)
{
	double over = (double)kvw_load_context(load) + tokens -
		      (double)atomic_load_explicit(&load->room->tokens, memory_order_relaxed);

	return over > 0 ? over * (double)atomic_load_explicit(
					 &load->room->ns_per_token, memory_order_relaxed)
			: 0;
}

/* Returns the nanoseconds until the worker can begin a prompt of `tokens` tokens: the longer of the
 * prefill queue and the wait for KV memory, which pass at the same time. */
static inline double kvw_load_delay_ns(struct kvw_load *load, double tokens, int64_t now_ns)
{
	double queue = (double)kvw_load_queue_ns(load, now_ns);
	double room = kvw_load_room_wait_ns(load, tokens);

	return queue > room ? queue : room;
}

/* Returns how many nanoseconds foreign requests delay a request that arrived at came_ns; 0: no
 * delay. Foreign requests that arrived later do not delay it, so that those that wait now are an
 * upper bound. Takes no lock. */
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

/* Returns how many foreign requests run on the worker. */
static inline uint32_t kvw_load_foreign_running(struct kvw_load *load)
{
	return atomic_load_explicit(&load->foreign_running, memory_order_relaxed);
}

/* Interval at which a learned limit grows by an eighth and one. */
#define KVW_LOAD_GROW_NS   INT64_C(1000000000)
#define KVW_LOAD_FORGET_NS INT64_C(60000000000) /* age at which a learned limit is dropped */

/* Called when the engine has refused a request because it is full: the number of leases held now or
 * when the request was sent (`sent`, the refused one included), whichever is more, less the refused
 * one, is taken for its limit. A refusal can arrive after the requests that filled the engine have
 * ended; what is held then says nothing. The engine asks for a pause of pause_ns. */
void kvw_load_refused(struct kvw_load *load, uint32_t sent, int64_t pause_ns, int64_t now_ns);

/* Drops the learned limit, because the slot goes to another worker. */
void kvw_load_forget_refusals(struct kvw_load *load);

/* Returns whether the engine would refuse a further request, by its learned limit. Takes no
 * lock. */
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

/* Returns whether the engine is full now, and the end of a request will make room. */
static inline bool kvw_load_will_have_room(struct kvw_load *load, int64_t now_ns)
{
	return kvw_load_is_full(load, now_ns) && kvw_load_inflight(load) > 0;
}

/* Stands for the unknown time until a request ends: longer than any wait. */
#define KVW_LOAD_FULL_NS INT64_C(3600000000000)

/* Returns how many nanoseconds earlier requests delay a request that arrived at came_ns: foreign
 * requests, or requests that fill the engine; 0: no delay. */
static inline int64_t kvw_load_before_ns(struct kvw_load *load, int64_t came_ns, int64_t now_ns)
{
	return kvw_load_will_have_room(load, now_ns) ? KVW_LOAD_FULL_NS
						     : kvw_load_foreign_ns(load, came_ns, now_ns);
}

/* Sets the number of foreign requests, and the prefill time of those that wait. One thread at a
 * time. */
void kvw_load_set_foreign(struct kvw_load *load, uint32_t waiting, uint32_t running,
	int64_t foreign_ns, int64_t now_ns);

/* Sets the prompt tokens in flight that fit the KV memory; INFINITY: unknown. */
void kvw_load_set_room(struct kvw_load *load, double tokens);

/* Drops the room, and the time for which requests hold their parts, because the slot goes to
 * another worker. */
void kvw_load_forget_room(struct kvw_load *load);

struct kvw_load_sequences kvw_load_sequences(struct kvw_load *load);

/* Returns the number of leases taken and not released, without peers' requests. Takes the lock. */
uint32_t kvw_load_own_inflight(struct kvw_load *load);

/* Returns this router's part of the load. Takes the lock. */
struct kvw_load_part kvw_load_own(struct kvw_load *load, int64_t now_ns);

/* Replaces the part of all other routers; all zeroes: they have no requests there. Returns the
 * trust in it, which is the share that counts: below 1 after reports that were wrong. */
float kvw_load_set_peers(struct kvw_load *load, const struct kvw_load_part *peers, int64_t now_ns);

/* Sets which router claims most on the worker. Returns what first tokens have shown about one
 * router since the last call. */
struct kvw_load_verdict kvw_load_set_claim(
	struct kvw_load *load, const struct kvw_load_claim *claim);

/* Drops what other routers have reported, because the slot goes to another worker. */
void kvw_load_forget_peers(struct kvw_load *load);

/* Prefetches the cache lines that a lease will write. Changes nothing. */
void kvw_load_expect(struct kvw_load *load);

/* Books prefill_ns (>= 0) on the load. The lease must hold nothing. */
void kvw_lease_take(
	struct kvw_lease *lease, struct kvw_load *load, int64_t prefill_ns, int64_t now_ns);

/* Adds the prompt's length and one sequence to the load, once, after kvw_lease_take; the release
 * subtracts them. The sequence counts as unanswered unless the lease is marked plain before this
 * call. */
void kvw_lease_hold(struct kvw_lease *lease, uint32_t tokens);

/* Counts further sequences that the engine makes of the request. Called once, after
 * kvw_lease_hold. */
void kvw_lease_widen(struct kvw_lease *lease, uint32_t more);

/* Records the first token. No effect the second time, or on an empty lease. */
void kvw_lease_first_token(struct kvw_lease *lease, int64_t now_ns);

/* Removes from the load what the lease has booked, and empties the lease. No effect on an empty
 * lease. */
void kvw_lease_release(struct kvw_lease *lease, int64_t now_ns);

#endif
