/*
 * redis_elsewhere.c - what other handles erased in Redis, and when this one looks.
 *
 * Who finds an epoch that was raised, and that it did not know, erases the same in itself (take_elsewhere of tier.h);
 * one that was lost and made anew is small, and empties nothing but what is known of Redis. So a full server, which
 * only unlinks an epoch, tells other handles of no erase.
 *
 * A handle that asks for the first time cannot tell when an epoch was raised. What it has in memory may be older, so
 * that goes, but where the writes that wait for the answer were put within the last second: whether the erase was
 * before or after these nobody can tell. What is on its disk it leaves, which would be empty after each restart else.
 *
 * No WRITE of what was erased elsewhere begins that was submitted before the caller has taken the erase (late_up_to):
 * it would be stamped as younger than the erase.
 *
 * A handle that finds all in its memory would never ask. So epochs of tenants of which it holds chunks are looked at by
 * the clock, a few at a time, and one a second while Redis does not answer.
 */
#include <string.h>

#include "tiers/redis/redis_tier.h"

#define LOOK_EVERY_NS 100000000  /* between searches for what is due */
#define LOOK_AGAIN_NS 1000000000 /* after one that failed */
#define HELD_NS       3000000000 /* how long it counts that a tenant's chunks are held here */

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

/* Writes of this tenant wait, and the first of them, the oldest, was put a moment before its epoch was asked for. */
static bool is_prompt(const struct redis_tenant *e, int64_t asked_ns)
{
	const struct redis_job *job, *oldest = NULL;

	TAILQ_FOREACH(job, &e->t->parked, entry) {
		const struct kvt_item *item = job->request->item;

		if (job->request->verb != KVT_TIER_WRITE || item == NULL ||
			(e->kind == REDIS_TENANT &&
				memcmp(&item->tenant, &e->tenant, sizeof(e->tenant)) != 0))
			continue;
		if (oldest == NULL || job->request->wanted_ns < oldest->request->wanted_ns)
			oldest = job;
	}
	return oldest != NULL && asked_ns - oldest->request->wanted_ns < REDIS_FRESH_NS;
}

void redis_heed(struct redis_tenant *e, uint64_t epoch, int64_t asked_ns)
{
	if (e->kind == REDIS_UNVERIFIED || epoch < REDIS_RAISED_FROM || epoch == e->heeded)
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

	if (e->kind != REDIS_UNVERIFIED && e->known && !e->raise_failed && before >= REDIS_RAISED_FROM &&
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

/* --- by the clock ------------------------------------------------------------------------------ */

void redis_tenants_hold(struct redis_tier *t, const struct kvt_tenant *tenants, size_t n)
{
	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < n && t->held_count < sizeof(t->held) / sizeof(t->held[0]); i++)
		t->held[t->held_count++] = tenants[i];
	pthread_mutex_unlock(&t->lock);
}

/* What the caller said since the last step. */
static void take_held(struct redis_tier *t, int64_t now_ns)
{
	struct kvt_tenant list[sizeof(t->held) / sizeof(t->held[0])];
	uint32_t count;

	pthread_mutex_lock(&t->lock);
	count = t->held_count;
	memcpy(list, t->held, count * sizeof(list[0]));
	t->held_count = 0;
	pthread_mutex_unlock(&t->lock);
	for (uint32_t i = 0; i < count; i++) {
		struct redis_tenant *e = redis_tenant_get(t, &list[i]);

		if (e != NULL)
			e->held_ns = now_ns;
		t->tenants.all.held_ns = now_ns;
	}
}

/* True: it was asked for. */
static bool look_if_due(struct redis_tenant *e, int64_t now_ns)
{
	int64_t last_ns = e->look_ns > e->known_ns ? e->look_ns : e->known_ns;

	if (e->held_ns == 0 || now_ns - e->held_ns >= HELD_NS || e->state != TENANT_IDLE ||
		e->raise || now_ns - last_ns < e->t->look_every_ns / 4 * 3)
		return false;
	e->look_ns = now_ns;
	e->by_clock = true;
	e->t->tenants.looks++;
	redis_tenant_ask(e);
	if (e->state == TENANT_IDLE && e->by_clock) { /* no memory */
		e->by_clock = false;
		e->t->tenants.looks--;
	}
	return true;
}

size_t redis_tenants_look(struct redis_tier *t, int64_t now_ns, int64_t *next_ns)
{
	struct redis_tenants *all = &t->tenants;
	uint32_t most = all->look_failed ? 1 : REDIS_LOOKS;
	size_t n = 0;

	take_held(t, now_ns);
	if (all->all.held_ns == 0 || now_ns - all->all.held_ns >= HELD_NS)
		return 0;
	if (now_ns >= all->look_ns) {
		all->look_ns = now_ns + (all->look_failed ? LOOK_AGAIN_NS : LOOK_EVERY_NS);
		n = look_if_due(&all->all, now_ns);
		for (size_t i = 0; i < REDIS_BUCKETS && all->looks < most; i++) {
			struct redis_tenant *e = all->buckets[i];

			for (; e != NULL && all->looks < most; e = e->next)
				n += look_if_due(e, now_ns);
		}
	}
	if (all->look_ns < *next_ns)
		*next_ns = all->look_ns;
	return n;
}
