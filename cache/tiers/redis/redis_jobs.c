/*
 * redis_jobs.c - requests under way: lists of jobs, jobs that wait, room for sealed copies, and the
 * end of a job.
 *
 * A job is in one of three lists: active (it has asks under way, or will have at once), parked (it
 * waits for the object in `parked`), or flushes. A job ends exactly once; from then on its request
 * belongs to the caller again.
 */
#include <stdlib.h>
#include <string.h>

#include "tiers/redis/redis_tier.h"

static struct redis_jobs *list_of(struct redis_job *job)
{
	if (job->request->verb == KVT_TIER_FLUSH)
		return &job->t->flushes;
	return job->parked != NULL ? &job->t->parked : &job->t->active;
}

void redis_job_park(struct redis_job *job, const void *on, void (*resume)(struct redis_job *job))
{
	TAILQ_REMOVE(list_of(job), job, entry);
	job->parked = on;
	job->resume = resume;
	TAILQ_INSERT_TAIL(&job->t->parked, job, entry);
}

static void unpark(struct redis_job *job)
{
	TAILQ_REMOVE(&job->t->parked, job, entry);
	job->parked = NULL;
	TAILQ_INSERT_TAIL(&job->t->active, job, entry);
}

struct redis_job *redis_parked_on(const struct redis_tier *t, const void *on)
{
	struct redis_job *job;

	TAILQ_FOREACH(job, &t->parked, entry)
		if (job->parked == on)
			break;
	return job;
}

/* A job that parks again goes to the end of the list, after all jobs that are resumed now, so the
 * loop ends. */
void redis_resume(struct redis_tier *t, const void *on)
{
	struct redis_job *job;
	size_t count = 0;

	TAILQ_FOREACH(job, &t->parked, entry)
		count += job->parked == on;
	for (; count > 0; count--) {
		job = redis_parked_on(t, on);
		if (job == NULL)
			break;
		unpark(job);
		job->resume(job);
	}
}

bool redis_is_change(const struct redis_job *job)
{
	return job->request->verb == KVT_TIER_WRITE || job->request->verb == KVT_TIER_ERASE;
}

static uint64_t *moving_of(struct redis_job *job)
{
	return &job->t->moving[job->request->verb == KVT_TIER_WRITE];
}

static void count_end(struct redis_job *job, enum kvt_status status)
{
	struct redis_tier *t = job->t;
	struct redis_counters *c = &t->counters;

	pthread_mutex_lock(&t->lock);
	c->io_errors += status == KVT_EIO;
	c->corrupt += status == KVT_ECORRUPT;
	if (job->request->verb == KVT_TIER_READ) {
		c->hits += status == KVT_OK;
		c->misses += status != KVT_OK;
		c->loads += status == KVT_OK;
		c->load_bytes += status == KVT_OK ? job->request->bytes : 0;
	} else if (job->request->verb == KVT_TIER_WRITE && status == KVT_OK) {
		c->stores++;
		c->store_bytes += job->request->bytes;
	}
	pthread_mutex_unlock(&t->lock);
}

void redis_job_end(struct redis_job *job, enum kvt_status status)
{
	struct redis_tier *t = job->t;
	struct kvt_tier_request *request = job->request;
	uint64_t *moving = moving_of(job), turn = job->turn;
	bool had_room = job->bounce != NULL;
	struct redis_job *flush;

	TAILQ_REMOVE(list_of(job), job, entry);
	if (redis_is_change(job)) {
		TAILQ_FOREACH(flush, &t->flushes, entry)
			flush->changes -= flush->number > job->number;
		t->changes--;
	}
	count_end(job, status);
	request->next = NULL;
	request->status = status;
	/* the request's names point into the job, so the request ends before the job is freed */
	request->done(request);
	t->bounce_used -= job->bounce_bytes;
	*moving -= turn;
	for (uint32_t i = 0; job->asks != NULL && i < job->parts; i++)
		redis_ask_free(job->asks[i]);
	free(job->asks);
	free(job->victims);
	free(job->admission);
	free(job->bounce);
	free(job->extra);
	free(job->answers);
	free(job);
	if (had_room)
		redis_resume(t, &t->bounce_used);
	if (turn > 0)
		redis_resume(t, moving);
}

enum kvt_status redis_job_bounce(
	struct redis_job *job, uint64_t bytes, void (*resume)(struct redis_job *job))
{
	struct redis_tier *t = job->t;

	if (job->bounce != NULL)
		return KVT_OK;
	if (t->bounce_used > 0 && t->bounce_used + bytes > t->bounce_limit) {
		redis_job_park(job, &t->bounce_used, resume);
		return KVT_BUSY;
	}
	job->bounce = malloc(bytes);
	if (job->bounce == NULL)
		return KVT_ENOMEM;
	job->bounce_bytes = bytes;
	t->bounce_used += bytes;
	return KVT_OK;
}

uint32_t redis_job_slice(
	const struct redis_job *job, uint64_t from, uint64_t len, struct kvt_segment *out)
{
	const struct kvt_tier_request *r = job->request;
	uint32_t count = 0;

	if (job->bounce != NULL) {
		out[0] = (struct kvt_segment){.base = job->bounce + from, .bytes = len};
		return 1;
	}
	for (uint32_t i = 0; i < r->segment_count && len > 0; i++) {
		const struct kvt_segment *s = &r->segments[i];
		uint64_t n;

		if (from >= s->bytes) {
			from -= s->bytes;
			continue;
		}
		n = s->bytes - from < len ? s->bytes - from : len;
		out[count++] = (struct kvt_segment){.base = (uint8_t *)s->base + from, .bytes = n};
		from = 0;
		len -= n;
	}
	return count;
}

enum kvt_status redis_job_turn(struct redis_job *job, void (*resume)(struct redis_job *job))
{
	struct redis_tier *t = job->t;
	uint64_t *moving = moving_of(job), bytes = job->request->bytes;

	if (job->turn > 0)
		return KVT_OK;
	if (*moving > 0 && *moving + bytes > REDIS_AT_ONCE) {
		redis_job_park(job, moving, resume);
		return KVT_BUSY;
	}
	*moving += bytes;
	job->turn = bytes;
	job->begun_ns = kvt_now(t->s);
	job->deadline_ns = job->begun_ns + (int64_t)t->deadline_ns;
	if (job->request->deadline_ns > 0 && job->request->deadline_ns < job->deadline_ns)
		job->deadline_ns = job->request->deadline_ns;
	return KVT_OK;
}
