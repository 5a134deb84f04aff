/*
 * redis_tier.h - the shared parts of the Redis tier's files. No other file includes this.
 *
 *   redis_tier.c          the tier's functions and its step
 *   redis_jobs.c          requests under way and their end
 *   redis_ask.c           one command: its bytes, its answer, the meaning of a failure
 *   redis_read.c          reads a chunk: parts, footers, proof
 *   redis_write.c         writes a chunk
 *   redis_probe.c         finds the chunks of a chain that are there
 *   redis_erase.c         removes values from Redis
 *   redis_table.c         generations
 *   redis_keys.c          keys of tenants
 *   redis_quota.c         limits each tenant's bytes   redis_shares.c  and reports them
 *   redis_value.c         every byte of a value
 *
 * A request becomes a job, a job sends asks (struct redis_ask) until it knows enough, and ends once. Each ask has a
 * deadline and returns by then; while asks are under way the request's buffers are the client's, so a job ends only
 * with its last ask. A job that waits for something else (a tenant's key, room for a sealed copy) is parked and ends at
 * its own deadline.
 *
 * Threads. The tier's thread calls all functions except those marked "any thread": these use `lock`, or a lock of their
 * own (presence). No callback is called under `lock`.
 */
#ifndef KVT_REDIS_TIER_H
#define KVT_REDIS_TIER_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/random.h"
#include "tiers/presence.h"
#include "chunk/l2_url.h"
#include "chunk/note.h"
#include "redis/redis.h"
#include "tiers/redis/redis_value.h"
#include "protect/seal.h"
#include "tiers/tier.h"

#define REDIS_SILENT_NS 1000000    /* a late answer to a shorter deadline shows nothing about the server */
#define REDIS_SEGMENTS  (KVW_REDIS_MAX_PARTS - 4) /* most segments of one request */
#define REDIS_AT_ONCE   (32u << 20) /* bytes each way: enough to keep any network busy */
#define REDIS_PATIENCE  4           /* number of deadlines that a chunk may wait for its turn */

struct redis_tier;
struct redis_job;

/* --- asking: redis_ask.c ----------------------------------------------------------------------- */

/* A word of a command; `at` NULL: that many bytes of the given segments. */
struct redis_word {
	const void *at;
	size_t len;
};

/* One command under way, in one allocation with its bytes. */
struct redis_ask {
	struct kvw_redis_command command; /* first */
	struct redis_tier *t;
	void (*answered)(struct redis_ask *ask); /* called when the ask is its owner's again */
	void *owner;
	uint32_t number; /* the owner's */
	int64_t sent_ns;
	uint8_t *buffer; /* room for a short answer; the command's lead */
	uint32_t buffer_bytes;
};

/* words[0] is the verb, words[1] the key, which decides the slot. Segments are the value if a word says so, else the
 * target of a bulk answer after `buffer` bytes. NULL: no memory. */
struct redis_ask *redis_ask_new(struct redis_tier *t, const struct redis_word *words, size_t count,
	const struct kvt_segment *segments, uint32_t segment_count, uint32_t buffer);
void redis_ask_free(struct redis_ask *ask); /* NULL is allowed */
void redis_ask_send(struct redis_ask *ask, void (*answered)(struct redis_ask *ask), void *owner,
	int64_t deadline_ns);

/* Reads the end of a chunk's first part: GETRANGE into its buffer. NULL: no memory. */
struct redis_ask *redis_ask_footer(struct redis_tier *t, const struct kvt_key *key);
/* Sends a verb about a chunk's parts from `first` on, `parts` in all. NULL: no memory. */
struct redis_ask *redis_ask_parts(struct redis_tier *t, const char *verb, const struct kvt_key *key,
	uint32_t first, uint32_t parts);

#define REDIS_WORD(text) ((struct redis_word){(text), sizeof(text) - 1})

/* The tier's status for the client's result. */
enum kvt_status redis_status(enum kvw_err err);
/* The meaning of an answer for a request: KVT_OK: an answer, and no error of the server. KVT_MISS: late, though the
 * server answers other requests. KVT_EIO. KVT_FULL: the server stores nothing at present, or the answer was too long.
 * KVT_ECORRUPT: the key holds another type. */
enum kvt_status redis_ask_status(const struct redis_ask *ask);
/* Copies `len` bytes of the bulk answer from `at` on, wherever they were stored. */
void redis_ask_copy(const struct redis_ask *ask, uint64_t at, void *out, size_t len);

/* --- keys of tenants: redis_keys.c -------------------------------------------------------------- */

enum redis_key_state { KEY_NONE, KEY_ASKS, KEY_SETS, KEY_KNOWN };

/* A tenant's wrapped key in Redis, as far as known. */
struct redis_tenant {
	struct redis_tenant *next; /* next in its bucket */
	struct redis_tier *t;
	struct kvt_tenant tenant;
	bool create_key; /* a job waits to write */
	enum redis_key_state key_state;
	int64_t key_failed_ns;
	enum kvt_status key_failure;
	uint64_t round;     /* the tier's round in which the key was read */
	uint32_t under_way; /* commands */
	int64_t used_ns;
};

#define REDIS_BUCKETS 1024u
#define REDIS_TENANTS 4096u

struct redis_tenants {
	struct redis_tenant *buckets[REDIS_BUCKETS];
	uint32_t count;
};

void redis_keys_finish(struct redis_tier *t);
/* Ensures that the sealer has the tenant's key. KVT_BUSY: the job is parked, job->resume follows. again: the sealer's
 * key does not open the value, so read Redis' key again. */
enum kvt_status redis_tenant_key(struct redis_job *job, const struct kvt_tenant *tenant,
	bool create, bool again) KVT_MUST_CHECK;

/* --- jobs -------------------------------------------------------------------------------------- */

enum redis_answer_state {
	ANSWER_NONE, /* not asked */
	ANSWER_THERE,
	ANSWER_ABSENT,
	ANSWER_BELIEVED_THERE, /* by presence */
	ANSWER_BELIEVED_ABSENT,
	ANSWER_LATE, /* no answer in time */
};

/* A probe's result for one key. */
struct redis_answer {
	enum redis_answer_state state;
	struct kvt_tier_known known;
};

/* A request under way. */
struct redis_job {
	TAILQ_ENTRY(redis_job) entry; /* entry of its present list */
	struct redis_tier *t;
	struct kvt_tier_request *request;
	uint64_t number; /* by arrival */
	int64_t begun_ns, deadline_ns;
	uint64_t turn;      /* its bytes in the tier's `moving` */
	const void *parked; /* the object that it waits for; NULL: none */
	void (*resume)(struct redis_job *job); /* called when that object has changed */
	uint32_t left;                         /* asks under way */
	enum kvt_status status;
	/* READ, WRITE */
	struct redis_ask **asks; /* one per part */
	uint32_t parts, part_bytes;
	bool again; /* read: sent a second time, by the footer's part size */
	bool key_again;
	/* write: until its tenant has room; owned */
	struct redis_admission *admission;
	struct redis_account_entry *victims;
	struct redis_footer footer; /* footer of the first part */
	uint8_t *extra;             /* names and tags */
	uint8_t *bounce;            /* sealed bytes */
	uint64_t bounce_bytes;
	/* PROBE, ERASE: one per key; `at` is the next key */
	size_t at;
	size_t missing; /* PROBE: the first missing key */
	bool asking;    /* more commands are being made: an answer that arrives now waits */
	struct redis_answer *answers;
	/* FLUSH */
	size_t changes; /* FLUSH: older changes under way */
};

TAILQ_HEAD(redis_jobs, redis_job);

bool redis_is_change(const struct redis_job *job); /* returns whether a flush waits for the job */
void redis_job_park(struct redis_job *job, const void *on, void (*resume)(struct redis_job *job));
struct redis_job *redis_parked_on(const struct redis_tier *t, const void *on); /* NULL: none */
void redis_resume(struct redis_tier *t, const void *on); /* resumes all jobs parked on that object */
/* Ends a job and frees it; none of its asks may be under way. */
void redis_job_end(struct redis_job *job, enum kvt_status status);
/* Takes room for a sealed copy; KVT_BUSY: parked. */
enum kvt_status redis_job_bounce(struct redis_job *job, uint64_t bytes,
	void (*resume)(struct redis_job *job)) KVT_MUST_CHECK;
/* The segments of `len` bytes from `from` on of the job's chunk: in the sealed copy or the request's segments. Returns
 * their number, at most REDIS_SEGMENTS. */
uint32_t redis_job_slice(
	const struct redis_job *job, uint64_t from, uint64_t len, struct kvt_segment *out);

/* Each of these begins a job, which may end at once. */
void redis_read_begin(struct redis_job *job);
void redis_write_begin(struct redis_job *job);
/* Takes a chunk's turn to be read or written: KVT_BUSY: parked until then. Deadlines count from then. */
enum kvt_status redis_job_turn(
	struct redis_job *job, void (*resume)(struct redis_job *job)) KVT_MUST_CHECK;
void redis_probe_begin(struct redis_job *job);
void redis_erase_begin(struct redis_job *job);
void redis_table_begin(struct redis_job *job); /* redis_table.c */

struct kvt_seal_place redis_place(
	const struct redis_tier *t, const struct redis_footer *f, uint32_t tier, uint64_t bytes);
/* Names are sealed for another kind of tier than a payload, so that neither opens as the other. */
#define REDIS_NAMES_TIER (KVT_TIER_L2 | 0x100u)

/* TTL for PX in milliseconds, 0: none; `text` has room for 24. */
uint64_t redis_ttl_ms(const struct redis_tier *t, const struct kvt_item *item);

/* --- erasing: redis_erase.c ---------------------------------------------------------------------- */

/* Unlinks a corrupt value; no job waits for it. */
void redis_drop(struct redis_tier *t, const struct kvt_key *key);

/* End a read whose chunk is missing, or is corrupt and then dropped. */
void redis_read_missing(struct redis_job *job);
void redis_read_corrupt(struct redis_job *job);

/* --- quotas: redis_quota.c, redis_shares.c ------------------------------------------------------ */

struct redis_quota {
	uint64_t bytes;              /* limit for each tenant; 0: none */
	struct redis_recent *recent; /* owned; NULL without a quota */
};

/* A chunk in a tenant's account, in the server's names. */
struct redis_account_entry {
	char member[80]; /* the key's 32 bytes, then "BYTES:PARTS" */
	size_t len;
	char score[40]; /* time of the last write or read, in Redis' form of numbers */
};

enum kvt_status redis_quota_init(struct redis_tier *t, uint64_t bytes) KVT_MUST_CHECK;
void redis_quota_finish(struct redis_tier *t);
/* Calls `admitted` when the tenant of job->footer's chunk has room for it, or ends the job. */
void redis_quota_admit(struct redis_job *job, void (*admitted)(struct redis_job *job));
void redis_quota_read(struct redis_tier *t, const struct redis_footer *f); /* notes a read: the chunk is young again */

/* Note a tenant's bytes; forget a tenant (NULL: all). Any thread. */
void redis_shares_note(
	struct redis_tier *t, const struct kvt_tenant *tenant, uint64_t bytes, uint64_t chunks);
void redis_shares_refused(struct redis_tier *t, const struct kvt_tenant *tenant); /* counts one refused chunk */
void redis_shares_list(struct redis_tier *t, size_t most, struct kvt_tenant_list *out);

/* --- the tier ---------------------------------------------------------------------------------- */

struct redis_counters {
	uint64_t hits, misses, corrupt, io_errors, erased;
	uint64_t loads, load_bytes, stores, store_bytes;
	uint64_t quota_evicted, quota_refused; /* chunks, for protect.tenant_l2_bytes */
};

struct redis_tier {
	struct kvt_tier base;
	const struct kvt_surroundings *s;
	struct kvw_redis *redis;
	struct kvt_presence *presence;
	struct kvt_sealer *sealer; /* NULL: plain */
	struct kvt_fingerprint fingerprint;
	uint8_t store_id[16]; /* of seals */
	bool cluster;
	uint32_t part_bytes, tokens_per_chunk;
	uint64_t deadline_ns, ttl_ns, chunk_ttl_ns, bounce_limit;
	uint64_t seed;      /* state of random numbers that are not secret */
	uint64_t hash_seed; /* hash seed of the table of tenants */

	/* the tier's thread: */
	struct redis_jobs active, parked, flushes;
	uint64_t next_number;
	size_t changes; /* writes and erases that have not ended */
	uint64_t bounce_used;
	uint64_t moving[2]; /* bytes of begun reads, and of begun writes */
	int64_t heard_ns;   /* time of the last answer of any server */
	int64_t told_ns;    /* time of the last log line about refused writes */
	uint64_t refused;
	struct redis_tenants tenants;
	struct redis_quota quota;
	bool closing;

	/* any thread */
	pthread_mutex_t lock;
	struct kvt_tier_request *queue, **queue_end; /* lock */
	struct redis_counters counters;              /* lock */
	struct kvt_tenant_list shares;               /* lock: bytes of tenants */
	_Atomic uint64_t key_round; /* count of changes of generations, which destroy tenants' keys */
	atomic_bool asleep;
};

#define REDIS_COUNT(t, counter, n)                                                                 \
	do {                                                                                       \
		pthread_mutex_lock(&(t)->lock);                                                    \
		(t)->counters.counter += (n);                                                      \
		pthread_mutex_unlock(&(t)->lock);                                                  \
	} while (0)

/* Logs "redis: stores nothing: ...", at most once in a while. */
void redis_refused(struct redis_tier *t, const char *why);

#endif
