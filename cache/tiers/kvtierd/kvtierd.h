/*
 * kvtierd.h - the kvtierd tier from inside: what its files share. No other file includes this.
 *
 *   kvtierd.c          the tier's functions, queues, step
 *   kvtierd_read.c     a chunk comes: lease, look, copy, check
 *   kvtierd_probe.c    which of a chain are there
 *   kvtierd_write.c    a chunk goes
 *   kvtierd_erase.c    chunks that are erased, by key
 *   kvtierd_table.c    generations
 *   kvtierd_leases.c   leases that are kept for a moment, releases that are owed
 *   kvtierd_format.c   names, marks, request heads
 *   kvtierd_segment.c  the shared memory
 *   kvtierd_there.c    does a daemon answer, before there is a tier
 *   kvtierd_http.c, kvtierd_answer.c, kvtierd_resolve.c   exchanges with the daemon
 *
 * Threads. The tier's thread does everything but what begins with a request: `lock` guards the inbox and the counters. It
 * is a leaf.
 *
 * What makes a read safe, whatever daemon, network and segment do: the bytes are copied out first;
 * then their footer must prove itself and name the key and the fingerprint, and the checksum made while copying must be
 * the footer's. That the lease was still good by
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

struct kvtierd;

/* A lease, and until when it holds by our clock. */
struct kvtierd_held {
	struct kvtierd_lease lease; /* id "": none */
	int64_t until_ns;
};

/* One request on its way. */
struct kvtierd_job {
	struct kvtierd *t;
	struct kvt_tier_request *request;
	TAILQ_ENTRY(kvtierd_job) entry; /* of an inbox, then of t->active */
	uint64_t number;                /* in the order of submit */
	int64_t deadline_ns;
	bool counted; /* its bytes are in t->under_way */
	struct kvtierd_exchange x;
	struct kvtierd_held held;    /* READ */
	struct redis_footer footer; /* READ, WRITE */
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
	uint64_t inflight, deadline_ns, lease_ns, ttl_ns;
	uint32_t connections;
	struct kvtierd_resolver *resolver;
	struct kvtierd_http *http;
	struct kvtierd_segment segment;
	struct kvt_presence *presence;

	pthread_mutex_t lock; /* guards what follows up to the next line */
	struct kvtierd_list inbox_reads, inbox_writes, inbox_others;
	struct kvt_tier_request *refused; /* no memory for a job */
	uint64_t numbers;
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
	uint64_t
		deletes_in; /* generation of the segment whose daemon was seen to delete; 0: none */
	int64_t delete_again_ns; /* it was seen not to: not asked before */
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
/* The footer under a lease, proven to be of this key. KVT_MISS: erased
 * or outlived. KVT_ECORRUPT, KVT_EIO. */
enum kvt_status kvtierd_look(struct kvtierd *t, const struct kvt_key *key,
	const struct kvtierd_held *held, struct redis_footer *out);
/* Corrupt: counted, and said. */
void kvtierd_is_corrupt(struct kvtierd *t, const struct kvt_key *key, const char *what);

/* --- kvtierd_probe.c, kvtierd_erase.c, kvtierd_write.c --- */
void kvtierd_probe_begin(struct kvtierd_job *job);
void kvtierd_erase_begin(struct kvtierd_job *job);
void kvtierd_write_begin(struct kvtierd_job *job);
void kvtierd_table_begin(struct kvtierd_job *job); /* kvtierd_table.c */

#endif
