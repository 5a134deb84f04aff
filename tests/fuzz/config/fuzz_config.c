/*
 * fuzz_config.c - any bytes as a configuration file, and as an address and a URL.
 *
 * Beyond "no crash" it holds the loader to its word: a refusal says why, in short printable lines;
 * what is accepted is complete and within its types, and loads as the same when written as a file.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "settings/address.h"
#include "config/diff.h"
#include "config/path_pattern.h"
#include "config/write.h"
#include "kvway/route.h"
#include "tests/fuzz/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const starts[] = {"f.yaml:", NULL};

static void check_levels(const struct kvw_config *config)
{
	require(config->admission_classes.count <= 8);
	require(config->service_level_count <= KVW_MAX_SERVICE_LEVELS);
	for (size_t i = 0; i < config->service_level_count; i++) {
		const struct kvw_service_level *level = &config->service_levels[i];
		struct kvw_service_level_ms promise;

		require(level->model_len == strlen(level->model));
		require((level->class[0] == '\0') == (level->class_index == KVW_EVERY_CLASS));
		require(level->model_len > 0 || level->class[0] != '\0');
		require(level->class[0] == '\0' ||
			level->class_index < config->admission_classes.count);
		kvw_config_promise(config, level->model, level->model_len,
			level->class[0] != '\0' ? level->class_index : 0, &promise);
		require(promise.ttft >= 0 && promise.ttft_per_1k_tokens >= 0 && promise.tpot >= 0);
	}
}

static void check_rates(const struct kvw_config *config)
{
	require(config->rate_limit_count <= KVW_MAX_RATE_LIMITS);
	for (size_t i = 0; i < config->rate_limit_count; i++) {
		const struct kvw_rate_limit *limit = &config->rate_limits[i];

		require((limit->tenant[0] == '\0') != (limit->model[0] == '\0'));
		require(limit->requests_per_minute >= 0 && limit->tokens_per_minute >= 0 &&
			limit->tokens_per_day >= 0 && limit->concurrent >= 0);
		require(limit->requests_per_minute + limit->tokens_per_minute + limit->tokens_per_day +
				limit->concurrent > 0);
		require(limit->burst_ms == 0 || limit->burst_ms >= 1000);
		require(kvw_config_alias(config, kvw_slice_of(limit->model)) == NULL);
		require((limit->tenant[0] != '\0'
				? kvw_config_tenant_rate(config, kvw_slice_of(limit->tenant))
				: kvw_config_model_rate(config, kvw_slice_of(limit->model))) == limit);
	}
}

static void check_aliases(const struct kvw_config *config)
{
	require(config->model_alias_count <= KVW_MAX_ALIASES);
	for (size_t i = 0; i < config->model_alias_count; i++) {
		const struct kvw_model_alias *alias = &config->model_aliases[i];

		require(alias->name_len > 0 && alias->name_len == strlen(alias->name) &&
			alias->name_len <= KVW_ALIAS_MOST);
		require(alias->target[0] != '\0' && strlen(alias->target) <= KVW_ALIAS_MOST);
		require(kvw_config_alias(config, kvw_slice_of(alias->name)) == alias);
		require(kvw_config_alias(config, kvw_slice_of(alias->target)) == NULL);
	}
}

static void check_groups(const struct kvw_config *config)
{
	require(config->model_group_count <= KVW_MAX_MODEL_GROUPS);
	for (size_t i = 0; i < config->model_group_count; i++) {
		const struct kvw_model_group *group = &config->model_groups[i];
		struct kvw_model_groups all = kvw_config_groups(config, kvw_slice_of(group->model));

		require(group >= all.items && group < all.items + all.count);
		require(group->weight >= 0 && *group->weight_now == group->weight && group->serves[0] != '\0');
		require(kvw_config_alias(config, kvw_slice_of(group->model)) == NULL);
		require(group->hash != 0 && strlen(group->group) <= KVW_GROUP_NAME_MOST);
	}
}

static void check_config(const struct kvw_config *config)
{
	struct kvw_address address;
	struct kvw_url url;

	require(config->worker_count >= 1 || config->discovery_file[0] != '\0' ||
		config->discovery_dns.count > 0 || config->pool_count > 0);
	require(config->pool_count <= KVW_MAX_POOLS);
	require(config->worker_count <= KVW_MAX_WORKERS);
	for (size_t i = 0; i < config->worker_count; i++) {
		require(kvw_url_split(kvw_slice_of(config->workers[i].url), &url) ==
			KVW_ADDRESS_OK);
		require(config->workers[i].api_key != NULL);
	}
	require(kvw_address_split(kvw_slice_of(config->listen), &address) == KVW_ADDRESS_OK);
	require(kvw_address_split(kvw_slice_of(config->admin_listen), &address) == KVW_ADDRESS_OK);
	require(config->limits_low_water < config->limits_high_water);
	require(config->loops >= 0 && config->loops <= 256);
	require(config->routing_omega >= 0 && config->routing_omega <= 10);
	require(config->session_body_fields.count <= 8);
	require(config->auth_keys_file != NULL);
	if (config->auth_jwt_jwks_file[0] != '\0' || config->auth_jwt_jwks_url[0] != '\0')
		require(config->auth_jwt_issuer[0] != '\0' && config->auth_jwt_audience.count > 0 &&
			config->auth_jwt_name_claim[0] != '\0');
	require(config->proxies_protocol == KVW_PROXY_PROTOCOL_OFF || config->proxies_trusted.count > 0);
	require(config->admin_keys_file != NULL);
	for (size_t i = 0; i < config->admin_open.count; i++)
		require(kvw_path_pattern_good(config->admin_open.items[i]));
	for (size_t i = 0; i < config->expose_paths.count; i++)
		require(kvw_path_pattern_good(config->expose_paths.items[i]));
	require(config->health_path[0] == '/');
	check_levels(config);
	check_rates(config);
	check_aliases(config);
	check_groups(config);
	require(config->routing_strategy != NULL && config->log_access != NULL);
}

/* Secrets are not written: a worker may have lost its key, and limits where they are shared. */
static void check_written(const struct kvw_config *config)
{
	struct kvw_config_diff *diff = NULL;
	struct kvw_config *again = NULL;
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (out == NULL)
		return;
	require(kvw_config_write(out, config, kvw_strategies) == KVW_OK);
	fclose(out);
	require(kvw_config_parse("again.yaml", text, size, kvw_strategies, stderr, &again) == KVW_OK);
	require(kvw_config_diff(config, again, kvw_strategies, &diff) == KVW_OK);
	for (size_t i = 0; i < diff->key_count; i++)
		require(strcmp(diff->keys[i].path, "rate_sharing.redis") == 0 ||
			strcmp(diff->keys[i].path, "replicas.redis") == 0);
	for (size_t i = 0; i < diff->worker_count; i++)
		require(diff->workers[i].key_count == 1 &&
			strcmp(diff->workers[i].keys[0].path, "api_key") == 0);
	kvw_config_diff_destroy(diff);
	kvw_config_destroy(again);
	free(text);
}

static void fuzz_addresses(struct kvw_slice text)
{
	struct kvw_address address;
	struct kvw_url url;

	if (kvw_address_split(text, &address) == KVW_ADDRESS_OK)
		require(address.host.len > 0 && address.host.len <= KVW_ADDRESS_MAX_HOST);
	if (kvw_url_split(text, &url) == KVW_ADDRESS_OK) {
		require(url.address.port != 0 && url.authority.len >= url.address.host.len);
		require(url.prefix.len == 0 || url.prefix.data[0] == '/');
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct kvw_config *config = NULL;
	char *said = NULL;
	size_t said_size = 0;
	FILE *errors = open_memstream(&said, &said_size);
	enum kvw_err err;

	if (errors == NULL)
		return 0;
	err = kvw_config_parse("f.yaml", text, size, kvw_strategies, errors, &config);
	fclose(errors);
	require(err == KVW_OK || err == KVW_EINVAL);
	require((err == KVW_OK) == (config != NULL));
	require((err == KVW_OK) == (said_size == 0));
	check_lines(said, starts);
	if (config != NULL) {
		check_config(config);
		check_written(config);
	}
	kvw_config_destroy(config);
	free(said);
	fuzz_addresses((struct kvw_slice){text, size});
	return 0;
}
