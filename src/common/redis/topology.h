/*
 * topology.h - which server gets a command: one server, the master that Sentinels name, or the
 * owner of a slot in a Cluster.
 *
 * 	submit -> line (redis.c) -> route() -> server -> link -> reply -> done
 * 	             ^------------- error() says AGAIN ----------'
 *
 * The client (redis.c) owns the line, the servers and all deadlines. A topology knows which servers
 * there are and answers questions; it does no I/O but through kvw_redis_client_send, and never
 * waits. Everything here runs on the client's thread, from inside kvw_redis_create, step and
 * destroy.
 *
 * One topology = one file.
 */
#ifndef KVW_REDIS_TOPOLOGY_H
#define KVW_REDIS_TOPOLOGY_H

#include "redis/redis.h"

struct kvw_redis_topology;
struct kvw_redis_server; /* server.h: one server with its links */

enum kvw_redis_route {
	KVW_REDIS_ROUTE_TO, /* to *server */
	/* Not known yet: stays in line; ask again after kvw_redis_client_rerouted. */
	KVW_REDIS_ROUTE_WAIT,
	KVW_REDIS_ROUTE_NONE, /* no server can take it: ends with KVW_EIO and *why */
};

enum kvw_redis_verdict {
	KVW_REDIS_VERDICT_DELIVER, /* the error is the caller's to read */
	/* Back into the line, until its deadline; see kvw_redis_topology_ops.error. */
	KVW_REDIS_VERDICT_AGAIN,
};

struct kvw_redis_topology_ops {
	/* options are borrowed until destroy (the client keeps a copy of its own). KVW_ENOMEM;
	 * KVW_EINVAL: the Sentinels' service. */
	enum kvw_err (*create)(struct kvw_redis *r, const struct kvw_redis_options *options,
		struct kvw_redis_topology **out);

	/* Where this command goes now. *why: static or the topology's own, "" before; for WAIT,
	 * what is waited for, should the deadline pass. A server that is down is
	 * no reason to say NONE: see `down`. */
	enum kvw_redis_route (*route)(struct kvw_redis_topology *t,
		const struct kvw_redis_command *command, struct kvw_redis_server **server,
		const char **why);

	/* The server answered with an error: command->text, such as "MOVED 3999 127.0.0.1:6381".
	 * Before AGAIN it may set command->progress.to (a server for the next sending alone),
	 * .asking and .not_before_ns. Not called for commands of kvw_redis_client_send. */
	enum kvw_redis_verdict (*error)(struct kvw_redis_topology *t,
		struct kvw_redis_command *command, struct kvw_redis_server *server);

	/* No link to this server can be had at present (refused, timeout, login); `why` says so.
	 * Called once for each failed attempt. True: commands for it wait for a new route (the
	 * topology is looking for another one); false: they end with KVW_EIO and the reason. */
	bool (*down)(
		struct kvw_redis_topology *t, struct kvw_redis_server *server, const char *why);

	/* A link to this server has become ready. May be NULL. */
	void (*up)(struct kvw_redis_topology *t, struct kvw_redis_server *server);

	/* Once in each step. *next_ns: lowered to when it wants to be called again. May be NULL. */
	void (*step)(struct kvw_redis_topology *t, int64_t now_ns, int64_t *next_ns);

	/* For stats: "standalone", "cluster of 3", "sentinel". */
	void (*describe)(struct kvw_redis_topology *t, char *out, size_t room);

	/* Its commands of kvw_redis_client_send have all come back. NULL is allowed. */
	void (*destroy)(struct kvw_redis_topology *t);
};

/* Base: an implementation embeds it as its first member. */
struct kvw_redis_topology {
	const struct kvw_redis_topology_ops *ops;
};

extern const struct kvw_redis_topology_ops kvw_redis_topology_single;   /* redis, unix */
extern const struct kvw_redis_topology_ops kvw_redis_topology_cluster;  /* redis-cluster */
extern const struct kvw_redis_topology_ops kvw_redis_topology_sentinel; /* redis-sentinel */

/* --- what the client gives a topology --------------------------------------------------------- */

enum kvw_redis_server_role {
	KVW_REDIS_SERVER_DATA,    /* `connections` links, login, database */
	/* One link, login, no database: a Cluster's server that is asked. */
	KVW_REDIS_SERVER_CONTROL,
	/* One link. Sentinels often have no password, or none for the servers' users: a login that
	 * is refused is no failure; if one is needed, the first command will say so. */
	KVW_REDIS_SERVER_SENTINEL,
};
#define KVW_REDIS_SERVER_ROLES 3

/* The server at host (a name or an address; a path if port is 0) in this role; made if new. Nothing
 * connects before there is a command for it. NULL: no memory. */
struct kvw_redis_server *kvw_redis_client_server(
	struct kvw_redis *r, const char *host, uint16_t port, enum kvw_redis_server_role role);

/* It is not needed any more. Its commands go back into the line; those of kvw_redis_client_send end
 * with KVW_EIO. The pointer is not to be used afterwards. May be called from any op. */
void kvw_redis_client_drop_server(struct kvw_redis *r, struct kvw_redis_server *server);

/* Its links are closed, its name is resolved again; commands under way go back into the line. May
 * be called from any op. */
void kvw_redis_client_renew(struct kvw_redis *r, struct kvw_redis_server *server);

/* A command of the topology's own, for this server and no other; by-passes the bound on bytes in
 * flight. Its done is called from a later step, never from here, with any status; errors of the
 * server's are not shown to error(). */
void kvw_redis_client_send(
	struct kvw_redis *r, struct kvw_redis_server *server, struct kvw_redis_command *command);

/* Routes have changed: commands in line are routed again in this step. */
void kvw_redis_client_rerouted(struct kvw_redis *r);

/* Are there commands, in line or under way, but those of kvw_redis_client_send? Those under way are
 * seen only while none of those is. */
bool kvw_redis_client_busy(const struct kvw_redis *r);

/* A random number below `limit`, for jitter and choices. */
uint32_t kvw_redis_client_random(struct kvw_redis *r, uint32_t limit);

const struct kvw_redis_env *kvw_redis_client_env(struct kvw_redis *r);

/* Of a server: as given to kvw_redis_client_server, and whether a link is ready now. */
const char *kvw_redis_server_host(const struct kvw_redis_server *server);
uint16_t kvw_redis_server_port(const struct kvw_redis_server *server);
bool kvw_redis_server_ready(const struct kvw_redis_server *server);
/* What INFO server said at its last login; "" before, or if it may not be asked. */
const char *kvw_redis_server_info(const struct kvw_redis_server *server);
/* The topology's own, NULL at first. */
void kvw_redis_server_set_user(struct kvw_redis_server *server, void *user);
void *kvw_redis_server_user(const struct kvw_redis_server *server);

#endif
