/*
 * load.c - keeps one worker's load: the requests that it was given and has not answered.
 *
 * The scheme (W, D, U and the leases) is described in kvway/load.h. Invariants, true whenever the
 * lock is free:
 *
 *     0 <= W - D <= U        U = sum of prefill_ns over leases without a first token
 *     idle_at = clock + W - D + peers
 *
 * Each lease adds to U once (take) and subtracts once (first token, or release without one). D only
 * grows and is cut off at W, so whatever order time, answers and releases come in, no work is
 * subtracted twice, and a worker without waiting leases has a queue of exactly 0.
 *
 * A worker with own work and peers' may compute either at any moment, so each loses its share of
 * the time that passes; their sum falls by one each nanosecond like Q_w of a router alone.
 *
 * The clock of D never runs backwards: event loops read the time once a turn, so one loop's now_ns
 * may be a little behind another's. Cost: one lock and some ten instructions a change, one load
 * of a cache line a read.
 */
#include "kvway/load.h"

#include <assert.h>
#include <math.h>

#include "routing/prefetch.h"
#include "routing/spin.h"

#define CLAIM_NS   INT64_C(200000000) /* a shorter queue that peers claim is not judged */
#define CLAIM_ALONE_NS INT64_C(2000000000) /* the same limit if only one peer claims a queue */
#define TRUST_LOST 0.5f
#define TRUST_WON  0.1f
#define TRUST_LEAST (1.0f / 64) /* less counts as 0 */
/* full trust in peers' claims returns after this time without claims */
#define TRUST_BACK_NS INT64_C(10000000000)
/* Factor by which kept_tokens and kept_ns fade with each request that ends. */
#define KEPT_DECAY (63.0 / 64)
#define ROOM_STEP  (1.0 / 64)  /* a smaller relative change of the room is not written */
/* Trust ends after a claim has lasted this long and no request has confirmed it. */
#define DOUBT_NS      INT64_C(30000000000)

/* Takes the lock. Prefetches the words that readers use, too, since the holder writes them before
 * it unlocks. */
static void lock(struct kvw_load *load)
{
	kvw_prefetch_write(load->seen);
	kvw_spin_lock(&load->lock);
}

/* Counts the work that the worker has done since clock_ns, as long as there was work. The lock is
 * held. */
static void advance(struct kvw_load *load, int64_t now_ns)
{
	int64_t ahead = load->added_ns - load->done_ns;
	int64_t passed = now_ns - load->clock_ns;

	if (passed <= 0)
		return;
	if (load->peers_ns == 0) {
		load->done_ns += passed < ahead ? passed : ahead;
	} else if (passed >= ahead + load->peers_ns) {
		load->done_ns += ahead;
		load->peers_ns = 0;
	} else {
		int64_t own = (int64_t)((double)passed * (double)ahead /
					(double)(ahead + load->peers_ns));
		int64_t theirs = passed - own;

		load->done_ns += own;
		load->peers_ns -= theirs < load->peers_ns ? theirs : load->peers_ns;
	}
	load->clock_ns = now_ns;
}

/* Restores the invariants after a change, and publishes the result to readers. The lock is held. */
static void publish_counts(struct kvw_load *load)
{
	if (load->added_ns - load->done_ns > load->waiting_ns)
		load->done_ns = load->added_ns - load->waiting_ns;
	assert(load->waiting_ns >= 0 && load->done_ns <= load->added_ns);
	atomic_store_explicit(&load->seen->idle_at_ns,
		load->clock_ns + load->added_ns - load->done_ns + load->peers_ns,
		memory_order_relaxed);
}

/* Publishes a value. Every pick reads these words, so that only changes large enough to matter are
 * written. */
static void show_value(_Atomic float *shown, double value)
{
	double was = (double)atomic_load_explicit(shown, memory_order_relaxed);

	if (value != was && (isinf(was) || !(fabs(value - was) <= ROOM_STEP * was)))
		atomic_store_explicit(shown, (float)value, memory_order_relaxed);
}

static void set_room(struct kvw_load *load, double tokens)
{
	double each = load->kept_tokens > 0 && tokens < INFINITY
			      ? load->kept_ns / load->kept_tokens / tokens
			      : 0;

	show_value(&load->room->tokens, tokens);
	show_value(&load->room->ns_per_token, each);
}

void kvw_load_set_room(struct kvw_load *load, double tokens)
{
	assert(tokens > 0);
	kvw_spin_lock(&load->lock);
	set_room(load, tokens);
	kvw_spin_unlock(&load->lock);
}

void kvw_load_forget_room(struct kvw_load *load)
{
	kvw_spin_lock(&load->lock);
	load->kept_tokens = load->kept_ns = 0;
	set_room(load, INFINITY);
	kvw_spin_unlock(&load->lock);
}

void kvw_load_refused(struct kvw_load *load, uint32_t sent, int64_t pause_ns, int64_t now_ns)
{
	uint32_t inflight = kvw_load_inflight(load);

	if (inflight < sent)
		inflight = sent;
	atomic_store_explicit(
		&load->full_at, inflight > 0 ? inflight - 1 : 0, memory_order_relaxed);
	atomic_store_explicit(&load->full_since_ns, now_ns + pause_ns, memory_order_relaxed);
}

void kvw_load_forget_refusals(struct kvw_load *load)
{
	atomic_store_explicit(&load->full_since_ns, 0, memory_order_relaxed);
}

static void init(struct kvw_load *load, struct kvw_load_seen *seen, struct kvw_load_room *room)
{
	atomic_init(&load->lock, false);
	load->added_ns = 0;
	load->done_ns = 0;
	load->waiting_ns = 0;
	load->clock_ns = INT64_MIN / 2; /* earlier than any time, but far from overflow */
	load->answered_ns = load->clock_ns;
	load->sequences = load->unanswered = 0;
	load->sent = 0;
	load->peers_ns = load->peers_waiting_ns = 0;
	load->peers_held = 0;
	load->peers_sequences = load->peers_unanswered = 0;
	load->trust = 1;
	load->claim_ns = 0;
	load->judged_ns = load->clock_ns;
	load->claim = (struct kvw_load_claim){0};
	load->verdict = (struct kvw_load_verdict){0};
	kvw_load_set_foreign(load, 0, 0, 0, load->clock_ns);
	kvw_load_forget_refusals(load);
	load->seen = seen;
	load->room = room;
	load->kept_tokens = load->kept_ns = 0;
	set_room(load, INFINITY);
	atomic_init(&seen->idle_at_ns, load->clock_ns);
	atomic_init(&seen->held, 0);
}

void kvw_load_set_foreign(struct kvw_load *load, uint32_t waiting, uint32_t running,
	int64_t foreign_ns, int64_t now_ns)
{
	atomic_store_explicit(&load->foreign_ns, foreign_ns, memory_order_relaxed);
	atomic_store_explicit(&load->foreign_until_ns, now_ns + foreign_ns, memory_order_relaxed);
	atomic_store_explicit(&load->foreign_waiting, waiting, memory_order_relaxed);
	atomic_store_explicit(&load->foreign_running, running, memory_order_relaxed);
}

struct kvw_load_sequences kvw_load_sequences(struct kvw_load *load)
{
	struct kvw_load_sequences out;

	kvw_spin_lock(&load->lock);
	out = (struct kvw_load_sequences){load->sequences + load->peers_sequences,
		load->unanswered + load->peers_unanswered, load->sent};
	kvw_spin_unlock(&load->lock);
	return out;
}

void kvw_load_init(struct kvw_load *load)
{
	init(load, &load->own, &load->own_room);
}

void kvw_load_init_on(struct kvw_load *load, struct kvw_load_board *board, uint32_t worker)
{
	assert(worker < KVW_MAX_WORKERS);
	init(load, &board->workers[worker], &board->rooms[worker]);
}

void kvw_load_expect(struct kvw_load *load)
{
	kvw_prefetch_write(&load->lock);
	kvw_prefetch_write(load->seen);
}

/* Adds a kvw_load_held(), which may be negative, to the counts in flight. The lock is held. */
static void count_held(struct kvw_load *load, uint64_t by)
{
	uint64_t held = atomic_load_explicit(&load->seen->held, memory_order_relaxed);

	atomic_store_explicit(&load->seen->held, held + by, memory_order_relaxed);
}

uint32_t kvw_load_own_inflight(struct kvw_load *load)
{
	uint64_t held;

	kvw_spin_lock(&load->lock);
	held = atomic_load_explicit(&load->seen->held, memory_order_relaxed) - load->peers_held;
	kvw_spin_unlock(&load->lock);
	return (uint32_t)held;
}

struct kvw_load_part kvw_load_own(struct kvw_load *load, int64_t now_ns)
{
	struct kvw_load_part out;
	uint64_t held;

	lock(load);
	advance(load, now_ns);
	held = atomic_load_explicit(&load->seen->held, memory_order_relaxed) - load->peers_held;
	out = (struct kvw_load_part){.queue_ns = load->added_ns - load->done_ns,
		.waiting_ns = load->waiting_ns,
		.inflight = (uint32_t)held,
		.context = (uint32_t)(held >> 32),
		.sequences = load->sequences,
		.unanswered = load->unanswered};
	publish_counts(load);
	kvw_spin_unlock(&load->lock);
	return out;
}

static float trust_of(float trust)
{
	return trust < TRUST_LEAST ? 0 : trust > 1 ? 1 : trust;
}

/* Changes the trust for the time since the last judgement. The lock is held. */
static void doubt_peers(struct kvw_load *load, int64_t now_ns)
{
	int64_t since_ns = now_ns - load->judged_ns;

	if (load->claim_ns < CLAIM_NS) {
		if (since_ns > 0)
			load->trust =
				trust_of(load->trust + (float)since_ns / (float)TRUST_BACK_NS);
		load->judged_ns = now_ns;
	} else if (load->waiting_ns > 0) {
		load->judged_ns = now_ns; /* a first token will judge the claim better */
	} else if ((float)since_ns >= load->trust * (float)DOUBT_NS) {
		load->trust = 0;
		load->judged_ns = now_ns;
	}
}

static uint32_t trusted(uint32_t count, float trust)
{
	return (uint32_t)((double)count * (double)trust);
}

float kvw_load_set_peers(struct kvw_load *load, const struct kvw_load_part *peers, int64_t now_ns)
{
	uint64_t held;
	float trust;

	lock(load);
	advance(load, now_ns);
	doubt_peers(load, now_ns);
	trust = load->trust;
	held = kvw_load_held(trusted(peers->inflight, trust), trusted(peers->context, trust));
	load->claim_ns = peers->queue_ns;
	load->peers_ns = (int64_t)((double)peers->queue_ns * (double)trust);
	load->peers_waiting_ns = (int64_t)((double)peers->waiting_ns * (double)trust);
	count_held(load, held - load->peers_held);
	load->peers_held = held;
	load->peers_sequences = trusted(peers->sequences, trust);
	load->peers_unanswered = trusted(peers->unanswered, trust);
	publish_counts(load);
	kvw_spin_unlock(&load->lock);
	return trust;
}

struct kvw_load_verdict kvw_load_set_claim(
	struct kvw_load *load, const struct kvw_load_claim *claim)
{
	struct kvw_load_verdict verdict;

	kvw_spin_lock(&load->lock);
	verdict = load->verdict;
	load->verdict = (struct kvw_load_verdict){0};
	load->claim = *claim;
	kvw_spin_unlock(&load->lock);
	return verdict;
}

void kvw_load_forget_peers(struct kvw_load *load)
{
	lock(load);
	count_held(load, 0 - load->peers_held);
	load->peers_ns = load->peers_waiting_ns = 0;
	load->peers_held = 0;
	load->peers_sequences = load->peers_unanswered = 0;
	load->trust = 1;
	load->claim_ns = 0;
	load->claim = (struct kvw_load_claim){0};
	load->verdict = (struct kvw_load_verdict){0};
	publish_counts(load);
	kvw_spin_unlock(&load->lock);
}

void kvw_lease_take(
	struct kvw_lease *lease, struct kvw_load *load, int64_t prefill_ns, int64_t now_ns)
{
	assert(lease->load == NULL && prefill_ns >= 0);
	lock(load);
	advance(load, now_ns);
	lease->ahead_ns = load->waiting_ns + load->peers_waiting_ns;
	lease->claim_ns = load->claim_ns;
	lease->claim = load->claim;
	load->added_ns += prefill_ns;
	load->waiting_ns += prefill_ns;
	lease->position_ns = load->added_ns;
	publish_counts(load);
	count_held(load, kvw_load_held(1, 0));
	kvw_spin_unlock(&load->lock);
	lease->load = load;
	lease->prefill_ns = prefill_ns;
	lease->taken_ns = now_ns;
	lease->context = 0;
	lease->sequences = 0;
	lease->unanswered = false;
	lease->behind_ns = 0;
	lease->served_ns = 0;
	lease->plain = false;
	lease->answered = false;
}

/* Lock held. */
static void count_sequences(struct kvw_lease *lease, uint32_t more)
{
	struct kvw_load *load = lease->load;

	lease->sequences += more;
	load->sequences += more;
	load->sent += more;
	if (lease->unanswered)
		load->unanswered += more;
}

/* Counts a lease that has its first token, or will get none. The lock is held. */
static void count_answered(struct kvw_lease *lease)
{
	if (lease->unanswered)
		lease->load->unanswered -= lease->sequences;
	lease->unanswered = false;
}

void kvw_lease_hold(struct kvw_lease *lease, uint32_t tokens)
{
	assert(lease->load != NULL && lease->context == 0);
	lease->context = tokens;
	lease->unanswered = !lease->plain;
	lock(lease->load);
	count_held(lease->load, kvw_load_held(0, tokens));
	count_sequences(lease, 1);
	kvw_spin_unlock(&lease->load->lock);
}

void kvw_lease_widen(struct kvw_lease *lease, uint32_t more)
{
	lock(lease->load);
	count_sequences(lease, more);
	kvw_spin_unlock(&lease->load->lock);
}

/* Returns the part of the prefill time `ns` that the worker spent on this router's prompts, where
 * peers have prompts there, too. The lock is held. */
static int64_t own_part(const struct kvw_load *load, const struct kvw_lease *lease, int64_t ns)
{
	double own = (double)load->waiting_ns, peers = (double)load->peers_waiting_ns;

	if (peers <= 0 || lease->plain)
		return ns;
	return own > 0 ? (int64_t)((double)ns * own / (own + peers)) : 0;
}

/* Counts evidence about the router with the largest claim: the work that it claims should have been
 * computed before this request. The lock is held. */
static void judge_claim(
	struct kvw_load *load, const struct kvw_load_claim *claim, int64_t waited_ns)
{
	struct kvw_load_verdict *verdict = &load->verdict;

	if (claim->of == 0 || claim->queue_ns < CLAIM_ALONE_NS)
		return;
	if (verdict->of != claim->of)
		*verdict = (struct kvw_load_verdict){.of = claim->of};
	verdict->wrong += waited_ns < claim->queue_ns / 4;
	verdict->right += waited_ns >= claim->queue_ns / 2;
}

/* Judges by a first token whether the peers' claimed work delayed it. The lock is held. */
static void judge_peers(struct kvw_load *load, const struct kvw_lease *lease, int64_t now_ns)
{
	int64_t waited_ns = now_ns - lease->taken_ns - lease->prefill_ns;

	if (lease->plain)
		return;
	judge_claim(load, &lease->claim, waited_ns);
	if (lease->claim_ns < CLAIM_NS)
		return;
	load->trust = trust_of(waited_ns < lease->claim_ns / 4
				       ? load->trust * TRUST_LOST
				       : load->trust + TRUST_WON);
	load->judged_ns = now_ns;
}

void kvw_lease_first_token(struct kvw_lease *lease, int64_t now_ns)
{
	struct kvw_load *load = lease->load;

	if (load == NULL || lease->answered)
		return;
	lock(load);
	advance(load, now_ns);
	if (load->done_ns < lease->position_ns)
		load->done_ns = lease->position_ns;
	count_answered(lease);
	judge_peers(load, lease, now_ns);
	lease->behind_ns = load->added_ns - lease->position_ns;
	if (!lease->plain) {
		int64_t since = load->answered_ns;

		since = since > lease->taken_ns ? since : lease->taken_ns;
		lease->served_ns = now_ns > since ? own_part(load, lease, now_ns - since) : 0;
		load->answered_ns = now_ns;
	}
	load->waiting_ns -= lease->prefill_ns;
	publish_counts(load);
	kvw_spin_unlock(&load->lock);
	lease->answered = true;
	lease->first_ns = now_ns;
}

/* Ends a lease without an answer: skips the part of its work that the worker has not done. The lock
 * is held. */
static void skip_rest(struct kvw_load *load, const struct kvw_lease *lease, int64_t now_ns)
{
	int64_t left = 0;

	advance(load, now_ns);
	left = lease->position_ns - load->done_ns;
	if (left > lease->prefill_ns)
		left = lease->prefill_ns;
	if (left > 0)
		load->done_ns += left;
	load->waiting_ns -= lease->prefill_ns;
	publish_counts(load);
}

/* Returns how long a request held its part of the KV memory, from the start of its prefill. An
 * answer that is not a stream does not show that start: by Little's law the estimate is its time
 * times the part of the tokens in flight that fits the room. The lock is held. */
static double kept_ns(const struct kvw_load *load, const struct kvw_lease *lease, int64_t now_ns)
{
	double tokens = (double)atomic_load_explicit(&load->room->tokens, memory_order_relaxed);
	double context =
		(double)(atomic_load_explicit(&load->seen->held, memory_order_relaxed) >> 32);

	if (!lease->plain)
		return (double)(now_ns - lease->first_ns + lease->prefill_ns);
	return (double)(now_ns - lease->taken_ns) * (context > tokens ? tokens / context : 1);
}

/* Learns from a request that frees its part of the KV memory. The lock is held. */
static void learn_kept(struct kvw_load *load, const struct kvw_lease *lease, int64_t now_ns)
{
	double ns = kept_ns(load, lease, now_ns);

	load->kept_ns = KEPT_DECAY * load->kept_ns + (ns > 0 ? ns : 0) * lease->context;
	load->kept_tokens = KEPT_DECAY * load->kept_tokens + lease->context;
	set_room(load, (double)atomic_load_explicit(&load->room->tokens, memory_order_relaxed));
}

void kvw_lease_release(struct kvw_lease *lease, int64_t now_ns)
{
	if (lease->load == NULL)
		return;
	lock(lease->load);
	if (!lease->answered)
		skip_rest(lease->load, lease, now_ns);
	else
		learn_kept(lease->load, lease, now_ns);
	count_answered(lease);
	lease->load->sequences -= lease->sequences;
	count_held(lease->load, -kvw_load_held(1, lease->context));
	kvw_spin_unlock(&lease->load->lock);
	*lease = (struct kvw_lease){0};
}
