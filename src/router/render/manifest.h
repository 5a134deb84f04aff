/*
 * manifest.h - reads an InferenceEndpointConfig or a JumpStartModel, and checks it field by field.
 *
 * Each mistake is a line in `mistakes`, and reading goes on, so that one run finds all of them. A
 * known field without effect becomes a line of `notes`. plan.h checks rules between fields.
 */
#ifndef KVW_RENDER_MANIFEST_H
#define KVW_RENDER_MANIFEST_H

#include <stdint.h>

#include "kvway/err.h"
#include "render/fields.h"
#include "settings/document.h"

/* A manifest that was read. Owns its document; nodes, and texts that functions return, are valid as
 * long as it. */
struct kvw_manifest {
	enum kvw_manifest_kind kind; /* 0: unknown */
	struct kvw_document document;
	/* The value of each field. NULL: not given; also for fields in ITEMS. */
	const struct kvw_node *nodes[KVW_FIELD_COUNT];
};

/* Reads `len` bytes. KVW_OK: *out must be finished; it is complete if no mistake was reported.
 * KVW_EINVAL: the text is no YAML, which was reported. KVW_ENOMEM. */
enum kvw_err kvw_manifest_parse(const char *text, size_t len, struct kvw_report *mistakes,
	struct kvw_report *notes, struct kvw_manifest *out) KVW_MUST_CHECK;
void kvw_manifest_finish(struct kvw_manifest *manifest);

/* Returns the value of a field that was read without a mistake, or its default. */
const char *kvw_manifest_text(const struct kvw_manifest *manifest, enum kvw_field_id field);
bool kvw_manifest_bool(const struct kvw_manifest *manifest, enum kvw_field_id field);
int64_t kvw_manifest_int(const struct kvw_manifest *manifest, enum kvw_field_id field);

/* Returns the value of a name in a mapping; NULL: there is none. */
const struct kvw_node *kvw_manifest_member(const struct kvw_node *map, const char *name);

/* Returns whether the whole text matches an extended regular expression. */
bool kvw_manifest_fits(const char *text, const char *expression);

#endif
