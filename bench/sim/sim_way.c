/*
 * sim_way.c - chunks on their way from a lower tier to the device.
 *
 * Each lower tier's way is taken by one chunk after another. The way to the device is much wider than
 * they are, and chunks pass it as they come; so it is charged for all of them at the beginning, and
 * the last one from below passes it once more after it has come. Charging it for each chunk when that
 * comes would let a fetch from a slow tier keep all others from a way that is free.
 */
#include "kvtier/kvtier.h"
#include "bench/sim/sim_way.h"

/* A fetch, and how many of its chunks the links have carried in the model. */
struct fetch {
	struct kvb_ways *ways;
	int64_t begin_ns, below_ns, device_ns; /* ends so far */
};

static void add(struct fetch *f, uint8_t tier)
{
	struct kvb_ways *w = f->ways;
	const struct kvb_link *device = w->links[KVB_LINK_GPU];
	enum kvb_link_kind kind = tier == KVT_TIER_NVME ? KVB_LINK_NVME : KVB_LINK_L2;
	int64_t end_ns;

	f->device_ns =
		kvb_channel_carry(&w->channels[KVB_LINK_GPU], device, f->begin_ns, w->chunk_bytes);
	if (tier == KVT_TIER_L1)
		return;
	end_ns =
		kvb_channel_carry(&w->channels[kind], w->links[kind], f->begin_ns, w->chunk_bytes) +
		device->latency_ns + kvb_link_ns(device, w->chunk_bytes);
	f->below_ns = end_ns > f->below_ns ? end_ns : f->below_ns;
}

static int64_t end_of(const struct fetch *f)
{
	return f->device_ns > f->below_ns ? f->device_ns : f->below_ns;
}

int64_t kvb_way_fetch(struct kvb_ways *ways, const uint8_t *tiers, uint32_t count, int64_t now_ns)
{
	struct fetch f = {ways, now_ns, now_ns, now_ns};

	for (uint32_t i = 0; i < count; i++)
		add(&f, tiers[i]);
	return end_of(&f);
}

uint32_t kvb_way_worth(const struct kvb_ways *ways, const uint8_t *tiers, uint32_t count,
	uint32_t chunk_tokens, uint32_t hits, double tokens_per_s, int64_t now_ns)
{
	struct kvb_ways copy = *ways;
	struct fetch f = {&copy, now_ns, now_ns, now_ns};
	uint32_t worth = hits / chunk_tokens < count ? hits / chunk_tokens : count;
	double best = 0;

	if (tokens_per_s <= 0)
		return count;
	for (uint32_t i = worth; i < count; i++) {
		double saved_ns = ((double)(i + 1) * chunk_tokens - hits) * 1e9 / tokens_per_s;

		add(&f, tiers[i]);
		saved_ns -= (double)(end_of(&f) - now_ns);
		if (saved_ns <= best)
			continue;
		best = saved_ns;
		worth = i + 1;
	}
	return worth;
}
