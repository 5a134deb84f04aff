/*
 * support.h - prompts, workers and a strict look at a tree, for the tests of routing.
 */
#ifndef KVW_TEST_ROUTING_SUPPORT_H
#define KVW_TEST_ROUTING_SUPPORT_H

#include <check.h>
#include <stdint.h>

#include "kvway/route.h"
#include "routing/radix.h"

/* A check for inner loops: Check's own assertions write to a file each time. */
#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg("%s", #condition);                                            \
	} while (0)

#define CHUNK_UNITS 64 /* units of each chunk that prompts are made of */
#define MAX_PROMPT  512

/* A prompt of one chain. Chunks of equal symbols after equal symbols have equal hashes. */
struct prompt {
	struct kvw_chunk chunks[MAX_PROMPT];
	uint32_t count;
	uint32_t end; /* chain_ends of its only chain */
};

void prompt_start(struct prompt *prompt);
void prompt_add(struct prompt *prompt, uint64_t symbol);

/* symbols: one chunk per character. */
void prompt_of(struct prompt *prompt, const char *symbols);

/* A generating request for it, one unit one token. Borrows the prompt. */
struct kvw_route_request request_of(struct prompt *prompt);

/* Cheap, seeded, good enough for tests. */
uint64_t test_random(uint64_t *state);

/* find and reach in one. Returns the chunks that a worker holds. */
uint32_t tree_reach(struct kvw_radix *tree, const struct prompt *prompt, uint32_t worker);

/* Chunks that a worker holds by a reach. */
uint32_t reach_of(const struct kvw_radix_reach *reach, uint32_t worker);

/* find and insert in one. */
void tree_insert(struct kvw_radix *tree, const struct prompt *prompt, uint32_t worker,
	uint64_t capacity, int64_t now_ns);

/* Fails the test unless the tree at rest is sound: each slot is free, a node or an overflow of
 * exactly one node; references count children; every node is found by its key; views add up to
 * their entries; counters are exact. */
void tree_check(struct kvw_radix *tree);

/* Workers with their loads. */
struct fleet {
	struct kvw_load *loads;
	struct kvw_load_board *board; /* where they lie */
	struct kvw_candidate items[KVW_MAX_WORKERS];
	struct kvw_candidates set;
};

void fleet_init(struct fleet *fleet, size_t count);
void fleet_finish(struct fleet *fleet);

#define BLOCK_TOKENS 16 /* of engines' blocks */
#define PIECE_TOKENS 64 /* of LMCache's chunks */

/* A prompt as engines and LMCache name its blocks, in spaces of their own. */
struct naming {
	uint64_t blocks[MAX_PROMPT * CHUNK_UNITS / BLOCK_TOKENS];
	uint64_t pieces[MAX_PROMPT * CHUNK_UNITS / PIECE_TOKENS];
	struct kvw_exact_chain chains[KVW_REPORTER_COUNT]; /* by reporter */
};

/* Names a prompt of `tokens` tokens, which are at most those of its chunks and more than those of all
 * but the last. The request borrows the naming. */
void name_prompt(struct naming *naming, const struct prompt *prompt, uint32_t tokens,
	struct kvw_route_request *request);

/* A worker stores blocks [first, first + count) of a chain, or drops them. */
void report_stored(struct kvw_exact *exact, uint32_t worker, const struct kvw_exact_chain *chain,
	enum kvw_tier tier, uint32_t first, uint32_t count);
void report_removed(struct kvw_exact *exact, uint32_t worker, const struct kvw_exact_chain *chain,
	enum kvw_tier tier, uint32_t first, uint32_t count);

/* All members are equal. */
bool same_decision(const struct kvw_decision *a, const struct kvw_decision *b);

/* Settings with which most tests run. */
struct kvw_strategy_options test_options(void);

#endif
