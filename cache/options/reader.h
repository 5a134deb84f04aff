/*
 * reader.h - from a YAML text to a configuration of the library's kind: of the cache, of kvtierd.
 *
 * What is common to them beyond the walk (settings/walk.h): a list keeps the texts, since a
 * default's is static and the struct cannot own it; the report is a text; and running out of memory
 * leaves the caller's struct as it was, since everything is done on a copy.
 */
#ifndef KVT_READER_H
#define KVT_READER_H

#include "options/setting.h"
#include "settings/walk.h"

/* One pass over one text. The caller sets the first block. */
struct kvt_reader {
	struct kvw_walk walk; /* schema, values, list; first: its hooks get it */
	const void *before;   /* what `values` is a copy of */
	/* What must hold between keys: what does not is reported and gets another value. */
	void (*rules)(struct kvt_reader *reader);

	struct kvw_report report;
	struct kvt_config_texts *texts; /* that new values point at */
};

/* Reads into walk.values. Texts are put before those of *texts. KVT_EINVAL: there were mistakes, in
 * *report (kvt_text_free; report may be NULL); what is right applies. KVT_ENOMEM: *values is half
 * done, *texts and *report are untouched. */
enum kvt_status kvt_reader_run(struct kvt_reader *reader, const char *name, const char *yaml,
	size_t len, struct kvt_config_texts **texts, char **report) KVT_MUST_CHECK;

void kvt_config_texts_free(struct kvt_config_texts *texts); /* NULL is allowed */

/* What must hold between the keys of settings.def, which stand in the schema from `first` on: what
 * does not is reported and gets its value from `before`. */
void kvt_reader_cache_rules(struct kvt_reader *reader, size_t first, struct kvt_config *now,
	const struct kvt_config *before);

#endif
