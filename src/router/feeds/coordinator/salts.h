/*
 * salts.h - tenants of the directory: bytes by cache salt, quotas, and what of L2 was used last.
 *
 *	salt -- its quota, its bytes in each tier
 *	  L2 entry (an object that L2 holds) -- in two lists, least recently used first: of its salt
 *	                                        and of all; or, while its deletion is under way, in
 *	                                        the list of those
 *
 * An entry is used when L2 stores it or a server reports an access to it in L2. Of a batch of
 * stores or accesses the first entry counts as used last: a prompt's first chunk is needed for each
 * of its later ones.
 *
 * Threads: belongs to the feed's. No clock, no socket.
 */
#ifndef KVW_COORDINATOR_SALTS_H
#define KVW_COORDINATOR_SALTS_H

#include <sys/queue.h>

#include "feeds/coordinator/events.h"

#define KVW_CD_SALTS 65536u /* at most */

struct kvw_cd;
struct kvw_cd_object;
struct kvw_cd_placement;
struct kvw_cd_salt;

TAILQ_HEAD(kvw_cd_l2_list, kvw_cd_l2);

/* An object that L2 holds. */
struct kvw_cd_l2 {
	TAILQ_ENTRY(kvw_cd_l2) of_salt, of_all; /* of_all also in the list `asked` */
	struct kvw_cd_object *object;
	uint32_t placements; /* of it in L2 */
	/* The placement whose deletion is under way; NULL: none. */
	struct kvw_cd_placement *asked;
	int64_t asked_ns;
	uint64_t plan; /* number of the plan that asked for it */
	uint64_t asked_bytes;
	int64_t fetched_ns; /* when a server was asked last to load it; 0: never */
	uint8_t answers;    /* requests that a server answered, without a report of the deletion */
};

struct kvw_cd_salt {
	struct kvw_cd_salt *next; /* in its bucket */
	TAILQ_ENTRY(kvw_cd_salt) entry;
	struct kvw_cd_l2_list l2;
	uint64_t objects; /* under it */
	uint64_t bytes[KVW_CE_TIERS];
	uint64_t asked_bytes; /* of L2, whose deletion is under way */
	uint64_t limit;       /* bytes of L2, if limited */
	bool limited;
	bool draining; /* it was over its limit, and is not yet far enough below it */
	uint16_t len;
	char text[];
};

TAILQ_HEAD(kvw_cd_salt_list, kvw_cd_salt);

struct kvw_cd_salts {
	struct kvw_cd_salt *table[4096];
	struct kvw_cd_salt_list list;
	struct kvw_cd_l2_list all;   /* without those in asked */
	struct kvw_cd_l2_list asked; /* by asked_ns */
	uint32_t count, limited;     /* limited: with a limit of their own */
	bool has_default;
	uint64_t default_limit;    /* of salts without a limit */
	uint64_t asked_bytes;      /* of all */
	uint64_t asked_shared;     /* of these, in shared pools */
	bool draining;             /* the cap was reached */
	uint64_t plan;             /* number of the last plan */
	struct kvw_cd_l2 *touched; /* last in the batch; NULL: none */
};

struct kvw_cd_salt *kvw_cd_find_salt(const struct kvw_cd *cd, struct kvw_slice text);
/* Finds or makes it; NULL: no room. */
struct kvw_cd_salt *kvw_cd_take_salt(struct kvw_cd *cd, struct kvw_slice text);
/* Frees the salt if it has neither objects nor a limit. */
void kvw_cd_settle_salt(struct kvw_cd *cd, struct kvw_cd_salt *salt);

/* Sets the quota of a salt. KVW_ELIMIT: too many salts. */
enum kvw_err kvw_cd_set_quota(
	struct kvw_cd *cd, struct kvw_slice text, uint64_t bytes) KVW_MUST_CHECK;
/* False: it had none. */
bool kvw_cd_drop_quota(struct kvw_cd *cd, struct kvw_slice text);

/* --- for directory.c -------------------------------------------------------------------------- */

/* A placement in L2 comes (false: no memory) or is about to go. */
bool kvw_cd_l2_add(struct kvw_cd *cd, struct kvw_cd_object *object) KVW_MUST_CHECK;
void kvw_cd_l2_remove(struct kvw_cd *cd, struct kvw_cd_placement *placement);
/* The object was used; stored: L2 has it again, so a deletion under way no longer counts. */
void kvw_cd_l2_touch(struct kvw_cd *cd, struct kvw_cd_object *object, bool stored);

/* The object counts as used longest ago. */
void kvw_cd_l2_age(struct kvw_cd *cd, struct kvw_cd_l2 *l2);

/* --- for plan.c ------------------------------------------------------------------------------- */

/* The placement's deletion is under way since now_ns, by the plan of cd->salts.plan. */
void kvw_cd_l2_ask(struct kvw_cd *cd, struct kvw_cd_placement *placement, int64_t now_ns);
/* No deletion of the entry is under way any more: it is the first to be deleted again. */
void kvw_cd_l2_unask(struct kvw_cd *cd, struct kvw_cd_l2 *l2);
/* Puts the entry to the end of one list. */
void kvw_cd_l2_turn(struct kvw_cd *cd, struct kvw_cd_l2 *l2, bool of_salt);

#endif
