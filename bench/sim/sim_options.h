/*
 * sim_options.h - the options of kvsim's command line.
 */
#ifndef KVB_SIM_OPTIONS_H
#define KVB_SIM_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/sim/sim_fragments.h"
#include "bench/sim/sim_options_kv.h"
#include "bench/sim/sim_options_tier.h"
#include "bench/sim/sim_profile.h"

#define KVB_LORA_MOST 16

/* How an engine reports that it is full. */
enum kvb_full_as {
	KVB_FULL_503,   /* vLLM */
	KVB_FULL_EVENT, /* as vLLM does for a stream: status 200, and an error event */
	KVB_FULL_429,   /* TGI */
};

/* Strings are borrowed from argv. Not changed once parsed, so all loops share it. */
struct kvb_options {
	uint32_t workers, threads;
	const char *host;
	uint16_t port; /* port of worker 0, others follow; 0: free ports */
	uint32_t ranks;       /* data-parallel ranks of each worker */
	bool hybrid; /* the workers are one deployment, whose ranks have consecutive numbers */
	/* X-data-parallel-rank is the number in the deployment, as in vLLM's Rust frontend */
	bool rank_is_global;
	const char *ports_file;
	const char *model;
	const char *loras[KVB_LORA_MOST];
	uint32_t lora_count;
	const struct kvb_profile *profile;
	/* the profile with another rate of prefill, if one is given */
	struct kvb_profile own_profile;
	double prefill_rate;            /* tokens a second; 0: the profile's */
	double speed;                   /* simulated seconds per second */
	uint32_t kv_tokens, block_size, max_batched_tokens, max_seqs, max_model_len;
	/* real time without output after which a stream gets a comment; 0: never */
	double keep_alive_s;
	uint32_t default_tokens; /* length of a chat answer whose request sets no limit */
	uint64_t seed;           /* seed of random ids */
	uint32_t draft_tokens;   /* drafted tokens per decoded one (sim_engine.h) */
	uint32_t max_queued; /* most requests that run or wait; 0: no limit */
	enum kvb_full_as full_as;
	double draft_share, drift;
	double keepalive_s;
	bool request_id_headers, prompt_tokens_details;
	bool scale_out; /* true: the render endpoints answer */
	size_t max_body;
	size_t fixed_response;                /* bytes; 0: off */
	uint32_t stream_chunks, stream_bytes; /* --fixed-stream; 0 chunks: off */
	double stream_interval_ms;
	struct kvb_events_options events;
	struct kvb_lmcache_options lmcache;
	struct kvb_tier_options tier;
	struct kvb_fragments_options fragments;
	struct kvb_nixl_options nixl;
};

enum kvb_options_result { KVB_OPTIONS_RUN, KVB_OPTIONS_DONE, KVB_OPTIONS_WRONG };

/* Prints help, lists or errors itself. kvb_options_finish must be called in any case. */
enum kvb_options_result kvb_options_parse(int argc, char **argv, struct kvb_options *options);
void kvb_options_finish(struct kvb_options *options);

#endif
