/*
 * topology_single.c - one server, by name or by the path of its Unix socket.
 *
 * No other server could answer, so commands end at once while the server is down. While a server
 * still loads its data, commands are sent again after a pause.
 *
 * A name, a service or a proxy may lead to another server than before: after a failover the former
 * master is a replica, keeps its connections, and refuses writes on them (READONLY). Then the
 * topology closes all links, resolves the name and sends all refused commands again; with pauses
 * that double while the next server refuses, too: that server may stay a replica.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/info.h"
#include "redis/topology.h"

#define LOADING_PAUSE_NS (100 * INT64_C(1000000))
/* the first pause between two times that links are closed */
#define RENEW_NS         (1000 * INT64_C(1000000))
#define RENEW_MOST_NS    (64 * RENEW_NS)

struct single {
	struct kvw_redis_topology base;
	struct kvw_redis *client;
	struct kvw_redis_server *server;
	int64_t renew_ns; /* time before which links are not closed again */
	int64_t pause_ns; /* present length of that pause */
	bool refused;     /* the server to which links were connected last has refused a write */
};

static enum kvw_err single_create(struct kvw_redis *r, const struct kvw_redis_options *options,
	struct kvw_redis_topology **out)
{
	const struct kvw_redis_url *url = options->url;
	bool local = url->kind == KVW_REDIS_UNIX;
	struct single *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return KVW_ENOMEM;
	t->base.ops = &kvw_redis_topology_single;
	t->client = r;
	t->server = kvw_redis_client_server(r, local ? url->path : url->nodes[0].host,
		local ? 0 : url->nodes[0].port, KVW_REDIS_SERVER_DATA);
	if (t->server == NULL) {
		free(t);
		return KVW_ENOMEM;
	}
	*out = &t->base;
	return KVW_OK;
}

static enum kvw_redis_route single_route(struct kvw_redis_topology *self,
	const struct kvw_redis_command *command, struct kvw_redis_server **server, const char **why)
{
	(void)command, (void)why;
	*server = ((struct single *)self)->server;
	return KVW_REDIS_ROUTE_TO;
}

/* Closes all links and resolves the name again. Returns false if that was done too recently. */
static bool renew(struct single *t, struct kvw_redis_server *server)
{
	const struct kvw_redis_env *env = kvw_redis_client_env(t->client);
	int64_t now_ns = kvw_redis_now(env);

	if (!kvw_redis_server_ready(server))
		return true; /* this link was closed after an earlier refusal already */
	if (now_ns < t->renew_ns) {
		t->refused = true;
		return false;
	}
	if (!t->refused)
		t->pause_ns = RENEW_NS;
	else if (t->pause_ns < RENEW_MOST_NS)
		t->pause_ns *= 2;
	t->refused = false;
	t->renew_ns = now_ns + t->pause_ns;
	kvw_redis_note(env, KVW_LOG_WARN,
		"redis: the server is a replica (a failover?): connecting again");
	kvw_redis_client_renew(t->client, server);
	return true;
}

static enum kvw_redis_verdict single_error(struct kvw_redis_topology *self,
	struct kvw_redis_command *command, struct kvw_redis_server *server)
{
	const struct kvw_redis_env *env = kvw_redis_client_env(((struct single *)self)->client);

	if (strncmp(command->text, "READONLY ", 9) == 0 && renew((struct single *)self, server))
		return KVW_REDIS_VERDICT_AGAIN;
	if (strncmp(command->text, "LOADING ", 8) != 0)
		return KVW_REDIS_VERDICT_DELIVER;
	command->progress.not_before_ns = kvw_redis_now(env) + LOADING_PAUSE_NS;
	return KVW_REDIS_VERDICT_AGAIN;
}

static bool single_down(
	struct kvw_redis_topology *self, struct kvw_redis_server *server, const char *why)
{
	(void)self, (void)server, (void)why;
	return false;
}

static void single_up(struct kvw_redis_topology *self, struct kvw_redis_server *server)
{
	char mode[16];

	if (kvw_redis_info_field(kvw_redis_server_info(server), "redis_mode", mode, sizeof(mode)) &&
		strcmp(mode, "cluster") == 0)
		kvw_redis_note(kvw_redis_client_env(((struct single *)self)->client), KVW_LOG_WARN,
			"redis: this server is one of a Cluster; give its URL as redis-cluster://");
}

static void single_describe(struct kvw_redis_topology *self, char *out, size_t room)
{
	const char *info = kvw_redis_server_info(((struct single *)self)->server);

	if (!kvw_redis_info_field(info, "redis_mode", out, room))
		snprintf(out, room, "standalone");
}

static void single_destroy(struct kvw_redis_topology *self)
{
	free(self);
}

const struct kvw_redis_topology_ops kvw_redis_topology_single = {
	.create = single_create,
	.route = single_route,
	.error = single_error,
	.down = single_down,
	.up = single_up,
	.describe = single_describe,
	.destroy = single_destroy,
};
