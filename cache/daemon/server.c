/*
 * server.c - see server.h. Here: its life, accepting, and who gets a connection.
 *
 * One loop accepts for all: engines keep a few connections for their whole life, and a port shared by
 * hash would often put most of them on one loop.
 */
#include "daemon/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "base/log.h"
#include "daemon/server_parts.h"

#define ACCEPTS_AT_ONCE 64
#define AUTO_LOOPS_MOST 4
#define TELL_NS         (10 * KVW_NS_PER_S)

/* --- accepting -------------------------------------------------------------------------------- */

/* A connection on its way to its loop. */
struct handed {
	struct kvt_mail mail;
	int fd;
};

/* Once in a while: a crowd of clients is not to fill the log. */
static void tell_refused(struct kvt_loop *loop, enum kvt_count why)
{
	if (loop->told_ns != 0 && loop->now_ns - loop->told_ns < TELL_NS)
		return;
	loop->told_ns = loop->now_ns;
	kvw_warn("server", "clients are refused why=\"%s\" connections=%u",
		why == KVT_COUNT_REFUSED_CONNECTIONS ? "limits.connections is reached"
						     : "no descriptor is left",
		atomic_load(&loop->server->connections));
}

/* No more than a try: nobody waits for a client that is refused. */
static void turn_away(struct kvt_loop *loop, int fd, enum kvt_count why)
{
	static const char answer[] =
		"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
		"Retry-After: 1\r\nConnection: close\r\nContent-Length: 71\r\n\r\n"
		"{\"error\":\"too many connections (limits.connections); try again later\"}\n";

	(void)!send(fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	close(fd);
	kvt_meter_add(&loop->meters, why, 1);
	tell_refused(loop, why);
}

static void arrived(struct kvt_mail *mail, struct kvt_loop *loop)
{
	struct handed *handed = (struct handed *)mail;

	if (loop->ended) {
		close(handed->fd);
		atomic_fetch_sub(&loop->conn_count, 1);
		atomic_fetch_sub(&loop->server->connections, 1);
	} else {
		kvt_conn_create_take(loop, handed->fd);
	}
	free(handed);
}

/* The loop of `listen` with the fewest connections; an admin loop keeps its own. */
static struct kvt_loop *choose(struct kvt_loop *accepting)
{
	struct kvt_server *server = accepting->server;
	struct kvt_loop *best = accepting;

	if (accepting->admin)
		return accepting;
	for (size_t i = 0; i < server->loop_count; i++)
		if (atomic_load(&server->loops[i].conn_count) < atomic_load(&best->conn_count))
			best = &server->loops[i];
	return best;
}

static void hand_over(struct kvt_loop *accepting, int fd)
{
	struct kvt_loop *loop = choose(accepting);
	struct handed *handed = loop == accepting ? NULL : malloc(sizeof(*handed));

	if (handed == NULL) { /* it stays here, also where memory is out */
		atomic_fetch_add(&accepting->conn_count, 1);
		kvt_conn_create_take(accepting, fd);
		return;
	}
	atomic_fetch_add(&loop->conn_count, 1);
	handed->mail.deliver = arrived;
	handed->fd = fd;
	kvt_loop_post(loop, &handed->mail);
}

/* No descriptor left: the spare one is given up to take a connection off the queue and close it,
 * else it would wake the loop for ever. */
static void shed(struct kvt_loop *loop)
{
	int fd;

	if (loop->spare_fd >= 0)
		close(loop->spare_fd);
	fd = accept4(loop->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0)
		turn_away(loop, fd, KVT_COUNT_REFUSED_DESCRIPTORS);
	loop->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void kvt_server_accept(struct kvw_io *io)
{
	struct kvt_loop *loop =
		(struct kvt_loop *)((char *)io - offsetof(struct kvt_loop, listen_io));
	struct kvt_server *server = loop->server;

	loop->now_ns = kvw_clock_ns();
	for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
		int fd = accept4(loop->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE)
				shed(loop);
			return;
		}
		if (atomic_fetch_add(&server->connections, 1) >= server->config->connections) {
			atomic_fetch_sub(&server->connections, 1);
			turn_away(loop, fd, KVT_COUNT_REFUSED_CONNECTIONS);
			continue;
		}
		kvt_meter_add(&loop->meters, KVT_COUNT_ACCEPTED, 1);
		hand_over(loop, fd);
	}
}

/* --- life ------------------------------------------------------------------------------------- */

static size_t automatic_loops(void)
{
	int cores = get_nprocs();

	return cores < 1 ? 1 : cores > AUTO_LOOPS_MOST ? AUTO_LOOPS_MOST : (size_t)cores;
}

static enum kvt_status make_loops(struct kvt_server *server, int listen_fd, int admin_fd)
{
	enum kvt_status status = KVT_OK;

	server->loops = aligned_alloc(
		_Alignof(struct kvt_loop), server->all_loops * sizeof(server->loops[0]));
	if (server->loops == NULL) {
		close(listen_fd);
		if (admin_fd >= 0)
			close(admin_fd);
		return KVT_ENOMEM;
	}
	memset(server->loops, 0, server->all_loops * sizeof(server->loops[0]));
	for (size_t i = 0; i < server->all_loops; i++) { /* all, so that all can be finished */
		bool admin = i == server->loop_count;
		int fd = i == 0 ? listen_fd : admin ? admin_fd : -1;
		enum kvt_status made = kvt_loop_init(&server->loops[i], server, i, fd);

		server->loops[i].admin = admin;
		status = status == KVT_OK ? made : status;
	}
	for (size_t i = 0; i < server->all_loops && status == KVT_OK; i++)
		status = kvt_loop_start(&server->loops[i]);
	return status;
}

enum kvt_status kvt_server_start(
	const struct kvt_server_options *options, char *why, struct kvt_server **out)
{
	const struct kvt_daemon_config *config = options->config;
	struct kvt_server *server = calloc(1, sizeof(*server));
	int listen_fd = -1, admin_fd = -1;
	enum kvt_status status;

	why[0] = '\0';
	if (server == NULL)
		return KVT_ENOMEM;
	server->config = config;
	server->objects = options->objects;
	server->segment = options->segment;
	server->loop_count = config->loops != 0 ? config->loops : automatic_loops();
	server->all_loops = server->loop_count + (config->admin[0] != '\0');
	status = kvt_listener_open(config->listen, why, &listen_fd, server->listen_name);
	if (status == KVT_OK && config->admin[0] != '\0')
		status = kvt_listener_open(config->admin, why, &admin_fd, server->admin_name);
	if (status == KVT_OK)
		status = kvt_jobs_create(server->objects, &server->jobs);
	if (status == KVT_OK) {
		status = make_loops(server, listen_fd, admin_fd); /* takes both */
		listen_fd = admin_fd = -1;
	}
	if (listen_fd >= 0)
		close(listen_fd);
	if (admin_fd >= 0)
		close(admin_fd);
	if (status != KVT_OK) {
		if (why[0] == '\0')
			snprintf(why, KVT_REASON_BYTES, "%s", kvt_status_text(status));
		kvt_server_destroy(server);
		return status;
	}
	*out = server;
	return KVT_OK;
}

const char *kvt_server_listen(const struct kvt_server *server)
{
	return server->listen_name;
}

const char *kvt_server_admin(const struct kvt_server *server)
{
	return server->admin_name;
}

void kvt_server_drain(struct kvt_server *server)
{
	atomic_store(&server->draining, true);
	for (size_t i = 0; i < server->all_loops && server->loops != NULL; i++)
		kvt_loop_wake(&server->loops[i]);
}

void kvt_server_destroy(struct kvt_server *server)
{
	if (server == NULL)
		return;
	kvt_server_drain(server);
	for (size_t i = 0; i < server->all_loops && server->loops != NULL; i++)
		kvt_loop_join(&server->loops[i]);
	kvt_jobs_destroy(server->jobs);
	for (size_t i = 0; i < server->all_loops && server->loops != NULL; i++)
		kvt_loop_finish(&server->loops[i]);
	free(server->loops);
	free(server);
}
