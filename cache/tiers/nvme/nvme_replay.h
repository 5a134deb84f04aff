/*
 * nvme_replay.h - reads the chunks of a log, oldest first.
 *
 * The whole log is read into memory once; a log is bounded by the number of chunks (nvme_log.c).
 */
#ifndef KVT_NVME_REPLAY_H
#define KVT_NVME_REPLAY_H

#include "kvtier/kvtier_io.h"
#include "tiers/nvme/nvme_format.h"

/* An erased key (or tenant, in the key's first bytes, the rest zero), and the last generation that
 * the erase covers. */
struct nvme_kill {
	struct kvt_key key;
	uint64_t generation;
};

/* An ADD. */
struct nvme_replay_add {
	uint64_t generation;
	uint64_t i; /* number of the record in the log */
};

struct nvme_replay {
	struct nvme_log_head head;
	uint8_t store_id[16];
	uint8_t *bytes; /* contents of the log file, owned */
	const uint8_t *records;
	uint64_t count;
	struct nvme_kill *keys, *tenants;
	uint64_t key_count, tenant_count;
	uint64_t *removed; /* generations */
	uint64_t removed_count;
	uint64_t reset; /* if was_reset: chunks up to this generation are gone */
	bool was_reset;
	struct nvme_replay_add *adds; /* sorted by generation */
	uint64_t add_count;
	uint64_t last;  /* the last generation that occurs in the log */
	uint64_t valid; /* number of valid records; the others are damaged or unused */
	uint64_t damaged;
};

/* Reads the file `log`. KVT_MISS: there is no such file; KVT_ECORRUPT: the file belongs to another
 * store, or its beginning is damaged. */
enum kvt_status nvme_replay_open(
	struct nvme_replay *p, struct kvt_io *io, const uint8_t store_id[16]) KVT_MUST_CHECK;
void nvme_replay_close(struct nvme_replay *p); /* must also be called after a failed open */

/* Copies ADD record number n. False: its chunk is gone, has expired by `wall_ns`, or the next
 * record is for the same chunk. */
bool nvme_replay_add(
	const struct nvme_replay *p, uint64_t n, int64_t wall_ns, struct nvme_record *out);

/* Returns whether the chunk of this generation is still there. */
bool nvme_replay_has(const struct nvme_replay *p, uint64_t generation, int64_t wall_ns);

/* Executes one operation and waits for it; allowed only while no other is under way. Returns the
 * number of bytes, or -errno. */
int64_t nvme_io_now(struct kvt_io *io, struct kvt_io_op *op);
/* Reads a whole file of up to `most` bytes; the caller frees *bytes. KVT_MISS: no such file. */
enum kvt_status nvme_file_read(struct kvt_io *io, const char *name, uint64_t most, uint8_t **bytes,
	size_t *len) KVT_MUST_CHECK;

#endif
