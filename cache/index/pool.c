/*
 * pool.c - stores records of one size in chained buckets, whose number is doubled when there are
 * more records than buckets. Without memory for more buckets, chains only get longer.
 */
#include "index/pool.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BUCKETS 64

static struct kvt_pool_node *node_at(const struct kvt_pool *p, uint32_t number)
{
	return kvt_pool_at(p, number);
}

enum kvt_status kvt_pool_init(struct kvt_pool *p, uint32_t most, uint32_t size)
{
	*p = (struct kvt_pool){.size = size, .most = most, .free = KVT_NO_ENTRY};
	return kvt_region_init(&p->memory, (size_t)most * size);
}

void kvt_pool_finish(struct kvt_pool *p)
{
	free(p->heads);
	kvt_region_finish(&p->memory);
	*p = (struct kvt_pool){.free = KVT_NO_ENTRY};
}

uint32_t kvt_pool_first(const struct kvt_pool *p, uint32_t hash)
{
	uint32_t number = p->buckets == 0 ? KVT_NO_ENTRY : p->heads[hash & (p->buckets - 1)];

	while (number != KVT_NO_ENTRY && node_at(p, number)->hash != hash)
		number = node_at(p, number)->next;
	return number;
}

uint32_t kvt_pool_next(const struct kvt_pool *p, uint32_t number)
{
	uint32_t hash = node_at(p, number)->hash;

	do {
		number = node_at(p, number)->next;
	} while (number != KVT_NO_ENTRY && node_at(p, number)->hash != hash);
	return number;
}

static enum kvt_status more_buckets(struct kvt_pool *p)
{
	uint32_t buckets = p->buckets == 0 ? FIRST_BUCKETS : p->buckets * 2;
	uint32_t *heads = malloc(buckets * sizeof(*heads));

	if (heads == NULL)
		return p->buckets == 0 ? KVT_ENOMEM : KVT_OK;
	memset(heads, 0xff, buckets * sizeof(*heads)); /* KVT_NO_ENTRY */
	for (uint32_t i = 0; i < p->buckets; i++) {
		uint32_t number = p->heads[i];

		while (number != KVT_NO_ENTRY) {
			struct kvt_pool_node *node = node_at(p, number);
			uint32_t next = node->next, *head = &heads[node->hash & (buckets - 1)];

			node->next = *head;
			*head = number;
			number = next;
		}
	}
	free(p->heads);
	p->heads = heads;
	p->buckets = buckets;
	return KVT_OK;
}

enum kvt_status kvt_pool_add(struct kvt_pool *p, uint32_t hash, uint32_t *number)
{
	uint32_t got = p->free != KVT_NO_ENTRY ? p->free : p->fresh;
	struct kvt_pool_node *node;
	uint32_t *head;

	if (got >= p->most)
		return KVT_FULL;
	if (p->count >= p->buckets && p->buckets < UINT32_MAX / 4 && more_buckets(p) != KVT_OK)
		return KVT_ENOMEM;
	if (kvt_region_grow(&p->memory, ((size_t)got + 1) * p->size) != KVT_OK)
		return KVT_ENOMEM;
	node = node_at(p, got);
	if (p->free != KVT_NO_ENTRY)
		p->free = node->next;
	else
		p->fresh++;
	head = &p->heads[hash & (p->buckets - 1)];
	memset(node, 0, p->size);
	*node = (struct kvt_pool_node){.hash = hash, .next = *head};
	*head = got;
	p->count++;
	*number = got;
	return KVT_OK;
}

void kvt_pool_remove(struct kvt_pool *p, uint32_t number)
{
	struct kvt_pool_node *node = node_at(p, number);
	uint32_t *link = &p->heads[node->hash & (p->buckets - 1)];

	while (*link != number)
		link = &node_at(p, *link)->next;
	*link = node->next;
	node->next = p->free;
	p->free = number;
	p->count--;
}

uint64_t kvt_pool_bytes(const struct kvt_pool *p)
{
	return p->memory.usable + (uint64_t)p->buckets * sizeof(*p->heads);
}
