/*
 * redis_tier.h - the Redis tier from inside: what its files share. No other file includes this.
 *
 *   redis_tier.c          the tier's functions and its step
 *   redis_jobs.c          requests on their way and their end
 *   redis_ask.c           one command: its bytes, its answer, what a failure means
 *   redis_read.c          a chunk comes: parts, footers, proof
 *   redis_write.c         a chunk goes
 *   redis_probe.c         which of a chain are there
 *   redis_erase.c         values leave Redis
 *   redis_table.c         generations
 *   redis_keys.c          keys of tenants
 *   redis_quota.c         how many bytes each tenant may have   redis_shares.c  and has
 *   redis_value.c         every byte of a value
 *
 * A request becomes a job, a job asks (struct redis_ask) until it knows enough, and ends once. What
 * it asks through the client has a deadline and comes back by it; while asks are under way the
 * request's buffers are the client's, so a job ends only with its last ask. A job that waits for
 * something else (a tenant's key, room for a sealed copy) is parked and ends at its own
 * deadline.
 *
 * Threads. Everything from the tier's thread, but what says "any thread": that is under `lock`, or
 * has one of its own (presence). No callback is called under it.
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

#define REDIS_SILENT_NS 1000000    /* a deadline that was shorter says nothing about the server */
#define REDIS_SEGMENTS  (KVW_REDIS_MAX_PARTS - 4) /* of one request */
#define REDIS_AT_ONCE   (32u << 20) /* bytes each way: enough for any network to be busy */
#define REDIS_PATIENCE  4           /* deadlines that a chunk may wait for its turn */

struct redis_tier;
struct redis_job;

/* --- asking: redis_ask.c ----------------------------------------------------------------------- */

/* A word of a command; `at` NULL: so many bytes of the segments that are handed in. */
struct redis_word {
	const void *at;
	size_t len;
};

/* One command on its way, in one allocation with its bytes. */
struct redis_ask {
	struct kvw_redis_command command; /* first */
	struct redis_tier *t;
	void (*answered)(struct redis_ask *ask); /* it is the owner's again */
	void *owner;
	uint32_t number; /* the owner's */
	int64_t sent_ns;
	uint8_t *buffer; /* room for a short answer; the command's lead */
	uint32_t buffer_bytes;
};

/* words[0] is the verb, words[1] the key, whose slot it goes to. Segments are the value if a word
 * says so, else where a bulk answer goes behind `buffer` bytes. NULL: no memory. */
struct redis_ask *redis_ask_new(struct redis_tier *t, const struct redis_word *words, size_t count,
	const struct kvt_segment *segments, uint32_t segment_count, uint32_t buffer);
void redis_ask_free(struct redis_ask *ask); /* NULL is allowed */
void redis_ask_send(struct redis_ask *ask, void (*answered)(struct redis_ask *ask), void *owner,
	int64_t deadline_ns);

/* The end of a chunk's first part: GETRANGE into its buffer. NULL: no memory. */
struct redis_ask *redis_ask_footer(struct redis_tier *t, const struct kvt_key *key);
/* A verb about a chunk's parts from `first` on, `parts` in all. NULL: no memory. */
struct redis_ask *redis_ask_parts(struct redis_tier *t, const char *verb, const struct kvt_key *key,
	uint32_t first, uint32_t parts);

#define REDIS_WORD(text) ((struct redis_word){(text), sizeof(text) - 1})

/* The client's outcomes in the tier's words. */
enum kvt_status redis_status(enum kvw_err err);
/* What an answer means to a request: KVT_OK: there is one, and it is no error of the server's.
 * KVT_MISS: late, though the server answers others. KVT_EIO. KVT_FULL: the server stores nothing at
 * present, or the answer was too long. KVT_ECORRUPT: another type lies under this name. */
enum kvt_status redis_ask_status(const struct redis_ask *ask);
/* `len` bytes of the bulk answer from `at` on, wherever they went. */
void redis_ask_copy(const struct redis_ask *ask, uint64_t at, void *out, size_t len);

/* --- keys of tenants: redis_keys.c -------------------------------------------------------------- */

enum redis_key_state { KEY_NONE, KEY_ASKS, KEY_SETS, KEY_KNOWN };

/* What is known of a tenant's wrapped key in Redis. */
struct redis_tenant {
	struct redis_tenant *next; /* of its bucket */
	struct redis_tier *t;
	struct kvt_tenant tenant;
	bool create_key; /* a job waits to write */
	enum redis_key_state key_state;
	int64_t key_failed_ns;
	enum kvt_status key_failure;
	uint64_t round;     /* of the tier, in which it was asked for */
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
/* The tenant's key is in the sealer. KVT_BUSY: the job is parked, job->resume follows. again: what it has does not open, ask
 * Redis. */
enum kvt_status redis_tenant_key(struct redis_job *job, const struct kvt_tenant *tenant,
	bool create, bool again) KVT_MUST_CHECK;

/* --- jobs -------------------------------------------------------------------------------------- */

enum redis_answer_state {
	ANSWER_NONE, /* not asked */
	ANSWER_THERE,
	ANSWER_ABSENT,
	ANSWER_BELIEVED_THERE, /* by presence */
	ANSWER_BELIEVED_ABSENT,
	ANSWER_LATE, /* no answer came */
};

/* What a probe learned of one key. */
struct redis_answer {
	enum redis_answer_state state;
	struct kvt_tier_known known;
};

/* A request on its way. */
struct redis_job {
	TAILQ_ENTRY(redis_job) entry; /* of the list that it is on */
	struct redis_tier *t;
	struct kvt_tier_request *request;
	uint64_t number; /* by arrival */
	int64_t begun_ns, deadline_ns;
	uint64_t turn;      /* its bytes in the tier's `moving` */
	const void *parked; /* what it waits for; NULL: it does not */
	void (*resume)(struct redis_job *job); /* when that has changed */
	uint32_t left;                         /* asks under way */
	enum kvt_status status;
	/* READ, WRITE */
	struct redis_ask **asks; /* one per part */
	uint32_t parts, part_bytes;
	bool again; /* read: asked a second time, as the footer said */
	bool key_again;
	/* write: until its tenant has room; owned */
	struct redis_admission *admission;
	struct redis_account_entry *victims;
	struct redis_footer footer; /* of the first part */
	uint8_t *extra;             /* names and tags */
	uint8_t *bounce;            /* sealed bytes */
	uint64_t bounce_bytes;
	/* PROBE, ERASE: of each key; `at` is the next one to ask for */
	size_t at;
	size_t missing; /* PROBE: the first key that is not there */
	bool asking;    /* more commands are being made: an answer that comes now waits */
	struct redis_answer *answers;
	/* FLUSH */
	size_t changes; /* begun before it, under way */
};

TAILQ_HEAD(redis_jobs, redis_job);

bool redis_is_change(const struct redis_job *job); /* what a flush waits for */
void redis_job_park(struct redis_job *job, const void *on, void (*resume)(struct redis_job *job));
struct redis_job *redis_parked_on(const struct redis_tier *t, const void *on); /* NULL: none */
void redis_resume(struct redis_tier *t, const void *on); /* all that are parked on it */
/* Ends it and frees it; nothing of it may be under way. */
void redis_job_end(struct redis_job *job, enum kvt_status status);
/* Room for a sealed copy; KVT_BUSY: parked. */
enum kvt_status redis_job_bounce(struct redis_job *job, uint64_t bytes,
	void (*resume)(struct redis_job *job)) KVT_MUST_CHECK;
/* Where `len` bytes from `from` on of its chunk are: in the sealed copy or the request's segments.
 * Returns how many segments, at most REDIS_SEGMENTS. */
uint32_t redis_job_slice(
	const struct redis_job *job, uint64_t from, uint64_t len, struct kvt_segment *out);

/* Each of these begins a job, which may end at once. */
void redis_read_begin(struct redis_job *job);
void redis_write_begin(struct redis_job *job);
/* A chunk's turn, read or written: KVT_BUSY: parked until it comes. Deadlines count from then. */
enum kvt_status redis_job_turn(
	struct redis_job *job, void (*resume)(struct redis_job *job)) KVT_MUST_CHECK;
void redis_probe_begin(struct redis_job *job);
void redis_erase_begin(struct redis_job *job);
void redis_table_begin(struct redis_job *job); /* redis_table.c */

struct kvt_seal_place redis_place(
	const struct redis_tier *t, const struct redis_footer *f, uint32_t tier, uint64_t bytes);
/* Names are sealed as something else than a payload, so that neither opens as the other. */
#define REDIS_NAMES_TIER (KVT_TIER_L2 | 0x100u)

/* PX in milliseconds, 0: none; `text` has room for 24. */
uint64_t redis_ttl_ms(const struct redis_tier *t, const struct kvt_item *item);

/* --- erasing: redis_erase.c ---------------------------------------------------------------------- */

/* Unlinks a value that is not what it should be; no job waits for it. */
void redis_drop(struct redis_tier *t, const struct kvt_key *key);

/* Ends a read whose chunk is not there, or is there and wrong: then it is dropped. */
void redis_read_missing(struct redis_job *job);
void redis_read_corrupt(struct redis_job *job);

/* --- quotas: redis_quota.c, redis_shares.c ------------------------------------------------------ */

struct redis_quota {
	uint64_t bytes;              /* of each tenant; 0: none */
	struct redis_recent *recent; /* owned; NULL without a quota */
};

/* A chunk in a tenant's account, by names that are the server's. */
struct redis_account_entry {
	char member[80]; /* the key's 32 bytes, then "BYTES:PARTS" */
	size_t len;
	char score[40]; /* when it was written or read, as Redis writes numbers */
};

enum kvt_status redis_quota_init(struct redis_tier *t, uint64_t bytes) KVT_MUST_CHECK;
void redis_quota_finish(struct redis_tier *t);
/* job->footer is made. Calls `admitted` when its tenant has room for it, or ends the job. */
void redis_quota_admit(struct redis_job *job, void (*admitted)(struct redis_job *job));
void redis_quota_read(struct redis_tier *t, const struct redis_footer *f); /* it was: it is young again */

/* Any thread. A tenant has so much / (NULL: any) has nothing that is known. */
void redis_shares_note(
	struct redis_tier *t, const struct kvt_tenant *tenant, uint64_t bytes, uint64_t chunks);
void redis_shares_refused(struct redis_tier *t, const struct kvt_tenant *tenant); /* counts one chunk */
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
	uint64_t seed;      /* of random numbers that are no secrets */
	uint64_t hash_seed; /* of the table of tenants */

	/* the tier's thread */
	struct redis_jobs active, parked, flushes;
	uint64_t next_number;
	size_t changes; /* writes and erases that have not ended */
	uint64_t bounce_used;
	uint64_t moving[2]; /* bytes of reads, and of writes, that have begun */
	int64_t heard_ns;   /* the last answer of a server's */
	int64_t told_ns;    /* the last line about refused writes */
	uint64_t refused;
	struct redis_tenants tenants;
	struct redis_quota quota;
	bool closing;

	/* any thread */
	pthread_mutex_t lock;
	struct kvt_tier_request *queue, **queue_end; /* lock */
	struct redis_counters counters;              /* lock */
	struct kvt_tenant_list shares;               /* lock: what tenants had */
	_Atomic uint64_t key_round; /* counts changes of generations, which destroy tenants' keys */
	atomic_bool asleep;
};

#define REDIS_COUNT(t, counter, n)                                                                 \
	do {                                                                                       \
		pthread_mutex_lock(&(t)->lock);                                                    \
		(t)->counters.counter += (n);                                                      \
		pthread_mutex_unlock(&(t)->lock);                                                  \
	} while (0)

/* "redis: stores nothing: ...", at most once in a while. */
void redis_refused(struct redis_tier *t, const char *why);

#endif
