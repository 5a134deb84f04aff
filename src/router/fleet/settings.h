/*
 * settings.h - the configuration and the strategy in force, which a reload replaces while requests
 * run.
 *
 * A pair of both is immutable. Each event loop counts one reference on the pair by which its
 * requests began (proxy/loop.h), so that a request keeps, until its end, its first settings and the
 * strategy that picked its worker. A pair that was replaced is destroyed by the control thread once
 * every loop has turned twice since (fleet.h) and no loop refers to it. A strategy may be in
 * several successive pairs, and is destroyed with the last one.
 *
 * Threads: the control thread makes, publishes (kvw_fleet_set_settings) and destroys; loops count.
 */
#ifndef KVW_SETTINGS_H
#define KVW_SETTINGS_H

#include <stdatomic.h>

#include "config/config.h"
#include "kvway/route.h"

struct kvw_counted_strategy;

struct kvw_settings {
	const struct kvw_config *config;
	struct kvw_strategy *strategy;
	/* settings.c's: */
	/* the configuration, to be freed; NULL: its owner is the caller */
	struct kvw_config *owned;
	struct kvw_counted_strategy *counted;
	_Atomic uint32_t refs; /* references of loops, and of calls that wake a model */
	bool passed;           /* all loops have turned since it was replaced */
	struct kvw_settings *next;
};

/* Makes the options with which a strategy is created or reconfigured; they borrow from the
 * configuration. KVW_EINVAL: no such strategy. */
enum kvw_err kvw_settings_options(const struct kvw_config *config,
	struct kvw_strategy_options *options, const struct kvw_strategy_ops **ops) KVW_MUST_CHECK;
/* Creates the configured strategy, with its settings; the caller owns it. before: the strategy that
 * it replaces, and whose knowledge it shares where possible; NULL: none. */
enum kvw_err kvw_settings_strategy(const struct kvw_config *config,
	const struct kvw_strategy *before, struct kvw_strategy **out) KVW_MUST_CHECK;

/* Makes the first settings, a configuration with its strategy. config is borrowed; strategy is
 * taken over, also on failure. */
enum kvw_err kvw_settings_first(const struct kvw_config *config, struct kvw_strategy *strategy,
	struct kvw_settings **out) KVW_MUST_CHECK;
/* Makes the pair after `before`. config: taken on success. If the strategy's name has changed,
 * another strategy is created; otherwise that of `before` is kept, and takes over the new options
 * in kvw_settings_apply. */
enum kvw_err kvw_settings_next(struct kvw_settings *before, struct kvw_config *config,
	struct kvw_settings **out) KVW_MUST_CHECK;
/* Makes the strategy read the new options. */
void kvw_settings_apply(struct kvw_settings *settings);

void kvw_settings_destroy(struct kvw_settings *settings); /* NULL is allowed */

/* Adds a reference, for a loop or the control thread. */
static inline void kvw_settings_ref(struct kvw_settings *settings)
{
	atomic_fetch_add_explicit(&settings->refs, 1, memory_order_relaxed);
}

static inline void kvw_settings_unref(struct kvw_settings *settings)
{
	atomic_fetch_sub_explicit(&settings->refs, 1, memory_order_release);
}

#endif
