/*
 * topology.h - chooses the server of a command: the only server, the master that Sentinels name, or
 * the owner of a slot in a Cluster.
 *
 *	submit -> line (redis.c) -> route() -> server -> link -> reply -> done
 *	             ^------------- error() says AGAIN ----------'
 *
 * The client (redis.c) owns the line, the servers and all deadlines. A topology knows the servers
 * and routes commands; it does no I/O but through kvw_redis_client_send, and never waits.
 * Everything here runs on the client's thread, from inside kvw_redis_create, step and destroy.
 *
 * Each kind of topology has a file of its own.
 */
#ifndef KVW_REDIS_TOPOLOGY_H
#define KVW_REDIS_TOPOLOGY_H

#include "redis/redis.h"

struct kvw_redis_topology;
struct kvw_redis_server; /* see server.h: one server with its links */

enum kvw_redis_route {
	KVW_REDIS_ROUTE_TO, /* to *server */
	/* The server is not known yet: the command stays in line until
	 * kvw_redis_client_rerouted. */
	KVW_REDIS_ROUTE_WAIT,
	KVW_REDIS_ROUTE_NONE, /* there is no server: the command ends with KVW_EIO and *why */
};

enum kvw_redis_verdict {
	KVW_REDIS_VERDICT_DELIVER, /* the command ends, and its caller gets the error */
	/* The command goes back into the line, until its deadline; see
	 * kvw_redis_topology_ops.error. */
	KVW_REDIS_VERDICT_AGAIN,
};

struct kvw_redis_topology_ops {
	/* Creates a topology. The options are the client's copy, borrowed until destroy.
	 * KVW_ENOMEM; KVW_EINVAL: the name of Sentinel's service is missing. */
	enum kvw_err (*create)(struct kvw_redis *r, const struct kvw_redis_options *options,
		struct kvw_redis_topology **out);

	/* Chooses the server of a command. *why is static text or belongs to the topology, and is
	 * "" before the call. For WAIT it is the reason of the wait, used if the deadline passes. A
	 * server that is down is no reason for NONE: see `down`. */
	enum kvw_redis_route (*route)(struct kvw_redis_topology *t,
		const struct kvw_redis_command *command, struct kvw_redis_server **server,
		const char **why);

	/* The server answered with an error: command->text, such as "MOVED 3999 127.0.0.1:6381".
	 * Before AGAIN the topology may set command->progress.to (a server for the next sending
	 * alone), .asking and .not_before_ns. Not called for commands of kvw_redis_client_send. */
	enum kvw_redis_verdict (*error)(struct kvw_redis_topology *t,
		struct kvw_redis_command *command, struct kvw_redis_server *server);

	/* No link to this server can be opened at present (refused, timeout, login); `why` has the
	 * cause. Called once for each failed attempt. True: its commands wait for a new route (the
	 * topology is looking for one); false: they end with KVW_EIO and the reason. */
	bool (*down)(
		struct kvw_redis_topology *t, struct kvw_redis_server *server, const char *why);

	/* A link to this server has become ready. May be NULL. */
	void (*up)(struct kvw_redis_topology *t, struct kvw_redis_server *server);

	/* Called once in each step. If the next call must come before *next_ns, *next_ns is lowered
	 * to that time. May be NULL. */
	void (*step)(struct kvw_redis_topology *t, int64_t now_ns, int64_t *next_ns);

	/* Writes a text for stats: "standalone", "cluster of 3", "sentinel". */
	void (*describe)(struct kvw_redis_topology *t, char *out, size_t room);

	/* Called when all commands that the topology gave to kvw_redis_client_send have ended. NULL
	 * is allowed. */
	void (*destroy)(struct kvw_redis_topology *t);
};

/* A topology; each kind has this struct as its first member. */
struct kvw_redis_topology {
	const struct kvw_redis_topology_ops *ops;
};

extern const struct kvw_redis_topology_ops kvw_redis_topology_single;   /* redis, unix */
extern const struct kvw_redis_topology_ops kvw_redis_topology_cluster;  /* redis-cluster */
extern const struct kvw_redis_topology_ops kvw_redis_topology_sentinel; /* redis-sentinel */

/* --- functions of the client for
 * topologies------------------------------------------------------ */

enum kvw_redis_server_role {
	KVW_REDIS_SERVER_DATA,    /* `connections` links, login, database */
	/* One link, with a login but without a database: for questions to a server of a Cluster. */
	KVW_REDIS_SERVER_CONTROL,
	/* One link. Sentinels often have no password, or not the one of the servers, so a refused
	 * login is no failure here; if a login is needed, the first command's error shows that. */
	KVW_REDIS_SERVER_SENTINEL,
};
#define KVW_REDIS_SERVER_ROLES 3

/* Returns the server at `host` (a name or an address; a path if port is 0) in this role, and
 * creates it if there is none. The client connects when there is a command for it. NULL: memory is
 * short. */
struct kvw_redis_server *kvw_redis_client_server(
	struct kvw_redis *r, const char *host, uint16_t port, enum kvw_redis_server_role role);

/* Drops a server. Its commands go back into the line; those of kvw_redis_client_send end with
 * KVW_EIO. The pointer is invalid afterwards. May be called from any op. */
void kvw_redis_client_drop_server(struct kvw_redis *r, struct kvw_redis_server *server);

/* Closes the server's links and resolves its name again; commands under way go back into the line.
 * May be called from any op. */
void kvw_redis_client_renew(struct kvw_redis *r, struct kvw_redis_server *server);

/* Sends a command of the topology to this server only, beyond the bound on bytes in flight. Its
 * done is called from a later step, never from this call, with any status; error() is not called
 * for it. */
void kvw_redis_client_send(
	struct kvw_redis *r, struct kvw_redis_server *server, struct kvw_redis_command *command);

/* Reports that routes have changed: commands in line are routed again in this step. */
void kvw_redis_client_rerouted(struct kvw_redis *r);

/* Returns whether commands other than those of kvw_redis_client_send are in line or under way.
 * While one of kvw_redis_client_send is under way, only commands in line count. */
bool kvw_redis_client_busy(const struct kvw_redis *r);

/* Returns a random number below `limit`, for jitter and choices. */
uint32_t kvw_redis_client_random(struct kvw_redis *r, uint32_t limit);

const struct kvw_redis_env *kvw_redis_client_env(struct kvw_redis *r);

/* Data of a server: the host and port that kvw_redis_client_server got, and whether a link is ready
 * now. */
const char *kvw_redis_server_host(const struct kvw_redis_server *server);
uint16_t kvw_redis_server_port(const struct kvw_redis_server *server);
bool kvw_redis_server_ready(const struct kvw_redis_server *server);
/* The server's reply to INFO at the last login; "" before the first login, or if the server refused
 * INFO. */
const char *kvw_redis_server_info(const struct kvw_redis_server *server);
/* A pointer for the topology's use, NULL at first. */
void kvw_redis_server_set_user(struct kvw_redis_server *server, void *user);
void *kvw_redis_server_user(const struct kvw_redis_server *server);

#endif
