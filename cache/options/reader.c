/*
 * reader.c - reads a YAML text into a configuration of the cache or of kvtierd.
 */
#include "options/reader.h"

#include <stdlib.h>

static enum kvw_err keep_text(struct kvw_walk *walk, char *text)
{
	struct kvt_reader *r = (struct kvt_reader *)walk;
	struct kvt_config_texts *kept = malloc(sizeof(*kept));

	if (kept == NULL) {
		free(text);
		return KVW_ENOMEM;
	}
	kept->text = text;
	kept->next = r->texts;
	r->texts = kept;
	return KVW_OK;
}

static enum kvw_err read_text(struct kvt_reader *r, const char *yaml, size_t len)
{
	struct kvw_document document = {0};
	struct kvw_place start = {.line = 1, .column = 1};
	enum kvw_err err;

	if (len > KVT_SETTINGS_MAX_BYTES) {
		kvw_report_mistake(&r->report, start, NULL,
			"found more than %u bytes, expected a configuration",
			KVT_SETTINGS_MAX_BYTES);
		return KVW_EINVAL;
	}
	err = kvw_document_parse(len > 0 ? yaml : "", len, &r->report, &document);
	if (err != KVW_OK)
		return err;
	err = kvw_walk_root(&r->walk, document.root);
	kvw_document_finish(&document);
	if (err == KVW_OK)
		r->rules(r);
	return err;
}

enum kvt_status kvt_reader_run(struct kvt_reader *r, const char *name, const char *yaml, size_t len,
	struct kvt_config_texts **texts, char **report)
{
	struct kvt_config_texts **last = &r->texts;
	enum kvt_status status = KVT_ENOMEM;
	char *said = NULL;
	size_t said_bytes = 0;
	FILE *lines = NULL;
	enum kvw_err err;

	r->walk.report = &r->report;
	r->walk.keep = keep_text;
	r->walk.met = calloc(r->walk.schema->key_count, sizeof(*r->walk.met));
	r->walk.section_lines =
		calloc(r->walk.schema->section_count, sizeof(*r->walk.section_lines));
	if (r->walk.met != NULL && r->walk.section_lines != NULL)
		lines = open_memstream(&said, &said_bytes);
	if (lines == NULL)
		goto out;
	kvw_report_start(&r->report, name, lines);
	err = read_text(r, yaml, len);
	kvw_report_finish(&r->report);
	if (fclose(lines) != 0 || err == KVW_ENOMEM)
		goto out;
	while (*last != NULL)
		last = &(*last)->next;
	*last = *texts;
	*texts = r->texts;
	r->texts = NULL;
	status = r->report.mistakes == 0 ? KVT_OK : KVT_EINVAL;
	if (report != NULL) {
		*report = status == KVT_OK ? NULL : said;
		said = *report == NULL ? said : NULL;
	}
out:
	kvt_config_texts_free(r->texts);
	free(r->walk.met);
	free(r->walk.section_lines);
	free(said);
	return status;
}

void kvt_config_texts_free(struct kvt_config_texts *texts)
{
	while (texts != NULL) {
		struct kvt_config_texts *next = texts->next;

		free(texts->text);
		free(texts);
		texts = next;
	}
}
