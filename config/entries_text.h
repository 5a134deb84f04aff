/*
 * entries_text.h - a list of mappings on one line of YAML, as reports of what a reload changes show it:
 * `[{model: small, ttft: 2s}, {model: large}]`.
 *
 * Threads: any.
 */
#ifndef KVW_CONFIG_ENTRIES_TEXT_H
#define KVW_CONFIG_ENTRIES_TEXT_H

#include "config/schema.h"

/* A list and the keys of its entries. Borrowed. */
struct kvw_entries {
	const struct kvw_key *keys; /* [key_count] */
	size_t key_count;
	bool (*has)(const void *entry, size_t key); /* whether it says something by that key; else it is left out */
	const void *first; /* of `count` entries that are `size` bytes apart */
	size_t size, count;
};

/* On the heap; the caller's. KVW_ENOMEM. */
enum kvw_err kvw_entries_text(const struct kvw_entries *entries, char **out) KVW_MUST_CHECK;

#endif
