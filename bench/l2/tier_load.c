/*
 * tier_load.c - libkvtier's shared tier driven through its requests, as L1 drives it, from one
 * thread that also is the tier's.
 */
#include "bench/l2/tier_load.h"

#include <stdlib.h>

#include "tiers/tiers.h"

#define PROBE_KEYS 64u
#define WAIT_NS    INT64_C(10000000)
#define PATIENCE_S 10.0 /* longest time without an answer */

/* A request that is under way. */
struct kvb_tier_place {
	struct kvt_tier_request request;
	struct kvt_item item;
	struct kvt_segment segment;
	struct kvb_tier_load *load;
};

static void ask(struct kvb_tier_place *place)
{
	struct kvb_tier_load *l = place->load;
	uint32_t number = (uint32_t)(l->asked++ % l->keys);

	place->item.key = kvb_key(number);
	place->segment.base = l->memory + number * l->size;
	place->segment.arena_offset = number * l->size;
	place->request.verb = l->verb;
	place->request.item = l->verb == KVT_TIER_WRITE ? &place->item : NULL;
	if (l->verb == KVT_TIER_WRITE)
		place->request.checksum = l->checksums[number];
	place->request.begun_ns = kvt_now(&l->surroundings);
	l->tier->ops->submit(l->tier, &place->request);
}

static void moved(struct kvt_tier_request *request)
{
	struct kvb_tier_place *place = request->user;
	struct kvb_tier_load *l = place->load;

	if (request->status != KVT_OK)
		kvb_fail("%s: a %s: %s", l->name,
			request->verb == KVT_TIER_WRITE ? "write" : "read",
			kvt_status_text(request->status));
	l->done++;
	if (l->asked < l->target)
		ask(place);
}

static void step_until(struct kvb_tier_load *l, uint64_t answers)
{
	double heard = kvb_seconds();

	while (l->done < answers) {
		uint64_t before = l->done;
		int64_t next_ns = INT64_MAX;

		(void)l->tier->ops->step(l->tier, WAIT_NS, &next_ns);
		if (l->done != before)
			heard = kvb_seconds();
		else if (kvb_seconds() - heard > PATIENCE_S)
			kvb_fail("%s: no answer for ten seconds", l->name);
	}
}

void kvb_tier_load_move(struct kvb_tier_load *l, enum kvt_tier_verb verb, uint64_t values)
{
	l->verb = verb;
	l->asked = l->done = 0;
	l->target = values;
	for (uint32_t i = 0; i < l->depth && l->asked < l->target; i++)
		ask(&l->places[i]);
	step_until(l, l->target);
}

static void probed(struct kvt_tier_request *request)
{
	struct kvb_tier_load *l = request->user;

	if (request->status != KVT_OK || request->found != request->key_count)
		kvb_fail("%s: %zu of %zu values are there (%s)", l->name, request->found,
			request->key_count, kvt_status_text(request->status));
	l->done++;
}

void kvb_tier_load_probe(struct kvb_tier_load *l)
{
	struct kvt_key keys[PROBE_KEYS];

	for (uint32_t first = 0; first < l->keys; first += PROBE_KEYS) {
		uint32_t left = l->keys - first;
		struct kvt_tier_request request = {
			.verb = KVT_TIER_PROBE,
			.keys = keys,
			.key_count = left < PROBE_KEYS ? left : PROBE_KEYS,
			.begun_ns = kvt_now(&l->surroundings),
			.deadline_ns = KVT_TIER_NEVER,
			.done = probed,
			.user = l,
		};

		for (uint32_t i = 0; i < request.key_count; i++)
			keys[i] = kvb_key(first + i);
		l->done = 0;
		l->tier->ops->submit(l->tier, &request);
		step_until(l, 1);
	}
}

void kvb_tier_load_sum(struct kvb_tier_load *l)
{
	for (uint32_t i = 0; i < l->keys; i++) {
		struct kvt_segment segment = {.base = l->memory + i * l->size, .bytes = l->size};

		kvt_checksum_segments(&segment, 1, l->size, &l->checksums[i]);
	}
}

static void create(struct kvb_tier_load *l, const struct kvt_config *config)
{
	struct kvt_tier_options options = {.config = config,
		.surroundings = &l->surroundings,
		.arena = l->memory,
		.arena_bytes = l->keys * l->size};
	char why[KVT_REASON_BYTES] = "";

	for (const struct kvt_tier_ops *const *ops = kvt_tiers(); *ops != NULL; ops++) {
		enum kvt_status status = KVT_MISS;

		if ((*ops)->id == KVT_TIER_L2)
			status = (*ops)->create(&options, why, &l->tier);
		if (status == KVT_OK)
			return;
		if (status != KVT_MISS)
			kvb_fail("%s: %s: %s", l->name, kvt_status_text(status), why);
	}
	kvb_fail("%s: this build has no tier for %s", l->name, config->l2_url);
}

void kvb_tier_load_open(struct kvb_tier_load *l, const struct kvt_config *config)
{
	l->places = calloc(l->depth, sizeof(*l->places));
	l->checksums = calloc(l->keys, sizeof(*l->checksums));
	if (l->places == NULL || l->checksums == NULL)
		kvb_fail("%s: no memory", l->name);
	kvt_surroundings_init(&l->surroundings, config);
	create(l, config);
	for (uint32_t i = 0; i < l->depth; i++) {
		struct kvb_tier_place *p = &l->places[i];

		p->load = l;
		p->item = (struct kvt_item){.size = sizeof(p->item), .bytes = l->size};
		p->segment.bytes = l->size;
		p->request = (struct kvt_tier_request){.keys = &p->item.key,
			.key_count = 1,
			.segments = &p->segment,
			.segment_count = 1,
			.bytes = l->size,
			.deadline_ns = KVT_TIER_NEVER,
			.done = moved,
			.user = p};
	}
}

void kvb_tier_load_close(struct kvb_tier_load *l)
{
	l->tier->ops->destroy(l->tier);
	free(l->places);
	free(l->checksums);
}
