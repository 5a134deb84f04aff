/*
 * kvbench.c - load generator and trace replayer: arguments, one run, its report.
 *
 * Exit status: 0 all requests succeeded, 1 some failed or the run could not be made, 2 wrong usage.
 */
#include <event2/event.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "bench/load/engine.h"
#include "bench/load/options.h"
#include "bench/load/report.h"
#include "bench/load/run.h"
#include "bench/load/workload.h"

/* Open-loop load may need a connection per request under way. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static struct event_base *make_base(void)
{
	struct event_config *config = event_config_new();
	struct event_base *base = NULL;

	if (config != NULL) {
		event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
		base = event_base_new_with_config(config);
		event_config_free(config);
	}
	return base;
}

static enum kvw_err report_run(struct kvb_run *run, const struct kvb_options *options, bool *failed)
{
	struct kvb_report report = {.options = options,
		.model = kvb_run_model(run),
		.tally = kvb_run_tally(run),
		.result = kvb_tally_result(kvb_run_tally(run), kvb_run_duration_ns(run)),
		.stale = kvb_run_stale(run),
		.retried = kvb_run_retried(run)};
	bool to_stdout = options->json != NULL && strcmp(options->json, "-") == 0;

	*failed = report.result.failed > 0;
	kvb_report_print(&report, to_stdout ? stderr : stdout);
	return options->json != NULL ? kvb_report_write(&report) : KVW_OK;
}

static int run_workload(const struct kvb_options *options)
{
	struct event_base *base = make_base();
	struct kvb_run *run = NULL;
	enum kvw_err err = KVW_ENOMEM;
	bool failed = false;

	if (base == NULL) {
		fputs("kvbench: no event loop\n", stderr);
		goto out;
	}
	err = kvb_run_create(base, options, &run);
	if (err != KVW_OK)
		goto out;
	err = options->command == KVB_CHAT ? kvb_chat(run, base, options)
					   : kvb_replay(run, base, options);
	if (err == KVW_OK)
		err = report_run(run, options, &failed);
out:
	kvb_run_destroy(run);
	if (base != NULL)
		event_base_free(base);
	return err != KVW_OK || failed;
}

/* `kvbench engine ...`, or `kvbench WORKLOAD ...`. */
static int run_engine(int argc, char **argv)
{
	const char *workload = strcmp(argv[1], "engine") == 0 ? NULL : argv[1];
	struct kvb_engine_options options;
	struct event_base *base = NULL;
	bool failed = false;
	enum kvw_err err = kvb_engine_options_parse(argc, argv, 2, workload, &options, stderr);
	int status = err != KVW_OK ? 2 : 0;

	if (err == KVW_OK && options.help) {
		kvb_engine_options_help(stdout);
	} else if (err == KVW_OK && options.export_config != NULL) {
		status = kvb_engine_options_export(&options, stderr) != KVW_OK;
	} else if (err == KVW_OK) {
		base = make_base();
		status = base == NULL || kvb_engine(base, &options, &failed) != KVW_OK || failed;
	}
	if (base != NULL)
		event_base_free(base);
	kvb_engine_options_finish(&options);
	return status;
}

int main(int argc, char **argv)
{
	struct kvb_options options;

	signal(SIGPIPE, SIG_IGN);
	raise_descriptor_limit();
	if (argc > 1 && (strcmp(argv[1], "engine") == 0 || kvb_workload_find(argv[1]) != NULL))
		return run_engine(argc, argv);
	if (kvb_options_parse(argc, argv, &options, stderr) != KVW_OK)
		return 2;
	switch (options.command) {
	case KVB_HELP:
		kvb_options_help(stdout);
		return 0;
	case KVB_COMPARE:
		return kvb_report_compare(options.files, options.file_count, stdout, stderr) !=
		       KVW_OK;
	default:
		return run_workload(&options);
	}
}
