/*
 * reader.h - reads a YAML text into a configuration of the cache or of kvtierd.
 *
 * Besides the walk over the keys (settings/walk.h) both need this: a list owns the texts, since a
 * default's text is static and the struct cannot own it; the report is a text; and if memory runs
 * out the caller's struct stays unchanged, since the reader works on a copy.
 */
#ifndef KVT_READER_H
#define KVT_READER_H

#include "options/setting.h"
#include "settings/walk.h"

/* The reading of one text. The caller sets the first block of members. */
struct kvt_reader {
	/* schema, values, list; first member, since its hooks get the reader */
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

/* Checks the rules between the keys of settings.def, which begin in the schema at `first`: reports
 * a violation, and takes the value from `before` instead. */
void kvt_reader_cache_rules(struct kvt_reader *reader, size_t first, struct kvt_config *now,
	const struct kvt_config *before);

#endif
