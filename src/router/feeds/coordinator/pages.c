/*
 * pages.c - see pages.h.
 */
#include "feeds/coordinator/pages.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_fraction(struct kvw_page *page, double value)
{
	char text[40];

	(void)snprintf(text, sizeof(text), "%.17g", value);
	kvw_page_string(page, text);
}

static void put_argument(struct kvw_page *page, char kind, va_list *args)
{
	switch (kind) {
	case 's':
		kvw_page_json(page, kvw_slice_of(va_arg(*args, const char *)));
		break;
	case 'S':
		kvw_page_json(page, va_arg(*args, struct kvw_slice));
		break;
	case 'd':
		kvw_page_u64(page, va_arg(*args, unsigned));
		break;
	case 'u':
		kvw_page_u64(page, va_arg(*args, uint64_t));
		break;
	case 'f':
		put_fraction(page, va_arg(*args, double));
		break;
	case 'b':
		kvw_page_string(page, va_arg(*args, int) != 0 ? "true" : "false");
		break;
	default:
		kvw_page_string(page, va_arg(*args, const char *));
	}
}

void kvw_cd_put(struct kvw_page *page, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	while (*format != '\0') {
		size_t plain = strcspn(format, "'%");

		kvw_page_put(page, format, plain);
		format += plain;
		if (*format == '%')
			put_argument(page, *++format, &args);
		else if (*format != '\0')
			kvw_page_put(page, "\"", 1);
		format += *format != '\0';
	}
	va_end(args);
}

/* --- instances -------------------------------------------------------------------------------- */

void kvw_cd_page_instances(struct kvw_page *page, const struct kvw_cd *cd)
{
	const struct kvw_cd_instance *at;
	bool first = true;

	kvw_page_string(page, "{\"instances\":[");
	TAILQ_FOREACH(at, &cd->instances, entry)
	{
		if (!at->registered)
			continue;
		kvw_cd_put(page,
			"%r{'instance_id':%s,'ip':%s,'http_port':%d,'registration_time':%f,"
			"'metadata':%r,'p2p_advertised_url':%s,'mq_port':%d}",
			first ? "" : ",", at->id, at->ip, at->http_port, at->registered_s,
			at->metadata, at->p2p_url, at->mq_port);
		first = false;
	}
	kvw_page_string(page, "]}");
}

/* --- usage ------------------------------------------------------------------------------------ */

/* A line of a usage page. */
struct line {
	enum kvw_ce_tier tier;
	const char *backend;
	bool shared;
	uint64_t used, capacity; /* capacity 0: none is declared */
};

static int compare_lines(const void *a, const void *b)
{
	const struct line *left = a, *right = b;

	if (left->tier != right->tier)
		return left->tier < right->tier ? -1 : 1;
	return strcmp(left->backend, right->backend);
}

static void put_lines(struct kvw_page *page, struct line *lines, size_t count)
{
	qsort(lines, count, sizeof(*lines), compare_lines);
	kvw_page_string(page, "[");
	for (size_t i = 0; i < count; i++) {
		kvw_cd_put(page,
			"%r{'tier':%s,'backend':%s,'shared':%b,'used_bytes':%u,"
			"'capacity_bytes':%u,'usage_ratio':",
			i == 0 ? "" : ",", kvw_ce_tier_name(lines[i].tier), lines[i].backend,
			lines[i].shared, lines[i].used, lines[i].capacity);
		if (lines[i].capacity > 0)
			put_fraction(page, (double)lines[i].used / (double)lines[i].capacity);
		kvw_page_string(page, lines[i].capacity > 0 ? "}" : "null}");
	}
	kvw_page_string(page, "]");
}

static const struct kvw_cd_module *find_module(
	const struct kvw_cd_modules *modules, enum kvw_ce_tier tier, uint8_t backend)
{
	for (uint32_t i = 0; i < modules->count; i++)
		if (modules->items[i].tier == tier && modules->items[i].backend == backend)
			return &modules->items[i];
	return NULL;
}

static bool holds_bytes(const struct kvw_cd_instance *instance)
{
	for (uint32_t i = 0; i < instance->used.count; i++)
		if (instance->used.items[i].bytes > 0)
			return true;
	return false;
}

static bool has_usage(const struct kvw_cd_instance *instance)
{
	return instance->registered || instance->declares || holds_bytes(instance);
}

static void put_usage(
	struct kvw_page *page, const struct kvw_cd *cd, const struct kvw_cd_instance *instance)
{
	struct line lines[2 * KVW_CD_MODULES];
	size_t count = 0;

	for (uint32_t i = 0; i < instance->used.count; i++) {
		const struct kvw_cd_module *used = &instance->used.items[i];
		const struct kvw_cd_module *declared =
			find_module(&instance->declared, used->tier, used->backend);

		if (used->bytes > 0)
			lines[count++] = (struct line){used->tier, cd->backends[used->backend],
				false, used->bytes, declared == NULL ? 0 : declared->bytes};
	}
	for (uint32_t i = 0; i < instance->declared.count; i++) {
		const struct kvw_cd_module *declared = &instance->declared.items[i];
		const struct kvw_cd_module *used =
			find_module(&instance->used, declared->tier, declared->backend);

		if (!declared->shared && (used == NULL || used->bytes == 0))
			lines[count++] = (struct line){declared->tier,
				cd->backends[declared->backend], false, 0, declared->bytes};
	}
	kvw_cd_put(page, "{'instance_id':%s,'registered':%b,'declared_capacity':%b,'modules':",
		instance->id, instance->registered, instance->declared.count > 0);
	put_lines(page, lines, count);
	kvw_page_string(page, "}");
}

/* The capacity of a pool, if all servers that declare it agree; else 0. */
static uint64_t pool_capacity(const struct kvw_cd *cd, const struct kvw_cd_module *pool)
{
	const struct kvw_cd_instance *at;
	uint64_t capacity = 0;
	bool declared = false;

	TAILQ_FOREACH(at, &cd->instances, entry)
	{
		const struct kvw_cd_module *module =
			find_module(&at->declared, pool->tier, pool->backend);

		if (module == NULL || !module->shared)
			continue;
		if (declared && module->bytes != capacity)
			return 0;
		declared = true;
		capacity = module->bytes;
	}
	return capacity;
}

static int compare_ids(const void *a, const void *b)
{
	return strcmp((*(const struct kvw_cd_instance *const *)a)->id,
		(*(const struct kvw_cd_instance *const *)b)->id);
}

void kvw_cd_page_usage(struct kvw_page *page, const struct kvw_cd *cd)
{
	const struct kvw_cd_instance *at,
		**sorted = calloc(cd->instance_count + 1, sizeof(struct kvw_cd_instance *));
	struct line lines[KVW_CD_MODULES];
	size_t count = 0;

	if (sorted == NULL) {
		page->failed = true;
		return;
	}
	TAILQ_FOREACH(at, &cd->instances, entry)
	if (has_usage(at))
		sorted[count++] = at;
	qsort(sorted, count, sizeof(sorted[0]), compare_ids);
	kvw_page_string(page, "{\"instances\":[");
	for (size_t i = 0; i < count; i++) {
		kvw_page_string(page, i == 0 ? "" : ",");
		put_usage(page, cd, sorted[i]);
	}
	free(sorted);
	count = 0;
	for (uint32_t i = 0; i < cd->pools.count; i++)
		if (cd->pools.items[i].bytes > 0)
			lines[count++] = (struct line){cd->pools.items[i].tier,
				cd->backends[cd->pools.items[i].backend], true,
				cd->pools.items[i].bytes, pool_capacity(cd, &cd->pools.items[i])};
	kvw_page_string(page, "],\"shared_modules\":");
	put_lines(page, lines, count);
	kvw_page_string(page, "}");
}

bool kvw_cd_page_usage_of(struct kvw_page *page, const struct kvw_cd *cd, struct kvw_slice id)
{
	const struct kvw_cd_instance *instance = kvw_cd_find_instance(cd, id);

	if (instance == NULL || !has_usage(instance))
		return false;
	put_usage(page, cd, instance);
	return true;
}

/* --- objects ---------------------------------------------------------------------------------- */

void kvw_cd_page_key(struct kvw_page *page, const struct kvw_ce_key *key)
{
	static const char digits[] = "0123456789abcdef";

	kvw_page_string(page, "{\"chunk_hash_hex\":\"");
	for (size_t i = 0; i < key->hash.len; i++) {
		unsigned char byte = (unsigned char)key->hash.data[i];

		kvw_page_put(page, (const char[]){digits[byte >> 4], digits[byte & 15]}, 2);
	}
	kvw_cd_put(page, "','model_name':%S,'kv_rank':%d,'object_group_id':%d,'cache_salt':%S}",
		key->model, key->rank, key->group, key->salt);
}

static void put_placement(
	struct kvw_page *page, const struct kvw_cd *cd, const struct kvw_cd_placement *placement)
{
	kvw_cd_put(page,
		"{'instance_id':%s,'incarnation':%u,'tier':%s,'backend':%s,'size_bytes':%u,"
		"'shared':%b}",
		placement->instance->id, placement->incarnation, kvw_ce_tier_name(placement->tier),
		cd->backends[placement->backend], placement->size_bytes, placement->shared);
}

/* Order of a lookup's placements: instance, tier, backend. */
static int compare_placements(const void *left, const void *right, void *ctx)
{
	const struct kvw_cd_placement *a = *(const struct kvw_cd_placement *const *)left;
	const struct kvw_cd_placement *b = *(const struct kvw_cd_placement *const *)right;
	const struct kvw_cd *cd = ctx;
	int order = strcmp(a->instance->id, b->instance->id);

	if (order == 0 && a->tier != b->tier)
		order = a->tier < b->tier ? -1 : 1;
	if (order == 0)
		order = strcmp(cd->backends[a->backend], cd->backends[b->backend]);
	return order != 0 ? order : (a > b) - (a < b);
}

static void put_sorted(
	struct kvw_page *page, const struct kvw_cd *cd, const struct kvw_cd_object *object)
{
	const struct kvw_cd_placement *at, **sorted;
	size_t count = 0, i = 0;

	STAILQ_FOREACH(at, &object->placements, entry)
	count++;
	sorted = calloc(count, sizeof(struct kvw_cd_placement *));
	if (sorted == NULL) {
		page->failed = true;
		return;
	}
	STAILQ_FOREACH(at, &object->placements, entry)
	sorted[i++] = at;
	qsort_r(sorted, count, sizeof(sorted[0]), compare_placements, (void *)cd);
	for (i = 0; i < count; i++) {
		kvw_page_string(page, i == 0 ? "" : ",");
		put_placement(page, cd, sorted[i]);
	}
	free(sorted);
}

void kvw_cd_page_result(
	struct kvw_page *page, const struct kvw_cd *cd, const struct kvw_ce_key *key)
{
	const struct kvw_cd_object *object = kvw_cd_find(cd, key);
	const struct kvw_cd_binding *binding = kvw_cd_find_binding(cd, key->hash);

	kvw_page_string(page, "{\"key\":");
	kvw_cd_page_key(page, key);
	kvw_page_string(page, ",\"placements\":[");
	if (object != NULL)
		put_sorted(page, cd, object);
	kvw_page_string(page, "],\"token_ids\":[");
	for (uint32_t i = 0; binding != NULL && i < binding->token_count; i++) {
		kvw_page_string(page, i == 0 ? "" : ",");
		kvw_page_u64(page, binding->tokens[i]);
	}
	kvw_cd_put(page, "],'access_count':%u}", object == NULL ? 0 : object->accesses);
}

static bool passes(const struct kvw_cd *cd, const struct kvw_cd_placement *placement,
	const struct kvw_cd_filter *filter)
{
	return (filter->any_tier || placement->tier == filter->tier) &&
	       (filter->instance.len == 0 ||
		       kvw_slice_equal(kvw_slice_of(placement->instance->id), filter->instance)) &&
	       (filter->backend.len == 0 ||
		       kvw_slice_equal(
			       kvw_slice_of(cd->backends[placement->backend]), filter->backend));
}

/* One object of the page, with the placements that pass. */
static void put_row(struct kvw_page *page, const struct kvw_cd *cd,
	const struct kvw_cd_object *object, const struct kvw_cd_filter *filter)
{
	const struct kvw_ce_key key = kvw_cd_key_of(object);
	const struct kvw_cd_placement *at;
	bool first = true;

	kvw_page_string(page, "{\"key\":");
	kvw_cd_page_key(page, &key);
	kvw_page_string(page, ",\"placements\":[");
	STAILQ_FOREACH(at, &object->placements, entry)
	{
		if (!passes(cd, at, filter))
			continue;
		kvw_page_string(page, first ? "" : ",");
		put_placement(page, cd, at);
		first = false;
	}
	kvw_cd_put(page, "],'num_tokens':%d,'access_count':%u}", object->binding->token_count,
		object->accesses);
}

void kvw_cd_page_keys(
	struct kvw_page *page, const struct kvw_cd *cd, const struct kvw_cd_filter *filter)
{
	const struct kvw_cd_object *object;
	struct kvw_page rows = {0};
	uint64_t total = 0, written = 0;

	TAILQ_FOREACH(object, &cd->objects, entry)
	{
		const struct kvw_cd_placement *at;

		STAILQ_FOREACH(at, &object->placements, entry)
		if (passes(cd, at, filter))
			break;
		if (at == NULL)
			continue;
		if (total++ < filter->offset || written == filter->limit ||
			rows.len > KVW_CD_PAGE_MOST)
			continue;
		kvw_page_string(&rows, written++ == 0 ? "" : ",");
		put_row(&rows, cd, object, filter);
	}
	kvw_cd_put(page, "{'total':%u,'keys':[", total);
	kvw_page_put(page, rows.data, rows.len);
	kvw_page_string(page, "]}");
	page->failed |= rows.failed;
	free(rows.data);
}

/* --- figures ---------------------------------------------------------------------------------- */

void kvw_cd_page_stats(struct kvw_page *page, const struct kvw_cd *cd)
{
	const struct kvw_cd_instance *at;
	bool first = true;

	kvw_cd_put(page, "{'num_keys':%u,'num_placements':%u,'l1_keys_by_instance':{",
		(uint64_t)cd->object_count, cd->tier_count[KVW_CE_L1] + cd->tier_count[KVW_CE_L2]);
	TAILQ_FOREACH(at, &cd->instances, entry)
	{
		if (!at->reports)
			continue;
		kvw_cd_put(page, "%r%s:%u", first ? "" : ",", at->id, at->l1_objects);
		first = false;
	}
	/* The index for lookups of texts at any position, which LMCache has off by default. */
	kvw_cd_put(page,
		"},'blend':{'num_contents':0,'num_chunks':0,'num_claims':0,'num_namespaces':0,"
		"'table_size':1024},'l1_count':%u,'l1_size_bytes':%u,'l2_count':%u,"
		"'l2_size_bytes':%u}",
		cd->tier_count[KVW_CE_L1], cd->tier_bytes[KVW_CE_L1], cd->tier_count[KVW_CE_L2],
		cd->tier_bytes[KVW_CE_L2]);
}

static void put_gauge(struct kvw_page *page, const char *name, const char *help,
	const uint64_t values[KVW_CE_TIERS])
{
	kvw_cd_put(page, "# HELP %r %r\n# TYPE %r gauge\n", name, help, name);
	for (int tier = 0; tier < KVW_CE_TIERS; tier++)
		kvw_cd_put(page, "%r{tier=%s} %u\n", name,
			kvw_ce_tier_name((enum kvw_ce_tier)tier), values[tier]);
}

void kvw_cd_page_metrics(struct kvw_page *page, const struct kvw_cd *cd)
{
	put_gauge(page, "lmcache_coordinator_key_directory_placements",
		"Placements recorded in the key directory, by tier.", cd->tier_count);
	put_gauge(page, "lmcache_coordinator_key_directory_placement_bytes",
		"Reported bytes of the placements recorded in the key directory, by tier.",
		cd->tier_bytes);
}
