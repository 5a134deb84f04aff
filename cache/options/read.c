/*
 * read.c - from YAML to a configuration.
 *
 * Everything is done on a copy of the caller's struct, which is handed back when the text was read to
 * its end, so that running out of memory leaves nothing half done.
 */
#include <stdlib.h>
#include <string.h>

#include "options/reader.h"

/* Hands the copy back, and its texts to those that the caller has. */
static void hand_back(struct kvt_reader *r, struct kvt_config *now, struct kvt_config *config)
{
	struct kvt_config_texts **last = &r->texts;

	while (*last != NULL)
		last = &(*last)->next;
	*last = config->texts;
	now->texts = r->texts;
	r->texts = NULL;
	memcpy(config, now, config->size < sizeof(*now) ? config->size : sizeof(*now));
}

enum kvt_status kvt_config_read(
	struct kvt_config *config, const char *name, const char *yaml, size_t len, char **report)
{
	enum kvt_status status = KVT_OK;
	struct kvt_reader reader;
	struct kvt_config now;
	char *said = NULL;
	size_t said_bytes = 0;
	FILE *lines = NULL;
	enum kvw_err err;

	if (config->abi != KVT_ABI || config->size < sizeof(*config))
		return KVT_EINVAL;
	if (kvt_reader_init(&reader, &kvt_cache_settings, &now) != KVW_OK)
		return KVT_ENOMEM;
	lines = open_memstream(&said, &said_bytes);
	if (lines == NULL) {
		status = KVT_ENOMEM;
		goto out;
	}
	now = *config;
	kvw_report_start(&reader.report, name, lines);
	err = kvt_reader_read(&reader, yaml, len);
	if (err == KVW_OK)
		kvt_reader_cache_rules(&reader, 0, &now, config);
	kvw_report_finish(&reader.report);
	if (fclose(lines) != 0)
		err = KVW_ENOMEM;
	if (err == KVW_ENOMEM) {
		status = KVT_ENOMEM;
		goto out;
	}
	hand_back(&reader, &now, config);
	status = reader.report.mistakes == 0 ? KVT_OK : KVT_EINVAL;
	if (report != NULL) {
		*report = reader.report.mistakes == 0 ? NULL : said;
		said = *report == NULL ? said : NULL;
	}
out:
	kvt_reader_finish(&reader);
	free(said);
	return status;
}
