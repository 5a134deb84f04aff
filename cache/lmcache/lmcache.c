/*
 * lmcache.c - creates and destroys a reading, and has the public function.
 */
#include "lmcache/lmcache.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/read_file.h"

#define FILE_VARIABLE "LMCACHE_CONFIG_FILE"

/* --- one reading ------------------------------------------------------------------------------ */

static bool open_lines(struct kvt_lmcache_lines *lines)
{
	lines->file = open_memstream(&lines->text, &lines->bytes);
	kvw_report_start(&lines->report, "LMCache", lines->file);
	return lines->file != NULL;
}

/* Completes the text. */
static bool close_lines(struct kvt_lmcache_lines *lines)
{
	FILE *file = lines->file;

	lines->file = NULL;
	if (file == NULL)
		return false;
	kvw_report_finish(&lines->report);
	return fclose(file) == 0;
}

enum kvw_err kvt_lmcache_begin(
	struct kvt_lmcache_reading **out, const struct kvt_lmcache_source *source)
{
	struct kvt_lmcache_reading *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return KVW_ENOMEM;
	r->source = source;
	if (!open_lines(&r->mistakes) || !open_lines(&r->notes)) {
		kvt_lmcache_finish_reading(r);
		return KVW_ENOMEM;
	}
	*out = r;
	return KVW_OK;
}

/* Overwrites and frees a text that may contain a password. */
static void forget(char *text)
{
	if (text != NULL)
		OPENSSL_cleanse(text, strlen(text));
	free(text);
}

void kvt_lmcache_finish_reading(struct kvt_lmcache_reading *r)
{
	if (r == NULL)
		return;
	close_lines(&r->mistakes);
	close_lines(&r->notes);
	free(r->mistakes.text);
	free(r->notes.text);
	for (size_t i = 0; i < KVT_LMC_COUNT; i++)
		forget(r->values[i].copy);
	for (size_t i = 0; i < KVT_SETTING_COUNT; i++)
		forget(r->settings[i]);
	for (size_t i = 0; i < KVT_LMCACHE_OWN_COUNT; i++)
		free(r->own[i]);
	kvw_document_finish(&r->file);
	kvw_document_finish(&r->extra);
	free(r);
}

void kvt_lmcache_translate(
	struct kvt_lmcache_reading *r, const char *name, const char *yaml, size_t len)
{
	if (name != NULL)
		r->mistakes.report.name = r->notes.report.name = name;
	kvt_lmcache_collect(r, name, yaml, len);
	if (r->err == KVW_OK)
		kvt_lmcache_evaluate(r);
	if (r->err == KVW_OK)
		kvt_lmcache_settle(r);
	if (!close_lines(&r->mistakes) || !close_lines(&r->notes))
		r->err = KVW_ENOMEM;
}

/* --- JSON ------------------------------------------------------------------------------------- */

/* The output of `print`. */
static char *printed(const struct kvt_lmcache_reading *r,
	void (*print)(const struct kvt_lmcache_reading *r, FILE *out))
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	if (out == NULL)
		return NULL;
	print(r, out);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

static enum kvt_status hand_out(struct kvt_lmcache_reading *r, struct kvt_lmcache *out)
{
	char *settings = printed(r, kvt_lmcache_print_settings);
	char *own = printed(r, kvt_lmcache_print_own);

	if (r->err != KVW_OK || settings == NULL || own == NULL) {
		forget(settings);
		free(own);
		return KVT_ENOMEM;
	}
	out->settings = settings;
	out->connector = own;
	out->mistakes = r->mistakes.text;
	out->notes = r->notes.text;
	r->mistakes.text = r->notes.text = NULL;
	return r->mistakes.report.mistakes == 0 ? KVT_OK : KVT_EINVAL;
}

/* Reads the file's text; returns NULL without a file, which is reported if the caller named the
 * file. */
static char *read_named(struct kvt_lmcache_reading *r, const char *path, size_t *len)
{
	char why[KVT_READ_FILE_WHY], quoted[KVW_REPORT_QUOTE];
	struct kvw_place place = {.flag = FILE_VARIABLE};
	char *text;

	if (path == NULL || *path == '\0')
		return NULL;
	text = kvt_read_file(
		strcmp(path, "-") == 0 ? "./-" : path, KVT_SETTINGS_MAX_BYTES, len, why);
	if (text == NULL)
		kvw_report_mistake(&r->mistakes.report, place, NULL, "%s %s; running without it",
			kvw_report_quote(quoted, path, strlen(path)), why);
	return text;
}

enum kvw_err kvt_lmcache_load(
	struct kvt_lmcache_reading **out, const struct kvt_lmcache_source *source)
{
	const char *path = source->path;
	struct kvt_lmcache_reading *r;
	char *text = NULL;
	size_t len = 0;

	if (path == NULL)
		path = kvt_lmcache_variable(
			source->variables, FILE_VARIABLE, sizeof(FILE_VARIABLE) - 1);
	if ((path == NULL || *path == '\0') && !kvt_lmcache_has_variables(source->variables))
		return KVW_ENOTFOUND;
	if (kvt_lmcache_begin(&r, source) != KVW_OK)
		return KVW_ENOMEM;
	text = read_named(r, path, &len);
	kvt_lmcache_translate(r, path, text, len);
	forget(text);
	*out = r;
	return KVW_OK;
}

enum kvt_status kvt_lmcache_read(const struct kvt_lmcache_source *source, struct kvt_lmcache *out)
{
	struct kvt_lmcache_reading *r = NULL;
	enum kvt_status status;
	enum kvw_err err;

	if (source->size < sizeof(*source) || out->size < sizeof(*out))
		return KVT_EINVAL;
	err = kvt_lmcache_load(&r, source);
	if (err != KVW_OK)
		return err == KVW_ENOTFOUND ? KVT_MISS : KVT_ENOMEM;
	status = hand_out(r, out);
	kvt_lmcache_finish_reading(r);
	return status;
}

void kvt_lmcache_finish(struct kvt_lmcache *out)
{
	forget(out->settings);
	free(out->connector);
	free(out->mistakes);
	free(out->notes);
	out->settings = out->connector = out->mistakes = out->notes = NULL;
}
