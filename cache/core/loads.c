/*
 * loads.c - loads of chunks from a lower tier into L1.
 *
 * Each key has at most one load, however many gets wait for it. A load begins when the bytes under
 * way are below the limit and L1 has room (loads may use the staging share; when L1 is full they
 * wait as long as other loads are under way); then the chunk is read into its place in L1 and
 * published there, whether or not a get still waits. A chunk that was erased meanwhile, or fails
 * its check, is discarded.
 *
 * Every load ends in finish(), which notifies all its waiters once.
 */
#include <stdlib.h>

#include "core/barrier.h"
#include "core/lower.h"
#include "core/loads.h"
#include "core/tombs.h"

struct kvt_load {
	struct kvt_keyed keyed; /* first */
	struct kvt_job job;
	struct kvt_load *next, *prev; /* the line, while waiting */
	struct kvt_lower *lower;
	struct kvt_tier_known known;
	struct kvt_waiter *waiters;
	uint32_t entry; /* the load's entry in L1, once its tier is reading */
	struct kvt_segment segments[KVT_MAX_EXTENTS];
	enum { WAITING, READING, ENDING } state;
	bool erased;
};

static struct kvt_load *load_of(struct kvt_job *job)
{
	return (struct kvt_load *)((char *)job - offsetof(struct kvt_load, job));
}

/* --- the line --------------------------------------------------------------------------------- */

static void line_up(struct kvt_loads *loads, struct kvt_load *load)
{
	load->next = NULL;
	load->prev = loads->last;
	*(loads->last != NULL ? &loads->last->next : &loads->first) = load;
	loads->last = load;
	loads->waiting++;
	loads->waiting_bytes += load->known.bytes;
}

static void leave_line(struct kvt_loads *loads, struct kvt_load *load)
{
	*(load->prev != NULL ? &load->prev->next : &loads->first) = load->next;
	*(load->next != NULL ? &load->next->prev : &loads->last) = load->prev;
	loads->waiting--;
	loads->waiting_bytes -= load->known.bytes;
}

/* --- waiters ---------------------------------------------------------------------------------- */

static void add_waiter(struct kvt_load *load, struct kvt_waiter *waiter)
{
	waiter->load = load;
	waiter->bytes = load->known.bytes;
	waiter->prev = NULL;
	waiter->next = load->waiters;
	if (waiter->next != NULL)
		waiter->next->prev = waiter;
	load->waiters = waiter;
}

static void remove_waiter(struct kvt_waiter *waiter)
{
	*(waiter->prev != NULL ? &waiter->prev->next : &waiter->load->waiters) = waiter->next;
	if (waiter->next != NULL)
		waiter->next->prev = waiter->prev;
	waiter->load = NULL;
}

/* Notifies all waiters of a load. there: the chunk has arrived, and each waiter gets a hold. A
 * notified waiter may end waits of others on this load, so the list is read from its head each
 * time. */
static void notify_waiters(struct kvt *k, struct kvt_load *load, bool there)
{
	while (load->waiters != NULL) {
		struct kvt_waiter *waiter = load->waiters;
		uint32_t entry = KVT_NO_ENTRY;

		if (there && kvt_l1_hold_one(k->l1, &load->keyed.key, true, &entry) != KVT_OK)
			entry = KVT_NO_ENTRY;
		remove_waiter(waiter);
		waiter->resolve(k, waiter, entry, (uint8_t)load->lower->id);
	}
}

/* Ends and frees a load; it must have left the queue, and no read may be under way. */
static void finish(struct kvt *k, struct kvt_load *load, bool there)
{
	load->state = ENDING;
	kvt_keyed_remove(&k->loads.by_key, &load->keyed);
	notify_waiters(k, load, there);
	free((void *)(uintptr_t)load->job.request.names);
	free(load);
}

void kvt_load_leave(struct kvt *k, struct kvt_waiter *waiter)
{
	struct kvt_load *load = waiter->load;

	if (load == NULL)
		return;
	remove_waiter(waiter);
	if (load->waiters != NULL || load->state != WAITING)
		return;
	leave_line(&k->loads, load);
	finish(k, load, false);
}

/* --- wanting ---------------------------------------------------------------------------------- */

static enum kvt_status join(struct kvt *k, struct kvt_load *load, struct kvt_waiter *waiter)
{
	if (load->erased || load->state == ENDING)
		return KVT_MISS;
	if (waiter != NULL) {
		add_waiter(load, waiter);
		kvt_count(&k->counters.joined_loads, 1);
	}
	return KVT_OK;
}

enum kvt_status kvt_load_want(struct kvt *k, const struct kvt_key *key, struct kvt_waiter *waiter)
{
	struct kvt_loads *loads = &k->loads;
	struct kvt_keyed *found = kvt_keyed_find(&loads->by_key, key);
	struct kvt_tier_known known;
	struct kvt_lower *lower;
	struct kvt_load *load;

	if (k->closing)
		return KVT_ECANCELED;
	if (found != NULL)
		return join(k, (struct kvt_load *)found, waiter);
	lower = kvt_lower_holding(k, key, KVT_ALL_TIERS, true, &known);
	if (lower == NULL)
		return KVT_MISS;
	if (waiter == NULL &&
		loads->waiting_bytes + loads->reading_bytes + known.bytes > loads->limit_bytes)
		return KVT_BUSY;
	load = calloc(1, sizeof(*load));
	if (load == NULL)
		return KVT_ENOMEM;
	load->keyed.key = *key;
	load->lower = lower;
	load->known = known;
	load->job.wanted_ns = kvt_clock(k);
	load->job.get = waiter != NULL ? waiter->get : 0;
	kvt_keyed_add(&loads->by_key, &load->keyed);
	line_up(loads, load);
	if (waiter != NULL)
		add_waiter(load, waiter);
	return KVT_OK;
}

/* --- reading ---------------------------------------------------------------------------------- */

static struct kvt_item item_of(struct kvt_load *load)
{
	return (struct kvt_item){
		.size = sizeof(struct kvt_item),
		.tokens = load->known.tokens,
		.key = load->keyed.key,
		.parent = load->known.has_parent ? &load->known.parent : NULL,
		.bytes = load->known.bytes,
		.tenant = load->known.tenant,
		.ttl_ns = load->known.ttl_ns,
	};
}

static void load_done(struct kvt *k, struct kvt_job *job)
{
	struct kvt_load *load = load_of(job);
	enum kvt_status status = (enum kvt_status)job->request.status;
	uint32_t entry = load->entry;

	k->loads.reading--;
	k->loads.reading_bytes -= load->known.bytes;
	if (status == KVT_OK && load->erased)
		status = KVT_MISS;
	if (status == KVT_ECORRUPT) {
		kvt_count(&load->lower->corrupt, 1);
		kvt_note(&k->surroundings, KVT_LOG_ERROR,
			"%s: a chunk failed its check and is a miss", load->lower->tier->ops->name);
	}
	if (status != KVT_OK) {
		kvt_l1_discard(k->l1, entry);
		finish(k, load, false);
		return;
	}
	status = kvt_l1_publish(k->l1, entry, &job->request.checksum, job->request.names);
	if (status == KVT_OK) {
		kvt_took(k, KVT_LATENCY_LOAD, job->wanted_ns);
		kvt_count(&k->counters.promotions, 1);
		kvt_count(&load->lower->loads, 1);
		kvt_count(&load->lower->load_bytes, load->known.bytes);
	}
	finish(k, load, status == KVT_OK);
	kvt_l1_release(k->l1, entry);
}

static void begin_reading(struct kvt *k, struct kvt_load *load)
{
	leave_line(&k->loads, load);
	load->state = READING;
	k->loads.reading++;
	k->loads.reading_bytes += load->known.bytes;
	load->job.request = (struct kvt_tier_request){
		.verb = KVT_TIER_READ,
		.keys = &load->keyed.key,
		.key_count = 1,
		.segments = load->segments,
		.segment_count = kvt_l1_segments(k->l1, load->entry, load->segments),
		.bytes = load->known.bytes,
	};
	kvt_lower_submit(load->lower, &load->job, load_done);
}

static void trace_unread(struct kvt *k, const struct kvt_load *load, enum kvt_status status)
{
	int64_t now_ns = kvt_clock(k);

	kvt_trace_note(
		k->trace, &(struct kvt_trace_event){.at_ns = now_ns,
				  .waited_ns = now_ns - load->job.wanted_ns,
				  .bytes = load->known.bytes,
				  .key = kvt_trace_key(&load->keyed.key),
				  .get = load->job.get,
				  .what = KVT_TRACE_READ,
				  .tier = (uint8_t)load->lower->id,
				  .status = (uint8_t)status,
				  .why = status == KVT_FULL ? KVT_WHY_NO_ROOM : KVT_WHY_NOWHERE});
}

/* Starts the first load of the queue, or ends it. False: the load has to wait. */
static bool advance(struct kvt *k, struct kvt_load *load)
{
	struct kvt_loads *loads = &k->loads;
	bool refused = load->erased || !kvt_lower_readable(load->lower) ||
		       kvt_tomb_covers(load->lower, &load->keyed.key, true);
	const struct kvt_item item = item_of(load);
	enum kvt_status status = KVT_MISS;

	if (!refused && loads->reading != 0 &&
		loads->reading_bytes + load->known.bytes > loads->limit_bytes)
		return false;
	if (!refused)
		status = kvt_l1_reserve(k->l1, &item, KVT_L1_LOAD, &load->entry);
	if (status == KVT_FULL && loads->reading != 0)
		return false; /* L1 may get room when the loads under way have ended */
	if (status == KVT_OK) {
		begin_reading(k, load);
		return true;
	}
	if (status == KVT_FULL)
		kvt_l1_count_limited(k->l1, &item);
	if (status != KVT_EXISTS && k->trace != NULL)
		trace_unread(k, load, status);
	leave_line(loads, load);
	finish(k, load, status == KVT_EXISTS); /* a caller put it meanwhile */
	return true;
}

void kvt_loads_pump(struct kvt *k)
{
	while (k->loads.first != NULL && advance(k, k->loads.first))
		;
}

/* --- ends before their time ------------------------------------------------------------------- */

void kvt_loads_abandon(struct kvt *k, const struct kvt_lower *b)
{
	struct kvt_load *load = k->loads.first, *next;

	for (; load != NULL;
		/* a notified waiter may free other loads, so the list is walked again from its
		 * head */
		load = next) {
		next = load->next;
		if (load->lower == b && load->waiters != NULL) {
			leave_line(&k->loads, load);
			finish(k, load, false);
			next = k->loads.first;
		}
	}
	for (struct kvt_job *job = b->oldest; job != NULL; job = job->next)
		if (job->done == load_done)
			notify_waiters(k, load_of(job), false);
}

void kvt_loads_erase(
	struct kvt *k, const struct kvt_key *keys, size_t n, const struct kvt_tenant *tenant)
{
	struct kvt_keyed *at;

	for (size_t i = 0; keys != NULL && i < n; i++) {
		at = kvt_keyed_find(&k->loads.by_key, &keys[i]);
		if (at != NULL)
			((struct kvt_load *)at)->erased = true;
	}
	for (size_t i = 0; keys == NULL && i < KVT_KEYED_LISTS; i++)
		for (at = k->loads.by_key.lists[i]; at != NULL; at = at->next) {
			struct kvt_load *load = (struct kvt_load *)at;

			if (tenant == NULL ||
				memcmp(tenant, &load->known.tenant, sizeof(*tenant)) == 0)
				load->erased = true;
		}
}

void kvt_loads_erase_slots(struct kvt *k, const struct kvt_slot_set *slots)
{
	for (size_t i = 0; i < KVT_KEYED_LISTS; i++)
		for (struct kvt_keyed *at = k->loads.by_key.lists[i]; at != NULL; at = at->next)
			if (kvt_slot_set_has(slots, kvt_key_slot(&at->key)))
				((struct kvt_load *)at)->erased = true;
}

void kvt_loads_stop(struct kvt *k)
{
	while (k->loads.first != NULL) {
		struct kvt_load *load = k->loads.first;

		leave_line(&k->loads, load);
		finish(k, load, false);
	}
}
