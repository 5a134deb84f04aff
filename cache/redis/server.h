/*
 * server.h - one server: its addresses, its links, and when to try again.
 *
 * The first link is opened when the first command comes, the others once that one works, so that a
 * server that is down is asked once. A command goes to the ready link with the fewest bytes under
 * way. A lost link is opened again by the next command.
 *
 * An attempt is: the name's addresses, then one after another of them, TCP, TLS and login, all
 * within connect_ns. After one that failed the server is down, and stays unasked for a time that
 * doubles with each failure (50 ms to 2 s, a quarter more or less of it by chance). A connection
 * that ends before it has answered one command counts as a failure too.
 *
 * Threads: one.
 */
#ifndef KVT_SERVER_H
#define KVT_SERVER_H

#include "redis/link.h"
#include "redis/resolve.h"
#include "redis/topology.h"

/* What all servers of a client share. */
struct kvt_server_settings {
	const struct kvw_redis_env *env;
	int epoll, wake;
	uint32_t connections;
	int64_t connect_ns;
	SSL_CTX *tls; /* NULL: plain */
	struct kvt_link_login logins[KVT_SERVER_ROLES];
	uint64_t random; /* state */
};

/* What has become of a server in a turn. */
#define KVT_SERVER_WENT_UP   1u /* it has a ready link, and had none */
#define KVT_SERVER_WENT_DOWN 2u /* an attempt failed, and it has no ready link */
#define KVT_SERVER_CHANGED   4u /* a link was lost or has come: commands that wait may go on */

struct kvt_server_stats {
	uint64_t reconnects, sent_bytes, received_bytes; /* so far */
	uint32_t connections;                            /* ready now */
};

/* One link, and how its attempts go. */
struct kvt_slot {
	struct kvt_link *link;
	size_t address;   /* of addresses: tried next */
	size_t untried;   /* addresses that this attempt has left */
	bool was_ready;   /* as far as the last turn knows */
	bool answered;    /* a command, since it became ready */
	bool open;        /* an attempt or a connection is under way */
	bool late;        /* it was closed for a late reply */
	uint64_t readies; /* times that it became ready */
};

struct kvt_server {
	struct kvt_server *next; /* redis.c's */
	struct kvt_server_settings *settings;
	enum kvt_server_role role;
	char host[KVW_REDIS_URL_TEXT];
	uint16_t port; /* 0: host is the path of a Unix socket */
	void *user;    /* the topology's */
	bool unwanted; /* dropped by the topology: destroyed when the next step begins */
	bool patient;  /* while it is down its commands wait for another route */

	struct kvt_slot *slots;
	uint32_t slot_count;
	uint32_t ready;

	struct kvt_resolve *question; /* NULL: none */
	struct kvt_addresses addresses;
	int64_t addresses_ns; /* when they were found; INT64_MAX: digits, for ever */
	int64_t give_up_ns;   /* of the attempt that waits for the addresses; 0: none does */

	uint32_t failures; /* one after another */
	int64_t retry_ns;  /* not asked before */
	bool down;
	char why[KVW_REDIS_REASON]; /* the last failure */

	int64_t quiet_ns; /* no line in the log before */
	bool told_down, told_up;
	char told[KVW_REDIS_REASON]; /* last line's reason */
};

struct kvt_server *kvt_server_create(struct kvt_server_settings *settings, const char *host,
	uint16_t port, enum kvt_server_role role);
void kvt_server_discard(struct kvt_server *server); /* has no commands; NULL is allowed */

enum kvt_server_offer {
	KVT_SERVER_READY, /* *link can take a command */
	KVT_SERVER_LATER, /* connecting: ask again when it went up or down */
	KVT_SERVER_DOWN,  /* not before retry_ns; `why` has the cause */
};
enum kvt_server_offer kvt_server_offer(
	struct kvt_server *server, int64_t now_ns, struct kvt_link **link);

/* Lets all links work. Answered commands go to `answered`, those of lost links to `returned`.
 * *next_ns: lowered to when it wants another turn; to now_ns: at once. Returns what has become of
 * it, KVT_SERVER_WENT_... */
unsigned kvt_server_turn(struct kvt_server *server, int64_t now_ns, struct kvt_commands *answered,
	struct kvt_commands *returned, int64_t *next_ns);

/* Ends commands whose deadline has passed, and the links they are on; those go to `late`, the
 * others of such links to `returned`. *next_ns: lowered to the earliest deadline that is left. */
void kvt_server_expire(struct kvt_server *server, int64_t now_ns, struct kvt_commands *late,
	struct kvt_commands *returned, int64_t *next_ns);

/* Takes all commands back and closes all links. */
void kvt_server_close(struct kvt_server *server, struct kvt_commands *returned, const char *why);

const char *kvt_server_why(const struct kvt_server *server); /* its last failure */

/* Adds to *out. */
void kvt_server_stats(const struct kvt_server *server, struct kvt_server_stats *out);

#endif
