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

/* a request with a deadline shorter than this says nothing about the server when its answer is
 * late */
#define REDIS_SILENT_NS 1000000
#define REDIS_SEGMENTS  (KVW_REDIS_MAX_PARTS - 4) /* most segments of one request */
/* bytes under way in each direction: enough to keep any network busy */
#define REDIS_AT_ONCE   (32u << 20)
#define REDIS_PATIENCE  4           /* a chunk waits for its turn for at most this many deadlines */

struct redis_tier;
struct redis_job;

/* --- asking: redis_ask.c
 * ----------------------------------------------------------------------- */

/* A word of a command. If `at` is NULL, the word is that many bytes of the given segments. */
struct redis_word {
	const void *at;
	size_t len;
};

/* A command under way. The struct and its bytes are one allocation. */
struct redis_ask {
	struct kvw_redis_command command; /* first */
	struct redis_tier *t;
	/* called when the command has ended, and the ask belongs to its owner again */
	void (*answered)(struct redis_ask *ask);
	void *owner;
	uint32_t number; /* the owner's */
	int64_t sent_ns;
	uint8_t *buffer; /* first the leading bytes of the command, then a short answer */
	uint32_t buffer_bytes;
};

/* Makes a command. words[0] is the verb, and words[1] the key, which decides the slot. The segments
 * are the value if one of the words refers to them; otherwise a bulk answer goes into `buffer`
 * bytes first, then into the segments. Returns NULL if memory is short. */
struct redis_ask *redis_ask_new(struct redis_tier *t, const struct redis_word *words, size_t count,
	const struct kvt_segment *segments, uint32_t segment_count, uint32_t buffer);
void redis_ask_free(struct redis_ask *ask); /* NULL is allowed */
void redis_ask_send(struct redis_ask *ask, void (*answered)(struct redis_ask *ask), void *owner,
	int64_t deadline_ns);

/* Reads the end of a chunk's first part with GETRANGE, into the ask's buffer. Returns NULL if
 * memory is short. */
struct redis_ask *redis_ask_footer(struct redis_tier *t, const struct kvt_key *key);
/* Makes a command with this verb about parts `first` to `parts` - 1 of a chunk. Returns NULL if
 * memory is short. */
struct redis_ask *redis_ask_parts(struct redis_tier *t, const char *verb, const struct kvt_key *key,
	uint32_t first, uint32_t parts);

#define REDIS_WORD(text) ((struct redis_word){(text), sizeof(text) - 1})

/* Converts the client's result to a status of the tier. */
enum kvt_status redis_status(enum kvw_err err);
/* Status of a request by the answer to its command. KVT_OK: the server answered, without an error.
 * KVT_MISS: the answer is late, though the server answers other requests. KVT_EIO. KVT_FULL: the
 * server stores nothing at present, or the answer was too long. KVT_ECORRUPT: the key holds another
 * type. */
enum kvt_status redis_ask_status(const struct redis_ask *ask);
/* Copies `len` bytes of the bulk answer, from byte `at` on, from buffer and segments. */
void redis_ask_copy(const struct redis_ask *ask, uint64_t at, void *out, size_t len);

/* --- keys of tenants: redis_keys.c
 * -------------------------------------------------------------- */

enum redis_key_state { KEY_NONE, KEY_ASKS, KEY_SETS, KEY_KNOWN };

/* A tenant's wrapped key in Redis, and how much this handle knows of it. */
struct redis_tenant {
	struct redis_tenant *next; /* next tenant in the bucket of the hash table */
	struct redis_tier *t;
	struct kvt_tenant tenant;
	bool create_key; /* a job waits to write a chunk, so a key is made if there is none */
	enum redis_key_state key_state;
	int64_t key_failed_ns;
	enum kvt_status key_failure;
	uint64_t round;     /* the tier's key_round when the key was read */
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
/* Ensures that the sealer has the tenant's key. KVT_BUSY: the job is parked, and job->resume will
 * be called. again: the key that the sealer has did not open the value, so Redis is asked again. */
enum kvt_status redis_tenant_key(struct redis_job *job, const struct kvt_tenant *tenant,
	bool create, bool again) KVT_MUST_CHECK;

/* --- jobs
 * -------------------------------------------------------------------------------------- */

enum redis_answer_state {
	ANSWER_NONE, /* not asked */
	ANSWER_THERE,
	ANSWER_ABSENT,
	ANSWER_BELIEVED_THERE, /* the presence table has it */
	ANSWER_BELIEVED_ABSENT,
	ANSWER_LATE, /* there was no answer in time */
};

/* The answers that a probe got for one key. */
struct redis_answer {
	enum redis_answer_state state;
	struct kvt_tier_known known;
};

/* A request under way. */
struct redis_job {
	TAILQ_ENTRY(redis_job) entry; /* entry of the list in which the job is now */
	struct redis_tier *t;
	struct kvt_tier_request *request;
	uint64_t number; /* numbered by arrival */
	int64_t begun_ns, deadline_ns;
	uint64_t turn;      /* bytes that the job has added to the tier's `moving` */
	const void *parked; /* the object for which the job waits; NULL: it is not parked */
	void (*resume)(struct redis_job *job); /* called when the object in `parked` has changed */
	uint32_t left;                         /* asks under way */
	enum kvt_status status;
	/* READ, WRITE */
	struct redis_ask **asks; /* one per part */
	uint32_t parts, part_bytes;
	bool again; /* read: sent a second time, with the part size that the footer gave */
	bool key_again;
	/* WRITE: state while the chunk waits until its tenant has room; owned */
	struct redis_admission *admission;
	struct redis_account_entry *victims;
	struct redis_footer footer; /* footer of the first part */
	uint8_t *extra;             /* names and tags */
	uint8_t *bounce;            /* sealed bytes */
	uint64_t bounce_bytes;
	/* PROBE and ERASE: one entry per key; `at` is the next key to be sent */
	size_t at;
	size_t missing; /* PROBE: index of the first missing key */
	bool asking; /* commands are being sent now, so an answer that arrives does not send more */
	struct redis_answer *answers;
	/* FLUSH */
	size_t changes; /* FLUSH: number of older changes under way */
};

TAILQ_HEAD(redis_jobs, redis_job);

bool redis_is_change(const struct redis_job *job); /* returns whether a flush waits for the job */
void redis_job_park(struct redis_job *job, const void *on, void (*resume)(struct redis_job *job));
struct redis_job *redis_parked_on(const struct redis_tier *t, const void *on); /* NULL: none */
/* resumes all jobs that are parked on that object */
void redis_resume(struct redis_tier *t, const void *on);
/* Ends a job and frees it. None of its asks may be under way. */
void redis_job_end(struct redis_job *job, enum kvt_status status);
/* Takes room for a sealed copy. KVT_BUSY: there is none, and the job is parked. */
enum kvt_status redis_job_bounce(struct redis_job *job, uint64_t bytes,
	void (*resume)(struct redis_job *job)) KVT_MUST_CHECK;
/* Lists the segments that hold `len` bytes of the job's chunk, from byte `from` on: in the sealed
 * copy if there is one, else in the request's segments. Returns their number, at most
 * REDIS_SEGMENTS. */
uint32_t redis_job_slice(
	const struct redis_job *job, uint64_t from, uint64_t len, struct kvt_segment *out);

/* Each of these begins a job, which may end at once. */
void redis_read_begin(struct redis_job *job);
void redis_write_begin(struct redis_job *job);
/* Takes a chunk's turn to be read or written. KVT_BUSY: too many bytes are under way, and the job
 * is parked until its turn. The job's deadline counts from its turn on. */
enum kvt_status redis_job_turn(
	struct redis_job *job, void (*resume)(struct redis_job *job)) KVT_MUST_CHECK;
void redis_probe_begin(struct redis_job *job);
void redis_erase_begin(struct redis_job *job);
void redis_table_begin(struct redis_job *job); /* redis_table.c */

struct kvt_seal_place redis_place(
	const struct redis_tier *t, const struct redis_footer *f, uint32_t tier, uint64_t bytes);
/* Names are sealed for another kind of tier than a payload, so that neither opens as the other. */
#define REDIS_NAMES_TIER (KVT_TIER_L2 | 0x100u)

/* Returns the TTL in milliseconds, as PX takes it; 0: the chunk has none. */
uint64_t redis_ttl_ms(const struct redis_tier *t, const struct kvt_item *item);

/* --- erasing: redis_erase.c
 * ---------------------------------------------------------------------- */

/* Unlinks a corrupt value. No job waits for the result. */
void redis_drop(struct redis_tier *t, const struct kvt_key *key);

/* These end a read: of a chunk that is missing, and of one that is corrupt, which is also
 * unlinked. */
void redis_read_missing(struct redis_job *job);
void redis_read_corrupt(struct redis_job *job);

/* --- quotas: redis_quota.c, redis_shares.c
 * ------------------------------------------------------ */

struct redis_quota {
	uint64_t bytes;              /* limit for each tenant; 0: no limit */
	struct redis_recent *recent; /* owned; NULL if there is no quota */
};

/* A chunk in a tenant's account, in the server's names. */
struct redis_account_entry {
	char member[80]; /* the 32 bytes of the key, then "BYTES:PARTS" */
	size_t len;
	/* time of the last write or read, as text in the form that Redis uses for scores */
	char score[40];
};

enum kvt_status redis_quota_init(struct redis_tier *t, uint64_t bytes) KVT_MUST_CHECK;
void redis_quota_finish(struct redis_tier *t);
/* Calls `admitted` when the tenant of the chunk in job->footer has room for it; if the tenant gets
 * no room, ends the job. */
void redis_quota_admit(struct redis_job *job, void (*admitted)(struct redis_job *job));
/* notes that the chunk was read, so that it counts as young again */
void redis_quota_read(struct redis_tier *t, const struct redis_footer *f);

/* These note how many bytes a tenant has, and forget a tenant (NULL: all tenants). Any thread. */
void redis_shares_note(
	struct redis_tier *t, const struct kvt_tenant *tenant, uint64_t bytes, uint64_t chunks);
/* counts one chunk that was refused for its tenant's quota */
void redis_shares_refused(struct redis_tier *t, const struct kvt_tenant *tenant);
void redis_shares_list(struct redis_tier *t, size_t most, struct kvt_tenant_list *out);

/* --- the tier
 * ---------------------------------------------------------------------------------- */

struct redis_counters {
	uint64_t hits, misses, corrupt, io_errors, erased;
	uint64_t loads, load_bytes, stores, store_bytes;
	/* numbers of chunks unlinked and refused for protect.tenant_l2_bytes */
	uint64_t quota_evicted, quota_refused;
};

struct redis_tier {
	struct kvt_tier base;
	const struct kvt_surroundings *s;
	struct kvw_redis *redis;
	struct kvt_presence *presence;
	struct kvt_sealer *sealer; /* NULL: plain */
	struct kvt_fingerprint fingerprint;
	uint8_t store_id[16]; /* id for seals */
	bool cluster;
	uint32_t part_bytes, tokens_per_chunk;
	uint64_t deadline_ns, ttl_ns, chunk_ttl_ns, bounce_limit;
	uint64_t seed;      /* state of a generator of random numbers that need not be secret */
	uint64_t hash_seed; /* seed for the hash table of tenants */

	/* the tier's thread: */
	struct redis_jobs active, parked, flushes;
	uint64_t next_number;
	size_t changes; /* number of writes and erases under way */
	uint64_t bounce_used;
	/* bytes of the reads that have begun; bytes of the writes that have begun */
	uint64_t moving[2];
	int64_t heard_ns;   /* time when any server last answered */
	int64_t told_ns;    /* time of the last log line about refused writes */
	uint64_t refused;
	struct redis_tenants tenants;
	struct redis_quota quota;
	bool closing;

	/* any thread */
	pthread_mutex_t lock;
	struct kvt_tier_request *queue, **queue_end; /* lock */
	struct redis_counters counters;              /* lock */
	struct kvt_tenant_list shares;               /* bytes of each tenant; under `lock` */
	/* number of changes of generations so far; each may destroy tenants' keys */
	_Atomic uint64_t key_round;
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
