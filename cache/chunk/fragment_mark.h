/*
 * fragment_mark.h - the mark of fragments' keys, in their last bytes.
 *
 * The mark serves tools and refusals, never safety: one exact key in four billion has the mark by chance.
 */
#ifndef KVT_FRAGMENT_MARK_H
#define KVT_FRAGMENT_MARK_H

#include <stdbool.h>
#include <string.h>

#include "kvtier/kvtier_fragments.h"

#define KVT_MARK_BYTES (sizeof(KVT_FRAGMENT_MARK) - 1)

static inline bool kvt_key_is_fragments(const struct kvt_key *key)
{
	return memcmp(key->bytes + sizeof(key->bytes) - KVT_MARK_BYTES, KVT_FRAGMENT_MARK, KVT_MARK_BYTES) == 0;
}

#endif
