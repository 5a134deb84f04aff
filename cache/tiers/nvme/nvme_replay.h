/*
 * nvme_replay.h - reads the chunks of a log, oldest first.
 *
 * The whole log is read into memory once; a log is bounded by the number of chunks (nvme_log.c).
 */
#ifndef KVT_NVME_REPLAY_H
#define KVT_NVME_REPLAY_H

#include "kvtier/kvtier_io.h"
#include "tiers/nvme/nvme_format.h"

/* A key (or a tenant in its first bytes, the rest zero) and the last generation up to which it is erased. */
struct nvme_kill {
	struct kvt_key key;
	uint64_t generation;
};

/* An ADD. */
struct nvme_replay_add {
	uint64_t generation;
	uint64_t i; /* number of its record */
};

struct nvme_replay {
	struct nvme_log_head head;
	uint8_t store_id[16];
	uint8_t *bytes; /* bytes of the file, owned */
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
	uint64_t last;  /* the last generation in the log */
	uint64_t valid; /* valid records; the rest are damaged or empty places */
	uint64_t damaged;
};

/* Reads the file `log`. KVT_MISS: no such file; KVT_ECORRUPT: another store's, or its beginning is damaged. */
enum kvt_status nvme_replay_open(
	struct nvme_replay *p, struct kvt_io *io, const uint8_t store_id[16]) KVT_MUST_CHECK;
void nvme_replay_close(struct nvme_replay *p); /* also after a failed open */

/* The record of ADD number n. False: it is gone, expired by `wall_ns`, or the same as the next. */
bool nvme_replay_add(
	const struct nvme_replay *p, uint64_t n, int64_t wall_ns, struct nvme_record *out);

/* Returns whether the chunk of this generation is still there. */
bool nvme_replay_has(const struct nvme_replay *p, uint64_t generation, int64_t wall_ns);

/* Executes one operation and waits for it: only where no other is under way. Returns bytes, or -errno. */
int64_t nvme_io_now(struct kvt_io *io, struct kvt_io_op *op);
/* Reads a whole file of up to `most` bytes; the caller frees *bytes. KVT_MISS: no such file. */
enum kvt_status nvme_file_read(struct kvt_io *io, const char *name, uint64_t most, uint8_t **bytes,
	size_t *len) KVT_MUST_CHECK;

#endif
