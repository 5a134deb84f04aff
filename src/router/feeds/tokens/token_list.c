/*
 * token_list.c - lists of token ids with a count of references.
 */
#include "feeds/tokens/token_list.h"

#include <stdlib.h>

struct kvw_token_list *kvw_token_list_create(size_t count)
{
	struct kvw_token_list *list;

	if (count > UINT32_MAX / sizeof(list->ids[0]))
		return NULL;
	list = malloc(sizeof(*list) + count * sizeof(list->ids[0]));
	if (list == NULL)
		return NULL;
	atomic_init(&list->refs, 1);
	list->count = (uint32_t)count;
	return list;
}

struct kvw_token_list *kvw_token_list_ref(struct kvw_token_list *list)
{
	atomic_fetch_add_explicit(&list->refs, 1, memory_order_relaxed);
	return list;
}

void kvw_token_list_put(struct kvw_token_list *list)
{
	/* Release, so that this thread's reads come before the free; acquire, so that other
	 * threads' reads do, too. */
	if (list != NULL && atomic_fetch_sub_explicit(&list->refs, 1, memory_order_acq_rel) == 1)
		free(list);
}

size_t kvw_token_list_bytes(const struct kvw_token_list *list)
{
	return sizeof(*list) + list->count * sizeof(list->ids[0]);
}
