/*
 * events_source.h - many engines' KV events at a fixed rate, and the prompts that they are about.
 *
 * An engine stores chains of KVB_CHAIN blocks, in pieces of one batch each, and holds `held` chains: with
 * each piece it loses one of its oldest chain, tail first, one event a block. Eight groups of engines
 * store the same chains, as engines that serve the same users do. Chains are decided by group and
 * number, so that a caller that knows how far the engines are can ask for a prompt that they hold.
 *
 * One thread runs a source; its other functions may be called from any thread.
 */
#ifndef KVB_EVENTS_SOURCE_H
#define KVB_EVENTS_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#define KVB_CHAIN        50u /* blocks */
#define KVB_PIECE        10u /* blocks stored by one batch, and lost by it */
#define KVB_BLOCK_TOKENS 16u
#define KVB_GROUPS       8u

struct kvb_source_config {
	uint32_t engines;
	uint16_t port;  /* of engine 0's events; replays at port + engines */
	double batches; /* per second and engine */
	uint32_t held;  /* chains */
};

struct kvb_source;

/* NULL with a message on standard error. */
struct kvb_source *kvb_source_create(const struct kvb_source_config *config);
void kvb_source_destroy(struct kvb_source *source); /* stops its thread; NULL is allowed */

/* From its return on batches are published, or none are: kvb_source_stats has them all then. */
void kvb_source_run(struct kvb_source *source, bool on);

struct kvb_source_stats {
	uint64_t batches, blocks; /* published; blocks stored or lost */
	int64_t late_ns;          /* the worst delay against its schedule, since the last look */
};

void kvb_source_stats(struct kvb_source *source, struct kvb_source_stats *out);

/* Tokens of a chain that the group's engines hold by now, chosen by `random`. False: none yet. */
bool kvb_source_prompt(
	struct kvb_source *source, uint64_t random, uint32_t tokens[KVB_CHAIN * KVB_BLOCK_TOKENS]);

#endif
