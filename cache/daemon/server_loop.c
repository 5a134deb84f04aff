/*
 * server_loop.c - a loop: its thread, its mail, its tick.
 *
 * Mail is a stack without a lock: other threads push, the loop takes all of it at once and turns it
 * round. The thread that pushes onto an empty stack wakes the loop.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/log.h"
#include "daemon/server_parts.h"

#define TICK_NS (50 * KVW_NS_PER_MS)

void kvt_loop_wake(struct kvt_loop *loop)
{
	uint64_t one = 1;

	(void)!write(loop->wake_fd, &one, sizeof(one));
}

void kvt_loop_post(struct kvt_loop *loop, struct kvt_mail *mail)
{
	struct kvt_mail *first = atomic_load_explicit(&loop->mail, memory_order_relaxed);

	do {
		mail->next = first;
	} while (!atomic_compare_exchange_weak_explicit(
		&loop->mail, &first, mail, memory_order_release, memory_order_relaxed));
	if (first == NULL)
		kvt_loop_wake(loop);
}

static void take_mail(struct kvt_loop *loop)
{
	struct kvt_mail *newest = atomic_exchange_explicit(&loop->mail, NULL, memory_order_acquire);
	struct kvt_mail *oldest = NULL;

	while (newest != NULL) {
		struct kvt_mail *next = newest->next;

		newest->next = oldest;
		oldest = newest;
		newest = next;
	}
	while (oldest != NULL) {
		struct kvt_mail *next = oldest->next;

		oldest->deliver(oldest, loop);
		oldest = next;
	}
}

static void woken(struct kvw_io *io)
{
	struct kvt_loop *loop =
		(struct kvt_loop *)((char *)io - offsetof(struct kvt_loop, wake_io));
	uint64_t count;

	(void)!read(loop->wake_fd, &count, sizeof(count));
	loop->now_ns = kvw_clock_ns();
	loop->tick_ns = 0; /* at once */
	take_mail(loop);
}

/* Stops accepting; connections without a request go. */
static void begin_drain(struct kvt_loop *loop)
{
	struct kvt_conn *conn, *next;

	loop->draining = true;
	loop->drain_deadline_ns = loop->now_ns + (int64_t)loop->server->config->drain_ns;
	if (loop->acceptor.fd >= 0) {
		kvw_acceptor_run(&loop->acceptor); /* what had arrived is answered */
		kvw_acceptor_stop(&loop->acceptor);
	}
	for (conn = TAILQ_FIRST(&loop->conns); conn != NULL; conn = next) {
		next = TAILQ_NEXT(conn, entry);
		if (conn->state == KVT_CONN_HEAD && conn->in_end == conn->in_begin &&
			!conn->io.readable)
			kvt_conn_close(conn, false);
	}
}

static void close_all(struct kvt_loop *loop)
{
	struct kvt_conn *conn;

	while ((conn = TAILQ_FIRST(&loop->conns)) != NULL)
		kvt_conn_close(conn, false);
}

static void tick(struct kvt_loop *loop)
{
	kvw_timers_run(&loop->timers, loop->now_ns);
	if (atomic_load(&loop->server->draining) && !loop->draining)
		begin_drain(loop);
	if (loop->draining && loop->now_ns >= loop->drain_deadline_ns)
		close_all(loop);
}

static int until_tick(const struct kvt_loop *loop)
{
	int64_t left = loop->tick_ns - kvw_clock_ns();

	return left <= 0 ? 0 : (int)((left + KVW_NS_PER_MS - 1) / KVW_NS_PER_MS);
}

static void *loop_main(void *arg)
{
	struct kvt_loop *loop = arg;
	char name[16];

	snprintf(name, sizeof(name), loop->admin ? "kvtierd-admin" : "kvtierd-%zu", loop->index);
	(void)pthread_setname_np(pthread_self(), name);
	while (!loop->draining || atomic_load(&loop->conn_count) > 0 || loop->waits > 0) {
		if (!kvw_io_set_wait(&loop->sockets, until_tick(loop))) {
			kvw_error("server", "event loop failed loop=%zu why=\"%s\"", loop->index,
				strerror(errno));
			break;
		}
		loop->now_ns = kvw_clock_ns();
		if (loop->now_ns >= loop->tick_ns) {
			loop->tick_ns = loop->now_ns + TICK_NS;
			tick(loop);
		}
		kvt_conn_free_dead(loop);
		atomic_store_explicit(&loop->turn_ns, loop->now_ns, memory_order_relaxed);
	}
	atomic_store_explicit(&loop->turn_ns, INT64_MAX, memory_order_relaxed);
	return NULL;
}

enum kvt_status kvt_loop_init(
	struct kvt_loop *loop, struct kvt_server *server, size_t index, int listen_fd)
{
	loop->server = server;
	loop->index = index;
	kvw_acceptor_init(&loop->acceptor, &kvt_server_accepts, listen_fd);
	loop->sockets.fd = -1;
	loop->now_ns = kvw_clock_ns();
	atomic_store(&loop->turn_ns, loop->now_ns);
	TAILQ_INIT(&loop->conns);
	TAILQ_INIT(&loop->dead);
	kvw_timers_init(&loop->timers);
	kvt_meters_init(&loop->meters);
	loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (kvw_head_init(&loop->head, KVT_HEAD_FIELDS) != KVW_OK)
		return KVT_ENOMEM;
	if (loop->wake_fd < 0 || kvw_io_set_init(&loop->sockets) != KVW_OK ||
		kvw_io_watch(&loop->wake_io, &loop->sockets, loop->wake_fd, woken) != KVW_OK ||
		kvw_acceptor_watch(&loop->acceptor, &loop->sockets) != KVW_OK)
		return KVT_EIO;
	return KVT_OK;
}

enum kvt_status kvt_loop_start(struct kvt_loop *loop)
{
	loop->started = pthread_create(&loop->thread, NULL, loop_main, loop) == 0;
	return loop->started ? KVT_OK : KVT_ENOMEM;
}

void kvt_loop_join(struct kvt_loop *loop)
{
	if (loop->started)
		pthread_join(loop->thread, NULL);
	loop->started = false;
	loop->ended = true;
}

void kvt_loop_finish(struct kvt_loop *loop)
{
	take_mail(loop); /* connections that were handed over too late */
	close_all(loop);
	kvt_conn_free_dead(loop);
	while (loop->spare_in_count > 0)
		free(loop->spare_in[--loop->spare_in_count]);
	kvw_head_finish(&loop->head);
	kvw_acceptor_finish(&loop->acceptor);
	kvw_io_set_finish(&loop->sockets);
	if (loop->wake_fd >= 0)
		close(loop->wake_fd);
}
