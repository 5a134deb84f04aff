/*
 * own_keys.h - keys of the settings that strategies have of their own, and with them the whole schema.
 *
 * keys.def has the router's keys; what a strategy alone reads is in its table (`settings` in
 * kvway/route.h) and becomes the key routing.NAME.SETTING. Indexes go on behind those of keys.def: the
 * first own key is KVW_KEY_COUNT, the first section that keys.def does not have KVW_SECTION_COUNT.
 * Nothing here is on the heap. Pure functions of the list of strategies.
 */
#ifndef KVW_CONFIG_OWN_KEYS_H
#define KVW_CONFIG_OWN_KEYS_H

#include "config/schema.h"
#include "kvway/route.h"

#define KVW_OWN_SECTION_PARENT "routing" /* under which they stand */

struct kvw_own_keys {
	const char *names[KVW_STRATEGIES_MOST + 1]; /* of the strategies, NULL-terminated */
	struct kvw_key keys[KVW_OWN_KEYS_MOST];
	size_t key_count;
	struct kvw_section sections[KVW_STRATEGIES_MOST];
	size_t section_count;
	char paths[KVW_OWN_KEYS_MOST + KVW_STRATEGIES_MOST][KVW_SCHEMA_MAX_PATH];
	size_t path_count;
};

/* Pointers in *own go to *own itself: it must not be moved. */
void kvw_own_keys_init(
	struct kvw_own_keys *own, const struct kvw_strategy_ops *const *strategies);

/* By index, below the counts of keys.def and of *own together. */
const struct kvw_key *kvw_own_key(const struct kvw_own_keys *own, size_t index);
const struct kvw_section *kvw_own_section(const struct kvw_own_keys *own, size_t index);

/* Index by full path, or those counts if there is none. */
size_t kvw_own_find_key(const struct kvw_own_keys *own, const char *path);
size_t kvw_own_find_section(const struct kvw_own_keys *own, const char *path);

#endif
