/*
 * table.h - what each user of a model has used: a bounded table, found by the names of key, tenant
 * and model.
 *
 * A table has at most `most` entries. A full table adds further users to `other`, so that its sum
 * is always complete. A table that grows takes memory as it needs it; a fixed one takes all of it
 * when it is made, and then never allocates.
 *
 * Threads: one at a time.
 */
#ifndef KVW_USAGE_TABLE_H
#define KVW_USAGE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/slice.h"

/* Counts. */
enum kvw_used_kind {
	KVW_USED_REQUESTS,
	KVW_USED_REFUSED, /* of the requests, those that kvway refused and sent to no worker */
	KVW_USED_FAILED,  /* of the requests, those that ended in another error */
	KVW_USED_PROMPT,     /* tokens of prompts, cached ones included */
	KVW_USED_CACHED,     /* of these, tokens that answers report as cached */
	KVW_USED_COMPLETION, /* generated tokens */
	/* the parts of prompt and completion tokens that kvway has estimated, since an answer
	 * reported no usage */
	KVW_USED_PROMPT_ESTIMATED,
	KVW_USED_COMPLETION_ESTIMATED,
	KVW_USED_MICROSECONDS, /* total time of the requests */
	KVW_USED_KINDS
};

struct kvw_used {
	uint64_t n[KVW_USED_KINDS];
};

/* A user: the names that a request has. A slice of length 0: the request had none, or it is not
 * known. Longer names are cut. */
struct kvw_user {
	struct kvw_slice key, tenant, model;
};
#define KVW_USER_NAME_MOST  68  /* bytes of the name of a key ("jwt:" and 64) or a tenant */
#define KVW_USER_MODEL_MOST 128 /* bytes of the name of a model */
#define KVW_USER_TEXT_MOST  (2 * KVW_USER_NAME_MOST + KVW_USER_MODEL_MOST)

struct kvw_usage_entry {
	uint32_t next[2]; /* index + 1 of the next entry of a chain: of the user, of the key */
	uint32_t at;      /* position of the names in the table's text */
	uint8_t key_len, tenant_len, model_len;
	uint16_t tag;     /* the owner's; 0 in a new entry */
	struct kvw_used used;
};

/* Read-only for other files, except for entries' `used` and `tag`. */
struct kvw_usage_table {
	struct kvw_usage_entry *entries; /* [room], of which `count` are used */
	size_t count, room, most;
	uint32_t *heads[2];              /* [head_count] index + 1; by user, by key */
	size_t head_count;               /* power of two */
	char *text;
	size_t text_len, text_room;
	bool fixed;
	struct kvw_used other; /* used by those without an entry */
	uint64_t others;       /* their number, as far as it is known */
};

/* Makes an empty table. False: out of memory. */
bool kvw_usage_table_init(struct kvw_usage_table *table, size_t most, bool fixed);
void kvw_usage_table_finish(struct kvw_usage_table *table); /* a zeroed one is allowed */
void kvw_usage_table_clear(struct kvw_usage_table *table);  /* keeps the memory */

/* Adds to the user's entry, which is made if there is none. NULL: no room, and `other` counts. */
struct kvw_usage_entry *kvw_usage_table_add(
	struct kvw_usage_table *table, const struct kvw_user *user, const struct kvw_used *used);
struct kvw_usage_entry *kvw_usage_table_find(
	const struct kvw_usage_table *table, const struct kvw_user *user);
/* Makes a copy that only serves to be merged. False: out of memory, and *to is as it was. */
bool kvw_usage_table_copy(struct kvw_usage_table *to, const struct kvw_usage_table *from);
/* Adds the entries of another table, or of one key, and its `other` if key is NULL. */
void kvw_usage_table_merge(struct kvw_usage_table *to, const struct kvw_usage_table *from,
	const struct kvw_slice *key);

/* Returns the entry's user; the slices are valid until the table changes. */
struct kvw_user kvw_usage_entry_user(
	const struct kvw_usage_table *table, const struct kvw_usage_entry *entry);

void kvw_used_add(struct kvw_used *to, const struct kvw_used *more);
void kvw_used_subtract(struct kvw_used *from, const struct kvw_used *less);
bool kvw_used_any(const struct kvw_used *used);

#endif
