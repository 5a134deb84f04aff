/*
 * diff.h - finds the differences between two configurations, and which of them a running process
 * can take over.
 *
 * Both are complete, as the loader makes them, with the same list of strategies; neither is
 * changed. Values are compared by their meaning: `60s` and `1m` are equal. Workers are identified
 * by their URLs; the order of workers or of service levels is no difference. Pure functions.
 */
#ifndef KVW_CONFIG_DIFF_H
#define KVW_CONFIG_DIFF_H

#include "config/config.h"

/* A key that has two different values. Owned by its diff. */
struct kvw_config_change {
	char *path; /* path of the key, "routing.strategy"; for a worker's key only "models" */
	char *before, *after; /* values as YAML; "(secret)" for a secret, so both may be equal */
	bool reload;          /* true: a reload takes the change over; false: only a restart does */
};

enum kvw_worker_change_kind { KVW_WORKER_ADDED, KVW_WORKER_REMOVED, KVW_WORKER_CHANGED };

/* A worker that differs. Owned by its diff. */
struct kvw_worker_change {
	enum kvw_worker_change_kind kind;
	char *url;
	/* its index in `workers` of each configuration; SIZE_MAX: it is not there */
	size_t before, after;
	/* CHANGED: the keys that differ, in the order of keys.def; else none */
	struct kvw_config_change *keys;
	size_t key_count;
};

/* All differences. Removed workers come first, in the order of `before`, then the others in the
 * order of `after`. */
struct kvw_config_diff {
	/* in the order of keys.def, then settings of strategies, then `service_levels`,
	 * `rate_limits`, `models` and the pools as one key each */
	struct kvw_config_change *keys;
	size_t key_count;
	struct kvw_worker_change *workers;
	size_t worker_count;
	size_t restart_count; /* number of keys that need a restart, with those of workers */
};

/* Returns KVW_OK, and sets *out, or KVW_ENOMEM. */
enum kvw_err kvw_config_diff(const struct kvw_config *before, const struct kvw_config *after,
	const struct kvw_strategy_ops *const *strategies,
	struct kvw_config_diff **out) KVW_MUST_CHECK;

/* NULL is allowed. */
void kvw_config_diff_destroy(struct kvw_config_diff *diff);

/*
 * Copies the value of every key that needs a restart from `before` to `after`, also in workers that
 * are in both. Then `after` is the configuration that is in effect once a process with `before` has
 * taken it over. KVW_ENOMEM: only some values were copied; `after` may only be destroyed.
 */
enum kvw_err kvw_config_take_restart_keys(const struct kvw_config *before, struct kvw_config *after,
	const struct kvw_strategy_ops *const *strategies) KVW_MUST_CHECK;

#endif
