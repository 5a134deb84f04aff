/*
 * sim_copier.c - two lists under one lock, and the thread between them.
 *
 * The thread blocks all signals, which are the main thread's. A put takes room for all chunks of a
 * step at once and makes visible what it got; a chunk that finds no room is a chunk that is not cached.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "bench/sim/sim_copier.h"
#include "bench/sim/sim_payload.h"

#define AT_ONCE 64u /* chunks of one reservation */

struct kvb_copier {
	struct kvt *cache; /* borrowed */
	uint32_t chunk_tokens;
	uint64_t chunk_bytes;
	uint8_t *device; /* memory to which leased bytes are copied; NULL: they are not copied */
	int fd;
	pthread_t thread;
	bool started;

	pthread_mutex_t lock; /* guards the members below */
	pthread_cond_t given;
	struct kvb_copy_list todo, done;
	bool ending;
};

/* --- checking --------------------------------------------------------------------------------- */

static void copy_away(struct kvb_copier *c, const struct kvt_lease *lease)
{
	for (size_t i = 0; c->device != NULL && i < lease->count; i++)
		if (lease->views[i].bytes <= c->chunk_bytes)
			kvt_copy(lease, i, c->device, c->chunk_bytes);
}

static uint64_t wrong_of(const struct kvb_copier *c, const struct kvb_copy *job, size_t index)
{
	const struct kvt_view *view = &job->lease->views[index];
	uint64_t at = 0, wrong = 0;

	for (uint32_t i = 0; i < view->segment_count; i++) {
		const struct kvt_segment *s = &job->lease->segments[view->first_segment + i];

		wrong += kvb_payload_wrong(&job->keys[index], at, s->base, s->bytes);
		at += s->bytes;
	}
	return at == c->chunk_bytes ? wrong : wrong + 1;
}

static void check(struct kvb_copier *c, struct kvb_copy *job)
{
	copy_away(c, job->lease);
	job->copied_ns = kvw_clock_ns();
	job->good = 0;
	job->wrong_bytes = 0;
	for (size_t i = 0; i < job->lease->count; i++) {
		uint64_t wrong = wrong_of(c, job, i);

		job->wrong_bytes += wrong;
		if (wrong == 0 && job->good == i)
			job->good++;
	}
}

/* --- putting ---------------------------------------------------------------------------------- */

static void fill(const struct kvb_put *put, const struct kvt_segment *segments, uint32_t count)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < count; i++) {
		kvb_payload_fill(&put->key, at, segments[i].base, segments[i].bytes);
		at += segments[i].bytes;
	}
}

static void count_status(struct kvb_copy *job, uint32_t status)
{
	if (status == KVT_OK)
		job->stored++;
	else if (status == KVT_EXISTS)
		job->existing++;
	else
		job->refused++;
}

static void put_some(
	struct kvb_copier *c, struct kvb_copy *job, const struct kvb_put *puts, uint32_t n)
{
	struct kvt_item items[AT_ONCE];
	uint32_t counts[AT_ONCE] = {0}, status[AT_ONCE];
	const struct kvt_segment *segments;
	struct kvt_reservation *room = NULL;
	enum kvt_status got;

	for (uint32_t i = 0; i < n; i++) {
		items[i] = (struct kvt_item){.size = sizeof(items[i]),
			.tokens = c->chunk_tokens,
			.key = puts[i].key,
			.parent = puts[i].has_parent ? &puts[i].parent : NULL,
			.bytes = c->chunk_bytes,
			.tenant = puts[i].tenant,
			.blocks = puts[i].has_blocks ? &puts[i].blocks : NULL,
			.blocks_size = sizeof(puts[i].blocks)};
		status[i] = KVT_EINVAL;
	}
	got = kvt_put_reserve(c->cache, items, n, &room, &segments, counts, status);
	if (got == KVT_OK) {
		for (uint32_t i = 0; i < n; segments += counts[i++])
			fill(&puts[i], segments, counts[i]);
		got = kvt_put_commit(c->cache, room, n, NULL);
		if (got != KVT_OK)
			for (uint32_t i = 0; i < n; i++)
				status[i] = status[i] == KVT_OK ? got : status[i];
	}
	for (uint32_t i = 0; i < n; i++)
		count_status(job, status[i]);
}

static void put(struct kvb_copier *c, struct kvb_copy *job)
{
	for (uint32_t at = 0; at < job->put_count; at += AT_ONCE) {
		uint32_t left = job->put_count - at;

		put_some(c, job, job->puts + at, left < AT_ONCE ? left : AT_ONCE);
	}
}

/* --- life ------------------------------------------------------------------------------------- */

static void tell(const struct kvb_copier *c)
{
	uint64_t one = 1;

	if (write(c->fd, &one, sizeof(one)) < 0)
		return; /* the counter is full, so it is readable */
}

static void *copier_main(void *self)
{
	struct kvb_copier *c = self;

	pthread_mutex_lock(&c->lock);
	for (;;) {
		struct kvb_copy *job = STAILQ_FIRST(&c->todo);

		if (job == NULL && c->ending)
			break;
		if (job == NULL) {
			pthread_cond_wait(&c->given, &c->lock);
			continue;
		}
		STAILQ_REMOVE_HEAD(&c->todo, entry);
		pthread_mutex_unlock(&c->lock);
		if (job->kind == KVB_COPY_CHECK)
			check(c, job);
		else
			put(c, job);
		pthread_mutex_lock(&c->lock);
		STAILQ_INSERT_TAIL(&c->done, job, entry);
		tell(c);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

struct kvb_copier *kvb_copier_create(
	struct kvt *cache, uint32_t chunk_tokens, uint64_t chunk_bytes, bool copies)
{
	struct kvb_copier *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->cache = cache;
	c->chunk_tokens = chunk_tokens;
	c->chunk_bytes = chunk_bytes;
	STAILQ_INIT(&c->todo);
	STAILQ_INIT(&c->done);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->given, NULL);
	c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (copies)
		c->device = malloc(chunk_bytes);
	c->started = c->fd >= 0 && (!copies || c->device != NULL) &&
		     kvw_thread_start(&c->thread, copier_main, c) == 0;
	if (c->started)
		return c;
	kvb_copier_destroy(c, NULL);
	return NULL;
}

void kvb_copier_destroy(struct kvb_copier *c, struct kvb_copy_list *left)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	c->ending = true;
	pthread_cond_signal(&c->given);
	pthread_mutex_unlock(&c->lock);
	if (c->started)
		pthread_join(c->thread, NULL);
	if (left != NULL)
		STAILQ_CONCAT(left, &c->done);
	if (c->fd >= 0)
		close(c->fd);
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->given);
	free(c->device);
	free(c);
}

void kvb_copier_give(struct kvb_copier *c, struct kvb_copy *job)
{
	pthread_mutex_lock(&c->lock);
	STAILQ_INSERT_TAIL(&c->todo, job, entry);
	pthread_cond_signal(&c->given);
	pthread_mutex_unlock(&c->lock);
}

struct kvb_copy *kvb_copier_take(struct kvb_copier *c)
{
	struct kvb_copy *job;

	pthread_mutex_lock(&c->lock);
	job = STAILQ_FIRST(&c->done);
	if (job != NULL)
		STAILQ_REMOVE_HEAD(&c->done, entry);
	pthread_mutex_unlock(&c->lock);
	return job;
}

int kvb_copier_fd(const struct kvb_copier *c)
{
	return c->fd;
}
