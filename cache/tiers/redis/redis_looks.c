/*
 * redis_looks.c - epochs are asked for by the clock.
 *
 * A handle that finds all in its memory would never ask Redis for anything, and so never see what other handles
 * erased. So the epochs of tenants of which it holds chunks are looked at by the clock, a few at a time, and one a
 * second while Redis does not answer.
 */
#include <string.h>

#include "tiers/redis/redis_tier.h"

#define LOOK_EVERY_NS 100000000  /* between searches for what is due */
#define LOOK_AGAIN_NS 1000000000 /* after one that failed */
#define FIRST_NS      2000000000 /* what was put a moment ago asks for the epoch itself, and is not taken for old then */

void redis_tenants_hold(struct redis_tier *t, const struct kvt_tenant *tenants, size_t n)
{
	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < n && t->held_count < sizeof(t->held) / sizeof(t->held[0]); i++)
		t->held[t->held_count++] = tenants[i];
	pthread_mutex_unlock(&t->lock);
}

static void hold(struct redis_tenant *e, int64_t now_ns)
{
	if (!redis_tenant_is_held(e, now_ns))
		e->first_held_ns = now_ns;
	e->held_ns = now_ns;
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
			hold(e, now_ns);
		hold(&t->tenants.all, now_ns);
	}
}

/* True: it was asked for. */
static bool look_if_due(struct redis_tenant *e, int64_t now_ns)
{
	int64_t last_ns = e->look_ns > e->known_ns ? e->look_ns : e->known_ns;

	if (!redis_tenant_is_held(e, now_ns) || e->state != TENANT_IDLE || e->raise ||
		now_ns - last_ns < e->t->look_every_ns / 4 * 3 ||
		(!e->known && now_ns - e->first_held_ns < FIRST_NS))
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
	if (!redis_tenant_is_held(&all->all, now_ns))
		return 0;
	if (now_ns >= all->look_ns) {
		all->look_ns = now_ns + (all->look_failed ? LOOK_AGAIN_NS : LOOK_EVERY_NS);
		n = look_if_due(&all->all, now_ns);
		for (size_t i = 0; i < REDIS_BUCKETS && all->looks < most; i++) {
			struct redis_tenant *e = all->buckets[all->look_at];

			for (; e != NULL && all->looks < most; e = e->next)
				n += look_if_due(e, now_ns);
			if (all->looks < most)
				all->look_at = (all->look_at + 1) % REDIS_BUCKETS;
		}
	}
	if (all->look_ns < *next_ns)
		*next_ns = all->look_ns;
	return n;
}
