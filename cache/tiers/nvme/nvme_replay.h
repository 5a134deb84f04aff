/*
 * nvme_replay.h - what a log says: which chunks are there, oldest first.
 *
 * The whole log is read into memory once; a log is bounded by the number of chunks (nvme_log.c).
 */
#ifndef KVT_NVME_REPLAY_H
#define KVT_NVME_REPLAY_H

#include "kvtier/kvtier_io.h"
#include "tiers/nvme/nvme_format.h"

/* A key (or a tenant in its first bytes, the rest zero) and the last generation it is erased up to. */
struct nvme_kill {
	struct kvt_key key;
	uint64_t generation;
};

/* An ADD. */
struct nvme_replay_add {
	uint64_t generation;
	uint64_t i; /* of its record */
};

struct nvme_replay {
	struct nvme_log_head head;
	uint8_t store_id[16];
	uint8_t *bytes; /* of the file, owned */
	const uint8_t *records;
	uint64_t count;
	struct nvme_kill *keys, *tenants;
	uint64_t key_count, tenant_count;
	uint64_t *removed; /* generations */
	uint64_t removed_count;
	uint64_t reset; /* generations up to this one are gone, if was_reset */
	bool was_reset;
	struct nvme_replay_add *adds; /* by generation */
	uint64_t add_count;
	uint64_t last;  /* generation that the log knows of */
	uint64_t valid; /* records; the rest are damaged or empty places */
	uint64_t damaged;
};

/* Reads the file `log`. KVT_MISS: there is none; KVT_ECORRUPT: it is not this store's, or its
 * beginning is damaged. */
enum kvt_status nvme_replay_open(
	struct nvme_replay *p, struct kvt_io *io, const uint8_t store_id[16]) KVT_MUST_CHECK;
void nvme_replay_close(struct nvme_replay *p); /* also after a failed open */

/* The record of ADD number n. false: it is gone, expired by `wall_ns`, or the same as the next. */
bool nvme_replay_add(
	const struct nvme_replay *p, uint64_t n, int64_t wall_ns, struct nvme_record *out);

/* Is the chunk of this generation still there? */
bool nvme_replay_has(const struct nvme_replay *p, uint64_t generation, int64_t wall_ns);

/* One operation, waited for: only where nothing else is under way. Bytes, or -errno. */
int64_t nvme_io_now(struct kvt_io *io, struct kvt_io_op *op);
/* A whole file of up to `most` bytes; *bytes is the caller's to free. KVT_MISS: no such file. */
enum kvt_status nvme_file_read(struct kvt_io *io, const char *name, uint64_t most, uint8_t **bytes,
	size_t *len) KVT_MUST_CHECK;

#endif
