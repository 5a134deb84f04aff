/*
 * slots.h - which server of a cluster owns which slot, and what servers say when it is not them.
 *
 * Pure functions on what came from a server, all of it untrusted: a reply that makes no sense is
 * refused whole, and a map never names more than KVT_REDIS_SERVERS servers.
 *
 * The map is read from CLUSTER SLOTS, which every version since 3.0 has and which answers with the
 * endpoint that clients are to use (address or name, TLS or plain port), where CLUSTER NODES would
 * give all of them and leave the choice to us. A server that does not know its own address says
 * nil, "" or "?": that is the host that was asked, with the port that it said.
 */
#ifndef KVT_REDIS_SLOTS_H
#define KVT_REDIS_SLOTS_H

#include "redis/redis.h"

#define KVT_REDIS_SERVERS 256
#define KVT_REDIS_NOBODY  UINT16_MAX /* no owner of a slot */

/* The servers of a cluster. Masters stand first. About 100 KB: on the heap. */
struct kvt_slot_map {
	struct kvw_redis_node nodes[KVT_REDIS_SERVERS];
	uint32_t node_count;
	uint32_t master_count;
	uint32_t covered;                /* slots that have an owner */
	uint16_t owner[KVT_REDIS_SLOTS]; /* into nodes, or KVT_REDIS_NOBODY */
};

/* Reads the reply to CLUSTER SLOTS that `asked` gave. Replicas beyond the room are left out.
 * KVW_EPROTO: not such a reply. KVW_ELIMIT: more than KVT_REDIS_SERVERS masters. The map is
 * undefined then. */
enum kvw_err kvt_slot_map_read(struct kvt_slot_map *map, const struct kvt_redis_element *elements,
	size_t count, const struct kvw_redis_node *asked) KVW_MUST_CHECK;

bool kvt_redis_same_node(const struct kvw_redis_node *a, const struct kvw_redis_node *b);

/* What an error says about where or when to ask again. */
enum kvt_redirect_kind {
	KVT_REDIRECT_NONE,    /* an error like any other */
	KVT_REDIRECT_MOVED,   /* the slot is another server's from now on */
	KVT_REDIRECT_ASK,     /* this once, after ASKING */
	KVT_REDIRECT_LATER,   /* the same server, after a moment: TRYAGAIN, LOADING */
	KVT_REDIRECT_REPLICA, /* the server is no master (any more): READONLY, MASTERDOWN */
	KVT_REDIRECT_DOWN,    /* the cluster does not serve the slot at present */
};

struct kvt_redirect {
	enum kvt_redirect_kind kind;
	uint32_t slot;              /* MOVED, ASK */
	struct kvw_redis_node node; /* MOVED, ASK */
};

/* Takes an error's text (without its '-') apart; asked: who said it. A MOVED or ASK that cannot be
 * understood is KVT_REDIRECT_NONE. */
void kvt_redirect_read(
	const char *text, const struct kvw_redis_node *asked, struct kvt_redirect *out);

#endif
