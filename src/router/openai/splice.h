/*
 * splice.h - edits a body so that a worker reads another `model` or `cache_salt`.
 *
 * A splice is a few edits at places in the body; all other bytes stay the client's own. Every value
 * of a repeated member is replaced, since parsers differ in which one counts; a missing member is
 * put first. Pure functions.
 */
#ifndef KVW_SPLICE_H
#define KVW_SPLICE_H

#include <sys/uio.h>

#include "openai/scan.h"

#define KVW_SPLICE_MODEL_MOST 256 /* longest name of a model, in bytes */
#define KVW_SPLICE_SALT_MOST  128

struct kvw_splice_edit {
	uint64_t at; /* offset in the body before which `text` is inserted */
	uint64_t removed;
	struct kvw_slice text; /* the replacement: a slice of the splice's own memory, or static */
};

/* Must not be copied, since edits point into it. */
struct kvw_splice {
	uint32_t count;
	int64_t growth;                                     /* by how many bytes the body grows */
	struct kvw_splice_edit edits[KVW_SCAN_PLACES + 1]; /* ascending, apart */
	char text[6 * KVW_SPLICE_MODEL_MOST + KVW_SPLICE_SALT_MOST + 64];
};

/*
 * Plans the edits, after a successful kvw_scan_finish. An empty salt or model leaves the body's
 * unchanged. Watched members that control the engine get their neutral value. The salt must have no
 * character that JSON escapes. KVW_EINVAL: this body cannot be changed so: it is a form, which has
 * no salt, a member occurs too often, or a text is too long.
 */
enum kvw_err kvw_splice_plan(const struct kvw_scan *scan, struct kvw_slice salt,
	struct kvw_slice model, struct kvw_splice *out) KVW_MUST_CHECK;

#define KVW_PIECES (2 * (KVW_SCAN_PLACES + 1) + 1)

/* The changed body as pieces of the body and of the edits' texts, which must outlive it. */
struct kvw_pieces {
	int count;
	size_t len; /* of all of them */
	struct iovec items[KVW_PIECES];
};

void kvw_splice_pieces(
	const struct kvw_splice *splice, struct kvw_slice body, struct kvw_pieces *out);
/* Lists what follows the first `sent` bytes into iov, which has room for KVW_PIECES. Returns the
 * number of pieces. */
int kvw_pieces_from(const struct kvw_pieces *pieces, size_t sent, struct iovec *iov);

/* Writes the changed body into out, which must have room for body.len + splice->growth. Returns its
 * length. */
size_t kvw_splice_write(const struct kvw_splice *splice, struct kvw_slice body, char *out);

#endif
