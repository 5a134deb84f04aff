/*
 * kvtierd.h - the kvtierd tier from inside: what its files share. No other file includes this.
 *
 *   kvtierd.c          the tier's functions, queues, step
 *   kvtierd_read.c     a chunk comes: lease, look, copy, check
 *   kvtierd_probe.c    which of a chain are there
 *   kvtierd_write.c    a chunk goes
 *   kvtierd_erase.c    what must not come back
 *   kvtierd_epoch.c    epochs: what an erase of many chunks leaves behind
 *   kvtierd_tenants.c  the table of tenants' epochs
 *   kvtierd_leases.c   leases that are kept for a moment, releases that are owed
 *   kvtierd_format.c   names, marks, request heads
 *   kvtierd_segment.c  the shared memory
 *   kvtierd_there.c    does a daemon answer, before there is a tier
 *   kvtierd_http.c, kvtierd_answer.c, kvtierd_resolve.c   exchanges with the daemon
 *
 * Threads. The tier's thread does everything but what begins with a request or an erase: `lock`
 * guards the inbox, the epochs' table and the counters. It is a leaf.
 *
 * What makes a read safe, whatever daemon, network and segment do: the bytes are copied out first;
 * then their footer must prove itself and name the key and the fingerprint, its epochs must be those
 * of now, and the checksum made while copying must be the footer's. That the lease was still good by
 * our clock after the copy is checked too; it saves reading what is being overwritten, and is not
 * what correctness rests on.
 */
#ifndef KVT_TIERED_H
#define KVT_TIERED_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "chunk/tenants.h"
#include "tiers/presence.h"
#include "tiers/redis/redis_value.h"
#include "tiers/kvtierd/kvtierd_format.h"
#include "tiers/kvtierd/kvtierd_segment.h"

#define KVTIERD_MAX_SEGMENTS 64u
#define KVTIERD_KEPT         64u        /* leases kept for a read that may follow */
#define KVTIERD_KEPT_NS      1000000000 /* ... so long at most */
#define KVTIERD_EPOCHS       4096u      /* tenants whose epoch is remembered */
#define KVTIERD_RETIRED      4u         /* epochs that we ended ourselves, remembered */
#define KVTIERD_ERASES       8u         /* the last that are known of a tenant: they are no news */
#define KVTIERD_DOUBTS       256u
#define KVTIERD_LOOKS        16u /* by the clock, at once */

struct kvtierd;

/* A lease, and until when it holds by our clock. */
struct kvtierd_held {
	struct kvtierd_lease lease; /* id "": none */
	int64_t until_ns;
};

/* A wait for an epoch. Called once: KVT_OK, or why it is not known. */
struct kvtierd_waiter {
	void (*fn)(struct kvtierd_waiter *w, enum kvt_status status);
	struct kvtierd_waiter *next;
	int64_t deadline_ns;
};

/* The epoch of all chunks, or of a tenant's: a random number that values carry. */
struct kvtierd_epoch {
	struct kvtierd_epoch *next; /* of its bucket */
	struct kvtierd *t;
	struct kvt_tenant tenant; /* if not of all */
	bool all;
	/* under lock */
	bool dirty;      /* an erase wants another one */
	uint64_t value;  /* 0: not known now */
	uint64_t erases; /* counts them: what was begun before one of them is of no use */
	uint64_t retired[KVTIERD_RETIRED]; /* ended by us */
	uint32_t retired_count;
	/* The last erase that is known, by whomever: what our marks name. And those before, whose marks may still be read. */
	uint64_t erase, known[KVTIERD_ERASES];
	uint32_t known_count;
	int64_t erased_wall_ns;
	bool own_erase;         /* it is ours, and not in the daemon yet: none that we read is younger */
	bool looked;            /* at a mark, or made the one that counts */
	uint64_t late_up_to;    /* WRITEs numbered up to this are of before another's erase: not written */
	int64_t held_ns;        /* when this handle was last said to hold chunks of it */
	/* the tier's thread's */
	enum { KVTIERD_EPOCH_IDLE, KVTIERD_EPOCH_ASKING, KVTIERD_EPOCH_MAKING } state;
	int64_t checked_ns;
	bool made;            /* in this round */
	bool news;            /* likewise: another process erased */
	uint64_t new_value;   /* that was made */
	uint64_t new_erases;  /* `erases` when the round was begun */
	uint32_t forgets;     /* requests of this round that let the daemon forget what was erased */
	enum kvt_status last; /* how the last round ended */
	int64_t again_ns;     /* dirty: the next round */
	bool by_clock;        /* this round: no request needs it */
	int64_t round_ns;     /* when the last one began */
	int64_t forget_until_ns;
	struct kvtierd_waiter *waiters;
	struct kvtierd_exchange *x; /* owned; NULL in IDLE */
	uint8_t mark[KVTIERD_MARK];
};

struct kvtierd_epochs {
	struct kvtierd_epoch all;
	struct kvtierd_epoch *buckets[256]; /* by tenant; owned */
	uint32_t count;                    /* in them */
	bool unsettled; /* some may be dirty or waited for: to be looked at in each step */
	struct kvt_elsewhere elsewhere; /* erased by others, for the caller to take */
	bool held;      /* some are held: looked at by the clock */
	struct kvt_tenant holds[2 * KVT_TENANTS_LISTED]; /* said to be held, for the next step */
	uint32_t hold_count;
	int64_t created_wall_ns;
	/* the tier's thread's */
	uint32_t looks;  /* rounds by the clock under way */
	bool look_failed; /* the last one that ended */
	int64_t look_ns; /* when to look for more of them, and at which place of the table */
	uint32_t look_at;
};

/* What a write of a chunk is stamped with, or a value has to say. */
struct kvtierd_stamp {
	uint64_t all, tenant;
};

/* One request on its way. */
struct kvtierd_job {
	struct kvtierd *t;
	struct kvt_tier_request *request;
	TAILQ_ENTRY(kvtierd_job) entry; /* of an inbox, then of t->active */
	uint64_t number;                /* in the order of submit */
	int64_t deadline_ns;
	bool counted; /* its bytes are in t->under_way */
	struct kvtierd_waiter waiter;
	struct kvtierd_exchange x;
	struct kvtierd_held held;    /* READ */
	struct redis_footer footer; /* READ, WRITE */
	struct kvtierd_stamp stamp;  /* WRITE */
	uint8_t *tail;              /* names, tags and footer, owned */
	uint64_t tail_bytes;
	struct kvtierd_job *next_copy; /* READ */
	void *parts;                  /* PROBE, ERASE: what it asks at once; owned */
};

TAILQ_HEAD(kvtierd_list, kvtierd_job);

/* A lease that a PROBE took and a READ may use. */
struct kvtierd_kept {
	struct kvt_key key;
	struct kvtierd_held held; /* id "": an empty place */
	int64_t kept_ns;
};

struct kvtierd_release; /* kvtierd_leases.c */

/* A write whose end is not known: it may still take place in the daemon. */
struct kvtierd_doubt {
	struct kvt_key key;
	struct kvt_tenant tenant;
	int64_t until_ns;
};

struct kvtierd_counts {
	uint64_t hits, misses, loads, load_bytes, stores, store_bytes, erased, corrupt, io_errors;
	uint64_t expired_leases, kept_used, releases_lost, quota_refused;
	uint64_t queued_read_bytes, queued_write_bytes;
};

struct kvtierd {
	struct kvt_tier base;
	const struct kvt_surroundings *s;
	struct kvt_tier_watch watch;
	struct kvt_fingerprint fingerprint;
	struct kvtierd_place place;
	uint64_t inflight, deadline_ns, lease_ns, seen_ns, ttl_ns;
	uint32_t connections;
	struct kvtierd_resolver *resolver;
	struct kvtierd_http *http;
	struct kvtierd_segment segment;
	struct kvt_presence *presence;

	pthread_mutex_t lock; /* guards what follows up to the next line */
	struct kvtierd_list inbox_reads, inbox_writes, inbox_others;
	struct kvt_tier_request *refused; /* no memory for a job */
	uint64_t numbers;
	struct kvtierd_epochs epochs;
	struct kvtierd_counts counts;
	char reason[KVT_REASON_BYTES]; /* of the last failure that is not the connections', or refusal */
	bool faulty;                   /* it is a failure */
	_Atomic bool asleep;
	/* --- the tier's thread --- */
	struct kvtierd_list active;
	struct kvtierd_job *copies, **copies_end; /* READs that may be copied */
	uint64_t under_way;                      /* bytes of READs and WRITEs begun */
	struct kvtierd_kept kept[KVTIERD_KEPT];
	uint64_t kept_bytes;
	int64_t kept_look_ns; /* when the next of them is too old */
	struct kvtierd_release *releases;
	uint32_t release_count;
	int64_t release_look_ns;
	struct kvtierd_doubt doubts[KVTIERD_DOUBTS];
	uint32_t doubt_next;
	int64_t doubt_all_until_ns; /* more than there is room for */
	uint64_t
		deletes_in; /* generation of the segment whose daemon was seen to delete; 0: none */
	int64_t delete_again_ns; /* it was seen not to: not asked before */
	int64_t forget_again_ns; /* likewise, of what was erased by an epoch */
	enum { KVTIERD_MISSES_UNKNOWN, KVTIERD_MISSES_AT_ONCE, KVTIERD_MISSES_WAIT } misses;
	bool said_segment; /* the log has it */
	uint64_t full_refused; /* chunks, by a full daemon */
	int64_t full_told_ns;  /* when the log had that; 0: never */
	bool ending;
};

/* --- kvtierd.c --- */
void kvtierd_job_done(struct kvtierd_job *job, enum kvt_status status); /* frees it */
void kvtierd_count(struct kvtierd *t, uint64_t *counter, uint64_t n);
void kvtierd_say(struct kvtierd *t, const char *what); /* the reason in stats, of a failure */
void kvtierd_works(struct kvtierd *t);                 /* there is none any more */
/* How an exchange that brought no answer ends a request. */
enum kvt_status kvtierd_failed(struct kvtierd *t, const struct kvtierd_exchange *x);
/* What any daemon's status means for a request that is not OK by it. */
enum kvt_status kvtierd_refused(struct kvtierd *t, const struct kvtierd_exchange *x);
/* What came of a PUT: KVT_OK: stored, by it or by an earlier one; else as the two above. */
enum kvt_status kvtierd_put_answer(struct kvtierd *t, const struct kvtierd_exchange *x);

/* --- kvtierd_leases.c --- */
/* What came of a lease that was asked for. KVT_OK: *held is one. KVT_MISS: not there (*sure: and
 * that may be remembered). KVT_EIO. Releases what cannot be used. */
enum kvt_status kvtierd_lease_answer(
	struct kvtierd *t, const struct kvtierd_exchange *x, struct kvtierd_held *held, bool *sure);
/* Is it still good for so long? */
bool kvtierd_held_lasts(struct kvtierd *t, const struct kvtierd_held *held);
void kvtierd_release(struct kvtierd *t, struct kvtierd_held *held); /* takes it; none is allowed */
void kvtierd_late_lease(void *self, const struct kvtierd_reader *answer);
void kvtierd_keep(struct kvtierd *t, const struct kvt_key *key, struct kvtierd_held *held); /* takes */
/* KVT_OK: *held is one that was kept, not kept any more. */
bool kvtierd_kept_take(struct kvtierd *t, const struct kvt_key *key, struct kvtierd_held *held);
size_t kvtierd_leases_step(struct kvtierd *t, int64_t now_ns, int64_t *next_ns);
void kvtierd_leases_let_go(struct kvtierd *t); /* all that is kept is to be released */
bool kvtierd_leases_quiet(const struct kvtierd *t);
void kvtierd_leases_close(struct kvtierd *t); /* no exchange is under way */

/* --- kvtierd_read.c --- */
void kvtierd_read_begin(struct kvtierd_job *job);
size_t kvtierd_read_copy(struct kvtierd *t); /* one of those that wait for it */
/* The footer under a lease, proven to be of this key; its epochs are not looked at. KVT_MISS: erased
 * or outlived. KVT_ECORRUPT, KVT_EIO. */
enum kvt_status kvtierd_look(struct kvtierd *t, const struct kvt_key *key,
	const struct kvtierd_held *held, struct redis_footer *out);
/* Corrupt: counted, and said. */
void kvtierd_is_corrupt(struct kvtierd *t, const struct kvt_key *key, const char *what);

/* --- kvtierd_probe.c, kvtierd_erase.c, kvtierd_write.c --- */
void kvtierd_probe_begin(struct kvtierd_job *job);
void kvtierd_erase_begin(struct kvtierd_job *job);
void kvtierd_write_begin(struct kvtierd_job *job);
void kvtierd_doubt(struct kvtierd *t, const struct kvt_key *key, const struct kvt_tenant *tenant);
bool kvtierd_doubt_take(struct kvtierd *t, const struct kvt_key *key, struct kvt_tenant *tenant);

/* --- kvtierd_epoch.c --- */
void kvtierd_epochs_init(struct kvtierd *t);
void kvtierd_epochs_finish(struct kvtierd *t);
/* Now. KVT_OK: *out is what writes are stamped with. KVT_BUSY: not known; w->fn is called once it
 * is, and is to ask again. KVT_FULL: too many tenants. */
enum kvt_status kvtierd_epochs_now(struct kvtierd *t, const struct kvt_tenant *tenant,
	struct kvtierd_stamp *out, struct kvtierd_waiter *w);
/* Does a value's stamp still hold? KVT_MISS: no. KVT_BUSY, KVT_FULL: as above. */
enum kvt_status kvtierd_epochs_hold(
	struct kvtierd *t, const struct redis_footer *footer, struct kvtierd_waiter *w);
/* Any thread. tenant NULL: all. What was written before is unreadable when it returns. for_others: all that
 * there is of it is to go, wherever; else no other process need erase in its own memory. */
enum kvt_status kvtierd_epochs_erase(
	struct kvtierd *t, const struct kvt_tenant *tenant, bool for_others);
/* May this WRITE no longer be written, since another process erased after it was put? Its epochs are known. */
bool kvtierd_epochs_late(struct kvtierd *t, const struct kvtierd_job *job);
/* Any thread: as take_elsewhere of tier.h. */
void kvtierd_epochs_take(struct kvtierd *t, struct kvt_elsewhere *out);
/* What failed is tried again at once. */
void kvtierd_epochs_hurry(struct kvtierd *t);
/* Begins what erases asked for, and ends waits that are over. */
size_t kvtierd_epochs_step(struct kvtierd *t, int64_t now_ns, int64_t *next_ns);
/* Is every erase's epoch in the daemon? KVT_OK; KVT_BUSY: not yet; KVT_EIO: it failed. */
enum kvt_status kvtierd_epochs_settled(struct kvtierd *t);

/* --- kvtierd_tenants.c --- */
/* Under lock. tenant NULL: of all. NULL: not there, and no room or no memory for it. Only the tier's thread may let one
 * be forgotten for it. */
struct kvtierd_epoch *kvtierd_epoch_find(
	struct kvtierd *t, const struct kvt_tenant *tenant, bool may_forget);
bool kvtierd_epoch_is_held(const struct kvtierd_epoch *e, int64_t now_ns); /* under lock */
/* Any thread: as holds of tier.h. */
void kvtierd_epochs_holds(struct kvtierd *t, const struct kvt_tenant *tenants, size_t n);
/* Under lock, on the tier's thread: what was said of that since the last step. */
void kvtierd_epochs_take_holds(struct kvtierd *t, int64_t now_ns);

#endif
