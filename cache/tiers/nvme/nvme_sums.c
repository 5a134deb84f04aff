/*
 * nvme_sums.c - computes the checksums of a chunk while the rest of it is being read.
 *
 *   operation ends -> complete pieces are ready -> threads sum them, in any order
 *   -> after the last operation, and the last piece summed, the read is settled on the tier's thread
 *
 * A chunk's header has a checksum for each piece of its payload (nvme_format.h), so pieces are summed as they arrive,
 * in any order, and several threads may work on one chunk. When the last operation ends, only the last piece is left to
 * sum, and summed bytes arrived a moment ago. The expected checksums are looked up at the end: the header arrives with
 * the first operation, which need not be the first to end.
 *
 * A chunk without such checksums (1.1 wrote none), or whose header and log disagree about them, is one piece, summed
 * once all of it is here. A sealed chunk is opened instead, when it is settled.
 *
 * The tier's thread itself sums up to AT_ONCE bytes each time between two calls that reap
 * operations. When more bytes wait than it can sum, which happens only with fast disks, it wakes
 * helper threads, or starts them. Without threads of the library (KVT_THREADS_CALLER) there are no
 * helpers, and a failed start means one helper fewer.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "tiers/nvme/nvme.h"

#define AT_ONCE    ((uint64_t)1 << 20)
#define MOST       (AT_ONCE / NVME_PIECE_BYTES) /* most pieces that a thread takes at once */
/* one more helper is called for each time this many bytes wait */
#define HELP_BYTES ((uint64_t)8 << 20)
/* most helpers; there are also no more than there are processors beyond the first */
#define HELPERS    3u

/* A piece of one read. */
struct piece {
	/* written by the thread that sums the piece, then read by the tier's thread */
	struct kvt_checksum sum;
	/* used by the tier's thread only: number of the piece's pages that have not arrived */
	uint32_t pages;
	/* under the sums' lock: entry k of the array has in `ready` the number of the k-th piece
	 * that became complete */
	uint32_t ready;
};

/* The checksums of one read. */
struct nvme_sum {
	struct nvme_job *job;
	/* under the sums' lock: list of reads that wait to be summed, or to be settled */
	struct nvme_sum *next;
	uint32_t ready;        /* under the sums' lock: number of complete pieces */
	/* under the sums' lock: number of complete pieces that threads have taken */
	uint32_t taken;
	uint32_t working;      /* under the sums' lock: number of threads at work on this read */
	bool listed;           /* under the sums' lock: the read is in the list of waiting reads */
	bool ended;            /* under the sums' lock: all operations of the read have ended */
	/* used by the tier's thread only; false: the payload is sealed, and has no sums */
	bool wanted;
	/* length of all pieces but the last; constant until the read is settled */
	uint64_t piece_bytes;
	uint32_t count, room;  /* number of pieces; number of pieces that are allocated */
	struct piece *pieces;
};

/* Reads that wait for a summing thread, and the helper threads. */
struct nvme_sums {
	struct nvme *t;
	pthread_mutex_t lock;          /* guards all members below but the helpers' ids; a leaf */
	pthread_cond_t work;           /* signaled when a read waits, and when the tier is closed */
	struct nvme_sum *first, *last; /* list of waiting reads, in order */
	uint64_t bytes;                /* that wait */
	struct nvme_sum *done;         /* list of reads that the tier's thread is to settle */
	bool ending;
	uint32_t idle;    /* waiting helpers */
	uint32_t helpers; /* number of helpers; used by the tier's thread only, like the rest */
	uint32_t most;
	pthread_t threads[HELPERS];
};

/* The pieces that a thread took: the numbers ready[from] to ready[to - 1] of a read. */
struct share {
	struct nvme_sum *sum;
	uint32_t from, to;
};

static uint64_t piece_bytes(const struct nvme_sum *s, uint32_t i)
{
	uint64_t from = i * s->piece_bytes;

	return s->job->bytes - from < s->piece_bytes ? s->job->bytes - from : s->piece_bytes;
}

/* --- waiting reads; under the sums' lock
 * -------------------------------------------------------- */

/* Puts a read into the list of waiting reads; at its front if some of its pieces are summed
 * already, so that its chunk is complete before others. */
static void wait_in_line(struct nvme_sums *c, struct nvme_sum *s)
{
	s->listed = true;
	if (s->taken > 0 || c->first == NULL) {
		s->next = c->first;
		c->first = s;
		if (c->last == NULL)
			c->last = s;
		return;
	}
	s->next = NULL;
	c->last->next = s;
	c->last = s;
}

/* Takes some pieces of the first waiting read. */
static bool take(struct nvme_sums *c, struct share *out)
{
	struct nvme_sum *s = c->first;
	uint64_t bytes = 0;

	if (s == NULL)
		return false;
	*out = (struct share){.sum = s, .from = s->taken, .to = s->taken};
	while (out->to < s->ready && out->to - out->from < MOST)
		bytes += piece_bytes(s, s->pieces[out->to++].ready);
	s->taken = out->to;
	s->working++;
	c->bytes -= bytes;
	if (s->taken == s->ready) {
		s->listed = false;
		c->first = s->next;
		if (c->first == NULL)
			c->last = NULL;
	}
	return true;
}

static bool is_idle(const struct nvme_sum *s)
{
	return s->working == 0 && s->taken == s->ready;
}

/* --- summing ---------------------------------------------------------------------------------- */

/* Computes the checksum of a piece; needs no lock. */
static void sum_piece(const struct nvme_sum *s, uint32_t i)
{
	struct iovec runs[KVT_IO_MAX_PIECES];
	struct kvt_segment segments[KVT_IO_MAX_PIECES];
	uint64_t bytes = piece_bytes(s, i);
	uint32_t count = nvme_transfer_slice(
		s->job, s->job->head_bytes + i * s->piece_bytes, bytes, runs);

	for (uint32_t k = 0; k < count; k++)
		segments[k] = (struct kvt_segment){
			.base = runs[k].iov_base, .bytes = runs[k].iov_len};
	kvt_checksum_segments(segments, count, bytes, &s->pieces[i].sum);
}

/* Sums the taken pieces. Called under the lock, which it releases meanwhile. Returns true if the
 * read is now to be settled. */
static bool sum_some(struct nvme_sums *c, const struct share *share)
{
	struct nvme_sum *s = share->sum;
	uint32_t numbers[MOST];
	uint32_t count = share->to - share->from;

	for (uint32_t k = 0; k < count; k++)
		numbers[k] = s->pieces[share->from + k].ready;
	pthread_mutex_unlock(&c->lock);
	for (uint32_t k = 0; k < count; k++)
		sum_piece(s, numbers[k]);
	pthread_mutex_lock(&c->lock);
	s->working--;
	if (!s->ended || !is_idle(s))
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
	struct share share;

	pthread_mutex_lock(&c->lock);
	while (true) {
		if (!take(c, &share)) {
			if (c->ending)
				break;
			c->idle++;
			pthread_cond_wait(&c->work, &c->lock);
			c->idle--;
			continue;
		}
		if (!sum_some(c, &share))
			continue;
		pthread_mutex_unlock(&c->lock);
		if (atomic_load(&t->asleep))
			t->io->ops->wake(t->io);
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* Starts one helper thread, with signals blocked. It may run on all processors that the tier's
 * thread may use. */
static void start_one(struct nvme_sums *c)
{
	int failed = kvw_thread_start(&c->threads[c->helpers], help, c);

	if (failed != 0) {
		c->most = c->helpers;
		return;
	}
	(void)pthread_setname_np(c->threads[c->helpers++], "kvt-nvme-sum");
}

/* Wakes or starts a helper if more bytes wait than the tier's thread can sum at once. Called under
 * the lock. */
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
	free(sum->pieces);
	free(sum);
}

/* --- course of a read; on the tier's thread
 * ----------------------------------------------------- */

static enum kvt_status make_room(struct nvme_job *job, uint32_t count)
{
	struct nvme_sum *s = job->sum;

	if (s == NULL) {
		s = calloc(1, sizeof(*s));
		if (s == NULL)
			return KVT_ENOMEM;
		s->job = job;
		job->sum = s;
	}
	if (s->room < count) {
		free(s->pieces);
		s->pieces = calloc(count, sizeof(*s->pieces));
		s->room = s->pieces != NULL ? count : 0;
	}
	return s->pieces != NULL ? KVT_OK : KVT_ENOMEM;
}

enum kvt_status nvme_sum_begin(struct nvme *t, struct nvme_job *job)
{
	bool by_pieces = (t->side[job->entry].flags & NVME_HAS_PIECES) != 0 &&
			 job->bytes > NVME_PIECE_BYTES;
	uint32_t count = by_pieces ? (uint32_t)nvme_piece_count(job->bytes) : 1;
	struct nvme_sum *s;

	if (t->sealer != NULL) {
		if (job->sum != NULL)
			job->sum->wanted = false;
		return KVT_OK;
	}
	if (make_room(job, count) != KVT_OK)
		return KVT_ENOMEM;
	s = job->sum;
	s->piece_bytes = by_pieces ? NVME_PIECE_BYTES : job->bytes;
	s->count = count;
	s->ready = s->taken = 0;
	s->ended = false;
	s->wanted = true;
	for (uint32_t i = 0; i < count; i++)
		s->pieces[i].pages =
			(uint32_t)((piece_bytes(s, i) + NVME_PAGE - 1) / NVME_PAGE);
	return KVT_OK;
}

static bool wanted(const struct nvme_job *job)
{
	return job->sum != NULL && job->sum->wanted;
}

/* Called when pages [from, to) of the payload have arrived. Appends the pieces that are now
 * complete to the list of complete pieces, which is kept in the member `ready` of the pieces;
 * returns how many were appended. */
static uint32_t arrive(struct nvme_sum *s, uint64_t from, uint64_t to, uint64_t *bytes)
{
	uint32_t n = 0;

	while (from < to) {
		uint32_t i = (uint32_t)(from * NVME_PAGE / s->piece_bytes);
		uint64_t end = ((uint64_t)(i + 1) * s->piece_bytes + NVME_PAGE - 1) / NVME_PAGE;

		if (i + 1 == s->count || end > to)
			end = to;
		s->pieces[i].pages -= (uint32_t)(end - from);
		if (s->pieces[i].pages == 0) {
			s->pieces[s->ready + n++].ready = i;
			*bytes += piece_bytes(s, i);
		}
		from = end;
	}
	return n;
}

void nvme_sum_came(struct nvme *t, struct nvme_job *job, uint64_t at, uint64_t bytes)
{
	struct nvme_sums *c = t->sums;
	struct nvme_sum *s = job->sum;
	uint64_t head = job->head_bytes / NVME_PAGE, more = 0;
	uint64_t from = at / NVME_PAGE, to = (at + bytes) / NVME_PAGE;
	uint32_t n;

	if (!wanted(job) || to <= head)
		return;
	pthread_mutex_lock(&c->lock);
	n = arrive(s, from > head ? from - head : 0, to - head, &more);
	s->ready += n;
	c->bytes += more;
	if (n > 0 && !s->listed)
		wait_in_line(c, s);
	pthread_mutex_unlock(&c->lock);
}

bool nvme_sum_ended(struct nvme *t, struct nvme_job *job)
{
	bool all;

	if (!wanted(job))
		return true;
	pthread_mutex_lock(&t->sums->lock);
	job->sum->ended = true;
	all = is_idle(job->sum);
	pthread_mutex_unlock(&t->sums->lock);
	return all;
}

enum kvt_status nvme_sum_judge(
	const struct nvme_job *job, const struct nvme_chunk *chunk, uint32_t *bad, uint32_t *of)
{
	const struct nvme_sum *s = job->sum;

	*bad = 0;
	if (!wanted(job) || s->taken != s->count || (s->count > 1 && s->count != chunk->piece_count))
		return KVT_MISS;
	*of = s->count;
	if (s->count == 1)
		return kvt_checksum_equal(&s->pieces[0].sum, &chunk->checksum) ? KVT_OK : KVT_ECORRUPT;
	for (; *bad < s->count; (*bad)++) {
		struct kvt_checksum right = nvme_piece_get(chunk, *bad);

		if (!kvt_checksum_equal(&s->pieces[*bad].sum, &right))
			return KVT_ECORRUPT;
	}
	return KVT_OK;
}

/* Sums up to AT_ONCE bytes, and settles the reads that are summed. */
size_t nvme_sums_step(struct nvme *t)
{
	struct nvme_sums *c = t->sums;
	struct nvme_sum *s;
	struct share share;
	size_t n = 0;

	if (t->reads_active == 0)
		return 0;
	pthread_mutex_lock(&c->lock);
	call_help(c);
	for (uint64_t bytes = 0; bytes < AT_ONCE && take(c, &share); n++) {
		for (uint32_t k = share.from; k < share.to; k++)
			bytes += piece_bytes(share.sum, share.sum->pieces[k].ready);
		(void)sum_some(c, &share);
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
