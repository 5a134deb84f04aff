/*
 * build.h - fills a configuration value by value, whatever the values come from.
 *
 * start; then the walk (settings/walk.h) for what was given, and add_worker and end_worker around each
 * worker; then end, which adds defaults and rules between keys and hands the result over. A wrong
 * value is a mistake in the report, not an error: the functions return KVW_ENOMEM or KVW_OK, so that
 * one run finds every mistake.
 */
#ifndef KVW_CONFIG_BUILD_H
#define KVW_CONFIG_BUILD_H

#include "config/own_keys.h"
#include "settings/walk.h"

/* `intelligentRoutingSpec` as it was met. Nodes are the document's; NULL: not met. */
struct kvw_routing_spec {
	const struct kvw_node *node, *enabled, *strategy;
	bool whole; /* without a mistake */
	bool on;    /* the value of enabled */
};

struct kvw_build {
	struct kvw_walk walk;      /* first: its hook gets it */
	struct kvw_config *config; /* what it fills */
	struct kvw_own_keys own;   /* the schema */
	struct kvw_met met[KVW_ALL_KEYS];
	size_t section_lines[KVW_ALL_SECTIONS];
	const struct kvw_node *workers; /* the value of `workers`; NULL: not met */
	size_t worker_room;
	const struct kvw_node *levels; /* the value of `service_levels`; NULL: not met */
	struct kvw_met level_met[KVW_MAX_SERVICE_LEVELS][KVW_LEVEL_KEY_COUNT];
	struct kvw_place level_places[KVW_MAX_SERVICE_LEVELS];
	const struct kvw_node *rate_limits; /* the value of `rate_limits`; NULL: not met */
	const struct kvw_node *pools; /* the value of `discovery.kubernetes.pools`; NULL: not met */
	struct kvw_met pool_met[KVW_MAX_POOLS][KVW_POOL_KEY_COUNT];
	struct kvw_place pool_places[KVW_MAX_POOLS];
	const struct kvw_node *aliases; /* the value of `models`; NULL: not met */
	struct kvw_place alias_places[KVW_MAX_ALIASES];
	const struct kvw_node *groups; /* the value of `model_groups`; NULL: not met */
	struct kvw_place group_places[KVW_MAX_MODEL_GROUPS];
	size_t group_indexes[KVW_MAX_MODEL_GROUPS]; /* their places in the list */
	struct kvw_routing_spec spec;
};

/* On KVW_OK kvw_build_end or kvw_build_drop must follow. */
enum kvw_err kvw_build_start(struct kvw_build *build, struct kvw_report *report,
	const struct kvw_strategy_ops *const *strategies) KVW_MUST_CHECK;

/* One key by a flag, as the user's text for it. Two flags for one key are a mistake. */
enum kvw_err kvw_build_set_flag(
	struct kvw_build *build, size_t key, const char *flag, const char *text) KVW_MUST_CHECK;

/* The same for a list of this one entry, a name that the type TOKEN takes. */
enum kvw_err kvw_build_set_flag_list(
	struct kvw_build *build, size_t key, const char *flag, const char *item) KVW_MUST_CHECK;

/* Makes room for so many workers, at most KVW_MAX_WORKERS. At most once. */
enum kvw_err kvw_build_reserve_workers(struct kvw_build *build, size_t count) KVW_MUST_CHECK;

/* Begins the next worker; there is room for it. Its index is worker_count - 1. */
void kvw_build_add_worker(struct kvw_build *build);

struct kvw_worker_config *kvw_build_newest_worker(struct kvw_build *build);

/* Takes the newest one back. */
void kvw_build_drop_worker(struct kvw_build *build);

/* Completes it: keys that were not given, its URL new among the others. `place`: its own. */
enum kvw_err kvw_build_end_worker(struct kvw_build *build,
	const struct kvw_met met[KVW_WORKER_KEY_COUNT], struct kvw_place place) KVW_MUST_CHECK;

/* All of these for each entry of a list of workers, as it stands under `workers`. */
enum kvw_err kvw_build_list_workers(
	struct kvw_build *build, const struct kvw_node *list) KVW_MUST_CHECK;

/* KVW_OK sets *out; KVW_EINVAL: the report has mistakes. Releases the build either way. */
enum kvw_err kvw_build_end(struct kvw_build *build, struct kvw_config **out) KVW_MUST_CHECK;

/* Gives up. */
void kvw_build_drop(struct kvw_build *build);

#endif
