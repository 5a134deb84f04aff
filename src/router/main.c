/*
 * main.c - the program kvway: read the command line, run the router or ask a running one.
 */
#include <sys/prctl.h>

#include "app.h"
#include "auth/command.h"
#include "bundle/command.h"
#include "base/standard_out.h"
#include "cli.h"
#include "explain/command.h"
#include "groups/command.h"
#include "render/command.h"
#include "state/command.h"
#include "story/command.h"
#include "takeover/successor.h"
#include "usage/command/command.h"
#include "top/command.h"
#include "workers/command.h"

/* Ends a command. Output that could not be written completely must not pass for complete. */
static int leave(int status)
{
	return !kvw_standard_out_whole("kvway") && status == KVW_CLI_OK ? KVW_CLI_FAILED : status;
}

int main(int argc, char **argv)
{
	struct kvw_successor successor;
	struct kvw_cli cli;
	int status;

	(void)prctl(PR_SET_DUMPABLE, 0); /* a core dump would hold keys and prompts */
	kvw_successor_init(&successor, argv);
	switch (kvw_cli_parse(argc, argv, stdout, stderr, &cli)) {
	case KVW_CLI_EXIT:
		return leave((int)cli.status);
	case KVW_CLI_EXPLAIN:
		return leave(kvw_explain_command(argc - 1, argv + 1, stdout, stderr));
	case KVW_CLI_BUNDLE:
		return leave(kvw_bundle_command(argc - 1, argv + 1, stdout, stderr));
	case KVW_CLI_GROUPS:
		return leave(kvw_groups_command(argc - 1, argv + 1, stdout, stderr));
	case KVW_CLI_WORKERS:
		return leave(kvw_workers_command(argc - 1, argv + 1, stdout, stderr));
	case KVW_CLI_TRACE:
		return leave(kvw_story_command(argc - 1, argv + 1, stdout, stderr));
	case KVW_CLI_USED:
		return leave(kvw_usage_command(argc - 1, argv + 1, stdout, stderr));
	case KVW_CLI_TOP:
		return leave(kvw_top_command(argc - 1, argv + 1, stdout, stderr));
	case KVW_CLI_KEY:
		return leave(kvw_key_command(argc - 1, argv + 1, stdin, stdout, stderr));
	case KVW_CLI_STATE:
		return leave(kvw_state_command(argc - 1, argv + 1, stdout, stderr));
	case KVW_CLI_MANIFEST:
		return leave(kvw_render_command(argc - 1, argv + 1, stdin, stdout, stderr));
	case KVW_CLI_RUN:
		break;
	}
	kvw_app_block_signals();
	status = kvw_app_run(cli.config, cli.config_path, cli.takeover_from, &successor);
	kvw_config_destroy(cli.config);
	return status;
}
