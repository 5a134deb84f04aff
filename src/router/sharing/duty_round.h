/*
 * duty_round.h - agrees with the other replicas through Redis which of them has a task (duty.h).
 *
 * The hash `{PREFIX:GROUP}:NAME` has one field, the replica that does the task; the replica writes
 * it again every second, and it ends KVW_DUTY_LIFE_NS after the last time. The first replica that
 * wants the task gets it, and keeps it while it wants it.
 *
 * Threads: one, that of kvw_sharing.
 */
#ifndef KVW_DUTY_ROUND_H
#define KVW_DUTY_ROUND_H

#include "base/duty.h"
#include "config/config.h"
#include "redis/redis.h"

struct kvw_duty_round;

/* name: static; duty: borrowed until destroy. KVW_ENOMEM. */
enum kvw_err kvw_duty_round_create(const struct kvw_config *config, const char *name,
	struct kvw_duty *duty, struct kvw_duty_round **out) KVW_MUST_CHECK;
/* No command may be under way. NULL is allowed. */
void kvw_duty_round_destroy(struct kvw_duty_round *round);

/* Asks Redis if it is time. Returns the time of the next call. */
int64_t kvw_duty_round_step(struct kvw_duty_round *round, struct kvw_redis *redis, int64_t now_ns);

#endif
