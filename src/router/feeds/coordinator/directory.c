/*
 * directory.c - see directory.h.
 *
 * Three chained hash tables: objects by their whole key, bindings by chunk hash, instances by id.
 * Their hash is seeded, since servers choose the keys. The first two grow by doubling, at once: a
 * million objects are moved in some 30 ms, and each doubling is paid for by as many stores.
 */
#include "feeds/coordinator/directory_parts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/log.h"

#define FIRST_ROOM 1024u

/* --- tables ----------------------------------------------------------------------------------- */

uint64_t kvw_cd_hash(const struct kvw_cd *cd, struct kvw_slice text)
{
	return XXH3_64bits_withSeed(text.data, text.len, cd->options.seed);
}

static uint64_t name_hash_of(const struct kvw_cd *cd, const struct kvw_ce_key *key)
{
	uint64_t hash = kvw_cd_hash(cd, key->hash);

	hash = XXH3_64bits_withSeed(key->model.data, key->model.len, hash);
	hash = XXH3_64bits_withSeed(key->salt.data, key->salt.len, hash);
	return XXH3_64bits_withSeed(&key->group, sizeof(key->group), hash);
}

static uint64_t key_hash_of(const struct kvw_ce_key *key, uint64_t name_hash)
{
	return XXH3_64bits_withSeed(&key->rank, sizeof(key->rank), name_hash);
}

uint64_t kvw_cd_key_hash(const struct kvw_cd *cd, const struct kvw_ce_key *key)
{
	return key_hash_of(key, name_hash_of(cd, key));
}

static struct kvw_cd_link **bucket_of(const struct kvw_cd_table *table, uint64_t hash)
{
	return &table->buckets[hash & (table->room - 1)];
}

static bool make_table(struct kvw_cd_table *table)
{
	table->room = FIRST_ROOM;
	table->buckets = calloc(table->room, sizeof(struct kvw_cd_link *));
	return table->buckets != NULL;
}

/* Doubles the table. Without memory the chains grow longer. */
static void grow(struct kvw_cd_table *table)
{
	struct kvw_cd_table grown = {.room = 2 * table->room, .count = table->count};

	grown.buckets = calloc(grown.room, sizeof(struct kvw_cd_link *));
	if (grown.buckets == NULL)
		return;
	for (size_t i = 0; i < table->room; i++)
		for (struct kvw_cd_link *at = table->buckets[i], *next; at != NULL; at = next) {
			struct kvw_cd_link **bucket = bucket_of(&grown, at->hash);

			next = at->next;
			at->next = *bucket;
			*bucket = at;
		}
	free(table->buckets);
	*table = grown;
}

static void add_link(struct kvw_cd_table *table, struct kvw_cd_link *link, uint64_t hash)
{
	struct kvw_cd_link **bucket = bucket_of(table, hash);

	*link = (struct kvw_cd_link){*bucket, hash};
	*bucket = link;
	if (++table->count > table->room)
		grow(table);
}

static void remove_link(struct kvw_cd_table *table, struct kvw_cd_link *link)
{
	struct kvw_cd_link **at = bucket_of(table, link->hash);

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	table->count--;
}

static struct kvw_cd_binding *find_binding(
	const struct kvw_cd *cd, struct kvw_slice text, uint64_t hash)
{
	struct kvw_cd_link *at = *bucket_of(&cd->by_hash, hash);

	for (; at != NULL; at = at->next) {
		struct kvw_cd_binding *binding = (struct kvw_cd_binding *)at;

		if (at->hash == hash && binding->len == text.len &&
			memcmp(binding->text, text.data, text.len) == 0)
			return binding;
	}
	return NULL;
}

static bool is_object(const struct kvw_cd_object *object, const struct kvw_ce_key *key)
{
	return object->rank == key->rank && object->group == key->group &&
	       object->model_len == key->model.len && object->salt_len == key->salt.len &&
	       object->binding->len == key->hash.len &&
	       memcmp(object->binding->text, key->hash.data, key->hash.len) == 0 &&
	       memcmp(object->text, key->model.data, key->model.len) == 0 &&
	       (key->salt.len == 0 || memcmp(object->text + object->model_len, key->salt.data,
					      key->salt.len) == 0);
}

static struct kvw_cd_object *find_object(
	const struct kvw_cd *cd, const struct kvw_ce_key *key, uint64_t hash)
{
	struct kvw_cd_link *at = *bucket_of(&cd->by_key, hash);

	while (at != NULL && (at->hash != hash || !is_object((struct kvw_cd_object *)at, key)))
		at = at->next;
	return (struct kvw_cd_object *)at;
}

struct kvw_cd_object *kvw_cd_find(const struct kvw_cd *cd, const struct kvw_ce_key *key)
{
	return find_object(cd, key, kvw_cd_key_hash(cd, key));
}

const struct kvw_cd_binding *kvw_cd_find_binding(const struct kvw_cd *cd, struct kvw_slice hash)
{
	return find_binding(cd, hash, kvw_cd_hash(cd, hash));
}

/* The index of a backend's name; negative: it has none. */
static int find_backend(const struct kvw_cd *cd, struct kvw_slice name)
{
	for (uint32_t i = 0; i < cd->backend_count; i++)
		if (kvw_slice_equal(kvw_slice_of(cd->backends[i]), name))
			return (int)i;
	return -1;
}

/* The same; a new name gets one. Negative: no room. */
static int take_backend(struct kvw_cd *cd, struct kvw_slice name)
{
	int index = find_backend(cd, name);
	char *copy;

	if (index >= 0)
		return index;
	if (cd->backend_count == KVW_CD_BACKENDS || memchr(name.data, '\0', name.len) != NULL)
		return -1;
	copy = malloc(name.len + 1);
	if (copy == NULL)
		return -1;
	memcpy(copy, name.data, name.len);
	copy[name.len] = '\0';
	cd->backends[cd->backend_count] = copy;
	return (int)cd->backend_count++;
}

/* --- compartments ----------------------------------------------------------------------------- */

/* Finds or adds a compartment. NULL: no room. */
static struct kvw_cd_module *module_of(
	struct kvw_cd_modules *modules, enum kvw_ce_tier tier, uint8_t backend)
{
	struct kvw_cd_module *items;

	for (uint32_t i = 0; i < modules->count; i++)
		if (modules->items[i].tier == tier && modules->items[i].backend == backend)
			return &modules->items[i];
	items = modules->count == KVW_CD_MODULES
			? NULL
			: realloc(modules->items, (modules->count + 1) * sizeof(*items));
	if (items == NULL)
		return NULL;
	modules->items = items;
	items[modules->count] = (struct kvw_cd_module){.tier = tier, .backend = backend};
	return &items[modules->count++];
}

static struct kvw_cd_modules *modules_of(
	struct kvw_cd *cd, const struct kvw_cd_placement *placement)
{
	return placement->shared ? &cd->pools : &placement->instance->used;
}

/* Adds a placement's bytes to its compartment and to its tier, or subtracts them. */
static void account(struct kvw_cd *cd, const struct kvw_cd_placement *placement, bool add)
{
	struct kvw_cd_module *module =
		module_of(modules_of(cd, placement), placement->tier, placement->backend);
	uint64_t bytes = add ? placement->size_bytes : -placement->size_bytes;

	assert(module != NULL); /* kvw_cd_entry makes it first */
	module->bytes += bytes;
	placement->object->salt->bytes[placement->tier] += bytes;
	cd->tier_bytes[placement->tier] += bytes;
	cd->tier_count[placement->tier] += add ? 1u : UINT64_MAX;
}

uint64_t kvw_cd_l1_capacity(const struct kvw_cd_instance *instance)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < instance->declared.count; i++)
		if (instance->declared.items[i].tier == KVW_CE_L1)
			sum += instance->declared.items[i].bytes;
	return sum;
}

/* --- objects ---------------------------------------------------------------------------------- */

static bool holds_l1(const struct kvw_cd_object *object, const struct kvw_cd_instance *instance)
{
	const struct kvw_cd_placement *at;

	STAILQ_FOREACH(at, &object->placements, entry)
	if (at->tier == KVW_CE_L1 && at->instance == instance)
		return true;
	return false;
}

static void report_l1(struct kvw_cd *cd, struct kvw_cd_instance *instance,
	struct kvw_cd_object *object, bool holds)
{
	if (cd->options.l1 != NULL)
		cd->options.l1(cd->options.ctx, instance, object, holds);
}

static bool is_private_l2(const struct kvw_cd_placement *placement)
{
	return placement->tier == KVW_CE_L2 && !placement->shared;
}

/* Enters the placement into the books of its instance, or takes it out of them. */
static void enlist(struct kvw_cd *cd, struct kvw_cd_placement *placement)
{
	struct kvw_cd_instance *instance = placement->instance;

	instance->placements++;
	instance->private_l2 += is_private_l2(placement);
	if (placement->tier != KVW_CE_L1)
		return;
	if (!holds_l1(placement->object, instance)) {
		instance->l1_objects++;
		report_l1(cd, instance, placement->object, true);
	}
	LIST_INSERT_HEAD(&instance->l1, placement, l1_entry);
}

/* The placement is not in its object's list any more. */
static void delist(struct kvw_cd *cd, struct kvw_cd_placement *placement)
{
	struct kvw_cd_instance *instance = placement->instance;

	instance->placements--;
	instance->private_l2 -= is_private_l2(placement);
	if (placement->tier != KVW_CE_L1)
		return;
	LIST_REMOVE(placement, l1_entry);
	if (!holds_l1(placement->object, instance)) {
		instance->l1_objects--;
		report_l1(cd, instance, placement->object, false);
	}
}

static uint64_t object_bytes(const struct kvw_cd_object *object)
{
	return sizeof(*object) + object->model_len + object->salt_len + 24;
}

static uint64_t binding_bytes(const struct kvw_cd_binding *binding)
{
	return sizeof(*binding) + binding->len + 24 + (uint64_t)binding->token_count * 4;
}

/* L2, which predicts nothing, leaves half of the memory to L1. */
static bool has_room(const struct kvw_cd *cd, enum kvw_ce_tier tier, uint64_t bytes)
{
	uint64_t most = tier == KVW_CE_L1 ? cd->options.bytes : cd->options.bytes / 2;

	return cd->bytes + bytes <= most;
}

static void free_object(struct kvw_cd *cd, struct kvw_cd_object *object)
{
	struct kvw_cd_binding *binding = object->binding;

	remove_link(&cd->by_key, &object->link);
	TAILQ_REMOVE(&cd->objects, object, entry);
	cd->object_count--;
	cd->bytes -= object_bytes(object);
	LIST_REMOVE(object, member);
	object->salt->objects--;
	kvw_cd_settle_salt(cd, object->salt);
	free(object);
	if (!LIST_EMPTY(&binding->objects))
		return;
	remove_link(&cd->by_hash, &binding->link);
	cd->bytes -= binding_bytes(binding);
	free(binding->tokens);
	free(binding);
}

void kvw_cd_remove_placement(struct kvw_cd *cd, struct kvw_cd_placement *placement)
{
	struct kvw_cd_object *object = placement->object;

	if (placement->tier == KVW_CE_L2)
		kvw_cd_l2_remove(cd, placement);
	STAILQ_REMOVE(&object->placements, placement, kvw_cd_placement, entry);
	account(cd, placement, false);
	delist(cd, placement);
	cd->bytes -= sizeof(*placement);
	free(placement);
	if (STAILQ_EMPTY(&object->placements))
		free_object(cd, object);
}

static struct kvw_cd_binding *take_binding(struct kvw_cd *cd, struct kvw_slice text)
{
	uint64_t hash = kvw_cd_hash(cd, text);
	struct kvw_cd_binding *binding = find_binding(cd, text, hash);

	if (binding != NULL)
		return binding;
	binding = calloc(1, sizeof(*binding) + text.len);
	if (binding == NULL)
		return NULL;
	binding->offset = -1;
	binding->len = (uint8_t)text.len;
	memcpy(binding->text, text.data, text.len);
	add_link(&cd->by_hash, &binding->link, hash);
	cd->bytes += binding_bytes(binding);
	return binding;
}

/* A new object; NULL: no memory. */
static struct kvw_cd_object *add_object(
	struct kvw_cd *cd, const struct kvw_ce_key *key, uint64_t name_hash, uint64_t hash)
{
	struct kvw_cd_object *object = calloc(1, sizeof(*object) + key->model.len + key->salt.len);
	struct kvw_cd_salt *salt = object == NULL ? NULL : kvw_cd_take_salt(cd, key->salt);
	struct kvw_cd_binding *binding = salt == NULL ? NULL : take_binding(cd, key->hash);

	if (binding == NULL) {
		if (salt != NULL)
			kvw_cd_settle_salt(cd, salt);
		free(object);
		return NULL;
	}
	object->salt = salt;
	salt->objects++;
	STAILQ_INIT(&object->placements);
	object->binding = binding;
	object->name_hash = name_hash;
	object->rank = key->rank;
	object->group = key->group;
	cd->group_most = key->group > cd->group_most ? key->group : cd->group_most;
	object->model_len = (uint16_t)key->model.len;
	object->salt_len = (uint16_t)key->salt.len;
	if (key->model.len > 0)
		memcpy(object->text, key->model.data, key->model.len);
	if (key->salt.len > 0)
		memcpy(object->text + key->model.len, key->salt.data, key->salt.len);
	add_link(&cd->by_key, &object->link, hash);
	LIST_INSERT_HEAD(&binding->objects, object, member);
	TAILQ_INSERT_TAIL(&cd->objects, object, entry);
	cd->object_count++;
	cd->bytes += object_bytes(object);
	return object;
}

bool kvw_cd_is_named(const struct kvw_cd_object *object)
{
	const struct kvw_cd_binding *binding = object->binding;

	return binding->token_count > 0 && binding->offset >= 0 &&
	       binding->offset % binding->token_count == 0;
}

/* Reports every L1 holder of the binding's objects. */
static void report_binding(struct kvw_cd *cd, const struct kvw_cd_binding *binding, bool holds)
{
	struct kvw_cd_object *object;

	LIST_FOREACH(object, &binding->objects, member)
	{
		const struct kvw_cd_placement *at, *earlier;

		STAILQ_FOREACH(at, &object->placements, entry)
		{
			if (at->tier != KVW_CE_L1)
				continue;
			STAILQ_FOREACH(earlier, &object->placements, entry) /* once each */
			if (earlier == at ||
				(earlier->tier == KVW_CE_L1 && earlier->instance == at->instance))
				break;
			if (earlier == at)
				report_l1(cd, at->instance, object, holds);
		}
	}
}

/* Sets the tokens of a chunk hash. */
static void bind_tokens(struct kvw_cd *cd, struct kvw_cd_binding *binding, enum kvw_ce_tier tier,
	const struct kvw_ce_entry *entry)
{
	size_t bytes = entry->token_count * sizeof(*binding->tokens);
	uint32_t *tokens;

	if (binding->token_count == entry->token_count && binding->offset == entry->offset &&
		memcmp(binding->tokens, entry->tokens, bytes) == 0)
		return;
	tokens = has_room(cd, tier, bytes) ? malloc(bytes) : NULL;
	if (tokens == NULL) {
		cd->counts.dropped++;
		return;
	}
	memcpy(tokens, entry->tokens, bytes);
	report_binding(cd, binding, false);
	cd->bytes -= binding_bytes(binding);
	free(binding->tokens);
	binding->tokens = tokens;
	binding->token_count = (uint32_t)entry->token_count;
	binding->offset = entry->offset;
	cd->bytes += binding_bytes(binding);
	report_binding(cd, binding, true);
}

/* --- batches ---------------------------------------------------------------------------------- */

void kvw_cd_fence(struct kvw_cd *cd, struct kvw_cd_instance *instance)
{
	while (!LIST_EMPTY(&instance->l1))
		kvw_cd_remove_placement(cd, LIST_FIRST(&instance->l1));
	instance->reports = false;
	instance->named = instance->unnamed = instance->hashed = 0;
	instance->incomplete = false;
}

void kvw_cd_forget_l2(struct kvw_cd *cd, struct kvw_cd_instance *instance)
{
	struct kvw_cd_object *object, *next;

	for (object = TAILQ_FIRST(&cd->objects); object != NULL && instance->private_l2 > 0;
		object = next) {
		struct kvw_cd_placement *at = STAILQ_FIRST(&object->placements), *after;

		next = TAILQ_NEXT(object, entry);
		for (; at != NULL; at = after) {
			after = STAILQ_NEXT(at, entry);
			if (at->instance == instance && is_private_l2(at))
				kvw_cd_remove_placement(cd, at); /* the last one with its object */
		}
	}
}

void kvw_cd_miss(struct kvw_cd_instance *instance)
{
	instance->incomplete = true;
	instance->stored_since = 0;
}

enum kvw_cd_verdict kvw_cd_batch(struct kvw_cd *cd, const struct kvw_ce_batch *batch,
	int64_t now_ns, struct kvw_cd_instance **out)
{
	struct kvw_cd_instance *instance = kvw_cd_take_instance(cd, batch->instance);

	if (instance == NULL)
		return KVW_CD_FULL;
	if (instance->has_cursor && batch->incarnation < instance->incarnation) {
		cd->counts.stale++;
		return KVW_CD_STALE;
	}
	if (instance->has_cursor && batch->incarnation == instance->incarnation &&
		batch->seq <= instance->seq) {
		cd->counts.duplicates++;
		return KVW_CD_DUPLICATE;
	}
	if (instance->has_cursor && batch->incarnation > instance->incarnation) {
		if ((instance->restarts & (instance->restarts + 1)) == 0) /* 1st, 2nd, 4th ... */
			kvw_info("coordinator",
				"instance=%s has restarted: its L1 is forgotten objects=%llu",
				instance->id, (unsigned long long)instance->l1_objects);
		instance->restarts++;
		cd->counts.restarts++;
		kvw_cd_fence(cd, instance);
		instance->has_cursor = false;
	}
	if (!instance->has_cursor) {
		instance->has_cursor = true;
		instance->gap = false;
		instance->incarnation = batch->incarnation;
		instance->seq = 0;
	}
	if (batch->seq > instance->seq + 1) {
		if (!instance->gap)
			kvw_warn("coordinator",
				"gap instance=%s incarnation=%llu expected=%llu got=%llu: what was "
				"stored or dropped meanwhile is unknown",
				instance->id, (unsigned long long)batch->incarnation,
				(unsigned long long)instance->seq + 1,
				(unsigned long long)batch->seq);
		instance->gap = true;
		instance->l2_known = false;
		cd->counts.gaps++;
		kvw_cd_miss(instance);
	}
	instance->seq = batch->seq;
	instance->heard_ns = now_ns;
	instance->reports = true;
	cd->salts.touched = NULL;
	cd->counts.batches[batch->type]++;
	*out = instance;
	return KVW_CD_APPLIED;
}

/* One declaration comes as a batch for each compartment; all have one revision. */
static void declare(
	struct kvw_cd *cd, struct kvw_cd_instance *instance, const struct kvw_ce_batch *batch)
{
	int backend = take_backend(cd, batch->backend);
	struct kvw_cd_module *module;
	bool newer = batch->incarnation > instance->declared_incarnation ||
		     (batch->incarnation == instance->declared_incarnation &&
			     batch->capacity_revision > instance->declared_revision);

	if (instance->declares && !newer &&
		(batch->incarnation != instance->declared_incarnation ||
			batch->capacity_revision != instance->declared_revision))
		return;
	if (!instance->declares || newer)
		instance->declared.count = 0;
	instance->declares = true;
	instance->declared_incarnation = batch->incarnation;
	instance->declared_revision = batch->capacity_revision;
	module = backend < 0 ? NULL : module_of(&instance->declared, batch->tier, (uint8_t)backend);
	if (module == NULL) {
		cd->counts.dropped++;
		return;
	}
	module->bytes = batch->capacity_bytes;
	module->shared = batch->shared;
}

static struct kvw_cd_placement *find_placement(const struct kvw_cd_object *object,
	const struct kvw_cd_instance *instance, const struct kvw_ce_batch *batch, int backend)
{
	struct kvw_cd_placement *at;

	STAILQ_FOREACH(at, &object->placements, entry)
	if (at->shared == batch->shared && (batch->shared || at->instance == instance) &&
		at->tier == batch->tier && at->backend == backend)
		return at;
	return NULL;
}

/* A known placement is stored again, with a new size, perhaps by another instance. */
static void store_again(struct kvw_cd *cd, struct kvw_cd_placement *placement,
	struct kvw_cd_instance *instance, const struct kvw_ce_batch *batch, uint64_t size_bytes)
{
	struct kvw_cd_object *object = placement->object;

	account(cd, placement, false);
	placement->size_bytes = size_bytes;
	placement->incarnation = batch->incarnation;
	account(cd, placement, true);
	if (placement->instance != instance) {
		struct kvw_cd_instance *before = placement->instance;

		STAILQ_REMOVE(&object->placements, placement, kvw_cd_placement, entry);
		delist(cd, placement);
		placement->instance = instance;
		enlist(cd, placement);
		STAILQ_INSERT_TAIL(&object->placements, placement, entry);
		kvw_cd_settle(cd, before);
	}
}

static bool add_placement(struct kvw_cd *cd, struct kvw_cd_object *object,
	struct kvw_cd_instance *instance, const struct kvw_ce_batch *batch, uint64_t size_bytes)
{
	int backend = take_backend(cd, batch->backend);
	struct kvw_cd_placement *placement = backend < 0 ? NULL : malloc(sizeof(*placement));

	if (placement == NULL)
		return false;
	*placement = (struct kvw_cd_placement){.object = object,
		.instance = instance,
		.incarnation = batch->incarnation,
		.size_bytes = size_bytes,
		.tier = batch->tier,
		.backend = (uint8_t)backend,
		.shared = batch->shared};
	if (module_of(modules_of(cd, placement), placement->tier, placement->backend) == NULL ||
		(batch->tier == KVW_CE_L2 && !kvw_cd_l2_add(cd, object))) {
		free(placement);
		return false;
	}
	account(cd, placement, true);
	enlist(cd, placement);
	STAILQ_INSERT_TAIL(&object->placements, placement, entry);
	cd->bytes += sizeof(*placement);
	return true;
}

void kvw_cd_store(struct kvw_cd *cd, struct kvw_cd_instance *instance,
	const struct kvw_ce_batch *batch, const struct kvw_ce_entry *entry)
{
	uint64_t name_hash = name_hash_of(cd, &entry->key);
	uint64_t hash = key_hash_of(&entry->key, name_hash);
	struct kvw_cd_object *object = find_object(cd, &entry->key, hash);
	struct kvw_cd_placement *placement = NULL;
	const uint64_t room = sizeof(*placement) + sizeof(struct kvw_cd_l2);
	bool is_new;

	if (object != NULL)
		placement =
			find_placement(object, instance, batch, find_backend(cd, batch->backend));
	is_new = placement == NULL;
	if (batch->tier == KVW_CE_L2 && object != NULL)
		kvw_cd_l2_touch(cd, object, true);
	if (object == NULL &&
		has_room(cd, batch->tier,
			room + sizeof(*object) + sizeof(struct kvw_cd_binding) + 48 +
				entry->key.hash.len + entry->key.model.len + entry->key.salt.len))
		object = add_object(cd, &entry->key, name_hash, hash);
	if (object != NULL && entry->token_count > 0) /* before a holder is reported by name */
		bind_tokens(cd, object->binding, batch->tier, entry);
	if (!is_new) {
		store_again(cd, placement, instance, batch, entry->size_bytes);
	} else if (object == NULL || !has_room(cd, batch->tier, room) ||
		   !add_placement(cd, object, instance, batch, entry->size_bytes)) {
		cd->counts.dropped++;
		if (batch->tier == KVW_CE_L1)
			kvw_cd_miss(instance);
		if (object != NULL && STAILQ_EMPTY(&object->placements))
			free_object(cd, object);
		return;
	}
	if (batch->tier != KVW_CE_L1)
		return;
	if (cd->options.can_name == NULL ? kvw_cd_is_named(object)
					 : cd->options.can_name(cd->options.ctx, object)) {
		instance->named++;
		instance->hashed += object->binding->token_count == 0;
	} else {
		instance->unnamed++;
		cd->counts.unnamed++;
	}
	if (is_new) /* a repeated store replaces nothing */
		instance->stored_since += entry->size_bytes;
}

void kvw_cd_entry(struct kvw_cd *cd, struct kvw_cd_instance *instance,
	const struct kvw_ce_batch *batch, const struct kvw_ce_entry *entry)
{
	struct kvw_cd_placement *placement;
	struct kvw_cd_object *object;

	cd->counts.entries[batch->type]++;
	if (batch->type == KVW_CE_STORE) {
		kvw_cd_store(cd, instance, batch, entry);
		return;
	}
	object = kvw_cd_find(cd, &entry->key);
	if (object == NULL)
		return;
	if (batch->type == KVW_CE_ACCESS) {
		object->accesses++;
		if (batch->tier == KVW_CE_L2)
			kvw_cd_l2_touch(cd, object, false);
		return;
	}
	placement = find_placement(object, instance, batch, find_backend(cd, batch->backend));
	if (placement != NULL) {
		struct kvw_cd_instance *reporter = placement->instance;

		kvw_cd_remove_placement(cd, placement);
		if (reporter != instance)
			kvw_cd_settle(cd, reporter);
	}
}

void kvw_cd_batch_end(
	struct kvw_cd *cd, struct kvw_cd_instance *instance, const struct kvw_ce_batch *batch)
{
	uint64_t capacity = kvw_cd_l1_capacity(instance);

	if (batch->type == KVW_CE_CONFIG)
		declare(cd, instance, batch);
	if (instance->incomplete && capacity > 0 && instance->stored_since >= capacity) {
		instance->incomplete = false;
		kvw_info("coordinator",
			"instance=%s has replaced its L1 since reports were lost: it is known "
			"again",
			instance->id);
	}
}

/* --- reading ---------------------------------------------------------------------------------- */

struct kvw_ce_key kvw_cd_key_of(const struct kvw_cd_object *object)
{
	return (struct kvw_ce_key){
		.hash = {object->binding->text, object->binding->len},
		.model = {object->text, object->model_len},
		.salt = {object->text + object->model_len, object->salt_len},
		.rank = object->rank,
		.group = object->group,
	};
}

void kvw_cd_each_l1(const struct kvw_cd *cd, struct kvw_cd_instance *instance, bool holds)
{
	const struct kvw_cd_placement *placement, *at;

	LIST_FOREACH(placement, &instance->l1, l1_entry)
	{
		STAILQ_FOREACH(at, &placement->object->placements, entry) /* once for an object */
		if (at == placement || (at->tier == KVW_CE_L1 && at->instance == instance))
			break;
		if (at == placement && cd->options.l1 != NULL)
			cd->options.l1(cd->options.ctx, instance, placement->object, holds);
	}
}

/* --- life ------------------------------------------------------------------------------------- */

enum kvw_err kvw_cd_create(const struct kvw_cd_options *options, struct kvw_cd **out)
{
	struct kvw_cd *cd = calloc(1, sizeof(*cd));

	if (cd == NULL)
		return KVW_ENOMEM;
	cd->options = *options;
	TAILQ_INIT(&cd->objects);
	TAILQ_INIT(&cd->instances);
	TAILQ_INIT(&cd->salts.list);
	TAILQ_INIT(&cd->salts.all);
	TAILQ_INIT(&cd->salts.asked);
	TAILQ_INIT(&cd->pins.list);
	if (!make_table(&cd->by_key) || !make_table(&cd->by_hash)) {
		kvw_cd_destroy(cd);
		return KVW_ENOMEM;
	}
	*out = cd;
	return KVW_OK;
}

void kvw_cd_destroy(struct kvw_cd *cd)
{
	if (cd == NULL)
		return;
	cd->options.l1 = NULL;
	while (!TAILQ_EMPTY(&cd->objects))
		kvw_cd_remove_placement(cd, STAILQ_FIRST(&TAILQ_FIRST(&cd->objects)->placements));
	while (!TAILQ_EMPTY(&cd->instances))
		kvw_cd_free_instance(cd, TAILQ_FIRST(&cd->instances));
	kvw_cd_free_salts(cd);
	kvw_cd_free_pins(cd);
	for (uint32_t i = 0; i < cd->backend_count; i++)
		free(cd->backends[i]);
	free(cd->pools.items);
	free(cd->by_key.buckets);
	free(cd->by_hash.buckets);
	free(cd);
}
