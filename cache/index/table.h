/*
 * table.h - finds, for a hash, the numbers of the entries that may have it.
 *
 * Slots of eight bytes, {32 bits of hash, entry number + 1}, 0: empty; open addressing with linear
 * probing. A slot's home is its hash scaled to the table's length, so the table can have any
 * length, and the same order of slots holds in every length: growing is one walk in order.
 *
 * One writer at a time (the index's mutex); any number of readers without a lock. A reader finds
 * only candidates, which it checks at the entry. A slot that the reader does not find may just have
 * moved past it: a removal closes the gap by moving later slots back (so no tombstones collect, and
 * probes stay as short after months as on the first day). `moves` is odd while slots move and
 * increases with each move; a reader that missed and sees a changed `moves` searches again. A
 * reader that gives up after a bounded number of searches misses a key that is present. That is
 * harmless, lasts for a moment, and only happens when a writer loses its CPU in the middle of a
 * move.
 *
 * An outgrown table loses its pages, not its addresses: a reader that still uses it sees empty
 * slots, misses, and sees `moves` changed.
 */
#ifndef KVT_TABLE_H
#define KVT_TABLE_H

#include <stdatomic.h>

#include "policies/policy.h"
#include "index/region.h"

#define KVT_TABLE_SIZES 64

/* The slots of one size of the table. Constant once they are current, except for the slots'
 * values. */
struct kvt_slots {
	_Atomic uint64_t *slot;
	uint32_t count;
	struct kvt_region memory;
};

struct kvt_table {
	_Atomic(struct kvt_slots *) now;
	_Atomic uint64_t moves;
	uint32_t used;
	uint32_t most;  /* entries */
	uint32_t sizes; /* number of used members of `all`; the last one is current */
	struct kvt_slots all[KVT_TABLE_SIZES];
};

enum kvt_status kvt_table_init(struct kvt_table *t, uint32_t most) KVT_MUST_CHECK;
void kvt_table_finish(struct kvt_table *t); /* a zeroed struct is allowed */

/* Makes room for the next add. KVT_ENOMEM. */
enum kvt_status kvt_table_make_room(struct kvt_table *t) KVT_MUST_CHECK;
/* Adds an entry, which must be completely set, after kvt_table_make_room. */
void kvt_table_add(struct kvt_table *t, uint32_t hash, uint32_t number);
/* Removes an entry, which must be present. */
void kvt_table_remove(struct kvt_table *t, uint32_t hash, uint32_t number);

uint64_t kvt_table_bytes(const struct kvt_table *t);

static inline uint32_t kvt_slots_home(const struct kvt_slots *s, uint32_t hash)
{
	return (uint32_t)(((uint64_t)hash * s->count) >> 32);
}

/*
 * Returns the number of the next entry with this hash, from slot *at on, and moves *at past it.
 * KVT_NO_ENTRY: none. The search begins at the hash's home; *steps bounds it to once around.
 */
static inline uint32_t kvt_slots_find(
	const struct kvt_slots *s, uint32_t hash, uint32_t *at, uint32_t *steps)
{
	uint32_t i = *at, found = KVT_NO_ENTRY;

	while (*steps < s->count) {
		uint64_t slot = atomic_load_explicit(&s->slot[i], memory_order_acquire);

		if (slot == 0)
			break;
		i = i + 1 == s->count ? 0 : i + 1;
		++*steps;
		if ((uint32_t)(slot >> 32) == hash) {
			found = (uint32_t)slot - 1;
			break;
		}
	}
	*at = i;
	return found;
}

#endif
