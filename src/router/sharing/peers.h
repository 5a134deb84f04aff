/*
 * peers.h - keeps the other replicas' messages about their load, and how far each replica is
 * trusted.
 *
 * A message counts for `life` after it was received, by this process' clock; no clock of another
 * machine is read. Its queue of prefill shrinks as time passes, so a message received again
 * unchanged does not count as new. A message whose sequence is not above the last one of its origin
 * is old.
 *
 * A replica with too high claims is detected individually, and the others still count: each first
 * token within a quarter of the time that its queue alone would take halves its trust on all
 * workers; a first token that took half of that time or longer restores a tenth, as does each
 * second after TRUST_QUIET_NS without a wrong claim.
 *
 * Bounded: KVW_PEERS origins, beyond which messages are refused until others have expired; and the
 * load of all peers together on one worker (PEERS_MOST_* in peers.c).
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
	KVW_HEARD_OLD,  /* it is not newer than the last one */
	KVW_HEARD_OWN,  /* this replica's own */
	KVW_HEARD_BAD,  /* malformed */
	KVW_HEARD_FULL, /* too many origins */
};

/* life_ns must be above 0. NULL: memory is short. */
struct kvw_peers *kvw_peers_create(uint64_t own_origin, int64_t life_ns);
void kvw_peers_destroy(struct kvw_peers *peers); /* NULL is allowed */

enum kvw_heard kvw_peers_hear(
	struct kvw_peers *peers, const char *data, size_t len, int64_t now_ns);

/* Sums up the loads of the replicas that count on the workers with these keys (ascending, all
 * different), and their waiting work, weighted by trust; and finds for each worker the replica that
 * claims most. */
void kvw_peers_sum(struct kvw_peers *peers, const uint64_t *keys, size_t count,
	struct kvw_load_part *parts, struct kvw_load_claim *claims, struct kvw_admission_work *work,
	int64_t now_ns);

/* Judges a claim by first tokens that came. */
void kvw_peers_judge(
	struct kvw_peers *peers, const struct kvw_load_verdict *verdict, int64_t now_ns);

/* Returns the number of replicas that count; sets the age of their oldest message (0: there is
 * none) and the trust in the least trusted one (1: there is none). */
size_t kvw_peers_count(
	const struct kvw_peers *peers, int64_t now_ns, int64_t *oldest_ns, float *trust);

#endif
