/*
 * pool.c - the engine for machines without io_uring: threads that wait for the disk.
 *
 * A queue of waiting operations, a queue of finished ones, and one mutex for both; transfers hold
 * no lock. Threads are started with the engine, not on demand: a process that may not have them
 * learns that when it opens the store, not amid its work. Cost: two switches of context per
 * operation, some ten microseconds against the millisecond that 4 MiB take.
 *
 * The threads block all signals, so that the process's own threads run its handlers, and do not
 * inherit the processors of the opening thread: engines bind their threads.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "io/engine.h"

#define MOST_THREADS 32u

struct pool {
	struct kvt_engine base;
	pthread_mutex_t lock; /* guards all members below except the ids of the threads */
	pthread_cond_t work;  /* signaled when an operation waits, and when the pool ends */
	pthread_cond_t news;  /* signaled when an operation is done, and by a wake */
	struct kvt_io_queue waiting, done;
	bool woken, ending;
	uint32_t thread_count;
	pthread_t threads[];
};

static int64_t call(const struct kvt_io_op *op, uint64_t done)
{
	const struct kvt_machine_file *file = (const struct kvt_machine_file *)op->file;
	struct iovec pieces[KVT_IO_MAX_PIECES];
	off_t offset = (off_t)(op->offset + done);
	int count;
	ssize_t n;

	if (op->kind == KVT_IO_SYNC) {
		n = fdatasync(file->fd);
	} else {
		count = (int)kvt_io_rest(op, done, pieces);
		n = op->kind == KVT_IO_READ ? preadv(file->fd, pieces, count, offset)
					    : pwritev(file->fd, pieces, count, offset);
	}
	return n < 0 ? -errno : n;
}

static void carry_out(struct kvt_io_op *op)
{
	uint64_t done = 0;
	uint32_t retries = 0;

	while (kvt_io_settle(op, call(op, done), &done, &retries) == KVT_IO_AGAIN)
		continue;
}

static void leave_processors(void)
{
	cpu_set_t all;

	CPU_ZERO(&all);
	for (int i = 0; i < CPU_SETSIZE; i++)
		CPU_SET(i, &all);
	/* the kernel keeps those processors that are allowed */
	(void)sched_setaffinity(0, sizeof(all), &all);
}

static void *serve(void *arg)
{
	struct pool *pool = arg;
	struct kvt_io_op *op;

	leave_processors();
	pthread_mutex_lock(&pool->lock);
	while (true) {
		op = kvt_io_queue_take(&pool->waiting);
		if (op == NULL) {
			if (pool->ending)
				break;
			pthread_cond_wait(&pool->work, &pool->lock);
			continue;
		}
		pthread_mutex_unlock(&pool->lock);
		carry_out(op);
		pthread_mutex_lock(&pool->lock);
		kvt_io_queue_add(&pool->done, op);
		pthread_cond_signal(&pool->news);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static void pool_submit(struct kvt_engine *engine, struct kvt_io_op *list)
{
	struct pool *pool = (struct pool *)engine;

	pthread_mutex_lock(&pool->lock);
	while (list != NULL) {
		struct kvt_io_op *op = list;

		list = op->next;
		kvt_io_queue_add(&pool->waiting, op);
		pthread_cond_signal(&pool->work);
	}
	pthread_mutex_unlock(&pool->lock);
}

static struct timespec deadline(int64_t wait_ns)
{
	struct timespec at;
	int64_t ns;

	clock_gettime(CLOCK_MONOTONIC, &at);
	if (wait_ns > INT64_C(86400) * 1000000000)
		wait_ns = INT64_C(86400) * 1000000000;
	ns = at.tv_nsec + wait_ns;
	at.tv_sec += ns / 1000000000;
	at.tv_nsec = ns % 1000000000;
	return at;
}

static size_t pool_reap(
	struct kvt_engine *engine, struct kvt_io_op **out, size_t max, int64_t wait_ns)
{
	struct pool *pool = (struct pool *)engine;
	size_t n = 0;

	pthread_mutex_lock(&pool->lock);
	if (wait_ns > 0) {
		struct timespec until = deadline(wait_ns);

		while (pool->done.first == NULL && !pool->woken)
			if (pthread_cond_timedwait(&pool->news, &pool->lock, &until) != 0)
				break;
		pool->woken = false;
	}
	while (n < max && pool->done.first != NULL)
		out[n++] = kvt_io_queue_take(&pool->done);
	pthread_mutex_unlock(&pool->lock);
	return n;
}

static void pool_wake(struct kvt_engine *engine)
{
	struct pool *pool = (struct pool *)engine;

	pthread_mutex_lock(&pool->lock);
	pool->woken = true;
	pthread_cond_signal(&pool->news);
	pthread_mutex_unlock(&pool->lock);
}

static void pool_destroy(struct kvt_engine *engine)
{
	struct pool *pool = (struct pool *)engine;

	pthread_mutex_lock(&pool->lock);
	pool->ending = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (uint32_t i = 0; i < pool->thread_count; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->news);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

/* Starts the threads. One thread is enough; if not all could be started, sets *error. */
static int start(struct pool *pool, uint32_t wanted)
{
	int error = 0;

	for (; pool->thread_count < wanted && error == 0; pool->thread_count += error == 0)
		error = kvw_thread_start(&pool->threads[pool->thread_count], serve, pool);
	return pool->thread_count > 0 ? 0 : error;
}

static const struct kvt_engine_ops pool_ops = {
	.submit = pool_submit,
	.reap = pool_reap,
	.wake = pool_wake,
	.destroy = pool_destroy,
};

enum kvt_status kvt_pool_create(uint32_t depth, struct kvt_engine **out, int *error)
{
	uint32_t wanted = depth < MOST_THREADS ? depth : MOST_THREADS;
	struct pool *pool = calloc(1, sizeof(*pool) + wanted * sizeof(pool->threads[0]));
	pthread_condattr_t attr;

	if (pool == NULL)
		return KVT_ENOMEM;
	pool->base.ops = &pool_ops;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&pool->news, &attr);
	pthread_condattr_destroy(&attr);
	*error = start(pool, wanted);
	if (*error != 0) {
		pool_destroy(&pool->base);
		return KVT_EIO;
	}
	*out = &pool->base;
	return KVT_OK;
}
