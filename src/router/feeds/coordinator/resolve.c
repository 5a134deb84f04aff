/*
 * resolve.c - token ids as keys of the directory, as LMCache's coordinator resolves them.
 *
 * Callers name contents by the tokens of a prompt from its beginning. Its complete chunks have the
 * hashes of lmcache_chunks.h; the size of a chunk is configured, since a prompt does not have it.
 */
#include <string.h>

#include "feeds/coordinator/request.h"
#include "wire/lmcache_chunks.h"

#define IDS_MOST    1000000u /* token ids of a request; LMCache's limit */
#define WORLD_MOST  255u     /* ranks: a byte of LMCache's kv_rank */
#define GROUPS_MOST 64u      /* number of the last object group that is looked for */

/* The reason why the ids are not token ids; NULL: they are. */
static const char *ids_fault(const json_t *ids)
{
	size_t count = json_array_size(ids);

	if (ids != NULL && !json_is_array(ids))
		return "token_ids should be a valid list";
	for (size_t i = 0; i < count; i++) {
		const json_t *id = json_array_get(ids, i);

		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
			json_integer_value(id) > UINT32_MAX)
			return "token_ids should be integers from 0 to 4294967295";
	}
	return NULL;
}

bool kvw_cr_read_tokens(
	struct kvw_conn *conn, json_t *object, bool needed, struct kvw_cr_tokens *tokens)
{
	const char *model, *salt = "", *fault;
	json_int_t world = 1;
	json_error_t error;
	json_t *ids = NULL;

	if (json_unpack_ex(object, &error, 0,
		    needed ? "{s:s, s:I, s?s, s?o}" : "{s:s, s?I, s?s, s?o}", "model_name", &model,
		    "world_size", &world, "cache_salt", &salt, "token_ids", &ids) != 0) {
		kvw_cr_refuse_value(conn, "body", NULL, error.text);
		return false;
	}
	fault = world < 1 || world > WORLD_MOST ? "world_size should be from 1 to 255"
		: strlen(model) > KVW_CE_MODEL_MOST || (!needed && model[0] == '\0')
			? "model_name should have at most 1024 bytes, and one at least"
			: ids_fault(ids);
	if (fault != NULL) {
		kvw_cr_refuse_value(conn, "body", NULL, fault);
		return false;
	}
	*tokens = (struct kvw_cr_tokens){.ids = ids,
		.model = kvw_slice_of(model),
		.salt = kvw_slice_of(salt),
		.world = (uint32_t)world};
	if (json_array_size(ids) > IDS_MOST || strchr(model, '@') != NULL ||
		!kvw_ce_is_salt(tokens->salt)) {
		kvw_coordinator_error(conn, 400, "",
			"at most 1000000 token_ids, no '@' in model_name, and a cache_salt of at "
			"most 128 characters without '@', '/' and '\\'");
		return false;
	}
	tokens->chunks =
		json_array_size(ids) / (size_t)kvw_cr_of(conn)->deps->config->kvaware_lmcache_chunk;
	return true;
}

/* Calls fn with the key in the other groups in which the directory has it. Groups are numbered from
 * 0 on, so each number is tried: the objects of one chunk hash can be very many, of all tenants. */
static bool each_group(
	const struct kvw_cd *cd, struct kvw_ce_key *key, kvw_cr_key_fn *fn, void *ctx)
{
	bool more = true;

	for (key->group = 1; more && key->group <= cd->group_most && key->group <= GROUPS_MOST;
		key->group++)
		if (kvw_cd_find(cd, key) != NULL)
			more = fn(ctx, key);
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
