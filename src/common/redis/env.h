/*
 * env.h - the clock and the log that a client uses. The caller provides them, so that tests can
 * replace them.
 */
#ifndef KVW_REDIS_ENV_H
#define KVW_REDIS_ENV_H

#include <stdint.h>

#include "base/log.h"

struct kvw_redis_env {
	int64_t (*now_ns)(void *self); /* monotonic; never NULL */
	void *clock_self;
	/* Logs one line without a line end; level is one of enum kvw_log_level. Never NULL. */
	void (*log)(void *self, uint32_t level, const char *line);
	void *log_self;
};

static inline int64_t kvw_redis_now(const struct kvw_redis_env *env)
{
	return env->now_ns(env->clock_self);
}

/* Logs a line of up to 500 characters; a longer one is cut. Does not change errno. */
void kvw_redis_note(const struct kvw_redis_env *env, enum kvw_log_level level, const char *format,
	...) __attribute__((format(printf, 3, 4)));

#endif
