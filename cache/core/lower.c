/*
 * lower.c - requests to the tiers below L1.
 *
 * Requests under way are in their tier's list, oldest first, so that the first one shows whether
 * the tier has stopped answering. A tier may call done() from anywhere in its step; done() only
 * puts the request on a stack. What follows from the result happens after the step (moves.c), with
 * `lock` held, in the order in which the requests were finished.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/lower.h"
#include "core/blocks.h"
#include "core/names.h"
#include "core/refused.h"
#include "core/tombs.h"

/* a request counts as another failure each time that it has been under way for this long */
#define STALL_NS    5000000000
/* a request is not late before this many times the time that its queue should take */
#define STALL_TIMES 8

/* an answer "not stored" that is remembered for less may expire before the caller looks the chunk
 * up */
#define MISSING_LEAST_NS 100000000u

/* --- life ------------------------------------------------------------------------------------- */

/* Returns whether the cause that keeps a tier from being made may pass: another owner, a full or
 * read-only disk, missing rights. A wrong format or setting does not pass. A shared tier is made
 * even while its server is away; at the start it can only lack a file that a setting names. */
static bool may_pass(const struct kvt_tier_ops *ops, enum kvt_status status)
{
	return ops->unsure == NULL &&
	       (status == KVT_ELOCKED || status == KVT_EIO || status == KVT_FULL);
}

enum kvt_status kvt_lower_init(struct kvt_lower *b, struct kvt *k, const struct kvt_tier_ops *ops)
{
	struct kvt_tier_options options = {
		.config = &k->config,
		.surroundings = &k->surroundings,
		.watch = k->watch,
		.arena = kvt_arena_base(kvt_l1_arena(k->l1)),
		.arena_bytes = kvt_arena_capacity(kvt_l1_arena(k->l1)),
	};
	struct kvt_tier *tier = NULL;
	enum kvt_status status;

	*b = (struct kvt_lower){.k = k, .ops = ops, .id = ops->id, .state = KVT_TIER_WORKS};
	kvt_breaker_init(
		&b->breaker, &k->config, (uint64_t)ops->id * 0x9e3779b97f4a7c15u + k->config.rank);
	b->write_breaker = b->breaker;
	status = ops->create(&options, b->reason, &tier);
	if (status == KVT_OK) {
		atomic_store(&b->tier, tier);
		status = ops->lost != NULL ? kvt_refused_spare(b, &options) : KVT_OK;
		if (status != KVT_OK)
			kvt_lower_finish(b);
		return status;
	}
	b->state = status == KVT_MISS ? KVT_TIER_ABSENT : KVT_TIER_BROKEN;
	if (status == KVT_MISS)
		return KVT_OK;
	if (b->reason[0] == '\0')
		snprintf(b->reason, sizeof(b->reason), "%s", kvt_status_text(status));
	if (may_pass(ops, status))
		return kvt_refused_begin(b, &options, status);
	kvt_note(&k->surroundings, KVT_LOG_ERROR, "%s: left out: %s", ops->name, b->reason);
	return status == KVT_ENOMEM ? KVT_ENOMEM : KVT_OK;
}

void kvt_lower_finish(struct kvt_lower *b)
{
	struct kvt_tier *tier = atomic_exchange(&b->tier, NULL), *before;

	for (; tier != NULL; tier = before) {
		before = tier->retired;
		tier->ops->destroy(tier);
	}
	kvt_refused_destroy(b->refused);
	kvt_refused_destroy(b->spare);
	b->refused = b->spare = NULL;
}

/* --- asking ----------------------------------------------------------------------------------- */

bool kvt_lower_knows(struct kvt_lower *b, const struct kvt_key *key, struct kvt_tier_known *known)
{
	struct kvt_key name;

	*known = (struct kvt_tier_known){.bytes = 0};
	if (!kvt_name_below(b->k, key, &name) || b->tier->ops->known(b->tier, &name, known) != KVT_OK)
		return false;
	if (known->has_parent)
		kvt_name_above(b->k, &known->parent, &known->parent);
	return true;
}

bool kvt_lower_has(struct kvt_lower *b, const struct kvt_key *key)
{
	struct kvt_key name;

	return kvt_name_below(b->k, key, &name) && b->tier->ops->match(b->tier, &name, 1) == 1;
}

bool kvt_lower_unsure(struct kvt_lower *b, const struct kvt_key *key)
{
	struct kvt_key name;

	return b->tier->ops->unsure != NULL && kvt_name_below(b->k, key, &name) &&
	       b->tier->ops->unsure(b->tier, &name);
}

size_t kvt_lower_pin(struct kvt_lower *b, const struct kvt_key *key, bool pin)
{
	struct kvt_key name;

	return kvt_name_below(b->k, key, &name) ? b->tier->ops->pin(b->tier, &name, 1, pin) : 0;
}

struct kvt_lower *kvt_lower_holding(struct kvt *k, const struct kvt_key *key, uint32_t tier_mask,
	bool locked, struct kvt_tier_known *known)
{
	bool tombs = atomic_load(&k->tombs.count) > 0;

	for (size_t i = 0; i < k->lower_count; i++) {
		struct kvt_lower *b = &k->lower[i];

		if (tier_mask != KVT_ALL_TIERS && (tier_mask & KVT_IN(b->id)) == 0)
			continue;
		if (!kvt_lower_readable(b) || !kvt_lower_knows(b, key, known))
			continue;
		if (kvt_tomb_covers(b, key, locked))
			continue;
		/* The chunk may have been erased since the tier was asked, and its tomb removed. */
		if (!tombs || kvt_lower_knows(b, key, known))
			return b;
	}
	return NULL;
}

static bool may_have(struct kvt_lower *b, const struct kvt_key *key)
{
	struct kvt *k = b->k;
	struct kvt_tier *tier = b->tier;
	struct kvt_tier_known known;
	bool may;

	if (tier == NULL) {
		pthread_mutex_lock(&k->lock);
		may = kvt_refused_may_have(b);
		pthread_mutex_unlock(&k->lock);
		return may;
	}
	if (!kvt_names_known(k) || kvt_lower_knows(b, key, &known))
		return true;
	if (tier->ops->unsure == NULL)
		return false;
	return atomic_load_explicit(&b->breaker.state, memory_order_relaxed) != KVT_BREAKER_CLOSED ||
	       (k->config.l2_missing_ns >= MISSING_LEAST_NS && kvt_lower_unsure(b, key));
}

bool kvt_lower_may_have(struct kvt *k, const struct kvt_key *key)
{
	for (size_t i = 0; i < k->lower_count; i++)
		if (may_have(&k->lower[i], key) && !kvt_tomb_covers(&k->lower[i], key, false))
			return true;
	return false;
}

bool kvt_lower_is_known(struct kvt *k, const struct kvt_key *key)
{
	struct kvt_tier_known known;

	for (size_t i = 0; i < k->lower_count; i++)
		if (k->lower[i].tier != NULL && kvt_lower_knows(&k->lower[i], key, &known) &&
			!kvt_tomb_covers(&k->lower[i], key, false))
			return true;
	return false;
}

/* --- requests --------------------------------------------------------------------------------- */

/* The tier calls this, inside its step, when a request is finished. */
static void request_done(struct kvt_tier_request *request)
{
	struct kvt_job *job = request->user;

	if (request->verb == KVT_TIER_READ && request->names != NULL)
		request->names = kvt_blocks_copy(request->names); /* NULL: then no events */
	job->next_finished = atomic_load_explicit(&job->lower->finished, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&job->lower->finished, &job->next_finished,
		job, memory_order_release, memory_order_relaxed))
		;
}

static struct kvt_meter *meter_of(struct kvt_lower *b, const struct kvt_job *job)
{
	if (job->request.verb == KVT_TIER_READ)
		return &b->reads;
	return job->request.verb == KVT_TIER_WRITE ? &b->writes : NULL;
}

static struct kvt_breaker *breaker_of(struct kvt_lower *b, const struct kvt_job *job)
{
	bool writes = job->request.verb == KVT_TIER_WRITE || job->request.verb == KVT_TIER_FLUSH;

	return writes ? &b->write_breaker : &b->breaker;
}

/* Replaces the request's keys by names. KVT_EIO: names are not known yet. */
static enum kvt_status name_it(struct kvt *k, struct kvt_job *job)
{
	struct kvt_tier_request *request = &job->request;
	struct kvt_key *names = &job->name;
	bool known = true;

	if (request->keys == NULL)
		return KVT_OK;
	if (request->key_count > 1)
		names = job->names = calloc(request->key_count, sizeof(*names));
	if (names == NULL)
		return KVT_ENOMEM;
	for (size_t i = 0; i < request->key_count && known; i++)
		known = kvt_name_below(k, &request->keys[i], &names[i]);
	request->keys = names;
	if (request->item == NULL || !known)
		return known ? KVT_OK : KVT_EIO;
	job->item = *request->item;
	job->item.key = job->name;
	if (job->item.parent != NULL)
		(void)kvt_name_below(k, job->item.parent, &job->parent_name);
	if (job->item.parent != NULL)
		job->item.parent = &job->parent_name;
	request->item = &job->item;
	return KVT_OK;
}

void kvt_lower_submit(
	struct kvt_lower *b, struct kvt_job *job, void (*done)(struct kvt *k, struct kvt_job *job))
{
	struct kvt_meter *meter = meter_of(b, job);
	int64_t now_ns = kvt_clock(b->k);

	job->done = done;
	job->lower = b;
	job->begun_ns = now_ns;
	job->times_late = 0;
	job->next = NULL;
	job->prev = b->newest;
	*(b->newest != NULL ? &b->newest->next : &b->oldest) = job;
	b->newest = job;
	b->under_way++;
	if (job->request.verb == KVT_TIER_TABLE)
		/* the table lies on one shard of a Cluster, so that a failure says little about the
		 * others */
		kvt_breaker_pass(job);
	else
		kvt_breaker_begin(breaker_of(b, job), job);
	if (meter != NULL)
		kvt_meter_begin(meter, job->request.bytes, now_ns);
	job->names = NULL;
	job->request.status = name_it(b->k, job);
	job->request.begun_ns = now_ns;
	job->request.deadline_ns = KVT_TIER_NEVER;
	job->request.done = request_done;
	job->request.user = job;
	job->request.next = NULL;
	job->unasked = job->request.status != KVT_OK;
	if (!job->unasked)
		b->tier->ops->submit(b->tier, &job->request);
	else
		request_done(&job->request);
	if (b->has_thread)
		b->tier->ops->wake(b->tier);
}

static enum kvt_outcome outcome_of(const struct kvt_job *job)
{
	if (job->unasked)
		return KVT_OUTCOME_NONE;
	switch (job->request.status) {
	case KVT_EIO:
		return KVT_OUTCOME_BAD;
	case KVT_ENOMEM:
	case KVT_ECANCELED:
		return KVT_OUTCOME_NONE;
	default: /* a flush that had nothing to do does not show whether writes work */
		return job->request.verb == KVT_TIER_FLUSH ? KVT_OUTCOME_NONE : KVT_OUTCOME_GOOD;
	}
}

/* Counts the result of a request, or that the request is late. The tier, or only writing to it, may
 * be given up as a result. */
static void judge(struct kvt_lower *b, const struct kvt_job *job, enum kvt_outcome outcome,
	int64_t now_ns, const char *why)
{
	struct kvt_breaker *breaker = breaker_of(b, job);
	bool writes = breaker == &b->write_breaker;

	if (!kvt_breaker_end(breaker, job, outcome, now_ns))
		return;
	kvt_note(&b->k->surroundings, KVT_LOG_WARN, "%s: %s for %llu ms: %s", b->tier->ops->name,
		writes ? "stores nothing" : "left alone",
		(unsigned long long)(breaker->pause_ns / 1000000), why);
	if (writes)
		return;
	b->given_up = true;
	kvt_trace_chunk(b->k, KVT_TRACE_AWAY, b->id, NULL, KVT_WHY_NONE);
}

void kvt_lower_take_back(struct kvt_lower *b, struct kvt_job *job)
{
	struct kvt_meter *meter = meter_of(b, job);
	uint32_t status = job->request.status;
	int64_t now_ns = kvt_clock(b->k);

	*(job->prev != NULL ? &job->prev->next : &b->oldest) = job->next;
	*(job->next != NULL ? &job->next->prev : &b->newest) = job->prev;
	b->under_way--;
	if (meter != NULL)
		kvt_meter_end(meter, job->request.bytes, status == KVT_OK, now_ns);
	if (status == KVT_EIO && !job->unasked)
		kvt_count(&b->io_errors, 1);
	kvt_trace_job(b->k, job, now_ns);
	free(job->names);
	job->names = NULL;
	judge(b, job, outcome_of(job), now_ns, "it fails");
}

struct kvt_job *kvt_lower_finished(struct kvt_lower *b)
{
	struct kvt_job *job = atomic_exchange_explicit(&b->finished, NULL, memory_order_acquire);
	struct kvt_job *oldest = NULL;

	while (job != NULL) {
		struct kvt_job *next = job->next_finished;

		job->next_finished = oldest;
		oldest = job;
		job = next;
	}
	return oldest;
}

/* --- time ------------------------------------------------------------------------------------- */

/* Returns how long the requests under way may take before the tier counts as stalled. A write that
 * an event depends on waits until other writes are synced with it. */
static int64_t patience_ns(struct kvt_lower *b)
{
	uint64_t sync_ns = b->k->config.nvme_sync_ns;
	double least = (double)STALL_NS + 2 * (double)sync_ns;
	uint64_t rate = atomic_load_explicit(&b->reads.rate, memory_order_relaxed);
	uint64_t queued = atomic_load_explicit(&b->reads.queued, memory_order_relaxed) +
			  atomic_load_explicit(&b->writes.queued, memory_order_relaxed);
	double expected = rate == 0 ? 0 : (double)queued / (double)rate * 1e9 * STALL_TIMES;

	if (expected > 1e12)
		expected = 1e12;
	return (int64_t)(expected > least ? expected : least);
}

/* Counts each request that takes too long as a failure, repeatedly. */
static size_t find_stalls(struct kvt_lower *b, int64_t now_ns, int64_t *next_ns)
{
	int64_t patience = patience_ns(b);
	size_t done = 0;

	for (struct kvt_job *job = b->oldest; job != NULL; job = job->next) {
		int64_t due_ns = job->begun_ns + patience * (int64_t)(job->times_late + 1);

		if (now_ns >= due_ns) {
			job->times_late++;
			due_ns += patience;
			done++;
			kvt_count(&b->io_errors, 1);
			judge(b, job, KVT_OUTCOME_BAD, now_ns, "it does not answer");
		}
		if (due_ns < *next_ns)
			*next_ns = due_ns;
		if (job->begun_ns + patience > now_ns)
			break; /* the requests after this one are younger */
	}
	return done;
}

size_t kvt_lower_tick(struct kvt_lower *b, int64_t now_ns, int64_t *next_ns)
{
	size_t done = 0;

	if (b->tier == NULL)
		return 0;
	done += kvt_breaker_tick(&b->breaker, now_ns, next_ns);
	done += kvt_breaker_tick(&b->write_breaker, now_ns, next_ns);
	return done + find_stalls(b, now_ns, next_ns);
}
