/*
 * topology.h - which server gets a command: one server, the master that Sentinels name, or the
 * owner of a slot in a Cluster.
 *
 *	submit -> line (redis.c) -> route() -> server -> link -> reply -> done
 *	             ^------------- error() says AGAIN ----------'
 *
 * The client (redis.c) owns the line, the servers and all deadlines. A topology knows which servers
 * there are and answers questions; it does no I/O but through kvt_client_send, and never waits.
 * Everything here runs on the client's thread, from inside kvt_redis_create, step and destroy.
 *
 * One topology = one file.
 */
#ifndef KVT_TOPOLOGY_H
#define KVT_TOPOLOGY_H

#include "redis/redis.h"

struct kvt_topology;
struct kvt_server; /* server.h: one server with its links */

enum kvt_route {
	KVT_ROUTE_TO,   /* to *server */
	KVT_ROUTE_WAIT, /* not known yet: stays in line; ask again after kvt_client_rerouted */
	KVT_ROUTE_NONE, /* nobody can take it: ends with KVW_EIO and *why */
};

enum kvt_verdict {
	KVT_VERDICT_DELIVER, /* the error is the caller's to read */
	KVT_VERDICT_AGAIN, /* back into the line, until its deadline; see kvt_topology_ops.error */
};

struct kvt_topology_ops {
	/* options are borrowed until destroy (the client keeps a copy of its own). KVW_ENOMEM;
	 * KVW_EINVAL: the Sentinels' service. */
	enum kvw_err (*create)(struct kvt_redis *r, const struct kvt_redis_options *options,
		struct kvt_topology **out);

	/* Where this command goes now. *why: static or the topology's own, "" before; for WAIT, what
	 * is waited for, should the deadline pass. A server that is down is
	 * no reason to say NONE: see `down`. */
	enum kvt_route (*route)(struct kvt_topology *t, const struct kvt_redis_command *command,
		struct kvt_server **server, const char **why);

	/* The server answered with an error: command->text, such as "MOVED 3999 127.0.0.1:6381".
	 * Before AGAIN it may set command->progress.to (a server for the next sending alone),
	 * .asking and .not_before_ns. Not called for commands of kvt_client_send. */
	enum kvt_verdict (*error)(struct kvt_topology *t, struct kvt_redis_command *command,
		struct kvt_server *server);

	/* No link to this server can be had at present (refused, timeout, login); `why` says so.
	 * Called once for each failed attempt. True: commands for it wait for a new route (the
	 * topology is looking for another one); false: they end with KVW_EIO and the reason. */
	bool (*down)(struct kvt_topology *t, struct kvt_server *server, const char *why);

	/* A link to this server has become ready. May be NULL. */
	void (*up)(struct kvt_topology *t, struct kvt_server *server);

	/* Once in each step. *next_ns: lowered to when it wants to be called again. May be NULL. */
	void (*step)(struct kvt_topology *t, int64_t now_ns, int64_t *next_ns);

	/* For stats: "standalone", "cluster of 3", "sentinel". */
	void (*describe)(struct kvt_topology *t, char *out, size_t room);

	/* Its commands of kvt_client_send have all come back. NULL is allowed. */
	void (*destroy)(struct kvt_topology *t);
};

/* Base: an implementation embeds it as its first member. */
struct kvt_topology {
	const struct kvt_topology_ops *ops;
};

extern const struct kvt_topology_ops kvt_topology_single;   /* redis, unix */
extern const struct kvt_topology_ops kvt_topology_cluster;  /* redis-cluster */
extern const struct kvt_topology_ops kvt_topology_sentinel; /* redis-sentinel */

/* --- what the client gives a topology --------------------------------------------------------- */

enum kvt_server_role {
	KVT_SERVER_DATA,    /* `connections` links, login, database */
	KVT_SERVER_CONTROL, /* one link, login, no database: a Cluster's server that is asked */
	/* One link. Sentinels often have no password, or none for the servers' users: a login that is
	 * refused is no failure; if one is needed, the first command will say so. */
	KVT_SERVER_SENTINEL,
};
#define KVT_SERVER_ROLES 3

/* The server at host (a name or an address; a path if port is 0) in this role; made if new. Nothing
 * connects before there is a command for it. NULL: no memory. */
struct kvt_server *kvt_client_server(
	struct kvt_redis *r, const char *host, uint16_t port, enum kvt_server_role role);

/* It is not needed any more. Its commands go back into the line; those of kvt_client_send end with
 * KVW_EIO. The pointer is not to be used afterwards. May be called from any op. */
void kvt_client_drop_server(struct kvt_redis *r, struct kvt_server *server);

/* A command of the topology's own, for this server and no other; by-passes the bound on bytes in
 * flight. Its done is called from a later step, never from here, with any status; errors of the
 * server's are not shown to error(). */
void kvt_client_send(
	struct kvt_redis *r, struct kvt_server *server, struct kvt_redis_command *command);

/* Routes have changed: commands in line are routed again in this step. */
void kvt_client_rerouted(struct kvt_redis *r);

/* Are there commands, in line or under way, but those of kvt_client_send? Under way: only told right
 * while none of those is. */
bool kvt_client_busy(const struct kvt_redis *r);

/* A random number below `limit`, for jitter and choices. */
uint32_t kvt_client_random(struct kvt_redis *r, uint32_t limit);

const struct kvw_redis_env *kvw_redis_client_env(struct kvt_redis *r);

/* Of a server: as given to kvt_client_server, and whether a link is ready now. */
const char *kvt_server_host(const struct kvt_server *server);
uint16_t kvt_server_port(const struct kvt_server *server);
bool kvt_server_ready(const struct kvt_server *server);
/* What INFO server said at its last login; "" before, or if it may not be asked. */
const char *kvt_server_info(const struct kvt_server *server);
/* The topology's own, NULL at first. */
void kvt_server_set_user(struct kvt_server *server, void *user);
void *kvt_server_user(const struct kvt_server *server);

#endif
