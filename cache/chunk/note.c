/*
 * note.c - the machine's own clock and log, and the function that writes a line into a log.
 *
 * kvt_note makes a line on the stack and passes it on whole. It leaves errno unchanged, so that a
 * note between a failed call and its handling does no harm.
 */
#include "chunk/note.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

#define LINE_BYTES 501 /* including the '\0' */

static int64_t read_clock(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t machine_now(void *self)
{
	(void)self;
	return read_clock(CLOCK_MONOTONIC);
}

static int64_t machine_wall(void *self)
{
	(void)self;
	return read_clock(CLOCK_REALTIME);
}

/* One write(2) for each line keeps lines of several threads whole. */
static void machine_log(void *self, uint32_t level, const char *line)
{
	static const char *const names[] = {"debug", "info", "warn", "error"};
	char text[LINE_BYTES + 64];
	int64_t wall_ns = machine_wall(NULL);
	time_t seconds = (time_t)(wall_ns / 1000000000);
	struct tm utc;
	size_t len;
	int n;

	(void)self;
	if (level == KVT_LOG_DEBUG)
		return;
	gmtime_r(&seconds, &utc);
	len = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
	n = snprintf(text + len, sizeof(text) - len, ".%03dZ %-5s kvtier: %s\n",
		(int)(wall_ns / 1000000 % 1000), level <= KVT_LOG_ERROR ? names[level] : "error",
		line);
	if (n > 0 && (size_t)n < sizeof(text) - len)
		len += (size_t)n;
	if (write(STDERR_FILENO, text, len) < 0)
		return; /* no log to write to */
}

void kvt_surroundings_init(struct kvt_surroundings *s, const struct kvt_config *config)
{
	*s = (struct kvt_surroundings){
		.clock = {.now_ns = machine_now, .wall_ns = machine_wall},
		.log = machine_log,
	};
	if (config != NULL && config->clock != NULL) {
		s->clock = *config->clock;
		if (s->clock.now_ns == NULL)
			s->clock.now_ns = machine_now;
		if (s->clock.wall_ns == NULL)
			s->clock.wall_ns = machine_wall;
	}
	if (config != NULL && config->log != NULL) {
		s->log = config->log;
		s->log_self = config->log_self;
	}
	s->wall_ahead_ns = kvt_wall(s) - kvt_now(s);
}

void kvt_note(const struct kvt_surroundings *s, enum kvt_log_level level, const char *format, ...)
{
	char line[LINE_BYTES];
	int saved = errno;
	va_list args;

	va_start(args, format);
	kvw_log_line(line, sizeof(line), format, args);
	va_end(args);
	s->log(s->log_self, level, line);
	errno = saved;
}
