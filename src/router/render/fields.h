/*
 * fields.h - the table of fields, made from fields.def.
 */
#ifndef KVW_RENDER_FIELDS_H
#define KVW_RENDER_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Index of each field. */
enum kvw_field_id {
#define KVW_FIELD(id, kinds, path, type, need, limit, def, text) KVW_F_##id,
#define KVW_UNUSED(id, kinds, path, text)                        KVW_F_##id,
#include "render/fields.def"
	KVW_FIELD_COUNT
};

/* Kinds of manifests that may have a field, as bits. */
enum kvw_manifest_kind {
	KVW_KIND_ENDPOINT = 1,
	KVW_KIND_JUMPSTART = 2,
	KVW_KIND_BOTH = KVW_KIND_ENDPOINT | KVW_KIND_JUMPSTART
};

/* Types of fields, which fields.def explains. */
enum kvw_field_type {
	KVW_FIELD_MAP,
	KVW_FIELD_ITEMS,
	KVW_FIELD_TEXT,
	KVW_FIELD_TEXTS,
	KVW_FIELD_BOOL,
	KVW_FIELD_INT,
	KVW_FIELD_WORD,
	KVW_FIELD_ANYCASE,
	KVW_FIELD_PAIRS,
	KVW_FIELD_QUANTITIES,
	KVW_FIELD_RAW_MAP,
	KVW_FIELD_RAW_LIST,
	KVW_FIELD_UNUSED,
};

/* A row of fields.def. Its texts are never NULL. */
struct kvw_field {
	enum kvw_manifest_kind kinds;
	const char *path;
	enum kvw_field_type type;
	bool needed;
	const char *limit, *def, *text;
};

extern const struct kvw_field kvw_fields[KVW_FIELD_COUNT];

/* Returns the last part of a path that is directly below `section` ("": the top); NULL if it is
 * elsewhere. */
const char *kvw_field_name(const char *section, const char *path);

/* FIELDS.md. */
void kvw_fields_page(FILE *out);

#endif
