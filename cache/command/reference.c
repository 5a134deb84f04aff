/*
 * reference.c - `kvtier reference`: prints the configuration's reference page and example, and the
 * page of LMCache's keys.
 */
#include "command/command.h"
#include "lmcache/lmcache.h"
#include "options/settings.h"

int kvt_command_reference(int argc, char **argv)
{
	bool example = false, lmcache = false;
	const struct kvt_option options[] = {
		{"--example", NULL, &example}, {"--lmcache", NULL, &lmcache}, {0}};

	if (kvt_options_take(argc, argv, options, NULL, 0) < 0)
		return KVT_EXIT_USAGE;
	if (example && lmcache)
		return kvt_command_wrong("reference", "expected one of `--example`, `--lmcache`");
	if (lmcache)
		kvt_lmcache_reference(stdout);
	else if (example)
		kvt_settings_example(stdout);
	else
		kvt_settings_reference(stdout);
	return KVT_EXIT_OK;
}
