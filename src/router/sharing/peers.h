/*
 * peers.h - the other replicas' messages about their load, and for how long each counts.
 *
 * A message counts for `life` after it was heard, by this process' clock; no clock of another
 * machine is read. The queue of prefill that it names is believed to shrink meanwhile as time
 * passes, so one that is heard again unchanged is not counted as new. A message whose sequence is
 * not above the last one's of its origin is old.
 *
 * One that says too much is found out by itself, and the others go on counting: each first token
 * that comes in a quarter of the time which its own queue alone would have taken halves what counts
 * of all that it says, on every worker; one that had to wait for half of it or longer wins a tenth
 * back, and so does each second after TRUST_QUIET_NS in which none was found wrong.
 *
 * Bounded: KVW_PEERS origins, beyond which messages are refused until others have aged out; and
 * what all peers together have on one worker (PEERS_MOST_* in peers.c).
 *
 * Threads: one.
 */
#ifndef KVW_PEERS_H
#define KVW_PEERS_H

#include "sharing/load_codec.h"

#define KVW_PEERS 64

struct kvw_peers;

enum kvw_heard {
	KVW_HEARD_NEW,
	KVW_HEARD_OLD,  /* nothing new since the last one */
	KVW_HEARD_OWN,  /* this replica's own */
	KVW_HEARD_BAD,  /* no message */
	KVW_HEARD_FULL, /* too many origins */
};

/* life_ns > 0. NULL: no memory. */
struct kvw_peers *kvw_peers_create(uint64_t own_origin, int64_t life_ns);
void kvw_peers_destroy(struct kvw_peers *peers); /* NULL is allowed */

enum kvw_heard kvw_peers_hear(
	struct kvw_peers *peers, const char *data, size_t len, int64_t now_ns);

/* What those whose messages count have on the workers of these keys (ascending, each once), and
 * what waits at them, as far as each is trusted; which of them claims most on each worker. */
void kvw_peers_sum(struct kvw_peers *peers, const uint64_t *keys, size_t count,
	struct kvw_load_part *parts, struct kvw_load_claim *claims, struct kvw_admission_work *work,
	int64_t now_ns);

/* First tokens on a worker said something of a claim. */
void kvw_peers_judge(
	struct kvw_peers *peers, const struct kvw_load_verdict *verdict, int64_t now_ns);

/* How many replicas count, the age of their oldest message (0: there is none), and the trust in the
 * least trusted replica (1: there is none). */
size_t kvw_peers_count(
	const struct kvw_peers *peers, int64_t now_ns, int64_t *oldest_ns, float *trust);

#endif
