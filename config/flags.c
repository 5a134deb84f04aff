/*
 * flags.c - makes a configuration from flags and defaults, without a file.
 *
 * A flag sets a key, and its text goes through the same parser and rules as a file, so that both
 * mean the same; only the place in a message differs.
 */
#include "config/stack_flags.h"
#include "kvway/route.h"

static enum kvw_err add_worker(struct kvw_build *build, const char *url)
{
	const struct kvw_place place = {.flag = "--worker"};
	struct kvw_met met[KVW_WORKER_KEY_COUNT] = {[KVW_WORKER_KEY_url] = {place, true, false}};
	struct kvw_given given = {.place = place, .text = kvw_slice_of(url)};
	enum kvw_err err;

	kvw_build_add_worker(build);
	err = kvw_walk_value(&build->walk, &kvw_worker_keys[KVW_WORKER_KEY_url], "url", &given,
		kvw_build_newest_worker(build), &met[KVW_WORKER_KEY_url].valid);
	return err == KVW_OK ? kvw_build_end_worker(build, met, place) : err;
}

static enum kvw_err add_workers(struct kvw_build *build, const struct kvw_config_flags *flags)
{
	const struct kvw_place place = {.flag = "--worker"};
	enum kvw_err err;

	if (flags->worker_count == 0 || flags->worker_count > KVW_MAX_WORKERS) {
		kvw_report_mistake(build->walk.report, place, NULL,
			"found %zu of them, expected --worker http://HOST:PORT for each worker, 1 "
			"to %d times",
			flags->worker_count, KVW_MAX_WORKERS);
		return KVW_OK;
	}
	err = kvw_build_reserve_workers(build, flags->worker_count);
	for (size_t i = 0; i < flags->worker_count && err == KVW_OK; i++)
		err = add_worker(build, flags->workers[i]);
	return err;
}

enum kvw_err kvw_config_from_flags(const struct kvw_config_flags *flags,
	const struct kvw_strategy_ops *const *strategies, FILE *errors, struct kvw_config **out)
{
	const struct {
		enum kvw_key_index key;
		const char *flag, *text;
	} given[] = {
		{KVW_KEY_listen, "--listen", flags->listen},
		{KVW_KEY_routing_strategy, "--strategy", flags->strategy},
		{KVW_KEY_admin_listen, "--admin", flags->admin},
		{KVW_KEY_log_access, "--access-log", flags->access_log},
		{KVW_KEY_log_level, "--log-level",
			flags->stack_count > 0 ? kvw_stack_log_level(flags->log_level)
					       : flags->log_level},
	};
	struct kvw_report report;
	struct kvw_build build;
	enum kvw_err err;

	kvw_report_start(&report, "flags", errors);
	err = kvw_build_start(&build, &report, strategies);
	if (err != KVW_OK)
		return err;
	for (size_t i = 0; i < sizeof(given) / sizeof(given[0]) && err == KVW_OK; i++)
		if (given[i].text != NULL)
			err = kvw_build_set_flag(
				&build, given[i].key, given[i].flag, given[i].text);
	if (err == KVW_OK && flags->stack_count > 0)
		err = kvw_stack_apply(&build, flags);
	if (err == KVW_OK && (flags->worker_count > 0 || flags->stack_count == 0))
		err = add_workers(&build, flags);
	if (err == KVW_OK)
		err = kvw_build_end(&build, out);
	else
		kvw_build_drop(&build);
	kvw_report_finish(&report);
	return err;
}
