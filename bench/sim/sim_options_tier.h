/*
 * sim_options_tier.h - options for the tiers below a worker's device, and how they are shrunk.
 *
 * Options have full sizes: a worker with `--l1 64GiB` behaves like one with 64 GiB. libkvtier gets
 * these sizes divided by `shrink`, payloads as well as capacities, so that a fleet fits on one
 * machine.
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
	uint32_t kv_bytes; /* bytes of KV per token, in full; 0: the profile's */
	uint32_t shrink;   /* divisor of stored bytes; 1: full size */
	bool recompute;    /* true: compute tokens again where that is faster than to fetch them */
	enum kvb_tier_timing timing;
	const struct kvb_link *links[KVB_LINK_KINDS];
	struct kvb_link own_links[KVB_LINK_KINDS]; /* links that the command line describes */

	struct kvt_config config;      /* as configured, with full sizes; owns its texts */
	bool modelled;                 /* whether times are modelled, which follows from `timing` */
	uint32_t chunk_tokens;         /* a multiple of the block size */
	uint64_t chunk_bytes;          /* full size of a chunk */
	uint64_t payload_bytes;        /* bytes of a chunk's payload for libkvtier */
	uint64_t l1_bytes, nvme_bytes; /* capacities as libkvtier gets them */
};

void kvb_tier_options_init(struct kvb_tier_options *options);
void kvb_tier_options_finish(struct kvb_tier_options *options);

/* Each parses a text. If it is wrong, writes a message to standard error and returns false. */
bool kvb_tier_parse_config(
	const char *text, struct kvb_tier_options *options); /* YAML, or a file with YAML */
bool kvb_tier_parse_l1(const char *text, struct kvb_tier_options *options);
bool kvb_tier_parse_nvme(const char *text, struct kvb_tier_options *options); /* PATH:SIZE */
bool kvb_tier_parse_l2(const char *text, struct kvb_tier_options *options);
bool kvb_tier_parse_segment(const char *text, struct kvb_tier_options *options);
bool kvb_tier_parse_timing(const char *text, struct kvb_tier_options *options);
bool kvb_tier_parse_link(
	const char *text, struct kvb_tier_options *options); /* NAME or KIND=BYTES_PER_S */

/* Sets members that follow from several options. */
bool kvb_tier_complete(struct kvb_options *options);
/* Prints to standard error which times are modelled, which are measured, and the factor of
 * shrinking. */
void kvb_tier_print(const struct kvb_options *options);

/* Texts of one worker's configuration. */
struct kvb_tier_texts {
	char nvme_path[1024];
	char pull[256], reply[256], instance[256], ports[8];
};

/* Makes the configuration of one worker's libkvtier. Borrows the options' texts, and *texts. */
void kvb_tier_config(const struct kvb_options *options, uint32_t index,
	struct kvb_tier_texts *texts, struct kvt_config *out);

#endif
