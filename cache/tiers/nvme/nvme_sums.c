/*
 * nvme_sums.c - the checksum of a chunk that is being read, made while the rest of it is on its way.
 *
 *   operation ends -> what is here without a gap grows -> the read waits for a thread that sums
 *   -> after the last operation, and the last byte summed, the read is settled on the tier's thread
 *
 * A chunk has one checksum, of its bytes in order, so one thread at a time sums a chunk, from where
 * the last one stopped to the first byte that is not here yet; operations that end out of order wait
 * for those before them. So what is left to do when the last operation ends is the last piece, not
 * the chunk, and what is summed came a moment ago.
 *
 * The tier's thread sums by itself, AT_ONCE bytes between two looks at the disk. When more waits
 * than it gets to, which one slow disk does not bring about, helpers are woken, each for another
 * chunk, and started when there are none yet. Without threads of the library (KVT_THREADS_CALLER)
 * there are none, and one that could not be started is one less.
 *
 * A payload of at most one piece, and a sealed one, is checked as a whole when all of it is here.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tiers/nvme/nvme.h"

#define AT_ONCE    ((uint64_t)1 << 20)
#define HELP_BYTES ((uint64_t)8 << 20) /* that wait: one more helper */
#define HELPERS    3u /* at most; no more than there are further processors */
#define WORD_BITS  64u

/* The checksum of one read. */
struct nvme_sum {
	struct kvt_checksum_stream stream; /* of the thread that sums */
	struct nvme_job *job;
	struct nvme_sum *next; /* sums' lock: of those that wait, or are done */
	uint64_t summed;       /* bytes of the payload; sums' lock, written by the thread that sums */
	uint64_t here;         /* sums' lock: bytes of the payload that came, without a gap */
	enum { SUM_IDLE, SUM_WAITING, SUM_UNDER_WAY } state; /* sums' lock */
	bool ended;        /* sums' lock: no operation of the read is under way any more */
	bool wanted;       /* the tier's thread's, as all that follows: false: checked as a whole */
	uint64_t page;     /* of the image: all before it are here */
	uint64_t *pages;   /* bits: those that came before their time */
	size_t page_words; /* room for so many words */
};

/* The reads that wait for a thread that sums, and the threads that help. */
struct nvme_sums {
	struct nvme *t;
	pthread_mutex_t lock;          /* of all below but the helpers' ids; a leaf */
	pthread_cond_t work;           /* a read waits, or ending */
	struct nvme_sum *first, *last; /* waiting, in order */
	uint64_t bytes;                /* that wait */
	struct nvme_sum *done;         /* to be settled by the tier's thread */
	bool ending;
	uint32_t idle;    /* helpers that wait */
	uint32_t helpers; /* the tier's thread's, as are the rest */
	uint32_t most;
	pthread_t threads[HELPERS];
};

/* --- reads that wait; under the sums' lock ----------------------------------------------------- */

static void wait_last(struct nvme_sums *c, struct nvme_sum *s)
{
	s->state = SUM_WAITING;
	s->next = NULL;
	if (c->last == NULL)
		c->first = s;
	else
		c->last->next = s;
	c->last = s;
	c->bytes += s->here - s->summed;
}

/* It was begun: its chunk should be whole before others are. */
static void wait_first(struct nvme_sums *c, struct nvme_sum *s)
{
	s->state = SUM_WAITING;
	s->next = c->first;
	c->first = s;
	if (c->last == NULL)
		c->last = s;
	c->bytes += s->here - s->summed;
}

static struct nvme_sum *take(struct nvme_sums *c)
{
	struct nvme_sum *s = c->first;

	if (s == NULL)
		return NULL;
	c->first = s->next;
	if (c->first == NULL)
		c->last = NULL;
	c->bytes -= s->here - s->summed;
	s->state = SUM_UNDER_WAY;
	return s;
}

/* --- summing ---------------------------------------------------------------------------------- */

/* Without a lock. */
static void add_range(struct nvme_sum *s, uint64_t from, uint64_t to)
{
	struct iovec runs[KVT_IO_MAX_PIECES];
	uint32_t count =
		nvme_transfer_slice(s->job, s->job->head_bytes + from, to - from, runs);

	for (uint32_t i = 0; i < count; i++)
		kvt_checksum_update(&s->stream, runs[i].iov_base, runs[i].iov_len);
}

/* Sums some of a read that was taken. Under the lock, which it lets go of meanwhile. true: the read
 * is to be settled. */
static bool sum_some(struct nvme_sums *c, struct nvme_sum *s)
{
	uint64_t from = s->summed, to = s->here;

	if (to - from > AT_ONCE)
		to = from + AT_ONCE;
	pthread_mutex_unlock(&c->lock);
	add_range(s, from, to);
	pthread_mutex_lock(&c->lock);
	s->summed = to;
	if (s->here > to) {
		wait_first(c, s);
		return false;
	}
	s->state = SUM_IDLE;
	if (!s->ended)
		return false;
	s->next = c->done;
	c->done = s;
	return true;
}

/* --- helpers ---------------------------------------------------------------------------------- */

static void *help(void *arg)
{
	struct nvme_sums *c = arg;
	struct nvme *t = c->t;

	pthread_mutex_lock(&c->lock);
	while (true) {
		struct nvme_sum *s = take(c);

		if (s == NULL) {
			if (c->ending)
				break;
			c->idle++;
			pthread_cond_wait(&c->work, &c->lock);
			c->idle--;
			continue;
		}
		if (!sum_some(c, s))
			continue;
		pthread_mutex_unlock(&c->lock);
		if (atomic_load(&t->asleep))
			t->io->ops->wake(t->io);
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* One more, without signals, which are the program's. It may run where the tier's thread may. */
static void start_one(struct nvme_sums *c)
{
	sigset_t all, before;
	int failed;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failed = pthread_create(&c->threads[c->helpers], NULL, help, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed != 0) {
		c->most = c->helpers;
		return;
	}
	(void)pthread_setname_np(c->threads[c->helpers++], "kvt-nvme-sum");
}

/* Helpers for what the tier's thread does not get to at once. Under the lock. */
static void call_help(struct nvme_sums *c)
{
	uint64_t wanted = c->bytes / HELP_BYTES;

	for (uint32_t idle = c->idle; wanted > 0 && idle > 0; wanted--, idle--)
		pthread_cond_signal(&c->work);
	if (wanted > 0 && c->helpers < c->most)
		start_one(c);
}

/* --- life ------------------------------------------------------------------------------------- */

enum kvt_status nvme_sums_open(struct nvme *t)
{
	struct nvme_sums *c = calloc(1, sizeof(*c));
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	if (c == NULL)
		return KVT_ENOMEM;
	c->t = t;
	if (!t->caller_threads && processors > 1)
		c->most = processors - 1 < (long)HELPERS ? (uint32_t)(processors - 1) : HELPERS;
	if (pthread_mutex_init(&c->lock, NULL) != 0) {
		free(c);
		return KVT_ENOMEM;
	}
	if (pthread_cond_init(&c->work, NULL) != 0) {
		(void)pthread_mutex_destroy(&c->lock);
		free(c);
		return KVT_ENOMEM;
	}
	t->sums = c;
	return KVT_OK;
}

void nvme_sums_close(struct nvme *t)
{
	struct nvme_sums *c = t->sums;

	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	c->ending = true;
	pthread_cond_broadcast(&c->work);
	pthread_mutex_unlock(&c->lock);
	for (uint32_t i = 0; i < c->helpers; i++)
		pthread_join(c->threads[i], NULL);
	(void)pthread_cond_destroy(&c->work);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
	t->sums = NULL;
}

void nvme_sum_free(struct nvme_sum *sum)
{
	if (sum == NULL)
		return;
	free(sum->pages);
	free(sum);
}

/* --- a read's way; the tier's thread ------------------------------------------------------------ */

static enum kvt_status make_room(struct nvme_job *job)
{
	size_t words = (size_t)(job->total / NVME_PAGE + WORD_BITS - 1) / WORD_BITS;
	struct nvme_sum *s = job->sum;

	if (s == NULL) {
		s = aligned_alloc(_Alignof(struct nvme_sum), sizeof(*s));
		if (s == NULL)
			return KVT_ENOMEM;
		memset(s, 0, sizeof(*s));
		s->job = job;
		job->sum = s;
	}
	if (s->page_words < words) {
		free(s->pages);
		s->pages = calloc(words, sizeof(*s->pages));
		s->page_words = s->pages != NULL ? words : 0;
	} else {
		memset(s->pages, 0, words * sizeof(*s->pages));
	}
	return s->pages != NULL ? KVT_OK : KVT_ENOMEM;
}

enum kvt_status nvme_sum_begin(struct nvme *t, struct nvme_job *job)
{
	bool wanted = t->sealer == NULL && job->bytes > NVME_PIECE_BYTES;
	enum kvt_status status;

	if (!wanted) {
		if (job->sum != NULL)
			job->sum->wanted = false;
		return KVT_OK;
	}
	status = make_room(job);
	if (status != KVT_OK)
		return status;
	kvt_checksum_begin(&job->sum->stream);
	job->sum->summed = job->sum->here = job->sum->page = 0;
	job->sum->state = SUM_IDLE;
	job->sum->ended = false;
	job->sum->wanted = true;
	return KVT_OK;
}

static bool wanted(const struct nvme_job *job)
{
	return job->sum != NULL && job->sum->wanted;
}

/* Pages [page, end) of the image came: up to where it is here without a gap. */
static void mark(struct nvme_sum *s, uint64_t page, uint64_t end)
{
	const uint64_t pages = s->job->total / NVME_PAGE;

	if (page != s->page) {
		for (; page < end; page++)
			s->pages[page / WORD_BITS] |= UINT64_C(1) << page % WORD_BITS;
		return;
	}
	s->page = end;
	while (s->page < pages &&
		(s->pages[s->page / WORD_BITS] >> s->page % WORD_BITS & 1) != 0)
		s->page++;
}

void nvme_sum_came(struct nvme *t, struct nvme_job *job, uint64_t at, uint64_t bytes)
{
	struct nvme_sums *c = t->sums;
	struct nvme_sum *s = job->sum;
	uint64_t here;

	if (!wanted(job) || bytes == 0)
		return;
	mark(s, at / NVME_PAGE, (at + bytes) / NVME_PAGE);
	here = s->page * NVME_PAGE;
	here = here > job->head_bytes ? here - job->head_bytes : 0;
	if (here > job->bytes)
		here = job->bytes; /* the rest fills up the last page */
	pthread_mutex_lock(&c->lock);
	if (s->state == SUM_WAITING)
		c->bytes += here - s->here;
	s->here = here;
	if (s->state == SUM_IDLE && here > s->summed &&
		(here == job->bytes || here - s->summed >= NVME_PIECE_BYTES))
		wait_last(c, s);
	pthread_mutex_unlock(&c->lock);
}

bool nvme_sum_ended(struct nvme *t, struct nvme_job *job)
{
	bool all;

	if (!wanted(job))
		return true;
	pthread_mutex_lock(&t->sums->lock);
	job->sum->ended = true;
	all = job->sum->state == SUM_IDLE;
	pthread_mutex_unlock(&t->sums->lock);
	return all;
}

bool nvme_sum_result(const struct nvme_job *job, struct kvt_checksum *out)
{
	if (!wanted(job) || job->sum->summed != job->bytes)
		return false;
	kvt_checksum_end(&job->sum->stream, out);
	return true;
}

size_t nvme_sums_step(struct nvme *t)
{
	struct nvme_sums *c = t->sums;
	struct nvme_sum *s;
	size_t n = 0;

	if (t->reads_active == 0)
		return 0;
	pthread_mutex_lock(&c->lock);
	call_help(c);
	s = take(c);
	if (s != NULL) {
		(void)sum_some(c, s);
		n++;
	}
	s = c->done;
	c->done = NULL;
	pthread_mutex_unlock(&c->lock);
	for (; s != NULL; n++) {
		struct nvme_sum *next = s->next;

		s->job->summed(t, s->job);
		s = next;
	}
	return n;
}

bool nvme_sums_due(struct nvme *t)
{
	bool due;

	if (t->reads_active == 0)
		return false;
	pthread_mutex_lock(&t->sums->lock);
	due = t->sums->first != NULL || t->sums->done != NULL;
	pthread_mutex_unlock(&t->sums->lock);
	return due;
}
