/*
 * nvme.h - the shared parts of the NVMe tier's files. No other file includes this.
 *
 *   nvme.c           the tier's functions, step
 *   nvme_ops.c       queues, jobs, operations
 *   nvme_space.c     data files, units, places of chunks
 *   nvme_transfer.c  a chunk's bytes between memory and files, in operations
 *   nvme_sums.c      checksums of chunks being read, on several threads
 *   nvme_write.c     requests to write: room, header, payload, visible
 *   nvme_read.c      requests to read: header, payload, checks
 *   nvme_log.c       waiting records, and the rewrite of the log
 *   nvme_commit.c    group commit: data synced, records written, records synced
 *   nvme_erase.c     ends of entries, and tombstones
 *   nvme_recover.c   opening: format, log, index
 *   nvme_replay.c    reads a log
 *   nvme_announce.c  names of chunks, for events
 *   nvme_lost.c      a store whose folder or lock file was removed
 *   nvme_seal.c      chunks at rest under tenants' keys
 *   nvme_format.c    bytes on disk
 *
 * Threads. The tier's thread alone begins and ends operations, inserts into the index and writes the log. Other threads
 * match, hold, pin, erase and submit, and helpers sum read bytes (nvme_sums.c, with a lock of their own). `lock` guards
 * data of the tier's thread and others; it is a leaf: no code calls the index or a callback under it. The index calls
 * nvme_gone under its own mutex, on any thread.
 *
 * Order. A chunk's record is written after its data was synced; a request that announces its chunk ends after the
 * record was synced. Safety does not depend on that order: whatever the log says, a read returns a chunk only if the
 * header at its place names its key, its generation and this store, and if each piece of the payload has its checksum.
 */
#ifndef KVT_NVME_H
#define KVT_NVME_H

#include <pthread.h>
#include <stdatomic.h>

#include "index/cache_index.h"
#include "memory/extents.h"
#include "kvtier/kvtier_io.h"
#include "tiers/nvme/nvme_format.h"
#include "tiers/nvme/nvme_share.h"
#include "protect/seal.h"
#include "tiers/tier.h"

#define NVME_MAX_FILES  1024u
#define NVME_MAX_PIECES 60u                /* most segments of one request */
#define NVME_OP_BYTES   (1u << 20) /* longest operation: a single chunk keeps several under way */

struct nvme;
struct nvme_sum; /* nvme_sums.c */

/* The origin of an operation; kvt_io_op.user points to it. */
struct nvme_actor {
	void (*done)(struct nvme *t, struct nvme_actor *actor, struct kvt_io_op *op);
};

/* The engine's names of an announced chunk, for the event of its removal. */
struct nvme_names {
	struct nvme_names *next; /* list of removals not reported yet */
	struct kvt_key key;      /* then */
	uint32_t hash_bytes, count;
	uint8_t hashes[];
};

/* Data kept for an entry of the index, by its number. The tier's thread writes it while the entry is filled or held;
 * holders of the entry, and `gone`, read it. */
struct nvme_side {
	uint64_t generation;
	struct nvme_names *names; /* owned; NULL: not announced */
	uint16_t header_pages;
	uint8_t flags;    /* flags of its ADD */
	bool logged;      /* its ADD is in the log, or about to be */
	bool read_failed; /* the system refused the last read of it */
};

/* One chunk under way. Jobs are created with the tier and reused. */
struct nvme_job {
	struct nvme_actor actor;
	enum { NVME_JOB_READ, NVME_JOB_WRITE, NVME_JOB_NAMES } kind;
	struct kvt_tier_request *request; /* NULL: names */
	struct nvme_stored *stored;       /* WRITE: its place in a group */
	uint32_t entry;                   /* held */
	uint32_t under_way;               /* operations */
	enum kvt_status status;
	uint64_t erases; /* WRITE: count of erases when the request left its queue */
	uint64_t lost_syncs; /* WRITE: the commit's count when it began */
	uint32_t head_bytes;
	uint64_t bytes; /* payload */
	uint64_t total; /* header and payload, whole pages */
	uint64_t next;  /* part of total: where the next operation begins */
	struct kvt_extent runs[NVME_MAX_RUNS];
	uint32_t run_count;
	struct iovec image[NVME_MAX_PIECES + 2]; /* header, payload, last page: total bytes */
	uint32_t image_count;
	uint8_t *head; /* head_room bytes, aligned to pages */
	uint32_t head_room;
	uint8_t *tail;   /* one page */
	uint8_t *bounce; /* buffer for a payload that cannot be used in place, or is sealed; or NULL */
	struct nvme_sum *sum; /* READ; kept for the next read */
	void (*summed)(struct nvme *t, struct nvme_job *job); /* READ: goes on, on the tier's thread */
	struct nvme_job *link;
};

/* A written chunk whose record is not durable yet; the entry is held. */
struct nvme_stored {
	uint32_t entry;
	bool add; /* this group writes its record into the log */
	uint64_t bytes;
	struct kvt_tier_request *request; /* request that waits for the record; NULL: none */
	struct nvme_stored *next;
};

/* A data file. */
struct nvme_file {
	struct kvt_file *file;
	bool dirty; /* written since its last sync */
	bool fresh; /* created at the opening: has no chunks from before */
};

struct nvme_space {
	struct kvt_extents *extents; /* lock */
	struct nvme_file *files;     /* max_files of them */
	uint32_t file_count, max_files, units_per_file;
	uint32_t allowed; /* files that may exist now, at most max_files; lock */
	uint32_t alignment;
	int64_t grow_after_ns; /* after a refused file, no new one before this time */
	bool full_told;
};

/* Records to be written to the log, NVME_RECORD bytes each. */
struct nvme_records {
	uint8_t *bytes;
	size_t count, room;
};

struct nvme_log {
	struct kvt_file *file; /* NULL: none yet */
	uint64_t number;
	uint64_t count;    /* records in it */
	uint64_t reserved; /* its length */
	bool bad;          /* must be rewritten before any commit */
	int64_t retry_ns;
	uint64_t generation;         /* lock: the last generation given out */
	struct nvme_records pending; /* lock */
	bool lost;                   /* lock: no memory for a tombstone */
	struct nvme_records writing;
};

enum nvme_phase {
	NVME_IDLE,
	NVME_KEYS, /* keys of tenants: written, then synced */
	NVME_DATA_SYNC,
	NVME_LOG_WRITE,
	NVME_LOG_SYNC,
	NVME_SNAP_WRITE, /* writes of a new log */
	NVME_SNAP_SYNC,
};

struct nvme_commit {
	struct nvme_actor actor;
	enum nvme_phase phase;
	uint32_t under_way;
	bool failed;                /* some data could not be synced */
	uint64_t lost_syncs;        /* failed syncs of data so far */
	bool keys_failed;           /* a tenant's key could not be written or destroyed */
	uint32_t sync_file;         /* next data file to check */
	struct nvme_stored *group;  /* chunks of this commit */
	struct nvme_stored *stored; /* chunks of the next commit, in order */
	struct nvme_stored **stored_end;
	uint64_t stored_bytes;
	int64_t stored_ns;  /* time when the oldest of them was written */
	int64_t pending_ns; /* time when the oldest waiting record was seen; 0: none */
	uint32_t announces; /* among `stored` */
	bool wanted;        /* commit now, whatever the times */
	bool folder_dirty;
	struct kvt_tier_request *flushes, *flushing; /* flushes of the next commit, of this one */
	uint64_t done_bytes;                         /* finished bytes of the present write */
	uint32_t attempts;                           /* failed rotations in a row */
	struct {
		struct kvt_file *file;
		uint8_t *buffer;
		uint64_t filled; /* bytes of buffer */
		uint64_t offset; /* place in the file */
		uint64_t count;  /* records */
		uint64_t reserved;
		uint32_t cursor;
		bool walked;
	} snap;
};

struct nvme_queue {
	struct kvt_tier_request *first, *last;
	uint64_t bytes;
};

/* Rate of bytes while any were under way. */
struct nvme_rate {
	uint64_t bytes;   /* bytes of this window */
	int64_t since_ns; /* begin of the busy time; 0: idle */
	int64_t busy_ns;
	uint32_t active;
	uint64_t per_second;
};

struct nvme_tenants; /* nvme_seal.c */
struct nvme_sums;    /* nvme_sums.c */

struct nvme {
	struct kvt_tier base;
	const struct kvt_surroundings *s;
	struct kvt_tier_watch watch;
	bool events;
	bool closing; /* lock: `gone` logs nothing any more */
	bool lost;    /* the store no longer belongs to this process ... */
	bool let_go;  /* ... and its files are closed */
	int64_t look_ns; /* time of the next check for that */
	bool caller_threads;
	struct kvt_io *io;
	struct kvt_index *index;
	struct kvt_sealer *sealer; /* NULL: plain */
	struct nvme_tenants *tenants;
	struct nvme_sums *sums;
	struct nvme_format format;
	uint64_t capacity; /* capacity if this engine were alone on its disk: the size of all structures */
	struct kvt_nvme_share share; /* stores 0: the capacity is configured */
	char *path, *folder;         /* nvme_path; the store's own folder below it */
	uint32_t engine_ranks;
	int64_t share_ns; /* time of the next look at the share */
	uint32_t max_entries;
	uint64_t ttl_ns;
	uint64_t sync_bytes;
	int64_t sync_ns;
	uint32_t depth;

	pthread_mutex_t lock;
	struct nvme_queue reads, writes, others, cancelled; /* lock */
	uint64_t erases;                                    /* lock: erases begun so far */
	struct nvme_names *removed;                         /* lock: events to report, in order */
	struct nvme_names **removed_end;
	_Atomic bool asleep;

	struct nvme_space space;
	struct nvme_log log;
	struct nvme_commit commit;
	struct nvme_side *side;

	struct kvt_io_op *ops, *free_ops;
	uint64_t *op_at; /* of each operation of a job: its begin in the job's image */
	struct kvt_io_op *batch, **batch_end; /* operations to submit */
	uint32_t ops_under_way;
	struct nvme_job *jobs, *free_jobs;
	struct nvme_job *issuing, **issuing_end; /* jobs with operations still to begin */
	uint32_t writes_active, reads_active;

	uint32_t announce_cursor;
	bool announce_done;
	uint32_t announcing;        /* headers being read now */
	uint64_t opened_generation; /* chunks up to this generation were found at the opening */
	int64_t expire_ns;          /* next look */

	/* lock */
	struct nvme_rate read_rate, write_rate;
	uint64_t loads, load_bytes, stores, store_bytes, hits, misses, corrupt, io_errors;
	uint64_t name_bytes;
	uint32_t state; /* enum kvt_tier_state */
	char reason[KVT_REASON_BYTES];

	uint32_t failures; /* failures of I/O in a row */
};

/* --- nvme_ops.c --- */
struct kvt_io_op *nvme_op_take(struct nvme *t, struct nvme_actor *actor); /* NULL: none is free */
void nvme_op_begin(struct nvme *t, struct kvt_io_op *op);
void nvme_op_give(struct nvme *t, struct kvt_io_op *op);
void nvme_submit_batch(struct nvme *t);
size_t nvme_reap(struct nvme *t, int64_t wait_ns);
void nvme_finish(struct kvt_tier_request *request, enum kvt_status status);
struct nvme_job *nvme_job_take(struct nvme *t); /* NULL: none is free */
void nvme_job_give(struct nvme *t, struct nvme_job *job);
void nvme_queue_add(struct nvme_queue *q, struct kvt_tier_request *r);
void nvme_queue_push(struct nvme_queue *q, struct kvt_tier_request *r); /* in front */
struct kvt_tier_request *nvme_queue_take(struct nvme_queue *q);
/* Count a refused operation, or a successful one. */
void nvme_io_failed(struct nvme *t, const char *what, int error);
void nvme_io_worked(struct nvme *t);

/* --- nvme_space.c --- */
enum kvt_status nvme_space_open(struct nvme *t);
void nvme_space_close(struct nvme *t);
/* Applies a changed part of the disk. */
void nvme_space_allow(struct nvme *t);
/* Takes units for a chunk; makes a file or evicts for them. KVT_FULL. */
enum kvt_status nvme_space_take(
	struct nvme *t, uint32_t units, struct kvt_extent *runs, uint32_t *count);
void nvme_space_give(struct nvme *t, const struct kvt_extent *runs, uint32_t count);
void nvme_place_pack(const struct kvt_extent *runs, uint32_t count, uint64_t place[4]);
uint32_t nvme_place_unpack(const uint64_t place[4], struct kvt_extent *runs);
/* Place of byte `at` of a chunk: file, offset, and how many bytes from there on are contiguous. */
struct nvme_file *nvme_space_find(struct nvme *t, const struct kvt_extent *runs, uint32_t count,
	uint64_t at, uint64_t *offset, uint64_t *together);
void nvme_data_name(uint32_t number, char out[16]);

/* --- nvme_transfer.c --- */
/* Makes room for a header, and the image of a job whose runs, bytes and head_bytes are set. `write`: fills the last
 * page from the segments. KVT_ENOMEM. */
enum kvt_status nvme_transfer_prepare(struct nvme *t, struct nvme_job *job,
	const struct kvt_segment *segments, uint32_t count, bool bounce) KVT_MUST_CHECK;
enum kvt_status nvme_transfer_room(struct nvme_job *job, uint32_t head_bytes) KVT_MUST_CHECK;
void nvme_transfer_begin(struct nvme *t, struct nvme_job *job); /* later: the actor's done */
/* Runs of bytes [at, at + bytes) of the image; returns their number; `out` has room for KVT_IO_MAX_PIECES. */
uint32_t nvme_transfer_slice(
	const struct nvme_job *job, uint64_t at, uint64_t bytes, struct iovec *out);
size_t nvme_transfer_issue(struct nvme *t);
/* Bytes of the image that a finished operation moved, from *at on; 0: failure. */
uint64_t nvme_transfer_moved(const struct nvme *t, const struct kvt_io_op *op, uint64_t *at);
/* Takes a finished operation; true: the job's last one. */
bool nvme_transfer_done(struct nvme *t, struct nvme_job *job, struct kvt_io_op *op);
void nvme_copy_out(
	const uint8_t *from, const struct kvt_segment *to, uint32_t count, uint64_t bytes);
void nvme_rate_begin(struct nvme *t, struct nvme_rate *rate);
void nvme_rate_end(struct nvme *t, struct nvme_rate *rate, uint64_t bytes);

/* --- nvme_sums.c --- */
enum kvt_status nvme_sums_open(struct nvme *t) KVT_MUST_CHECK;
void nvme_sums_close(struct nvme *t); /* requires that no read is active */
void nvme_sum_free(struct nvme_sum *sum);
/* Called before a read's operations, once its image is known. KVT_ENOMEM. */
enum kvt_status nvme_sum_begin(struct nvme *t, struct nvme_job *job) KVT_MUST_CHECK;
/* Called when an operation has read bytes [at, at + bytes) of the image: complete pieces then wait to be summed. */
void nvme_sum_came(struct nvme *t, struct nvme_job *job, uint64_t at, uint64_t bytes);
/* Called when all operations of a read have ended. False: a later step calls its `summed`. */
bool nvme_sum_ended(struct nvme *t, struct nvme_job *job);
/* Checks whether the read pieces have the checksums of their header. KVT_ECORRUPT: *bad is the first wrong piece, from
 * 0, of *of. KVT_MISS: not summed while being read, or by other pieces than the header has. */
enum kvt_status nvme_sum_judge(
	const struct nvme_job *job, const struct nvme_chunk *chunk, uint32_t *bad, uint32_t *of);
/* Sums some pieces, settles reads; returns the number of actions. */
size_t nvme_sums_step(struct nvme *t);
bool nvme_sums_due(struct nvme *t); /* returns whether a step would do anything */

/* --- nvme_write.c, nvme_read.c --- */
/* False: the request was put back, no other can begin now. */
bool nvme_write_begin(struct nvme *t, struct nvme_job *job, struct kvt_tier_request *r);
void nvme_read_begin(struct nvme *t, struct nvme_job *job, struct kvt_tier_request *r);
/* Checks a header against the index's and the log's data of an entry. */
enum kvt_status nvme_check_head(struct nvme *t, struct nvme_job *job, struct nvme_chunk *chunk);

/* --- nvme_log.c --- */
enum kvt_status nvme_records_add(struct nvme_records *r, const struct nvme_record *record);
/* Keeps a record for the next commit. Under lock. */
enum kvt_status nvme_log_add(struct nvme *t, const struct nvme_record *record);
void nvme_log_fill(struct nvme *t, uint32_t entry, struct nvme_record *out); /* the ADD of an entry */
bool nvme_log_worn(struct nvme *t); /* returns whether the log should be rewritten */
void nvme_snap_begin(struct nvme *t);
void nvme_snap_step(struct nvme *t);
void nvme_snap_end(struct nvme *t, bool ok);

/* --- nvme_commit.c --- */
size_t nvme_commit_step(struct nvme *t, int64_t now);
void nvme_commit_init(struct nvme *t);
int64_t nvme_commit_due(struct nvme *t, int64_t now); /* INT64_MAX: nothing waits */
void nvme_commit_stored(struct nvme *t, struct nvme_stored *s);
bool nvme_commit_quiet(struct nvme *t);

/* --- nvme_erase.c --- */
void nvme_gone(
	void *self, uint32_t entry, const struct kvt_key *key, const struct kvt_entry_info *info);
size_t nvme_erase_keys(struct nvme *t, const struct kvt_key *keys, size_t n);
enum kvt_status nvme_erase_tenant(
	struct kvt_tier *base, const struct kvt_tenant *tenant, size_t *erased);
enum kvt_status nvme_erase_all(struct kvt_tier *base, size_t *erased);
size_t nvme_drop_slots(struct kvt_tier *base, const struct kvt_slot_set *slots); /* as in tier.h */

/* --- nvme_seal.c --- */
enum kvt_status nvme_seal_open(struct nvme *t, const struct kvt_config *config, char *why);
enum kvt_status nvme_seal_recover(struct nvme *t); /* reads the tenants' keys of the store */
void nvme_seal_close(struct nvme *t);
/* Passes all wrapped keys of a folder to a sealer. KVT_MISS: the folder has none. */
enum kvt_status nvme_seal_take_all(struct kvt_io *io, struct kvt_sealer *sealer);
/* Opens a payload in place, to check it. Like kvt_open_sealed. */
enum kvt_status nvme_seal_prove(struct kvt_sealer *sealer, const uint8_t store_id[16],
	const struct nvme_chunk *chunk, uint8_t *payload);
/* Writes the sealed payload to job->bounce, and tags and names to the chunk. */
enum kvt_status nvme_seal_chunk(struct nvme *t, struct nvme_job *job, struct nvme_chunk *chunk);
enum kvt_status nvme_open_chunk(
	struct nvme *t, struct nvme_job *job, const struct nvme_chunk *chunk);
enum kvt_status nvme_open_names(struct nvme *t, struct nvme_chunk *chunk); /* in place */
/* Destroys the keys of a tenant (NULL: of all); the next commit overwrites them. Any thread. */
void nvme_seal_forget(struct nvme *t, const struct kvt_tenant *tenant, const struct kvt_slot_set *slots);
bool nvme_seal_waiting(struct nvme *t); /* returns whether keys wait to be written or overwritten */
/* The next operation on the file of keys, one at a time. False: none is left. */
bool nvme_seal_next(struct nvme *t, struct kvt_io_op *op);
void nvme_seal_ended(struct nvme *t, const struct kvt_io_op *op, bool ok);

/* --- nvme_recover.c --- */
/* Reads or creates the store in t->io's folder: format, files, index, log. */
enum kvt_status nvme_recover(
	struct nvme *t, const struct kvt_config *config, const char *folder, char *why);

/* --- nvme_lost.c --- */
void nvme_lost_look(struct nvme *t, int64_t now);
bool nvme_lost(struct kvt_tier *base); /* as in tier.h */

/* --- nvme_announce.c --- */
void nvme_announce_stored(struct nvme *t, uint32_t entry, const struct kvt_blocks *names);
/* Reports removals, in order. */
size_t nvme_announce_tell(struct nvme *t);
size_t nvme_announce_step(struct nvme *t);
void nvme_announce_close(struct nvme *t);

#endif
