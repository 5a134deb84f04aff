/*
 * replay_jobs.h - what is replayed: prompts as chains of block hashes, and when they come.
 *
 * A job's prompt is known by the ids of its blocks of KVB_ID_TOKENS tokens, as Mooncake's traces
 * have them; the last block may be partial. Smaller blocks (an engine's, a router's chunks) get
 * hashes that follow from their place in such a block: two prompts that share an id share all
 * blocks within it, as they would share its text.
 */
#ifndef KVB_REPLAY_JOBS_H
#define KVB_REPLAY_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/load/trace_file.h"

#define KVB_ID_TOKENS 512
#define KVB_NO_JOB    UINT32_MAX
#define KVB_ROUTED    UINT32_MAX
#define KVB_CLASSES   4u

struct kvb_job {
	int64_t due_ns;      /* since the start; of one that follows: since that one's end */
	uint32_t input;      /* tokens, at least 1 */
	uint32_t output;     /* tokens, at least 1 */
	uint32_t next;       /* the job that follows this one; KVB_NO_JOB: none */
	uint32_t id_count;   /* ceil(input / KVB_ID_TOKENS) */
	const uint64_t *ids; /* each of its block and all before; owned by the list */
	bool follows;        /* begins when another job has ended, not at a fixed time */
	uint32_t direct;     /* the worker it is sent to past the router; KVB_ROUTED: none */
	uint8_t class; /* 0: as any; what has a higher number yields to what has a lower one */
};

struct kvb_jobs {
	struct kvb_job *items; /* owned; those with a time of their own in its order */
	size_t count, capacity;
	bool retry;       /* a refused client comes back, and gives up after some times */
	int64_t until_ns; /* programs are counted that finish until then; 0: all */
};

/* Adds a job; ids are copied and chained. Returns its number. */
uint32_t kvb_jobs_add(struct kvb_jobs *jobs, int64_t due_ns, uint32_t input, uint32_t output,
	const uint64_t *ids);
/* Job `next` begins gap_ns after job `job` has ended. */
void kvb_jobs_follow(struct kvb_jobs *jobs, uint32_t job, uint32_t next, int64_t gap_ns);
/* Some job follows another one: clients wait for answers. */
bool kvb_jobs_closed_loop(const struct kvb_jobs *jobs);
/* The job bypasses the router: another client sends it to this worker. */
void kvb_jobs_direct(struct kvb_jobs *jobs, uint32_t job, uint32_t worker);
/* All requests of a trace, its clock running `scale` times as fast. */
void kvb_jobs_from_trace(struct kvb_jobs *jobs, const struct kvb_trace *trace, double scale);
/* Jobs of one moment come evenly until the next moment at which any comes: a recorded trace may
 * have its times rounded to seconds, in which no router can hear of another's. No job follows
 * another. */
void kvb_jobs_spread(struct kvb_jobs *jobs);
/* Of a trace: at least so long between two requests, as kvbench's --pause-ms. */
void kvb_jobs_pause(struct kvb_jobs *jobs, int64_t pause_ns);
void kvb_jobs_finish(struct kvb_jobs *jobs);

/* Chain hashes of the job's full blocks of `size` tokens, which divides KVB_ID_TOKENS. */
uint64_t kvb_job_block(const struct kvb_job *job, uint32_t size, uint32_t block);
/* Tokens of the longest beginning that two prompts share. */
uint32_t kvb_job_shared(const struct kvb_job *a, const struct kvb_job *b);

/* What an engine reuses of a prompt of which it holds `held` tokens: whole blocks, never all. */
uint32_t kvb_job_reused(const struct kvb_job *job, uint32_t held, uint32_t block);

/* Well-mixed bits of any 64. */
uint64_t kvb_mix(uint64_t x);
/* The next of a sequence of random numbers within [0, 1). */
double kvb_random(uint64_t *state);

#endif
