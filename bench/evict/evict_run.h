/*
 * evict_run.h - a trace through one tier: how much of each prompt is there when it comes.
 *
 * What is driven is the library's own index (cache/index), so the policies are asked as a tier asks
 * them. A request holds the longest prefix of its chain that is there, which is what counts as hit,
 * then has the rest inserted, published from the first chunk on, and lets go of all of it: no
 * request evicts its own chunks. Only the index is real: chunks are charged but have no bytes. One
 * request at a time; the order of the trace is the only time.
 */
#ifndef KVB_EVICT_RUN_H
#define KVB_EVICT_RUN_H

#include "kvtier/kvtier.h"
#include "bench/load/trace_file.h"

struct kvb_evict_result {
	uint64_t asked, hit; /* chunks */
	double cost_asked,
		/* the same chunks, weighted by the time to compute them (kvb_evict_cost_ns) */
		cost_hit;
	uint64_t evictions;
	/* chunks that found no room, since nothing could be evicted */
	uint64_t refused;
	uint64_t metadata_bytes, ghost_bytes; /* memory of the index at the end */
};

/* Counts the distinct chunks of a trace, and the chunks of its longest prompt. */
void kvb_evict_count(const struct kvb_trace *trace, uint64_t *distinct, uint64_t *longest);

/* Runs a trace through a tier with room for so many chunks; ghosts get 160 bytes a chunk. */
enum kvt_status kvb_evict_run(const struct kvb_trace *trace, const char *policy, uint32_t chunks,
	struct kvb_evict_result *out) KVT_MUST_CHECK;

/*
 * The offline optimum, a bound for every policy: it knows the future, keeps the chunks whose next use
 * is soonest, and of those of one request the first ones; it may refuse to keep a new chunk (Belady's
 * MIN with bypass). Since all chunks have one size, it never keeps a chunk without its parent.
 */
void kvb_evict_optimum(
	const struct kvb_trace *trace, uint32_t chunks, struct kvb_evict_result *out);

/* Time to compute the chunk at this place of a prompt, relative: attention to 40,000 tokens before
 * it costs as much as all the rest, which is between models of 8 and of 70 billion parameters. */
uint64_t kvb_evict_cost_ns(uint64_t depth);

#endif
