/*
 * versions.h - stores of other fingerprints under the same path.
 */
#ifndef KVT_VERSIONS_H
#define KVT_VERSIONS_H

#include "core/core.h"

/* Removes the store of another fingerprint, of this handle's rank, under the same path. Sets
 * *removed (NULL is allowed) to 0, since its chunks are not counted. KVT_MISS: no such store;
 * KVT_ELOCKED: it has an owner; KVT_EIO. */
enum kvt_status kvt_version_remove(
	struct kvt *k, const struct kvt_fingerprint *fingerprint, size_t *removed) KVT_MUST_CHECK;

/* Writes PATH/FINGERPRINT/RANK of this handle's path and rank. False: too little room. */
bool kvt_version_folder(
	struct kvt *k, const struct kvt_fingerprint *fingerprint, char *out, size_t room);

#endif
