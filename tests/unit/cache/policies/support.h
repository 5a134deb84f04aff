/*
 * support.h - a tier of entries in chains, as a policy sees one, and a strict watch over it.
 */
#ifndef KVT_TEST_POLICIES_SUPPORT_H
#define KVT_TEST_POLICIES_SUPPORT_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "policies/policy.h"

/* A check for inner loops: Check's own assertions write to a file each time. */
#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg("%s:%d: %s", __FILE__, __LINE__, #condition);                 \
	} while (0)

#define NO_NAME UINT64_MAX

struct tier_entry {
	uint64_t name;
	uint32_t parent; /* entry, or KVT_NO_ENTRY */
	uint32_t children;
	bool there, pinned;
};

struct tier {
	struct kvt_policy *policy;
	struct tier_entry *entries;
	uint32_t max, count;
	uint64_t asked; /* calls of `may` so far */
	uint64_t evictions;
	uint64_t max_ghost_bytes;
};

/* Chunks of one byte, room for `max`. */
void tier_open(struct tier *t, const char *policy, uint32_t max, uint64_t max_ghost_bytes);
void tier_close(struct tier *t);

/* Entry of a name, or KVT_NO_ENTRY. */
uint32_t tier_find(const struct tier *t, uint64_t name);
/* Adds a name, evicting where the tier is full. KVT_NO_ENTRY: nothing may go. */
uint32_t tier_add(struct tier *t, uint64_t name, uint32_t parent);
/* The policy's victim leaves; its name, or NO_NAME. */
uint64_t tier_evict(struct tier *t);
/* Without the policy's doing. */
void tier_erase(struct tier *t, uint32_t entry);
/* A prompt of these names: those from the first on that are there are used, deepest first, and the
 * others added. Returns how many were there. */
size_t tier_ask(struct tier *t, const uint64_t *names, size_t count);

uint64_t test_random(uint64_t *state);

#endif
