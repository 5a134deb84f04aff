/*
 * kvtierd.h - the shared parts of the kvtierd tier's files. No other file includes this.
 *
 *   kvtierd.c          the tier's functions, queues, step
 *   kvtierd_read.c     reads a chunk: lease, footer, copy, check
 *   kvtierd_probe.c    finds the chunks of a chain that are there
 *   kvtierd_write.c    writes a chunk
 *   kvtierd_erase.c    erases chunks, by key
 *   kvtierd_table.c    generations
 *   kvtierd_leases.c   leases kept for a moment, releases to send
 *   kvtierd_format.c   names, marks, request heads
 *   kvtierd_segment.c  the shared memory
 *   kvtierd_there.c    tests whether a daemon answers, before there is a tier
 *   kvtierd_http.c, kvtierd_answer.c, kvtierd_resolve.c   exchanges with the daemon
 *
 * Threads. Any thread submits a request; the tier's thread does the rest. `lock` guards the inbox and the counters, and
 * is a leaf.
 *
 * Safety of a read, whatever daemon, network and segment do: the tier copies the bytes out first; then their footer
 * must prove itself and name the key and the fingerprint, and the checksum made while copying must be the footer's. The
 * tier also checks by its own clock that the lease was still valid after the copy; this avoids reads of bytes under
 * change, but correctness does not depend on it.
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
#define KVTIERD_KEPT         64u        /* most leases kept for a read that may follow */
#define KVTIERD_KEPT_NS      1000000000 /* ... and the longest time they are kept */

struct kvtierd;

/* A lease, and its end by this machine's clock. */
struct kvtierd_held {
	struct kvtierd_lease lease; /* id "": no lease */
	int64_t until_ns;
};

/* One request under way. */
struct kvtierd_job {
	struct kvtierd *t;
	struct kvt_tier_request *request;
	TAILQ_ENTRY(kvtierd_job) entry; /* list of an inbox, then of t->active */
	uint64_t number;                /* in the order of submit */
	int64_t deadline_ns;
	bool counted; /* t->under_way includes its bytes */
	struct kvtierd_exchange x;
	struct kvtierd_held held;    /* READ */
	struct redis_footer footer; /* READ, WRITE */
	uint8_t *tail;              /* names, tags and footer, owned */
	uint64_t tail_bytes;
	struct kvtierd_job *next_copy; /* READ */
	void *parts;                  /* PROBE, ERASE: its parallel requests; owned */
};

TAILQ_HEAD(kvtierd_list, kvtierd_job);

/* A lease that a PROBE took and a READ may use. */
struct kvtierd_kept {
	struct kvt_key key;
	struct kvtierd_held held; /* id "": an unused place */
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

	pthread_mutex_t lock; /* guards the members up to the next line */
	struct kvtierd_list inbox_reads, inbox_writes, inbox_others;
	struct kvt_tier_request *refused; /* requests without memory for a job */
	uint64_t numbers;
	struct kvtierd_counts counts;
	char reason[KVT_REASON_BYTES]; /* cause of the last failure outside the connections, or refusal */
	bool faulty;                   /* `reason` is a failure */
	_Atomic bool asleep;
	/* --- the tier's thread --- */
	struct kvtierd_list active;
	struct kvtierd_job *copies, **copies_end; /* READs ready to be copied */
	uint64_t under_way;                      /* bytes of READs and WRITEs that have begun */
	struct kvtierd_kept kept[KVTIERD_KEPT];
	uint64_t kept_bytes;
	int64_t kept_look_ns; /* time when the next of them is too old */
	struct kvtierd_release *releases;
	uint32_t release_count;
	int64_t release_look_ns;
	uint64_t
		deletes_in; /* generation of the segment whose daemon has proved to delete; 0: none */
	int64_t delete_again_ns; /* the daemon did not delete: no new try before this time */
	enum { KVTIERD_MISSES_UNKNOWN, KVTIERD_MISSES_AT_ONCE, KVTIERD_MISSES_WAIT } misses;
	bool said_segment; /* the log has the segment's state */
	uint64_t full_refused; /* chunks refused by a full daemon */
	int64_t full_told_ns;  /* time of the last log line about that; 0: never */
	bool ending;
};

/* --- kvtierd.c --- */
void kvtierd_job_done(struct kvtierd_job *job, enum kvt_status status); /* frees it */
void kvtierd_count(struct kvtierd *t, uint64_t *counter, uint64_t n);
void kvtierd_say(struct kvtierd *t, const char *what); /* sets the reason in stats, of a failure */
void kvtierd_works(struct kvtierd *t);                 /* clears the failure */
/* The end of a request whose exchange brought no answer. */
enum kvt_status kvtierd_failed(struct kvtierd *t, const struct kvtierd_exchange *x);
/* The meaning of any daemon's status for a request that did not succeed by it. */
enum kvt_status kvtierd_refused(struct kvtierd *t, const struct kvtierd_exchange *x);
/* The result of a PUT: KVT_OK: stored, by it or by an earlier one; else as the two above. */
enum kvt_status kvtierd_put_answer(struct kvtierd *t, const struct kvtierd_exchange *x);

/* --- kvtierd_leases.c --- */
/* The result of a request for a lease. KVT_OK: *held is a lease. KVT_MISS: the chunk is missing (*sure: and that may be
 * remembered). KVT_EIO. Releases an unusable lease. */
enum kvt_status kvtierd_lease_answer(
	struct kvtierd *t, const struct kvtierd_exchange *x, struct kvtierd_held *held, bool *sure);
/* Returns whether the lease holds for that much longer. */
bool kvtierd_held_lasts(struct kvtierd *t, const struct kvtierd_held *held);
void kvtierd_release(struct kvtierd *t, struct kvtierd_held *held); /* takes the lease; none is allowed */
void kvtierd_late_lease(void *self, const struct kvtierd_reader *answer);
void kvtierd_keep(struct kvtierd *t, const struct kvt_key *key, struct kvtierd_held *held); /* takes */
/* KVT_OK: *held is a kept lease, which is no longer kept. */
bool kvtierd_kept_take(struct kvtierd *t, const struct kvt_key *key, struct kvtierd_held *held);
size_t kvtierd_leases_step(struct kvtierd *t, int64_t now_ns, int64_t *next_ns);
void kvtierd_leases_let_go(struct kvtierd *t); /* releases all kept leases */
bool kvtierd_leases_quiet(const struct kvtierd *t);
void kvtierd_leases_close(struct kvtierd *t); /* requires that no exchange is under way */

/* --- kvtierd_read.c --- */
void kvtierd_read_begin(struct kvtierd_job *job);
size_t kvtierd_read_copy(struct kvtierd *t); /* one READ ready to be copied */
/* Reads the footer under a lease, and proves that it is this key's. KVT_MISS: erased or outlived. KVT_ECORRUPT,
 * KVT_EIO. */
enum kvt_status kvtierd_look(struct kvtierd *t, const struct kvt_key *key,
	const struct kvtierd_held *held, struct redis_footer *out);
/* Counts and logs a corrupt chunk. */
void kvtierd_is_corrupt(struct kvtierd *t, const struct kvt_key *key, const char *what);

/* --- kvtierd_probe.c, kvtierd_erase.c, kvtierd_write.c --- */
void kvtierd_probe_begin(struct kvtierd_job *job);
void kvtierd_erase_begin(struct kvtierd_job *job);
void kvtierd_write_begin(struct kvtierd_job *job);
void kvtierd_table_begin(struct kvtierd_job *job); /* kvtierd_table.c */

#endif
