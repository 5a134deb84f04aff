/*
 * value.c - copies a fragment's chunk from an engine's paged cache, and into it.
 *
 * The copy proceeds in runs of tokens that are in one block. A run without gaps in the paged cache
 * is one copy, or one turn of all its heads; any other run is copied token by token, head by head,
 * or, where even a head's values are apart (as in keys of attention on CPUs), value by value.
 */
#include <string.h>

#include "fragments/value.h"

#define MOST_BYTES (((uint64_t)1 << 32) - 1)
#define MOST_HEAD  (KVT_ROPE_HEAD_MAX * 4) /* bytes of a head */

static uint32_t bytes_of_value(uint32_t values)
{
	return values == KVT_FRAGMENT_F32 ? 4 : 2;
}

uint64_t kvt_fragment_value_bytes(const struct kvt_fragment_shape *shape, uint32_t tokens)
{
	uint64_t token = ((uint64_t)shape->head + shape->value_head) * shape->heads * bytes_of_value(shape->values);
	uint64_t most = (MOST_BYTES - sizeof(struct kvt_fragment_head)) / (token * shape->layers);

	return tokens == 0 || tokens > most ? 0 : sizeof(struct kvt_fragment_head) + token * shape->layers * tokens;
}

void kvt_fragment_head_make(const struct kvt_fragment_shape *shape, uint32_t tokens, uint64_t first, uint64_t position,
	struct kvt_fragment_head *out)
{
	*out = (struct kvt_fragment_head){
		.magic = KVT_FRAGMENT_MAGIC,
		.version = KVT_FRAGMENT_VERSION,
		.tokens = tokens,
		.position = position,
		.first = first,
		.values = shape->values,
		.layers = shape->layers,
		.heads = shape->heads,
		.head = shape->head,
		.value_head = shape->value_head,
	};
	memcpy(out->model, shape->model, sizeof(out->model));
}

enum kvt_fragment_refusal kvt_fragment_head_check(const struct kvt_fragment_head *head,
	const struct kvt_fragment_shape *shape, uint32_t tokens, uint64_t first)
{
	struct kvt_fragment_head want;

	kvt_fragment_head_make(shape, tokens, first, head->position, &want);
	if (head->magic != want.magic || head->version != want.version || memcmp(head->zero, want.zero, sizeof(want.zero)) != 0 ||
		head->position > INT64_MAX)
		return KVT_FRAGMENT_HEADER;
	if (head->tokens != tokens || head->first != first)
		return KVT_FRAGMENT_TOKENS;
	return memcmp(head, &want, sizeof(want)) == 0 ? KVT_FRAGMENT_REFUSALS : KVT_FRAGMENT_MODEL;
}

static bool plane_fits(const struct kvt_fragment_plane *plane, uint32_t layers)
{
	for (uint32_t i = 0; plane->layers != NULL && i < layers; i++)
		if (plane->layers[i] == NULL)
			return false;
	return plane->layers != NULL;
}

bool kvt_fragment_place_fits(const struct kvt_fragment_place *place, const struct kvt_fragment_shape *shape, size_t tokens)
{
	if (place == NULL || place->size < sizeof(*place) || place->block_tokens == 0 || place->blocks == NULL ||
		!plane_fits(&place->keys, shape->layers) ||
		(shape->value_head > 0 && !plane_fits(&place->values, shape->layers)))
		return false;
	if (place->blocks_listed > UINT64_MAX / place->block_tokens || place->slot > UINT64_MAX - tokens ||
		place->slot + tokens > place->blocks_listed * (uint64_t)place->block_tokens)
		return false;
	for (uint64_t i = place->slot / place->block_tokens; i * place->block_tokens < place->slot + tokens; i++)
		if (place->blocks[i] < 0 || (uint64_t)place->blocks[i] >= place->block_count)
			return false;
	return true;
}

/* --- the chunk's side: consecutive bytes ------------------------------------------------------ */

struct cursor {
	const struct kvt_segment *segment;
	uint64_t at; /* byte of the segment */
};

static void go_on(struct cursor *c, uint64_t bytes)
{
	while (bytes > 0) {
		uint64_t left = c->segment->bytes - c->at, n = bytes < left ? bytes : left;

		c->at += n;
		bytes -= n;
		if (c->at == c->segment->bytes) {
			c->segment++;
			c->at = 0;
		}
	}
}

/* Returns the address of the next bytes, or NULL if a segment ends within them. */
static char *whole(const struct cursor *c, uint64_t bytes)
{
	return c->segment->bytes - c->at >= bytes ? (char *)c->segment->base + c->at : NULL;
}

/* Copies bytes, which may cross segments, and moves the cursor past them. */
static void carry(struct cursor *c, void *memory, uint64_t bytes, bool out)
{
	while (bytes > 0) {
		uint64_t left = c->segment->bytes - c->at, n = bytes < left ? bytes : left;
		char *here = (char *)c->segment->base + c->at;

		if (out)
			memcpy(memory, here, n);
		else
			memcpy(here, memory, n);
		memory = (char *)memory + n;
		bytes -= n;
		go_on(c, n);
	}
}

/* --- the paged side --------------------------------------------------------------------------- */

/* Either all keys or all values of one layer. */
struct side {
	const struct kvt_fragment_plane *plane;
	const struct kvt_fragment_place *place;
	char *base;
	uint32_t heads, head, value_bytes;
	enum kvt_rope_values values;
	const struct kvt_rope_turn *turn; /* NULL: none */
};

static char *token_at(const struct side *s, uint64_t slot)
{
	const struct kvt_fragment_place *place = s->place;

	return s->base + place->blocks[slot / place->block_tokens] * s->plane->block +
	       (int64_t)(slot % place->block_tokens) * s->plane->token;
}

static uint64_t head_bytes(const struct side *s)
{
	return (uint64_t)s->head * s->value_bytes;
}

/* Returns how many heads from here on have no gap between them: 1, all of a token, or all of a run
 * of tokens; 0: even the values of a head are apart. */
static uint64_t heads_together(const struct side *s, uint64_t tokens)
{
	if (s->plane->value != (int64_t)s->value_bytes && s->head > 1)
		return 0;
	if (s->plane->head != (int64_t)head_bytes(s) && s->heads > 1)
		return 1;
	return s->plane->token == (int64_t)(s->heads * head_bytes(s)) ? tokens * s->heads : s->heads;
}

/* Copies a head whose values are apart, from or to `row`. */
static void spread(const struct side *s, char *paged, char *row, bool scatter)
{
	for (uint32_t i = 0; i < s->head; i++, paged += s->plane->value, row += s->value_bytes) {
		if (s->value_bytes == 4)
			memcpy(scatter ? paged : row, scatter ? row : paged, 4);
		else
			memcpy(scatter ? paged : row, scatter ? row : paged, 2);
	}
}

static void turn_or_copy(const struct side *s, void *to, const void *from, uint64_t heads)
{
	if (s->turn != NULL)
		kvt_rope_move(s->turn, s->values, to, from, heads);
	else if (to != from)
		memcpy(to, from, heads * head_bytes(s));
}

/* Copies `heads` heads without a gap in the paged cache. */
static void pass(const struct side *s, struct cursor *c, char *paged, uint64_t heads, bool scatter)
{
	uint64_t bytes = heads * head_bytes(s);
	char *flat = whole(c, bytes);

	if (!scatter) {
		carry(c, paged, bytes, false);
		return;
	}
	if (flat != NULL) {
		turn_or_copy(s, paged, flat, heads);
		go_on(c, bytes);
		return;
	}
	carry(c, paged, bytes, true);
	turn_or_copy(s, paged, paged, heads);
}

static void pass_head(const struct side *s, struct cursor *c, char *paged, bool scatter)
{
	_Alignas(64) char row[MOST_HEAD];

	if (!scatter) {
		spread(s, paged, row, false);
		carry(c, row, head_bytes(s), false);
		return;
	}
	carry(c, row, head_bytes(s), true);
	turn_or_copy(s, row, row, 1);
	spread(s, paged, row, true);
}

/* Copies `tokens` tokens of one block. */
static void pass_run(const struct side *s, struct cursor *c, uint64_t slot, uint64_t tokens, bool scatter)
{
	uint64_t together = heads_together(s, tokens);

	if (together == tokens * s->heads) {
		pass(s, c, token_at(s, slot), together, scatter);
		return;
	}
	for (; tokens > 0; tokens--, slot++) {
		char *paged = token_at(s, slot);

		if (together == s->heads) {
			pass(s, c, paged, together, scatter);
			continue;
		}
		for (uint32_t h = 0; h < s->heads; h++, paged += s->plane->head) {
			if (together == 1)
				pass(s, c, paged, 1, scatter);
			else
				pass_head(s, c, paged, scatter);
		}
	}
}

static void pass_side(const struct side *s, struct cursor *c, uint64_t slot, uint64_t tokens, bool scatter)
{
	while (tokens > 0) {
		uint64_t left = s->place->block_tokens - slot % s->place->block_tokens, n = tokens < left ? tokens : left;

		pass_run(s, c, slot, n, scatter);
		slot += n;
		tokens -= n;
	}
}

/* Returns the last side of a layer. Side 1 has the keys, side 0 the values, which latent keys do
 * not have. */
static int last_side(const struct kvt_fragment_shape *shape)
{
	return shape->value_head > 0 ? 0 : 1;
}

static struct side side_of(const struct kvt_fragment_shape *shape, const struct kvt_fragment_place *place, uint32_t layer,
	bool keys, const struct kvt_rope_turn *turn)
{
	const struct kvt_fragment_plane *plane = keys ? &place->keys : &place->values;

	return (struct side){
		.plane = plane,
		.place = place,
		.base = plane->layers[layer],
		.heads = shape->heads,
		.head = keys ? shape->head : shape->value_head,
		.value_bytes = bytes_of_value(shape->values),
		.values = (enum kvt_rope_values)shape->values,
		.turn = keys ? turn : NULL,
	};
}

void kvt_fragment_pack(const struct kvt_fragment_shape *shape, const struct kvt_fragment_head *head,
	const struct kvt_fragment_place *place, uint64_t offset, const struct kvt_fragment_bytes *to)
{
	struct kvt_fragment_head copy = *head;
	struct cursor c = {to->segments, 0};

	carry(&c, &copy, sizeof(copy), false);
	for (uint32_t layer = 0; layer < shape->layers; layer++) {
		for (int keys = 1; keys >= last_side(shape); keys--) {
			struct side s = side_of(shape, place, layer, keys != 0, NULL);

			pass_side(&s, &c, place->slot + offset, head->tokens, false);
		}
	}
}

uint64_t kvt_fragment_unpack(const struct kvt_fragment_shape *shape, const struct kvt_rope_turn *turn, uint32_t tokens,
	uint32_t skip, uint32_t end, const struct kvt_fragment_place *place, uint64_t offset,
	const struct kvt_fragment_bytes *from)
{
	struct cursor c = {from->segments, 0};
	uint64_t turned = 0;

	go_on(&c, sizeof(struct kvt_fragment_head));
	for (uint32_t layer = 0; layer < shape->layers; layer++) {
		for (int keys = 1; keys >= last_side(shape); keys--) {
			struct side s = side_of(shape, place, layer, keys != 0, turn);

			go_on(&c, skip * s.heads * head_bytes(&s));
			pass_side(&s, &c, place->slot + offset + skip, end - skip, true);
			go_on(&c, (tokens - end) * s.heads * head_bytes(&s));
			turned += s.turn != NULL ? (uint64_t)(end - skip) * s.heads * head_bytes(&s) : 0;
		}
	}
	return turned;
}
