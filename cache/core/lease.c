/*
 * lease.c - holds on chunks of L1; lease.h describes their storage.
 */
#include <stdlib.h>

#include "core/lease.h"

#define POOL_MAX      64    /* unused leases that are kept for later gets */
#define POOL_MAX_ROOM 16384 /* larger ones are freed */
#define LEAST_ROOM    16

void kvt_leases_init(struct kvt_leases *leases)
{
	*leases = (struct kvt_leases){.pooled = 0};
	pthread_mutex_init(&leases->lock, NULL);
}

static void hold_free(struct kvt_hold *hold)
{
	free(hold->entries);
	free(hold->views);
	free(hold->segments);
	free(hold);
}

void kvt_leases_finish(struct kvt_leases *leases)
{
	while (leases->pool != NULL) {
		struct kvt_hold *hold = leases->pool;

		leases->pool = hold->next;
		hold_free(hold);
	}
	pthread_mutex_destroy(&leases->lock);
}

static bool make_room(struct kvt_hold *hold, size_t n)
{
	uint32_t *entries;
	struct kvt_view *views;

	n = n < LEAST_ROOM ? LEAST_ROOM : n;
	if (hold->room >= n)
		return true;
	entries = reallocarray(hold->entries, n, sizeof(*entries));
	if (entries == NULL)
		return false;
	hold->entries = entries;
	views = reallocarray(hold->views, n, sizeof(*views));
	if (views == NULL)
		return false;
	hold->views = views;
	hold->room = n;
	return true;
}

static bool make_segment_room(struct kvt_hold *hold, size_t n)
{
	struct kvt_segment *segments;

	if (hold->segment_room >= n)
		return true;
	n = n < hold->segment_room * 2 ? hold->segment_room * 2 : n;
	segments = reallocarray(hold->segments, n, sizeof(*segments));
	if (segments == NULL)
		return false;
	hold->segments = segments;
	hold->segment_room = n;
	return true;
}

struct kvt_hold *kvt_hold_take(struct kvt_leases *leases, size_t n)
{
	struct kvt_hold *hold;

	pthread_mutex_lock(&leases->lock);
	hold = leases->pool;
	if (hold != NULL) {
		leases->pool = hold->next;
		leases->pooled--;
	}
	pthread_mutex_unlock(&leases->lock);
	if (hold == NULL)
		hold = calloc(1, sizeof(*hold));
	if (hold == NULL)
		return NULL;
	hold->lease = (struct kvt_lease){.count = 0};
	hold->next = hold->prev = NULL;
	hold->begun_ns = 0;
	if (!make_room(hold, n) || !make_segment_room(hold, hold->room + KVT_MAX_EXTENTS)) {
		hold_free(hold);
		return NULL;
	}
	return hold;
}

/* Moves a lease from the pool to the list of leases in use. */
static void go_out(struct kvt_leases *leases, struct kvt_hold *hold, int64_t now_ns)
{
	pthread_mutex_lock(&leases->lock);
	hold->begun_ns = now_ns;
	hold->prev = leases->last;
	hold->next = NULL;
	if (leases->last != NULL)
		leases->last->next = hold;
	else
		leases->first = hold;
	leases->last = hold;
	pthread_mutex_unlock(&leases->lock);
}

size_t kvt_hold_fill(struct kvt_leases *leases, struct kvt_l1 *l1, struct kvt_hold *hold,
	size_t count, const uint8_t *tiers, int64_t now_ns)
{
	size_t segments = 0, i;

	for (i = 0; i < count; i++) {
		uint64_t bytes = 0;
		uint32_t pieces;

		if (!kvt_l1_is_live(l1, hold->entries[i]) ||
			!make_segment_room(hold, segments + KVT_MAX_EXTENTS))
			break;
		pieces = kvt_l1_segments(l1, hold->entries[i], &hold->segments[segments]);
		for (uint32_t j = 0; j < pieces; j++)
			bytes += hold->segments[segments + j].bytes;
		hold->views[i] = (struct kvt_view){
			.first_segment = (uint32_t)segments,
			.segment_count = pieces,
			.bytes = bytes,
			.tier = tiers != NULL ? tiers[i] : KVT_TIER_L1,
		};
		segments += pieces;
	}
	for (size_t left = i; left < count; left++)
		kvt_l1_release(l1, hold->entries[left]);
	hold->lease = (struct kvt_lease){hold->views, i, hold->segments, segments};
	go_out(leases, hold, now_ns);
	return i;
}

void kvt_hold_give(struct kvt_leases *leases, struct kvt_l1 *l1, struct kvt_hold *hold)
{
	bool keep;

	if (hold == NULL)
		return;
	for (size_t i = 0; i < hold->lease.count; i++)
		kvt_l1_release(l1, hold->entries[i]);
	pthread_mutex_lock(&leases->lock);
	if (hold->lease.views != NULL) { /* it is out */
		*(hold->prev != NULL ? &hold->prev->next : &leases->first) = hold->next;
		*(hold->next != NULL ? &hold->next->prev : &leases->last) = hold->prev;
	}
	keep = leases->pooled < POOL_MAX && hold->segment_room <= POOL_MAX_ROOM;
	if (keep) {
		hold->next = leases->pool;
		leases->pool = hold;
		leases->pooled++;
	}
	pthread_mutex_unlock(&leases->lock);
	if (!keep)
		hold_free(hold);
}

uint64_t kvt_leases_oldest(struct kvt_leases *leases, int64_t now_ns)
{
	uint64_t age = 0;

	pthread_mutex_lock(&leases->lock);
	if (leases->first != NULL && now_ns > leases->first->begun_ns)
		age = (uint64_t)(now_ns - leases->first->begun_ns);
	pthread_mutex_unlock(&leases->lock);
	return age;
}
