/*
 * nvme_share.h - a store's part of a disk that stores of other processes use, too.
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

/* Reads the owner of a store's folder from its lock, without taking it. */
void kvt_store_owner(const char *folder, struct kvt_owner *out);

/* The part of a disk that one store may take. */
struct kvt_nvme_share {
	uint32_t stores; /* stores that share the disk */
	uint64_t whole;  /* bytes that all of them may take */
	uint64_t part;   /* bytes of this store, whole MiB */
};

/*
 * The store in `folder` is one of `ranks` of its engine, all below `path`. Stores there that processes own have equal
 * parts; bytes that a store has beyond its part, from a time with fewer stores, are not given to others, nor bytes that
 * the disk does not have free. m: as kvt_machine_read(.., path, ..). folder NULL: for a store that does not exist yet,
 * of another fingerprint than all. `why` gets a sentence.
 */
void kvt_nvme_share(const struct kvt_machine *m, const char *path, const char *folder, uint32_t ranks,
	struct kvt_nvme_share *out, char why[KVT_REASON_BYTES]);

#endif
