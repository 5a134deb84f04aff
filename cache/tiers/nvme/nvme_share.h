/*
 * nvme_share.h - a store's part of a disk that stores of other processes use as well.
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

/* Looks at the lock of a store's folder without taking it. */
void kvt_store_owner(const char *folder, struct kvt_owner *out);

/* What one store may take of a disk. */
struct kvt_nvme_share {
	uint32_t stores; /* that share it */
	uint64_t whole;  /* bytes that all of them may take */
	uint64_t part;   /* bytes of this one, whole MiB */
};

/*
 * The store in `folder` is one of `ranks` of its engine, all under `path`. Stores there that processes own have
 * equal parts; what one has beyond its part, from when there were fewer, is not given to others, nor is what
 * the disk has not free. m: as kvt_machine_read(.., path, ..). folder NULL: of a store that is not there yet,
 * of another fingerprint than all. `why` gets a sentence.
 */
void kvt_nvme_share(const struct kvt_machine *m, const char *path, const char *folder, uint32_t ranks,
	struct kvt_nvme_share *out, char why[KVT_REASON_BYTES]);

#endif
