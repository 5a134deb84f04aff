/*
 * get.c - gets chunks: from L1 at once, from lower tiers by an operation.
 *
 * A get whose chunks all lie in L1 takes a lease and is done: no lock but the leases', no
 * allocation. Any other get becomes an operation: it holds the chunks in L1, requests the rest from
 * lower tiers, as far as fetching is faster than computing, and ends when all chunks have arrived,
 * when one of them will not arrive, or at its deadline. Its result is the chunks that are there
 * from the beginning without a gap. Its unfinished loads go on without it and put their chunks into
 * L1 for the next get. While known chunks are being loaded, a shared tier is asked about the
 * following ones; chunks that the answer names are then requested, too.
 */
#include <stdlib.h>

#include "core/generations.h"
#include "core/lower.h"
#include "core/loads.h"
#include "core/moves.h"
#include "core/ops.h"
#include "core/probes.h"
#include "core/step.h"
#include "core/worth.h"

/* One chunk of a get. */
struct want {
	struct kvt_waiter waiter; /* first */
	struct get *get;
};

struct get {
	struct kvt_op op;      /* first */
	struct kvt_hold *hold; /* entries of the held chunks; KVT_NO_ENTRY for the others */
	int64_t begun_ns;
	size_t front;        /* number of chunks, from the beginning, that are all held */
	size_t end;          /* chunks from this one on are not requested (yet), or will not come */
	bool begun;          /* all known chunks that are worth fetching have been requested */
	struct kvt_asker asker; /* the question to a shared tier about chunks from `end` on */
	bool asking;
	struct kvt_key *keys; /* keys of all `n` chunks, while a shared tier is asked; owned */
	size_t n;
	enum kvt_trace_why why; /* why the chunk at `end` is not requested; NONE: no tier has it */
	uint32_t number;        /* kvt_trace_number */
	/* short names of all chunks for the trace (kvt_trace_key), if the get has a trace number */
	uint32_t *names;
	uint8_t *tiers;      /* where each was found */
	struct want wants[]; /* one per chunk, starting with chunk `first` */
};

/* --- how a get that waits proceeds; `lock` is held
 * ------------------------------------------------ */

static struct want *want_of(struct get *get, size_t index)
{
	return &get->wants[index];
}

/* Stops waiting for chunks from `from` on, and releases those that are held. */
static void give_up_from(struct kvt *k, struct get *get, size_t from)
{
	size_t end = get->end;

	get->end = from;
	for (size_t i = from; i < end; i++) {
		kvt_load_leave(k, &want_of(get, i)->waiter);
		if (get->hold->entries[i] != KVT_NO_ENTRY)
			kvt_l1_release(k->l1, get->hold->entries[i]);
		get->hold->entries[i] = KVT_NO_ENTRY;
	}
}

static void stop_asking(struct get *get)
{
	kvt_probe_leave(&get->asker);
	get->asking = false;
	free(get->keys);
	get->keys = NULL;
}

/* Writes the trace event of a get that has ended; *event already has what was asked for, what was
 * found and why not more. */
static void trace_get(
	struct kvt *k, struct kvt_trace_event *event, enum kvt_status status, int64_t begun_ns)
{
	event->what = KVT_TRACE_GET;
	event->status = (uint8_t)status;
	event->at_ns = kvt_clock(k);
	event->took_ns = event->at_ns - begun_ns;
	kvt_trace_explain(k, event);
	kvt_trace_note(k->trace, event);
}

static void trace_slow(struct kvt *k, const struct get *get, enum kvt_status status, size_t count)
{
	struct kvt_trace_event event = {.key = get->names[0],
		.missing = count < get->n ? get->names[count] : 0,
		.get = get->number,
		.asked = (uint32_t)get->n,
		.had = (uint32_t)count,
		.why = (uint8_t)get->why};

	for (size_t i = 0; i < count; i++)
		if (get->tiers[i] != KVT_TIER_L1)
			event.below[get->tiers[i] == KVT_TIER_L2]++;
	trace_get(k, &event, status, get->begun_ns);
}

/* Ends the get with the held chunks from the beginning. */
static void complete(struct kvt *k, struct get *get, enum kvt_status when_empty)
{
	size_t count;

	stop_asking(get);
	give_up_from(k, get, get->front);
	count = when_empty == KVT_ECANCELED || !kvt_names_fresh(k) ? 0 : get->front;
	if (count < get->front)
		for (size_t i = 0; i < get->front; i++)
			kvt_l1_release(k->l1, get->hold->entries[i]);
	if (count != 0)
		count = kvt_hold_fill(
			&k->leases, k->l1, get->hold, count, get->tiers, kvt_clock(k));
	if (count != 0)
		get->op.hold = get->hold;
	else
		kvt_hold_give(&k->leases, k->l1, get->hold);
	get->hold = NULL;
	kvt_took(k, KVT_LATENCY_GET, get->begun_ns);
	kvt_count(&k->counters.get_hits, count);
	if (get->number != 0)
		trace_slow(k, get, count != 0 ? KVT_OK : when_empty, count);
	kvt_op_done(k, &get->op, count != 0 ? KVT_OK : when_empty, count);
}

static void look(struct kvt *k, struct get *get)
{
	while (get->front < get->end && get->hold->entries[get->front] != KVT_NO_ENTRY)
		get->front++;
	if (get->begun && !get->asking && get->front == get->end)
		complete(k, get, KVT_MISS);
}

static void resolved(struct kvt *k, struct kvt_waiter *waiter, uint32_t entry, uint8_t tier)
{
	struct want *want = (struct want *)waiter;
	struct get *get = want->get;
	size_t index = (size_t)(want - get->wants);

	if (entry == KVT_NO_ENTRY) {
		get->why = KVT_WHY_NOT_READ;
		stop_asking(get); /* an answer about later chunks is no longer useful */
		give_up_from(k, get, index);
	} else {
		get->hold->entries[index] = entry;
		get->tiers[index] = tier;
		for (size_t i = 0; i < k->lower_count; i++)
			if (k->lower[i].id == tier)
				kvt_count(&k->lower[i].hits, 1);
	}
	look(k, get);
}

static void expire(struct kvt *k, struct kvt_op *op, enum kvt_status why)
{
	if (why == KVT_MISS)
		kvt_count(&k->counters.get_timeouts, 1);
	((struct get *)op)->why = why == KVT_MISS ? KVT_WHY_LATE : KVT_WHY_CANCELED;
	complete(k, (struct get *)op, why);
}

/* Returns the bytes that a chunk occupies in L1. */
static uint64_t room_for(uint64_t bytes)
{
	return (bytes + KVT_ARENA_UNIT - 1) / KVT_ARENA_UNIT * KVT_ARENA_UNIT;
}

/* Holds or requests one chunk. Returns the room that the chunk takes in L1; 0: no tier has it. */
static uint64_t want_one(struct kvt *k, struct get *get, const struct kvt_key *key, size_t i)
{
	struct want *want = want_of(get, i);

	want->get = get;
	want->waiter.resolve = resolved;
	want->waiter.get = get->number;
	if (kvt_l1_hold_one(k->l1, key, true, &get->hold->entries[i]) == KVT_OK) {
		get->tiers[i] = KVT_TIER_L1;
		kvt_count(&k->counters.l1_hits, 1);
		return room_for(kvt_l1_bytes(k->l1, get->hold->entries[i]));
	}
	get->hold->entries[i] = KVT_NO_ENTRY;
	if (kvt_load_want(k, key, &want->waiter) != KVT_OK)
		return 0;
	return room_for(want->waiter.bytes);
}

/* Returns the room in L1 that a held or requested chunk takes or will take. */
static uint64_t taken_by(struct kvt *k, struct get *get, size_t i)
{
	uint32_t entry = get->hold->entries[i];

	return room_for(entry != KVT_NO_ENTRY ? kvt_l1_bytes(k->l1, entry)
					      : want_of(get, i)->waiter.bytes);
}

/* Holds or requests each chunk from `from` on. Stops at the first chunk that no tier has, or that
 * does not fit into L1 after those before it: holding chunks behind it would only keep others
 * out. */
static void want_all(struct kvt *k, struct get *get, const struct kvt_key *keys, size_t from)
{
	uint64_t room = kvt_arena_capacity(kvt_l1_arena(k->l1));
	size_t n = get->end;

	for (size_t i = 0; i < from; i++)
		room -= taken_by(k, get, i);
	for (size_t i = from; i < n; i++) {
		uint64_t takes = want_one(k, get, &keys[i], i);

		if (takes == 0 || takes > room) {
			get->end = takes == 0 ? i : i + 1;
			get->why = takes == 0 ? KVT_WHY_NONE : KVT_WHY_NO_ROOM;
			if (takes != 0)
				give_up_from(k, get, i);
			break;
		}
		room -= takes;
	}
}

static void count_misses(struct kvt *k, size_t count)
{
	for (size_t i = 0; i < k->lower_count; i++)
		kvt_count(&k->lower[i].misses, count);
}

/* A shared tier has answered: the chunks that it has are requested now. */
static void answered(struct kvt *k, struct kvt_asker *asker)
{
	struct get *get = (struct get *)((char *)asker - offsetof(struct get, asker));
	size_t known = get->end;
	struct kvt_lookup plan;

	kvt_plan(k, &get->keys[known], get->n - known, KVT_ALL_TIERS, true, NULL, &plan);
	kvt_count(&k->counters.not_worth, plan.hits - plan.worth);
	count_misses(k, get->n - known - plan.hits);
	get->end = known + plan.worth;
	get->why = plan.worth < plan.hits ? KVT_WHY_SLOWER : KVT_WHY_NONE;
	get->begun = false; /* so that the get does not end before the answer is read */
	want_all(k, get, get->keys, known);
	stop_asking(get);
	kvt_pump(k);
	get->begun = true;
	look(k, get);
}

/* Asks a shared tier about the chunks after the known ones. If memory is short or too many
 * questions are under way, those chunks count as missing. */
static void ask(struct kvt *k, struct get *get, const struct kvt_key *keys)
{
	size_t left = get->n - get->end;

	get->asker.resolve = answered;
	get->asker.get = get->number;
	get->keys = calloc(get->n, sizeof(*keys));
	if (get->keys != NULL)
		memcpy(get->keys, keys, get->n * sizeof(*keys));
	get->asking = get->keys != NULL && kvt_probe_begin(k, &keys[get->end], left, KVT_ALL_TIERS,
						   &get->asker) == KVT_OK;
	if (!get->asking) {
		stop_asking(get);
		count_misses(k, left);
	}
}

/* --- beginning -------------------------------------------------------------------------------- */

/* Which chunks of a chain to get. */
struct outlook {
	size_t held;  /* entries of L1 that are held already */
	size_t known; /* chunks that are held, or that are worth fetching from a lower tier */
	bool ask;     /* a shared tier may have more */
	enum kvt_trace_why why; /* why `known` is not larger */
};

static struct get *make(size_t n)
{
	size_t each = sizeof(struct want) + sizeof(uint32_t) + sizeof(uint8_t);
	struct get *get;

	if (n > (SIZE_MAX - sizeof(*get)) / each)
		return NULL;
	get = calloc(1, sizeof(*get) + n * each);
	if (get == NULL)
		return NULL;
	get->op.kind = KVT_OP_GET;
	get->op.expire = expire;
	get->names = (uint32_t *)&get->wants[n];
	get->tiers = (uint8_t *)&get->names[n];
	get->n = n;
	return get;
}

/* Takes over the hold, whose first entries are held, but only on success. */
static enum kvt_status begin_get(struct kvt *k, const struct kvt_key *keys, size_t n,
	const struct outlook *outlook, struct kvt_hold *hold, uint64_t timeout_ns,
	const struct kvt_op_want *want, struct kvt_op **op)
{
	int64_t deadline_ns = kvt_deadline(k, timeout_ns);
	struct get *get = make(n);
	enum kvt_status status;

	if (get == NULL)
		return KVT_ENOMEM;
	get->hold = hold;
	get->begun_ns = kvt_clock(k);
	get->why = outlook->why;
	get->number = kvt_trace_number(k->trace);
	for (size_t i = 0; get->number != 0 && i < n; i++)
		get->names[i] = kvt_trace_key(&keys[i]);
	get->front = outlook->held;
	get->end = outlook->known;
	memset(get->tiers, KVT_TIER_L1, outlook->held);
	pthread_mutex_lock(&k->lock);
	status = kvt_op_begin(k, &get->op, want, deadline_ns);
	if (status == KVT_OK) {
		*op = &get->op;
		want_all(k, get, keys, outlook->held);
		if (outlook->ask && get->end == outlook->known)
			ask(k, get, keys);
		kvt_pump(k); /* a load that cannot begin ends here already */
		get->begun = true;
		look(k, get);
	}
	pthread_mutex_unlock(&k->lock);
	if (status != KVT_OK)
		free(get);
	return status;
}

/* Holds the chunks that L1 has from the chain's beginning, and finds which others are known. */
static enum kvt_status look_up(struct kvt *k, const struct kvt_key *keys, size_t n,
	struct kvt_hold **hold, struct outlook *out)
{
	struct kvt_lookup plan = {.hits = 0};
	size_t held, seen;

	*hold = kvt_hold_take(&k->leases, n);
	if (*hold == NULL)
		return KVT_ENOMEM;
	held = kvt_l1_hold(k->l1, keys, n, (*hold)->entries);
	if (held < n)
		kvt_plan(k, &keys[held], n - held, KVT_ALL_TIERS, false, NULL, &plan);
	seen = held + plan.hits;
	out->held = held;
	out->known = held + plan.worth;
	out->why = plan.worth < plan.hits ? KVT_WHY_SLOWER : KVT_WHY_NONE;
	out->ask = seen < n && plan.worth == plan.hits &&
		   kvt_probe_helps(k, &keys[seen], KVT_ALL_TIERS);
	kvt_count(&k->counters.gets, 1);
	kvt_count(&k->counters.get_chunks, n);
	kvt_count(&k->counters.l1_hits, held);
	kvt_count(&k->counters.l1_misses, n - held);
	kvt_count(&k->counters.not_worth, plan.hits - plan.worth);
	if (!out->ask)
		count_misses(k, n - seen);
	return KVT_OK;
}

static enum kvt_status check(struct kvt *k, const struct kvt_key *keys, size_t n, const void *out)
{
	enum kvt_status status = kvt_usable(k);

	if (status == KVT_OK && (keys == NULL || n == 0 || out == NULL || n > UINT32_MAX / 32))
		status = KVT_EINVAL;
	return status;
}

/* Returns a lease on the held chunks, without an operation. */
static enum kvt_status at_once(
	struct kvt *k, struct kvt_hold *hold, size_t held, int64_t begun_ns, struct kvt_hold **out)
{
	if (held != 0 && !kvt_names_fresh(k)) { /* this process was stopped since the lookup */
		for (size_t i = 0; i < held; i++)
			kvt_l1_release(k->l1, hold->entries[i]);
		held = 0;
	}
	if (held != 0)
		held = kvt_hold_fill(&k->leases, k->l1, hold, held, NULL, begun_ns);
	kvt_took(k, KVT_LATENCY_GET, begun_ns);
	kvt_count(&k->counters.get_hits, held);
	if (held != 0) {
		*out = hold;
		return KVT_OK;
	}
	kvt_hold_give(&k->leases, k->l1, hold);
	return KVT_MISS;
}

static void trace_at_once(struct kvt *k, const struct kvt_key *keys, size_t n, size_t count,
	enum kvt_trace_why why, int64_t begun_ns)
{
	struct kvt_trace_event event = {.key = kvt_trace_key(keys),
		.missing = count < n ? kvt_trace_key(&keys[count]) : 0,
		.asked = (uint32_t)n,
		.had = (uint32_t)count,
		.why = (uint8_t)why};

	trace_get(k, &event, count > 0 ? KVT_OK : KVT_MISS, begun_ns);
}

static void abandon(struct kvt *k, struct kvt_hold *hold, size_t held)
{
	for (size_t i = 0; i < held; i++)
		kvt_l1_release(k->l1, hold->entries[i]);
	kvt_hold_give(&k->leases, k->l1, hold);
}

enum kvt_status kvt_get(struct kvt *k, const struct kvt_key *keys, size_t n, uint64_t timeout_ns,
	struct kvt_lease **lease)
{
	enum kvt_status status = check(k, keys, n, lease);
	struct kvt_op_want want = {.id = NULL};
	struct kvt_hold *hold = NULL;
	struct outlook outlook;
	struct kvt_op *op;
	int64_t begun_ns;

	if (status != KVT_OK)
		return status;
	begun_ns = kvt_clock(k);
	if (!kvt_generations_await(k, timeout_ns))
		return KVT_MISS;
	status = look_up(k, keys, n, &hold, &outlook);
	if (status != KVT_OK)
		return status;
	if (outlook.held == outlook.known && !outlook.ask) {
		status = at_once(k, hold, outlook.held, begun_ns, &hold);
		if (k->trace != NULL)
			trace_at_once(k, keys, n, status == KVT_OK ? hold->lease.count : 0,
				outlook.why, begun_ns);
	} else {
		status = begin_get(k, keys, n, &outlook, hold, timeout_ns, &want, &op);
		if (status != KVT_OK) {
			abandon(k, hold, outlook.held);
			return status;
		}
		kvt_op_wait(k, op);
		status = (enum kvt_status)op->status;
		hold = op->hold;
		free(op);
	}
	if (status == KVT_OK)
		*lease = &hold->lease;
	return status;
}

enum kvt_status kvt_get_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint64_t timeout_ns, uint64_t user, uint64_t *op_id)
{
	enum kvt_status status = check(k, keys, n, op_id);
	struct kvt_op_want want = {.id = op_id, .user = user};
	struct outlook outlook;
	struct kvt_hold *hold;
	struct kvt_op *op;

	if (status != KVT_OK)
		return status;
	if (!kvt_names_fresh(k))
		return KVT_BUSY;
	status = look_up(k, keys, n, &hold, &outlook);
	if (status != KVT_OK)
		return status;
	status = begin_get(k, keys, n, &outlook, hold, timeout_ns, &want, &op);
	if (status != KVT_OK)
		abandon(k, hold, outlook.held);
	return status; /* another thread may own the operation by now */
}

/* --- leases ----------------------------------------------------------------------------------- */

static struct kvt_hold *hold_of(const struct kvt_lease *lease)
{
	return (struct kvt_hold *)(uintptr_t)lease; /* the lease is the hold's first member */
}

void kvt_release(struct kvt *k, struct kvt_lease *lease)
{
	if (lease != NULL && kvt_usable(k) == KVT_OK)
		kvt_hold_give(&k->leases, k->l1, hold_of(lease));
}

void kvt_release_passing(struct kvt *k, struct kvt_lease *lease, size_t from)
{
	if (lease == NULL || kvt_usable(k) != KVT_OK)
		return;
	for (size_t i = lease->count; i-- > from;) /* children first */
		if (lease->views[i].tier != KVT_TIER_L1)
			(void)kvt_l1_pass(k->l1, &hold_of(lease)->entries[i], 1);
	kvt_hold_give(&k->leases, k->l1, hold_of(lease));
}

enum kvt_status kvt_verify(struct kvt *k, const struct kvt_lease *lease)
{
	enum kvt_status status = kvt_usable(k);

	if (status != KVT_OK || lease == NULL)
		return status != KVT_OK ? status : KVT_EINVAL;
	for (size_t i = 0; i < lease->count; i++) {
		uint32_t entry = hold_of(lease)->entries[i];

		if (kvt_l1_intact(k->l1, entry))
			continue;
		kvt_l1_drop(k->l1, entry);
		status = KVT_ECORRUPT;
	}
	return status;
}

uint64_t kvt_copy(const struct kvt_lease *lease, size_t index, void *to, uint64_t bytes)
{
	const struct kvt_view *view;
	uint8_t *at = to;

	if (lease == NULL || index >= lease->count || to == NULL ||
		bytes < lease->views[index].bytes)
		return 0;
	view = &lease->views[index];
	for (uint32_t i = 0; i < view->segment_count; i++) {
		const struct kvt_segment *segment = &lease->segments[view->first_segment + i];

		memcpy(at, segment->base, segment->bytes);
		at += segment->bytes;
	}
	return view->bytes;
}
