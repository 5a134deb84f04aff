/*
 * slots.h - generations: an erased chunk loses its name.
 *
 * A shared tier keeps a table of numbers, one for each slot. A tenant has a slot, and so has a
 * fingerprint ("all"). The name of a chunk below memory is made from its key and the numbers of its
 * two slots (core/generations.c), so an erase of a tenant, or of all, changes one number, and no
 * cache asks any more for a chunk under a former name. The number of slots is constant: two tenants
 * may share one, then after an erase of one the other's chunks are misses, too.
 *
 * Two bytes of a key hold its tenant's slot, written by kvt_key_make, since readers name only keys.
 */
#ifndef KVT_SLOTS_H
#define KVT_SLOTS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kvtier/kvtier.h"

#define KVT_TENANT_SLOTS  65536u
#define KVT_VERSION_SLOTS 1024u
#define KVT_OBJECT_SLOTS  65536u /* slots for kvtierd's objects (daemon/objects_names.c) */
#define KVT_OBJECTS_AT    (KVT_TENANT_SLOTS + KVT_VERSION_SLOTS)
#define KVT_SLOTS         (KVT_OBJECTS_AT + KVT_OBJECT_SLOTS)
/* where a key has its tenant's slot: 2 bytes, little-endian; a fragment's mark may follow */
#define KVT_SLOT_AT       26

static inline uint32_t kvt_tenant_slot(const struct kvt_tenant *tenant)
{
	return (uint32_t)tenant->bytes[0] | (uint32_t)tenant->bytes[1] << 8;
}

static inline uint32_t kvt_key_slot(const struct kvt_key *key)
{
	return (uint32_t)key->bytes[KVT_SLOT_AT] | (uint32_t)key->bytes[KVT_SLOT_AT + 1] << 8;
}

static inline uint32_t kvt_version_slot(const struct kvt_fingerprint *fingerprint)
{
	return KVT_TENANT_SLOTS +
	       ((uint32_t)fingerprint->bytes[0] | (uint32_t)fingerprint->bytes[1] << 8) % KVT_VERSION_SLOTS;
}

static inline void kvt_key_take_slot(struct kvt_key *key, const struct kvt_tenant *tenant)
{
	memcpy(&key->bytes[KVT_SLOT_AT], tenant->bytes, 2);
}

/* Slots of tenants. */
struct kvt_slot_set {
	bool all;
	uint64_t bits[KVT_TENANT_SLOTS / 64];
};

static inline void kvt_slot_set_add(struct kvt_slot_set *set, uint32_t slot)
{
	set->bits[slot / 64] |= 1ull << slot % 64;
}

static inline bool kvt_slot_set_is_empty(const struct kvt_slot_set *set)
{
	uint64_t any = set->all;

	for (size_t i = 0; i < KVT_TENANT_SLOTS / 64; i++)
		any |= set->bits[i];
	return any == 0;
}

static inline bool kvt_slot_set_has(const struct kvt_slot_set *set, uint32_t slot)
{
	return set->all || (set->bits[slot / 64] >> slot % 64 & 1) != 0;
}

/* --- the table of a shared tier
 * ------------------------------------------------------------------ */

#define KVT_TABLE_ID_BYTES 16
#define KVT_CHANGES_MOST   1024u   /* limit of changes in one answer */
#define KVT_SLOT_NONE      UINT32_MAX

struct kvt_slot_change {
	uint32_t slot;
	uint64_t number; /* number of the change, from then on the slot's generation */
};

/* Returns by how much a change's number exceeds the last one, from 3 random bytes: 1 to 2^20. So
 * when an older copy of a table comes back, its next changes get other numbers than the lost
 * changes had. */
static inline uint64_t kvt_change_step(const uint8_t random[3])
{
	return 1 + ((uint32_t)random[0] | (uint32_t)random[1] << 8 | (random[2] & 15u) << 16);
}

/*
 * A question to a shared tier about its table, with an optional change. A table that is missing, or
 * is behind the asker's knowledge (the table was lost, or an older copy came back), begins again
 * under another id: then all names are new, and stored chunks are misses. An older copy may have
 * passed the asker's number by other changes: the asker compares the sum of the table's numbers
 * with its own, and asks for changes after KVT_NUMBER_LOST if the sums differ.
 */
#define KVT_NUMBER_LOST (1ull << 53) /* above every number */

struct kvt_table_ask {
	uint8_t id[KVT_TABLE_ID_BYTES]; /* id of the table that the asker knows; all zero: none */
	uint64_t after;                 /* the asker knows changes up to this number */
	uint32_t raise;                 /* this slot gets the next number; KVT_SLOT_NONE: none */
	/* the tenant of that slot; NULL: all tenants; borrowed until the request is done */
	const struct kvt_tenant *tenant;
	/* random bytes: the id of a table that begins now, and a change's step */
	uint8_t fresh[KVT_TABLE_ID_BYTES];
	/* Results, with KVT_OK. With another id than the asker's, `changes` are all of the
	 * table's. */
	uint8_t now[KVT_TABLE_ID_BYTES];
	struct kvt_slot_change changes[KVT_CHANGES_MOST]; /* by number */
	uint32_t change_count;
	bool more;    /* the table has later changes */
	uint32_t sum; /* sum of the numbers of all slots of the table, modulo 2^32 */
};

/* Writes the changes with the lowest numbers above `after`, and the sum, into the results. */
void kvt_slots_collect(const uint64_t numbers[KVT_SLOTS], uint64_t after, struct kvt_table_ask *ask);

#endif
