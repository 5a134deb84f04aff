/*
 * loop.c - runs a loop's turns, delivers mail, and distributes clients.
 *
 * Mail is a lock-free stack: other threads push, the loop takes all mail at once and reverses it.
 * The thread that pushes onto an empty stack wakes the loop.
 */
#include "server/loop.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/log.h"
#include "base/thread.h"

#define TICK_NS (50 * KVW_NS_PER_MS)

/* --- mail ------------------------------------------------------------------------------------- */

void kvw_server_loop_wake(struct kvw_server_loop *loop)
{
	uint64_t one = 1;

	(void)!write(loop->wake_fd, &one, sizeof(one));
}

void kvw_server_loop_post(struct kvw_server_loop *loop, struct kvw_mail *mail)
{
	struct kvw_mail *first;

	/* Counted before the push, because the loop may deliver the mail and end before this thread
	 * wakes it. */
	atomic_fetch_add_explicit(&loop->posting, 1, memory_order_relaxed);
	first = atomic_load_explicit(&loop->mail, memory_order_relaxed);
	do {
		mail->next = first;
	} while (!atomic_compare_exchange_weak_explicit(
		&loop->mail, &first, mail, memory_order_release, memory_order_relaxed));
	if (first == NULL)
		kvw_server_loop_wake(loop);
	atomic_fetch_sub_explicit(&loop->posting, 1, memory_order_release);
}

static void take_mail(struct kvw_server_loop *loop)
{
	struct kvw_mail *newest = atomic_exchange_explicit(&loop->mail, NULL, memory_order_acquire);
	struct kvw_mail *oldest = NULL;

	while (newest != NULL) {
		struct kvw_mail *next = newest->next;

		newest->next = oldest;
		oldest = newest;
		newest = next;
	}
	while (oldest != NULL) {
		struct kvw_mail *next = oldest->next;

		oldest->deliver(oldest, loop);
		oldest = next;
	}
}

static void woken(struct kvw_io *io)
{
	struct kvw_server_loop *loop =
		(struct kvw_server_loop *)((char *)io - offsetof(struct kvw_server_loop, wake_io));
	uint64_t count;

	(void)!read(loop->wake_fd, &count, sizeof(count));
	loop->now_ns = kvw_clock_ns();
	loop->tick_ns = 0; /* at once */
	take_mail(loop);
}

/* --- accepting -------------------------------------------------------------------------------- */

/* A client on its way to the loop that will serve it. */
struct handed {
	struct kvw_mail mail;
	int fd;
};

static struct kvw_server_loop *loop_of(struct kvw_acceptor *acceptor)
{
	return (struct kvw_server_loop *)((char *)acceptor -
					  offsetof(struct kvw_server_loop, acceptor));
}

void kvw_server_loop_gained(struct kvw_server_loop *loop)
{
	atomic_fetch_add(&loop->conn_count, 1);
	atomic_fetch_add(&loop->server->connections, 1);
}

void kvw_server_loop_lost(struct kvw_server_loop *loop)
{
	atomic_fetch_sub(&loop->conn_count, 1);
	atomic_fetch_sub(&loop->server->connections, 1);
}

static void arrived(struct kvw_mail *mail, struct kvw_server_loop *loop)
{
	struct handed *handed = (struct handed *)mail;

	if (loop->ended) {
		close(handed->fd);
		kvw_server_loop_lost(loop);
	} else {
		loop->ops->serve_take(loop, handed->fd);
	}
	free(handed);
}

/* Chooses the loop for the next client, and counts the client there. */
static struct kvw_server_loop *choose_loop(struct kvw_server_loop *accepting)
{
	struct kvw_server_loop *best = accepting;

	for (struct kvw_server_loop *l = accepting->next; l != accepting; l = l->next)
		if (atomic_load(&l->conn_count) < atomic_load(&best->conn_count))
			best = l;
	atomic_fetch_add(&best->conn_count, 1);
	/* `draining` is read after the client was counted: the other loop either sees the count
	 * before it ends, or may have ended already. */
	if (best == accepting || !atomic_load(&accepting->server->draining))
		return best;
	atomic_fetch_sub(&best->conn_count, 1);
	atomic_fetch_add(&accepting->conn_count, 1);
	return accepting;
}

static void note_time(struct kvw_acceptor *acceptor)
{
	loop_of(acceptor)->now_ns = kvw_clock_ns();
}

static bool admit(struct kvw_acceptor *acceptor)
{
	struct kvw_server *server = loop_of(acceptor)->server;

	if (atomic_fetch_add(&server->connections, 1) < server->most)
		return true;
	atomic_fetch_sub(&server->connections, 1);
	return false;
}

static void serve_take(struct kvw_acceptor *acceptor, int fd, const struct sockaddr *peer)
{
	struct kvw_server_loop *accepting = loop_of(acceptor), *loop = choose_loop(accepting);
	struct handed *handed = loop == accepting ? NULL : malloc(sizeof(*handed));

	(void)peer;
	/* memory is short, so this loop serves the client itself */
	if (loop != accepting && handed == NULL) {
		atomic_fetch_sub(&loop->conn_count, 1);
		atomic_fetch_add(&accepting->conn_count, 1);
	}
	if (handed == NULL) {
		accepting->ops->serve_take(accepting, fd);
		return;
	}
	*handed = (struct handed){.mail.deliver = arrived, .fd = fd};
	kvw_server_loop_post(loop, &handed->mail);
}

static void refuse_take(struct kvw_acceptor *acceptor, int fd, enum kvw_refusal why)
{
	struct kvw_server_loop *loop = loop_of(acceptor);

	loop->ops->refuse_take(loop, fd, why);
}

static const struct kvw_acceptor_ops accepts = {
	.begin = note_time,
	.admit = admit,
	.serve_take = serve_take,
	.refuse_take = refuse_take,
};

/* --- turning ---------------------------------------------------------------------------------- */

/* Handles everything that arrived before the stop: clients in the accept queue, and requests for
 * which no event was handled yet. */
static void take_arrived(struct kvw_server_loop *loop)
{
	uint32_t before;

	do {
		before = atomic_load(&loop->conn_count);
		if (loop->acceptor.fd >= 0)
			kvw_acceptor_run(&loop->acceptor);
	} while (atomic_load(&loop->conn_count) > before);
	for (size_t seen = 0; seen <= before; seen += KVW_IO_EVENTS_AT_ONCE)
		kvw_io_set_dispatch(&loop->sockets);
	loop->now_ns = kvw_clock_ns();
}

static void begin_drain(struct kvw_server_loop *loop)
{
	loop->settle_until_ns = loop->now_ns + (int64_t)loop->server->settle_ns;
	loop->drain_deadline_ns = loop->settle_until_ns + (int64_t)loop->server->drain_ns;
	if (loop->server->settle_ns == 0) {
		loop->draining = true;
		take_arrived(loop);
	}
	kvw_acceptor_stop(&loop->acceptor);
	loop->draining = true;
}

static void tick_loop(struct kvw_server_loop *loop)
{
	kvw_timers_run(&loop->timers, loop->now_ns);
	kvw_acceptor_tick(&loop->acceptor);
	if (atomic_load(&loop->server->draining) && !loop->draining)
		begin_drain(loop);
	if (loop->draining && !loop->lets_go && loop->now_ns >= loop->settle_until_ns) {
		loop->lets_go = true;
		loop->ops->drain(loop);
	}
	if (loop->draining && loop->now_ns >= loop->drain_deadline_ns)
		loop->ops->cut(loop);
}

static int until_tick(const struct kvw_server_loop *loop)
{
	int64_t left = loop->tick_ns - kvw_clock_ns();

	return left <= 0 ? 0 : (int)((left + KVW_NS_PER_MS - 1) / KVW_NS_PER_MS);
}

bool kvw_server_loop_turn(struct kvw_server_loop *loop, bool wait)
{
	if (!kvw_io_set_wait(&loop->sockets, wait ? until_tick(loop) : 0))
		return false;
	loop->now_ns = kvw_clock_ns();
	if (loop->now_ns >= loop->tick_ns) {
		/* The turn came late (the process was stopped, or the machine is busy): bytes that
		 * came in the meantime are handled before timeouts are. */
		if (loop->now_ns - loop->tick_ns > TICK_NS && !kvw_io_set_wait(&loop->sockets, 0))
			return false;
		loop->tick_ns = loop->now_ns + TICK_NS;
		tick_loop(loop);
	}
	loop->ops->turned(loop);
	atomic_store_explicit(&loop->turn_ns, loop->now_ns, memory_order_relaxed);
	return true;
}

static void *loop_main(void *arg)
{
	struct kvw_server_loop *loop = arg;

	(void)pthread_setname_np(pthread_self(), loop->name);
	while (!loop->draining || atomic_load(&loop->conn_count) > 0 || loop->waits > 0) {
		if (!kvw_server_loop_turn(loop, true)) {
			kvw_error("server", "event loop failed loop=%s why=\"%s\"", loop->name,
				strerror(errno));
			break;
		}
	}
	atomic_store_explicit(&loop->turn_ns, INT64_MAX, memory_order_relaxed);
	return NULL;
}

/* --- life ------------------------------------------------------------------------------------- */

enum kvw_err kvw_server_loop_init(struct kvw_server_loop *loop, struct kvw_server *server,
	const struct kvw_server_loop_ops *ops, int listen_fd)
{
	memset(loop, 0, sizeof(*loop));
	loop->ops = ops;
	loop->server = server;
	loop->next = loop;
	loop->sockets.fd = -1;
	loop->now_ns = kvw_clock_ns();
	atomic_store(&loop->turn_ns, loop->now_ns);
	kvw_acceptor_init(&loop->acceptor, &accepts, listen_fd);
	kvw_timers_init(&loop->timers);
	loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (loop->wake_fd < 0)
		return KVW_EIO;
	if (kvw_io_set_init(&loop->sockets) != KVW_OK ||
		kvw_io_watch(&loop->wake_io, &loop->sockets, loop->wake_fd, woken) != KVW_OK)
		return KVW_EIO;
	return kvw_acceptor_watch(&loop->acceptor, &loop->sockets);
}

enum kvw_err kvw_server_loop_listen_take(struct kvw_server_loop *loop, int listen_fd)
{
	kvw_acceptor_finish(&loop->acceptor);
	kvw_acceptor_init(&loop->acceptor, &accepts, listen_fd);
	return kvw_acceptor_watch(&loop->acceptor, &loop->sockets);
}

void kvw_server_loop_join_ring(struct kvw_server_loop *loop, struct kvw_server_loop *other)
{
	other->next = loop->next;
	loop->next = other;
}

enum kvw_err kvw_server_loop_start(struct kvw_server_loop *loop, const char *name)
{
	(void)snprintf(loop->name, sizeof(loop->name), "%s", name);
	loop->started = kvw_thread_start(&loop->thread, loop_main, loop) == 0;
	return loop->started ? KVW_OK : KVW_ENOMEM;
}

void kvw_server_loop_join(struct kvw_server_loop *loop)
{
	if (loop->started)
		pthread_join(loop->thread, NULL);
	loop->started = false;
	loop->ended = true;
}

void kvw_server_loop_finish(struct kvw_server_loop *loop)
{
	loop->ended = true;
	take_mail(loop); /* late mail */
	while (atomic_load_explicit(&loop->posting, memory_order_acquire) > 0)
		sched_yield();
	loop->ops->cut(loop);
	loop->ops->turned(loop);
	kvw_acceptor_finish(&loop->acceptor);
	kvw_io_set_finish(&loop->sockets);
	if (loop->wake_fd >= 0)
		close(loop->wake_fd);
}
