/*
 * sim_kv_events.c - the bytes of events, member by member as in recorded batches of vLLM 0.32.
 *
 * Members that have their default are left out at the end of an array, which is what vLLM's encoder
 * does there; maps carry those that a recorded one has.
 */
#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "wire/msgpack.h"
#include "bench/sim/sim_kv_events.h"

#define DIGEST   32u  /* bytes */
#define HEAD_MAX 320u /* most bytes of an event without its lists and texts */

/* A writer over `most` further bytes of the buffer. */
static void begin(struct kvb_buf *out, size_t most, struct kvw_mp_out *mp)
{
	kvb_buf_reserve(out, most);
	kvw_mp_out_init(mp, out->data + out->len, most);
}

static void end(struct kvb_buf *out, const struct kvw_mp_out *mp)
{
	assert(!mp->full);
	out->len += mp->len;
}

static void put_text(struct kvw_mp_out *mp, const char *text)
{
	kvw_mp_put_str(mp, (struct kvw_slice){text, strlen(text)});
}

static void put_hash(struct kvw_mp_out *mp, const struct kvb_kv_style *style, uint64_t hash)
{
	unsigned char digest[DIGEST];

	if (!style->bytes) {
		kvw_mp_put_uint(mp, hash);
		return;
	}
	for (unsigned i = 0; i < DIGEST - 8; i += 8) {
		uint64_t part = XXH3_64bits_withSeed(&hash, sizeof(hash), i + 1);

		memcpy(digest + i, &part, sizeof(part));
	}
	for (unsigned i = 0; i < 8; i++)
		digest[DIGEST - 1 - i] = (unsigned char)(hash >> 8 * i);
	kvw_mp_put_bin(mp, (struct kvw_slice){(const char *)digest, DIGEST});
}

static void put_hashes(struct kvw_mp_out *mp, const struct kvb_kv_style *style,
	const uint64_t *hashes, uint32_t count)
{
	kvw_mp_put_array(mp, count);
	for (uint32_t i = 0; i < count; i++)
		put_hash(mp, style, hashes[i]);
}

/* Writes the extra keys of blocks: the adapter and, for a prompt's first block, the salt. */
static void put_extra(struct kvw_mp_out *mp, const struct kvb_kv_stored *stored)
{
	kvw_mp_put_array(mp, stored->count);
	for (uint32_t i = 0; i < stored->count; i++) {
		bool salt = i == 0 && stored->salt != NULL && stored->parent == NULL;

		if (stored->lora == NULL && !salt) {
			kvw_mp_put_nil(mp);
			continue;
		}
		kvw_mp_put_array(mp, (stored->lora != NULL) + (uint32_t)salt);
		if (stored->lora != NULL)
			put_text(mp, stored->lora);
		if (salt)
			put_text(mp, stored->salt);
	}
}

static void put_tokens(struct kvw_mp_out *mp, const struct kvb_kv_stored *stored)
{
	uint32_t count = stored->tokens == NULL ? 0 : stored->count * stored->block_size;

	kvw_mp_put_array(mp, count);
	for (uint32_t i = 0; i < count; i++)
		kvw_mp_put_uint(mp, stored->tokens[i]);
}

static void put_parent(
	struct kvw_mp_out *mp, const struct kvb_kv_style *style, const struct kvb_kv_stored *stored)
{
	if (stored->parent == NULL)
		kvw_mp_put_nil(mp);
	else
		put_hash(mp, style, *stored->parent);
}

static void put_lora_id(struct kvw_mp_out *mp, const struct kvb_kv_stored *stored)
{
	if (stored->lora == NULL)
		kvw_mp_put_nil(mp);
	else
		kvw_mp_put_int(mp, stored->lora_id);
}

static void put_name(struct kvw_mp_out *mp, const char *name)
{
	if (name == NULL)
		kvw_mp_put_nil(mp);
	else
		put_text(mp, name);
}

static const char *medium_of(const char *medium)
{
	return medium == NULL ? "GPU" : medium;
}

static void put_locality(struct kvw_mp_out *mp, const char *locality)
{
	if (locality == NULL)
		return;
	put_text(mp, "locality");
	put_text(mp, locality);
}

static void stored_array(
	struct kvw_mp_out *mp, const struct kvb_kv_style *style, const struct kvb_kv_stored *stored)
{
	bool extra = stored->lora != NULL || stored->salt != NULL;

	kvw_mp_put_array(mp, extra ? 9 : 7);
	put_text(mp, "BlockStored");
	put_hashes(mp, style, stored->hashes, stored->count);
	put_parent(mp, style, stored);
	put_tokens(mp, stored);
	kvw_mp_put_uint(mp, stored->block_size);
	put_lora_id(mp, stored);
	put_text(mp, medium_of(stored->medium));
	if (!extra)
		return;
	put_name(mp, stored->lora);
	put_extra(mp, stored);
}

static void stored_map(
	struct kvw_mp_out *mp, const struct kvb_kv_style *style, const struct kvb_kv_stored *stored)
{
	kvw_mp_put_map(mp, 11 + (stored->locality != NULL));
	put_text(mp, "type");
	put_text(mp, "BlockStored");
	put_text(mp, "block_hashes");
	put_hashes(mp, style, stored->hashes, stored->count);
	put_text(mp, "parent_block_hash");
	put_parent(mp, style, stored);
	put_text(mp, "token_ids");
	put_tokens(mp, stored);
	put_text(mp, "block_size");
	kvw_mp_put_uint(mp, stored->block_size);
	put_text(mp, "lora_id");
	put_lora_id(mp, stored);
	put_text(mp, "medium");
	put_text(mp, medium_of(stored->medium));
	put_text(mp, "lora_name");
	put_name(mp, stored->lora);
	put_text(mp, "extra_keys");
	put_extra(mp, stored);
	put_text(mp, "group_idx");
	kvw_mp_put_uint(mp, 0);
	put_text(mp, "kv_cache_spec_kind");
	put_text(mp, "full_attention");
	put_locality(mp, stored->locality);
}

static size_t text_room(const char *text)
{
	return text == NULL ? 0 : strlen(text) + 5;
}

void kvb_kv_put_stored(
	struct kvb_buf *out, const struct kvb_kv_style *style, const struct kvb_kv_stored *stored)
{
	/* a hash, an array's head and a name for each block, five bytes for each token */
	size_t most = HEAD_MAX + text_room(stored->salt) + text_room(stored->lora) +
		      (size_t)stored->count * (DIGEST + 2 + 5 + text_room(stored->lora) +
						      5 * (size_t)stored->block_size);
	struct kvw_mp_out mp;

	begin(out, most, &mp);
	if (style->arrays)
		stored_array(&mp, style, stored);
	else
		stored_map(&mp, style, stored);
	end(out, &mp);
}

void kvb_kv_put_removed_from(struct kvb_buf *out, const struct kvb_kv_style *style,
	const char *medium, const char *locality, const uint64_t *hashes, uint32_t count)
{
	struct kvw_mp_out mp;

	begin(out, HEAD_MAX + (size_t)count * (DIGEST + 2), &mp);
	if (style->arrays) {
		kvw_mp_put_array(&mp, 3);
		put_text(&mp, "BlockRemoved");
		put_hashes(&mp, style, hashes, count);
		put_text(&mp, medium_of(medium));
	} else {
		kvw_mp_put_map(&mp, 4 + (locality != NULL));
		put_text(&mp, "type");
		put_text(&mp, "BlockRemoved");
		put_text(&mp, "block_hashes");
		put_hashes(&mp, style, hashes, count);
		put_text(&mp, "medium");
		put_text(&mp, medium_of(medium));
		put_text(&mp, "group_idx");
		kvw_mp_put_uint(&mp, 0);
		put_locality(&mp, locality);
	}
	end(out, &mp);
}

void kvb_kv_put_removed(struct kvb_buf *out, const struct kvb_kv_style *style,
	const uint64_t *hashes, uint32_t count)
{
	kvb_kv_put_removed_from(out, style, NULL, NULL, hashes, count);
}

void kvb_kv_put_cleared(struct kvb_buf *out, const struct kvb_kv_style *style)
{
	struct kvw_mp_out mp;

	begin(out, HEAD_MAX, &mp);
	if (style->arrays) {
		kvw_mp_put_array(&mp, 1);
	} else {
		kvw_mp_put_map(&mp, 1);
		put_text(&mp, "type");
	}
	put_text(&mp, "AllBlocksCleared");
	end(out, &mp);
}

void kvb_kv_put_batch(struct kvb_buf *out, const struct kvb_kv_style *style, double time_s,
	const struct kvb_buf *events, uint32_t event_count)
{
	struct kvw_mp_out mp;

	begin(out, HEAD_MAX + events->len, &mp);
	/* up to 0.23 rank 0 is left out */
	kvw_mp_put_array(&mp, style->arrays && style->rank == 0 ? 2 : 3);
	kvw_mp_put_real(&mp, time_s);
	kvw_mp_put_array(&mp, event_count);
	end(out, &mp);
	kvb_buf_add(out, events->data, events->len);
	if (!style->arrays || style->rank > 0) {
		begin(out, HEAD_MAX, &mp);
		kvw_mp_put_uint(&mp, style->rank);
		end(out, &mp);
	}
}
