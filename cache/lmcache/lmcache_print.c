/*
 * lmcache_print.c - prints the translation for kvt_config_read, for the connector and for people.
 */
#include <string.h>

#include "lmcache/lmcache.h"
#include "settings/unknown.h"

/* Prints a text in quotes. All texts here are allowed in YAML, so that the result is JSON, too. */
static void print_text(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text != '\0'; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

static bool is_bare(const struct kvw_type *type)
{
	return type == &kvt_setting_FLAG || type == &kvt_setting_COUNT ||
	       type == &kvt_setting_AUTO_COUNT || type == &kvt_setting_NODE ||
	       type == &kvt_setting_NUMBER;
}

/* Prints the settings in one section; returns false if there are none. */
static bool print_section(
	const struct kvt_lmcache_reading *r, const char *section, bool first, FILE *out)
{
	bool any = false;

	for (size_t i = 0; i < KVT_SETTING_COUNT; i++) {
		const char *name = kvw_name_in(section, kvt_settings[i].path);

		if (name == NULL || r->settings[i] == NULL)
			continue;
		if (!any && section[0] != '\0')
			fprintf(out, "%s\"%s\": {", first ? "" : ", ", section);
		fprintf(out, "%s\"%s\": ", any || (section[0] == '\0' && !first) ? ", " : "", name);
		if (is_bare(kvt_settings[i].type))
			fputs(r->settings[i], out);
		else
			print_text(out, r->settings[i]);
		any = true;
	}
	if (any && section[0] != '\0')
		fputc('}', out);
	return any;
}

void kvt_lmcache_print_settings(const struct kvt_lmcache_reading *r, FILE *out)
{
	bool first = true;

	fputc('{', out);
	for (size_t s = 0; s < KVT_SETTING_SECTION_COUNT; s++)
		first = !print_section(r, kvt_setting_sections[s].path, first, out) && first;
	fputs("}\n", out);
}

void kvt_lmcache_print_own(const struct kvt_lmcache_reading *r, FILE *out)
{
	const char *before = "{";

	for (size_t i = 0; i < KVT_LMCACHE_OWN_COUNT; i++) {
		if (r->own[i] == NULL)
			continue;
		fprintf(out, "%s\"%s\": %s", before, kvt_lmcache_own_names[i], r->own[i]);
		before = ", ";
	}
	fputs(before[0] == '{' ? "{}\n" : "}\n", out);
}

/* --- the explanation -------------------------------------------------------------------------- */

static const char *const fates[] = {
	[KVT_LMCACHE_HONOURED] = "honoured",
	[KVT_LMCACHE_MAPPED] = "mapped",
	[KVT_LMCACHE_IGNORED] = "ignored",
	[KVT_LMCACHE_REFUSED] = "refused",
};

static void explain_key(const struct kvt_lmcache_reading *r, size_t i, FILE *out)
{
	const struct kvt_lmcache_key *key = &kvt_lmcache_keys[i];
	const struct kvt_lmcache_value *value = &r->values[i];
	char shown[KVT_LMCACHE_SHOW];

	fprintf(out, "#   %s%s", key->extra ? "extra_config." : "", key->name);
	if (!value->given) {
		fprintf(out, ", not given: %s", key->def);
	} else {
		fprintf(out, ": %s, ", kvt_lmcache_show(value, i, shown));
		if (value->label[0] != '\0')
			fprintf(out, "%s", value->label);
		else
			fprintf(out, "line %zu", value->place.line);
	}
	if (value->given && !value->valid)
		fputs("; wrong, its default applies", out);
	else if (value->usual && key->fate >= KVT_LMCACHE_IGNORED)
		fputs("; as here", out);
	else if (key->fate >= KVT_LMCACHE_IGNORED)
		fprintf(out, "; %s: %s", fates[key->fate], key->text);
	else
		fprintf(out, "; %s: %s", fates[key->fate], key->becomes);
	fputc('\n', out);
}

void kvt_lmcache_explain(const struct kvt_lmcache_reading *r, FILE *out)
{
	for (size_t i = 0; i < KVT_LMC_COUNT; i++)
		if (i != KVT_LMC_extra_config &&
			(r->values[i].given || i == KVT_LMC_max_local_cpu_size))
			explain_key(r, i, out);
}

/* --- LMCACHE.md ------------------------------------------------------------------------------- */

static void write_key(const struct kvt_lmcache_key *key, FILE *out)
{
	fprintf(out, "| `%s` | ", key->name);
	if (!key->extra)
		fprintf(out, key->def[0] != '\0' ? "`%s` | " : "%s | ", key->def);
	fprintf(out, "%s | ", fates[key->fate]);
	if (key->becomes[0] != '\0')
		fprintf(out, "`%s`%s", key->becomes, key->text[0] != '\0' ? "; " : "");
	fprintf(out, "%s |\n", key->text);
}

static void write_others(bool extra, FILE *out)
{
	for (const struct kvt_lmcache_other *o = kvt_lmcache_others; o->names != NULL; o++) {
		if (o->extra != extra)
			continue;
		fputs("| `", out);
		for (const char *c = o->names; *c != '\0'; c++)
			fputs(*c == ' ' ? "`, `" : (char[]){*c, '\0'}, out);
		fprintf(out, extra ? "` | %s | %s |\n" : "` |  | %s | %s |\n", fates[o->fate],
			o->text);
	}
}

void kvt_lmcache_reference(FILE *out)
{
	fputs("# LMCache's keys\n\n"
	      "What becomes of each key of `lmcache_config.yaml`, of its variable `LMCACHE_...` "
	      "and of\n"
	      "`lmcache....` in vLLM's `kv_connector_extra_config`. Written by `kvtier reference\n"
	      "--lmcache` from `lmcache.def`; do not edit. `kvtier check lmcache_config.yaml` says "
	      "it of\n"
	      "one file.\n\n"
	      "Chunks are stored in kvtier's own format, also in Redis and in tiered storage: what "
	      "LMCache\n"
	      "stored there before is neither read nor removed.\n\n"
	      "**Sizes are those of one worker**, in LMCache and here: each rank of an engine has "
	      "a cache\n"
	      "of its own, so that a node with four ranks and `max_local_cpu_size: 5.0` holds 20 "
	      "GiB.\n"
	      "Several engines on a node add up, too; of one model, each needs a `local_disk` of "
	      "its\n"
	      "own, since a store on disk has one owner: the second runs without it until the first\n"
	      "ends, and says so. `cache: {node: {share: auto}}` in the extra configuration lets them\n"
	      "share one store, in the node's kvtierd.\n"
	      "`kvtier check --ranks 4 FILE` compares that with the machine. A file that does not "
	      "say\n"
	      "`max_local_cpu_size` means 5 GiB; one that does not say `max_local_disk_size` means "
	      "no disk.\n"
	      "Every other key that is not given has kvtier's own default.\n\n"
	      "What a request says to LMCache (`lmcache.tag.*`, `lmcache.skip_save` in its\n"
	      "`kv_transfer_params`) is ignored, with one warning: `cache_salt` keeps tenants "
	      "apart.\n\n"
	      "- honoured: means the same here\n"
	      "- mapped: means nearly the same; the text says what it becomes\n"
	      "- ignored: changes nothing here; reported if set to something else than its "
	      "default\n"
	      "- refused: not supported; reported if set, and the rest applies\n\n"
	      "| Key | LMCache's default | Here | Becomes |\n|---|---|---|---|\n",
		out);
	for (size_t i = 0; i < KVT_LMC_OUTER; i++)
		write_key(&kvt_lmcache_keys[i], out);
	write_others(false, out);
	fputs("\nOf `extra_config`, where other keys are ignored:\n\n| Key | Here | Becomes "
	      "|\n|---|---|---|\n",
		out);
	for (size_t i = KVT_LMC_OUTER; i < KVT_LMC_COUNT; i++)
		write_key(&kvt_lmcache_keys[i], out);
	write_others(true, out);
	fputs("\nOlder names:\n\n| Name | Of |\n|---|---|\n", out);
	for (const struct kvt_lmcache_alias *a = kvt_lmcache_aliases; a->old != NULL; a++)
		fprintf(out, "| `%s` | `%s` |\n", a->old, a->name);
}
