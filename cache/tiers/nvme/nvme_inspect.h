/*
 * nvme_inspect.h - reads a store on disk without owning it.
 *
 * An inspection opens nothing for writing and takes no lock, so it works alongside a live owner. It
 * shows the log as it was when read: chunks may come and go meanwhile, and a chunk that has gone is
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
	uint64_t file_bytes;             /* length of each data file */
	uint64_t data_files, data_bytes; /* existing files */
	uint64_t log_bytes, log_records, log_damaged;
	/* chunks that the log lists as present, and their bytes */
	uint64_t chunks, payload_bytes, disk_bytes;
	uint64_t tenants;                           /* different ones */
	uint64_t piece_bytes; /* bytes of those payloads that have checksums of pieces */
};

/* One chunk. */
struct kvt_inspect_chunk {
	struct kvt_key key, parent;
	bool has_parent;
	struct kvt_tenant tenant;
	uint64_t generation; /* larger for chunks that were stored later */
	uint64_t bytes, disk_bytes;
	uint32_t tokens;
	uint32_t extents;
	int64_t expires_wall_ns; /* INT64_MAX: never */
	uint64_t ttl_ns;
	bool has_pieces; /* the log says that each piece of the payload has a checksum */
};

/* Which parts of a chunk are damaged. */
struct kvt_inspect_damage {
	bool header;         /* the header is wrong; no other member is known then */
	/* number of pieces that have checksums; a sealed payload counts as one piece */
	uint32_t pieces;
	uint32_t bad, first; /* number of wrong pieces; number of the first of them, from 0 */
};

/*
 * folder is PATH/FINGERPRINT/RANK. layer NULL: the machine's own files. KVT_MISS: the folder has no
 * store; KVT_EFORMAT: this version cannot read the store; KVT_ECORRUPT, KVT_EIO, KVT_ENOMEM. `why`
 * has room for KVT_REASON_BYTES.
 */
enum kvt_status kvt_inspect_open(const char *folder, const struct kvt_io_layer *layer,
	const struct kvt_surroundings *s, char *why, struct kvt_inspect **out) KVT_MUST_CHECK;
void kvt_inspect_close(struct kvt_inspect *x); /* NULL is allowed */

/*
 * Reads a file of master keys (protect.keys), so that kvt_inspect_verify can open sealed chunks,
 * too. KVT_EINVAL, KVT_EIO: `why` (KVT_REASON_BYTES) has the cause. To be called once per handle.
 */
enum kvt_status kvt_inspect_keys(
	struct kvt_inspect *x, const char *keys_path, char *why) KVT_MUST_CHECK;

void kvt_inspect_store(const struct kvt_inspect *x, struct kvt_inspect_store *out);

size_t kvt_inspect_count(const struct kvt_inspect *x);
/* Describes chunk i, which is below the number of chunks; the oldest is chunk 0. */
void kvt_inspect_chunk(const struct kvt_inspect *x, size_t i, struct kvt_inspect_chunk *out);

/*
 * Reads a chunk and checks header and payload. KVT_OK; KVT_MISS: the chunk has gone since;
 * KVT_ECORRUPT; KVT_EIO; KVT_ENOTSUP: its header is right, its payload is sealed and cannot be
 * checked without keys, or its key is gone. patience_ns: time for a live owner to record that the
 * chunk has gone, before it counts as damaged (nvme_sync_ns and some; 0: the folder has no owner).
 * *damage is set with KVT_ECORRUPT; NULL: not wanted.
 */
enum kvt_status kvt_inspect_verify(struct kvt_inspect *x, size_t i, uint64_t patience_ns,
	struct kvt_inspect_damage *damage) KVT_MUST_CHECK;

/* Calls each() with the folder of every store under nvme_path. KVT_MISS: no such folder. */
enum kvt_status kvt_inspect_stores(const char *nvme_path,
	void (*each)(void *self, const char *folder), void *self) KVT_MUST_CHECK;

#endif
