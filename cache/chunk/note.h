/*
 * note.h - the library's log messages and its clock.
 *
 * One of these hangs off every handle and is handed to each part of it. Never keys' bytes in full,
 * never tokens, never secrets: a chunk is named by the first 4 bytes of its key in hex.
 */
#ifndef KVT_NOTE_H
#define KVT_NOTE_H

#include "kvtier/kvtier.h"

struct kvt_surroundings {
	struct kvt_clock clock; /* never NULL members */
	void (*log)(void *self, uint32_t level, const char *line); /* never NULL */
	void *log_self;
	int64_t wall_ahead_ns; /* the wall clock's lead over the monotonic one when both were first read */
};

/* Fills in the machine's clock and standard error where the configuration gives none. */
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
 * The clock of lifetimes: the wall clock of this handle's begin, carried on by the monotonic clock. A
 * step of the wall clock moves no chunk's end. Stores on disk keep this time.
 */
static inline int64_t kvt_steady_wall(const struct kvt_surroundings *s)
{
	return kvt_now(s) + s->wall_ahead_ns;
}

/* A line of up to 500 characters; longer ones are cut. */
void kvt_note(const struct kvt_surroundings *s, enum kvt_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
