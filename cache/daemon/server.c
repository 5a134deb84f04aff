/*
 * server.c - starts, drains and ends the server; see server.h.
 *
 * One loop accepts connections for all loops: engines keep a few connections for their whole life,
 * and a port shared by hash would often put most of them on one loop.
 */
#include "daemon/server.h"

#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "daemon/server_parts.h"

#define AUTO_LOOPS_MOST 4

enum kvt_status kvt_loop_init(struct kvt_loop *loop, struct kvt_server *server, int listen_fd)
{
	const struct kvw_clients_options options = kvt_conn_options(server->config);
	enum kvw_err err = kvw_clients_init(&loop->base, &server->base, &options, listen_fd);

	loop->server = server;
	kvt_meters_init(&loop->meters);
	return err == KVW_OK ? KVT_OK : err == KVW_ENOMEM ? KVT_ENOMEM : KVT_EIO;
}

/* --- life ------------------------------------------------------------------------------------- */

static size_t automatic_loops(void)
{
	int cores = get_nprocs();

	return cores < 1 ? 1 : cores > AUTO_LOOPS_MOST ? AUTO_LOOPS_MOST : (size_t)cores;
}

static enum kvt_status start(struct kvt_server *server, size_t index)
{
	struct kvt_loop *loop = &server->loops[index];
	char name[16];

	snprintf(name, sizeof(name), loop->admin ? "kvtierd-admin" : "kvtierd-%zu", index);
	return kvw_server_loop_start(&loop->base.loop, name) == KVW_OK ? KVT_OK : KVT_ENOMEM;
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
	/* all loops, even after a failure, so that all can be finished */
	for (size_t i = 0; i < server->all_loops; i++) {
		bool admin = i == server->loop_count;
		int fd = i == 0 ? listen_fd : admin ? admin_fd : -1;
		enum kvt_status made = kvt_loop_init(&server->loops[i], server, fd);

		server->loops[i].admin = admin;
		status = status == KVT_OK ? made : status;
	}
	/* the first loop accepts for the others */
	for (size_t i = server->loop_count - 1; i > 0; i--)
		kvw_server_loop_join_ring(&server->loops[0].base.loop, &server->loops[i].base.loop);
	for (size_t i = 0; i < server->all_loops && status == KVT_OK; i++)
		status = start(server, i);
	return status;
}

static enum kvt_status listen_at(
	const char *address, char *why, int *fd, char bound[KVW_LISTEN_TEXT])
{
	return kvw_listen(address, KVW_LISTEN_ALONE, fd, bound, why, KVT_REASON_BYTES) == KVW_OK
		       ? KVT_OK
		       : KVT_EIO;
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
	server->base.most = config->connections;
	server->base.drain_ns = config->drain_ns;
	server->config = config;
	server->objects = options->objects;
	server->segment = options->segment;
	server->loop_count = config->loops != 0 ? config->loops : automatic_loops();
	server->all_loops = server->loop_count + (config->admin[0] != '\0');
	status = listen_at(config->listen, why, &listen_fd, server->listen_name);
	if (status == KVT_OK && config->admin[0] != '\0')
		status = listen_at(config->admin, why, &admin_fd, server->admin_name);
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
	atomic_store(&server->base.draining, true);
	for (size_t i = 0; i < server->all_loops && server->loops != NULL; i++)
		kvw_server_loop_wake(&server->loops[i].base.loop);
}

void kvt_server_destroy(struct kvt_server *server)
{
	if (server == NULL)
		return;
	kvt_server_drain(server);
	for (size_t i = 0; i < server->all_loops && server->loops != NULL; i++)
		kvw_server_loop_join(&server->loops[i].base.loop);
	kvt_jobs_destroy(server->jobs);
	for (size_t i = 0; i < server->all_loops && server->loops != NULL; i++)
		kvw_clients_finish(&server->loops[i].base);
	free(server->loops);
	free(server);
}
