/*
 * barrier.c - lets erases and drains wait until the tiers have done their part.
 *
 * A barrier passes three stages. It waits: an erase for the tiers' answers to its ERASE requests
 * and for stores that were being written when it began; a drain for all stores under way. Then it
 * sends FLUSH to every tier. When the tiers have answered, the barrier is over, and its operation
 * is done if the caller still waits. The operation may end earlier, at its deadline; the barrier
 * goes on, since its tombs must stay until the tiers have answered. A local tier that refuses to
 * erase is asked again each second. A shared tier is not: it may be away for long, and may then
 * keep the keys.
 */
#include <stdlib.h>

#include "core/barrier.h"
#include "core/generations.h"
#include "core/lower.h"
#include "core/refused.h"
#include "core/tombs.h"

#define RETRY_NS 1000000000

struct barrier_op {
	struct kvt_op op; /* first */
	struct kvt_barrier *barrier;
};

struct kvt_barrier {
	struct kvt_barrier *next;
	/* the waiting caller's operation; NULL: no caller waits any longer */
	struct barrier_op *op;
	/* number of this barrier: it waits for stores erased by it or by barriers before it */
	uint64_t number;
	/* a drain: it also waits for all stores with numbers up to this one */
	uint64_t stores_up_to;
	size_t stores_left, erased_left;
	size_t under_way; /* requests under way, plus one while the barrier is being set up */
	bool bad;                   /* a tier could not make the erase durable */
	bool raise;                 /* the barrier waits for a new generation, ... */
	bool unraised;              /* ... which the table did not grant: nothing is promised */
	bool again[KVT_TIER_COUNT]; /* ERASE was refused */
	int64_t again_ns;
	uint64_t count;                      /* chunks that this barrier erases */
	/* FLUSH requests, one per tier, in the order of k->lower */
	struct kvt_job jobs[KVT_TIER_COUNT];
	struct kvt_key *keys;                /* behind the tombs */
	size_t n;
	/* one per key; all are placed or none, and all hide the same tiers */
	struct kvt_tomb tombs[];
};

/* --- life ------------------------------------------------------------------------------------- */

static void expire(struct kvt *k, struct kvt_op *op, enum kvt_status why)
{
	struct kvt_barrier *b = ((struct barrier_op *)op)->barrier;
	uint64_t count = b->count;

	b->op = NULL;
	kvt_op_done(k, op, (b->raise || b->unraised) && why == KVT_MISS ? KVT_EIO : why, count);
}

struct kvt_barrier *kvt_barrier_create(const struct kvt_key *keys, size_t n)
{
	size_t each = sizeof(struct kvt_tomb) + sizeof(struct kvt_key);
	struct kvt_barrier *b;

	if (n > (SIZE_MAX - sizeof(*b)) / each)
		return NULL;
	b = calloc(1, sizeof(*b) + n * each);
	if (b == NULL)
		return NULL;
	b->op = calloc(1, sizeof(*b->op));
	if (b->op == NULL) {
		free(b);
		return NULL;
	}
	b->op->op.expire = expire;
	b->op->barrier = b;
	b->n = n;
	b->keys = (struct kvt_key *)&b->tombs[n];
	for (size_t i = 0; i < n; i++)
		b->keys[i] = b->tombs[i].keyed.key = keys[i];
	return b;
}

void kvt_barrier_destroy(struct kvt_barrier *b)
{
	free(b->op);
	free(b);
}

static void remove_barrier(struct kvt *k, struct kvt_barrier *b)
{
	struct kvt_barrier **at = &k->barriers.first;

	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	free(b);
}

void kvt_barriers_finish(struct kvt *k)
{
	while (k->barriers.first != NULL)
		remove_barrier(k, k->barriers.first);
}

/* --- course ----------------------------------------------------------------------------------- */

static void end(struct kvt *k, struct kvt_barrier *b)
{
	struct barrier_op *op = b->op;
	enum kvt_status status = b->unraised ? KVT_EIO : b->bad ? KVT_MISS : KVT_OK;
	uint64_t count = b->count;

	remove_barrier(k, b);
	if (op == NULL)
		return;
	op->barrier = NULL;
	kvt_op_done(k, &op->op, status, count);
}

static void submit(struct kvt *k, struct kvt_barrier *b, size_t i,
	const struct kvt_tier_request *request, void (*done)(struct kvt *k, struct kvt_job *job))
{
	b->under_way++;
	b->jobs[i].request = *request;
	b->jobs[i].owner = b;
	kvt_lower_submit(&k->lower[i], &b->jobs[i], done);
}

static bool refused(const struct kvt_job *job)
{
	return job->request.status != KVT_OK && job->request.status != KVT_MISS;
}

static void flush_done(struct kvt *k, struct kvt_job *job)
{
	struct kvt_barrier *b = job->owner;

	if (refused(job))
		b->bad = true;
	if (--b->under_way == 0)
		end(k, b);
}

/* Lifts the tomb of key i: the tier has erased the key, or will do so before it shows or stores
 * that key again. */
static void unhide(struct kvt *k, struct kvt_barrier *b, size_t i)
{
	for (size_t j = 0; j < b->n; j++)
		b->tombs[j].tiers &= ~kvt_tomb_of(&k->lower[i]);
}

static bool is_asked_again(const struct kvt_barrier *b)
{
	for (size_t i = 0; i < KVT_TIER_COUNT; i++)
		if (b->again[i])
			return true;
	return false;
}

/* Sends the FLUSH requests if the barrier waits for nothing else. May free the barrier. */
static void advance(struct kvt *k, struct kvt_barrier *b)
{
	const struct kvt_tier_request flush = {.verb = KVT_TIER_FLUSH};

	if (b->under_way != 0 || b->stores_left != 0 || b->erased_left != 0 || is_asked_again(b))
		return;
	for (size_t i = 0; i < b->n; i++)
		kvt_tomb_remove(k, &b->tombs[i]);
	for (size_t i = 0; i < k->lower_count; i++)
		if (k->lower[i].tier != NULL)
			submit(k, b, i, &flush, flush_done);
	if (b->under_way == 0)
		end(k, b);
}

static void erase_done(struct kvt *k, struct kvt_job *job)
{
	struct kvt_barrier *b = job->owner;

	b->under_way--;
	if (refused(job) && job->request.status != KVT_ECANCELED && !k->closing && !kvt_lower_is_shared(job->lower)) {
		b->again[job - b->jobs] = true;
		b->again_ns = kvt_clock(k) + RETRY_NS;
		kvt_kick(k);
	} else {
		b->bad |= refused(job);
		unhide(k, b, (size_t)(job - b->jobs));
	}
	advance(k, b);
}

static void erase_in(struct kvt *k, struct kvt_barrier *b, size_t i)
{
	const struct kvt_tier_request erase = {
		.verb = KVT_TIER_ERASE,
		.keys = b->keys,
		.key_count = b->n,
	};

	submit(k, b, i, &erase, erase_done);
}

/* May free it. */
static void ask_again(struct kvt *k, struct kvt_barrier *b)
{
	for (size_t i = 0; i < KVT_TIER_COUNT; i++) {
		if (!b->again[i])
			continue;
		b->again[i] = false;
		erase_in(k, b, i);
	}
	advance(k, b);
}

size_t kvt_barriers_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns)
{
	struct kvt_barrier *b = k->barriers.first, *next;
	size_t done = 0;

	for (; b != NULL; b = next) {
		next = b->next;
		if (!is_asked_again(b))
			continue;
		if (now_ns >= b->again_ns) {
			ask_again(k, b);
			done++;
		} else if (b->again_ns < *next_ns) {
			*next_ns = b->again_ns;
		}
	}
	return done;
}

/* Each call of advance() below may free the barrier that it is given. */
void kvt_barriers_stored(struct kvt *k, uint64_t store_number)
{
	struct kvt_barrier *b = k->barriers.first, *next;

	for (; b != NULL; b = next) {
		next = b->next;
		if (b->stores_left == 0 || store_number > b->stores_up_to)
			continue;
		b->stores_left--;
		advance(k, b);
	}
}

void kvt_barriers_erased(struct kvt *k, uint64_t erased_by)
{
	struct kvt_barrier *b = k->barriers.first, *next;

	for (; b != NULL; b = next) {
		next = b->next;
		if (b->erased_left == 0 || erased_by > b->number)
			continue;
		b->erased_left--;
		advance(k, b);
	}
}

/* --- beginning -------------------------------------------------------------------------------- */

enum kvt_status kvt_barrier_begin(struct kvt *k, struct kvt_barrier *b, uint32_t kind,
	const struct kvt_op_want *want, int64_t deadline_ns, struct kvt_op **op)
{
	enum kvt_status status;

	b->op->op.kind = kind;
	status = kvt_op_begin(k, &b->op->op, want, deadline_ns);
	if (status != KVT_OK)
		return status;
	*op = &b->op->op;
	b->number = ++k->barriers.begun;
	b->next = k->barriers.first;
	k->barriers.first = b;
	b->under_way++; /* so that the barrier does not end while it is being set up */
	return KVT_OK;
}

void kvt_barrier_await_stores(struct kvt *k, struct kvt_barrier *b)
{
	b->stores_up_to = k->stores.begun;
	b->stores_left = k->stores.count;
}

void kvt_barrier_hide(struct kvt *k, struct kvt_barrier *b)
{
	for (size_t i = 0; i < b->n; i++) {
		b->tombs[i].tiers = KVT_TOMB_ALL;
		kvt_tomb_add(k, &b->tombs[i]);
	}
}

bool kvt_barrier_erase_lower(struct kvt *k, struct kvt_barrier *b)
{
	bool bad = false;

	for (size_t i = 0; i < k->lower_count; i++) {
		if (k->lower[i].tier != NULL) {
			erase_in(k, b, i);
			continue;
		}
		bad |= kvt_refused_erase(&k->lower[i], b->keys, b->n);
		unhide(k, b, i); /* a refused store erases the keys itself, before any lookup uses it */
	}
	return bad;
}

void kvt_barrier_raise(
	struct kvt *k, struct kvt_barrier *b, uint32_t slot, const struct kvt_tenant *tenant)
{
	b->raise = kvt_generations_raise(k, b, slot, tenant);
	b->unraised = !b->raise;
	b->under_way += b->raise;
}

void kvt_barrier_raised(struct kvt *k, struct kvt_barrier *b, bool made)
{
	b->raise = false;
	b->unraised = !made;
	b->under_way--;
	advance(k, b);
}

void kvt_barrier_begun(struct kvt *k, struct kvt_barrier *b, uint64_t count, bool bad)
{
	b->count = count;
	b->bad = bad;
	b->erased_left = k->stores.erased;
	b->under_way--;
	advance(k, b);
}
