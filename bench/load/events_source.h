/*
 * events_source.h - publishes KV events of many engines at a fixed rate, and makes prompts to which
 * these events belong.
 *
 * An engine stores chains of KVB_CHAIN blocks, in pieces of one batch each, and holds `held`
 * chains: with each piece it loses one of its oldest chain, tail first, one event a block. Eight
 * groups of engines store the same chains, as engines that serve the same users do. Chains are
 * decided by group and number, so that a caller can ask for a prompt that the engines hold at
 * present.
 *
 * With a coordinator the same caches are those of LMCache servers, one for each engine, whose chunks
 * are these blocks: a server reports `pieces` pieces at once, by HTTP (events_servers.h).
 *
 * One thread runs a source; its other functions may be called from any thread.
 */
#ifndef KVB_EVENTS_SOURCE_H
#define KVB_EVENTS_SOURCE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#define KVB_CHAIN        50u /* blocks */
#define KVB_PIECE        10u /* number of blocks that one batch stores, and that it removes */
#define KVB_BLOCK_TOKENS 16u
#define KVB_GROUPS       8u

struct kvb_source_config {
	uint32_t engines;
	uint16_t port;  /* port for the events of engine 0; replays are at port + engines */
	double batches; /* per second and engine */
	uint32_t held;  /* chains */
	const struct sockaddr_in *coordinator; /* borrowed; NULL: engines publish */
	uint32_t pieces; /* with a coordinator: of each post, of which there are `batches` a second */
};

struct kvb_source;

/* Returns NULL on failure, with a message on standard error. */
struct kvb_source *kvb_source_create(const struct kvb_source_config *config);
void kvb_source_destroy(struct kvb_source *source); /* stops its thread; NULL is allowed */

/* Starts or stops publishing. When it returns after a stop, kvb_source_stats has all batches. */
void kvb_source_run(struct kvb_source *source, bool on);

struct kvb_source_stats {
	uint64_t batches, blocks; /* numbers published: batches; blocks stored or removed */
	uint64_t refused;         /* posts that the coordinator did not take */
	int64_t late_ns;          /* the largest delay against the schedule since the last call */
};

void kvb_source_stats(struct kvb_source *source, struct kvb_source_stats *out);

/* Makes the tokens of a chain that the engines of a group hold now; `random` chooses the chain.
 * Returns false if there is none yet. */
bool kvb_source_prompt(
	struct kvb_source *source, uint64_t random, uint32_t tokens[KVB_CHAIN * KVB_BLOCK_TOKENS]);

#endif
