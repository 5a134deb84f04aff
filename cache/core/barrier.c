/*
 * barrier.c - erases and drains.
 *
 * A barrier first waits: an erase for the tiers' answers to its ERASE request and for stores that
 * were being written when it came; a drain for all stores that were under way. Then it has every
 * tier FLUSH, then it is over, and the operation, if its caller still waits, is done. The
 * operation may end earlier, at its deadline; the barrier goes on, since its tombs must stay until
 * the tiers have answered. A tier that refuses to erase is asked again each second.
 */
#include <stdlib.h>
#include <string.h>

#include "core/barrier.h"
#include "core/lower.h"
#include "core/loads.h"
#include "core/step.h"
#include "core/stores.h"

#define RETRY_NS 1000000000

struct barrier_op {
	struct kvt_op op; /* first */
	struct kvt_barrier *barrier;
};

struct kvt_barrier {
	struct kvt_barrier *next;
	struct barrier_op *op; /* NULL: no caller waits any longer */
	enum { GATHERING, FLUSHING } phase;
	uint64_t number;       /* erased stores marked up to here are waited for */
	uint64_t stores_up_to; /* a drain: stores begun up to here are, too */
	size_t stores_left, erased_left;
	size_t under_way;           /* requests */
	bool bad;                   /* a tier could not make it durable */
	bool again[KVT_TIER_COUNT]; /* ERASE was refused */
	int64_t again_ns;
	uint64_t count;                      /* chunks that are erased by it */
	struct kvt_job jobs[KVT_TIER_COUNT]; /* one per tier, of k->lower */
	struct kvt_key *keys;                /* behind the tombs */
	size_t n;
	struct kvt_tomb tombs[]; /* one per key */
};

/* --- tombs ------------------------------------------------------------------------------------ */

void kvt_tomb_add(struct kvt *k, struct kvt_tomb *tomb)
{
	kvt_keyed_add(&k->barriers.tombs, &tomb->keyed);
	atomic_fetch_add(&k->barriers.tomb_count, 1);
}

void kvt_tomb_remove(struct kvt *k, struct kvt_tomb *tomb)
{
	kvt_keyed_remove(&k->barriers.tombs, &tomb->keyed);
	atomic_fetch_sub(&k->barriers.tomb_count, 1);
}

bool kvt_tomb_covers(struct kvt *k, const struct kvt_key *key, bool locked)
{
	bool found;

	if (atomic_load(&k->barriers.tomb_count) == 0)
		return false;
	if (!locked)
		pthread_mutex_lock(&k->lock);
	found = kvt_keyed_find(&k->barriers.tombs, key) != NULL;
	if (!locked)
		pthread_mutex_unlock(&k->lock);
	return found;
}

/* --- course ----------------------------------------------------------------------------------- */

static void remove_barrier(struct kvt *k, struct kvt_barrier *b)
{
	struct kvt_barrier **at = &k->barriers.first;

	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	free(b);
}

static void end(struct kvt *k, struct kvt_barrier *b)
{
	struct barrier_op *op = b->op;
	enum kvt_status status = b->bad ? KVT_MISS : KVT_OK;
	uint64_t count = b->count;

	remove_barrier(k, b);
	if (op == NULL)
		return;
	op->barrier = NULL;
	kvt_op_done(k, &op->op, status, count);
}

static void submit(struct kvt *k, struct kvt_barrier *b, size_t i, enum kvt_tier_verb verb)
{
	b->under_way++;
	b->jobs[i].request = (struct kvt_tier_request){
		.verb = verb,
		.keys = verb == KVT_TIER_ERASE ? b->keys : NULL,
		.key_count = verb == KVT_TIER_ERASE ? b->n : 0,
	};
	b->jobs[i].owner = b;
	kvt_lower_submit(&k->lower[i], &b->jobs[i], KVT_JOB_BARRIER);
}

static bool is_asked_again(const struct kvt_barrier *b)
{
	for (size_t i = 0; i < KVT_TIER_COUNT; i++)
		if (b->again[i])
			return true;
	return false;
}

/* Goes on if nothing is waited for any more. May free it. */
static void advance(struct kvt *k, struct kvt_barrier *b)
{
	if (b->under_way != 0 || b->stores_left != 0 || b->erased_left != 0 || is_asked_again(b))
		return;
	if (b->phase == GATHERING) {
		b->phase = FLUSHING;
		for (size_t i = 0; i < b->n; i++)
			kvt_tomb_remove(k, &b->tombs[i]);
		for (size_t i = 0; i < k->lower_count; i++)
			if (k->lower[i].tier != NULL)
				submit(k, b, i, KVT_TIER_FLUSH);
	}
	if (b->under_way == 0)
		end(k, b);
}

void kvt_barrier_done(struct kvt *k, struct kvt_job *job)
{
	struct kvt_barrier *b = job->owner;
	uint32_t status = job->request.status;
	bool refused = status != KVT_OK && status != KVT_MISS;

	b->under_way--;
	if (refused && b->phase == GATHERING && status != KVT_ECANCELED && !k->closing) {
		b->again[job - b->jobs] = true;
		b->again_ns = kvt_clock(k) + RETRY_NS;
		kvt_kick(k);
	} else if (refused) {
		b->bad = true;
	}
	advance(k, b);
}

size_t kvt_barriers_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns)
{
	size_t done = 0;

	for (struct kvt_barrier *b = k->barriers.first; b != NULL; b = b->next) {
		if (!is_asked_again(b))
			continue;
		for (size_t i = 0; i < KVT_TIER_COUNT && now_ns >= b->again_ns; i++) {
			if (!b->again[i])
				continue;
			b->again[i] = false;
			submit(k, b, i, KVT_TIER_ERASE);
			done++;
		}
		if (is_asked_again(b) && b->again_ns < *next_ns)
			*next_ns = b->again_ns;
	}
	return done;
}

/* Each of these may free the barrier that it looks at. */
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

uint64_t kvt_barriers_now(struct kvt *k)
{
	return k->barriers.begun;
}

/* --- beginning -------------------------------------------------------------------------------- */

static void expire(struct kvt *k, struct kvt_op *op, enum kvt_status why)
{
	struct kvt_barrier *b = ((struct barrier_op *)op)->barrier;
	uint64_t count = b->count;

	b->op = NULL;
	kvt_op_done(k, op, why, count);
}

static struct kvt_barrier *make(const struct kvt_victims *victims)
{
	size_t n = victims != NULL && victims->keys != NULL ? victims->n : 0;
	size_t each = sizeof(struct kvt_tomb) + sizeof(struct kvt_key);
	struct kvt_barrier *b;

	if (n > (SIZE_MAX - sizeof(*b)) / each)
		return NULL;
	b = calloc(1, sizeof(*b) + n * each);
	if (b == NULL)
		return NULL;
	b->n = n;
	b->keys = (struct kvt_key *)&b->tombs[n];
	for (size_t i = 0; i < n; i++)
		b->keys[i] = b->tombs[i].keyed.key = victims->keys[i];
	return b;
}

/* How many of these chunks are anywhere. */
static uint64_t count_there(struct kvt *k, const struct kvt_barrier *b)
{
	struct kvt_tier_known known;
	uint64_t count = 0;

	for (size_t i = 0; i < b->n; i++)
		count += kvt_l1_match(k->l1, &b->keys[i], 1) == 1 ||
			 kvt_lower_holding(k, &b->keys[i], KVT_ALL_TIERS, true, &known) != NULL;
	return count;
}

/* From here on nothing of it can be read. */
static void erase_keys(struct kvt *k, struct kvt_barrier *b)
{
	b->count = count_there(k, b);
	kvt_loads_erase(k, b->keys, b->n, NULL);
	kvt_stores_erase(k, b->keys, b->n, NULL);
	for (size_t i = 0; i < b->n; i++)
		kvt_tomb_add(k, &b->tombs[i]);
	kvt_l1_erase(k->l1, b->keys, b->n);
	for (size_t i = 0; i < k->lower_count; i++)
		if (k->lower[i].tier != NULL)
			submit(k, b, i, KVT_TIER_ERASE);
}

/* Chunks that a tier still has, although they are erased: its answer to an ERASE is to come. */
static size_t count_hidden(struct kvt *k, struct kvt_tier *tier, const struct kvt_tenant *tenant)
{
	struct kvt_tier_known known;
	size_t count = 0;

	for (size_t i = 0; i < KVT_KEYED_LISTS; i++) {
		struct kvt_keyed *at = k->barriers.tombs.lists[i];

		for (; at != NULL; at = at->next) {
			bool first = kvt_keyed_find(&k->barriers.tombs, &at->key) == at;

			known = (struct kvt_tier_known){.bytes = 0};
			if (first && tier->ops->known(tier, &at->key, &known) == KVT_OK)
				count += tenant == NULL ||
					 memcmp(&known.tenant, tenant, sizeof(*tenant)) == 0;
		}
	}
	return count;
}

/* The same for a tenant, or all: tiers do this at once, so that no tombs are needed. A chunk may
 * lie in several tiers: the count is of the tier that had most. */
static void erase_many(struct kvt *k, struct kvt_barrier *b, const struct kvt_tenant *tenant)
{
	size_t count;

	kvt_loads_erase(k, NULL, 0, tenant);
	kvt_stores_erase(k, NULL, 0, tenant);
	b->count = tenant != NULL ? kvt_l1_erase_tenant(k->l1, tenant) : kvt_l1_erase_all(k->l1);
	for (size_t i = 0; i < k->lower_count; i++) {
		struct kvt_tier *tier = k->lower[i].tier;
		enum kvt_status status;
		size_t hidden;

		if (tier == NULL)
			continue;
		count = 0;
		hidden = count_hidden(k, tier, tenant);
		status = tenant != NULL ? tier->ops->erase_tenant(tier, tenant, &count)
					: tier->ops->erase_all(tier, &count);
		if (status != KVT_OK)
			b->bad = true;
		count -= hidden < count ? hidden : count;
		if (count > b->count)
			b->count = count;
	}
}

static void begin(struct kvt *k, struct kvt_barrier *b, const struct kvt_victims *victims)
{
	b->number = ++k->barriers.begun;
	b->next = k->barriers.first;
	k->barriers.first = b;
	b->under_way++; /* so that it does not end while it begins */
	if (victims == NULL) {
		b->stores_up_to = k->stores.begun;
		b->stores_left = k->stores.count;
	} else if (victims->keys != NULL) {
		erase_keys(k, b);
	} else {
		erase_many(k, b, victims->tenant);
	}
	b->erased_left = k->stores.erased;
	b->under_way--;
	advance(k, b);
}

enum kvt_status kvt_barrier_begin(struct kvt *k, const struct kvt_victims *victims,
	uint64_t timeout_ns, const struct kvt_op_want *want, struct kvt_op **out)
{
	int64_t deadline_ns = kvt_deadline(k, timeout_ns);
	struct kvt_barrier *b = make(victims);
	struct barrier_op *op = calloc(1, sizeof(*op));
	enum kvt_status status = KVT_ENOMEM;

	if (b == NULL || op == NULL)
		goto out;
	op->op.kind = victims != NULL ? KVT_OP_ERASE : KVT_OP_DRAIN;
	op->op.expire = expire;
	op->barrier = b;
	b->op = op;
	pthread_mutex_lock(&k->lock);
	status = kvt_op_begin(k, &op->op, want, deadline_ns);
	if (status == KVT_OK) {
		*out = &op->op;
		begin(k, b, victims);
		kvt_pump(k);
		b = NULL;
		op = NULL;
	}
	pthread_mutex_unlock(&k->lock);
out:
	free(b);
	free(op);
	return status;
}

void kvt_barriers_finish(struct kvt *k)
{
	while (k->barriers.first != NULL)
		remove_barrier(k, k->barriers.first);
}
