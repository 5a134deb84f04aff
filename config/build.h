/*
 * build.h - fills a configuration value by value, whatever the values come from.
 *
 * start; then set, add_worker and set_worker for what was given; then end, which adds defaults
 * and rules between keys and hands the result over. A wrong value is a mistake in the report, not
 * an error: the functions return KVW_ENOMEM or KVW_OK, so that one run finds every mistake.
 */
#ifndef KVW_CONFIG_BUILD_H
#define KVW_CONFIG_BUILD_H

#include "settings/document.h"
#include "settings/report.h"
#include "config/own_keys.h"

struct kvw_build {
	struct kvw_config *config;
	struct kvw_report *report;             /* borrowed */
	struct kvw_own_keys own;               /* keys of the strategies */
	struct kvw_place places[KVW_ALL_KEYS]; /* where each key was given */
	bool given[KVW_ALL_KEYS];
	bool valid[KVW_ALL_KEYS];
	size_t worker_room;
};

/* A value as it was written. */
struct kvw_given {
	struct kvw_place place;
	struct kvw_slice text;       /* of a scalar; ends with a NUL beyond its length */
	const struct kvw_node *node; /* NULL: a flag, which is a scalar */
};

/* On KVW_OK kvw_build_end or kvw_build_drop must follow. */
enum kvw_err kvw_build_start(struct kvw_build *build, struct kvw_report *report,
	const struct kvw_strategy_ops *const *strategies) KVW_MUST_CHECK;

/* Sets the key with this index of own_keys.h. Twice is a mistake. */
enum kvw_err kvw_build_set(
	struct kvw_build *build, size_t key, const struct kvw_given *given) KVW_MUST_CHECK;

/* Makes room for so many workers, at most KVW_MAX_WORKERS. At most once. */
enum kvw_err kvw_build_reserve_workers(struct kvw_build *build, size_t count) KVW_MUST_CHECK;

/* Begins the next worker; there is room for it. Its index is worker_count - 1. */
void kvw_build_add_worker(struct kvw_build *build);

/* Sets a key of the newest worker. `shown` is its name in messages, "workers[2].url". */
enum kvw_err kvw_build_set_worker(struct kvw_build *build, size_t key, const char *shown,
	const struct kvw_given *given) KVW_MUST_CHECK;

/* Completes the newest worker: keys that were not given, its URL new among the others. */
enum kvw_err kvw_build_end_worker(struct kvw_build *build, const bool given[KVW_WORKER_KEY_COUNT],
	struct kvw_place place, struct kvw_place url_place) KVW_MUST_CHECK;

/* KVW_OK sets *out; KVW_EINVAL: the report has mistakes. Releases the build either way. */
enum kvw_err kvw_build_end(struct kvw_build *build, struct kvw_config **out) KVW_MUST_CHECK;

/* Gives up. */
void kvw_build_drop(struct kvw_build *build);

#endif
