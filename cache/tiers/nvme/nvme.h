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
/* longest operation, so that a single chunk keeps several operations under way */
#define NVME_OP_BYTES   (1u << 20)

struct nvme;
struct nvme_sum; /* nvme_sums.c */

/* An object that begins operations. kvt_io_op.user points to it, and its done() is called when the
 * operation ends. */
struct nvme_actor {
	void (*done)(struct nvme *t, struct nvme_actor *actor, struct kvt_io_op *op);
};

/* The engine's names of a chunk that was announced by an event, kept for the event of its
 * removal. */
struct nvme_names {
	struct nvme_names *next; /* next in the list of removals that are not reported yet */
	struct kvt_key key;      /* then */
	uint32_t hash_bytes, count;
	uint8_t hashes[];
};

/* Data kept for an entry of the index, by its number. The tier's thread writes it while the entry
 * is filled or held; holders of the entry, and `gone`, read it. */
struct nvme_side {
	uint64_t generation;
	struct nvme_names *names; /* owned; NULL: the chunk was not announced */
	uint16_t header_pages;
	uint8_t flags;    /* flags of the chunk's ADD record */
	bool logged;      /* the chunk's ADD record is in the log, or about to be written */
	bool read_failed; /* the operating system refused the last read of the chunk */
};

/* One chunk that is being read or written. Jobs are created with the tier and reused. */
struct nvme_job {
	struct nvme_actor actor;
	enum { NVME_JOB_READ, NVME_JOB_WRITE, NVME_JOB_NAMES } kind;
	struct kvt_tier_request *request; /* NULL: names */
	struct nvme_stored *stored;       /* WRITE: the chunk's place in the group of a commit */
	uint32_t entry;                   /* held */
	uint32_t under_way;               /* operations */
	enum kvt_status status;
	uint64_t erases; /* WRITE: the tier's `erases` when the request left its queue */
	uint64_t lost_syncs; /* WRITE: the commit's lost_syncs when the job began */
	uint32_t head_bytes;
	uint64_t bytes; /* payload */
	uint64_t total; /* bytes of header and payload, in whole pages */
	uint64_t next;  /* bytes of `total` for which operations have begun */
	struct kvt_extent runs[NVME_MAX_RUNS];
	uint32_t run_count;
	/* header, payload, last page: `total` bytes together */
	struct iovec image[NVME_MAX_PIECES + 2];
	uint32_t image_count;
	uint8_t *head; /* buffer for the header: head_room bytes, aligned to pages */
	uint32_t head_room;
	uint8_t *tail;   /* one page */
	/* buffer for a payload that cannot be used in place, or is sealed; or NULL */
	uint8_t *bounce;
	/* READ: checksums of the pieces; the buffer is kept for the next read */
	struct nvme_sum *sum;
	/* READ: continues the read on the tier's thread, once its pieces are summed */
	void (*summed)(struct nvme *t, struct nvme_job *job);
	struct nvme_job *link;
};

/* A written chunk whose record is not durable yet; its entry is held until then. */
struct nvme_stored {
	uint32_t entry;
	bool add; /* the commit of this group writes the chunk's record into the log */
	uint64_t bytes;
	/* request that ends when the record is durable; NULL: none waits */
	struct kvt_tier_request *request;
	struct nvme_stored *next;
};

/* A data file. */
struct nvme_file {
	struct kvt_file *file;
	bool dirty; /* the file was written since its last sync */
	/* the file was created when the store was opened, so it has no chunks from before */
	bool fresh;
};

struct nvme_space {
	struct kvt_extents *extents; /* lock */
	struct nvme_file *files;     /* array of max_files entries */
	uint32_t file_count, max_files, units_per_file;
	uint32_t allowed; /* under `lock`: number of files that may exist now, at most max_files */
	uint32_t alignment;
	/* after the disk refused a new file, no other is tried before this time */
	int64_t grow_after_ns;
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
	bool bad;          /* the log must be rewritten before any commit */
	int64_t retry_ns;
	uint64_t generation;         /* under `lock`: the last generation given out */
	struct nvme_records pending; /* lock */
	/* under `lock`: memory was short for a tombstone, so the log must be rewritten */
	bool lost;
	struct nvme_records writing;
};

enum nvme_phase {
	NVME_IDLE,
	NVME_KEYS, /* the tenants' keys are written, then synced */
	NVME_DATA_SYNC,
	NVME_LOG_WRITE,
	NVME_LOG_SYNC,
	NVME_SNAP_WRITE, /* a new log is being written */
	NVME_SNAP_SYNC,
};

struct nvme_commit {
	struct nvme_actor actor;
	enum nvme_phase phase;
	uint32_t under_way;
	bool failed;                /* some data could not be synced in this commit */
	uint64_t lost_syncs;        /* number of failed syncs of data so far */
	bool keys_failed;           /* the key of a tenant could not be written or destroyed */
	uint32_t sync_file;         /* next data file to check for a sync */
	struct nvme_stored *group;  /* chunks of the present commit */
	struct nvme_stored *stored; /* chunks of the next commit, in the order of their writes */
	struct nvme_stored **stored_end;
	uint64_t stored_bytes;
	int64_t stored_ns;  /* time when the oldest chunk in `stored` was written */
	int64_t pending_ns; /* time when the oldest waiting record was seen; 0: no record waits */
	uint32_t announces; /* among `stored` */
	bool wanted;        /* the next commit is to begin now, without waiting for bytes or time */
	bool folder_dirty;
	/* FLUSH requests that wait for the next commit; those that wait for the present one */
	struct kvt_tier_request *flushes, *flushing;
	uint64_t done_bytes; /* bytes of the present write that are finished */
	uint32_t attempts; /* number of failed rewrites of the log in a row */
	struct {
		struct kvt_file *file;
		uint8_t *buffer;
		uint64_t filled; /* bytes of buffer */
		uint64_t offset; /* where the next write goes in the new log's file */
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

/* Measures the rate of bytes during the time when operations were under way. */
struct nvme_rate {
	uint64_t bytes;   /* bytes moved in the present window */
	int64_t since_ns; /* time when operations began to be under way; 0: none is */
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
	bool closing; /* under `lock`: the function `gone` no longer writes records of removals */
	/* the folder or the lock file was removed: the store no longer belongs to this process */
	bool lost;
	bool let_go;  /* the files of the lost store are closed */
	int64_t look_ns; /* time of the next check whether the store is lost */
	bool caller_threads;
	struct kvt_io *io;
	struct kvt_index *index;
	struct kvt_sealer *sealer; /* NULL: plain */
	struct nvme_tenants *tenants;
	struct nvme_sums *sums;
	struct nvme_format format;
	/* capacity that the store would have if no other engine used the disk; the size of all
	 * structures follows from it */
	uint64_t capacity;
	/* this store's part of the disk; stores 0: the capacity is configured, and not shared */
	struct kvt_nvme_share share;
	char *path, *folder;         /* nvme_path, and the store's own folder below it */
	uint32_t engine_ranks;
	int64_t share_ns; /* time when `share` is computed next */
	uint32_t max_entries;
	uint64_t ttl_ns;
	uint64_t sync_bytes;
	int64_t sync_ns;
	uint32_t depth;

	pthread_mutex_t lock;
	struct nvme_queue reads, writes, others, cancelled; /* lock */
	uint64_t erases; /* under `lock`: number of erases that have begun */
	struct nvme_names *removed; /* under `lock`: removals to be reported, in order */
	struct nvme_names **removed_end;
	_Atomic bool asleep;

	struct nvme_space space;
	struct nvme_log log;
	struct nvme_commit commit;
	struct nvme_side *side;

	struct kvt_io_op *ops, *free_ops;
	/* for each operation of a job: the byte of the job's image at which it begins */
	uint64_t *op_at;
	struct kvt_io_op *batch, **batch_end; /* operations to submit */
	uint32_t ops_under_way;
	struct nvme_job *jobs, *free_jobs;
	struct nvme_job *issuing, **issuing_end; /* jobs with operations that have not begun */
	uint32_t writes_active, reads_active;

	uint32_t announce_cursor;
	bool announce_done;
	uint32_t announcing;        /* number of headers that are being read for events */
	/* chunks of this generation or an earlier one were found when the store was opened */
	uint64_t opened_generation;
	int64_t expire_ns;          /* next look */

	/* lock */
	struct nvme_rate read_rate, write_rate;
	uint64_t loads, load_bytes, stores, store_bytes, hits, misses, corrupt, io_errors;
	uint64_t name_bytes;
	uint32_t state; /* enum kvt_tier_state */
	char reason[KVT_REASON_BYTES];

	uint32_t failures; /* number of failed operations in a row */
};

/* --- nvme_ops.c --- */
/* Takes a free operation; NULL if there is none. */
struct kvt_io_op *nvme_op_take(struct nvme *t, struct nvme_actor *actor);
void nvme_op_begin(struct nvme *t, struct kvt_io_op *op);
void nvme_op_give(struct nvme *t, struct kvt_io_op *op);
void nvme_submit_batch(struct nvme *t);
size_t nvme_reap(struct nvme *t, int64_t wait_ns);
void nvme_finish(struct kvt_tier_request *request, enum kvt_status status);
struct nvme_job *nvme_job_take(struct nvme *t); /* Takes a free job; NULL if there is none. */
void nvme_job_give(struct nvme *t, struct nvme_job *job);
void nvme_queue_add(struct nvme_queue *q, struct kvt_tier_request *r);
void nvme_queue_push(struct nvme_queue *q, struct kvt_tier_request *r); /* in front */
struct kvt_tier_request *nvme_queue_take(struct nvme_queue *q);
/* These note that the system refused an operation, and that one succeeded. */
void nvme_io_failed(struct nvme *t, const char *what, int error);
void nvme_io_worked(struct nvme *t);

/* --- nvme_space.c --- */
enum kvt_status nvme_space_open(struct nvme *t);
void nvme_space_close(struct nvme *t);
/* Applies a change of the store's part of the disk. */
void nvme_space_allow(struct nvme *t);
/* Takes units for a chunk; creates a data file or evicts chunks if too few are free. KVT_FULL. */
enum kvt_status nvme_space_take(
	struct nvme *t, uint32_t units, struct kvt_extent *runs, uint32_t *count);
void nvme_space_give(struct nvme *t, const struct kvt_extent *runs, uint32_t count);
void nvme_place_pack(const struct kvt_extent *runs, uint32_t count, uint64_t place[4]);
uint32_t nvme_place_unpack(const uint64_t place[4], struct kvt_extent *runs);
/* Finds byte `at` of a chunk: its file, the offset there, and how many of the chunk's bytes follow
 * contiguously. */
struct nvme_file *nvme_space_find(struct nvme *t, const struct kvt_extent *runs, uint32_t count,
	uint64_t at, uint64_t *offset, uint64_t *together);
void nvme_data_name(uint32_t number, char out[16]);

/* --- nvme_transfer.c --- */
/* Makes room for the header and the image of a job whose runs, bytes and head_bytes are set.
 * `write`: also copies the end of the payload into the last page. KVT_ENOMEM. */
enum kvt_status nvme_transfer_prepare(struct nvme *t, struct nvme_job *job,
	const struct kvt_segment *segments, uint32_t count, bool bounce) KVT_MUST_CHECK;
enum kvt_status nvme_transfer_room(struct nvme_job *job, uint32_t head_bytes) KVT_MUST_CHECK;
/* begins the job's operations, which end in the actor's done */
void nvme_transfer_begin(struct nvme *t, struct nvme_job *job);
/* Lists the runs of memory that hold bytes [at, at + bytes) of the image; returns their number.
 * `out` has room for KVT_IO_MAX_PIECES. */
uint32_t nvme_transfer_slice(
	const struct nvme_job *job, uint64_t at, uint64_t bytes, struct iovec *out);
size_t nvme_transfer_issue(struct nvme *t);
/* Returns how many bytes of the image a finished operation moved, from byte *at on; 0: it
 * failed. */
uint64_t nvme_transfer_moved(const struct nvme *t, const struct kvt_io_op *op, uint64_t *at);
/* Accounts for a finished operation of a job. Returns true if it was the job's last one. */
bool nvme_transfer_done(struct nvme *t, struct nvme_job *job, struct kvt_io_op *op);
void nvme_copy_out(
	const uint8_t *from, const struct kvt_segment *to, uint32_t count, uint64_t bytes);
void nvme_rate_begin(struct nvme *t, struct nvme_rate *rate);
void nvme_rate_end(struct nvme *t, struct nvme_rate *rate, uint64_t bytes);

/* --- nvme_sums.c --- */
enum kvt_status nvme_sums_open(struct nvme *t) KVT_MUST_CHECK;
void nvme_sums_close(struct nvme *t); /* may be called only when no read is under way */
void nvme_sum_free(struct nvme_sum *sum);
/* Called before a read's operations begin, once its image is known. KVT_ENOMEM. */
enum kvt_status nvme_sum_begin(struct nvme *t, struct nvme_job *job) KVT_MUST_CHECK;
/* Called when an operation has read bytes [at, at + bytes) of the image: pieces that are now
 * complete wait to be summed. */
void nvme_sum_came(struct nvme *t, struct nvme_job *job, uint64_t at, uint64_t bytes);
/* Called when all operations of a read have ended. Returns false if some pieces are still to be
 * summed; then a later step calls the job's `summed`. */
bool nvme_sum_ended(struct nvme *t, struct nvme_job *job);
/* Checks whether the pieces that were read have the checksums of their header. KVT_ECORRUPT: *bad
 * is the number of the first wrong piece, from 0, and *of the number of pieces. KVT_MISS: the
 * pieces were not summed while being read, or the header has checksums of other pieces. */
enum kvt_status nvme_sum_judge(
	const struct nvme_job *job, const struct nvme_chunk *chunk, uint32_t *bad, uint32_t *of);
/* Sums some pieces and settles reads; returns the number of actions. */
size_t nvme_sums_step(struct nvme *t);
bool nvme_sums_due(struct nvme *t); /* returns whether nvme_sums_step would do anything */

/* --- nvme_write.c, nvme_read.c --- */
/* Returns false if no write can begin now; the request was put back into its queue. */
bool nvme_write_begin(struct nvme *t, struct nvme_job *job, struct kvt_tier_request *r);
void nvme_read_begin(struct nvme *t, struct nvme_job *job, struct kvt_tier_request *r);
/* Checks the header that was read for an entry against the data that the index and the log have
 * about it. */
enum kvt_status nvme_check_head(struct nvme *t, struct nvme_job *job, struct nvme_chunk *chunk);

/* --- nvme_log.c --- */
enum kvt_status nvme_records_add(struct nvme_records *r, const struct nvme_record *record);
/* Keeps a record for the next commit. The caller holds `lock`. */
enum kvt_status nvme_log_add(struct nvme *t, const struct nvme_record *record);
/* makes the ADD record of an entry */
void nvme_log_fill(struct nvme *t, uint32_t entry, struct nvme_record *out);
bool nvme_log_worn(struct nvme *t); /* returns whether the log should be rewritten */
void nvme_snap_begin(struct nvme *t);
void nvme_snap_step(struct nvme *t);
void nvme_snap_end(struct nvme *t, bool ok);

/* --- nvme_commit.c --- */
size_t nvme_commit_step(struct nvme *t, int64_t now);
void nvme_commit_init(struct nvme *t);
/* returns when the next commit is due; INT64_MAX: nothing waits for one */
int64_t nvme_commit_due(struct nvme *t, int64_t now);
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
/* Passes all wrapped keys in a store's folder to a sealer. KVT_MISS: the folder has no file of
 * keys. */
enum kvt_status nvme_seal_take_all(struct kvt_io *io, struct kvt_sealer *sealer);
/* Opens a sealed payload in place, to check it; the results are those of kvt_open_sealed. */
enum kvt_status nvme_seal_prove(struct kvt_sealer *sealer, const uint8_t store_id[16],
	const struct nvme_chunk *chunk, uint8_t *payload);
/* Seals the payload into job->bounce, and puts tags and sealed names into the chunk's header. */
enum kvt_status nvme_seal_chunk(struct nvme *t, struct nvme_job *job, struct nvme_chunk *chunk);
enum kvt_status nvme_open_chunk(
	struct nvme *t, struct nvme_job *job, const struct nvme_chunk *chunk);
enum kvt_status nvme_open_names(struct nvme *t, struct nvme_chunk *chunk); /* in place */
/* Destroys the keys of a tenant (NULL: of all tenants); the next commit overwrites them on disk.
 * Any thread. */
void nvme_seal_forget(struct nvme *t, const struct kvt_tenant *tenant, const struct kvt_slot_set *slots);
bool nvme_seal_waiting(struct nvme *t); /* returns whether keys wait to be written or overwritten */
/* Sets *op to the next operation on the file of keys; only one may be under way. Returns false if
 * none is left. */
bool nvme_seal_next(struct nvme *t, struct kvt_io_op *op);
void nvme_seal_ended(struct nvme *t, const struct kvt_io_op *op, bool ok);

/* --- nvme_recover.c --- */
/* Reads the store in t->io's folder (its format, files, index and log), or creates one. */
enum kvt_status nvme_recover(
	struct nvme *t, const struct kvt_config *config, const char *folder, char *why);

/* --- nvme_lost.c --- */
void nvme_lost_look(struct nvme *t, int64_t now);
bool nvme_lost(struct kvt_tier *base); /* as in tier.h */

/* --- nvme_announce.c --- */
void nvme_announce_stored(struct nvme *t, uint32_t entry, const struct kvt_blocks *names);
/* Reports the removals, in order, as events. */
size_t nvme_announce_tell(struct nvme *t);
size_t nvme_announce_step(struct nvme *t);
void nvme_announce_close(struct nvme *t);

#endif
