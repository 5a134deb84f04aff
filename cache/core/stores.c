/*
 * stores.c - chunks on their way from L1 to lower tiers.
 *
 * Each tier has a queue of stores, so that a slow tier holds up no other. Stores that wait or are
 * being written are charged against one limit of bytes; when it is reached the oldest waiting store
 * is dropped, so that a put never waits for a disk. A waiting store has no hold on its chunk and
 * cannot keep L1 full; if the chunk is evicted before its turn, the store is dropped. That is why
 * the default limit is the size of L1 for each tier: any chunk in memory may still be written. A
 * store that is being written holds its chunk.
 *
 * The bytes that are being written have a smaller limit: half of the limit above, and a quarter of
 * L1, since these chunks cannot be evicted meanwhile. It has to be much more than what keeps a
 * device busy, because a tier does not finish a write that an event depends on until its record is
 * durable. Loads come first: while any is under way or waiting, stores get an eighth of this limit.
 *
 * Erase. A waiting store is dropped. A store that is being written cannot be stopped: a tomb hides
 * its key at once; when the chunk is written, it is erased in the tier, and only then is the tomb
 * removed. A local tier that refuses the erase is asked again each second. A chunk that is put
 * again under the same name waits in the queue until then.
 */
#include <stdlib.h>

#include "core/barrier.h"
#include "core/lower.h"
#include "core/names.h"
#include "core/stores.h"
#include "core/tombs.h"

#define AT_ONCE      256 /* limit of writes under way in a tier */
#define BESIDE_LOADS 8   /* while loads are under way, this part of the bytes may be written */
#define RETRY_NS     1000000000
/* least charge of a store, which bounds the number of stores of small chunks */
#define LEAST_CHARGE (64u * 1024)

struct kvt_store {
	struct kvt_keyed keyed; /* first */
	struct kvt_job job;
	struct kvt_store *next, *prev; /* the line, while waiting */
	struct kvt_lower *lower;
	struct kvt_cargo *cargo;
	struct kvt_tomb tomb;
	uint64_t number; /* counts up */
	uint64_t charge;
	uint32_t entry; /* the chunk's entry in L1, held while it is written */
	struct kvt_segment segments[KVT_MAX_EXTENTS];
	enum { WAITING, WRITING, ERASING, REFUSED } state;
	int64_t again_ns; /* REFUSED: when the erase is sent again */
	bool held; /* WAITING, and held up by an erase under its name, or by a parent that is */
	bool erased;
	/* number of the last barrier that had begun when this store was erased */
	uint64_t erased_by;
};

static struct kvt_store *store_of(struct kvt_job *job)
{
	return (struct kvt_store *)((char *)job - offsetof(struct kvt_store, job));
}

void kvt_cargo_leave(struct kvt_cargo *cargo)
{
	if (cargo != NULL && --cargo->users == 0)
		kvt_cargo_free(cargo);
}

/* --- the line --------------------------------------------------------------------------------- */

static void join_line(struct kvt_store *store)
{
	struct kvt_store_line *line = &store->lower->line;

	store->prev = line->last;
	*(line->last != NULL ? &line->last->next : &line->first) = store;
	line->last = store;
}

static void leave_line(struct kvt_store *store)
{
	struct kvt_store_line *line = &store->lower->line;

	*(store->prev != NULL ? &store->prev->next : &line->first) = store->next;
	*(store->next != NULL ? &store->next->prev : &line->last) = store->prev;
}

/* Returns the oldest waiting store of all queues; NULL: none waits. */
static struct kvt_store *oldest(const struct kvt *k)
{
	struct kvt_store *found = NULL;

	for (size_t i = 0; i < k->lower_count; i++) {
		struct kvt_store *first = k->lower[i].line.first;

		if (first != NULL && (found == NULL || first->number < found->number))
			found = first;
	}
	return found;
}

/* Ends and frees a store; it must have left the queue, with no request under way. */
static void finish(struct kvt *k, struct kvt_store *store, bool stored)
{
	struct kvt_stores *stores = &k->stores;
	uint64_t number = store->number;

	if (!stored && !store->erased)
		kvt_count(&k->counters.stores_dropped, 1);
	kvt_keyed_remove(&stores->by_key, &store->keyed);
	stores->bytes -= store->charge;
	stores->count--;
	kvt_cargo_leave(store->cargo);
	free(store);
	kvt_barriers_stored(k, number);
}

static void drop(struct kvt *k, struct kvt_store *store)
{
	kvt_trace_chunk(k, KVT_TRACE_DROPPED, store->lower->id, &store->keyed.key, KVT_WHY_NONE);
	leave_line(store);
	finish(k, store, false);
}

/* Makes room for a charge by dropping the oldest waiting stores. */
static bool fits(struct kvt *k, uint64_t charge)
{
	struct kvt_stores *stores = &k->stores;

	while (stores->bytes != 0 && stores->bytes + charge > stores->limit_bytes) {
		struct kvt_store *store = oldest(k);

		if (store == NULL)
			return false;
		drop(k, store);
	}
	return true;
}

static void add(struct kvt *k, struct kvt_lower *lower, struct kvt_cargo *cargo)
{
	struct kvt_stores *stores = &k->stores;
	uint64_t charge = cargo->item.bytes < LEAST_CHARGE ? LEAST_CHARGE : cargo->item.bytes;
	struct kvt_store *store = fits(k, charge) ? calloc(1, sizeof(*store)) : NULL;

	if (store == NULL) {
		kvt_count(&k->counters.stores_dropped, 1);
		kvt_trace_chunk(k, KVT_TRACE_DROPPED, lower->id, &cargo->item.key, KVT_WHY_NONE);
		return;
	}
	store->keyed.key = cargo->item.key;
	store->lower = lower;
	store->cargo = cargo;
	cargo->users++;
	store->number = ++stores->begun;
	store->job.wanted_ns = kvt_clock(k);
	store->charge = charge;
	join_line(store);
	stores->bytes += charge;
	stores->count++;
	kvt_keyed_add(&stores->by_key, &store->keyed);
}

/* Returns whether the tier has the chunk; one that a tomb hides is being erased. */
static bool has_it(struct kvt_lower *b, const struct kvt_key *key)
{
	return kvt_lower_has(b, key) && !kvt_tomb_covers(b, key, true);
}

void kvt_stores_add(struct kvt *k, struct kvt_cargo *cargo)
{
	for (size_t i = 0; i < k->lower_count && !k->closing; i++) {
		struct kvt_lower *b = &k->lower[i];

		if (b->tier != NULL && !has_it(b, &cargo->item.key))
			add(k, b, cargo);
	}
}

bool kvt_stores_are_over(struct kvt *k, const struct kvt_key *key)
{
	if (kvt_keyed_find(&k->stores.by_key, key) != NULL)
		return false;
	for (size_t i = 0; i < k->lower_count; i++)
		if (k->lower[i].tier != NULL && has_it(&k->lower[i], key))
			return true;
	return false;
}

/* --- written, but erased meanwhile
 * -------------------------------------------------------------- */

/* The tier refused to erase: tries again later. The tomb stays. */
static void try_later(struct kvt *k, struct kvt_store *store)
{
	store->state = REFUSED;
	store->again_ns = kvt_clock(k) + RETRY_NS;
	store->next = k->stores.refused;
	k->stores.refused = store;
	kvt_kick(k);
}

static void end_erased(struct kvt *k, struct kvt_store *store)
{
	uint64_t erased_by = store->erased_by;

	kvt_tomb_remove(k, &store->tomb);
	k->stores.erased--;
	finish(k, store, false);
	kvt_barriers_erased(k, erased_by);
}

static void erase_done(struct kvt *k, struct kvt_job *job)
{
	uint32_t status = job->request.status;

	if ((status == KVT_EIO || status == KVT_ENOMEM) && !k->closing && !kvt_lower_is_shared(job->lower))
		try_later(k, store_of(job));
	else
		end_erased(k, store_of(job));
}

/* Erases a written store's chunk in the tier too; the tomb hides it until then. */
static void erase_lower(struct kvt_store *store)
{
	store->state = ERASING;
	store->job.request = (struct kvt_tier_request){
		.verb = KVT_TIER_ERASE,
		.keys = &store->keyed.key,
		.key_count = 1,
	};
	kvt_lower_submit(store->lower, &store->job, erase_done);
}

size_t kvt_stores_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns)
{
	struct kvt_store **at = &k->stores.refused, *store;
	size_t done = 0;

	while ((store = *at) != NULL) {
		if (now_ns < store->again_ns) {
			if (store->again_ns < *next_ns)
				*next_ns = store->again_ns;
			at = &store->next;
			continue;
		}
		*at = store->next;
		erase_lower(store);
		done++;
	}
	return done;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void end_written(struct kvt *k, struct kvt_store *store, bool stored)
{
	if (stored) {
		kvt_took(k, KVT_LATENCY_STORE, store->job.wanted_ns);
		kvt_count(&store->lower->stores, 1);
		kvt_count(&store->lower->store_bytes, store->cargo->item.bytes);
	}
	finish(k, store, stored);
}

static void write_done(struct kvt *k, struct kvt_job *job)
{
	struct kvt_store *store = store_of(job);

	store->lower->stores_under_way--;
	/* the tier found that the bytes changed in memory */
	if (job->request.status == KVT_ECORRUPT)
		kvt_l1_drop(k->l1, store->entry);
	kvt_l1_release(k->l1, store->entry);
	if (store->erased)
		/* also while closing: the next process that opens the tier must not find it */
		erase_lower(store);
	else
		end_written(k, store, job->request.status == KVT_OK);
}

static bool may_write(struct kvt *k, const struct kvt_store *store)
{
	struct kvt_lower *b = store->lower;
	uint64_t queued = atomic_load_explicit(&b->writes.queued, memory_order_relaxed);
	uint64_t most = k->stores.write_bytes;

	if (k->loads.reading + k->loads.waiting != 0)
		most /= BESIDE_LOADS;
	return b->refused == NULL && kvt_breaker_shows(&b->write_breaker) && kvt_names_known(k) &&
	       b->stores_under_way < AT_ONCE &&
	       (queued == 0 || queued + store->cargo->item.bytes <= most);
}

/* Returns whether a chunk may go to the tier only if the tier has its parent. That holds for the
 * only lower tier: the parent leaves L1 some day, and no get reaches a chunk behind a gap. With
 * several tiers another one may have the parent. A parent that is still being filled will follow
 * its child. */
static bool needs_parent(struct kvt *k, const struct kvt_lower *b, const struct kvt_item *item)
{
	for (size_t i = 0; i < k->lower_count; i++)
		if (&k->lower[i] != b && k->lower[i].tier != NULL)
			return false;
	return item->parent != NULL && !kvt_l1_is_filling(k->l1, item->parent);
}

static void begin_writing(struct kvt *k, struct kvt_store *store)
{
	const struct kvt_item *item = &store->cargo->item;

	leave_line(store);
	store->state = WRITING;
	store->lower->stores_under_way++;
	store->job.request = (struct kvt_tier_request){
		.verb = KVT_TIER_WRITE,
		.keys = &store->keyed.key,
		.key_count = 1,
		.segments = store->segments,
		.segment_count = kvt_l1_segments(k->l1, store->entry, store->segments),
		.bytes = kvt_l1_bytes(k->l1, store->entry),
		.checksum = kvt_l1_checksum(k->l1, store->entry),
		.item = item,
		.announce = item->blocks != NULL,
		.wanted_ns = store->job.wanted_ns,
		.chained = needs_parent(k, store->lower, item),
	};
	/* Another chunk of the same length may have replaced the one that was put. */
	if (store->lower->tier->piece_bytes == store->cargo->piece_bytes &&
		kvt_checksum_equal(&store->cargo->whole, &store->job.request.checksum))
		store->job.request.pieces = store->cargo->pieces;
	kvt_lower_submit(store->lower, &store->job, write_done);
}

/* Returns whether the parent, in the same queue, must be written first: it stands behind its child,
 * since a batch named the child first, or it is held up. */
static bool is_early(struct kvt *k, struct kvt_store *store)
{
	const struct kvt_key *parent = store->cargo->item.parent;
	struct kvt_keyed *at = parent != NULL ? kvt_keyed_find(&k->stores.by_key, parent) : NULL;

	for (; at != NULL; at = kvt_keyed_from(at->next, parent)) {
		const struct kvt_store *other = (const struct kvt_store *)at;

		if (other != store && other->lower == store->lower && other->state == WAITING &&
			(other->number > store->number || other->held)) {
			store->held = other->held;
			return true;
		}
	}
	return false;
}

/* Begins a store whose turn has come, unless its parent goes first or an erased chunk of its name
 * is still being erased. */
static void advance(struct kvt *k, struct kvt_store *store)
{
	store->held = kvt_tomb_covers(store->lower, &store->keyed.key, true);
	if (store->held || is_early(k, store))
		return;
	if (has_it(store->lower, &store->keyed.key)) {
		leave_line(store);
		finish(k, store, true);
	} else if (kvt_l1_hold_one(k->l1, &store->keyed.key, false, &store->entry) != KVT_OK) {
		drop(k, store);
	} else if (kvt_l1_bytes(k->l1, store->entry) != store->cargo->item.bytes) {
		kvt_l1_release(k->l1, store->entry); /* another chunk has been put under this key */
		drop(k, store);
	} else {
		begin_writing(k, store);
	}
}

void kvt_stores_pump(struct kvt *k)
{
	for (size_t i = 0; i < k->lower_count; i++) {
		struct kvt_store *store = k->lower[i].line.first, *next;

		for (; store != NULL && may_write(k, store); store = next) {
			next = store->next;
			advance(k, store);
		}
	}
}

/* --- erase ------------------------------------------------------------------------------------ */

static void erase_one(struct kvt *k, struct kvt_store *store)
{
	if (store->state == WAITING) {
		drop(k, store);
	} else if (!store->erased) {
		store->erased = true;
		store->erased_by = k->barriers.begun;
		k->stores.erased++;
		store->tomb.keyed.key = store->keyed.key;
		store->tomb.tiers = kvt_tomb_of(store->lower);
		kvt_tomb_add(k, &store->tomb);
	}
}

static void erase_key(struct kvt *k, const struct kvt_key *key)
{
	struct kvt_keyed *at = kvt_keyed_find(&k->stores.by_key, key);

	while (at != NULL) {
		struct kvt_keyed *next = kvt_keyed_from(at->next, key);

		erase_one(k, (struct kvt_store *)at);
		at = next;
	}
}

static bool of_tenant(const struct kvt_store *store, const struct kvt_tenant *tenant)
{
	return tenant == NULL || memcmp(tenant, &store->cargo->item.tenant, sizeof(*tenant)) == 0;
}

void kvt_stores_erase(
	struct kvt *k, const struct kvt_key *keys, size_t n, const struct kvt_tenant *tenant)
{
	for (size_t i = 0; keys != NULL && i < n; i++)
		erase_key(k, &keys[i]);
	for (size_t i = 0; keys == NULL && i < KVT_KEYED_LISTS; i++) {
		struct kvt_keyed *at = k->stores.by_key.lists[i], *next;

		for (; at != NULL; at = next) {
			next = at->next;
			if (of_tenant((struct kvt_store *)at, tenant))
				erase_one(k, (struct kvt_store *)at);
		}
	}
}

void kvt_stores_erase_slots(struct kvt *k, const struct kvt_slot_set *slots)
{
	for (size_t i = 0; i < KVT_KEYED_LISTS; i++) {
		struct kvt_keyed *at = k->stores.by_key.lists[i], *next;

		for (; at != NULL; at = next) {
			next = at->next;
			if (((struct kvt_store *)at)->state == WAITING &&
				kvt_slot_set_has(slots, kvt_key_slot(&at->key)))
				drop(k, (struct kvt_store *)at);
		}
	}
}

void kvt_stores_stop(struct kvt *k)
{
	while (k->stores.refused != NULL) {
		struct kvt_store *store = k->stores.refused;

		k->stores.refused = store->next;
		end_erased(k, store);
	}
	for (struct kvt_store *store; (store = oldest(k)) != NULL;)
		drop(k, store);
}
