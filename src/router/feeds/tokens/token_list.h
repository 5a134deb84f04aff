/*
 * token_list.h - the token ids of one prompt, shared by the threads that need them.
 *
 * Immutable once another thread can see it. Threads: any; the last kvw_token_list_put frees.
 */
#ifndef KVW_TOKEN_LIST_H
#define KVW_TOKEN_LIST_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct kvw_token_list {
	_Atomic uint32_t refs;
	uint32_t count;
	uint32_t ids[];
};

/* Makes a list with one reference, ids not set. NULL: out of memory. */
struct kvw_token_list *kvw_token_list_create(size_t count);
struct kvw_token_list *kvw_token_list_ref(struct kvw_token_list *list);
void kvw_token_list_put(struct kvw_token_list *list); /* NULL is allowed */

/* Bytes of memory that the list takes. */
size_t kvw_token_list_bytes(const struct kvw_token_list *list);

#endif
