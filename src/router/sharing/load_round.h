/*
 * load_round.h - exchanges the replicas' loads through Redis (section `replicas`).
 *
 * Replicas of one group have a hash in Redis, `{PREFIX:GROUP}:load`, with a field for each; a
 * script, one command, writes the own field, removes those that were not written for `life` (by
 * Redis' clock) and returns the others. So a replica that died leaves nothing, and the whole hash
 * ends with the last one. replica.h decides how much the received messages count.
 *
 * One command is under way at a time. If none is answered for `life`, all messages have expired and
 * this replica counts only its own load; the state is `degraded`.
 *
 * Threads: one, that of kvw_sharing; the state is read by any.
 */
#ifndef KVW_LOAD_ROUND_H
#define KVW_LOAD_ROUND_H

#include "fleet/fleet.h"
#include "redis/redis.h"
#include "sharing/replica.h"
#include "sharing/sharing.h"

struct kvw_load_round;

/* KVW_ENOMEM. */
enum kvw_err kvw_load_round_create(
	const struct kvw_config *config, struct kvw_load_round **out) KVW_MUST_CHECK;
/* No command may be under way. NULL is allowed. */
void kvw_load_round_destroy(struct kvw_load_round *round);
/* Borrowed until destroy. */
void kvw_load_round_begin(
	struct kvw_load_round *round, struct kvw_fleet *fleet, struct kvw_admission *admission);

/* If it is time, sends this replica's load and applies the others'. Returns the time of the next
 * call. */
int64_t kvw_load_round_step(struct kvw_load_round *round, struct kvw_redis *redis, int64_t now_ns);

/* To be called when the process ends: removes its field from Redis, waiting at most `most_ns`, so
 * that the others do not count this replica for another `life`. */
void kvw_load_round_leave(struct kvw_load_round *round, struct kvw_redis *redis, int64_t most_ns);

struct kvw_load_state *kvw_load_round_state(struct kvw_load_round *round);

#endif
