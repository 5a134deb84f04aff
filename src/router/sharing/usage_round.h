/*
 * usage_round.h - replicas add up in Redis what keys, tenants and models have used.
 *
 * An hour is a hash, `{PREFIX:usage}:HOUR`, with a field for each user. Every second a replica adds
 * what it has counted since, some users a command; every five seconds it reads the present hour,
 * for a while after an hour that hour again, and at its start and every ten minutes all hours that
 * are kept, since a replica that could not reach Redis adds to hours that have long ended.
 *
 * Each command has the replica's random id and a number, which Redis remembers: a command that is
 * executed twice, after a lost connection, adds once. While Redis cannot be reached each replica
 * keeps what it has counted, and shows its own and what it last read; at its end it tries for
 * two seconds, and what Redis then does not have is lost.
 *
 * Threads: one, that of kvw_sharing.
 */
#ifndef KVW_USAGE_ROUND_H
#define KVW_USAGE_ROUND_H

#include "kvway/err.h"
#include "redis/redis.h"

struct kvw_ledger;
struct kvw_usage_round;

/* prefix: of names in Redis; copied. KVW_ENOMEM. */
enum kvw_err kvw_usage_round_create(
	const char *prefix, struct kvw_usage_round **out) KVW_MUST_CHECK;
/* No command may be under way. NULL is allowed. */
void kvw_usage_round_destroy(struct kvw_usage_round *round);
/* ledger is borrowed until destroy; NULL: there is nothing to share. */
void kvw_usage_round_begin(struct kvw_usage_round *round, struct kvw_ledger *ledger);

/* Sends or asks, if it is time. Returns the time of the next call. */
int64_t kvw_usage_round_step(
	struct kvw_usage_round *round, struct kvw_redis *redis, int64_t now_ns);
/* To be called when the process ends and counts no more: sends what is left. */
void kvw_usage_round_leave(struct kvw_usage_round *round, struct kvw_redis *redis);

#endif
