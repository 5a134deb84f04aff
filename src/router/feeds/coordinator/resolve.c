/*
 * resolve.c - token ids as keys of the directory, as LMCache's coordinator resolves them.
 *
 * Callers name contents by the tokens of a prompt from its beginning. Its complete chunks have the
 * hashes of lmcache_chunks.h; the size of a chunk is configured, since a prompt does not have it.
 */
#include <stdlib.h>
#include <string.h>

#include "feeds/coordinator/request.h"
#include "wire/lmcache_chunks.h"

#define IDS_MOST    1000000u /* token ids of a request; LMCache's limit */
#define SALT_MOST   128u     /* characters; LMCache's limit */
#define WORLD_MOST  255u     /* ranks: a byte of LMCache's kv_rank */
#define GROUPS_MOST 64u      /* object groups of a chunk, beyond the first */

static bool is_salt(const char *salt, size_t len)
{
	return strlen(salt) == len && len <= SALT_MOST && strpbrk(salt, "@/\\") == NULL;
}

/* The reason why the ids are not token ids; NULL: they are. */
static const char *ids_fault(const json_t *ids)
{
	size_t count = json_array_size(ids);

	if (ids != NULL && !json_is_array(ids))
		return "Input should be a valid list";
	for (size_t i = 0; i < count; i++) {
		const json_t *id = json_array_get(ids, i);

		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
			json_integer_value(id) > UINT32_MAX)
			return "Input should be token ids: integers from 0 to 4294967295";
	}
	return NULL;
}

bool kvw_cr_read_tokens(struct kvw_conn *conn, struct kvw_coordinator *coordinator,
	const json_t *object, bool needed, struct kvw_cr_tokens *tokens)
{
	const json_t *model = json_object_get(object, "model_name");
	const json_t *world = json_object_get(object, "world_size");
	const json_t *salt = json_object_get(object, "cache_salt");
	const char *fault;

	*tokens = (struct kvw_cr_tokens){.ids = json_object_get(object, "token_ids"),
		.model = {json_string_value(model), json_string_length(model)},
		.salt = KVW_SLICE(""),
		.world = 1};
	if (!json_is_string(model) || (!needed && tokens->model.len == 0) ||
		tokens->model.len > KVW_CE_MODEL_MOST) {
		kvw_cr_refuse_value(conn, coordinator, "body", "model_name",
			model == NULL ? "Field required" : "Input should be a valid string");
		return false;
	}
	if ((world == NULL && needed) ||
		(world != NULL && (!json_is_integer(world) || json_integer_value(world) < 1 ||
					  json_integer_value(world) > WORLD_MOST))) {
		kvw_cr_refuse_value(conn, coordinator, "body", "world_size",
			world == NULL ? "Field required" : "Input should be from 1 to 255");
		return false;
	}
	tokens->world = world == NULL ? 1 : (uint32_t)json_integer_value(world);
	fault = ids_fault(tokens->ids);
	if (fault != NULL || (salt != NULL && !json_is_string(salt))) {
		kvw_cr_refuse_value(conn, coordinator, "body",
			fault != NULL ? "token_ids" : "cache_salt",
			fault != NULL ? fault : "Input should be a valid string");
		return false;
	}
	if (salt != NULL)
		tokens->salt =
			(struct kvw_slice){json_string_value(salt), json_string_length(salt)};
	if (json_array_size(tokens->ids) > IDS_MOST ||
		memchr(tokens->model.data, '@', tokens->model.len) != NULL ||
		!is_salt(tokens->salt.data, tokens->salt.len)) {
		kvw_coordinator_error(conn, coordinator, 400, "",
			"at most 1000000 token_ids, no '@' in model_name, and a cache_salt of at "
			"most 128 characters without '@', '/' and '\\'");
		return false;
	}
	tokens->chunks = json_array_size(tokens->ids) /
			 (size_t)coordinator->deps->config->kvaware_lmcache_chunk;
	return true;
}

static int compare_groups(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return (left > right) - (left < right);
}

/* Calls fn with the key in the other groups in which the directory has it. */
static bool each_group(
	const struct kvw_cd *cd, struct kvw_ce_key *key, kvw_cr_key_fn *fn, void *ctx)
{
	const struct kvw_cd_binding *binding = kvw_cd_find_binding(cd, key->hash);
	const struct kvw_cd_object *at;
	uint32_t groups[GROUPS_MOST];
	size_t count = 0;
	bool more = true;

	if (binding == NULL)
		return true;
	LIST_FOREACH(at, &binding->objects, member)
	{
		key->group = at->group;
		if (at->group != 0 && count < GROUPS_MOST && kvw_cd_find(cd, key) == at)
			groups[count++] = at->group;
	}
	qsort(groups, count, sizeof(groups[0]), compare_groups);
	for (size_t i = 0; i < count && more; i++) {
		key->group = groups[i];
		more = fn(ctx, key);
	}
	key->group = 0;
	return more;
}

void kvw_cr_each_key(struct kvw_coordinator *coordinator, const struct kvw_cr_tokens *tokens,
	bool groups, kvw_cr_key_fn *fn, void *ctx)
{
	size_t size = (size_t)coordinator->deps->config->kvaware_lmcache_chunk, at = 0;
	uint32_t ids[KVW_CE_TOKENS_MOST];
	struct kvw_lmcache_chunks chunks;
	bool more = true;

	kvw_lmcache_chunks_start(&chunks);
	for (size_t chunk = 0; chunk < tokens->chunks && more; chunk++) {
		for (size_t i = 0; i < size; i++)
			ids[i] = (uint32_t)json_integer_value(json_array_get(tokens->ids, at++));
		kvw_lmcache_chunks_next(&chunks, ids, size);
		for (uint32_t rank = 0; rank < tokens->world && more; rank++) {
			struct kvw_ce_key key = {
				.hash = {(const char *)chunks.hash, sizeof(chunks.hash)},
				.model = tokens->model,
				.salt = tokens->salt,
				.rank = tokens->world << 24 | rank << 16 | tokens->world << 8 |
					rank};

			more = fn(ctx, &key) &&
			       (!groups || each_group(coordinator->cd, &key, fn, ctx));
		}
	}
}
