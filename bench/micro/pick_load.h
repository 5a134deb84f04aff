/*
 * pick_load.h - a large prefix tree and the requests that are put to it.
 *
 * Prompts are random paths through a tree with six branch points, made before any clock starts,
 * plus a new suffix of their own. Each beginning has `holders` workers; a leaf is held by 1 to `copies`
 * of them, a random number, a node above by all that hold what is below it.
 */
#ifndef KVB_PICK_LOAD_H
#define KVB_PICK_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvway/route.h"

#define KVB_PICK_LEVELS    7    /* segments of a path, with six branch points between them */
#define KVB_PICK_MAX_DEPTH 1024 /* chunks */
#define KVB_PICK_UNITS     256  /* bytes of prompt per chunk */
#define KVB_PICK_TOKENS    64   /* tokens of a chunk */
#define KVB_PICK_SAMPLES   200000
#define KVB_PICK_THREADS   8

/* One line of the table. */
struct kvb_shape {
	uint32_t depth;   /* chunks of a prompt */
	uint32_t fresh;   /* chunks at a prompt's end that no worker has seen */
	uint32_t fan;     /* children of each branch point */
	uint32_t roots;   /* beginnings of prompts */
	uint32_t holders; /* most workers that hold a node before the clock starts */
	uint32_t copies;  /* most workers of these that hold a leaf */
	uint32_t workers;
	uint32_t threads;
	const char *note;
};

/* The strategy under test with its workers and its tree. */
struct kvb_pick {
	struct kvb_shape shape;
	struct kvw_strategy *strategy;
	struct kvw_load *loads;
	struct kvw_load_board *board; /* memory of the loads */
	struct kvw_candidate items[KVW_MAX_WORKERS];
	struct kvw_candidates set;
	uint64_t seed; /* number of the next thread's prompts; set by the caller */
};

enum kvb_task {
	KVB_TASK_DECIDE, /* pick, lease, first token, done */
	KVB_TASK_TIMED,  /* the same, with a sample of each decision's time */
	KVB_TASK_INSERT  /* the tree alone: find and insert */
};

/* The work and results of one thread; on cache lines of its own. */
struct kvb_pick_thread {
	_Alignas(64) struct kvb_pick *pick;
	enum kvb_task task;
	uint64_t seed;
	_Atomic bool *stop;   /* clock at which the thread ends, or ... */
	uint64_t most;        /* ... number of decisions or inserts; 0: no limit */
	uint64_t done;        /* decisions or inserts */
	int64_t busy_ns;      /* CPU time of these alone */
	uint64_t hit_tokens;  /* prompt tokens that the picked workers held */
	uint32_t *samples_ns; /* [KVB_PICK_SAMPLES], of KVB_TASK_TIMED */
	size_t sample_count;
};

/* Counts of the tree at one moment. */
struct kvb_census {
	uint64_t nodes;
	uint64_t chunks;
	uint64_t bytes;
	uint64_t mapped_bytes;
	double holders_mean; /* of a node */
	uint32_t holders_most;
};

int64_t kvb_clock_ns(void);
int64_t kvb_cpu_ns(void); /* CPU time of this thread: the machine may be shared */
uint64_t kvb_dice(uint64_t *state);

/* Returns the nodes of the tree before the clock starts. */
uint64_t kvb_shape_nodes(const struct kvb_shape *shape);

/* Builds the tree. NULL: no memory. */
struct kvb_pick *kvb_pick_create(const struct kvb_shape *shape);
void kvb_pick_destroy(struct kvb_pick *pick); /* NULL is allowed */

/* Thread function; arg: struct kvb_pick_thread. */
void *kvb_pick_run(void *arg);

/* Counts the tree; no thread may run. */
void kvb_pick_count(struct kvb_pick *pick, struct kvb_census *census);

#endif
