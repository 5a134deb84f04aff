/*
 * env.c - formats lines for the caller's log.
 */
#include "redis/env.h"

#include <errno.h>
#include <stdarg.h>

#define LINE_BYTES 501 /* including '\0' */

void kvw_redis_note(
	const struct kvw_redis_env *env, enum kvw_log_level level, const char *format, ...)
{
	char line[LINE_BYTES];
	int saved = errno;
	va_list args;

	va_start(args, format);
	kvw_log_line(line, sizeof(line), format, args);
	va_end(args);
	env->log(env->log_self, level, line);
	errno = saved;
}
