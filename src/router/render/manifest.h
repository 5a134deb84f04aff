/*
 * manifest.h - an InferenceEndpointConfig or a JumpStartModel, read and checked field by field.
 *
 * Each mistake is a line of `mistakes`, and reading goes on, so that one run finds all of them. A
 * known field without effect becomes a line of `notes`. plan.h checks rules between fields.
 */
#ifndef KVW_RENDER_MANIFEST_H
#define KVW_RENDER_MANIFEST_H

#include <stdint.h>

#include "kvway/err.h"
#include "render/fields.h"
#include "settings/document.h"

/* Owns its document; nodes and the texts of getters live as long as it. */
struct kvw_manifest {
	enum kvw_manifest_kind kind; /* 0: unknown */
	struct kvw_document document;
	/* NULL: not given; of ITEMS' fields always. */
	const struct kvw_node *nodes[KVW_FIELD_COUNT];
};

/* Reads `len` bytes. On KVW_OK *out has to be finished, and is complete if no mistake was reported;
 * KVW_EINVAL: no YAML, reported; KVW_ENOMEM. */
enum kvw_err kvw_manifest_parse(const char *text, size_t len, struct kvw_report *mistakes,
	struct kvw_report *notes, struct kvw_manifest *out) KVW_MUST_CHECK;
void kvw_manifest_finish(struct kvw_manifest *manifest);

/* Value of a field that was read without a mistake, or its default. */
const char *kvw_manifest_text(const struct kvw_manifest *manifest, enum kvw_field_id field);
bool kvw_manifest_bool(const struct kvw_manifest *manifest, enum kvw_field_id field);
int64_t kvw_manifest_int(const struct kvw_manifest *manifest, enum kvw_field_id field);

/* The value of a name in a mapping; NULL: there is none. */
const struct kvw_node *kvw_manifest_member(const struct kvw_node *map, const char *name);

/* Whether the whole text fits an extended regular expression. */
bool kvw_manifest_fits(const char *text, const char *expression);

#endif
