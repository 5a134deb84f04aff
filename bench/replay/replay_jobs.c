/* replay_jobs.c - what is replayed: prompts as chains of block hashes, and when they come. */
#include "bench/replay/replay_jobs.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "bench/load/mem.h"

uint64_t kvb_mix(uint64_t x)
{
	x += UINT64_C(0x9E3779B97F4A7C15);
	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

double kvb_random(uint64_t *state)
{
	*state += UINT64_C(0x9E3779B97F4A7C15);
	return (double)(kvb_mix(*state) >> 11) / (double)(UINT64_C(1) << 53);
}

uint32_t kvb_jobs_add(
	struct kvb_jobs *jobs, int64_t due_ns, uint32_t input, uint32_t output, const uint64_t *ids)
{
	uint32_t count = (input + KVB_ID_TOKENS - 1) / KVB_ID_TOKENS;
	uint64_t *chain = kvb_alloc(count, sizeof(*chain));
	uint64_t hash = 0;

	assert(input > 0 && output > 0 && jobs->count < KVB_NO_JOB);
	if (jobs->count == jobs->capacity) {
		jobs->capacity = jobs->capacity > 0 ? jobs->capacity * 2 : 256;
		jobs->items = kvb_realloc(jobs->items, jobs->capacity, sizeof(jobs->items[0]));
	}
	for (uint32_t i = 0; i < count; i++)
		chain[i] = hash = kvb_mix(hash ^ kvb_mix(ids[i]));
	jobs->items[jobs->count] = (struct kvb_job){.due_ns = due_ns,
		.input = input,
		.output = output,
		.next = KVB_NO_JOB,
		.direct = KVB_ROUTED,
		.id_count = count,
		.ids = chain};
	return (uint32_t)jobs->count++;
}

void kvb_jobs_follow(struct kvb_jobs *jobs, uint32_t job, uint32_t next, int64_t gap_ns)
{
	jobs->items[job].next = next;
	jobs->items[next].follows = true;
	jobs->items[next].due_ns = gap_ns;
}

bool kvb_jobs_closed_loop(const struct kvb_jobs *jobs)
{
	for (size_t j = 0; j < jobs->count; j++)
		if (jobs->items[j].follows)
			return true;
	return false;
}

void kvb_jobs_direct(struct kvb_jobs *jobs, uint32_t job, uint32_t worker)
{
	jobs->items[job].direct = worker;
}

/* A prompt whose ids cover fewer tokens than it has is cut to the tokens that they cover. */
void kvb_jobs_from_trace(struct kvb_jobs *jobs, const struct kvb_trace *trace, double scale)
{
	for (size_t i = 0; i < trace->count; i++) {
		const struct kvb_trace_row *row = &trace->rows[i];
		uint32_t known = (uint32_t)row->id_count * KVB_ID_TOKENS;
		uint32_t input = row->input_tokens < known ? row->input_tokens : known;

		kvb_jobs_add(jobs, (int64_t)((double)row->timestamp_ms * 1e6 / scale),
			input > 0 ? input : 1, row->output_tokens > 0 ? row->output_tokens : 1,
			row->ids);
	}
}

void kvb_jobs_spread(struct kvb_jobs *jobs)
{
	int64_t step_ns;

	for (size_t first = 0, next; first < jobs->count; first = next) {
		for (next = first; next < jobs->count && jobs->items[next].due_ns == jobs->items[first].due_ns; next++)
			;
		if (next == jobs->count)
			return;
		step_ns = (jobs->items[next].due_ns - jobs->items[first].due_ns) / (int64_t)(next - first);
		for (size_t i = 1; i < next - first; i++)
			jobs->items[first + i].due_ns += step_ns * (int64_t)i;
	}
}

void kvb_jobs_pause(struct kvb_jobs *jobs, int64_t pause_ns)
{
	for (size_t i = 1; i < jobs->count; i++) {
		int64_t first_ns = jobs->items[i - 1].due_ns + pause_ns;

		if (jobs->items[i].due_ns < first_ns)
			jobs->items[i].due_ns = first_ns;
	}
}

void kvb_jobs_repeat(struct kvb_jobs *jobs, uint32_t times)
{
	size_t count = jobs->count;
	int64_t last_ns = count > 0 ? jobs->items[count - 1].due_ns : 0;
	int64_t all_ns = count > 1 ? last_ns + last_ns / (int64_t)(count - 1) : last_ns;

	for (uint32_t t = 1; t < times; t++)
		for (size_t j = 0; j < count; j++) {
			const struct kvb_job *job = &jobs->items[j];
			uint64_t *ids = kvb_alloc(job->id_count, sizeof(*ids));

			for (uint32_t i = 0; i < job->id_count; i++)
				ids[i] = kvb_mix(job->ids[i] ^ kvb_mix(t));
			kvb_jobs_add(jobs, job->due_ns + (int64_t)t * all_ns, job->input,
				job->output, ids);
			free(ids);
		}
}

/* Returns the share of all jobs that are due within the first share u of the time, at a rate of
 * 1 - swing cos(2 pi waves u). */
static double come_by(double u, double swing, double waves)
{
	return u - swing * sin(2 * M_PI * waves * u) / (2 * M_PI * waves);
}

void kvb_jobs_wave(struct kvb_jobs *jobs, double swing, double waves)
{
	double all = jobs->count > 0 ? (double)jobs->items[jobs->count - 1].due_ns : 0;

	for (size_t i = 0; i < jobs->count && all > 0; i++) {
		double share = (double)jobs->items[i].due_ns / all, low = 0, high = 1;

		for (int step = 0; step < 60; step++) {
			double middle = (low + high) / 2;

			if (come_by(middle, swing, waves) < share)
				low = middle;
			else
				high = middle;
		}
		jobs->items[i].due_ns = (int64_t)(high * all + 0.5);
	}
}

void kvb_jobs_finish(struct kvb_jobs *jobs)
{
	for (size_t i = 0; i < jobs->count; i++)
		free((void *)jobs->items[i].ids);
	free(jobs->items);
	*jobs = (struct kvb_jobs){0};
}

uint64_t kvb_job_block(const struct kvb_job *job, uint32_t size, uint32_t block)
{
	uint32_t first = block * size;

	return kvb_mix(job->ids[first / KVB_ID_TOKENS] ^
		       kvb_mix((uint64_t)size << 32 | first % KVB_ID_TOKENS));
}

uint32_t kvb_job_shared(const struct kvb_job *a, const struct kvb_job *b)
{
	uint32_t low = 0;
	uint32_t high = a->id_count < b->id_count ? a->id_count : b->id_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (a->ids[middle] == b->ids[middle])
			low = middle + 1;
		else
			high = middle;
	}
	low *= KVB_ID_TOKENS;
	low = low < a->input ? low : a->input;
	return low < b->input ? low : b->input;
}

uint32_t kvb_job_reused(const struct kvb_job *job, uint32_t held, uint32_t block)
{
	uint32_t most = held < job->input ? held : job->input - 1;

	return most / block * block;
}
