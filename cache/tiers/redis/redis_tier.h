/*
 * redis_tier.h - the Redis tier from inside: what its files share. No other file includes this.
 *
 *   redis_tier.c          the tier's functions and its step
 *   redis_jobs.c          requests on their way and their end
 *   redis_ask.c           one command: its bytes, its answer, what a failure means
 *   redis_read.c          a chunk comes: parts, footers, proof
 *   redis_write.c         a chunk goes
 *   redis_probe.c         which of a chain are there
 *   redis_erase.c         keys that must not be read any more, until Redis has forgotten them
 *   redis_clean.c         values of former epochs leave Redis in the background
 *   redis_tenants.c       epochs, and keys of tenants
 *   redis_elsewhere.c     what other handles erased
 *   redis_looks.c         epochs are asked for by the clock
 *   redis_quota.c         how many bytes each tenant may have   redis_shares.c  and has
 *   redis_value.c         every byte of a value
 *
 * A request becomes a job, a job asks (struct redis_ask) until it knows enough, and ends once. What
 * it asks through the client has a deadline and comes back by it; while asks are under way the
 * request's buffers are the client's, so a job ends only with its last ask. A job that waits for
 * something else (an epoch, a tenant's key, room for a sealed copy) is parked and ends at its own
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

#define REDIS_FRESH_NS  1000000000 /* an epoch is asked again when it was learned longer ago */
#define REDIS_RETRY_NS  1000000000 /* what an erase could not do is tried again after this */
#define REDIS_SILENT_NS 1000000    /* a deadline that was shorter says nothing about the server */
#define REDIS_SEGMENTS  (KVW_REDIS_MAX_PARTS - 4) /* of one request */
#define REDIS_AT_ONCE   (32u << 20) /* bytes each way: enough for any network to be busy */
#define REDIS_PATIENCE  4           /* deadlines that a chunk may wait for its turn */
#define REDIS_RAISED_FROM (1ull << 36) /* epochs from this on were raised by an erase */
#define REDIS_LOOKS     16u /* by the clock, at once */
#define REDIS_HELD_NS   3000000000 /* how long it counts that a tenant's chunks are held here */
#define REDIS_ERASURES  64u /* tenants whose erase waits for the next step; more: all are erased */

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

/* --- tenants: redis_tenants.c ------------------------------------------------------------------ */

enum redis_tenant_kind { REDIS_ALL, REDIS_TENANT };
enum redis_tenant_state {
	TENANT_IDLE,
	TENANT_ASKS,    /* for its epoch */
	TENANT_CREATES, /* an epoch, where there was none */
	TENANT_RAISES,  /* the epoch */
	TENANT_REMOVES, /* an epoch that cannot be raised */
	TENANT_FORGETS, /* the tenant's key, after it was raised */
};
enum redis_key_state { KEY_NONE, KEY_ASKS, KEY_SETS, KEY_KNOWN };

/* What is known of a tenant in Redis. */
struct redis_tenant {
	struct redis_tenant *next; /* of its bucket */
	struct redis_tier *t;
	enum redis_tenant_kind kind;
	struct kvt_tenant tenant;
	enum redis_tenant_state state;
	uint64_t epoch;   /* 0: Redis has none */
	int64_t known_ns; /* when it was asked for */
	uint64_t made;    /* the epoch that this handle made, or raised it to, last */
	uint64_t heeded;  /* the last epoch known that an erase made, of this handle or another; 0: none */
	uint64_t raise_by;
	uint64_t late_up_to; /* WRITEs submitted up to this are of before another's erase: not written */
	bool known;
	bool left_over;   /* values of an epoch that was lost or is over may lie in Redis, and count nowhere */
	bool create, create_key; /* a job waits to write */
	bool raise;       /* erased, and Redis does not know it yet: nothing of it is readable */
	bool raise_again; /* erased once more while the raise was under way */
	bool raise_failed;
	int64_t again_ns; /* raise: not before */
	bool failed;      /* the last asking; until the next success */
	int64_t failed_ns;
	enum kvt_status failure;
	enum redis_key_state key_state;
	int64_t key_failed_ns;
	enum kvt_status key_failure;
	int64_t used_ns;
	int64_t held_ns; /* when this handle was last said to hold chunks of it; 0: never */
	int64_t first_held_ns; /* the first time of those without a gap */
	bool by_clock;   /* TENANT_ASKS: no job needs it */
	int64_t look_ns; /* when it was last asked for by the clock */
};

#define REDIS_BUCKETS 1024u
#define REDIS_TENANTS 4096u

struct redis_tenants {
	struct redis_tenant all;
	struct redis_tenant *buckets[REDIS_BUCKETS];
	uint32_t count;
	uint32_t owing; /* erases that Redis does not know yet */
	uint32_t looks; /* by the clock, under way */
	bool look_failed; /* the last one that ended */
	int64_t look_ns;  /* when to look for more that are due */
	uint32_t look_at; /* from which bucket on: each in turn */
};

void redis_tenants_init(struct redis_tier *t);
void redis_tenants_finish(struct redis_tier *t);
/* NULL: nothing is known of it. */
struct redis_tenant *redis_tenant_find(struct redis_tier *t, const struct kvt_tenant *tenant);
/* NULL: no memory. */
struct redis_tenant *redis_tenant_get(struct redis_tier *t, const struct kvt_tenant *tenant);
/* From the next answer on nothing that was written before is readable; raised in Redis as soon as
 * that can be reached. */
void redis_tenant_raise(struct redis_tenant *e);
/* Asks those again that are in use and were learned too long ago; raises what waits. */
size_t redis_tenants_step(struct redis_tier *t, int64_t now_ns, int64_t *next_ns);
void redis_tenants_refresh(struct redis_tier *t); /* a probe is about to ask */
/* An erase is on its way to Redis / has failed to get there and will be tried again. */
bool redis_tenants_raising(struct redis_tier *t);
bool redis_tenants_owing(struct redis_tier *t);

/* What a job must know before it may read or write: KVT_OK: *epochs are those of now. KVT_BUSY: the
 * job is parked, job->resume follows. Else why they cannot be had. */
struct redis_epochs {
	uint64_t all, tenant;
};
enum kvt_status redis_epochs_get(struct redis_job *job, const struct kvt_tenant *tenant,
	bool create, struct redis_epochs *epochs) KVT_MUST_CHECK;
/* A value's epochs are not those that are known: KVT_BUSY: which may be too old; ask once more, they
 * are to be newer now. KVT_MISS: they are not. */
enum kvt_status redis_epochs_doubt(struct redis_job *job) KVT_MUST_CHECK;
/* The tenant's key is in the sealer. As above. again: what it has does not open, ask Redis. */
enum kvt_status redis_tenant_key(struct redis_job *job, const struct kvt_tenant *tenant,
	bool create, bool again) KVT_MUST_CHECK;

/* --- erases by others: redis_elsewhere.c, redis_looks.c ----------------------------------------- */

void redis_tenant_ask(struct redis_tenant *e); /* redis_tenants.c: for its epoch; it is idle */
/* Before it is learned: an epoch that Redis has / that this handle raised it to. */
void redis_heed(struct redis_tenant *e, uint64_t epoch, int64_t asked_ns);
void redis_heed_raised(struct redis_tenant *e, uint64_t epoch);
/* As take_elsewhere and holds of tier.h; the second from any thread. */
void redis_tenants_take(struct redis_tier *t, struct kvt_elsewhere *out);
void redis_tenants_hold(struct redis_tier *t, const struct kvt_tenant *tenants, size_t n);
/* Asks for epochs of what this handle holds chunks of, if that was not done for a while. */
/* Does this handle hold chunks of it? */
static inline bool redis_tenant_is_held(const struct redis_tenant *e, int64_t now_ns)
{
	return e->held_ns != 0 && now_ns - e->held_ns < REDIS_HELD_NS;
}

size_t redis_tenants_look(struct redis_tier *t, int64_t now_ns, int64_t *next_ns);

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
	uint64_t epoch, tenant_epoch;
	struct kvt_tier_known known;
};

/* A request on its way. */
struct redis_job {
	TAILQ_ENTRY(redis_job) entry; /* of the list that it is on */
	struct redis_tier *t;
	struct kvt_tier_request *request;
	uint64_t number; /* by arrival */
	uint64_t submitted; /* in the order of submit */
	uint64_t erases; /* of the tier when it began */
	int64_t begun_ns, deadline_ns;
	int64_t fresh_ns;   /* epochs that were asked for earlier are too old for it */
	bool erased;        /* its key was, meanwhile */
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

/* Was this erased by others after the job was submitted? */
static inline bool redis_is_late(const struct redis_job *job, const struct redis_tenant *e)
{
	return job->submitted <= e->late_up_to;
}
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
bool redis_job_stale(const struct redis_job *job); /* erased since it began */

/* Each of these begins a job, which may end at once. */
void redis_read_begin(struct redis_job *job);
void redis_write_begin(struct redis_job *job);
/* A chunk's turn, read or written: KVT_BUSY: parked until it comes. Deadlines count from then. */
enum kvt_status redis_job_turn(
	struct redis_job *job, void (*resume)(struct redis_job *job)) KVT_MUST_CHECK;
void redis_probe_begin(struct redis_job *job);
void redis_erase_begin(struct redis_job *job);

struct kvt_seal_place redis_place(
	const struct redis_tier *t, const struct redis_footer *f, uint32_t tier, uint64_t bytes);
/* Names are sealed as something else than a payload, so that neither opens as the other. */
#define REDIS_NAMES_TIER (KVT_TIER_L2 | 0x100u)

/* Presence, unless something was erased since the job began. */
void redis_tell_there(
	struct redis_job *job, const struct kvt_key *key, const struct kvt_tier_known *known);
void redis_tell_missing(struct redis_job *job, const struct kvt_key *key);
/* PX in milliseconds, 0: none; `text` has room for 24. */
uint64_t redis_ttl_ms(const struct redis_tier *t, const struct kvt_item *item);

/* --- erasing: redis_erase.c, redis_clean.c ----------------------------------------------------- */

/* A key that must not be read until Redis has forgotten it. */
struct redis_gone {
	struct redis_gone *next; /* of its bucket */
	struct kvt_key key;
	uint32_t under_way; /* unlinks of it */
	bool owed;          /* one failed: to be tried again */
};

#define REDIS_GONE_BUCKETS 4096u
#define REDIS_GONE_MOST    65536u

struct redis_erasing {
	struct redis_gone *buckets[REDIS_GONE_BUCKETS];
	uint32_t count, owed;
	uint32_t retrying; /* unlinks under way that no request waits for */
	uint32_t cursor;   /* bucket where the next round of tries begins */
	int64_t again_ns;
};

bool redis_is_gone(const struct redis_tier *t, const struct kvt_key *key);
/* Unlinks a value that is not what it should be; no job waits for it. */
void redis_drop(struct redis_tier *t, const struct kvt_key *key);

/* Ends a read whose chunk is not there, or is there and wrong: then it is dropped. */
void redis_read_missing(struct redis_job *job);
void redis_read_corrupt(struct redis_job *job);
size_t redis_erase_step(struct redis_tier *t, int64_t now_ns, int64_t *next_ns);
void redis_erase_finish(struct redis_tier *t);

#define REDIS_NODES 64u

/* A walk over all keys of Redis, after an erase. */
struct redis_cleaning {
	bool wanted, running;
	bool under_way;              /* a SCAN, or its looks */
	uint32_t looks;              /* under way */
	uint32_t slots[REDIS_NODES]; /* one of each node's; one that is ANY_SLOT without Cluster */
	uint32_t nodes, node;
	char cursor[24];
	int64_t again_ns;
	uint64_t removed;
};

void redis_clean_want(struct redis_tier *t);
size_t redis_clean_step(struct redis_tier *t, int64_t now_ns, int64_t *next_ns);

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
void redis_shares_forget(struct redis_tier *t, const struct kvt_tenant *tenant);
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
	int64_t (*held_since)(void *self, const struct kvt_tenant *tenant); /* as in struct kvt_tier_options */
	void *caller;
	struct kvw_redis *redis;
	struct kvt_presence *presence;
	struct kvt_sealer *sealer; /* NULL: plain */
	struct kvt_fingerprint fingerprint;
	uint8_t store_id[16]; /* of seals */
	bool cluster;
	uint32_t part_bytes, tokens_per_chunk;
	uint64_t deadline_ns, ttl_ns, chunk_ttl_ns, bounce_limit;
	int64_t look_every_ns; /* by the clock, at a tenant */
	uint64_t seed;      /* of random numbers that are no secrets */
	uint64_t hash_seed; /* of the table of tenants */

	/* the tier's thread */
	struct redis_jobs active, parked, flushes;
	uint64_t next_number, taken;
	struct kvt_elsewhere elsewhere; /* erased by others, for the caller to take */
	size_t changes; /* writes and erases that have not ended */
	uint64_t bounce_used;
	uint64_t moving[2]; /* bytes of reads, and of writes, that have begun */
	int64_t heard_ns;   /* the last answer of a server's */
	int64_t told_ns;    /* the last line about refused writes */
	uint64_t refused;
	struct redis_tenants tenants;
	struct redis_erasing erasing;
	struct redis_cleaning cleaning;
	struct redis_quota quota;
	bool closing;

	/* any thread */
	pthread_mutex_t lock;
	struct kvt_tier_request *queue, **queue_end; /* lock */
	uint64_t submitted;                          /* lock: requests, so far */
	struct kvt_tenant held[2 * KVT_TENANTS_LISTED]; /* lock: said to be held, for the next step */
	uint32_t held_count;
	struct redis_counters counters;              /* lock */
	uint64_t erases;                             /* lock: of tenants or all, so far */
	struct kvt_tenant_list shares;               /* lock: what tenants had */
	struct kvt_tenant erasures[REDIS_ERASURES];  /* lock: for the next step */
	uint32_t erasure_count;
	bool erasure_all;
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
