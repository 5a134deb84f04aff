/*
 * reader.h - from a YAML text to a struct, by a table of keys.
 *
 * The text becomes a tree in which every value knows its place (config/document.h); the tree is
 * walked once in the order of the file, sections are descended into, keys are looked up in the
 * table. Every mistake is a line "NAME:LINE:COLUMN: KEY: found ..., expected ..."; a key with a
 * mistake leaves its member as it was. What a table cannot say (lists) is taken by `other`.
 */
#ifndef KVT_READER_H
#define KVT_READER_H

#include "settings/document.h"
#include "options/setting.h"

/* One pass over one text. */
struct kvt_reader {
	const struct kvw_schema *table;
	void *values; /* the struct that the table's offsets count from */
	struct kvt_config_texts
		*texts;           /* that values point at; made here, for the caller to take */
	struct kvw_report report; /* started by the caller */
	struct kvw_place *given;  /* [setting_count], of values; line 0: not given */
	size_t *section_lines;    /* [section_count]; 0: not met */

	/* A name that is neither key nor section: *taken, if it knows it. NULL: there are none. */
	enum kvw_err (*other)(struct kvt_reader *reader, const char *path,
		const struct kvw_node *node, bool *taken);
	void *user;
};

enum kvw_err kvt_reader_init(
	struct kvt_reader *reader, const struct kvw_schema *table, void *values) KVW_MUST_CHECK;
/* Frees what was not taken. */
void kvt_reader_finish(struct kvt_reader *reader);

/* KVW_EINVAL: no YAML, reported; KVW_ENOMEM. KVW_OK with mistakes in the report otherwise. */
enum kvw_err kvt_reader_read(
	struct kvt_reader *reader, const char *yaml, size_t len) KVW_MUST_CHECK;

/* One value into its member of `values`, reported under `path`. For lists. */
enum kvw_err kvt_reader_value(struct kvt_reader *reader, const struct kvw_key *setting,
	const char *path, const struct kvw_node *node, void *values) KVW_MUST_CHECK;

void kvt_config_texts_free(struct kvt_config_texts *texts); /* NULL is allowed */

/* What must hold between the keys of settings.def, which stand in the table from `first` on: what
 * does not is reported and gets its value from `before`. */
void kvt_reader_cache_rules(struct kvt_reader *reader, size_t first, struct kvt_config *now,
	const struct kvt_config *before);

#endif
