/*
 * replica.h - the part of load sharing in one replica: writes its messages and applies those of the
 * others.
 *
 * These functions do no I/O and read no clock: called by the thread that uses Redis (load_round.c),
 * and by the replay of bench/replay with messages of any delay.
 *
 *	every interval: kvw_replica_write -> others; kvw_replica_hear for each of theirs;
 *	                kvw_replica_apply
 *
 * A worker's load then includes the others' load there (kvw_load_set_peers), and the admission
 * knows the worker's other work and the work that waits at others (kvw_pace_set_peers,
 * kvw_admission_set_peers).
 *
 * If a peer claims too much, the harm is limited in several ways: its values are cut (load_codec.h,
 * peers.h), it counts for less, on every worker, once first tokens have come although its queue
 * said that they cannot, and all peers do on a worker where that happens (peers.h, kvway/load.h),
 * and where this replica refuses or keeps waiting all that comes for KVW_REPLICA_STUCK_NS, all
 * queues of peers count little until it has sent something, whose first token shows.
 *
 * Threads: one.
 */
#ifndef KVW_REPLICA_H
#define KVW_REPLICA_H

#include "sharing/peers.h"

#define KVW_REPLICA_STUCK_NS INT64_C(2000000000)

struct kvw_replica;

/* A worker for shared load. */
struct kvw_replica_worker {
	uint64_t key;
	struct kvw_load *load;
	uint32_t id; /* below KVW_MAX_WORKERS */
};

/* origin is a random number other than 0. NULL: memory is short. */
struct kvw_replica *kvw_replica_create(uint64_t origin, int64_t life_ns);
void kvw_replica_destroy(struct kvw_replica *replica); /* NULL is allowed */

/* Writes the next message, at most KVW_LOAD_BYTES long, into out; returns its length. admission may
 * be NULL. */
size_t kvw_replica_write(struct kvw_replica *replica, const struct kvw_replica_worker *workers,
	size_t count, const struct kvw_admission *admission, int64_t now_ns, char *out);
enum kvw_heard kvw_replica_hear(
	struct kvw_replica *replica, const char *data, size_t len, int64_t now_ns);
/* Applies the messages that count now. If several workers have the same key, one of them counts.
 * admission may be NULL. */
void kvw_replica_apply(struct kvw_replica *replica, const struct kvw_replica_worker *workers,
	size_t count, struct kvw_admission *admission, int64_t now_ns);

struct kvw_replica_stats {
	size_t peers;      /* replicas whose messages count */
	int64_t oldest_ns; /* age of the oldest of these messages; 0: there is none */
	float trust;       /* trust in the least trusted replica; 1: there is none */
};
void kvw_replica_stats(
	const struct kvw_replica *replica, int64_t now_ns, struct kvw_replica_stats *out);

#endif
