/*
 * nvme.h - the NVMe tier from inside: what its files share. No other file includes this.
 *
 *   nvme.c           the tier's functions, step
 *   nvme_ops.c       queues, jobs, operations
 *   nvme_space.c     data files, units, where a chunk lies
 *   nvme_transfer.c  a chunk's bytes between memory and files, in operations
 *   nvme_sums.c      checksums of what is being read, on several threads
 *   nvme_write.c     requests to write: room, header, payload, visible
 *   nvme_read.c      requests to read: header, payload, checks
 *   nvme_log.c       records that wait, and a log that is rewritten
 *   nvme_commit.c    group commit: data synced, records written, records synced
 *   nvme_erase.c     what the index gives back, and what must not come back
 *   nvme_recover.c   opening: format, log, what is there
 *   nvme_replay.c    what a log says
 *   nvme_announce.c  names of chunks, for events
 *   nvme_lost.c      a store whose folder or lock file was removed
 *   nvme_seal.c      chunks at rest under tenants' keys
 *   nvme_format.c    bytes on disk
 *
 * Threads. The tier's thread alone begins and ends operations, inserts into the index and writes
 * the log. Others match, hold, pin, erase and submit, and helpers sum what was read (nvme_sums.c,
 * with a lock of their own). `lock` guards what the tier's thread and others touch; it is a leaf:
 * neither the index nor a callback is called under it. The index calls nvme_gone under its own
 * mutex, on any thread.
 *
 * Order. A record of a chunk is written after its data was synced, a request that wants to announce
 * ends after its record was synced. Nothing depends on that order for safety: whatever the log
 * says, a chunk is only given out if the header at its place names its key, its generation and this
 * store, and if each piece of the payload proves its checksum.
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
#define NVME_MAX_PIECES 60u                /* segments of one request */
#define NVME_OP_BYTES   (1u << 20) /* longest operation: a chunk alone keeps several under way */

struct nvme;
struct nvme_sum; /* nvme_sums.c */

/* What began an operation; kvt_io_op.user points at it. */
struct nvme_actor {
	void (*done)(struct nvme *t, struct nvme_actor *actor, struct kvt_io_op *op);
};

/* The engine's names of a chunk that was announced, for the event of its removal. */
struct nvme_names {
	struct nvme_names *next; /* removed, not reported yet */
	struct kvt_key key;      /* then */
	uint32_t hash_bytes, count;
	uint8_t hashes[];
};

/* Kept for an entry of the index, by its number. Written by the tier's thread while the entry is
 * being filled or held, read by its holders, and by gone. */
struct nvme_side {
	uint64_t generation;
	struct nvme_names *names; /* owned; NULL: not announced */
	uint16_t header_pages;
	uint8_t flags;    /* of its ADD */
	bool logged;      /* its ADD is in the log, or about to be */
	bool read_failed; /* the last read of it was refused by the system */
};

/* One chunk on its way. Jobs are made when the tier is and used again. */
struct nvme_job {
	struct nvme_actor actor;
	enum { NVME_JOB_READ, NVME_JOB_WRITE, NVME_JOB_NAMES } kind;
	struct kvt_tier_request *request; /* NULL: names */
	struct nvme_stored *stored;       /* WRITE: its place in a group */
	uint32_t entry;                   /* held */
	uint32_t under_way;               /* operations */
	enum kvt_status status;
	uint64_t erases; /* WRITE: begun when the request left its queue */
	uint64_t lost_syncs; /* WRITE: of the commit's when it began */
	uint32_t head_bytes;
	uint64_t bytes; /* payload */
	uint64_t total; /* header and payload, whole pages */
	uint64_t next;  /* of total: where the next operation begins */
	struct kvt_extent runs[NVME_MAX_RUNS];
	uint32_t run_count;
	struct iovec image[NVME_MAX_PIECES + 2]; /* header, payload, last page: total bytes */
	uint32_t image_count;
	uint8_t *head; /* head_room bytes, aligned to pages */
	uint32_t head_room;
	uint8_t *tail;   /* one page */
	uint8_t *bounce; /* the payload where it cannot be used in place, or is sealed; or NULL */
	struct nvme_sum *sum; /* READ; kept for the next one */
	void (*summed)(struct nvme *t, struct nvme_job *job); /* READ: goes on, on the tier's thread */
	struct nvme_job *link;
};

/* A chunk that was written and whose record is not durable yet; the entry is held. */
struct nvme_stored {
	uint32_t entry;
	bool add; /* its record goes into the log with this group */
	uint64_t bytes;
	struct kvt_tier_request *request; /* that waits for the record; NULL: none */
	struct nvme_stored *next;
};

/* A data file. */
struct nvme_file {
	struct kvt_file *file;
	bool dirty; /* written since its last sync */
	bool fresh; /* created while opening: has nothing from before */
};

struct nvme_space {
	struct kvt_extents *extents; /* lock */
	struct nvme_file *files;     /* max_files of them */
	uint32_t file_count, max_files, units_per_file;
	uint32_t allowed; /* files that may be made now, at most max_files; lock */
	uint32_t alignment;
	int64_t grow_after_ns; /* no new file before, after one was refused */
	bool full_told;
};

/* Records on their way to the log, NVME_RECORD bytes each. */
struct nvme_records {
	uint8_t *bytes;
	size_t count, room;
};

struct nvme_log {
	struct kvt_file *file; /* NULL: none yet */
	uint64_t number;
	uint64_t count;    /* records in it */
	uint64_t reserved; /* its length */
	bool bad;          /* must be rewritten before anything else is committed */
	int64_t retry_ns;
	uint64_t generation;         /* lock: last that was given out */
	struct nvme_records pending; /* lock */
	bool lost;                   /* lock: a tombstone found no memory */
	struct nvme_records writing;
};

enum nvme_phase {
	NVME_IDLE,
	NVME_KEYS, /* of tenants: written, then synced */
	NVME_DATA_SYNC,
	NVME_LOG_WRITE,
	NVME_LOG_SYNC,
	NVME_SNAP_WRITE, /* a new log */
	NVME_SNAP_SYNC,
};

struct nvme_commit {
	struct nvme_actor actor;
	enum nvme_phase phase;
	uint32_t under_way;
	bool failed;                /* some data could not be synced */
	uint64_t lost_syncs;        /* syncs of data that failed, so far */
	bool keys_failed;           /* some tenant's key could not be written or destroyed */
	uint32_t sync_file;         /* next data file to look at */
	struct nvme_stored *group;  /* of this commit */
	struct nvme_stored *stored; /* of the next, in order */
	struct nvme_stored **stored_end;
	uint64_t stored_bytes;
	int64_t stored_ns;  /* when the oldest of them was written */
	int64_t pending_ns; /* when the oldest record that waits was seen; 0: none */
	uint32_t announces; /* among `stored` */
	bool wanted;        /* now, whatever the times say */
	bool folder_dirty;
	struct kvt_tier_request *flushes, *flushing; /* of the next, of this */
	uint64_t done_bytes;                         /* of what is being written */
	uint32_t attempts;                           /* rotations that failed in a row */
	struct {
		struct kvt_file *file;
		uint8_t *buffer;
		uint64_t filled; /* bytes of buffer */
		uint64_t offset; /* in the file */
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

/* How fast bytes went while any were on their way. */
struct nvme_rate {
	uint64_t bytes;   /* in this window */
	int64_t since_ns; /* busy since; 0: idle */
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
	bool closing; /* lock: gone logs nothing any more */
	bool lost;    /* the store is not this process' any more ... */
	bool let_go;  /* ... and its files are closed */
	int64_t look_ns; /* next look whether it is */
	bool caller_threads;
	struct kvt_io *io;
	struct kvt_index *index;
	struct kvt_sealer *sealer; /* NULL: plain */
	struct nvme_tenants *tenants;
	struct nvme_sums *sums;
	struct nvme_format format;
	uint64_t capacity; /* as if this engine were alone on its disk: what everything here has room for */
	struct kvt_nvme_share share; /* stores 0: the capacity is configured */
	char *path, *folder;         /* nvme_path; the store's own below it */
	uint32_t engine_ranks;
	int64_t share_ns; /* next look at the share */
	uint32_t max_entries;
	uint64_t ttl_ns;
	uint64_t sync_bytes;
	int64_t sync_ns;
	uint32_t depth;

	pthread_mutex_t lock;
	struct nvme_queue reads, writes, others, cancelled; /* lock */
	uint64_t erases;                                    /* lock: begun so far */
	struct nvme_names *removed;                         /* lock: events to report, in order */
	struct nvme_names **removed_end;
	_Atomic bool asleep;

	struct nvme_space space;
	struct nvme_log log;
	struct nvme_commit commit;
	struct nvme_side *side;

	struct kvt_io_op *ops, *free_ops;
	uint64_t *op_at; /* of each operation of a job: where in its image it begins */
	struct kvt_io_op *batch, **batch_end; /* to be submitted */
	uint32_t ops_under_way;
	struct nvme_job *jobs, *free_jobs;
	struct nvme_job *issuing, **issuing_end; /* with operations still to begin */
	uint32_t writes_active, reads_active;

	uint32_t announce_cursor;
	bool announce_done;
	uint32_t announcing;        /* headers being read */
	uint64_t opened_generation; /* chunks up to this one were found when the store was opened */
	int64_t expire_ns;          /* next look */

	/* lock */
	struct nvme_rate read_rate, write_rate;
	uint64_t loads, load_bytes, stores, store_bytes, hits, misses, corrupt, io_errors;
	uint64_t name_bytes;
	uint32_t state; /* enum kvt_tier_state */
	char reason[KVT_REASON_BYTES];

	uint32_t failures; /* of I/O in a row */
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
/* An operation was refused, or went well. */
void nvme_io_failed(struct nvme *t, const char *what, int error);
void nvme_io_worked(struct nvme *t);

/* --- nvme_space.c --- */
enum kvt_status nvme_space_open(struct nvme *t);
void nvme_space_close(struct nvme *t);
/* The store's part of the disk has changed. */
void nvme_space_allow(struct nvme *t);
/* Units for a chunk; makes a file or evicts for it. KVT_FULL. */
enum kvt_status nvme_space_take(
	struct nvme *t, uint32_t units, struct kvt_extent *runs, uint32_t *count);
void nvme_space_give(struct nvme *t, const struct kvt_extent *runs, uint32_t count);
void nvme_place_pack(const struct kvt_extent *runs, uint32_t count, uint64_t place[4]);
uint32_t nvme_place_unpack(const uint64_t place[4], struct kvt_extent *runs);
/* Where byte `at` of a chunk lies: file, offset, and how many bytes from there on are together. */
struct nvme_file *nvme_space_find(struct nvme *t, const struct kvt_extent *runs, uint32_t count,
	uint64_t at, uint64_t *offset, uint64_t *together);
void nvme_data_name(uint32_t number, char out[16]);

/* --- nvme_transfer.c --- */
/* Room for a header, and the image of a job whose runs, bytes and head_bytes are set. `write`: the
 * last page is filled from the segments. KVT_ENOMEM. */
enum kvt_status nvme_transfer_prepare(struct nvme *t, struct nvme_job *job,
	const struct kvt_segment *segments, uint32_t count, bool bounce) KVT_MUST_CHECK;
enum kvt_status nvme_transfer_room(struct nvme_job *job, uint32_t head_bytes) KVT_MUST_CHECK;
void nvme_transfer_begin(struct nvme *t, struct nvme_job *job); /* later: done of the actor */
/* Bytes [at, at + bytes) of the image, in so many runs; `out` has room for KVT_IO_MAX_PIECES. */
uint32_t nvme_transfer_slice(
	const struct nvme_job *job, uint64_t at, uint64_t bytes, struct iovec *out);
size_t nvme_transfer_issue(struct nvme *t);
/* What a finished operation moved: bytes of the image from *at on; 0: it failed. */
uint64_t nvme_transfer_moved(const struct nvme *t, const struct kvt_io_op *op, uint64_t *at);
/* Takes a finished operation; true: it was the job's last. */
bool nvme_transfer_done(struct nvme *t, struct nvme_job *job, struct kvt_io_op *op);
void nvme_copy_out(
	const uint8_t *from, const struct kvt_segment *to, uint32_t count, uint64_t bytes);
void nvme_rate_begin(struct nvme *t, struct nvme_rate *rate);
void nvme_rate_end(struct nvme *t, struct nvme_rate *rate, uint64_t bytes);

/* --- nvme_sums.c --- */
enum kvt_status nvme_sums_open(struct nvme *t) KVT_MUST_CHECK;
void nvme_sums_close(struct nvme *t); /* no read is active */
void nvme_sum_free(struct nvme_sum *sum);
/* Before a read's operations, when its image is known. KVT_ENOMEM. */
enum kvt_status nvme_sum_begin(struct nvme *t, struct nvme_job *job) KVT_MUST_CHECK;
/* An operation brought bytes [at, at + bytes) of the image: pieces that are whole now wait to be summed. */
void nvme_sum_came(struct nvme *t, struct nvme_job *job, uint64_t at, uint64_t bytes);
/* All operations of a read have ended. false: its `summed` will be called, by a step. */
bool nvme_sum_ended(struct nvme *t, struct nvme_job *job);
/* Has what came the checksums that its header says? KVT_ECORRUPT: *bad is the first piece, from 0, of *of
 * that has not. KVT_MISS: it was not summed on its way, or by other pieces than the header has. */
enum kvt_status nvme_sum_judge(
	const struct nvme_job *job, const struct nvme_chunk *chunk, uint32_t *bad, uint32_t *of);
/* Sums some, settles reads; returns how much was done. */
size_t nvme_sums_step(struct nvme *t);
bool nvme_sums_due(struct nvme *t); /* a step would do something */

/* --- nvme_write.c, nvme_read.c --- */
/* false: it was put back, nothing more can be begun now. */
bool nvme_write_begin(struct nvme *t, struct nvme_job *job, struct kvt_tier_request *r);
void nvme_read_begin(struct nvme *t, struct nvme_job *job, struct kvt_tier_request *r);
/* Checks a header against what the index and the log say of an entry. */
enum kvt_status nvme_check_head(struct nvme *t, struct nvme_job *job, struct nvme_chunk *chunk);

/* --- nvme_log.c --- */
enum kvt_status nvme_records_add(struct nvme_records *r, const struct nvme_record *record);
/* Under lock: keeps a record for the next commit. */
enum kvt_status nvme_log_add(struct nvme *t, const struct nvme_record *record);
void nvme_log_fill(struct nvme *t, uint32_t entry, struct nvme_record *out); /* ADD of an entry */
bool nvme_log_worn(struct nvme *t); /* it is time to rewrite it */
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
enum kvt_status nvme_seal_recover(struct nvme *t); /* tenants' keys that the store has */
void nvme_seal_close(struct nvme *t);
/* Hands all wrapped keys of a folder to a sealer. KVT_MISS: the folder has none. */
enum kvt_status nvme_seal_take_all(struct kvt_io *io, struct kvt_sealer *sealer);
/* Opens a payload in place, to see whether it does. As kvt_open_sealed. */
enum kvt_status nvme_seal_prove(struct kvt_sealer *sealer, const uint8_t store_id[16],
	const struct nvme_chunk *chunk, uint8_t *payload);
/* job->bounce gets the payload, sealed; the chunk its tags and names. */
enum kvt_status nvme_seal_chunk(struct nvme *t, struct nvme_job *job, struct nvme_chunk *chunk);
enum kvt_status nvme_open_chunk(
	struct nvme *t, struct nvme_job *job, const struct nvme_chunk *chunk);
enum kvt_status nvme_open_names(struct nvme *t, struct nvme_chunk *chunk); /* in place */
/* Any thread: destroys the keys of a tenant (NULL: of all); the next commit overwrites them. */
void nvme_seal_forget(struct nvme *t, const struct kvt_tenant *tenant, const struct kvt_slot_set *slots);
bool nvme_seal_waiting(struct nvme *t); /* keys are to be written or overwritten */
/* The next operation on the file of keys, one at a time. false: none is left. */
bool nvme_seal_next(struct nvme *t, struct kvt_io_op *op);
void nvme_seal_ended(struct nvme *t, const struct kvt_io_op *op, bool ok);

/* --- nvme_recover.c --- */
/* Reads or makes the store in t->io's folder: format, files, index, log. */
enum kvt_status nvme_recover(
	struct nvme *t, const struct kvt_config *config, const char *folder, char *why);

/* --- nvme_lost.c --- */
void nvme_lost_look(struct nvme *t, int64_t now);
bool nvme_lost(struct kvt_tier *base); /* as in tier.h */

/* --- nvme_announce.c --- */
void nvme_announce_stored(struct nvme *t, uint32_t entry, const struct kvt_blocks *names);
/* Reports what was removed, in order. */
size_t nvme_announce_tell(struct nvme *t);
size_t nvme_announce_step(struct nvme *t);
void nvme_announce_close(struct nvme *t);

#endif
