/*
 * support.h - keys, a clock and a strict `gone` for the tests of the index.
 */
#ifndef KVT_TEST_INDEX_SUPPORT_H
#define KVT_TEST_INDEX_SUPPORT_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "index/cache_index.h"

/* A check for inner loops: Check's own assertions write to a file each time. */
#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg("%s:%d: %s", __FILE__, __LINE__, #condition);                 \
	} while (0)

#define SECOND 1000000000ll

/* An index with a clock of its own, that counts what leaves. */
struct bed {
	struct kvt_index *index;
	int64_t wall_ns;
	struct kvt_surroundings surroundings;
	uint32_t gone; /* calls so far */
	struct kvt_key last_gone;
	struct kvt_entry_info last_info;
	void (*on_clock)(struct bed *bed); /* once, when the time is next read */
};

struct bed_options {
	uint32_t max_entries;
	uint64_t capacity, tenant_limit;
	const char *policy; /* NULL: lru */
};

void bed_open(struct bed *bed, const struct bed_options *options);
void bed_close(struct bed *bed);

/* Key of a number: not to be guessed from another's. */
struct kvt_key key_of(uint64_t number);
struct kvt_tenant tenant_of(uint64_t number);
uint64_t test_random(uint64_t *state);

/* A chunk of `charge` bytes; no TTL, no tenant. */
struct kvt_entry_info info_of(uint64_t charge);

bool same_info(const struct kvt_entry_info *a, const struct kvt_entry_info *b);

/* Insert and publish, without a hold afterwards. parent UINT64_MAX: none. Returns the status. */
enum kvt_status bed_put(
	struct bed *bed, uint64_t number, uint64_t parent, const struct kvt_entry_info *info);
bool bed_has(struct bed *bed, uint64_t number);

#endif
