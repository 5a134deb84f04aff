/*
 * ratio.c - learns tokens per byte by the beginnings of prompts; ratio.h says why.
 *
 * An entry's weight is the number of its samples in whole prompts, at most one: so a new prompt of
 * about the length of the beginning counts for half, and the ratio follows changes.
 */
#include "fleet/ratio.h"

#include <stdlib.h>
#include <string.h>

#define ENTRIES     65536u
#define MOST_WEIGHT 1.0f

/* Ratios outside these bounds come from content that is not text: an image is few bytes and many
 * hundred tokens. */
#define LEAST_TOKENS_PER_UNIT (1.0f / 64)
#define MOST_TOKENS_PER_UNIT  4.0f

struct value {
	float ratio;  /* tokens per unit */
	float weight; /* (0, MOST_WEIGHT] */
};

struct entry {
	_Atomic uint64_t hash;
	_Atomic uint64_t value; /* struct value; 0: free */
};

struct kvw_ratios {
	struct entry entries[ENTRIES];
};

enum kvw_err kvw_ratios_create(struct kvw_ratios **out)
{
	struct kvw_ratios *ratios = calloc(1, sizeof(*ratios));

	if (ratios == NULL)
		return KVW_ENOMEM;
	*out = ratios;
	return KVW_OK;
}

void kvw_ratios_destroy(struct kvw_ratios *ratios)
{
	free(ratios);
}

void kvw_ratio_keys_of(const struct kvw_route_request *request, struct kvw_ratio_keys *keys)
{
	uint32_t chunks = request->chunk_count;

	keys->count = 0;
	if (request->token_ids || request->chain_count != 1 || chunks == 0)
		return;
	keys->total = request->chunks[chunks - 1].end;
	for (uint32_t n = 1; n <= chunks && keys->count < KVW_RATIO_BEGINNINGS; n *= 2) {
		keys->hashes[keys->count] = request->chunks[n - 1].hash;
		keys->units[keys->count++] = request->chunks[n - 1].end;
	}
}

static struct value unpack(uint64_t word)
{
	struct value value;

	memcpy(&value, &word, sizeof(value));
	return value;
}

static uint64_t pack(struct value value)
{
	uint64_t word;

	memcpy(&word, &value, sizeof(word));
	return word;
}

/* Returns the learned value of a beginning; weight 0: none. */
static struct value value_of(const struct entry *entry, uint64_t hash)
{
	if (atomic_load_explicit(&entry->hash, memory_order_relaxed) != hash)
		return (struct value){0, 0};
	return unpack(atomic_load_explicit(&entry->value, memory_order_relaxed));
}

float kvw_ratios_find(const struct kvw_ratios *ratios, const struct kvw_ratio_keys *keys)
{
	for (uint32_t i = keys->count; i-- > 0;) {
		struct value value =
			value_of(&ratios->entries[keys->hashes[i] % ENTRIES], keys->hashes[i]);

		if (value.weight > 0)
			return value.ratio;
	}
	return 0;
}

void kvw_ratios_learn(
	struct kvw_ratios *ratios, const struct kvw_ratio_keys *keys, uint32_t prompt_tokens)
{
	float seen;

	if (keys->count == 0 || keys->total == 0)
		return;
	seen = (float)prompt_tokens / (float)keys->total;
	if (seen < LEAST_TOKENS_PER_UNIT || seen > MOST_TOKENS_PER_UNIT)
		return;
	for (uint32_t i = 0; i < keys->count; i++) {
		struct entry *entry = &ratios->entries[keys->hashes[i] % ENTRIES];
		struct value value = value_of(entry, keys->hashes[i]);
		float weight = (float)keys->units[i] / (float)keys->total;

		if (weight <= 0)
			continue;
		value.weight += weight;
		value.ratio += (seen - value.ratio) * weight / value.weight;
		if (value.weight > MOST_WEIGHT)
			value.weight = MOST_WEIGHT;
		atomic_store_explicit(&entry->hash, keys->hashes[i], memory_order_relaxed);
		atomic_store_explicit(&entry->value, pack(value), memory_order_relaxed);
	}
}
