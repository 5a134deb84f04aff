/*
 * note.h - the library's log messages and its clock.
 *
 * Every handle has one struct kvt_surroundings and passes it to its parts. Messages never have whole keys, tokens or
 * secrets: the first 4 bytes of its key in hex name a chunk.
 */
#ifndef KVT_NOTE_H
#define KVT_NOTE_H

#include "kvtier/kvtier.h"

struct kvt_surroundings {
	struct kvt_clock clock; /* never NULL members */
	void (*log)(void *self, uint32_t level, const char *line); /* never NULL */
	void *log_self;
	int64_t wall_ahead_ns; /* wall clock minus monotonic clock, at the first reading of both */
};

/* Takes the machine's clock and standard error where the configuration has none. */
void kvt_surroundings_init(struct kvt_surroundings *s, const struct kvt_config *config);

static inline int64_t kvt_now(const struct kvt_surroundings *s)
{
	return s->clock.now_ns(s->clock.self);
}

static inline int64_t kvt_wall(const struct kvt_surroundings *s)
{
	return s->clock.wall_ns(s->clock.self);
}

/*
 * The clock of lifetimes: the wall clock at this handle's begin, continued by the monotonic clock. A step of the wall
 * clock moves no chunk's expiry. Stores on disk keep this time.
 */
static inline int64_t kvt_steady_wall(const struct kvt_surroundings *s)
{
	return kvt_now(s) + s->wall_ahead_ns;
}

/* Logs a line of up to 500 characters; cuts longer ones. */
void kvt_note(const struct kvt_surroundings *s, enum kvt_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
