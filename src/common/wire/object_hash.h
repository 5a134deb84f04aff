/*
 * object_hash.h - computes digests of Python objects: serialises them, and hashes the result.
 *
 * vLLM and LMCache hash tuples of ints, strings and None by writing them as pickle (protocol 5) or
 * canonical CBOR and hashing the text with SHA-256 or XXH3-128. Both formats are implemented as far
 * as that needs; no object is built in memory, a caller writes a value item by item.
 *
 * Sources: CPython's Lib/pickletools.py and Modules/_pickle.c, RFC 8949 section 4.2.
 */
#ifndef KVW_OBJECT_HASH_H
#define KVW_OBJECT_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "wire/hasher.h"

#include "kvway/err.h"
#include "kvway/slice.h"

/* Hashes, by the names that vLLM's --prefix-caching-hash-algo uses. */
enum kvw_object_hash {
	KVW_OBJECT_SHA256 = 0,  /* "sha256": pickle */
	KVW_OBJECT_SHA256_CBOR, /* "sha256_cbor" */
	KVW_OBJECT_XXHASH,      /* "xxhash": pickle */
	KVW_OBJECT_XXHASH_CBOR, /* "xxhash_cbor" */
};

/* A way to serialise a value. Its items are written in order; those of a tuple between the tuple's
 * begin and end. */
struct kvw_format {
	void (*none)(struct kvw_hasher *out);
	void (*number)(struct kvw_hasher *out, uint64_t value);
	void (*text)(struct kvw_hasher *out, const char *utf8, uint32_t len);
	void (*tuple_begin)(struct kvw_hasher *out, size_t count);
	void (*tuple_end)(struct kvw_hasher *out, size_t count);
	/* Called before and after the whole value; may be NULL. */
	void (*value_begin)(struct kvw_hasher *out, size_t body);
	void (*value_end)(struct kvw_hasher *out);
	size_t body_max; /* most bytes of a value; 0: no limit */
};

/*
 * Pickle, protocol 5, as _pickle.c writes objects that are all different (the same string object a
 * second time would be written as a reference to the first). For values of up to 64 KiB, which is
 * one frame.
 */
extern const struct kvw_format kvw_pickle;

/* Canonical CBOR: every length is in its shortest form. */
extern const struct kvw_format kvw_cbor;

/* Writes one value. A second call must write the same bytes. */
typedef void kvw_value_fn(
	struct kvw_hasher *out, const struct kvw_format *format, const void *value);

const struct kvw_format *kvw_object_format(enum kvw_object_hash hash);
enum kvw_digest_kind kvw_object_digest_kind(enum kvw_object_hash hash);

/*
 * Computes the digest of one value into digest[0..kvw_hasher_size()). KVW_ELIMIT: the value is
 * longer than the format's body_max.
 */
KVW_MUST_CHECK enum kvw_err kvw_object_digest(struct kvw_hasher *hasher,
	const struct kvw_format *format, kvw_value_fn *write, const void *value,
	uint8_t digest[KVW_DIGEST_MAX]);

/* The digest of a string. */
KVW_MUST_CHECK enum kvw_err kvw_object_digest_text(struct kvw_hasher *hasher,
	const struct kvw_format *format, const char *text, uint8_t digest[KVW_DIGEST_MAX]);

/* A tuple of token ids. */
void kvw_object_write_tokens(struct kvw_hasher *out, const struct kvw_format *format,
	const uint32_t *tokens, size_t count);

#endif
