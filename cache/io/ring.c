/*
 * ring.c - executes operations by io_uring.
 *
 * submit -> waiting -> slot (at most `depth`) -> SQE ... CQE -> slot -> done -> reap
 *
 * Names. Each CQE has the number of its slot, and the number of times that the slot had been used
 * by then. A CQE with another than the slot's present count is stale and is dropped: it can never
 * be taken for the answer to another operation, even if the kernel reports twice or late.
 *
 * Bounds. At most `depth` operations and one poll are in the ring, the completion queue has room
 * for more than that, so it cannot overflow; the submission queue likewise, so there is always an
 * entry.
 *
 * Registered memory. The caller's arena is pinned once, in pieces of at most 1 GiB (the kernel's
 * limit for one), so that a transfer does not look up and pin a thousand pages again: 5 instead of
 * 7 to 9 ms of processor time per GB. Registered memory serves a transfer whose pieces are
 * consecutive inside one registered piece; all other transfers use plain operations, and both kinds
 * mix.
 *
 * Registration makes all of the memory present, some tenths of a second per GiB at best, several
 * seconds on a virtual machine whose host has to find it first. So the engine registers memory only
 * if it is present already (locked, of reserved huge pages): opening a store must not take minutes
 * to gain two milliseconds per GB. For the same reason no copy passes through a small registered
 * ring where the arena cannot be registered: copying a GB costs fifty times the gain.
 *
 * Threads. A submitting thread may end before the answer arrives: the kernel then cancels that
 * thread's operations, and the reaping thread requests the transfer again.
 *
 * Waking. An eventfd that the ring polls: one place to wait for both. A reap that does not wait
 * leaves the wake for the next one that does.
 */
#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "io/ring.h"

#define REGISTERED_BYTES (UINT64_C(1) << 30) /* most bytes of one registered piece of memory */
/* most bytes requested in one call; the rest follows in another */
#define CALL_BYTES       (UINT64_C(1) << 30)
#define RESIDENT_PAGES   4096 /* number of pages that are checked in one call */
#define SLOT_BITS        16
#define WAKE_TAG         (UINT64_C(1) << 63)
#define SECOND           INT64_C(1000000000)

/* A slot for an operation under way. */
struct slot {
	struct kvt_io_op *op; /* NULL: free */
	uint64_t uses; /* number of uses of the slot; 47 bits of it are in the name of the CQE */
	uint64_t done;        /* number of bytes that earlier calls moved */
	uint32_t retries;
	/* the kernel reads this until the call is submitted */
	struct iovec rest[KVT_IO_MAX_PIECES];
};

struct ring {
	struct kvt_engine base;
	struct io_uring uring;
	bool uring_open;
	int wake_fd;
	bool woken; /* a wake has come since the last reap that waited */
	bool armed; /* the ring is polling wake_fd */
	const char *memory; /* the registered arena; NULL: it is not registered */
	uint64_t memory_bytes;
	struct kvt_io_queue waiting, done;
	uint32_t depth;
	uint32_t free_count;
	uint16_t *free; /* numbers of free slots */
	struct slot slots[];
};

/* --- submission
 * --------------------------------------------------------------------------------- */

static uint64_t name_of(const struct ring *r, const struct slot *slot)
{
	uint64_t number = (uint64_t)(slot - r->slots);

	return ((slot->uses << SLOT_BITS) | number) & ~WAKE_TAG;
}

/* Returns the number of the registered piece that contains [base, base + bytes); -1: none does. */
static int registered_piece(const struct ring *r, const void *base, uint64_t bytes)
{
	uint64_t offset = (uint64_t)((const char *)base - r->memory);

	if (r->memory == NULL || (const char *)base < r->memory || bytes == 0 ||
		offset >= r->memory_bytes || bytes > r->memory_bytes - offset)
		return -1;
	if (offset / REGISTERED_BYTES != (offset + bytes - 1) / REGISTERED_BYTES)
		return -1;
	return (int)(offset / REGISTERED_BYTES);
}

static void ask_transfer(struct ring *r, struct slot *slot, struct io_uring_sqe *sqe)
{
	const struct kvt_io_op *op = slot->op;
	int fd = ((const struct kvt_machine_file *)op->file)->fd;
	uint32_t count = kvt_io_rest(op, slot->done, slot->rest);
	uint64_t offset = op->offset + slot->done;
	bool read = op->kind == KVT_IO_READ;
	void *base = slot->rest[0].iov_base;
	uint64_t bytes = count == 0 ? 0 : slot->rest[0].iov_len;
	int piece;

	if (count == 1 && bytes <= CALL_BYTES) {
		piece = registered_piece(r, base, bytes);
		if (piece >= 0) {
			if (read)
				io_uring_prep_read_fixed(
					sqe, fd, base, (unsigned)bytes, offset, piece);
			else
				io_uring_prep_write_fixed(
					sqe, fd, base, (unsigned)bytes, offset, piece);
			return;
		}
	}
	if (read)
		io_uring_prep_readv(sqe, fd, slot->rest, count, offset);
	else
		io_uring_prep_writev(sqe, fd, slot->rest, count, offset);
}

static struct io_uring_sqe *entry(struct ring *r)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);

	/* there is always an entry: the queue has room for all slots and the poll */
	assert(sqe != NULL);
	return sqe;
}

static void ask(struct ring *r, struct slot *slot)
{
	struct io_uring_sqe *sqe = entry(r);

	if (slot->op->kind == KVT_IO_SYNC)
		io_uring_prep_fsync(sqe, ((const struct kvt_machine_file *)slot->op->file)->fd,
			IORING_FSYNC_DATASYNC);
	else
		ask_transfer(r, slot, sqe);
	sqe->user_data = name_of(r, slot);
}

static void arm(struct ring *r)
{
	struct io_uring_sqe *sqe = entry(r);

	io_uring_prep_poll_add(sqe, r->wake_fd, POLLIN);
	sqe->user_data = WAKE_TAG;
	r->armed = true;
}

static void start_waiting(struct ring *r)
{
	while (r->free_count > 0 && r->waiting.first != NULL) {
		struct slot *slot = &r->slots[r->free[--r->free_count]];

		slot->op = kvt_io_queue_take(&r->waiting);
		slot->uses++;
		slot->done = 0;
		slot->retries = 0;
		ask(r, slot);
	}
}

/* Submits entries to the kernel. If it does not take some now (memory is short), they stay in the
 * queue for the next call. */
static void push(struct ring *r)
{
	if (io_uring_sq_ready(&r->uring) > 0)
		(void)io_uring_submit(&r->uring);
}

static void ring_submit(struct kvt_engine *engine, struct kvt_io_op *list)
{
	struct ring *r = (struct ring *)engine;

	while (list != NULL) {
		struct kvt_io_op *op = list;

		list = op->next;
		kvt_io_queue_add(&r->waiting, op);
	}
	start_waiting(r);
	push(r);
}

/* --- answers
 * ------------------------------------------------------------------------------------ */

static void take_wake(struct ring *r)
{
	uint64_t count;

	r->armed = false;
	if (read(r->wake_fd, &count, sizeof(count)) == (ssize_t)sizeof(count))
		r->woken = true;
}

static void take_answer(struct ring *r, uint64_t name, int32_t result)
{
	uint64_t number = name & ((1u << SLOT_BITS) - 1);
	struct slot *slot;

	if (name == WAKE_TAG) {
		take_wake(r);
		return;
	}
	if (number >= r->depth)
		return;
	slot = &r->slots[number];
	if (slot->op == NULL || name_of(r, slot) != name)
		return;
	if (kvt_io_settle(slot->op, result, &slot->done, &slot->retries) == KVT_IO_AGAIN) {
		slot->uses++;
		ask(r, slot);
		return;
	}
	kvt_io_queue_add(&r->done, slot->op);
	slot->op = NULL;
	r->free[r->free_count++] = (uint16_t)number;
}

static void harvest(struct ring *r)
{
	struct io_uring_cqe *cqe;

	while (io_uring_peek_cqe(&r->uring, &cqe) == 0) {
		uint64_t name = cqe->user_data;
		int32_t result = cqe->res;

		io_uring_cqe_seen(&r->uring, cqe);
		take_answer(r, name, result);
	}
	start_waiting(r);
	if (!r->armed)
		arm(r);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

/* Waits until an operation is done, another thread wakes the engine, or the time is over. */
static void wait_for_news(struct ring *r, int64_t wait_ns)
{
	int64_t start = now_ns(), left = wait_ns;

	while (r->done.first == NULL && !r->woken && left > 0) {
		struct __kernel_timespec ts = {.tv_sec = left / SECOND, .tv_nsec = left % SECOND};
		struct io_uring_cqe *cqe;
		int rc = io_uring_submit_and_wait_timeout(&r->uring, &cqe, 1, &ts, NULL);

		if (rc < 0 && rc != -ETIME && rc != -EINTR)
			(void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		harvest(r);
		left = wait_ns - (now_ns() - start);
	}
}

static size_t ring_reap(
	struct kvt_engine *engine, struct kvt_io_op **out, size_t max, int64_t wait_ns)
{
	struct ring *r = (struct ring *)engine;
	size_t n = 0;

	harvest(r);
	if (wait_ns > 0) {
		wait_for_news(r, wait_ns);
		r->woken = false;
	}
	push(r);
	while (n < max && r->done.first != NULL)
		out[n++] = kvt_io_queue_take(&r->done);
	return n;
}

static void ring_wake(struct kvt_engine *engine)
{
	struct ring *r = (struct ring *)engine;
	const uint64_t one = 1;
	ssize_t n;

	do {
		/* EAGAIN only means that the eventfd is readable already */
		n = write(r->wake_fd, &one, sizeof(one));
	} while (n < 0 && errno == EINTR);
}

/* --- life
 * --------------------------------------------------------------------------------------- */

/* The kernel may give a ring the addresses of a former ring of another thread's engine. liburing
 * maps and unmaps without the C library, so only this counter shows ThreadSanitizer that all use of
 * the old ring came before. */
static _Atomic unsigned rings_gone;

static void ring_destroy(struct kvt_engine *engine)
{
	struct ring *r = (struct ring *)engine;

	if (r->uring_open) {
		(void)atomic_fetch_add_explicit(&rings_gone, 1, memory_order_release);
		io_uring_queue_exit(&r->uring);
	}
	if (r->wake_fd >= 0)
		(void)close(r->wake_fd);
	free(r->free);
	free(r);
}

/* Returns whether all pages are present, so that pinning allocates none. */
static bool resident(char *memory, uint64_t bytes)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	unsigned char there[RESIDENT_PAGES];
	bool all = (uintptr_t)memory % page == 0;

	for (uint64_t at = 0; all && at < bytes; at += RESIDENT_PAGES * page) {
		uint64_t left = bytes - at;
		size_t pages;

		if (left > RESIDENT_PAGES * page)
			left = RESIDENT_PAGES * page;
		pages = (left + page - 1) / page;
		all = mincore(memory + at, left, there) == 0;
		for (size_t i = 0; all && i < pages; i++)
			all = (there[i] & 1) != 0;
	}
	return all;
}

/* Registers the arena. Returns errno; 0: success. */
static int register_memory(struct ring *r, char *memory, uint64_t bytes)
{
	uint64_t count = (bytes + REGISTERED_BYTES - 1) / REGISTERED_BYTES;
	struct iovec *pieces;
	int rc;

	if (count > 16384) /* the kernel's limit */
		return E2BIG;
	if (!resident(memory, bytes))
		return ENODATA;
	pieces = calloc(count, sizeof(*pieces));
	if (pieces == NULL)
		return ENOMEM;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t from = i * REGISTERED_BYTES;
		uint64_t left = bytes - from;

		pieces[i].iov_base = memory + from;
		pieces[i].iov_len = left < REGISTERED_BYTES ? left : REGISTERED_BYTES;
	}
	rc = io_uring_register_buffers(&r->uring, pieces, (unsigned)count);
	free(pieces);
	if (rc == 0) {
		r->memory = memory;
		r->memory_bytes = bytes;
	}
	return -rc;
}

/* Tests a ring. A ring may exist and yet be useless: a filter may forbid only the calls that use
 * it, and a kernel that claims to be Linux may lack operations. Returns errno; 0: the ring
 * works. */
static int try_ring(struct ring *r)
{
	static const int needed[] = {IORING_OP_READV, IORING_OP_WRITEV, IORING_OP_FSYNC,
		IORING_OP_POLL_ADD, IORING_OP_NOP};
	struct io_uring_probe *probe = io_uring_get_probe_ring(&r->uring);
	struct io_uring_cqe *cqe;
	bool known = probe != NULL;
	int rc;

	for (size_t i = 0; known && i < sizeof(needed) / sizeof(needed[0]); i++)
		known = io_uring_opcode_supported(probe, needed[i]);
	if (probe != NULL)
		io_uring_free_probe(probe);
	if (!known)
		return EOPNOTSUPP;
	io_uring_prep_nop(entry(r));
	rc = io_uring_submit_and_wait(&r->uring, 1);
	if (rc < 0)
		return -rc;
	rc = io_uring_peek_cqe(&r->uring, &cqe);
	if (rc == 0)
		io_uring_cqe_seen(&r->uring, cqe);
	return -rc;
}

/* Opens a ring. errno; 0: success. */
static int open_ring(struct ring *r)
{
	/* Completions do not interrupt the thread, but wait for its next call; possible since Linux
	 * 5.19. */
	struct io_uring_params params = {
		.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG};
	int rc = io_uring_queue_init_params(r->depth + 2, &r->uring, &params);

	if (rc == -EINVAL) {
		params = (struct io_uring_params){0};
		rc = io_uring_queue_init_params(r->depth + 2, &r->uring, &params);
	}
	(void)atomic_load_explicit(&rings_gone, memory_order_acquire);
	r->uring_open = rc == 0;
	return rc == 0 ? try_ring(r) : -rc;
}

static const struct kvt_engine_ops ring_ops = {
	.submit = ring_submit,
	.reap = ring_reap,
	.wake = ring_wake,
	.destroy = ring_destroy,
};

enum kvt_status kvt_ring_create(const struct kvt_io_options *options, struct kvt_engine **out,
	struct kvt_ring_report *report)
{
	uint32_t depth = options->depth;
	struct ring *r = calloc(1, sizeof(*r) + depth * sizeof(r->slots[0]));

	*report = (struct kvt_ring_report){0};
	if (r == NULL)
		return KVT_ENOMEM;
	r->base.ops = &ring_ops;
	r->depth = depth;
	r->free = calloc(depth, sizeof(r->free[0]));
	r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->wake_fd < 0)
		report->setup = errno;
	else
		report->setup = open_ring(r);
	if (r->free == NULL || report->setup != 0) {
		enum kvt_status status = r->free == NULL ? KVT_ENOMEM : KVT_ENOTSUP;

		ring_destroy(&r->base);
		return status;
	}
	for (uint32_t i = 0; i < depth; i++)
		r->free[r->free_count++] = (uint16_t)(depth - 1 - i);
	if (options->arena != NULL && options->arena_bytes > 0)
		report->registered = register_memory(r, options->arena, options->arena_bytes);
	*out = &r->base;
	return KVT_OK;
}
