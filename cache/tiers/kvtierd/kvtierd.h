/*
 * tiered.h - the tiered-storage tier from inside: what its files share. Nobody else includes this.
 *
 *   tiered.c          the tier's functions, queues, step
 *   tiered_read.c     a chunk comes: lease, look, copy, check
 *   tiered_probe.c    which of a chain are there
 *   tiered_write.c    a chunk goes
 *   tiered_erase.c    what must not come back
 *   tiered_epoch.c    epochs: what an erase of many chunks leaves behind
 *   tiered_leases.c   leases that are kept for a moment, releases that are owed
 *   tiered_format.c   names, marks, request heads
 *   tiered_segment.c  the shared memory
 *   tiered_http.c, tiered_answer.c, tiered_resolve.c   exchanges with the daemon
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

#include "tiers/presence.h"
#include "tiers/redis/redis_value.h"
#include "tiers/kvtierd/kvtierd_format.h"
#include "tiers/kvtierd/kvtierd_segment.h"

#define TIERED_MAX_SEGMENTS 64u
#define TIERED_KEPT         64u        /* leases kept for a read that may follow */
#define TIERED_KEPT_NS      1000000000 /* ... so long at most */
#define TIERED_EPOCHS       4096u      /* tenants whose epoch is remembered */
#define TIERED_RETIRED      4u         /* epochs that we ended ourselves, remembered */
#define TIERED_DOUBTS       256u

struct tiered;

/* A lease, and until when it holds by our clock. */
struct tiered_held {
	struct tiered_lease lease; /* id "": none */
	int64_t until_ns;
};

/* Who waits for an epoch. Called once: KVT_OK, or why it is not known. */
struct tiered_waiter {
	void (*fn)(struct tiered_waiter *w, enum kvt_status status);
	struct tiered_waiter *next;
	int64_t deadline_ns;
};

/* The epoch of all chunks, or of a tenant's: a random number that values carry. */
struct tiered_epoch {
	struct tiered_epoch *next; /* of its bucket */
	struct tiered *t;
	struct kvt_tenant tenant; /* if not of all */
	bool all;
	/* under lock */
	bool dirty;      /* an erase wants another one */
	uint64_t value;  /* 0: not known now */
	uint64_t erases; /* counts them: what was begun before one of them is of no use */
	uint64_t retired[TIERED_RETIRED]; /* ended by us */
	uint32_t retired_count;
	/* the tier's thread's */
	enum { TIERED_EPOCH_IDLE, TIERED_EPOCH_ASKING, TIERED_EPOCH_MAKING } state;
	int64_t checked_ns;
	bool made;            /* in this round */
	uint64_t new_value;   /* that was made */
	uint64_t new_erases;  /* `erases` when the round was begun */
	enum kvt_status last; /* how the last round ended */
	int64_t again_ns;     /* dirty: the next round */
	struct tiered_waiter *waiters;
	struct tiered_exchange *x; /* owned; NULL in IDLE */
	uint8_t mark[TIERED_MARK];
};

struct tiered_epochs {
	struct tiered_epoch all;
	struct tiered_epoch *buckets[256]; /* by tenant; owned */
	uint32_t count;                    /* in them */
	bool unsettled; /* some may be dirty or waited for: to be looked at in each step */
};

/* What a write of a chunk is stamped with, or a value has to say. */
struct tiered_stamp {
	uint64_t all, tenant;
};

/* One request on its way. */
struct tiered_job {
	struct tiered *t;
	struct kvt_tier_request *request;
	struct tiered_job *next, *prev; /* in t->inbox, then t->active */
	uint64_t number;                /* in the order of submit */
	int64_t deadline_ns;
	bool counted; /* its bytes are in t->under_way */
	struct tiered_waiter waiter;
	struct tiered_exchange x;
	struct tiered_held held;    /* READ */
	struct redis_footer footer; /* READ, WRITE */
	struct tiered_stamp stamp;  /* WRITE */
	uint8_t *tail;              /* names, tags and footer, owned */
	uint64_t tail_bytes;
	struct tiered_job *next_copy; /* READ */
	void *parts;                  /* PROBE, ERASE: what it asks at once; owned */
};

struct tiered_list {
	struct tiered_job *first, *last;
};

/* A lease that a PROBE took and a READ may use. */
struct tiered_kept {
	struct kvt_key key;
	struct tiered_held held; /* id "": an empty place */
	int64_t kept_ns;
};

struct tiered_release; /* tiered_leases.c */

/* A write whose end is not known: it may still take place in the daemon. */
struct tiered_doubt {
	struct kvt_key key;
	struct kvt_tenant tenant;
	int64_t until_ns;
};

struct tiered_counts {
	uint64_t hits, misses, loads, load_bytes, stores, store_bytes, erased, corrupt, io_errors;
	uint64_t expired_leases, kept_used, releases_lost;
	uint64_t queued_read_bytes, queued_write_bytes;
};

struct tiered {
	struct kvt_tier base;
	const struct kvt_surroundings *s;
	struct kvt_tier_watch watch;
	struct kvt_fingerprint fingerprint;
	struct tiered_place place;
	uint64_t inflight, deadline_ns, lease_ns, seen_ns, ttl_ns;
	uint32_t connections;
	struct tiered_resolver *resolver;
	struct tiered_http *http;
	struct tiered_segment segment;
	struct kvt_presence *presence;

	pthread_mutex_t lock; /* guards what follows up to the next line */
	struct tiered_list inbox_reads, inbox_writes, inbox_others;
	struct kvt_tier_request *refused; /* no memory for a job */
	uint64_t numbers;
	struct tiered_epochs epochs;
	struct tiered_counts counts;
	char reason[KVT_REASON_BYTES]; /* of the last failure that is not the connections' */
	_Atomic bool asleep;
	/* --- the tier's thread --- */
	struct tiered_list active;
	struct tiered_job *copies, **copies_end; /* READs that may be copied */
	uint64_t under_way;                      /* bytes of READs and WRITEs begun */
	struct tiered_kept kept[TIERED_KEPT];
	uint64_t kept_bytes;
	int64_t kept_look_ns; /* when the next of them is too old */
	struct tiered_release *releases;
	uint32_t release_count;
	int64_t release_look_ns;
	struct tiered_doubt doubts[TIERED_DOUBTS];
	uint32_t doubt_next;
	int64_t doubt_all_until_ns; /* more than there is room for */
	uint64_t
		deletes_in; /* generation of the segment whose daemon was seen to delete; 0: none */
	int64_t delete_again_ns; /* it was seen not to: not asked before */
	enum { TIERED_MISSES_UNKNOWN, TIERED_MISSES_AT_ONCE, TIERED_MISSES_WAIT } misses;
	bool said_segment; /* the log has it */
	bool ending;
};

/* --- tiered.c --- */
void tiered_job_done(struct tiered_job *job, enum kvt_status status); /* frees it */
void tiered_count(struct tiered *t, uint64_t *counter, uint64_t n);
void tiered_say(struct tiered *t, const char *what); /* the reason in stats */
/* How an exchange that brought no answer ends a request. */
enum kvt_status tiered_failed(struct tiered *t, const struct tiered_exchange *x);
/* What any daemon's status means for a request that is not OK by it. */
enum kvt_status tiered_refused(struct tiered *t, const struct tiered_exchange *x);

/* --- tiered_leases.c --- */
/* What came of a lease that was asked for. KVT_OK: *held is one. KVT_MISS: not there (*sure: and
 * that may be remembered). KVT_EIO. Releases what cannot be used. */
enum kvt_status tiered_lease_answer(
	struct tiered *t, const struct tiered_exchange *x, struct tiered_held *held, bool *sure);
/* Is it still good for so long? */
bool tiered_held_lasts(struct tiered *t, const struct tiered_held *held);
void tiered_release(struct tiered *t, struct tiered_held *held); /* takes it; none is allowed */
void tiered_late_lease(void *self, const struct tiered_reader *answer);
void tiered_keep(struct tiered *t, const struct kvt_key *key, struct tiered_held *held); /* takes */
/* KVT_OK: *held is one that was kept, not kept any more. */
bool tiered_kept_take(struct tiered *t, const struct kvt_key *key, struct tiered_held *held);
size_t tiered_leases_step(struct tiered *t, int64_t now_ns, int64_t *next_ns);
void tiered_leases_let_go(struct tiered *t); /* all that is kept is to be released */
bool tiered_leases_quiet(const struct tiered *t);
void tiered_leases_close(struct tiered *t); /* no exchange is under way */

/* --- tiered_read.c --- */
void tiered_read_begin(struct tiered_job *job);
size_t tiered_read_copy(struct tiered *t); /* one of those that wait for it */
/* The footer under a lease, proven to be of this key; its epochs are not looked at. KVT_MISS: erased
 * or outlived. KVT_ECORRUPT, KVT_EIO. */
enum kvt_status tiered_look(struct tiered *t, const struct kvt_key *key,
	const struct tiered_held *held, struct redis_footer *out);
void tiered_know(const struct redis_footer *footer, struct kvt_tier_known *out);
/* Corrupt: counted, and said. */
void tiered_is_corrupt(struct tiered *t, const struct kvt_key *key, const char *what);

/* --- tiered_probe.c, tiered_erase.c, tiered_write.c --- */
void tiered_probe_begin(struct tiered_job *job);
void tiered_erase_begin(struct tiered_job *job);
void tiered_write_begin(struct tiered_job *job);
void tiered_doubt(struct tiered *t, const struct kvt_key *key, const struct kvt_tenant *tenant);
bool tiered_doubt_take(struct tiered *t, const struct kvt_key *key, struct kvt_tenant *tenant);

/* --- tiered_epoch.c --- */
void tiered_epochs_init(struct tiered *t);
void tiered_epochs_finish(struct tiered *t);
/* Now. KVT_OK: *out is what writes are stamped with. KVT_BUSY: not known; w->fn is called once it
 * is, and is to ask again. KVT_FULL: too many tenants. */
enum kvt_status tiered_epochs_now(struct tiered *t, const struct kvt_tenant *tenant,
	struct tiered_stamp *out, struct tiered_waiter *w);
/* Does a value's stamp still hold? KVT_MISS: no. KVT_BUSY, KVT_FULL: as above. */
enum kvt_status tiered_epochs_hold(
	struct tiered *t, const struct redis_footer *footer, struct tiered_waiter *w);
/* Any thread. tenant NULL: all. What was written before is unreadable when it returns. */
enum kvt_status tiered_epochs_erase(struct tiered *t, const struct kvt_tenant *tenant);
/* What failed is tried again at once. */
void tiered_epochs_hurry(struct tiered *t);
/* Begins what erases asked for, and ends waits that are over. */
size_t tiered_epochs_step(struct tiered *t, int64_t now_ns, int64_t *next_ns);
/* Is every erase's epoch in the daemon? KVT_OK; KVT_BUSY: not yet; KVT_EIO: it failed. */
enum kvt_status tiered_epochs_settled(struct tiered *t);

#endif
