/*
 * access_log.c - rings of lines, and the thread that writes them out.
 *
 *      loop 0 --line--> ring 0 --+
 *      loop 1 --line--> ring 1 --+--> writer thread --> file, pipe or terminal
 *      loop n --line--> ring n --+
 *
 * A loop formats into memory of its own and copies the line into its ring: no lock, no system call.
 * The writer looks at the rings every 50 ms (a line is that old at most, and twenty wake-ups a
 * second are cheap next to requests); a ring that is half full wakes it early through an eventfd,
 * once per batch.
 *
 * The writer alone may block on the target. It never blocks for good: pipes and terminals are
 * written in pieces that poll() promised room for, so that kvw_access_log_destroy() gives up on a
 * reader that has stopped reading after FLUSH_MS, and counts what was lost. All its signals are
 * blocked; a closed pipe is an error, not SIGPIPE.
 */
#include "admin/access_log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "admin/access_line.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "admin/log_ring.h"

#define POLL_MS     50
#define FLUSH_MS    2000         /* at destroy */
#define BATCH_BYTES (256u << 10) /* room for at least one whole line */
#define COMPLAIN_NS (60 * KVW_NS_PER_S)

/* One loop's end. */
struct log_loop {
	struct kvw_log_ring ring;
	struct kvw_access_clock clock; /* the loop's own */
	/* a loop has woken the writer, which clears this before it empties the rings */
	_Atomic bool woken;
};

struct kvw_access_log {
	bool on;
	struct log_loop *loops; /* [loop_count] */
	size_t loop_count;
	char *path;   /* NULL: a standard stream */
	int fd;       /* the file; used only by the writer after the start */
	bool regular; /* a regular file never blocks for long */
	bool owned;   /* this log opened fd, and closes it */
	int wake_fd;
	pthread_t thread;
	bool started;
	_Atomic bool stop, reopen;
	_Atomic uint64_t lost; /* lines that could not be written; counted by the writer */
	char *batch;           /* [BATCH_BYTES], used by the writer */
	int64_t complained_ns; /* when the last write error was logged */
};

static void inspect(struct kvw_access_log *log)
{
	struct stat status;

	log->regular = fstat(log->fd, &status) == 0 && S_ISREG(status.st_mode);
}

/* Opens without blocking: a FIFO without a reader is an error here, instead of a program that
 * hangs. */
static int open_target(const char *path)
{
	return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
}

static void reopen_target(struct kvw_access_log *log)
{
	int fd;

	if (log->path == NULL)
		return;
	fd = open_target(log->path);
	if (fd < 0) {
		kvw_warn("access_log", "cannot reopen, going on with the old file path=%s error=%s",
			log->path, strerror(errno));
		return;
	}
	close(log->fd);
	log->fd = fd;
	inspect(log);
	kvw_info("access_log", "reopened path=%s", log->path);
}

static void lose(struct kvw_access_log *log, const char *data, size_t len, int cause)
{
	uint64_t lines = 0;
	int64_t now_ns = kvw_clock_ns();

	for (size_t i = 0; i < len; i++)
		lines += data[i] == '\n';
	atomic_fetch_add_explicit(&log->lost, lines, memory_order_relaxed);
	if (log->complained_ns != 0 && now_ns - log->complained_ns < COMPLAIN_NS)
		return;
	log->complained_ns = now_ns;
	kvw_warn("access_log", "lines lost count=%llu error=%s", (unsigned long long)lines,
		strerror(cause));
}

/* Returns the length of a piece that the target takes after poll() has promised room: whole lines
 * of at most PIPE_BUF. */
static size_t next_piece(const char *data, size_t len)
{
	const char *end;

	if (len <= PIPE_BUF)
		return len;
	end = memrchr(data, '\n', PIPE_BUF);
	return end == NULL ? PIPE_BUF : (size_t)(end + 1 - data);
}

/* Waits until the target can take more. Gives up when it broke, or when the log is stopping and
 * `deadline_ns` has passed. */
static int await_room(struct kvw_access_log *log, int64_t *deadline_ns)
{
	struct pollfd target = {.fd = log->fd, .events = POLLOUT};

	for (;;) {
		if (poll(&target, 1, POLL_MS) > 0)
			return 0;
		if (!atomic_load_explicit(&log->stop, memory_order_acquire))
			continue;
		if (*deadline_ns == 0)
			*deadline_ns = kvw_clock_ns() + FLUSH_MS * KVW_NS_PER_MS;
		else if (kvw_clock_ns() > *deadline_ns)
			return ETIMEDOUT;
	}
}

static void write_out(
	struct kvw_access_log *log, const char *data, size_t len, int64_t *deadline_ns)
{
	while (len > 0) {
		int error = log->regular ? 0 : await_room(log, deadline_ns);
		size_t piece = log->regular ? len : next_piece(data, len);
		ssize_t n = error != 0 ? -1 : write(log->fd, data, piece);

		if (n < 0) {
			if (error == 0)
				error = errno;
			if (error == EINTR || error == EAGAIN)
				continue;
			lose(log, data, len, error);
			return;
		}
		data += n;
		len -= (size_t)n;
	}
}

static void drain_rings(struct kvw_access_log *log, int64_t *deadline_ns)
{
	for (size_t i = 0; i < log->loop_count; i++) {
		struct log_loop *loop = &log->loops[i];
		size_t len;

		atomic_store_explicit(&loop->woken, false, memory_order_relaxed);
		while ((len = kvw_log_ring_take(&loop->ring, log->batch, BATCH_BYTES)) > 0)
			write_out(log, log->batch, len, deadline_ns);
	}
}

static void *writer_main(void *arg)
{
	struct kvw_access_log *log = arg;
	struct pollfd wake = {.fd = log->wake_fd, .events = POLLIN};
	int64_t deadline_ns = 0;
	bool stop;

	(void)pthread_setname_np(pthread_self(), "kvway-log");
	do {
		uint64_t ignored;

		if (poll(&wake, 1, POLL_MS) > 0 &&
			read(log->wake_fd, &ignored, sizeof(ignored)) < 0 && errno != EAGAIN)
			kvw_warn("access_log", "eventfd error=%s", strerror(errno));
		/* Read before the rings, so that lines which were put before the stop are seen. */
		stop = atomic_load_explicit(&log->stop, memory_order_acquire);
		if (atomic_exchange_explicit(&log->reopen, false, memory_order_acquire)) {
			drain_rings(log, &deadline_ns);
			reopen_target(log);
		}
		drain_rings(log, &deadline_ns);
	} while (!stop);
	return NULL;
}

static void wake_writer(struct kvw_access_log *log)
{
	uint64_t one = 1;

	/* Fails only when the eventfd's counter is full, and then the writer is awake anyway. */
	if (write(log->wake_fd, &one, sizeof(one)) < 0)
		return;
}

static enum kvw_err start_writer(struct kvw_access_log *log)
{
	int failed = kvw_thread_start(&log->thread, writer_main, log);

	if (failed != 0) {
		errno = failed;
		return KVW_EIO;
	}
	log->started = true;
	return KVW_OK;
}

static enum kvw_err choose_target(struct kvw_access_log *log, const char *target, FILE *errors)
{
	if (strcmp(target, "stdout") == 0 || strcmp(target, "stderr") == 0) {
		log->fd = strcmp(target, "stdout") == 0 ? STDOUT_FILENO : STDERR_FILENO;
	} else {
		log->path = strdup(target);
		if (log->path == NULL)
			return KVW_ENOMEM;
		log->fd = open_target(target);
		log->owned = true;
		if (log->fd < 0) {
			fprintf(errors, "log.access: cannot open %s: %s\n", target,
				strerror(errno));
			return KVW_EIO;
		}
	}
	inspect(log);
	return KVW_OK;
}

static enum kvw_err init_loops(struct kvw_access_log *log, size_t loops, size_t ring_bytes)
{
	log->loops = aligned_alloc(64, loops * sizeof(*log->loops));
	if (log->loops == NULL)
		return KVW_ENOMEM;
	for (size_t i = 0; i < loops; i++) {
		log->loops[i] = (struct log_loop){0};
		if (kvw_log_ring_init(&log->loops[i].ring, ring_bytes) != KVW_OK)
			return KVW_ENOMEM;
		log->loop_count = i + 1;
	}
	return KVW_OK;
}

enum kvw_err kvw_access_log_create(const char *target, size_t loops, size_t ring_bytes,
	FILE *errors, struct kvw_access_log **out)
{
	struct kvw_access_log *log = calloc(1, sizeof(*log));
	enum kvw_err err = KVW_OK;

	if (log == NULL)
		return KVW_ENOMEM;
	log->fd = log->wake_fd = -1;
	log->on = strcmp(target, "off") != 0;
	if (!log->on)
		goto out;
	err = choose_target(log, target, errors);
	if (err != KVW_OK)
		goto out;
	err = init_loops(log, loops, ring_bytes);
	if (err != KVW_OK)
		goto out;
	log->batch = malloc(BATCH_BYTES);
	log->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (log->batch == NULL || log->wake_fd < 0)
		err = log->batch == NULL ? KVW_ENOMEM : KVW_EIO;
	else
		err = start_writer(log);
	if (err == KVW_EIO)
		fprintf(errors, "log.access: cannot start the writer: %s\n", strerror(errno));
out:
	if (err == KVW_OK)
		*out = log;
	else
		kvw_access_log_destroy(log);
	return err;
}

void kvw_access_log_destroy(struct kvw_access_log *log)
{
	if (log == NULL)
		return;
	if (log->started) {
		atomic_store_explicit(&log->stop, true, memory_order_release);
		wake_writer(log);
		pthread_join(log->thread, NULL);
	}
	for (size_t i = 0; i < log->loop_count; i++)
		kvw_log_ring_finish(&log->loops[i].ring);
	if (log->owned && log->fd >= 0)
		close(log->fd);
	if (log->wake_fd >= 0)
		close(log->wake_fd);
	free(log->loops);
	free(log->batch);
	free(log->path);
	free(log);
}

void kvw_access_log_write(
	struct kvw_access_log *log, size_t loop_index, const struct kvw_request_record *record)
{
	char line[KVW_ACCESS_LINE_MAX];
	struct log_loop *loop;
	bool half;

	if (!log->on)
		return;
	assert(loop_index < log->loop_count);
	loop = &log->loops[loop_index];
	kvw_log_ring_put(&loop->ring, line, kvw_access_line(&loop->clock, record, line), &half);
	if (half && !atomic_exchange_explicit(&loop->woken, true, memory_order_relaxed))
		wake_writer(log);
}

void kvw_access_log_reopen(struct kvw_access_log *log)
{
	if (!log->on)
		return;
	atomic_store_explicit(&log->reopen, true, memory_order_release);
	wake_writer(log);
}

uint64_t kvw_access_log_dropped(const struct kvw_access_log *log)
{
	uint64_t sum = atomic_load_explicit(&log->lost, memory_order_relaxed);

	for (size_t i = 0; i < log->loop_count; i++)
		sum += atomic_load_explicit(&log->loops[i].ring.dropped, memory_order_relaxed);
	return sum;
}
