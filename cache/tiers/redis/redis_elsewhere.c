/*
 * redis_elsewhere.c - what other handles erased in Redis.
 *
 * A handle that finds an epoch that was raised, and that it did not know, erases the same in itself (take_elsewhere of
 * tier.h); one that was lost and made again is small, and empties nothing but what is known of Redis. So a full
 * server, which only unlinks an epoch, shows other handles no erase.
 *
 * A handle that asks for the first time does not know when an epoch was raised. What it has in memory may be older, so
 * that goes. It stays if the oldest write that waits for the answer, or with none the oldest chunk in memory, was put at
 * most a second before the question, or after it: an answer may be late. Whether the erase was before or after these is
 * not known. What is on its disk it leaves, which would be empty after each restart else.
 *
 * No WRITE of what was erased elsewhere begins that was submitted before the caller has taken the erase (late_up_to):
 * it would be stamped as younger than the erase.
 */
#include <string.h>

#include "tiers/redis/redis_tier.h"

/* --- what others erased ------------------------------------------------------------------------ */

static const struct kvt_tenant *name_of(const struct redis_tenant *e)
{
	return e->kind == REDIS_TENANT ? &e->tenant : NULL;
}

static void note(struct redis_tenant *e, enum kvt_elsewhere_depth depth)
{
	e->late_up_to = UINT64_MAX;
	kvt_elsewhere_note(&e->t->elsewhere, name_of(e), depth);
	atomic_store(&e->t->base.elsewhere, true);
}

/* When the oldest of the writes of this tenant that wait was put; INT64_MAX: none waits. */
static int64_t oldest_write(const struct redis_tenant *e)
{
	const struct redis_job *job;
	int64_t oldest_ns = INT64_MAX;

	TAILQ_FOREACH(job, &e->t->parked, entry) {
		const struct kvt_item *item = job->request->item;

		if (job->request->verb != KVT_TIER_WRITE || item == NULL ||
			(e->kind == REDIS_TENANT &&
				memcmp(&item->tenant, &e->tenant, sizeof(e->tenant)) != 0))
			continue;
		if (job->request->wanted_ns < oldest_ns)
			oldest_ns = job->request->wanted_ns;
	}
	return oldest_ns;
}

/* What this handle has of the tenant was put later than a moment before its epoch was asked for. */
static bool is_prompt(const struct redis_tenant *e, int64_t asked_ns)
{
	int64_t oldest_ns = oldest_write(e);

	if (oldest_ns == INT64_MAX && e->t->held_since != NULL)
		oldest_ns = e->t->held_since(e->t->caller, name_of(e));
	else if (oldest_ns == INT64_MAX)
		return false;
	return oldest_ns > asked_ns - REDIS_FRESH_NS;
}

void redis_heed(struct redis_tenant *e, uint64_t epoch, int64_t asked_ns)
{
	if (epoch < REDIS_RAISED_FROM || epoch == e->heeded)
		return;
	e->heeded = epoch;
	if (e->known)
		note(e, KVT_ELSEWHERE_ALL);
	else if (!is_prompt(e, asked_ns))
		note(e, KVT_ELSEWHERE_MEMORY);
}

/* Another may have raised it before this handle did, since it was last seen. */
void redis_heed_raised(struct redis_tenant *e, uint64_t epoch)
{
	uint64_t before = epoch - e->raise_by;

	if (e->known && !e->raise_failed && before >= REDIS_RAISED_FROM &&
		before < epoch && before != e->heeded)
		note(e, KVT_ELSEWHERE_ALL);
	e->heeded = epoch;
}

static void cut(struct redis_tenant *e, uint64_t submitted)
{
	if (e->late_up_to == UINT64_MAX)
		e->late_up_to = submitted;
}

void redis_tenants_take(struct redis_tier *t, struct kvt_elsewhere *out)
{
	uint64_t submitted;

	pthread_mutex_lock(&t->lock);
	submitted = t->submitted;
	pthread_mutex_unlock(&t->lock);
	*out = t->elsewhere;
	t->elsewhere = (struct kvt_elsewhere){.count = 0};
	atomic_store(&t->base.elsewhere, false);
	cut(&t->tenants.all, submitted);
	for (size_t i = 0; i < REDIS_BUCKETS; i++)
		for (struct redis_tenant *e = t->tenants.buckets[i]; e != NULL; e = e->next)
			cut(e, submitted);
}
