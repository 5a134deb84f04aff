/*
 * diff.h - what differs between two configurations, and which of it a running process can take over.
 *
 * Both are whole, as the loader makes them, with the same list of strategies; neither is changed.
 * Values compare as they mean: `60s` and `1m` are equal. A worker is known by its URL; the order of
 * workers or of service levels is no difference. Pure functions.
 */
#ifndef KVW_CONFIG_DIFF_H
#define KVW_CONFIG_DIFF_H

#include "config/config.h"

/* One key with two values. Owned by its diff. */
struct kvw_config_change {
	char *path;           /* "routing.strategy"; of a worker "models" */
	char *before, *after; /* as YAML; "(secret)" for a secret, which may be both */
	bool reload;          /* a reload takes it over; false: only a restart does */
};

enum kvw_worker_change_kind { KVW_WORKER_ADDED, KVW_WORKER_REMOVED, KVW_WORKER_CHANGED };

/* One worker that is not the same in both. Owned by its diff. */
struct kvw_worker_change {
	enum kvw_worker_change_kind kind;
	char *url;
	size_t before, after;           /* index in `workers` of each; SIZE_MAX: not there */
	struct kvw_config_change *keys; /* CHANGED: in the order of keys.def; else none */
	size_t key_count;
};

/* Workers: removed ones in the order of `before`, then the others in that of `after`. */
struct kvw_config_diff {
	struct kvw_config_change *keys; /* in the order of keys.def, then own keys of strategies, then
					 * `service_levels`, `rate_limits`, `models` and the pools as one each */
	size_t key_count;
	struct kvw_worker_change *workers;
	size_t worker_count;
	size_t restart_count; /* keys that need a restart, those of workers included */
};

/* KVW_ENOMEM or KVW_OK, which sets *out. */
enum kvw_err kvw_config_diff(const struct kvw_config *before, const struct kvw_config *after,
	const struct kvw_strategy_ops *const *strategies,
	struct kvw_config_diff **out) KVW_MUST_CHECK;

/* NULL is allowed. */
void kvw_config_diff_destroy(struct kvw_config_diff *diff);

/*
 * Copies the value of every key that needs a restart from `before` to `after`: what a process that
 * runs with `before` has in effect once it took over `after`. Workers that are in both likewise.
 * KVW_ENOMEM: `after` has some of them; it is whole and only fit to be destroyed.
 */
enum kvw_err kvw_config_take_restart_keys(const struct kvw_config *before, struct kvw_config *after,
	const struct kvw_strategy_ops *const *strategies) KVW_MUST_CHECK;

#endif
