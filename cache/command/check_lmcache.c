/*
 * check_lmcache.c - explains LMCache's configuration, as the connector translates it.
 */
#include "command/check_lmcache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "lmcache/lmcache.h"

/* Fills *config with the settings that the connector would use, read by the library's own
 * function. */
static bool apply(const struct kvt_lmcache_reading *r, struct kvt_config *config, size_t *mistakes)
{
	enum kvt_status status = KVT_ENOMEM;
	char *settings = NULL, *report = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&settings, &len);

	if (out == NULL)
		return false;
	kvt_lmcache_print_settings(r, out);
	if (fclose(out) == 0)
		status = kvt_config_read(config, "settings", settings, len, &report);
	if (report != NULL) {
		fputs(report, stderr);
		(*mistakes)++;
	}
	if (settings != NULL)
		OPENSSL_cleanse(settings, len); /* the text may contain a password */
	free(settings);
	kvt_text_free(report);
	return status == KVT_OK || status == KVT_EINVAL;
}

static void print_keys(const struct kvt_lmcache_reading *r)
{
	fputs("# LMCache's configuration", stdout);
	if (r->name != NULL)
		printf(" of %s", r->name);
	puts(", and what becomes of it:");
	kvt_lmcache_explain(r, stdout);
	fputs("# connector: ", stdout);
	kvt_lmcache_print_own(r, stdout);
}

bool kvt_check_lmcache(const struct kvt_lmcache_source *source, const char *name, const char *yaml,
	size_t len, struct kvt_config *config, size_t *mistakes)
{
	struct kvt_lmcache_reading *r = NULL;
	bool good = false;
	enum kvw_err err;

	if (name != NULL) {
		err = kvt_lmcache_begin(&r, source);
		if (err == KVW_OK)
			kvt_lmcache_translate(r, name, yaml, len);
	} else {
		err = kvt_lmcache_load(&r, source);
	}
	if (err == KVW_OK && r->err == KVW_OK) {
		fputs(r->mistakes.text, stderr);
		fputs(r->notes.text, stderr);
		print_keys(r);
		*mistakes += r->mistakes.report.mistakes;
		good = apply(r, config, mistakes);
	}
	if (!good)
		fprintf(stderr, "kvtier check: out of memory\n");
	kvt_lmcache_finish_reading(r);
	return good;
}
