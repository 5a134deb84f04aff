/* replay_mp.c - see replay_mp.h. */
#include "bench/replay/replay_mp.h"

#include <stdlib.h>
#include <string.h>

#include "bench/load/mem.h"
#include "bench/replay/replay_fleet.h"
#include "bench/sim/sim_tier.h"

static bool is_on(const struct kvb_fleet *fleet)
{
	return fleet->options.mp.l1_tokens > 0;
}

/* A chunk's name: that of its last block, which covers all before it. */
static uint64_t key_of(const struct kvb_fleet *fleet, uint32_t job, uint32_t chunk)
{
	uint32_t blocks = KVB_MP_CHUNK / fleet->options.block_size;

	return kvb_job_block(
		&fleet->jobs->items[job], fleet->options.block_size, (chunk + 1) * blocks - 1);
}

static bool is_coming(const struct kvb_loads *loads, uint32_t worker, uint64_t key)
{
	for (uint32_t i = 0; i < loads->count; i++)
		if (loads->items[i].job == KVB_NO_JOB && loads->items[i].worker == worker &&
			loads->items[i].key == key)
			return true;
	return false;
}

/* The prompt's chunks that the server has or is loading, from the first on. With `begins`, it begins
 * to load those that only L2 has. *hot: how many of them L1 has; *begun: loads that began. */
static uint32_t look(struct kvb_fleet *fleet, uint32_t job, uint32_t worker, bool begins,
	int64_t now_ns, uint32_t *hot, uint32_t *begun)
{
	const struct kvb_mp_options *o = &fleet->options.mp;
	struct kvb_mp *mp = &fleet->mp;
	uint32_t count = fleet->jobs->items[job].input / KVB_MP_CHUNK, chunk;
	int64_t *link = &mp->link_ns[worker];

	*hot = *begun = 0;
	for (chunk = 0; chunk < count; chunk++) {
		uint64_t key = key_of(fleet, job, chunk);

		if (kvb_tier_find(mp->l1[worker], &key, 1) == 1) {
			++*hot;
		} else if (!is_coming(&fleet->loads, worker, key)) {
			if (!begins || kvb_tier_find(mp->l2, &key, 1) == 0)
				break;
			kvb_tier_touch(mp->l2, &key, 1);
			++*begun;
			kvb_loads_add(&fleet->loads,
				(struct kvb_load){
					.end_ns = kvb_links_take(link, link, now_ns,
							  kvb_fleet_way_ns(fleet, KVB_MP_CHUNK,
								  o->l2_bytes_per_ns)) +
						  o->l2_fixed_ns,
					.worker = worker,
					.job = KVB_NO_JOB,
					.key = key});
		}
	}
	mp->counts.l2_tokens += (double)*begun * KVB_MP_CHUNK;
	return chunk;
}

void kvb_mp_send(struct kvb_fleet *fleet, uint32_t job, uint32_t worker, int64_t now_ns)
{
	uint32_t hot, begun;

	if (!is_on(fleet) || !fleet->options.mp.prefetch)
		return;
	(void)look(fleet, job, worker, true, now_ns, &hot, &begun);
	fleet->mp.counts.prefetches += begun > 0;
	fleet->mp.counts.prefetched_tokens += (double)begun * KVB_MP_CHUNK;
}

/* A sequence has its server look once; what L1 has lost again by then is computed. */
static bool ask(void *user, struct kvb_seq *seq, int64_t now_ns, uint32_t hits, uint32_t *tokens)
{
	struct kvb_fleet *fleet = user;
	const struct kvb_course *course = seq->user;
	bool first = seq->chunk_count == 0;
	uint32_t hot, begun, chunks;

	(void)hits;
	chunks = look(fleet, kvb_fleet_job(fleet, seq), course->worker, first, now_ns, &hot, &begun);
	fleet->mp.counts.asked += first && begun > 0;
	seq->chunk_count = 1;
	if (hot < chunks)
		return false;
	while (chunks-- > 0) { /* the prompt's beginning is used last, and stays longest */
		uint64_t key = key_of(fleet, kvb_fleet_job(fleet, seq), chunks);

		kvb_tier_touch(fleet->mp.l1[course->worker], &key, 1);
	}
	chunks = hot;
	*tokens = chunks * KVB_MP_CHUNK < seq->prompt_len ? chunks * KVB_MP_CHUNK
							  : seq->prompt_len - 1;
	return true;
}

static bool fetch(void *user, struct kvb_seq *seq, int64_t now_ns, uint32_t hits, uint32_t tokens)
{
	struct kvb_fleet *fleet = user;
	struct kvb_mp *mp = &fleet->mp;
	uint32_t worker = ((const struct kvb_course *)seq->user)->worker;
	int64_t *bus = &mp->bus_ns[worker];
	int64_t takes_ns = kvb_fleet_way_ns(
		fleet, tokens - hits, fleet->options.mp.l1_bytes_per_ns);

	kvb_loads_add(&fleet->loads,
		(struct kvb_load){.end_ns = kvb_links_take(bus, bus, now_ns, takes_ns),
			.worker = worker,
			.job = kvb_fleet_job(fleet, seq),
			.tokens = tokens});
	mp->counts.l1_tokens += tokens - hits;
	return true;
}

/* Stores the prompt's chunks that are complete. */
static void computed(void *user, struct kvb_seq *seq)
{
	struct kvb_fleet *fleet = user;
	uint32_t worker = ((const struct kvb_course *)seq->user)->worker;
	uint32_t end = seq->computed < seq->prompt_len ? seq->computed : seq->prompt_len;

	for (; (seq->chunks_stored + 1) * KVB_MP_CHUNK <= end; seq->chunks_stored++) {
		uint64_t key = key_of(fleet, kvb_fleet_job(fleet, seq), seq->chunks_stored);

		kvb_tier_store(fleet->mp.l1[worker], &key, 1);
		kvb_tier_store(fleet->mp.l2, &key, 1);
		kvb_tier_touch(fleet->mp.l1[worker], &key, 1);
		kvb_tier_touch(fleet->mp.l2, &key, 1);
	}
}

static const struct kvb_engine_watch watch = {.ask = ask, .fetch = fetch, .computed = computed};

static struct kvb_tier *make_tier(uint32_t tokens)
{
	struct kvb_tier *tier = kvb_tier_create(
		tokens >= KVB_MP_CHUNK ? tokens / KVB_MP_CHUNK : 1, NULL, NULL);

	if (tier == NULL)
		abort();
	return tier;
}

void kvb_mp_begin(struct kvb_fleet *fleet)
{
	uint32_t workers = fleet->options.workers;

	if (!is_on(fleet))
		return;
	fleet->mp.l1 = kvb_alloc(workers, sizeof(fleet->mp.l1[0]));
	fleet->mp.l2 = make_tier(fleet->options.mp.l2_tokens);
	fleet->mp.link_ns = kvb_alloc(workers, sizeof(int64_t));
	fleet->mp.bus_ns = kvb_alloc(workers, sizeof(int64_t));
	for (uint32_t w = 0; w < workers; w++) {
		fleet->mp.l1[w] = make_tier(fleet->options.mp.l1_tokens);
		kvb_engine_watch(fleet->workers[w].engine, &watch, fleet);
	}
}

void kvb_mp_finish(struct kvb_fleet *fleet)
{
	for (uint32_t w = 0; w < fleet->options.workers && is_on(fleet); w++)
		kvb_tier_destroy(fleet->mp.l1[w]);
	kvb_tier_destroy(fleet->mp.l2);
	free(fleet->mp.l1);
	free(fleet->mp.link_ns);
	free(fleet->mp.bus_ns);
}
