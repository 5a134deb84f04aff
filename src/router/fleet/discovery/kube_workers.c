/*
 * kube_workers.c - makes the list of workers from the tables of all pools; kube_workers.h has the
 * rules.
 */
#include "fleet/discovery/kube_workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "fleet/discovery/worker_list.h"
#include "kvway/route.h"

#define URL_ROOM 72 /* https://[IPV6]:PORT */

/* One endpoint of one object. Borrows from the tables. */
struct found {
	size_t pool;
	const struct kvw_kube_object *object;
	const struct kvw_kube_endpoint *endpoint;
	char url[URL_ROOM];
};

static int compare_numbers(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* Orders endpoints by pod, and those of a pod by preference of their address. */
static int by_pod(const void *left, const void *right)
{
	const struct found *a = left, *b = right;
	int order = strcmp(a->endpoint->identity, b->endpoint->identity);

	if (order == 0)
		order = compare_numbers(a->pool, b->pool);
	if (order == 0)
		order = compare_numbers(a->endpoint->port, b->endpoint->port);
	if (order == 0)
		order = (int)a->endpoint->v6 - (int)b->endpoint->v6;
	/* the pod's address may have changed: the newer object has the present one */
	if (order == 0)
		order = compare_numbers(b->object->version, a->object->version);
	return order != 0 ? order : strcmp(a->url, b->url);
}

static int by_url(const void *left, const void *right)
{
	const struct found *a = left, *b = right;
	int order = strcmp(a->url, b->url);

	if (order == 0)
		order = compare_numbers(a->pool, b->pool);
	if (order == 0)
		order = compare_numbers(b->object->version, a->object->version);
	return order != 0 ? order : strcmp(a->endpoint->identity, b->endpoint->identity);
}

static bool same_pod(const struct found *a, const struct found *b)
{
	return a->endpoint->identity[0] != '\0' && a->pool == b->pool &&
	       a->endpoint->port == b->endpoint->port &&
	       strcmp(a->endpoint->identity, b->endpoint->identity) == 0;
}

static bool same_url(const struct found *a, const struct found *b)
{
	return strcmp(a->url, b->url) == 0;
}

/* Sorts the items, and keeps the first of each run of equal ones. */
static size_t first_ones(struct found *items, size_t count,
	int (*order)(const void *, const void *),
	bool (*same)(const struct found *, const struct found *))
{
	size_t kept = 0;

	if (count > 0)
		qsort(items, count, sizeof(*items), order);
	for (size_t i = 0; i < count; i++)
		if (kept == 0 || !same(&items[kept - 1], &items[i]))
			items[kept++] = items[i];
	return kept;
}

static size_t endpoints_of(const struct kvw_kube_table *table)
{
	size_t count = 0;

	for (size_t i = 0; i < table->count; i++)
		count += table->items[i].object.endpoint_count;
	return count;
}

static void write_url(const struct kvw_pool_config *pool, struct found *found)
{
	const struct kvw_kube_endpoint *e = found->endpoint;

	snprintf(found->url, sizeof(found->url), "%s://%s%s%s:%u", pool->tls ? "https" : "http",
		e->v6 ? "[" : "", e->address, e->v6 ? "]" : "", e->port);
}

static enum kvw_err collect_rows(const struct kvw_config *config,
	const struct kvw_kube_table *const *tables, struct found **out, size_t *out_count)
{
	size_t room = 1, count = 0;
	struct found *items;

	for (size_t p = 0; p < config->pool_count; p++)
		room += endpoints_of(tables[p]);
	items = malloc(room * sizeof(*items));
	if (items == NULL)
		return KVW_ENOMEM;
	for (size_t p = 0; p < config->pool_count; p++)
		for (size_t i = 0; i < tables[p]->count; i++) {
			const struct kvw_kube_object *object = &tables[p]->items[i].object;

			for (size_t k = 0; k < object->endpoint_count; k++) {
				struct found *found = &items[count++];

				found->pool = p;
				found->object = object;
				found->endpoint = &object->endpoints[k];
				write_url(&config->pools[p], found);
			}
		}
	count = first_ones(items, count, by_pod, same_pod);
	*out_count = first_ones(items, count, by_url, same_url);
	*out = items;
	return KVW_OK;
}

static const struct kvw_strings *models_of(
	const struct kvw_config *config, const struct found *found)
{
	return found->object->models.count > 0 ? &found->object->models
					       : &config->pools[found->pool].models;
}

static enum kvw_role role_of(const struct kvw_config *config, const struct found *found)
{
	enum kvw_role role = config->pools[found->pool].role;

	return role != KVW_ROLE_BOTH ? role : found->object->role;
}

static uint64_t mark_of(const struct kvw_config *config, const struct found *items, size_t count)
{
	uint64_t mark = count + 1;

	for (size_t i = 0; i < count; i++) {
		const struct kvw_strings *models = models_of(config, &items[i]);
		const char *identity = items[i].endpoint->identity;

		mark = XXH3_64bits_withSeed(items[i].url, strlen(items[i].url) + 1, mark);
		mark = XXH3_64bits_withSeed(identity, strlen(identity) + 1, mark);
		mark = XXH3_64bits_withSeed(
			&items[i].object->weight, sizeof(items[i].object->weight), mark);
		for (size_t k = 0; k < models->count; k++)
			mark = XXH3_64bits_withSeed(
				models->items[k], strlen(models->items[k]) + 1, mark);
		enum kvw_role role = role_of(config, &items[i]);

		mark = XXH3_64bits_withSeed(&role, sizeof(role), mark);
		mark = XXH3_64bits_withSeed(&items[i].pool, sizeof(items[i].pool), mark);
	}
	return mark;
}

static enum kvw_err set_text(char **member, const char *text)
{
	char *copy = strdup(text);

	if (copy == NULL)
		return KVW_ENOMEM;
	free(*member);
	*member = copy;
	return KVW_OK;
}

static enum kvw_err set_models(struct kvw_strings *member, const struct kvw_strings *models)
{
	if (models->count == 0)
		return KVW_OK;
	member->items = calloc(models->count, sizeof(*member->items));
	if (member->items == NULL)
		return KVW_ENOMEM;
	for (size_t i = 0; i < models->count; i++) {
		member->items[i] = strdup(models->items[i]);
		if (member->items[i] == NULL)
			return KVW_ENOMEM;
		member->count++;
	}
	return KVW_OK;
}

/* Adds the settings of its pool and pod to a worker's URL and defaults. */
static enum kvw_err complete(const struct kvw_config *config, const struct found *found,
	struct kvw_worker_config *worker)
{
	enum kvw_err err = set_text(&worker->identity, found->endpoint->identity);

	if (err == KVW_OK)
		err = set_text(&worker->api_key, config->pools[found->pool].api_key);
	if (err == KVW_OK)
		err = set_text(&worker->group, config->pools[found->pool].group);
	if (err == KVW_OK)
		err = set_models(&worker->models, models_of(config, found));
	worker->role = role_of(config, found);
	if (found->object->weight > 0)
		worker->weight = found->object->weight;
	return err;
}

static enum kvw_err make_list(const struct kvw_config *config, const struct found *items,
	size_t count, struct kvw_config **out)
{
	const char *urls[KVW_MAX_WORKERS] = {NULL};
	struct kvw_config *list = NULL;
	enum kvw_err err;

	for (size_t i = 0; i < count; i++)
		urls[i] = items[i].url;
	err = kvw_worker_list_of_urls(urls, count, &list);
	for (size_t i = 0; i < count && err == KVW_OK; i++)
		err = complete(config, &items[i], &list->workers[i]);
	if (err == KVW_OK)
		*out = list;
	else
		kvw_config_destroy(list);
	return err;
}

enum kvw_err kvw_kube_workers(const struct kvw_config *config,
	const struct kvw_kube_table *const *tables, size_t *count, uint64_t *mark,
	struct kvw_config **out)
{
	struct found *items;
	enum kvw_err err = collect_rows(config, tables, &items, count);

	if (err != KVW_OK)
		return err;
	*mark = mark_of(config, items, *count);
	if (*count <= KVW_MAX_WORKERS)
		err = make_list(config, items, *count, out);
	else
		*out = NULL;
	free(items);
	return err;
}
