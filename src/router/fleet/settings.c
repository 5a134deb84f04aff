/*
 * settings.c - the configuration and the strategy in force, which a reload replaces while requests
 * run.
 */
#include "fleet/settings.h"

#include <stdlib.h>
#include <string.h>

struct kvw_counted_strategy {
	struct kvw_strategy *strategy;
	uint32_t refs; /* number of settings that contain the strategy */
};

enum kvw_err kvw_settings_options(const struct kvw_config *config,
	struct kvw_strategy_options *options, const struct kvw_strategy_ops **ops)
{
	*options = (struct kvw_strategy_options){
		.omega = config->routing_omega,
		.lockstep = config->routing_lockstep,
		.context_ns_per_token = config->routing_context_ns,
		.prefill_tokens_per_second = config->routing_prefill_rate,
		.attention_ns_per_pair = config->routing_attention_ns,
		.tree_bytes = config->tree_bytes,
		.capacity_tokens = (uint64_t)config->capacity_tokens,
		.inflight_bound = config->routing_inflight_bound,
		.inflight_gap = (double)config->routing_inflight_gap,
		.index_bytes = config->kvaware_index_bytes,
		.load_ns_per_token = {0, config->kvaware_host_ns, config->kvaware_disk_ns,
			config->kvaware_remote_ns},
		.eviction_weight = config->kvaware_eviction_weight,
		.fragments = config->kvaware_fragments,
		.fragment_bytes = config->kvaware_fragments_table,
		.fragment_held = (uint64_t)config->kvaware_fragments_held,
		.fragment_min_tokens = (uint32_t)config->kvaware_fragments_min,
		.fragment_ns_per_token = config->kvaware_fragments_ns,
		.fragment_share = config->kvaware_fragments_share,
	};
	*ops = kvw_strategy_find(config->routing_strategy);
	if (*ops == NULL)
		/* an unknown name, which the configuration's check has refused */
		return KVW_EINVAL;
	options->own = kvw_config_own(config, kvw_strategies, *ops);
	return KVW_OK;
}

enum kvw_err kvw_settings_strategy(const struct kvw_config *config,
	const struct kvw_strategy *before, struct kvw_strategy **out)
{
	struct kvw_strategy_options options;
	const struct kvw_strategy_ops *ops;
	enum kvw_err err = kvw_settings_options(config, &options, &ops);

	options.heir_of = before;
	return err == KVW_OK ? ops->create(&options, out) : err;
}

static enum kvw_err pair(const struct kvw_config *config, struct kvw_counted_strategy *counted,
	struct kvw_settings **out)
{
	struct kvw_settings *settings = calloc(1, sizeof(*settings));

	if (settings == NULL)
		return KVW_ENOMEM;
	settings->config = config;
	settings->counted = counted;
	settings->strategy = counted->strategy;
	counted->refs++;
	*out = settings;
	return KVW_OK;
}

static void release_strategy(struct kvw_counted_strategy *counted)
{
	if (--counted->refs > 0)
		return;
	counted->strategy->ops->destroy(counted->strategy);
	free(counted);
}

/* Wraps a strategy with one reference, the caller's. Takes the strategy. */
static enum kvw_err count_strategy(struct kvw_strategy *strategy, struct kvw_counted_strategy **out)
{
	struct kvw_counted_strategy *counted = calloc(1, sizeof(*counted));

	if (counted == NULL) {
		strategy->ops->destroy(strategy);
		return KVW_ENOMEM;
	}
	counted->strategy = strategy;
	counted->refs = 1;
	*out = counted;
	return KVW_OK;
}

enum kvw_err kvw_settings_first(const struct kvw_config *config, struct kvw_strategy *strategy,
	struct kvw_settings **out)
{
	struct kvw_counted_strategy *counted;
	enum kvw_err err = count_strategy(strategy, &counted);

	if (err != KVW_OK)
		return err;
	err = pair(config, counted, out);
	release_strategy(counted);
	return err;
}

enum kvw_err kvw_settings_next(
	struct kvw_settings *before, struct kvw_config *config, struct kvw_settings **out)
{
	struct kvw_counted_strategy *counted = before->counted;
	struct kvw_strategy *strategy;
	enum kvw_err err = KVW_OK;

	if (strcmp(before->config->routing_strategy, config->routing_strategy) == 0) {
		counted->refs++;
	} else {
		err = kvw_settings_strategy(config, before->strategy, &strategy);
		if (err == KVW_OK)
			err = count_strategy(strategy, &counted);
	}
	if (err != KVW_OK)
		return err;
	err = pair(config, counted, out);
	release_strategy(counted);
	if (err == KVW_OK)
		(*out)->owned = config;
	return err;
}

void kvw_settings_apply(struct kvw_settings *settings)
{
	struct kvw_strategy_options options;
	const struct kvw_strategy_ops *ops;

	if (kvw_settings_options(settings->config, &options, &ops) == KVW_OK &&
		ops->reconfigure != NULL)
		ops->reconfigure(settings->strategy, &options);
}

void kvw_settings_destroy(struct kvw_settings *settings)
{
	if (settings == NULL)
		return;
	release_strategy(settings->counted);
	kvw_config_destroy(settings->owned);
	free(settings);
}
