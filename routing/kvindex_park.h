/*
 * kvindex_park.h - blocks that were stored before their parent was known.
 *
 * Their keys continue the parent's key, so before that is known they cannot be entered. A record
 * keeps the data for computing the keys, and is found in two ways: by its parent, whose store wakes
 * it, and by each of its own hashes, so that a removal that arrives before the parent takes effect.
 * Each record is one allocation and counts with all its bytes; waiting records are in a list by
 * age, and the oldest are dropped for time or room.
 *
 * Belongs to the index's writer; only the counters are read by other threads.
 */
#ifndef KVW_KVINDEX_PARK_H
#define KVW_KVINDEX_PARK_H

#include <stdatomic.h>

#include "routing/kvindex.h"

struct kvw_kvrecord;

/* A link of a list from which any member can be removed. */
struct kvw_kvlink {
	struct kvw_kvlink *next;
	struct kvw_kvlink **here; /* the pointer that points to this link; NULL: in no list */
	struct kvw_kvrecord *record;
};

/* One block of a record. */
struct kvw_kvparked_block {
	struct kvw_kvlink link; /* link in the list of its hash, unless the block was removed */
	bool gone;              /* removed since */
};

struct kvw_kvrecord {
	struct kvw_kvlink by_parent; /* link in the list of its parent, while it waits */
	struct kvw_kvrecord *older, *newer;
	struct kvw_kvindex_from from;
	uint32_t lane;
	uint32_t word; /* holder word when it was parked; after a clear it is stale */
	uint32_t space;
	uint32_t count;
	uint64_t parent; /* engine hash */
	int64_t parked_ns;
	size_t bytes;                      /* size of the whole record */
	struct kvw_kvparked_block *blocks; /* [count]; these four arrays lie behind the record */
	uint64_t *hashes;                  /* [count] */
	uint64_t *keys;                    /* [count] room for the computed keys */
	void *payload;
	size_t payload_bytes;
};

struct kvw_kvrecord_list {
	struct kvw_kvrecord *oldest, *newest;
};

struct kvw_kvpark {
	uint64_t bytes_limit;
	int64_t wait_ns;
	uint64_t seed;
	struct kvw_kvlink **parents; /* [heads] */
	struct kvw_kvlink **hashes;  /* [heads] */
	uint32_t heads; /* number of list heads, a power of two; 0: no record is ever parked */
	struct kvw_kvrecord_list waiting, ready;
	_Atomic uint64_t records, bytes, dropped;
};

/* Initializes the struct. KVW_ENOMEM: there is nothing to finish. */
enum kvw_err kvw_kvpark_init(struct kvw_kvpark *park, uint64_t bytes_limit, int64_t wait_ns,
	uint64_t seed) KVW_MUST_CHECK;
void kvw_kvpark_finish(struct kvw_kvpark *park);

/* Parks a record, or drops it if there is no room. word: the holder word that a store would have
 * now. */
void kvw_kvpark_add(struct kvw_kvpark *park, struct kvw_kvindex_from from,
	const struct kvw_kvindex_blocks *blocks, uint32_t word, uint64_t parent,
	const void *payload, size_t payload_bytes, int64_t now_ns);

/* Marks the records that wait for this hash as ready. */
void kvw_kvpark_wake(struct kvw_kvpark *park, uint32_t lane, uint64_t hash);

/* Takes the first record that is ready, or NULL. The caller frees it. */
struct kvw_kvrecord *kvw_kvpark_ready(struct kvw_kvpark *park);
void kvw_kvpark_free(struct kvw_kvpark *park, struct kvw_kvrecord *record);

/* Removes one parked block of this hash and holder word. False: none is parked. */
bool kvw_kvpark_removed(struct kvw_kvpark *park, uint32_t word, uint64_t hash) KVW_MUST_CHECK;

/* Drops records that have waited too long. */
void kvw_kvpark_expire(struct kvw_kvpark *park, int64_t now_ns);

void kvw_kvpark_count_dropped(struct kvw_kvpark *park);

/* Fills the struct for the keys function; the parent's key is not set. */
void kvw_kvrecord_show(const struct kvw_kvrecord *record, struct kvw_kvindex_parked *out);

#endif
