/*
 * slots.h - which server of a cluster owns which slot, and what servers say when it is not them.
 *
 * Pure functions on what came from a server, all of it untrusted: a reply that makes no sense is
 * refused whole, and a map never names more than KVW_REDIS_SERVERS servers.
 *
 * The map is read from CLUSTER SLOTS, which every version since 3.0 has and which answers with the
 * endpoint that clients are to use (address or name, TLS or plain port), where CLUSTER NODES would
 * give all of them and leave the choice to us. A server that does not know its own address says
 * nil, "" or "?": that is the host that was asked, with the port that it said.
 */
#ifndef KVW_REDIS_SLOTS_H
#define KVW_REDIS_SLOTS_H

#include "redis/redis.h"

#define KVW_REDIS_SERVERS 256
#define KVW_REDIS_NO_OWNER  UINT16_MAX /* no owner of a slot */

/* The servers of a cluster. Masters stand first. About 100 KB: on the heap. */
struct kvw_redis_slot_map {
	struct kvw_redis_node nodes[KVW_REDIS_SERVERS];
	uint32_t node_count;
	uint32_t master_count;
	uint32_t covered;                /* slots that have an owner */
	uint16_t owner[KVW_REDIS_SLOTS]; /* into nodes, or KVW_REDIS_NO_OWNER */
};

/* Reads the reply to CLUSTER SLOTS that `asked` gave. Replicas beyond the room are left out.
 * KVW_EPROTO: not such a reply. KVW_ELIMIT: more than KVW_REDIS_SERVERS masters. The map is
 * undefined then. */
enum kvw_err kvw_redis_slot_map_read(struct kvw_redis_slot_map *map,
	const struct kvw_redis_element *elements, size_t count,
	const struct kvw_redis_node *asked) KVW_MUST_CHECK;

bool kvw_redis_same_node(const struct kvw_redis_node *a, const struct kvw_redis_node *b);

/* What an error says about where or when to ask again. */
enum kvw_redis_redirect_kind {
	KVW_REDIS_REDIRECT_NONE,    /* an error like any other */
	KVW_REDIS_REDIRECT_MOVED,   /* the slot is another server's from now on */
	KVW_REDIS_REDIRECT_ASK,     /* this once, after ASKING */
	KVW_REDIS_REDIRECT_LATER,   /* the same server, after a moment: TRYAGAIN, LOADING */
	KVW_REDIS_REDIRECT_REPLICA, /* the server is no master (any more): READONLY, MASTERDOWN */
	KVW_REDIS_REDIRECT_DOWN,    /* the cluster does not serve the slot at present */
};

struct kvw_redis_redirect {
	enum kvw_redis_redirect_kind kind;
	uint32_t slot;              /* MOVED, ASK */
	struct kvw_redis_node node; /* MOVED, ASK */
};

/* Takes an error's text (without its '-') apart; asked: the server that sent it. A MOVED or ASK
 * that cannot be understood is KVW_REDIS_REDIRECT_NONE. */
void kvw_redis_redirect_read(
	const char *text, const struct kvw_redis_node *asked, struct kvw_redis_redirect *out);

#endif
