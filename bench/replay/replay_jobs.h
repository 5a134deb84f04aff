/*
 * replay_jobs.h - the jobs of a replay: prompts as chains of block hashes, and their times of
 * arrival.
 *
 * A job's prompt is given by the ids of its blocks of KVB_ID_TOKENS tokens, as Mooncake's traces
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
	int64_t due_ns; /* since the start; for a job that follows another: since the end of that */
	uint32_t input;      /* tokens, at least 1 */
	uint32_t output;     /* tokens, at least 1 */
	uint32_t next;       /* the job that follows this one; KVB_NO_JOB: none */
	uint32_t id_count;   /* ceil(input / KVB_ID_TOKENS) */
	/* each is a hash of its block and all blocks before; owned by the list */
	const uint64_t *ids;
	bool follows;        /* begins when another job has ended, not at a fixed time */
	uint32_t direct;     /* the worker to which it is sent past the router; KVB_ROUTED: none */
	/* 0: the usual class; a request with a higher number yields to one with a lower number */
	uint8_t class;
};

struct kvb_jobs {
	struct kvb_job *items; /* owned; those that do not follow others are in the order of time */
	size_t count, capacity;
	bool retry;       /* a refused client comes back, and stops after several refusals */
	int64_t until_ns; /* programs that end until then are counted; 0: all */
};

/* Adds a job; the ids are copied and chained. Returns the job's number. */
uint32_t kvb_jobs_add(struct kvb_jobs *jobs, int64_t due_ns, uint32_t input, uint32_t output,
	const uint64_t *ids);
/* Job `next` begins gap_ns after job `job` has ended. */
void kvb_jobs_follow(struct kvb_jobs *jobs, uint32_t job, uint32_t next, int64_t gap_ns);
/* Returns whether some job follows another one, so that clients wait for answers. */
bool kvb_jobs_closed_loop(const struct kvb_jobs *jobs);
/* Makes the job bypass the router: another client sends it to this worker. */
void kvb_jobs_direct(struct kvb_jobs *jobs, uint32_t job, uint32_t worker);
/* Adds all requests of a trace, whose clock runs `scale` times as fast. */
void kvb_jobs_from_trace(struct kvb_jobs *jobs, const struct kvb_trace *trace, double scale);
/* Spreads jobs with the same time evenly until the next time: times in a recorded trace may be
 * rounded to seconds, so that no router could react to other jobs in time. No job may follow
 * another. */
void kvb_jobs_spread(struct kvb_jobs *jobs);
/* Leaves at least this time between two requests of a trace, as kvbench's --pause-ms does. */
void kvb_jobs_pause(struct kvb_jobs *jobs, int64_t pause_ns);
/* Lets all jobs come `times` times in all, one repetition after the other. Each has prompts of its
 * own, so that no repetition finds those before in a cache. No job may follow another. */
void kvb_jobs_repeat(struct kvb_jobs *jobs, uint32_t times);
/* Makes the rate of arrivals rise and fall `waves` times, from 1 - swing times the mean to 1 + swing
 * times, without a change of the mean. swing: below 1. No job may follow another. */
void kvb_jobs_wave(struct kvb_jobs *jobs, double swing, double waves);
void kvb_jobs_finish(struct kvb_jobs *jobs);

/* Returns the chain hash of a full block of `size` tokens, which divides KVB_ID_TOKENS. */
uint64_t kvb_job_block(const struct kvb_job *job, uint32_t size, uint32_t block);
/* Returns the tokens at the beginning that two prompts have in common. */
uint32_t kvb_job_shared(const struct kvb_job *a, const struct kvb_job *b);

/* Returns how much an engine reuses of a prompt of which it holds `held` tokens: whole blocks, but
 * never the whole prompt. */
uint32_t kvb_job_reused(const struct kvb_job *job, uint32_t held, uint32_t block);

/* Returns 64 well-mixed bits. */
uint64_t kvb_mix(uint64_t x);
/* Returns the next of a sequence of random numbers within [0, 1). */
double kvb_random(uint64_t *state);

#endif
