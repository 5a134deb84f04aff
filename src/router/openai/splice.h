/*
 * splice.h - what has to change in a body so that a worker reads another `model`, or another
 * `cache_salt`.
 *
 * A few edits by place, all other bytes stay the client's own. Of a member that stands more than
 * once every value is replaced, since parsers differ in which one counts; one that is missing is
 * put first. Pure functions.
 */
#ifndef KVW_SPLICE_H
#define KVW_SPLICE_H

#include "openai/scan.h"

#define KVW_SPLICE_MODEL_MOST 256 /* bytes of a model's name */
#define KVW_SPLICE_SALT_MOST  128

struct kvw_splice_edit {
	uint64_t at; /* bytes of the body before it */
	uint64_t removed;
	struct kvw_slice text; /* instead; in the splice's own text, or static */
};

/* Not to be copied: edits point into it. */
struct kvw_splice {
	uint32_t count;
	int64_t growth;                                     /* of the body, in bytes */
	struct kvw_splice_edit edits[KVW_SCAN_PLACES + 1]; /* ascending, apart */
	char text[6 * KVW_SPLICE_MODEL_MOST + KVW_SPLICE_SALT_MOST + 64];
};

/*
 * After a kvw_scan_finish that said KVW_OK. Either may be empty: it stays. Watched members that
 * direct the engine get the value that says nothing. The salt has no character that JSON
 * escapes. KVW_EINVAL: this body cannot be changed so: a form has no salt, one member stands too
 * often, or a text is too long.
 */
enum kvw_err kvw_splice_plan(const struct kvw_scan *scan, struct kvw_slice salt,
	struct kvw_slice model, struct kvw_splice *out) KVW_MUST_CHECK;

/* The changed body into out, which has room for body.len + splice->growth. Returns that. */
size_t kvw_splice_write(const struct kvw_splice *splice, struct kvw_slice body, char *out);

#endif
