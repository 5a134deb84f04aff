/*
 * seen.h - what the traces of ended requests show together: the prefixes that were hit most, and
 * the models that were asked for although no worker has them.
 *
 * Once a second it reads the traces that have ended since (src/router/trace). Under loads where a
 * trace is overwritten within that second, and while tracing is off, requests are missed: `seen` of
 * `ended` says how many it knows. Each table is bounded; the entry that was used longest ago makes
 * room, of prefixes one that was hit least. Prefixes are hashes, as routing has them.
 *
 * Threads: the control thread. Cost: one cache line for each record of the traces, once a second.
 */
#ifndef KVW_STATUS_SEEN_H
#define KVW_STATUS_SEEN_H

#include <jansson.h>

#include "base/clock.h"
#include "fleet/fleet.h"
#include "trace/trace.h"

#define KVW_SEEN_PREFIXES 256
#define KVW_SEEN_SHOWN    20 /* prefixes */
#define KVW_SEEN_HOLDERS  16 /* workers of a prefix that are named */
#define KVW_SEEN_MODELS   16
/* Entries that were not used for so long are left out. */
#define KVW_SEEN_PREFIX_NS (15 * 60 * KVW_NS_PER_S)
#define KVW_SEEN_MODEL_NS  (10 * 60 * KVW_NS_PER_S)

struct kvw_seen_prefix {
	uint64_t hash, hits;
	uint32_t tokens; /* as predicted last */
	int64_t used_ns;
	size_t holder_count;
	uint32_t holders[KVW_SEEN_HOLDERS]; /* kvw_trace_worker */
};

struct kvw_seen_model {
	char name[KVW_TRACE_MODEL_MOST];
	size_t len;
	uint64_t asked;
	int64_t asked_ns;
};

/* Zeroed is empty. */
struct kvw_seen {
	struct kvw_seen_prefix prefixes[KVW_SEEN_PREFIXES];
	struct kvw_seen_model models[KVW_SEEN_MODELS];
	size_t prefix_count, model_count;
	uint64_t *read; /* by loop: the newest ended request that was read; owned */
	uint64_t seen, ended;
};

void kvw_seen_finish(struct kvw_seen *seen);
/* Reads what has ended since. trace NULL: nothing is traced. */
void kvw_seen_tick(struct kvw_seen *seen, const struct kvw_trace *trace, int64_t now_ns);
/* Returns {"seen", "ended", "items": [...]}, the most hit first. NULL: out of memory. */
json_t *kvw_seen_prefixes_json(
	const struct kvw_seen *seen, const struct kvw_fleet *fleet, int64_t now_ns);

#endif
