/*
 * collect.h - writes samples of metrics from shards. Private to
 * src/router/admin/metrics_render.c, metrics_totals.c and collect*.c.
 *
 * Each collector named in metrics.def writes the samples of one metric. The renderer writes HELP
 * and TYPE before it calls the collector.
 */
#ifndef KVW_COLLECT_H
#define KVW_COLLECT_H

#include "admin/metrics_shard.h"
#include "metrics/exposition.h"

/* The `arg` of a metric that needs no enum of metrics.h and no tally. */
enum kvw_collect_of {
	/* worker */
	KVW_OF_RUNNING, KVW_OF_PREFILL, KVW_OF_DECODING, KVW_OF_QPS, KVW_OF_LATENCY, KVW_OF_HEALTHY,
	KVW_OF_HEALTH, KVW_OF_QUEUE, KVW_OF_FAILURES, KVW_OF_BAD_ANSWERS,
	KVW_OF_STALL, KVW_OF_EJECTED, KVW_OF_EJECTIONS, KVW_OF_PROBES_FAILED, KVW_OF_GENERATION,
	KVW_OF_RECOMPUTED, KVW_OF_KV_USED, KVW_OF_DECODE_TOKENS, KVW_OF_DECODE_SECONDS,
	KVW_OF_CAPACITY, KVW_OF_BLOCK, KVW_OF_KV_ROOM, KVW_OF_KV_WAIT,
	KVW_OF_FOREIGN_WAITING, KVW_OF_FOREIGN_RUNNING, KVW_OF_FOREIGN_QUEUE,
	/* learned */
	KVW_OF_RATE, KVW_OF_RATE_OBSERVED, KVW_OF_RATE_SAMPLES, KVW_OF_CAPACITY_SHARE,
	/* compared */
	KVW_OF_COMPARED, KVW_OF_PREDICTED, KVW_OF_CACHED, KVW_OF_MISSING, KVW_OF_UNFORESEEN,
	/* server_tokens */
	KVW_OF_INPUT, KVW_OF_OUTPUT,
	/* route_histogram */
	KVW_OF_TOTAL, KVW_OF_TTFT, KVW_OF_ADDED, KVW_OF_GAP, KVW_OF_PER_TOKEN, KVW_OF_SHADOW,
	/* scale */
	KVW_OF_SCALE_QUANTILES, KVW_OF_SCALE_RATIOS, KVW_OF_SCALE_PARTS,
	/* pd_histogram */
	KVW_OF_PD_PREFILL, KVW_OF_PD_HANDOVER, KVW_OF_PD_TRANSFER,
	/* strategy */
	KVW_OF_TREE_BYTES, KVW_OF_TREE_LIMIT, KVW_OF_TREE_NODES, KVW_OF_TREE_CHUNKS,
	KVW_OF_TREE_EVICTED, KVW_OF_TREE_PURGES, KVW_OF_SESSIONS,
	KVW_OF_EXACT_BLOCKS, KVW_OF_EXACT_HOLDERS, KVW_OF_EXACT_BYTES, KVW_OF_EXACT_LIMIT,
	KVW_OF_EXACT_PARKED, KVW_OF_EXACT_DROPPED, KVW_OF_EXACT_PARKED_DROPPED,
	KVW_OF_EXACT_UNKNOWN,
	KVW_OF_FRAGMENT_ENTRIES, KVW_OF_FRAGMENT_LIMIT, KVW_OF_FRAGMENT_BYTES,
	/* compared, too */
	KVW_OF_EXACT_RIGHT, KVW_OF_EXACT_WRONG,
	/* tokens */
	KVW_OF_TOKENS_ASKED, KVW_OF_TOKENS_CACHED, KVW_OF_TOKENS_ANSWERED, KVW_OF_TOKENS_FAILED,
	KVW_OF_TOKENS_SECONDS, KVW_OF_TOKENS_INFLIGHT, KVW_OF_TOKENS_BYTES, KVW_OF_TOKENS_LIMIT,
	/* feed */
	KVW_OF_FEED_LAG_P50, KVW_OF_FEED_LAG_P99, KVW_OF_FEED_CPU, KVW_OF_FEED_SOCKETS,
	KVW_OF_FEED_HANDOVER,
	/* coverage */
	KVW_OF_COVERAGE, KVW_OF_SEQUENCE,
	/* discovery */
	KVW_OF_LISTED, KVW_OF_READABLE, KVW_OF_LIST_TIME, KVW_OF_UNREADABLE,
	/* discovery_part */
	KVW_OF_EVENT_AGE, KVW_OF_RELIST_AGE, KVW_OF_FAILING, KVW_OF_SOURCE_ERRORS,
	/* wake */
	KVW_OF_WAKE_HELD, KVW_OF_WAKE_CALLS, KVW_OF_WAKE_FAILURES, KVW_OF_WAKE_SECONDS,
	KVW_OF_WAKE_REQUESTS, KVW_OF_WAKE_READY,
	/* config */
	KVW_OF_ADMIN_OPEN, KVW_OF_ADMIN_REFUSED,
	KVW_OF_BROADCASTS_RUNNING, KVW_OF_BROADCASTS_ENDED,
	KVW_OF_RELOAD_GOOD, KVW_OF_RELOAD_TIME, KVW_OF_RELOAD_RESTART,
	/* auth */
	KVW_OF_AUTH_KEYS, KVW_OF_AUTH_GOOD, KVW_OF_AUTH_TIME,
	/* usage_users */
	KVW_OF_USERS, KVW_OF_USERS_UNNAMED,
	/* rate_sharing */
	KVW_OF_SHARING_GOOD, KVW_OF_SHARING_COUNTS,
	/* takeover */
	KVW_OF_TAKEOVER_ASKED, KVW_OF_TAKEOVER_FAILED, KVW_OF_TAKEOVER_REFUSED,
	KVW_OF_TAKEOVER_UNDER_WAY, KVW_OF_TAKEOVER_ADOPTED, KVW_OF_TAKEOVER_SECONDS,
	/* state */
	KVW_OF_STATE_SNAPSHOTS, KVW_OF_STATE_BYTES, KVW_OF_STATE_SECONDS, KVW_OF_STATE_TIME,
	KVW_OF_STATE_RECALLED,
	KVW_OF_STATE_WORKERS,
	KVW_OF_STATE_RECALLING,
	/* replicas */
	KVW_OF_PEERS, KVW_OF_PEERS_AGE, KVW_OF_PEERS_TRUST, KVW_OF_PEERS_DEGRADED,
	KVW_OF_PEERS_COMMANDS, KVW_OF_PEERS_BYTES,
	KVW_OF_PEERS_MESSAGES,
	/* jwt */
	KVW_OF_JWT_KEYS, KVW_OF_JWT_AGE,
	/* certificates */
	KVW_OF_NOT_AFTER, KVW_OF_RENEWALS, KVW_OF_TLS_FLOODS,
	/* otel */
	KVW_OF_OTEL_EXPORTED, KVW_OF_OTEL_DROPPED, KVW_OF_OTEL_REJECTED, KVW_OF_OTEL_MESSAGES,
	KVW_OF_OTEL_WAITING,
	/* dropped */
	KVW_OF_ACCESS_LOG, KVW_OF_LOG,
	/* host and process */
	KVW_OF_CPU, KVW_OF_MEMORY, KVW_OF_DISK,
	KVW_OF_START_TIME, KVW_OF_CPU_SECONDS, KVW_OF_RSS, KVW_OF_VIRTUAL, KVW_OF_OPEN_FDS,
	KVW_OF_MAX_FDS
};

/* One rendering. */
struct kvw_collect {
	struct kvw_metrics *metrics; /* its lock is held */
	struct kvw_exposition out;
	int64_t now_ns;
	int arg; /* `arg` of the metric that is being written */
};

/* Returns the sum of the _Atomic uint64_t at `offset` in each shard. */
uint64_t kvw_shards_sum(const struct kvw_metrics *metrics, size_t offset);

/* Returns a gauge of kvaware's index. */
uint64_t kvw_exact_gauge(const struct kvw_strategy_stats *stats, enum kvw_collect_of of);

/* Returns the worker in a slot of the fleet, if it is to be shown; NULL: it is not. */
struct kvw_worker *kvw_metrics_worker(const struct kvw_metrics *metrics, size_t slot);

/* kvw_metrics_slots returns how many slots of workers there are (0 is "none", 1 the fleet's slot
 * 0); kvw_metrics_shown returns whether a slot is to be shown. */
size_t kvw_metrics_slots(const struct kvw_metrics *metrics);
bool kvw_metrics_shown(const struct kvw_metrics *metrics, size_t slot);

/* Label texts of enum kvw_kept. */
extern const char *const kvw_kept_names[KVW_KEPT_COUNT];

/* Return label texts. slot: of a worker that is shown, or of a model. */
struct kvw_slice kvw_worker_label(const struct kvw_metrics *metrics, size_t slot);
struct kvw_slice kvw_model_label(const struct kvw_metrics *metrics, size_t slot);

#define KVW_METRIC(name, type, labels, collector, arg, help)                                       \
	void kvw_collect_##collector(struct kvw_collect *collect);
#include "admin/metrics.def"

#endif
