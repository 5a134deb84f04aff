/*
 * fake_state.h - what the fake driver knows; between its two files.
 */
#ifndef FAKE_STATE_H
#define FAKE_STATE_H

#include <pthread.h>

#include "fake_cuda.h"
#include "gpu/turn.h"

#define EXPORT        __attribute__((visibility("default")))
#define EVENTS        1024
#define MAPPED        ((uint64_t)1 << 52) /* a device's address of pinned memory: the host's + this */
#define MOST          64 /* ranges of memory */
#define OK            0
#define INVALID       1
#define NO_MEMORY     2
#define NO_CONTEXT    201
#define NOT_READY     600
#define BAD_ADDRESS   700
#define ALREADY       712
#define NOT_SUPPORTED 801

struct event {
	uint64_t recorded, done; /* numbers of recordings */
	uint64_t named;          /* by actions */
	bool alive, kept;
};

enum kind { COPY, KERNEL, TURN, RECORD, WAIT, NOTHING };

struct action {
	enum kind kind;
	enum fake_cost cost;
	char direction; /* 'u', 'd'; 0 */
	uint64_t to, from, bytes;
	struct kvt_gpu_launch *launch;
	struct kvt_gpu_turning *turning;
	uint32_t blocks;
	struct event *event;
	uint64_t number;
	struct action *next;
};

struct stream {
	bool alive, kept;
	struct action *first, *last;
};

struct range {
	uint64_t base, bytes; /* bytes 0: free */
	char kind;            /* 'd' device, 'h' pinned by alloc, 'r' registered */
	bool kept;
};

struct fake_state {
	pthread_mutex_t lock;
	uint64_t random;
	uint64_t calls, nth;
	int error;
	const char *failed, *persistent;
	int persistent_error;
	bool held, idle, paused, no_batches;
	int64_t now, fixed[FAKE_COSTS], kib[FAKE_COSTS];
	uint64_t misuses, launches, turns, batches, widest, others, others_kept;
	struct stream streams[64]; /* 0: the default stream */
	struct event events[EVENTS];
	struct range ranges[MOST];
	char order[4096];
	uint32_t ordered;
};

extern struct fake_state fake;

bool fake_step(void); /* runs one thing of some stream; false: nothing can be */

#endif
