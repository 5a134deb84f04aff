/*
 * entries_text.h - writes a list of mappings on one line of YAML, the form in which reports on a
 * reload show changed lists: `[{model: small, ttft: 2s}, {model: large}]`.
 *
 * Threads: any.
 */
#ifndef KVW_CONFIG_ENTRIES_TEXT_H
#define KVW_CONFIG_ENTRIES_TEXT_H

#include "config/schema.h"

/* A list, and the keys that its entries may have. Borrowed. */
struct kvw_entries {
	const struct kvw_key *keys; /* [key_count] */
	size_t key_count;
	/* whether an entry has this key; other keys are not written */
	bool (*has)(const void *entry, size_t key);
	const void *first; /* the first of `count` entries, which are `size` bytes apart */
	size_t size, count;
};

/* Makes the text on the heap; it belongs to the caller. KVW_ENOMEM. */
enum kvw_err kvw_entries_text(const struct kvw_entries *entries, char **out) KVW_MUST_CHECK;

#endif
