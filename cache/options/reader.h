/*
 * reader.h - reads a YAML text into a configuration of the cache or of kvtierd.
 *
 * Both have in common, beyond the walk (settings/walk.h): a list owns the texts, since a default's
 * text is static and the struct cannot own it; the report is a text; and a lack of memory leaves
 * the caller's struct unchanged, since the reader works on a copy.
 */
#ifndef KVT_READER_H
#define KVT_READER_H

#include "options/setting.h"
#include "settings/walk.h"

/* One pass over one text. The caller sets the first block. */
struct kvt_reader {
	/* schema, values, list; its hooks get the reader, so this member comes first */
	struct kvw_walk walk;
	const void *before;   /* the struct that `values` is a copy of */
	/* Checks rules between keys: reports a violation and gives the key another value. */
	void (*rules)(struct kvt_reader *reader);

	struct kvw_report report;
	struct kvt_config_texts *texts; /* texts that new values point to */
};

/* Reads into walk.values. Puts its texts before those of *texts. KVT_EINVAL: the text had mistakes,
 * in *report (kvt_text_free; report may be NULL); correct keys apply. KVT_ENOMEM: *values is
 * incomplete, *texts and *report are untouched. */
enum kvt_status kvt_reader_run(struct kvt_reader *reader, const char *name, const char *yaml,
	size_t len, struct kvt_config_texts **texts, char **report) KVT_MUST_CHECK;

void kvt_config_texts_free(struct kvt_config_texts *texts); /* NULL is allowed */

/* Checks the rules between the keys of settings.def, which stand in the schema from `first` on:
 * reports a violation and takes the value from `before`. */
void kvt_reader_cache_rules(struct kvt_reader *reader, size_t first, struct kvt_config *now,
	const struct kvt_config *before);

#endif
