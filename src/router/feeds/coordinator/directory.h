/*
 * directory.h - what LMCache's servers hold, by their cache events: the coordinator's state.
 *
 *	instance (a server's id) -- its registration, the cursor of its events, its capacities
 *	  placement -- one place of an object: instance, tier, backend, size
 *	object (chunk hash, model, rank, group, salt) -- its placements, in the order of arrival
 *	  binding -- the tokens of a chunk hash, shared by the objects with that hash
 *
 * The rules are those of LMCache 0.5.6's own coordinator. A batch with a lower incarnation than the
 * last one is stale, one with a known number a duplicate. A higher incarnation is a restart: the L1
 * placements of the instance are dropped, those of L2 stay. A jump in the numbers is a gap; nothing
 * is asked again, because LMCache cannot repeat events. A server that leaves or falls silent loses
 * its L1 placements and its cursor.
 *
 * One difference: the bytes of a shared L1 pool belong to the instance that reported them last, and
 * go with it.
 *
 * A pure state machine: batches and time go in, changes of L1 come out by callbacks. No socket, no
 * clock, no thread. Memory is bounded by options.bytes; beyond it stores are dropped and
 * counted, those of L2 already beyond half of it. Salts and pins have limits of their own.
 *
 * Threads: belongs to the feed's.
 */
#ifndef KVW_COORDINATOR_DIRECTORY_H
#define KVW_COORDINATOR_DIRECTORY_H

#include <sys/queue.h>

#include "feeds/coordinator/events.h"
#include "feeds/coordinator/pins.h"
#include "feeds/coordinator/salts.h"

#define KVW_CD_INSTANCES 4096u /* at most */
#define KVW_CD_BACKENDS  256u  /* names of backends at most */
#define KVW_CD_MODULES   64u   /* capacities that an instance declares, and compartments in use */

struct kvw_cd_object;
struct kvw_cd_instance;
LIST_HEAD(kvw_cd_members, kvw_cd_object);

/* An entry of a table: the first member of what the table has. */
struct kvw_cd_link {
	struct kvw_cd_link *next; /* in its bucket */
	uint64_t hash;
};

/* A chained hash table, which doubles when it is full. */
struct kvw_cd_table {
	struct kvw_cd_link **buckets; /* owned, [room], a power of two */
	size_t room, count;
};

/* Tokens of a chunk hash. */
struct kvw_cd_binding {
	struct kvw_cd_link link;
	struct kvw_cd_members objects;
	uint32_t *tokens; /* owned; NULL: unknown */
	uint32_t token_count;
	int64_t offset; /* -1: unknown */
	uint8_t len;
	char text[]; /* the chunk hash */
};

struct kvw_cd_placement {
	STAILQ_ENTRY(kvw_cd_placement) entry;  /* of its object */
	LIST_ENTRY(kvw_cd_placement) l1_entry; /* of its instance's L1, only if tier is L1 */
	struct kvw_cd_object *object;
	struct kvw_cd_instance *instance; /* that reported it last */
	uint64_t incarnation, size_bytes;
	enum kvw_ce_tier tier;
	uint8_t backend; /* index of its name */
	bool shared;
};

struct kvw_cd_object {
	struct kvw_cd_link link;          /* by all members of its key */
	TAILQ_ENTRY(kvw_cd_object) entry; /* of all objects, in the order of arrival */
	LIST_ENTRY(kvw_cd_object) member; /* of its binding */
	struct kvw_cd_binding *binding;
	struct kvw_cd_salt *salt;
	struct kvw_cd_l2 *l2; /* owned; NULL: L2 does not hold it */
	STAILQ_HEAD(, kvw_cd_placement) placements;
	/* Hash of all members of the key but the rank: ranks hold slices of one chunk. */
	uint64_t name_hash;
	uint64_t accesses;
	uint32_t rank, group;
	uint16_t model_len, salt_len;
	char text[]; /* model, then salt */
};

/* A compartment: a medium of L1, or an adapter of L2. */
struct kvw_cd_module {
	enum kvw_ce_tier tier;
	uint8_t backend;
	bool shared;
	uint64_t bytes; /* used, or declared as capacity */
};

struct kvw_cd_modules {
	struct kvw_cd_module *items; /* owned, [count] */
	uint32_t count;
};

struct kvw_cd_instance {
	struct kvw_cd_instance *next; /* in its bucket */
	TAILQ_ENTRY(kvw_cd_instance) entry;
	LIST_HEAD(, kvw_cd_placement) l1;
	uint64_t l1_objects, placements; /* that it reported last */
	uint64_t private_l2;             /* of the placements */
	struct kvw_cd_modules used;      /* private ones */

	bool registered;
	char *ip, *p2p_url, *metadata; /* owned, of its registration; metadata is JSON */
	uint16_t http_port, mq_port;
	double registered_s; /* wall clock */
	int64_t came_ns;     /* when it registered first */
	int64_t beat_ns, heard_ns;

	uint64_t restarts;
	bool reports; /* it has sent a batch since it came or restarted */
	bool has_cursor, gap;
	uint64_t incarnation, seq;
	/* Bytes of objects that were new in L1 since a report was lost. */
	uint64_t stored_since;
	bool incomplete;         /* reports were lost, and L1 was not replaced since */
	uint64_t named, unnamed; /* L1 objects stored with and without a name, since its restart */
	uint64_t hashed;         /* of the named ones, without tokens */

	bool declares;
	uint64_t declared_incarnation, declared_revision;
	struct kvw_cd_modules declared;

	bool l2_known; /* all that its L2 holds was reported, or listed, or cannot be listed */
	/* A listing of its L2 failed: no page is asked for before, monotonic. */
	int64_t list_rest_ns;
	/* A DELETE failed: none is sent before rest_ns, monotonic. */
	int64_t rest_ns;
	uint32_t failures; /* of DELETEs, in a row */

	uint32_t kept_as; /* its number in the records of keep.c, while they are written */
	bool recalled;    /* records that are being read may name it: it stays until the last one */
	void *user;       /* of the caller; see kvw_cd_options.freed */
	char id[];
};

/* Counters since start. */
struct kvw_cd_counts {
	uint64_t batches[KVW_CE_TYPES]; /* applied */
	uint64_t entries[KVW_CE_TYPES]; /* of them */
	uint64_t unnamed;               /* stored entries of L1 that cannot be named */
	uint64_t duplicates, stale, gaps, restarts;
	uint64_t dropped; /* stores without room */
	uint64_t registered, left, timeouts;
	uint64_t evicted, evicted_bytes; /* placements of L2 whose deletion kvway had asked for */
	uint64_t forgotten;              /* those whose deletion was answered, but never reported */
};

enum kvw_cd_verdict { KVW_CD_APPLIED, KVW_CD_DUPLICATE, KVW_CD_STALE, KVW_CD_FULL };

/* All borrowed until destroy. Callbacks may be NULL; they must not change the directory. */
struct kvw_cd_options {
	uint64_t bytes; /* of objects, placements and tokens */
	uint64_t seed;  /* of the tables' hash: servers choose the keys */
	/* The instance's L1 begins or ceases to hold the object. Not called for one object again
	 * while it is held, but called in pairs when its tokens change. */
	void (*l1)(void *ctx, struct kvw_cd_instance *instance, struct kvw_cd_object *object,
		bool holds);
	/* Has the object a name there? NULL: what kvw_cd_is_named has one. */
	bool (*can_name)(void *ctx, const struct kvw_cd_object *object);
	/* The instance is freed. */
	void (*freed)(void *ctx, struct kvw_cd_instance *instance);
	void *ctx;
};

TAILQ_HEAD(kvw_cd_objects, kvw_cd_object);
TAILQ_HEAD(kvw_cd_instances, kvw_cd_instance);

/* Read by the pages; written by directory.c alone. */
struct kvw_cd {
	struct kvw_cd_options options;
	struct kvw_cd_objects objects;
	struct kvw_cd_instances instances;
	uint64_t object_count, instance_count, bytes;
	uint64_t tier_count[KVW_CE_TIERS], tier_bytes[KVW_CE_TIERS]; /* of placements */
	struct kvw_cd_modules pools; /* bytes used of shared pools */
	struct kvw_cd_salts salts;
	struct kvw_cd_pins pins;
	struct kvw_cd_counts counts;
	char *backends[KVW_CD_BACKENDS]; /* owned */
	uint32_t backend_count;
	uint32_t group_most; /* the largest object group of any object so far */

	/* private */
	struct kvw_cd_table by_key, by_hash; /* objects; bindings */
	struct kvw_cd_instance *instance_table[KVW_CD_INSTANCES];
};

enum kvw_err kvw_cd_create(
	const struct kvw_cd_options *options, struct kvw_cd **out) KVW_MUST_CHECK;
void kvw_cd_destroy(struct kvw_cd *cd); /* NULL is allowed */

/* Offers a batch, whose entries follow by kvw_cd_entry if it is APPLIED. FULL: too many instances
 * or backends, or no memory. *instance is the batch's, for its entries. */
enum kvw_cd_verdict kvw_cd_batch(struct kvw_cd *cd, const struct kvw_ce_batch *batch,
	int64_t now_ns, struct kvw_cd_instance **instance) KVW_MUST_CHECK;
void kvw_cd_entry(struct kvw_cd *cd, struct kvw_cd_instance *instance,
	const struct kvw_ce_batch *batch, const struct kvw_ce_entry *entry);
/* After the last entry. */
void kvw_cd_batch_end(
	struct kvw_cd *cd, struct kvw_cd_instance *instance, const struct kvw_ce_batch *batch);

struct kvw_cd_registration {
	struct kvw_slice id, ip, p2p_url, metadata; /* metadata: JSON */
	uint16_t http_port, mq_port;
	double wall_s;
	int64_t now_ns;
};

/* Registers an instance, perhaps once more. KVW_ELIMIT: too many; KVW_ENOMEM. */
enum kvw_err kvw_cd_register(struct kvw_cd *cd, const struct kvw_cd_registration *registration,
	struct kvw_cd_instance **instance, bool *again) KVW_MUST_CHECK;
/* False: the instance is not registered. */
bool kvw_cd_beat(struct kvw_cd *cd, struct kvw_slice id, int64_t now_ns) KVW_MUST_CHECK;
void kvw_cd_leave(struct kvw_cd *cd, struct kvw_slice id);

/* To be called every second or so: forgets registered instances without a heartbeat since
 * timeout_ns, and all but shared L2 of unregistered ones that were not heard of for an hour. */
void kvw_cd_tick(struct kvw_cd *cd, int64_t timeout_ns, int64_t now_ns);

struct kvw_cd_instance *kvw_cd_find_instance(const struct kvw_cd *cd, struct kvw_slice id);
struct kvw_cd_object *kvw_cd_find(const struct kvw_cd *cd, const struct kvw_ce_key *key);
/* Borrowed from the object. */
struct kvw_ce_key kvw_cd_key_of(const struct kvw_cd_object *object);
/* The tokens of a chunk hash, of whatever object; NULL: no object has the hash. */
const struct kvw_cd_binding *kvw_cd_find_binding(const struct kvw_cd *cd, struct kvw_slice hash);
/* Calls the option l1 with every object that the instance's L1 holds. */
void kvw_cd_each_l1(const struct kvw_cd *cd, struct kvw_cd_instance *instance, bool holds);
/* Are the tokens of the object known, with a position that is a whole number of chunks? */
bool kvw_cd_is_named(const struct kvw_cd_object *object);
/* Declared bytes of the instance's L1, all media; 0: unknown. */
uint64_t kvw_cd_l1_capacity(const struct kvw_cd_instance *instance);

#endif
