/*
 * sources.h - the proxy's interface to the feeds, for strategies that route by exact tokens
 * (kvw_strategy_ops.prepare is KVW_PREPARE_TOKENS).
 *
 * Before the pick the proxy asks whether any source reports the contents of caches. After the pick
 * it reports where the prompt went, and at the end whether the prediction was right. So the proxy
 * does not depend on the protocols of the sources.
 *
 * Threads: any, between kvw_sources_create and kvw_sources_destroy. Nothing here blocks.
 */
#ifndef KVW_SOURCES_H
#define KVW_SOURCES_H

#include "feeds/feed.h"
#include "feeds/kvspace.h"
#include "feeds/prediction_check.h"
#include "feeds/tokens/tokens.h"
#include "kvway/route.h"

struct kvw_coordinator;
struct kvw_lmcache;

/* Read-only after creation, except for the atomics and the checks, which consist of atomics. All
 * pointers are borrowed. */
struct kvw_sources {
	struct kvw_tokens *tokens;
	struct kvw_kvspaces *spaces;
	struct kvw_exact *exact;     /* the strategy's view, which the feeds fill */
	struct kvw_lmcache *lmcache; /* NULL: none is configured */
	struct kvw_coordinator *coordinator; /* the same */
	/* how long a request waits for its prompt's tokens at most */
	_Atomic int64_t tokens_timeout_ms;
	uint32_t lmcache_chunk;      /* tokens of an LMCache chunk; 0: there is no controller */
	struct kvw_prediction_check *checks; /* [KVW_MAX_WORKERS] */
	/* When kvw_sources_routed last wrote a line at level info, of each of the two kinds. */
	_Atomic int64_t found_ns, none_ns;
};

/* All borrowed until kvw_sources_destroy. */
struct kvw_sources_deps {
	const struct kvw_config *config;
	const struct kvw_fleet *fleet;
	const struct kvw_feed *feed;
	struct kvw_tokens *tokens;
	struct kvw_kvspaces *spaces;
	struct kvw_exact *exact;
};

enum kvw_err kvw_sources_create(
	const struct kvw_sources_deps *deps, struct kvw_sources **out) KVW_MUST_CHECK;
void kvw_sources_destroy(struct kvw_sources *sources); /* NULL is allowed */

/* Applies the keys that a reload may change. */
void kvw_sources_reconfigure(struct kvw_sources *sources, const struct kvw_config *config);
/* Drops a worker's records, because another worker gets its slot. */
void kvw_sources_forget(struct kvw_sources *sources, uint32_t worker);

/* LMCache's name of the worker's instance, or of the server of its node: at most size - 1 bytes,
 * with a final 0. Returns the name's length; 0: it has none. */
size_t kvw_sources_instance_of(
	const struct kvw_feed *feed, uint32_t worker, char *name, size_t size);

/* Returns whether any source may have reports whose worker or whose names of chunks are unknown,
 * which routed prompts can reveal. */
bool kvw_sources_unmapped(const struct kvw_sources *sources);

/* Records that the request goes to this worker. prompt NULL: its tokens are unknown. Writes the log
 * lines that LMCache's users look for: the worker whose reports decided the choice, or that none
 * did. Returns a number by which its first token is to be reported; 0: it need not be. */
uint32_t kvw_sources_routed(struct kvw_sources *sources, const struct kvw_route_request *route,
	const struct kvw_decision *decision, const struct kvw_worker *worker,
	const struct kvw_kvprompt *prompt, int64_t now_ns);

void kvw_sources_first_token(struct kvw_sources *sources, uint32_t number, int64_t now_ns);

/* Compares an exact prediction for the worker with the cached tokens of its answer. Returns whether
 * the prediction was right; logs if most of the worker's were wrong. */
bool kvw_sources_check(const struct kvw_sources *sources, const struct kvw_worker *worker,
	uint32_t predicted, uint32_t cached);

#endif
