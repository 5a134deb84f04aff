/*
 * pyhash.h - CPython's hash() for the few types that chunk hashes use.
 *
 * 64-bit builds only. Results are Py_hash_t, as bit patterns: Python prints (int64_t)result. No
 * object hashes to -1, CPython's value for errors; -1 becomes -2.
 *
 * Only strings and bytes depend on PYTHONHASHSEED. A tuple of ints has the same hash in every
 * process of every CPython since 3.8. Pure, no allocation, any thread.
 */
#ifndef KVW_PYHASH_H
#define KVW_PYHASH_H

#include <stddef.h>
#include <stdint.h>

#include "wire/siphash.h"

#include "kvway/err.h"

/* hash(None) since CPython 3.12. Before that it depends on an address, which differs between
 * processes and builds. */
#define KVW_PY_HASH_NONE UINT64_C(0xfca86420)

/* The key with which one process hashes all its strings. */
struct kvw_py_key {
	enum kvw_siphash_variant variant;
	uint64_t k0, k1;
};

/*
 * Sets the key that belongs to PYTHONHASHSEED=text. KVW_EINVAL: CPython would choose a key at
 * random (`random`, empty), or refuse to start (anything but decimal digits up to 4294967295).
 * text: NUL-terminated.
 */
KVW_MUST_CHECK enum kvw_err kvw_py_key_init(
	struct kvw_py_key *key, enum kvw_siphash_variant variant, const char *text);

/* Returns the hash of a bytes object, or of a str of ASCII only, which has the same hash. */
uint64_t kvw_py_hash_text(const struct kvw_py_key *key, const void *data, size_t len);

uint64_t kvw_py_hash_int(int64_t value);

/* Computes a tuple's hash, item by item. Begins as {KVW_PY_TUPLE_START, 0}. */
struct kvw_py_tuple {
	uint64_t acc;
	uint64_t length; /* items so far */
};

#define KVW_PY_TUPLE_START UINT64_C(2870177450012600261)

/* Adds an item by its own hash. */
static inline void kvw_py_tuple_add(struct kvw_py_tuple *tuple, uint64_t item)
{
	uint64_t acc = tuple->acc + item * UINT64_C(14029467366897019727);

	acc = acc << 31 | acc >> 33;
	tuple->acc = acc * UINT64_C(11400714785074694791);
	tuple->length++;
}

uint64_t kvw_py_tuple_hash(const struct kvw_py_tuple *tuple);

#endif
