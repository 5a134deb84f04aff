/*
 * history.h - what was done to a store, and what must be true of it after a crash.
 *
 * A history is a run of random work on a store over a disk that records. What was acknowledged is
 * kept with the moment of the disk at which it was. For any moment at which the process is killed
 * or the power lost, three things are asked of the store that is found: every chunk that it gives
 * has the right bytes; nothing comes back whose erase was durable by then; and, where nothing had
 * to be evicted, everything is there whose record was durable by then.
 */
#ifndef HISTORY_H
#define HISTORY_H

#include <stdint.h>

struct history_options {
	uint64_t seed;
	unsigned steps;   /* things done */
	unsigned crashes; /* moments that are tried */
	uint64_t capacity;
	const char *keys; /* file of master keys, NULL: plain */
};

struct history_result {
	uint64_t crashes, puts, erases, found, lost, corrupt, must, must_not;
};

/* Ends the program at the first thing that is wrong, after saying how to repeat it. Adds to *out. */
void history_run(const struct history_options *options, struct history_result *out);

#endif
