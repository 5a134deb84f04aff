/*
 * slots.h - the map of a cluster's slots to servers, and the redirections that servers send.
 *
 * Pure functions on untrusted replies of servers: an invalid reply is refused whole, and a map
 * never has more than KVW_REDIS_SERVERS servers.
 *
 * The map is read from CLUSTER SLOTS, which every version since 3.0 has and which answers with the
 * endpoint that clients are to use (address or name, TLS or plain port), while CLUSTER NODES would
 * list all endpoints and leave the choice to the client. A server that does not know its own
 * address sends nil, "" or "?", which stands for the host that was asked, with the sent port.
 */
#ifndef KVW_REDIS_SLOTS_H
#define KVW_REDIS_SLOTS_H

#include "redis/redis.h"

#define KVW_REDIS_SERVERS 256
#define KVW_REDIS_NO_OWNER  UINT16_MAX /* slot without owner */

/* The servers of a cluster and the slots that they own; masters come first. About 100 KB, so it
 * should be on the heap. */
struct kvw_redis_slot_map {
	struct kvw_redis_node nodes[KVW_REDIS_SERVERS];
	uint32_t node_count;
	uint32_t master_count;
	uint32_t covered;                /* number of slots that have an owner */
	/* for each slot an index into nodes, or KVW_REDIS_NO_OWNER */
	uint16_t owner[KVW_REDIS_SLOTS];
};

/* Reads the reply of `asked` to CLUSTER SLOTS. Replicas for which there is no room are left out.
 * KVW_EPROTO: the reply is invalid. KVW_ELIMIT: there are more than KVW_REDIS_SERVERS masters.
 * After an error the map is undefined. */
enum kvw_err kvw_redis_slot_map_read(struct kvw_redis_slot_map *map,
	const struct kvw_redis_element *elements, size_t count,
	const struct kvw_redis_node *asked) KVW_MUST_CHECK;

bool kvw_redis_same_node(const struct kvw_redis_node *a, const struct kvw_redis_node *b);

/* Where or when a command that got an error reply is sent again. */
enum kvw_redis_redirect_kind {
	KVW_REDIS_REDIRECT_NONE,    /* nowhere: an error like any other */
	KVW_REDIS_REDIRECT_MOVED,   /* to another server, which owns the slot from now on */
	KVW_REDIS_REDIRECT_ASK,     /* to another server, after ASKING, but only this command */
	KVW_REDIS_REDIRECT_LATER,   /* to the same server after a pause: TRYAGAIN, LOADING */
	/* to a master: this server is none (any more), READONLY, MASTERDOWN */
	KVW_REDIS_REDIRECT_REPLICA,
	KVW_REDIS_REDIRECT_DOWN,    /* later: the cluster does not serve the slot at present */
};

struct kvw_redis_redirect {
	enum kvw_redis_redirect_kind kind;
	uint32_t slot;              /* MOVED, ASK */
	struct kvw_redis_node node; /* MOVED, ASK */
};

/* Parses the text of an error reply, without its '-'. asked: the server that sent it. An invalid
 * MOVED or ASK is KVW_REDIS_REDIRECT_NONE. */
void kvw_redis_redirect_read(
	const char *text, const struct kvw_redis_node *asked, struct kvw_redis_redirect *out);

#endif
