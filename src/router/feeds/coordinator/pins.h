/*
 * pins.h - chunks that eviction from L2 leaves alone, each with a count of its pins.
 *
 * A pin holds a chunk in every object group: its key is compared without the group. Pins are an
 * operator's word and do not depend on what the directory knows. Bounded by KVW_CD_PINS.
 *
 * Threads: belongs to the feed's.
 */
#ifndef KVW_COORDINATOR_PINS_H
#define KVW_COORDINATOR_PINS_H

#include <sys/queue.h>

#include "feeds/coordinator/events.h"

#define KVW_CD_PINS 262144u /* at most; some 250 bytes each */

struct kvw_cd;

struct kvw_cd_pin {
	struct kvw_cd_pin *next; /* in its bucket */
	TAILQ_ENTRY(kvw_cd_pin) entry;
	uint64_t hash, count;
	uint32_t rank;
	uint16_t model_len, salt_len;
	uint8_t hash_len;
	char text[]; /* chunk hash, model, salt */
};

TAILQ_HEAD(kvw_cd_pin_list, kvw_cd_pin);

struct kvw_cd_pins {
	struct kvw_cd_pin **table;   /* owned, [65536]; NULL before the first pin */
	struct kvw_cd_pin_list list; /* in the order in which they were pinned first */
	uint32_t count;
};

/* Adds `count` pins. KVW_ELIMIT, KVW_ENOMEM. */
enum kvw_err kvw_cd_pin(
	struct kvw_cd *cd, const struct kvw_ce_key *key, uint64_t count) KVW_MUST_CHECK;
void kvw_cd_unpin(struct kvw_cd *cd, const struct kvw_ce_key *key); /* takes one away, if any */
void kvw_cd_drop_pins(struct kvw_cd *cd, const struct kvw_ce_key *key);
bool kvw_cd_is_pinned(const struct kvw_cd *cd, const struct kvw_ce_key *key);
/* The key of a pin, of group 0; borrowed from it. */
struct kvw_ce_key kvw_cd_pin_key(const struct kvw_cd_pin *pin);

#endif
