/*
 * build.h - fills a configuration value by value, whether the values come from a file or from
 * flags.
 *
 * Order of calls: kvw_build_start; then the walk (settings/walk.h) for the values that were given,
 * with add_worker before and end_worker after each worker; then kvw_build_end, which adds defaults,
 * checks the rules between keys and hands the result over. A wrong value is a mistake in the
 * report, not an error: the functions return KVW_ENOMEM or KVW_OK, so that one run finds every
 * mistake.
 */
#ifndef KVW_CONFIG_BUILD_H
#define KVW_CONFIG_BUILD_H

#include "config/own_keys.h"
#include "settings/walk.h"

/* `intelligentRoutingSpec` as it is in the file. The nodes belong to the document; NULL: not in the
 * file. */
struct kvw_routing_spec {
	const struct kvw_node *node, *enabled, *strategy;
	bool whole; /* without a mistake */
	bool on;    /* the value of enabled */
};

struct kvw_build {
	struct kvw_walk walk; /* must be the first member, because the walk's callbacks get it */
	struct kvw_config *config; /* what it fills */
	struct kvw_own_keys own;   /* the schema */
	struct kvw_met met[KVW_ALL_KEYS];
	size_t section_lines[KVW_ALL_SECTIONS];
	const struct kvw_node *workers; /* the value of `workers`; NULL: not in the file */
	size_t worker_room;
	const struct kvw_node *levels; /* the value of `service_levels`; NULL: not in the file */
	struct kvw_met level_met[KVW_MAX_SERVICE_LEVELS][KVW_LEVEL_KEY_COUNT];
	struct kvw_place level_places[KVW_MAX_SERVICE_LEVELS];
	const struct kvw_node *rate_limits; /* the value of `rate_limits`; NULL: not in the file */
	/* the value of `discovery.kubernetes.pools`; NULL: not in the file */
	const struct kvw_node *pools;
	struct kvw_met pool_met[KVW_MAX_POOLS][KVW_POOL_KEY_COUNT];
	struct kvw_place pool_places[KVW_MAX_POOLS];
	const struct kvw_node *aliases; /* the value of `models`; NULL: not in the file */
	struct kvw_place alias_places[KVW_MAX_ALIASES];
	const struct kvw_node *groups; /* the value of `model_groups`; NULL: not in the file */
	struct kvw_place group_places[KVW_MAX_MODEL_GROUPS];
	size_t group_indexes[KVW_MAX_MODEL_GROUPS]; /* for each group, its index in that list */
	struct kvw_routing_spec spec;
};

/* After KVW_OK the caller must call kvw_build_end or kvw_build_drop. */
enum kvw_err kvw_build_start(struct kvw_build *build, struct kvw_report *report,
	const struct kvw_strategy_ops *const *strategies) KVW_MUST_CHECK;

/* Sets one key from a flag, whose text is read like the file's. Two flags for one key are a
 * mistake. */
enum kvw_err kvw_build_set_flag(
	struct kvw_build *build, size_t key, const char *flag, const char *text) KVW_MUST_CHECK;

/* Sets one key to a list with this one entry, a name that the type TOKEN accepts. */
enum kvw_err kvw_build_set_flag_list(
	struct kvw_build *build, size_t key, const char *flag, const char *item) KVW_MUST_CHECK;

/* Makes room for that many workers, at most KVW_MAX_WORKERS. To be called once at most. */
enum kvw_err kvw_build_reserve_workers(struct kvw_build *build, size_t count) KVW_MUST_CHECK;

/* Begins the next worker, for which there is room. Its index is worker_count - 1. */
void kvw_build_add_worker(struct kvw_build *build);

struct kvw_worker_config *kvw_build_newest_worker(struct kvw_build *build);

/* Removes the newest worker. */
void kvw_build_drop_worker(struct kvw_build *build);

/* Completes the newest worker: sets the keys that were not given, and checks that no other worker
 * has its URL. `place`: where the worker is in the file. */
enum kvw_err kvw_build_end_worker(struct kvw_build *build,
	const struct kvw_met met[KVW_WORKER_KEY_COUNT], struct kvw_place place) KVW_MUST_CHECK;

/* Does all of this for each entry of a list of workers, which has the form of the key `workers`. */
enum kvw_err kvw_build_list_workers(
	struct kvw_build *build, const struct kvw_node *list) KVW_MUST_CHECK;

/* KVW_OK sets *out; KVW_EINVAL: the report has mistakes. In both cases the build is released. */
enum kvw_err kvw_build_end(struct kvw_build *build, struct kvw_config **out) KVW_MUST_CHECK;

/* Gives up. */
void kvw_build_drop(struct kvw_build *build);

#endif
