/*
 * lmcache_hash.c - the loop over chunks, and the hash H of one tuple.
 *
 * `builtin` is arithmetic alone. Digests write the tuple through a hasher that all chunks of a call
 * share. The cost of a chunk of 256 tokens is some 0.3 us for `builtin`, 2 to 3 us for a digest.
 */
#include "wire/lmcache_hash.h"

#include "wire/object_hash.h"
#include "wire/pyhash.h"

/* The text that vLLM uses as seed if PYTHONHASHSEED is not set and the algorithm is
 * cryptographic. */
#define DEFAULT_SEED "vllm-none-hash"

/* Input of a chunk's hash. */
struct link {
	uint64_t parent;
	const uint32_t *tokens;
	size_t count;
	enum kvw_lmcache_extra extra;
};

static const struct {
	const char *name;
	enum kvw_object_hash hash; /* without meaning for builtin */
} algorithms[] = {
	[KVW_LMCACHE_BUILTIN] = {"builtin", KVW_OBJECT_SHA256},
	[KVW_LMCACHE_SHA256_CBOR] = {"sha256_cbor", KVW_OBJECT_SHA256_CBOR},
	[KVW_LMCACHE_SHA256] = {"sha256", KVW_OBJECT_SHA256},
	[KVW_LMCACHE_XXHASH_CBOR] = {"xxhash_cbor", KVW_OBJECT_XXHASH_CBOR},
	[KVW_LMCACHE_XXHASH] = {"xxhash", KVW_OBJECT_XXHASH},
};

#define ALGORITHMS (sizeof(algorithms) / sizeof(algorithms[0]))

bool kvw_lmcache_algorithm_parse(struct kvw_slice name, enum kvw_lmcache_algorithm *algorithm)
{
	if (kvw_slice_equal(name, KVW_SLICE("sha256_cbor_64bit")))
		name = KVW_SLICE("sha256_cbor");
	for (size_t i = 0; i < ALGORITHMS; i++) {
		if (kvw_slice_equal(name, kvw_slice_of(algorithms[i].name))) {
			*algorithm = (enum kvw_lmcache_algorithm)i;
			return true;
		}
	}
	*algorithm = KVW_LMCACHE_BUILTIN;
	return false;
}

const char *kvw_lmcache_algorithm_name(enum kvw_lmcache_algorithm algorithm)
{
	return algorithms[algorithm].name;
}

static const char *seed_fault(const struct kvw_lmcache_recipe *recipe)
{
	struct kvw_py_key key;

	switch (recipe->algorithm) {
	case KVW_LMCACHE_BUILTIN:
		if (recipe->seed == NULL)
			return "builtin hashes differ in each process as long as PYTHONHASHSEED is "
			       "not set";
		if (*recipe->seed != '\0' &&
			kvw_py_key_init(&key, recipe->siphash, recipe->seed) != KVW_OK)
			return "PYTHONHASHSEED must be a number up to 4294967295 for builtin "
			       "hashes to agree";
		return NULL;
	case KVW_LMCACHE_XXHASH:
	case KVW_LMCACHE_XXHASH_CBOR:
		return recipe->seed != NULL ? NULL
					    : "xxhash differs in each process as long as "
					      "PYTHONHASHSEED is not set";
	case KVW_LMCACHE_SHA256:
	case KVW_LMCACHE_SHA256_CBOR:
		break;
	}
	return NULL;
}

const char *kvw_lmcache_recipe_fault(const struct kvw_lmcache_recipe *recipe)
{
	if ((size_t)recipe->algorithm >= ALGORITHMS)
		return "no such hash algorithm";
	if (recipe->chunk_size == 0 || recipe->chunk_size > KVW_LMCACHE_CHUNK_MAX)
		return "the chunk size must be 1 to 8192 tokens";
	if (recipe->algorithm == KVW_LMCACHE_BUILTIN && recipe->extra == KVW_LMCACHE_EXTRA_NONE &&
		recipe->siphash == KVW_SIPHASH_24)
		return "hash(None) is an address before CPython 3.12, so builtin hashes of "
		       "LMCache up to 0.3 cannot agree";
	return recipe->root == KVW_LMCACHE_ROOT_SEED ? seed_fault(recipe) : NULL;
}

static uint64_t fold(enum kvw_lmcache_fold fold, const uint8_t *digest, size_t size)
{
	const uint8_t *from = fold == KVW_LMCACHE_FOLD_LAST ? digest + size - 8 : digest;
	uint64_t value = 0;

	for (size_t i = 0; i < 8; i++)
		value = value << 8 | from[i];
	return value;
}

static uint64_t builtin_seed(const struct kvw_lmcache_recipe *recipe)
{
	struct kvw_py_key key = {.variant = recipe->siphash};
	struct kvw_slice seed = kvw_slice_of(recipe->seed);

	if (seed.len > 0 && kvw_py_key_init(&key, recipe->siphash, recipe->seed) != KVW_OK)
		return 0; /* excluded by the caller */
	return kvw_py_hash_text(&key, seed.data, seed.len);
}

enum kvw_err kvw_lmcache_begin(const struct kvw_lmcache_recipe *recipe, uint64_t *state)
{
	enum kvw_object_hash hash;
	struct kvw_hasher *hasher;
	uint8_t digest[KVW_DIGEST_MAX];
	enum kvw_err err;

	if (kvw_lmcache_recipe_fault(recipe) != NULL)
		return KVW_EINVAL;
	if (recipe->root == KVW_LMCACHE_ROOT_NUMBER) {
		*state = recipe->none_hash;
		return KVW_OK;
	}
	if (recipe->algorithm == KVW_LMCACHE_BUILTIN) {
		*state = builtin_seed(recipe);
		return KVW_OK;
	}
	hash = algorithms[recipe->algorithm].hash;
	err = kvw_hasher_create(kvw_object_digest_kind(hash), &hasher);
	if (err != KVW_OK)
		return err;
	err = kvw_object_digest_text(hasher, kvw_object_format(hash),
		recipe->seed != NULL ? recipe->seed : DEFAULT_SEED, digest);
	if (err == KVW_OK)
		*state = fold(recipe->fold, digest, kvw_hasher_size(hasher));
	kvw_hasher_destroy(hasher);
	return err;
}

/* Returns hash((parent, tokens, extra)). Token ids are their own hashes. */
static uint64_t builtin_link(const struct link *link)
{
	struct kvw_py_tuple outer = {KVW_PY_TUPLE_START, 0}, inner = outer, empty = outer;

	for (size_t i = 0; i < link->count; i++)
		kvw_py_tuple_add(&inner, link->tokens[i]);
	kvw_py_tuple_add(&outer, kvw_py_hash_int((int64_t)link->parent));
	kvw_py_tuple_add(&outer, kvw_py_tuple_hash(&inner));
	kvw_py_tuple_add(&outer, link->extra == KVW_LMCACHE_EXTRA_NONE ? KVW_PY_HASH_NONE
								       : kvw_py_tuple_hash(&empty));
	return kvw_py_tuple_hash(&outer);
}

static void write_link(struct kvw_hasher *out, const struct kvw_format *format, const void *value)
{
	const struct link *link = value;

	format->tuple_begin(out, 3);
	format->number(out, link->parent);
	kvw_object_write_tokens(out, format, link->tokens, link->count);
	if (link->extra == KVW_LMCACHE_EXTRA_NONE) {
		format->none(out);
	} else {
		format->tuple_begin(out, 0);
		format->tuple_end(out, 0);
	}
	format->tuple_end(out, 3);
}

/* hasher: NULL for builtin. */
static enum kvw_err hash_link(const struct kvw_lmcache_recipe *recipe, struct kvw_hasher *hasher,
	const struct link *link, uint64_t *key)
{
	uint8_t digest[KVW_DIGEST_MAX];
	enum kvw_err err;

	if (hasher == NULL) {
		*key = builtin_link(link);
		return KVW_OK;
	}
	err = kvw_object_digest(hasher, kvw_object_format(algorithms[recipe->algorithm].hash),
		write_link, link, digest);
	if (err == KVW_OK)
		*key = fold(recipe->fold, digest, kvw_hasher_size(hasher));
	return err;
}

enum kvw_err kvw_lmcache_hash(const struct kvw_lmcache_recipe *recipe, uint64_t *state,
	const uint32_t *tokens, size_t count, uint64_t *keys, size_t cap, size_t *key_count)
{
	struct link link = {.extra = recipe->extra};
	struct kvw_hasher *hasher = NULL;
	enum kvw_err err = KVW_OK;
	size_t done = 0;

	if (kvw_lmcache_recipe_fault(recipe) != NULL)
		return KVW_EINVAL;
	if (recipe->algorithm != KVW_LMCACHE_BUILTIN)
		err = kvw_hasher_create(
			kvw_object_digest_kind(algorithms[recipe->algorithm].hash), &hasher);
	for (; err == KVW_OK && done < cap && count > 0; tokens += link.count) {
		bool full = count >= recipe->chunk_size;

		if (!full && !recipe->partial_chunk)
			break;
		link.parent = *state;
		link.tokens = tokens;
		link.count = full ? recipe->chunk_size : count;
		err = hash_link(recipe, hasher, &link, &keys[done]);
		if (err != KVW_OK)
			break;
		if (full)
			*state = keys[done];
		count -= link.count;
		done++;
	}
	*key_count = done;
	kvw_hasher_destroy(hasher);
	return err;
}
