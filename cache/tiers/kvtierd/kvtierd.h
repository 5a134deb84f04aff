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
#define KVTIERD_KEPT_NS      1000000000 /* a kept lease is released after this time at the latest */

struct kvtierd;

/* A lease, and the time when it ends by this machine's clock. */
struct kvtierd_held {
	struct kvtierd_lease lease; /* id "": no lease */
	int64_t until_ns;
};

/* One request under way. */
struct kvtierd_job {
	struct kvtierd *t;
	struct kvt_tier_request *request;
	TAILQ_ENTRY(kvtierd_job) entry; /* place in an inbox, then in t->active */
	uint64_t number;                /* jobs are numbered in the order of submit */
	int64_t deadline_ns;
	bool counted; /* t->under_way includes the bytes of this job */
	struct kvtierd_exchange x;
	struct kvtierd_held held;    /* READ */
	struct redis_footer footer; /* READ, WRITE */
	uint8_t *tail;              /* buffer for the chunk's names, tags and footer, owned */
	uint64_t tail_bytes;
	struct kvtierd_job *next_copy; /* READ */
	void *parts; /* PROBE and ERASE: state of the job's parallel requests; owned */
};

TAILQ_HEAD(kvtierd_list, kvtierd_job);

/* A lease that a PROBE took and a READ may use. */
struct kvtierd_kept {
	struct kvt_key key;
	struct kvtierd_held held; /* an id of "" means that this place is unused */
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

	pthread_mutex_t lock; /* guards the members from here to the next dashed line */
	struct kvtierd_list inbox_reads, inbox_writes, inbox_others;
	/* requests for which no memory for a job was left; the next step ends them */
	struct kvt_tier_request *refused;
	uint64_t numbers;
	struct kvtierd_counts counts;
	/* cause of the last refusal, or of the last failure outside the connections */
	char reason[KVT_REASON_BYTES];
	bool faulty;                   /* `reason` is a failure */
	_Atomic bool asleep;
	/* --- the tier's thread --- */
	struct kvtierd_list active;
	struct kvtierd_job *copies, **copies_end; /* READs ready to be copied */
	uint64_t under_way;                      /* bytes of the READs and WRITEs that have begun */
	struct kvtierd_kept kept[KVTIERD_KEPT];
	uint64_t kept_bytes;
	int64_t kept_look_ns; /* time when the next kept lease becomes too old */
	struct kvtierd_release *releases;
	uint32_t release_count;
	int64_t release_look_ns;
	uint64_t
		/* generation of the segment whose daemon is known to serve DELETE; 0: none is */
		deletes_in;
	/* the daemon did not serve DELETE: it is tried again after this time */
	int64_t delete_again_ns;
	enum { KVTIERD_MISSES_UNKNOWN, KVTIERD_MISSES_AT_ONCE, KVTIERD_MISSES_WAIT } misses;
	bool said_segment; /* the segment's state has been logged */
	uint64_t full_refused; /* chunks that the daemon refused because it was full */
	int64_t full_told_ns;  /* time of the last log line about full_refused; 0: there was none */
	bool ending;
};

/* --- kvtierd.c --- */
void kvtierd_job_done(struct kvtierd_job *job, enum kvt_status status); /* frees it */
void kvtierd_count(struct kvtierd *t, uint64_t *counter, uint64_t n);
/* sets the reason that the statistics give for a failure */
void kvtierd_say(struct kvtierd *t, const char *what);
void kvtierd_works(struct kvtierd *t);                 /* clears the failure */
/* Status of a request whose exchange brought no answer. */
enum kvt_status kvtierd_failed(struct kvtierd *t, const struct kvtierd_exchange *x);
/* Status of a request that the daemon refused, by the HTTP status of its answer. */
enum kvt_status kvtierd_refused(struct kvtierd *t, const struct kvtierd_exchange *x);
/* Status of a PUT. KVT_OK: this PUT or an earlier one stored the chunk; other values as of
 * kvtierd_failed and kvtierd_refused. */
enum kvt_status kvtierd_put_answer(struct kvtierd *t, const struct kvtierd_exchange *x);

/* --- kvtierd_leases.c --- */
/* Status of a request for a lease. KVT_OK: *held is a lease. KVT_MISS: the daemon lacks the chunk;
 * *sure says whether the presence table may remember that. KVT_EIO. A lease that cannot be used is
 * released. */
enum kvt_status kvtierd_lease_answer(
	struct kvtierd *t, const struct kvtierd_exchange *x, struct kvtierd_held *held, bool *sure);
/* Returns whether the lease stays valid for long enough to copy a chunk. */
bool kvtierd_held_lasts(struct kvtierd *t, const struct kvtierd_held *held);
/* takes over the lease; *held may also be without a lease */
void kvtierd_release(struct kvtierd *t, struct kvtierd_held *held);
void kvtierd_late_lease(void *self, const struct kvtierd_reader *answer);
/* takes */
void kvtierd_keep(struct kvtierd *t, const struct kvt_key *key, struct kvtierd_held *held);
/* Takes the kept lease of a chunk, if there is one: returns true, and *held is the lease, which is
 * then no longer kept. */
bool kvtierd_kept_take(struct kvtierd *t, const struct kvt_key *key, struct kvtierd_held *held);
size_t kvtierd_leases_step(struct kvtierd *t, int64_t now_ns, int64_t *next_ns);
void kvtierd_leases_let_go(struct kvtierd *t); /* releases all kept leases */
bool kvtierd_leases_quiet(const struct kvtierd *t);
void kvtierd_leases_close(struct kvtierd *t); /* requires that no exchange is under way */

/* --- kvtierd_read.c --- */
void kvtierd_read_begin(struct kvtierd_job *job);
/* copies the chunk of one READ whose lease has arrived */
size_t kvtierd_read_copy(struct kvtierd *t);
/* Reads the footer under a lease, and checks that it belongs to this key. KVT_MISS: the chunk is
 * erased, or older than its TTL. KVT_ECORRUPT, KVT_EIO. */
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
