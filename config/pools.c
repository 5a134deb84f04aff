/*
 * pools.c - the list `discovery.kubernetes.pools`.
 */
#include "config/pools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/entries_text.h"

#define POOLS "a list with an entry such as `- {selector: app=vllm, port: 8000}`"

/* --- reading --- */

/* Sets a key that was not given. Texts get their default; for other types the default is all
 * zeroes, as the member already is. */
static enum kvw_err set_default(const struct kvw_key *key, struct kvw_pool_config *pool)
{
	union kvw_value value;
	enum kvw_err err;

	if (!key->type->owned || key->type->item != NULL)
		return KVW_OK;
	err = kvw_text_copy(kvw_slice_of(key->def), &value);
	if (err == KVW_OK)
		memcpy((char *)pool + key->offset, &value.text, sizeof(value.text));
	return err;
}

/* An entry that is no mapping is reported, and left empty. */
static enum kvw_err walk_pool(struct kvw_build *build, size_t index, const struct kvw_node *node)
{
	struct kvw_pool_config *pool = &build->config->pools[index];
	struct kvw_met *met = build->pool_met[index];
	enum kvw_err err;
	bool whole;

	build->pool_places[index] = node->place;
	build->config->pool_count++;
	err = kvw_walk_entry(
		&build->walk, &kvw_pool_schema, KVW_POOLS, index, node, pool, met, &whole);
	for (size_t key = 0; key < KVW_POOL_KEY_COUNT && err == KVW_OK && whole; key++) {
		if (met[key].given)
			continue;
		err = set_default(&kvw_pool_keys[key], pool);
		met[key].valid = err == KVW_OK;
	}
	return err;
}

enum kvw_err kvw_pools_walk(struct kvw_walk *walk, const struct kvw_node *list)
{
	struct kvw_build *build = (struct kvw_build *)walk;
	const struct kvw_node *node = list->first;
	enum kvw_err err = KVW_OK;

	if (build->pools != NULL) {
		kvw_report_mistake(walk->report, list->key->place, KVW_POOLS,
			"found a second time, expected once: first given in line %zu",
			build->pools->key->place.line);
		return KVW_OK;
	}
	build->pools = list;
	if (list->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (list->kind != KVW_NODE_LIST || list->count == 0 || list->count > KVW_MAX_POOLS) {
		if (list->kind == KVW_NODE_LIST && list->count > 0)
			kvw_report_mistake(walk->report, list->place, KVW_POOLS,
				"found %zu entries, expected at most %d", list->count, KVW_MAX_POOLS);
		else
			kvw_report_mistake(walk->report, list->place, KVW_POOLS,
				"found %s, expected " POOLS,
				list->kind == KVW_NODE_LIST ? "an empty list" : kvw_given_kind(list));
		return KVW_OK;
	}
	build->config->pools = calloc(list->count, sizeof(struct kvw_pool_config));
	if (build->config->pools == NULL)
		return KVW_ENOMEM;
	for (size_t i = 0; node != NULL && err == KVW_OK; i++, node = node->next)
		err = walk_pool(build, i, node);
	return err;
}

void kvw_pools_release(struct kvw_config *config)
{
	for (size_t i = 0; i < config->pool_count; i++)
		kvw_keys_release(kvw_pool_keys, KVW_POOL_KEY_COUNT, &config->pools[i]);
	free(config->pools);
	config->pools = NULL;
	config->pool_count = 0;
}

void kvw_pool_shown(const struct kvw_config *config, size_t index, char out[KVW_POOL_SHOWN])
{
	const struct kvw_pool_config *pool = &config->pools[index];

	if (pool->name[0] != '\0' || pool->service[0] != '\0')
		snprintf(out, KVW_POOL_SHOWN, "%s", pool->name[0] != '\0' ? pool->name : pool->service);
	else
		snprintf(out, KVW_POOL_SHOWN, "%zu", index);
}

/* --- comparing, copying and writing --- */

bool kvw_pool_has(const struct kvw_pool_config *pool, size_t key)
{
	switch (key) {
	case KVW_POOL_KEY_tls:
		return pool->tls;
	case KVW_POOL_KEY_models:
		return pool->models.count > 0;
	default: {
		const char *text;

		memcpy(&text, (const char *)pool + kvw_pool_keys[key].offset, sizeof(text));
		return text != NULL && text[0] != '\0';
	}
	}
}

bool kvw_pools_same(const struct kvw_config *a, const struct kvw_config *b)
{
	if (a->pool_count != b->pool_count)
		return false;
	for (size_t i = 0; i < a->pool_count; i++)
		for (size_t key = 0; key < KVW_POOL_KEY_COUNT; key++)
			if (!kvw_key_same(&kvw_pool_keys[key], &a->pools[i], &b->pools[i]))
				return false;
	return true;
}

enum kvw_err kvw_pools_copy(const struct kvw_config *from, struct kvw_config *to)
{
	enum kvw_err err = KVW_OK;

	kvw_pools_release(to);
	if (from->pool_count == 0)
		return KVW_OK;
	to->pools = calloc(from->pool_count, sizeof(*to->pools));
	if (to->pools == NULL)
		return KVW_ENOMEM;
	to->pool_count = from->pool_count;
	for (size_t i = 0; i < from->pool_count; i++)
		for (size_t key = 0; key < KVW_POOL_KEY_COUNT && err == KVW_OK; key++)
			err = kvw_key_copy(&kvw_pool_keys[key], &from->pools[i], &to->pools[i]);
	if (err != KVW_OK)
		kvw_pools_release(to);
	return err;
}

static bool has(const void *pool, size_t key)
{
	return kvw_pool_has(pool, key);
}

enum kvw_err kvw_pools_text(const struct kvw_config *config, char **out)
{
	const struct kvw_entries pools = {kvw_pool_keys, KVW_POOL_KEY_COUNT, has, config->pools,
		sizeof(config->pools[0]), config->pool_count};

	return kvw_entries_text(&pools, out);
}
