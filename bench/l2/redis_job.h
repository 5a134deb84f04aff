/*
 * redis_job.h - what both clients of Redis do: the same sizes, keys, connections and depth.
 *
 * `keys` values of `size` bytes lie one after another in memory of their own. A run puts or gets
 * them in turn, over and over, until `bytes` have gone; `depth` of them are under way at any time,
 * over `connections`. Before the clock starts an eighth as much goes to warm connections up. After
 * a run of gets every value in memory is compared with what was put, outside the measured time.
 */
#ifndef KVB_REDIS_JOB_H
#define KVB_REDIS_JOB_H

#include <stdbool.h>

#include "bench/l2/spent.h"

struct kvb_redis_job {
	const char *name; /* the program's name, for messages */
	const char *host;
	uint16_t port;
	uint64_t size;
	uint64_t count; /* values of a run */
	uint32_t keys, connections, depth;
	bool write;
	int server_pid;
	char *memory; /* keys * size */
};

/* Reads the command line and prepares the memory; ends the program if something is wrong. */
void kvb_redis_job_init(struct kvb_redis_job *job, int argc, char **argv);

static inline char *kvb_redis_value(const struct kvb_redis_job *job, uint64_t number)
{
	return job->memory + number % job->keys * job->size;
}

/* Warms up, measures `move` of so many values, checks, prints one JSON object. `move` ends the
 * program if it cannot. */
void kvb_redis_job_run(
	struct kvb_redis_job *job, void (*move)(void *self, uint64_t values), void *self);

#endif
