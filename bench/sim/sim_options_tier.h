/*
 * sim_options_tier.h - which tiers a worker has below its device, and how they are shrunk.
 *
 * Sizes are said in full: a worker with `--l1 64GiB` behaves as one with 64 GiB does. What libkvtier is
 * given is that divided by `shrink`, payloads and capacities alike, so that a fleet fits one machine.
 */
#ifndef KVB_SIM_OPTIONS_TIER_H
#define KVB_SIM_OPTIONS_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"
#include "bench/sim/sim_link.h"

#define KVB_SHRINK_DEFAULT 1024
#define KVB_SHRINK_MOST    65536

struct kvb_options;

enum kvb_tier_timing { KVB_TIMING_AUTO, KVB_TIMING_MODELLED, KVB_TIMING_MEASURED };

struct kvb_tier_options {
	bool on;
	uint32_t kv_bytes; /* a token, in full; 0: the profile's */
	uint32_t shrink;   /* 1: nothing is */
	bool recompute;    /* rather than fetch, where that is faster */
	enum kvb_tier_timing timing;
	const struct kvb_link *links[KVB_LINK_KINDS];
	struct kvb_link own_links[KVB_LINK_KINDS]; /* those that the command line describes */

	struct kvt_config config;      /* as configured, in full; owns texts */
	bool modelled;                 /* what timing came to */
	uint32_t chunk_tokens;         /* a multiple of the block size */
	uint64_t chunk_bytes;          /* of a chunk, in full */
	uint64_t payload_bytes;        /* of a chunk, as libkvtier gets it */
	uint64_t l1_bytes, nvme_bytes; /* as libkvtier gets them */
};

void kvb_tier_options_init(struct kvb_tier_options *options);
void kvb_tier_options_finish(struct kvb_tier_options *options);

/* Each complains on standard error and returns false if the text is wrong. */
bool kvb_tier_parse_config(
	const char *text, struct kvb_tier_options *options); /* YAML, or a file of it */
bool kvb_tier_parse_l1(const char *text, struct kvb_tier_options *options);
bool kvb_tier_parse_nvme(const char *text, struct kvb_tier_options *options); /* PATH:SIZE */
bool kvb_tier_parse_l2(const char *text, struct kvb_tier_options *options);
bool kvb_tier_parse_segment(const char *text, struct kvb_tier_options *options);
bool kvb_tier_parse_timing(const char *text, struct kvb_tier_options *options);
bool kvb_tier_parse_link(
	const char *text, struct kvb_tier_options *options); /* NAME or KIND=BYTES_PER_S */

/* What follows from several options. */
bool kvb_tier_complete(struct kvb_options *options);
/* What is modelled, what is measured, and what it is shrunk by; to standard error. */
void kvb_tier_print(const struct kvb_options *options);

/* Texts of one worker's configuration. */
struct kvb_tier_texts {
	char nvme_path[1024];
	char pull[256], reply[256], instance[256], ports[8];
};

/* The configuration of one worker's libkvtier. Borrows the options' texts, and *texts. */
void kvb_tier_config(const struct kvb_options *options, uint32_t index,
	struct kvb_tier_texts *texts, struct kvt_config *out);

#endif
