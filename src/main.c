/*
 * main.c - the program kvway: read the command line, run the router.
 */
#include <stdlib.h>

#include "app.h"
#include "cli.h"

int main(int argc, char **argv)
{
	struct kvw_cli cli;
	int status;

	if (kvw_cli_parse(argc, argv, stdout, stderr, &cli) == KVW_CLI_EXIT)
		return (int)cli.status;
	kvw_app_block_signals();
	status = kvw_app_run(cli.config);
	kvw_config_destroy(cli.config);
	return status;
}
