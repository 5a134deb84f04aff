/*
 * reference.c - the configuration's reference page and example, from settings.def.
 *
 * `kvtier reference` prints both; REFERENCE.md and examples/full.yaml are its output, and a test
 * compares them, so that neither can fall behind the table.
 */
#include <string.h>

#include "options/setting.h"
#include "options/settings.h"
#include "settings/reference.h"

void kvt_settings_reference(FILE *out)
{
	fputs("# Configuration of kvtier\n\n"
	      "Written by `kvtier reference` from `settings.def`; do not edit.\n\n"
	      "A YAML file of mappings; every key may be left out. The same names, with `_` for\n"
	      "dots, are the members of `struct kvt_config` (`include/kvtier/kvtier.h`), where\n"
	      "durations are in nanoseconds, `auto` is 0 and some names end in their unit.\n"
	      "A key with a mistake is reported with line and column and keeps its default; the\n"
	      "rest applies. `kvtier check FILE` shows all mistakes and what would be used "
	      "here.\n\n"
	      "Sizes are `64MiB` (KiB, MiB, GiB, TiB, or plain bytes), durations `250ms`, `2s`,\n"
	      "`10m`, `1h`.\n",
		out);
	kvw_reference_sections(out, &kvt_cache_settings);
}

void kvt_settings_example(FILE *out)
{
	fputs("# Every key of kvtier with its default. Written by `kvtier reference --example`.\n",
		out);
	kvw_reference_example(out, &kvt_cache_settings);
}

/* Replaces the part before the last @ of a URL by ***. The buffer has three bytes of room. */
static void hide_login(char *url)
{
	char *from = strstr(url, "://"), *to = strrchr(url, '@');

	if (from == NULL || to == NULL || to < from)
		return;
	memmove(from + 6, to, strlen(to) + 1);
	memcpy(from + 3, "***", 3);
}

void kvt_setting_show(
	const struct kvw_key *setting, const void *values, char out[KVT_SETTING_PRINT])
{
	kvw_key_print(setting, values, out);
	if (setting->type == &kvt_setting_L2_URL)
		hide_login(out);
}

void kvt_settings_print(const struct kvt_config *config, FILE *out)
{
	char value[KVT_SETTING_PRINT];

	for (size_t i = 0; i < KVT_SETTING_COUNT; i++) {
		kvt_setting_show(&kvt_settings[i], config, value);
		fprintf(out, "%s: %s\n", kvt_settings[i].path, value);
	}
}
