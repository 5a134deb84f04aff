/*
 * replay_events.c - what the simulated engines publish of their caches, on its way to a router.
 * Events lie in a ring that grows; what follows each other and is alike is handed over together, as
 * one event of an engine names many blocks.
 */
#include "bench/replay/replay_events.h"

#include <stdlib.h>

#include "routing/kvindex.h"
#include "bench/load/mem.h"

#define RUN 256 /* most blocks that are handed over together */

enum what { STORED, REMOVED, CLEARED };

struct event {
	int64_t due_ns;
	uint64_t hash;
	uint32_t worker;
	enum what what;
};

/* Argument of the callback that watches one engine. */
struct watched {
	struct kvb_events *events;
	/* watch of another router, which gets the events as well; NULL: none */
	const struct watched *before;
	uint32_t worker;
};

struct kvb_events {
	const struct kvb_fleet *fleet;
	struct kvw_exact *exact;
	int64_t delay_ns;
	struct event *ring; /* [capacity], a power of two */
	size_t capacity;
	/* positions that grow without wrapping; an index is one modulo capacity */
	size_t first, end;
	struct watched *watched;
};

static void grow(struct kvb_events *events)
{
	struct event *ring = kvb_alloc(events->capacity * 2, sizeof(*ring));

	for (size_t i = events->first; i < events->end; i++)
		ring[i & (events->capacity * 2 - 1)] = events->ring[i & (events->capacity - 1)];
	free(events->ring);
	events->ring = ring;
	events->capacity *= 2;
}

static void add(const struct watched *watched, enum what what, uint64_t hash)
{
	struct kvb_events *events = watched->events;

	if (watched->before != NULL)
		add(watched->before, what, hash);
	if (events->end - events->first == events->capacity)
		grow(events);
	events->ring[events->end++ & (events->capacity - 1)] = (struct event){
		events->fleet->now_ns + events->delay_ns, hash, watched->worker, what};
}

static void on_stored(void *user, const struct kvb_seq *seq, uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++)
		add(user, STORED, kvb_seq_block(seq, i));
}

static void on_removed(void *user, uint64_t hash)
{
	add(user, REMOVED, hash);
}

static void on_cleared(void *user)
{
	add(user, CLEARED, 0);
}

static const struct kvb_engine_watch watch = {
	.stored = on_stored, .removed = on_removed, .cleared = on_cleared};

struct kvb_events *kvb_events_create(
	const struct kvb_fleet *fleet, struct kvw_exact *exact, int64_t delay_ns)
{
	struct kvb_events *events = kvb_alloc(1, sizeof(*events));

	*events = (struct kvb_events){.fleet = fleet,
		.exact = exact,
		.delay_ns = delay_ns,
		.ring = kvb_alloc(1024, sizeof(events->ring[0])),
		.capacity = 1024,
		.watched = kvb_alloc(fleet->options.workers, sizeof(events->watched[0]))};
	for (uint32_t w = 0; w < fleet->options.workers; w++) {
		events->watched[w] = (struct watched){
			events, kvb_engine_watched(fleet->workers[w].engine, &watch), w};
		kvb_engine_watch(fleet->workers[w].engine, &watch, &events->watched[w]);
		kvw_exact_set_coverage(exact, w, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	}
	return events;
}

void kvb_events_destroy(struct kvb_events *events)
{
	if (events == NULL)
		return;
	for (uint32_t w = 0; w < events->fleet->options.workers; w++)
		kvb_engine_watch(events->fleet->workers[w].engine, NULL, NULL);
	free(events->ring);
	free(events->watched);
	free(events);
}

/* Hands over the next events as long as they are of one kind and worker, at most RUN. */
static void hand_over(struct kvb_events *events, int64_t now_ns)
{
	struct kvw_kvindex *index = kvw_exact_index(events->exact);
	const struct event begin = events->ring[events->first & (events->capacity - 1)];
	uint64_t hashes[RUN];
	struct kvw_kvindex_from from = {begin.worker, KVW_EXACT_ENGINE_SOURCE};
	struct kvw_kvindex_blocks blocks = {KVB_EVENTS_SPACE, KVW_TIER_DEVICE, 0, hashes, hashes};

	while (events->first < events->end && blocks.count < RUN) {
		const struct event *event = &events->ring[events->first & (events->capacity - 1)];

		if (event->worker != begin.worker || event->what != begin.what ||
			event->due_ns > now_ns)
			break;
		hashes[blocks.count++] = event->hash;
		events->first++;
	}
	if (begin.what == STORED)
		kvw_kvindex_stored(index, from, &blocks);
	else if (begin.what == REMOVED)
		kvw_kvindex_removed(index, from, &blocks);
	else
		kvw_kvindex_cleared(index, begin.worker, from.source, KVW_KVINDEX_ANY);
}

void kvb_events_deliver(struct kvb_events *events, int64_t now_ns)
{
	uint32_t purged[1];

	while (events->first < events->end &&
		events->ring[events->first & (events->capacity - 1)].due_ns <= now_ns)
		hand_over(events, now_ns);
	(void)kvw_exact_tick(events->exact, now_ns, purged, 1);
}
