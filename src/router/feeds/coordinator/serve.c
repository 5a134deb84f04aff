/*
 * serve.c - the coordinator's listener and its clients.
 *
 * The clients' loop has no thread of its own: the feed's thread turns it when its descriptor has
 * news, and ten times a second for its timers. So the directory and the exact index are written
 * without a lock. A request is answered within its turn: 100,000 token ids take some 10 ms, the
 * largest body, 32 MiB, half a second, in which events of other workers wait, but no client of
 * kvway does.
 *
 * The memory of bodies is bounded for all requests together: what a request announces is claimed
 * before its body is read, and a request without a length claims the most that one may have.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "feeds/coordinator/parts.h"

#define IDLE_NS   (120 * KVW_NS_PER_S) /* servers send a heartbeat every 5 s by default */
#define SERVE_NS  (30 * KVW_NS_PER_S)
#define SETTLE_NS (50 * KVW_NS_PER_MS)  /* for a request on its way, when another process accepts */
#define LEAVE_NS  (250 * KVW_NS_PER_MS) /* for all of them */

static struct kvw_coordinator_server *server_of(struct kvw_conn *conn)
{
	return (struct kvw_coordinator_server *)conn->clients;
}

/* --- clients ---------------------------------------------------------------------------------- */

static void on_request(struct kvw_conn *conn)
{
	kvw_coordinator_request(conn);
}

static void on_refusal(
	struct kvw_conn *conn, enum kvw_conn_refusal what, int status, const char *message)
{
	(void)what;
	kvw_coordinator_error(
		conn, status, status == 405 ? "Allow: GET, POST, PUT, DELETE\r\n" : "", message);
}

static void turn_away_take(struct kvw_clients *clients, int fd, enum kvw_refusal why)
{
	(void)why;
	((struct kvw_coordinator_server *)clients)->coordinator->refused++;
	close(fd);
}

static void release(struct kvw_conn *conn)
{
	struct kvw_coordinator_conn *mine = (struct kvw_coordinator_conn *)conn;

	server_of(conn)->bodies -= mine->claimed;
	mine->claimed = 0;
}

static bool on_head(struct kvw_conn *conn)
{
	struct kvw_coordinator_server *server = server_of(conn);
	struct kvw_coordinator_conn *mine = (struct kvw_coordinator_conn *)conn;
	const struct kvw_head *head = &conn->clients->head;
	uint64_t bytes = head->framing == KVW_FRAME_NONE     ? 0
			 : head->framing == KVW_FRAME_LENGTH ? head->content_length
							     : KVW_COORDINATOR_BODY_MOST;

	release(conn);
	if (bytes > KVW_COORDINATOR_BODY_MOST)
		return true; /* refused by its length */
	if (server->bodies + bytes > KVW_COORDINATOR_BODIES_MOST) {
		kvw_coordinator_error(conn, 503, "Retry-After: 1\r\n", "too many requests at once");
		return false;
	}
	mine->claimed = bytes;
	server->bodies += bytes;
	return true;
}

static void on_answer(struct kvw_conn *conn, int status)
{
	(void)status;
	release(conn);
}

static const struct kvw_clients_ops ops = {.request = on_request,
	.refuse = on_refusal,
	.turn_away_take = turn_away_take,
	.admit = on_head,
	.answered = on_answer,
	.closed = release};

/* --- the loop --------------------------------------------------------------------------------- */

static bool turn(void *handle, void *ctx)
{
	struct kvw_coordinator *coordinator = ctx;
	struct kvw_server_loop *loop = &coordinator->server.clients.loop;

	(void)handle;
	if (!kvw_server_loop_turn(loop, false)) {
		kvw_error("coordinator", "the event loop failed why=\"%s\"", strerror(errno));
		return false;
	}
	return kvw_io_set_busy(&loop->sockets);
}

void kvw_coordinator_turn(struct kvw_coordinator *coordinator)
{
	if (coordinator->server.opened)
		(void)turn(&coordinator->server, coordinator);
}

static enum kvw_err make_clients(struct kvw_coordinator *coordinator, int listen_fd)
{
	const struct kvw_clients_options options = {
		.ops = &ops,
		.limits = {.idle_ns = IDLE_NS,
			.head_ns = SERVE_NS,
			.write_ns = SERVE_NS,
			.body_ns = SERVE_NS,
			.body_pauses = true,
			.body_most = KVW_COORDINATOR_BODY_MOST},
		.conn_bytes = sizeof(struct kvw_coordinator_conn),
		.fields = "",
		.date = true,
	};
	struct kvw_coordinator_server *server = &coordinator->server;
	enum kvw_err err;

	server->coordinator = coordinator;
	server->server.most = KVW_COORDINATOR_CLIENTS;
	server->server.drain_ns = SERVE_NS;
	err = kvw_clients_init(&server->clients, &server->server, &options, listen_fd);
	server->opened = true;
	if (err == KVW_OK)
		err = kvw_feed_watch_fd(coordinator->feed, server->clients.loop.sockets.fd, server,
			turn, coordinator);
	return err;
}

enum kvw_err kvw_coordinator_open(struct kvw_coordinator *coordinator, FILE *errors)
{
	const char *address = coordinator->deps->config->kvaware_lmcache_coordinator;
	struct kvw_sockets *sockets = coordinator->deps->sockets;
	char why[200];
	int fd;

	if (sockets == NULL ||
		kvw_sockets_adopt(sockets, KVW_SOCKET_EVENTS, address, &fd, 1) != 1) {
		if (kvw_listen(address, KVW_LISTEN_ALONE, &fd, coordinator->bound, why,
			    sizeof(why)) != KVW_OK) {
			fprintf(errors, "kvaware.lmcache.coordinator: %s\n", why);
			return KVW_EINVAL;
		}
		if (sockets != NULL)
			kvw_sockets_note(sockets, KVW_SOCKET_EVENTS, fd);
	}
	if (coordinator->deps->waits) {
		coordinator->listen_fd = fd;
		fd = -1;
	}
	return make_clients(coordinator, fd);
}

void kvw_coordinator_listen(struct kvw_coordinator *coordinator)
{
	int fd = coordinator->listen_fd;

	coordinator->listen_fd = -1;
	if (fd >= 0 && kvw_server_loop_listen_take(&coordinator->server.clients.loop, fd) != KVW_OK)
		kvw_error("coordinator", "LMCache servers cannot connect");
}

/* Ends with no client left: what a client reported later would be in no record of keep.h. The
 * feed's thread does nothing else meanwhile; servers wait for the next process. */
void kvw_coordinator_hand_over(struct kvw_coordinator *coordinator)
{
	struct kvw_coordinator_server *server = &coordinator->server;
	int64_t until_ns = kvw_clock_ns() + LEAVE_NS;

	if (!server->opened)
		return;
	server->server.settle_ns = SETTLE_NS;
	atomic_store(&server->server.draining, true);
	kvw_server_loop_wake(&server->clients.loop);
	while ((!server->clients.loop.draining || atomic_load(&server->server.connections) > 0) &&
		kvw_clock_ns() < until_ns)
		if (!kvw_server_loop_turn(&server->clients.loop, true))
			break;
	kvw_clients_cut(&server->clients);
}

void kvw_coordinator_close(struct kvw_coordinator *coordinator)
{
	struct kvw_coordinator_server *server = &coordinator->server;

	if (server->opened) {
		kvw_feed_unwatch(coordinator->feed, server);
		kvw_clients_cut(&server->clients);
		kvw_clients_finish(&server->clients);
		server->opened = false;
	}
	if (coordinator->listen_fd >= 0)
		close(coordinator->listen_fd);
	coordinator->listen_fd = -1;
}
