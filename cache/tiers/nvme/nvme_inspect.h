/*
 * nvme_inspect.h - looking at a store on disk without owning it.
 *
 * Opens nothing for writing and takes no lock, so it works alongside a live owner. What it sees is
 * the log as it was when it was read: chunks may come and go meanwhile, and one that has gone is
 * not reported as damaged. One thread at a time per handle.
 */
#ifndef KVT_NVME_INSPECT_H
#define KVT_NVME_INSPECT_H

#include "kvtier/kvtier_io.h"
#include "chunk/note.h"

struct kvt_inspect;

/* A store as a whole. */
struct kvt_inspect_store {
	uint32_t major, minor;
	struct kvt_fingerprint fingerprint;
	uint32_t rank;
	uint8_t store_id[16];
	uint64_t file_bytes;             /* of each data file */
	uint64_t data_files, data_bytes; /* that are there */
	uint64_t log_bytes, log_records, log_damaged;
	uint64_t chunks, payload_bytes, disk_bytes; /* that are there by the log */
	uint64_t tenants;                           /* different ones */
	uint64_t piece_bytes; /* of payloads that have checksums of pieces */
};

/* One chunk. */
struct kvt_inspect_chunk {
	struct kvt_key key, parent;
	bool has_parent;
	struct kvt_tenant tenant;
	uint64_t generation; /* counts up with what was stored */
	uint64_t bytes, disk_bytes;
	uint32_t tokens;
	uint32_t extents;
	int64_t expires_wall_ns; /* INT64_MAX: never */
	uint64_t ttl_ns;
	bool has_pieces; /* by the log: each piece of its payload has a checksum */
};

/* What of a chunk is not what was stored. */
struct kvt_inspect_damage {
	bool header;         /* nothing else is known then */
	uint32_t pieces;     /* of the payload, as its checksums cut it; a sealed one is one piece */
	uint32_t bad, first; /* so many are wrong; the first of them, from 0 */
};

/*
 * folder: PATH/FINGERPRINT/RANK. layer: NULL for the machine's own. KVT_MISS: no store there;
 * KVT_EFORMAT: not one that this version reads; KVT_ECORRUPT, KVT_EIO, KVT_ENOMEM. `why` has room
 * for KVT_REASON_BYTES.
 */
enum kvt_status kvt_inspect_open(const char *folder, const struct kvt_io_layer *layer,
	const struct kvt_surroundings *s, char *why, struct kvt_inspect **out) KVT_MUST_CHECK;
void kvt_inspect_close(struct kvt_inspect *x); /* NULL is allowed */

/*
 * A file of master keys (protect.keys), so that verify opens sealed chunks too. KVT_EINVAL, KVT_EIO:
 * `why` (KVT_REASON_BYTES) has the cause. Once per handle.
 */
enum kvt_status kvt_inspect_keys(
	struct kvt_inspect *x, const char *keys_path, char *why) KVT_MUST_CHECK;

void kvt_inspect_store(const struct kvt_inspect *x, struct kvt_inspect_store *out);

size_t kvt_inspect_count(const struct kvt_inspect *x);
/* i below the count, oldest first. */
void kvt_inspect_chunk(const struct kvt_inspect *x, size_t i, struct kvt_inspect_chunk *out);

/*
 * Reads a chunk and checks header and payload. KVT_OK; KVT_MISS: it has gone since; KVT_ECORRUPT;
 * KVT_EIO; KVT_ENOTSUP: its header is right, its payload is sealed and so cannot be checked without
 * keys, or its key is gone. patience_ns: how long to give a live owner to write down that it has
 * gone, before what is there counts as damaged (nvme_sync_ns and some; 0: the folder has no owner).
 * *damage is set with KVT_ECORRUPT; NULL: not wanted.
 */
enum kvt_status kvt_inspect_verify(struct kvt_inspect *x, size_t i, uint64_t patience_ns,
	struct kvt_inspect_damage *damage) KVT_MUST_CHECK;

/* Calls each() with the folder of every store under nvme_path. KVT_MISS: no such folder. */
enum kvt_status kvt_inspect_stores(const char *nvme_path,
	void (*each)(void *self, const char *folder), void *self) KVT_MUST_CHECK;

#endif
