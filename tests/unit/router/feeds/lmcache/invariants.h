/*
 * invariants.h - what must be true of a registry and its index after any messages at all.
 */
#ifndef KVT_LMCACHE_INVARIANTS_H
#define KVT_LMCACHE_INVARIANTS_H

#include "feeds/lmcache/registry.h"

/* NULL: all holds; else what does not. keys: [count] names to compare registry and index by. */
const char *lmreg_fault(struct kvw_lmreg *reg, const uint64_t *keys, uint32_t count);

#endif
