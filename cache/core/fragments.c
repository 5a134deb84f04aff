/*
 * fragments.c - a model's fragments: texts whose KV is reused at any position, kept as chunks of
 * the cache under keys of their own.
 *
 * A fragment is a chain of chunks like any other, so that no other file of the cache knows about
 * fragments. Its keys have another domain than those of exact chunks, over a fingerprint that
 * includes layout and rotary positions. This file checks each chunk's header nevertheless: a
 * fragment of another model, or for another position, would damage answers silently. A chunk that
 * fails the check is erased, and the engine computes it again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/lower.h"
#include "core/settle.h"
#include "fragments/value.h"
#include "gpu/gpu.h"

#define LAYERS_MOST   1024u
#define HEADS_MOST    1024u
#define CHUNK_MOST    65536u
#define FRAGMENT_MOST (1u << 20) /* tokens */
#define LEASE_NS      5000000000u

struct kvt_fragments {
	struct kvt *k; /* borrowed */
	struct kvt_rope rope;
	struct kvt_fragment_shape shape;
	uint32_t chunk_tokens, rank;
	uint64_t lease_ns;
	/* this object's counters; the cache's own count the same events */
	struct kvt_fragment_counters own;
};

/* --- life ------------------------------------------------------------------------------------- */

void kvt_fragments_config_init(struct kvt_fragments_config *config, size_t size)
{
	struct kvt_fragments_config c = {.size = (uint32_t)size, .chunk_tokens = 256, .lease_ns = LEASE_NS};

	memset(config, 0, size);
	memcpy(config, &c, size < sizeof(c) ? size : sizeof(c));
}

static enum kvt_status refuse(char *why, enum kvt_status status, const char *text)
{
	if (why != NULL)
		snprintf(why, KVT_FRAGMENT_WHY, "%s", text);
	return status;
}

static bool within(uint32_t value, uint32_t most)
{
	return value > 0 && value <= most;
}

/* Hashes all properties of the model that decide what a chunk's bytes mean. */
static void name_model(struct kvt_fragments *f, const struct kvt_fingerprint *fingerprint)
{
	const struct kvt_fragment_shape *s = &f->shape;
	const uint32_t numbers[] = {KVT_FRAGMENT_VERSION, s->values, s->layers, s->heads, s->head, s->value_head, f->rope.rotated,
		(uint32_t)f->rope.layout, f->rank, f->rope.offset};
	size_t all = sizeof(numbers) / sizeof(numbers[0]);

	kvt_fragment_chain_id(fingerprint->bytes, f->rope.frequency, f->rope.rotated / 2 * sizeof(f->rope.frequency[0]), numbers,
		f->rope.latent ? all : all - 1, f->shape.model);
}

static enum kvt_status set_up(struct kvt_fragments *f, struct kvt *k, const struct kvt_fragments_config *c, char *why)
{
	static const char out_of_range[] = "layers, heads, values of a head, tokens of a chunk or their type are out of range";
	char reason[KVT_ROPE_TEXT] = "no memory";
	enum kvt_status status;

	if (!within(c->layers, LAYERS_MOST) || !within(c->heads, HEADS_MOST) || c->value_head > KVT_ROPE_HEAD_MAX ||
		!within(c->chunk_tokens, CHUNK_MOST) || c->values > KVT_FRAGMENT_F16)
		return refuse(why, KVT_EINVAL, out_of_range);
	status = kvt_rope_read(c->model, c->model_bytes, &f->rope, reason);
	if (status != KVT_OK)
		return refuse(why, status, reason);
	if (f->rope.latent && (c->heads != 1 || c->value_head != 0))
		return refuse(why, KVT_EINVAL, "latent keys (kv_lora_rank): expected one head, and no values (value_head 0)");
	if (!f->rope.latent && c->value_head == 0)
		return refuse(why, KVT_EINVAL, out_of_range);
	if (f->rope.head != c->head) {
		snprintf(reason, sizeof(reason), "a head has %u values, by config.json %u", c->head, f->rope.head);
		return refuse(why, KVT_EINVAL, reason);
	}
	f->k = k;
	f->shape = (struct kvt_fragment_shape){
		.values = c->values, .layers = c->layers, .heads = c->heads, .head = c->head, .value_head = c->value_head};
	f->chunk_tokens = c->chunk_tokens;
	f->rank = c->rank;
	f->lease_ns = c->lease_ns;
	name_model(f, &c->fingerprint);
	if (kvt_fragment_value_bytes(&f->shape, f->chunk_tokens) == 0)
		return refuse(why, KVT_EINVAL, "a chunk would have 4 GiB or more: take fewer tokens for one");
	return KVT_OK;
}

enum kvt_status kvt_fragments_create(
	struct kvt *k, const struct kvt_fragments_config *config, struct kvt_fragments **out, char *why)
{
	enum kvt_status status = kvt_usable(k);
	struct kvt_fragments *f;

	if (status != KVT_OK)
		return refuse(why, status, kvt_status_text(status));
	if (config == NULL || config->size < sizeof(*config) || config->model == NULL || out == NULL)
		return refuse(why, KVT_EINVAL, "no configuration, or one of another version");
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return refuse(why, KVT_ENOMEM, "no memory");
	status = set_up(f, k, config, why);
	if (status != KVT_OK)
		free(f);
	else
		*out = f;
	return status;
}

void kvt_fragments_destroy(struct kvt_fragments *f)
{
	free(f);
}

uint64_t kvt_fragments_chunk_bytes(const struct kvt_fragments *f, uint32_t tokens)
{
	return kvt_fragment_value_bytes(&f->shape, tokens);
}

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

enum kvt_status kvt_fragments_settings(const struct kvt_config *config, struct kvt_fragments_settings *out)
{
	struct kvt_fragments_settings s = {0};
	struct kvt_config c;

	if (config == NULL || out == NULL || out->size < sizeof(*out) || kvt_config_settle(config, &c) != KVT_OK)
		return KVT_EINVAL;
	s.size = out->size;
	s.enabled = c.fragments_enabled;
	s.by = strcmp(c.fragments_cut, "content") == 0 ? KVT_CUT_CONTENT : KVT_CUT_SEPARATOR;
	s.min_tokens = c.fragments_min_tokens;
	s.average_tokens = larger(c.fragments_average_tokens, s.min_tokens);
	s.max_tokens = larger(c.fragments_max_tokens, s.by == KVT_CUT_CONTENT ? 2 * s.average_tokens : 0);
	s.first_tokens = c.fragments_first_tokens;
	s.check_layer = c.fragments_check_layer;
	s.share = c.fragments_recompute_share;
	s.separator = c.fragments_separator;
	*out = s;
	return KVT_OK;
}

/* --- counting --------------------------------------------------------------------------------- */

#define COUNT(f, member, by)                                                                       \
	(kvt_count(&(f)->own.member, (by)), kvt_count(&(f)->k->counters.fragments.member, (by)))

enum kvt_status kvt_fragments_stats(const struct kvt_fragments *f, struct kvt_fragments_stats *out)
{
	struct kvt_fragments_stats s = {0};

	if (f == NULL || out == NULL || out->size < offsetof(struct kvt_fragments_stats, refused))
		return KVT_EINVAL;
	kvt_fragment_counters_read(&f->own, &s);
	s.size = out->size;
	memcpy(out, &s, out->size < sizeof(s) ? out->size : sizeof(s));
	return KVT_OK;
}

/* --- names ------------------------------------------------------------------------------------ */

static bool text_fits(const struct kvt_fragments *f, const struct kvt_fragment_text *text)
{
	return f != NULL && text != NULL && text->size >= sizeof(*text) && text->tokens != NULL && text->count > 0 &&
	       text->count <= FRAGMENT_MOST && text->position <= INT64_MAX - text->count &&
	       (text->lora != NULL || text->lora_bytes == 0);
}

static size_t chunks_of(const struct kvt_fragments *f, size_t tokens)
{
	return (tokens + f->chunk_tokens - 1) / f->chunk_tokens;
}

static uint32_t tokens_of(const struct kvt_fragments *f, const struct kvt_fragment_text *text, size_t chunk)
{
	size_t left = text->count - chunk * f->chunk_tokens;

	return left < f->chunk_tokens ? (uint32_t)left : f->chunk_tokens;
}

enum kvt_status kvt_fragments_chunk_key(
	const struct kvt_fragments *f, const struct kvt_tenant *tenant, const uint8_t chain[32], struct kvt_key *out)
{
	struct kvt_key_parts parts = {
		.size = sizeof(parts), .rank = f->rank, .hash_recipe = "tokens", .chain_id = chain, .chain_id_bytes = 32};

	memcpy(parts.fingerprint.bytes, f->shape.model, sizeof(parts.fingerprint.bytes));
	parts.tenant = *tenant;
	return kvt_fragment_key(&parts, out);
}

/* Returns the keys of all chunks, which the caller frees; NULL: out of memory. */
static struct kvt_key *name(const struct kvt_fragments *f, const struct kvt_fragment_text *text, size_t n)
{
	struct kvt_key *keys = malloc(n * sizeof(*keys));
	uint8_t chain[32];

	if (keys == NULL)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		kvt_fragment_chain_id(i > 0 ? chain : NULL, text->lora, text->lora_bytes, text->tokens + i * f->chunk_tokens,
			tokens_of(f, text, i), chain);
		if (kvt_fragments_chunk_key(f, &text->tenant, chain, &keys[i]) != KVT_OK) {
			free(keys);
			return NULL;
		}
	}
	return keys;
}

enum kvt_status kvt_fragments_keys(const struct kvt_fragments *f, const struct kvt_fragment_text *text,
	struct kvt_key *out, size_t most, size_t *found)
{
	struct kvt_key *keys;
	size_t n;

	if (!text_fits(f, text) || (out == NULL && most > 0) || found == NULL)
		return KVT_EINVAL;
	n = chunks_of(f, text->count);
	keys = name(f, text, n);
	if (keys == NULL)
		return KVT_ENOMEM;
	if (most > 0)
		memcpy(out, keys, (n < most ? n : most) * sizeof(*keys));
	free(keys);
	*found = n;
	return KVT_OK;
}

/* --- store ------------------------------------------------------------------------------------ */

static enum kvt_status store_one(struct kvt_fragments *f, const struct kvt_fragment_text *text,
	const struct kvt_fragment_place *place, const struct kvt_key *keys, size_t i)
{
	uint64_t first = i * f->chunk_tokens;
	struct kvt_item item = {
		.size = sizeof(item),
		.tokens = tokens_of(f, text, i),
		.key = keys[i],
		.parent = i > 0 ? &keys[i - 1] : NULL,
		.bytes = kvt_fragment_value_bytes(&f->shape, tokens_of(f, text, i)),
		.tenant = text->tenant,
	};
	struct kvt_fragment_bytes bytes;
	struct kvt_reservation *reservation;
	struct kvt_fragment_head head;
	uint32_t count, each;
	enum kvt_status status;

	status = kvt_put_reserve(f->k, &item, 1, &reservation, &bytes.segments, &count, &each);
	if (status != KVT_OK)
		return status;
	bytes.count = count;
	kvt_fragment_head_make(&f->shape, item.tokens, first, text->position + first, &head);
	kvt_fragment_pack(&f->shape, &head, place, first, &bytes);
	status = kvt_put_commit(f->k, reservation, 1, NULL);
	if (status == KVT_OK) {
		COUNT(f, stored_chunks, 1);
		COUNT(f, stored_tokens, item.tokens);
		COUNT(f, stored_bytes, item.bytes);
	}
	return status;
}

enum kvt_status kvt_fragments_store(struct kvt_fragments *f, const struct kvt_fragment_text *text,
	const struct kvt_fragment_place *place, size_t *stored)
{
	enum kvt_status status = KVT_OK;
	size_t n, done = 0;
	struct kvt_key *keys;

	if (!text_fits(f, text) || !kvt_fragment_place_fits(place, &f->shape, text->count))
		return KVT_EINVAL;
	if (text->blended != 0) {
		COUNT(f, refused[KVT_FRAGMENT_BLENDED], 1);
		return KVT_EINVAL;
	}
	n = chunks_of(f, text->count);
	keys = name(f, text, n);
	if (keys == NULL)
		return KVT_ENOMEM;
	COUNT(f, stores, 1);
	for (size_t i = 0; i < n; i++) {
		status = store_one(f, text, place, keys, i);
		if (status != KVT_OK && status != KVT_EXISTS)
			break;
		done += tokens_of(f, text, i);
		status = KVT_OK;
	}
	COUNT(f, refused[KVT_FRAGMENT_FULL], status == KVT_FULL);
	free(keys);
	if (stored != NULL)
		*stored = done;
	return status;
}

/* --- find and load ---------------------------------------------------------------------------- */

static size_t tokens_until(const struct kvt_fragments *f, const struct kvt_fragment_text *text, size_t chunks)
{
	size_t tokens = chunks * f->chunk_tokens;

	return tokens < text->count ? tokens : text->count;
}

enum kvt_status kvt_fragments_find(
	struct kvt_fragments *f, const struct kvt_fragment_text *text, uint64_t timeout_ns, size_t *tokens)
{
	struct kvt_lookup plan;
	struct kvt_key *keys;
	enum kvt_status status;
	size_t n;

	if (!text_fits(f, text) || tokens == NULL)
		return KVT_EINVAL;
	n = chunks_of(f, text->count);
	keys = name(f, text, n);
	if (keys == NULL)
		return KVT_ENOMEM;
	status = timeout_ns == 0 ? kvt_lookup(f->k, keys, n, KVT_ALL_TIERS, NULL, &plan)
				 : kvt_find(f->k, keys, n, KVT_ALL_TIERS, timeout_ns, NULL, &plan);
	free(keys);
	if (status == KVT_OK)
		*tokens = tokens_until(f, text, plan.worth);
	return status;
}

/* Returns why chunk i of a lease is not the chunk asked for, or KVT_FRAGMENT_REFUSALS if it is;
 * sets *header. */
static enum kvt_fragment_refusal check(const struct kvt_fragments *f, const struct kvt_fragment_text *text,
	const struct kvt_lease *lease, size_t i, struct kvt_fragment_head *head)
{
	const struct kvt_view *view = &lease->views[i];
	const struct kvt_segment *first = &lease->segments[view->first_segment];
	uint32_t tokens = tokens_of(f, text, i);

	if (view->bytes < sizeof(*head) || first->bytes < sizeof(*head))
		return KVT_FRAGMENT_HEADER;
	memcpy(head, first->base, sizeof(*head));
	if (view->bytes != kvt_fragment_value_bytes(&f->shape, tokens))
		return KVT_FRAGMENT_TOKENS;
	return kvt_fragment_head_check(head, &f->shape, tokens, i * f->chunk_tokens);
}

/* One load of a text: the destination, and the rotation of the previous chunk, which the next chunk
 * most often shares. */
struct loading {
	const struct kvt_fragment_place *place;
	size_t from; /* tokens before this one are not written */
	bool has_turn;
	int64_t distance;
	struct kvt_rope_turn turn;
};

static void unpack(struct kvt_fragments *f, const struct kvt_fragment_text *text, struct loading *l,
	const struct kvt_lease *lease, size_t i, const struct kvt_fragment_head *head)
{
	const struct kvt_view *view = &lease->views[i];
	struct kvt_fragment_bytes bytes = {lease->segments + view->first_segment, view->segment_count};
	uint64_t first = i * f->chunk_tokens;
	int64_t distance = (int64_t)(text->position + first) - (int64_t)head->position;
	uint32_t skip = l->from > first ? (uint32_t)(l->from - first) : 0;

	if (skip >= head->tokens)
		return;
	if (distance != 0 && (!l->has_turn || l->distance != distance)) {
		kvt_rope_turn_by(&f->rope, distance, &l->turn);
		l->has_turn = true;
		l->distance = distance;
	}
	COUNT(f, moved_bytes,
		kvt_fragment_unpack(&f->shape, distance != 0 ? &l->turn : NULL, head->tokens, skip, head->tokens, l->place, first,
			&bytes));
	COUNT(f, loaded_bytes, view->bytes);
}

/* Returns how many chunks were placed. */
static size_t place_chunks(struct kvt_fragments *f, const struct kvt_fragment_text *text, struct loading *l,
	const struct kvt_lease *lease, const struct kvt_key *keys)
{
	struct kvt_fragment_head head;
	size_t erased;

	for (size_t i = 0; i < lease->count; i++) {
		enum kvt_fragment_refusal why = check(f, text, lease, i, &head);

		if (why != KVT_FRAGMENT_REFUSALS) {
			COUNT(f, refused[why], 1);
			(void)!kvt_erase(f->k, &keys[i], 1, 0, &erased);
			return i;
		}
		unpack(f, text, l, lease, i, &head);
	}
	return lease->count;
}

enum kvt_status kvt_fragments_load(struct kvt_fragments *f, const struct kvt_fragment_text *text, size_t from,
	const struct kvt_fragment_place *place, size_t *loaded)
{
	struct loading l = {.place = place, .from = from};
	struct kvt_lease *lease;
	struct kvt_key *keys;
	enum kvt_status status;
	size_t n, tokens = 0;

	if (!text_fits(f, text) || !kvt_fragment_place_fits(place, &f->shape, text->count) || from > text->count ||
		loaded == NULL)
		return KVT_EINVAL;
	n = chunks_of(f, text->count);
	keys = name(f, text, n);
	if (keys == NULL)
		return KVT_ENOMEM;
	COUNT(f, loads, 1);
	status = kvt_get(f->k, keys, n, f->lease_ns, &lease);
	if (status == KVT_OK) {
		tokens = tokens_until(f, text, place_chunks(f, text, &l, lease, keys));
		kvt_release(f->k, lease);
		status = tokens > 0 ? KVT_OK : KVT_MISS;
	}
	free(keys);
	COUNT(f, hit_tokens, tokens);
	COUNT(f, missed_tokens, text->count - tokens);
	if (status == KVT_OK)
		*loaded = tokens;
	return status;
}

/* --- a chunk at a time ------------------------------------------------------------------------ */

static bool piece_fits(const struct kvt_fragments *f, const struct kvt_fragment_piece *piece,
	const struct kvt_fragment_place *place, const struct kvt_segment *segments, size_t count, uint32_t end)
{
	uint64_t bytes = 0;

	if (f == NULL || piece == NULL || piece->size < sizeof(*piece) || segments == NULL || end > piece->tokens ||
		piece->position > INT64_MAX - FRAGMENT_MOST || !kvt_fragment_place_fits(place, &f->shape, end))
		return false;
	for (size_t i = 0; i < count; i++)
		bytes += segments[i].bytes;
	return count > 0 && segments[0].bytes >= sizeof(struct kvt_fragment_head) && piece->tokens > 0 &&
	       bytes == kvt_fragment_value_bytes(&f->shape, piece->tokens);
}

static void count_packed(struct kvt_fragments *f, const struct kvt_fragment_piece *piece)
{
	COUNT(f, stored_chunks, 1);
	COUNT(f, stored_tokens, piece->tokens);
	COUNT(f, stored_bytes, kvt_fragment_value_bytes(&f->shape, piece->tokens));
}

static void count_unpacked(struct kvt_fragments *f, const struct kvt_fragment_piece *piece, uint64_t turned)
{
	COUNT(f, moved_bytes, turned);
	COUNT(f, hit_tokens, piece->end - piece->skip);
	COUNT(f, loaded_bytes, kvt_fragment_value_bytes(&f->shape, piece->tokens));
}

/* Checks a chunk's header and computes how far its keys have to move. */
static bool piece_is_right(struct kvt_fragments *f, const struct kvt_fragment_piece *piece, const struct kvt_segment *segments,
	int64_t *distance)
{
	enum kvt_fragment_refusal why;
	struct kvt_fragment_head head;

	memcpy(&head, segments[0].base, sizeof(head));
	why = kvt_fragment_head_check(&head, &f->shape, piece->tokens, piece->first);
	if (why != KVT_FRAGMENT_REFUSALS) {
		COUNT(f, refused[why], 1);
		return false;
	}
	*distance = (int64_t)piece->position - (int64_t)head.position;
	return true;
}

enum kvt_status kvt_fragments_pack(struct kvt_fragments *f, const struct kvt_fragment_piece *piece,
	const struct kvt_fragment_place *place, const struct kvt_segment *segments, size_t count)
{
	struct kvt_fragment_bytes bytes = {segments, count};
	struct kvt_fragment_head head;

	if (!piece_fits(f, piece, place, segments, count, piece != NULL ? piece->tokens : 0))
		return KVT_EINVAL;
	kvt_fragment_head_make(&f->shape, piece->tokens, piece->first, piece->position, &head);
	kvt_fragment_pack(&f->shape, &head, place, 0, &bytes);
	count_packed(f, piece);
	return KVT_OK;
}

enum kvt_status kvt_fragments_unpack(struct kvt_fragments *f, const struct kvt_fragment_piece *piece,
	const struct kvt_fragment_place *place, const struct kvt_segment *segments, size_t count)
{
	struct kvt_fragment_bytes bytes = {segments, count};
	struct kvt_rope_turn turn;
	int64_t distance;

	if (!piece_fits(f, piece, place, segments, count, piece != NULL ? piece->end : 0) || piece->skip > piece->end)
		return KVT_EINVAL;
	if (!piece_is_right(f, piece, segments, &distance))
		return KVT_ECORRUPT;
	if (distance != 0)
		kvt_rope_turn_by(&f->rope, distance, &turn);
	count_unpacked(f, piece, kvt_fragment_unpack(&f->shape, distance != 0 ? &turn : NULL, piece->tokens, piece->skip,
					 piece->end, place, 0, &bytes));
	return KVT_OK;
}

/* --- one chunk at a time, on a device
 * ----------------------------------------------------------- */

_Static_assert((uint32_t)KVT_FRAGMENT_F32 == KVT_GPU_F32 && (uint32_t)KVT_FRAGMENT_BF16 == KVT_GPU_BF16 &&
	(uint32_t)KVT_FRAGMENT_F16 == KVT_GPU_F16, "both rooms number values alike");

static bool same_strides(const struct kvt_fragment_plane *a, const struct kvt_fragment_plane *b)
{
	return a->block == b->block && a->token == b->token && a->head == b->head && a->value == b->value;
}

/* Returns the number of planes that a layer has: 2 for keys and values, 1 for latent keys. */
static uint32_t planes_of(const struct kvt_fragments *f)
{
	return f->rope.latent ? 1 : 2;
}

/*
 * Behind its header, a chunk has a layout as in kvtier_cuda.h whose blocks are tokens, and whose
 * layers are the model's keys and values in turn, or its latent keys alone.
 */
enum kvt_status kvt_fragments_view(
	struct kvt_fragments *f, struct kvt_gpu *g, const struct kvt_fragment_place *place, uint32_t *view)
{
	struct kvt_gpu_layout layout = {.size = sizeof(layout), .axis_count = 2};
	void *layers[2 * LAYERS_MOST];
	struct kvt_fragment_place planes;
	struct kvt_gpu_parts parts;
	uint32_t each;
	int64_t none = 0;

	if (f == NULL || g == NULL || view == NULL || place == NULL || place->size < sizeof(*place))
		return KVT_EINVAL;
	planes = *place;
	planes.blocks = &none;
	planes.blocks_listed = 0;
	planes.slot = 0;
	if (!kvt_fragment_place_fits(&planes, &f->shape, 0))
		return KVT_EINVAL;
	each = planes_of(f);
	if (each == 2 && (f->shape.head != f->shape.value_head || !same_strides(&place->keys, &place->values)))
		return KVT_ENOTSUP;
	for (uint32_t i = 0; i < f->shape.layers; i++) {
		layers[each * i] = place->keys.layers[i];
		if (each == 2)
			layers[2 * i + 1] = place->values.layers[i];
	}
	layout.element_bytes = f->shape.values == KVT_FRAGMENT_F32 ? 4 : 2;
	layout.layer_count = each * f->shape.layers;
	layout.layers = layers;
	layout.axes[0] = (struct kvt_gpu_axis){f->shape.heads, place->keys.head};
	layout.axes[1] = (struct kvt_gpu_axis){f->shape.head, place->keys.value};
	layout.block_count = place->block_count;
	layout.block_stride = place->keys.block;
	parts = (struct kvt_gpu_parts){place->block_tokens, place->keys.token};
	return kvt_gpu_view_add(g, &layout, &parts, view);
}

/* Returns whether the view was made for this model and this place. */
static bool view_fits(const struct kvt_fragments *f, const struct kvt_gpu_paged *view, const struct kvt_fragment_place *place)
{
	uint32_t bytes = f->shape.values == KVT_FRAGMENT_F32 ? 4 : 2, each = planes_of(f);

	if (view == NULL || view->shape.layers != each * f->shape.layers || view->element != bytes ||
		view->row != f->shape.head * bytes || view->shape.block.by != f->shape.heads * view->row ||
		(each == 2 && f->shape.value_head != f->shape.head) || view->shape.parts.by != place->block_tokens ||
		place->block_count != view->id_count / view->shape.parts.by)
		return false;
	for (uint32_t i = 0; i < f->shape.layers; i++)
		if (view->layers[each * i] != (uint64_t)(uintptr_t)place->keys.layers[i] ||
			(each == 2 && view->layers[2 * i + 1] != (uint64_t)(uintptr_t)place->values.layers[i]))
			return false;
	return true;
}

static bool copy_fits(const struct kvt_fragments *f, struct kvt_gpu *g, const struct kvt_fragment_copy *copy, uint64_t *op,
	bool scatter)
{
	const struct kvt_fragment_piece *piece;

	if (f == NULL || g == NULL || op == NULL || copy == NULL || copy->size < sizeof(*copy) || copy->piece == NULL)
		return false;
	piece = copy->piece;
	return piece_fits(f, piece, copy->place, copy->segments, copy->segment_count, scatter ? piece->end : piece->tokens) &&
	       (!scatter || piece->skip < piece->end) && view_fits(f, kvt_gpu_view(g, copy->view), copy->place);
}

/* Begins to copy the tokens [skip, end) of a chunk. */
static enum kvt_status begin_copy(struct kvt_gpu *g, const struct kvt_fragment_copy *copy, uint32_t skip, uint32_t end,
	bool scatter, const struct kvt_gpu_turn *turn, uint64_t *op)
{
	const struct kvt_fragment_place *place = copy->place;
	struct kvt_segment *segments = malloc(copy->segment_count * sizeof(*segments));
	int64_t *ids = malloc((end - skip) * sizeof(*ids));
	struct kvt_gpu_job job = {
		.size = sizeof(job),
		.order = copy->order,
		.after = copy->after,
		.blocks = ids,
		.block_count = end - skip,
		.first = skip,
		.count = copy->piece->tokens,
		.segments = segments,
		.segment_count = copy->segment_count,
	};
	enum kvt_status status = KVT_ENOMEM;

	if (segments != NULL && ids != NULL) {
		memcpy(segments, copy->segments, copy->segment_count * sizeof(*segments));
		segments[0].base = (char *)segments[0].base + sizeof(struct kvt_fragment_head);
		segments[0].bytes -= sizeof(struct kvt_fragment_head);
		for (uint32_t i = skip; i < end; i++) {
			uint64_t slot = place->slot + i;

			ids[i - skip] = place->blocks[slot / place->block_tokens] * (int64_t)place->block_tokens +
				(int64_t)(slot % place->block_tokens);
		}
		status = kvt_gpu_view_begin(g, copy->view, &job, scatter, turn, op);
	}
	free(segments);
	free(ids);
	return status;
}

enum kvt_status kvt_fragments_gather_begin(
	struct kvt_fragments *f, struct kvt_gpu *g, const struct kvt_fragment_copy *copy, uint64_t *op)
{
	const struct kvt_fragment_piece *piece;
	struct kvt_fragment_head head;
	enum kvt_status status;

	if (!copy_fits(f, g, copy, op, false))
		return KVT_EINVAL;
	piece = copy->piece;
	kvt_fragment_head_make(&f->shape, piece->tokens, piece->first, piece->position, &head);
	memcpy(copy->segments[0].base, &head, sizeof(head));
	status = begin_copy(g, copy, 0, piece->tokens, false, NULL, op);
	if (status == KVT_OK)
		count_packed(f, piece);
	return status;
}

enum kvt_status kvt_fragments_scatter_begin(
	struct kvt_fragments *f, struct kvt_gpu *g, const struct kvt_fragment_copy *copy, uint64_t *op)
{
	const struct kvt_fragment_piece *piece;
	struct kvt_rope_turn turn;
	struct kvt_gpu_turn on_device;
	enum kvt_status status;
	int64_t distance;
	uint64_t turned;

	if (!copy_fits(f, g, copy, op, true))
		return KVT_EINVAL;
	piece = copy->piece;
	if (!piece_is_right(f, piece, copy->segments, &distance))
		return KVT_ECORRUPT;
	if (distance != 0)
		kvt_rope_turn_by(&f->rope, distance, &turn);
	on_device = (struct kvt_gpu_turn){
		.values = f->shape.values,
		.first_value = f->rope.offset,
		.pairs = f->rope.rotated / 2,
		.neighbours = f->rope.layout == KVT_ROPE_PAIRS,
		.layer_step = planes_of(f),
		.cosine = turn.cosine,
		.sine = turn.sine,
	};
	status = begin_copy(g, copy, piece->skip, piece->end, true, distance != 0 ? &on_device : NULL, op);
	turned = (uint64_t)(piece->end - piece->skip) * f->shape.layers * f->shape.heads * f->shape.head;
	if (status == KVT_OK)
		count_unpacked(f, piece, distance != 0 ? turned * (f->shape.values == KVT_FRAGMENT_F32 ? 4 : 2) : 0);
	return status;
}
