/*
 * server.h - one server: its addresses, its links, and when it tries to connect again.
 *
 * The first link is opened for the first command, the others once that link is ready, so that a
 * server that is down gets one attempt at a time. A command goes to the ready link with the fewest
 * bytes under way. A lost link is opened again by the next command.
 *
 * An attempt resolves the name, then tries one address after another, TCP, TLS and login, all
 * within connect_ns. After a failed attempt the server is down, and gets no attempt for a time that
 * doubles with each failure (50 ms to 2 s, a random quarter more or less). A connection that ends
 * before it has answered one command counts as a failure, too.
 *
 * Threads: one.
 */
#ifndef KVW_REDIS_SERVER_H
#define KVW_REDIS_SERVER_H

#include "base/resolve.h"
#include "redis/link.h"
#include "redis/topology.h"

/* Settings that all servers of a client have in common. */
struct kvw_redis_server_settings {
	const struct kvw_redis_env *env;
	int epoll, wake;
	uint32_t connections;
	int64_t connect_ns;
	SSL_CTX *tls; /* NULL: plain */
	struct kvw_redis_link_login logins[KVW_REDIS_SERVER_ROLES];
	uint64_t random; /* state */
};

/* Changes that kvw_redis_server_turn returns. */
#define KVW_REDIS_SERVER_WENT_UP   1u /* the server has its first ready link */
#define KVW_REDIS_SERVER_WENT_DOWN 2u /* an attempt failed, and the server has no ready link */
/* A link was lost, or became ready, so waiting commands may be sent. */
#define KVW_REDIS_SERVER_CHANGED   4u

struct kvw_redis_server_stats {
	uint64_t reconnects, sent_bytes, received_bytes; /* so far */
	uint32_t connections;                            /* ready now */
};

/* One link, and the state of its attempts to connect. */
struct kvw_redis_link_slot {
	struct kvw_redis_link *link;
	size_t address;   /* index of the address to try next */
	size_t untried;   /* number of addresses that this attempt has not tried */
	bool was_ready;   /* the link was READY at the last turn */
	bool answered;    /* the link has answered a command since it became ready */
	bool open;        /* an attempt is under way, or the link is connected */
	bool late;        /* closed for a late reply */
	uint64_t readies; /* how often the link became ready */
};

struct kvw_redis_server {
	struct kvw_redis_server *next; /* redis.c's */
	struct kvw_redis_server_settings *settings;
	enum kvw_redis_server_role role;
	char host[KVW_REDIS_URL_TEXT];
	uint16_t port; /* 0: `host` is the path of a Unix socket */
	void *user;    /* the topology's */
	bool unwanted; /* the topology has dropped it: it is destroyed when the next step begins */
	bool patient;  /* while it is down, its commands wait for another route */

	struct kvw_redis_link_slot *slots;
	uint32_t slot_count;
	uint32_t ready;

	struct kvw_resolve *question; /* NULL: none */
	struct kvw_resolve_addresses addresses;
	/* time when the name was resolved; INT64_MAX: an IP address, which stays valid */
	int64_t addresses_ns;
	int64_t give_up_ns; /* deadline of the attempt that waits for addresses; 0: there is none */

	uint32_t failures; /* one after another */
	int64_t retry_ns;  /* no attempt before */
	bool down;
	char why[KVW_REDIS_REASON]; /* the last failure */

	int64_t quiet_ns; /* no log line before */
	bool logged_down, logged_up;
	char logged[KVW_REDIS_REASON]; /* the reason in the last log line */
};

struct kvw_redis_server *kvw_redis_server_create(struct kvw_redis_server_settings *settings,
	const char *host, uint16_t port, enum kvw_redis_server_role role);
void kvw_redis_server_discard(
	struct kvw_redis_server *server); /* the server must have no commands; NULL is allowed */

enum kvw_redis_server_offer {
	KVW_REDIS_SERVER_READY, /* *link can take a command */
	/* the server is being connected: ask again when it goes up or down */
	KVW_REDIS_SERVER_LATER,
	KVW_REDIS_SERVER_DOWN,  /* the server is not tried before retry_ns; `why` has the cause */
};
enum kvw_redis_server_offer kvw_redis_server_offer(
	struct kvw_redis_server *server, int64_t now_ns, struct kvw_redis_link **link);

/* Runs all links. Commands with an answer go to `answered`, those of lost links to `returned`. If
 * the next turn must come before *next_ns, *next_ns is lowered to that time, or to now_ns. Returns
 * flags KVW_REDIS_SERVER_... */
unsigned kvw_redis_server_turn(struct kvw_redis_server *server, int64_t now_ns,
	struct kvw_redis_commands *answered, struct kvw_redis_commands *returned, int64_t *next_ns);

/* Takes back the commands whose deadline has passed, into `late`. A link on which one of them was
 * sent is closed, and its other commands go to `returned`. *next_ns is lowered to the earliest
 * remaining deadline. */
void kvw_redis_server_expire(struct kvw_redis_server *server, int64_t now_ns,
	struct kvw_redis_commands *late, struct kvw_redis_commands *returned, int64_t *next_ns);

/* Closes all ready links; the next turn returns their commands. The name is resolved again for the
 * new links. */
void kvw_redis_server_renew(struct kvw_redis_server *server);

/* Takes back all commands and closes all links. */
void kvw_redis_server_close(
	struct kvw_redis_server *server, struct kvw_redis_commands *returned, const char *why);

const char *kvw_redis_server_why(const struct kvw_redis_server *server); /* its last failure */

/* Adds to *out. */
void kvw_redis_server_stats(
	const struct kvw_redis_server *server, struct kvw_redis_server_stats *out);

#endif
