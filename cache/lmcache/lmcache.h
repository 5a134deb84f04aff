/*
 * lmcache.h - LMCache's configuration as a table, and the steps from its text to kvtier's settings.
 *
 * 	text, variables --collect--> values --settle--> settings, the connector's keys
 * 	                                 \-- mistakes and notes, each by file, line and key
 *
 * A value is first only looked up (lmcache_collect.c: a variable precedes the file, a later line an earlier one), then
 * read by its key's type (lmcache_value.c), then all values are settled together (lmcache_settle.c), since one key may
 * decide the meaning of another. Only kvt_lmcache_read opens a file; of the machine only the working directory counts,
 * for relative paths. One thread uses a reading.
 */
#ifndef KVT_LMCACHE_H
#define KVT_LMCACHE_H

#include <stdbool.h>
#include <stdio.h>

#include "settings/document.h"
#include "kvtier/kvtier.h"
#include "settings/report.h"
#include "options/setting.h"

#define KVT_LMCACHE_LABEL 112 /* room for a variable's name, with a key of extra_config after it */
#define KVT_LMCACHE_SHOW  160 /* room for a value in the form in which people see it */

enum kvt_lmcache_type {
	KVT_LMCACHE_FLAG,
	KVT_LMCACHE_COUNT,
	KVT_LMCACHE_NUMBER,
	KVT_LMCACHE_TEXT,
	KVT_LMCACHE_COUNTS, /* lists: of whole numbers, of numbers, of texts */
	KVT_LMCACHE_NUMBERS,
	KVT_LMCACHE_TEXTS,
	KVT_LMCACHE_MAP,
};

enum kvt_lmcache_fate {
	KVT_LMCACHE_HONOURED,
	KVT_LMCACHE_MAPPED,
	KVT_LMCACHE_IGNORED,
	KVT_LMCACHE_REFUSED,
};

/* A line of lmcache.def. Static. */
struct kvt_lmcache_key {
	const char *name; /* for keys in extra_config: the name without that prefix */
	enum kvt_lmcache_type type;
	const char *def, *min, *max, *unit; /* "": none */
	enum kvt_lmcache_fate fate;
	const char *becomes;
	const char *text;
	bool extra; /* of extra_config */
};

/* Keys of features that kvtier does not have. Static. */
struct kvt_lmcache_other {
	bool extra; /* of extra_config */
	enum kvt_lmcache_fate fate;
	/* names separated by spaces; a * at the end of a name stands for any further characters */
	const char *names;
	const char *text;
};

/* An older name. Static. */
struct kvt_lmcache_alias {
	const char *old, *name;
};

enum kvt_lmcache_index {
#define KVT_LMCACHE_KEY(name, type, def, min, max, unit, fate, becomes, text) KVT_LMC_##name,
#include "lmcache/lmcache.def"
	KVT_LMC_OUTER, /* keys at the top level of the file */
	KVT_LMC_BEFORE_EXTRA = KVT_LMC_OUTER - 1,
#define KVT_LMCACHE_EXTRA(name, type, min, max, unit, fate, becomes, text) KVT_LMC_EXTRA_##name,
#include "lmcache/lmcache.def"
	KVT_LMC_COUNT,
};

extern const struct kvt_lmcache_key kvt_lmcache_keys[KVT_LMC_COUNT];
extern const struct kvt_lmcache_other kvt_lmcache_others[];  /* ended by NULL names */
extern const struct kvt_lmcache_alias kvt_lmcache_aliases[]; /* ended by a NULL name */

/* The value given for one key. */
struct kvt_lmcache_value {
	/* a value from YAML; borrowed from the reading's documents, or NULL */
	const struct kvw_node *node;
	const char *text;            /* the text of a scalar, with a NUL after it; borrowed */
	size_t len;
	char *copy;                    /* owned: the text of a variable; NULL: none */
	struct kvw_place place;        /* flag: label */
	char label[KVT_LMCACHE_LABEL]; /* a variable's name; "": the file */
	bool quoted;
	bool given; /* the file or a variable has this key */
	/* the value could be read by its type: one of the members below, or text or node, has it */
	bool valid;
	bool usual; /* the value is valid, and equal to LMCache's default */
	bool flag;
	int64_t count;
	double number;
};

/* Keys of the connector that are set from LMCache's keys. */
enum kvt_lmcache_own {
	KVT_LMCACHE_OWN_chunk_size,
	KVT_LMCACHE_OWN_min_retrieve_tokens,
	KVT_LMCACHE_OWN_save_decode_cache,
	KVT_LMCACHE_OWN_save_unfull_chunk,
	KVT_LMCACHE_OWN_lookup_timeout_ms,
	KVT_LMCACHE_OWN_load_timeout_ms,
	KVT_LMCACHE_OWN_read_only,
	KVT_LMCACHE_OWN_COUNT,
};
extern const char *const kvt_lmcache_own_names[KVT_LMCACHE_OWN_COUNT];

/* Lines written while reading, counted. */
struct kvt_lmcache_lines {
	struct kvw_report report;
	FILE *file;
	char *text; /* owned; complete only when the file is closed */
	size_t bytes;
};

/* One configuration while it is being read. */
struct kvt_lmcache_reading {
	const struct kvt_lmcache_source *source; /* borrowed */
	const char *name; /* the file's name, for messages; NULL: there is no file */
	struct kvt_lmcache_value values[KVT_LMC_COUNT];
	/* the document of the file, and the one in the variable for extra_config */
	struct kvw_document file, extra;
	struct kvt_lmcache_lines mistakes, notes;
	size_t given;                      /* number of keys and unknown names that were given */
	char *settings[KVT_SETTING_COUNT]; /* owned texts; NULL: not set */
	char *own[KVT_LMCACHE_OWN_COUNT];  /* owned texts, in the form of JSON */
	enum kvw_err err;                  /* with KVW_ENOMEM the other members have no meaning */
};

/* Begins a reading. KVW_ENOMEM: there is nothing to release. `source` is borrowed until finish; its
 * path is not opened here. */
enum kvw_err kvt_lmcache_begin(
	struct kvt_lmcache_reading **out, const struct kvt_lmcache_source *source) KVW_MUST_CHECK;
/* Collects the values in a file's text (NULL: no file), and then those in the variables. The result
 * is in r->err. */
void kvt_lmcache_collect(
	struct kvt_lmcache_reading *r, const char *name, const char *yaml, size_t len);
void kvt_lmcache_finish_reading(struct kvt_lmcache_reading *r); /* NULL is allowed */

/* Reads each value by the type of its key, and reports values that cannot be read. */
void kvt_lmcache_evaluate(struct kvt_lmcache_reading *r);
/* These translate the values: all of them; those of remote_url; those of the controller's keys. */
void kvt_lmcache_settle(struct kvt_lmcache_reading *r);
void kvt_lmcache_settle_blend(struct kvt_lmcache_reading *r);
void kvt_lmcache_settle_remote(struct kvt_lmcache_reading *r);
void kvt_lmcache_settle_controller(struct kvt_lmcache_reading *r);
/* Collects, evaluates and settles. */
void kvt_lmcache_translate(
	struct kvt_lmcache_reading *r, const char *name, const char *yaml, size_t len);

/* Does all steps, with the file that the source or its variables name. KVW_ENOTFOUND: there is
 * neither a file nor a variable; KVW_ENOMEM. Otherwise the result is in (*out)->err. */
enum kvw_err kvt_lmcache_load(
	struct kvt_lmcache_reading **out, const struct kvt_lmcache_source *source) KVW_MUST_CHECK;

/* These print the settings, as YAML for kvt_config_read that is also JSON, and the connector's
 * keys. */
void kvt_lmcache_print_settings(const struct kvt_lmcache_reading *r, FILE *out);
void kvt_lmcache_print_own(const struct kvt_lmcache_reading *r, FILE *out);
/* Prints each key that was given, with its place and its result. */
void kvt_lmcache_explain(const struct kvt_lmcache_reading *r, FILE *out);
/* LMCACHE.md. */
void kvt_lmcache_reference(FILE *out);

/* Reports a mistake, or a note, about a key, with its place. */
void kvt_lmcache_mistake(struct kvt_lmcache_reading *r, size_t key, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void kvt_lmcache_note(struct kvt_lmcache_reading *r, size_t key, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Sets a setting, in the form that settings.def has. If the value is refused, that is a mistake of
 * the key `from`. */
bool kvt_lmcache_put(
	struct kvt_lmcache_reading *r, size_t from, const char *path, const char *text);
/* Sets one of the connector's own keys, as JSON. */
void kvt_lmcache_put_own(struct kvt_lmcache_reading *r, const char *name, const char *json);
/* Returns whether YAML allows all characters of the text: UTF-8 without those that YAML
 * excludes. */
bool kvt_lmcache_is_text(const char *text);

/* Returns the index of a key by its name or an older one; KVT_LMC_COUNT: there is none. */
size_t kvt_lmcache_find(const char *name, bool extra);

/* Writes a value for people: short, on one line, without logins and passwords. */
const char *kvt_lmcache_show(
	const struct kvt_lmcache_value *value, size_t key, char out[KVT_LMCACHE_SHOW]);

/* Returns whether the text of a configuration is LMCache's rather than kvtier's. Its keys decide,
 * or, if they are in both, the name of the file. */
bool kvt_lmcache_is_likely(const char *name, const char *yaml, size_t len);
/* Returns whether LMCACHE_CONFIG_FILE, or a variable for a key, even if misspelt, is among
 * these. */
bool kvt_lmcache_has_variables(const char *const *variables);
/* Returns the value of a variable; NULL: it is missing. If it is there more than once, the last one
 * counts. */
const char *kvt_lmcache_variable(const char *const *variables, const char *name, size_t len);

#endif
