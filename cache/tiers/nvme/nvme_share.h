/*
 * nvme_share.h - computes how much of a disk a store may use when stores of other processes use it,
 * too.
 */
#ifndef KVT_NVME_SHARE_H
#define KVT_NVME_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/sizing.h"

/* A store's owner. */
struct kvt_owner {
	bool alive;
	int64_t pid; /* 0: unknown */
};

/* Finds out from its lock, without taking it, which process owns the store in a folder. */
void kvt_store_owner(const char *folder, struct kvt_owner *out);

/* How much of a disk one store may take. */
struct kvt_nvme_share {
	uint32_t stores; /* stores that share the disk */
	uint64_t whole;  /* bytes that all of these stores together may take */
	uint64_t part;   /* bytes that this store may take, in whole MiB */
};

/*
 * Computes the part of the store in `folder`, one of `ranks` of its engine, all below `path`.
 * Stores there that processes own have equal parts. Two kinds of bytes are not divided: bytes that
 * a store has beyond its part, from a time with fewer stores, and bytes that the disk does not have
 * free. m is the machine as kvt_machine_read read it for `path`. folder NULL: computes the part of
 * a store that does not exist yet, with a fingerprint of its own. `why` gets a sentence that
 * explains the result.
 */
void kvt_nvme_share(const struct kvt_machine *m, const char *path, const char *folder, uint32_t ranks,
	struct kvt_nvme_share *out, char why[KVT_REASON_BYTES]);

#endif
