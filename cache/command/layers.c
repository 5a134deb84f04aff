/*
 * layers.c - finds kind and shape of each layer of a model.
 *
 * Names and rules are those of configurations of the library transformers: `layer_types` where a
 * file has it; else `hybrid_override_pattern` (Nemotron-H), `layers_block_type`, `block_types`,
 * `attn_layer_period` (Jamba), `attn_layer_indices` (Bamba), `full_attention_interval`
 * (Qwen3-Next), `hybrid_layer_pattern` (MiMo), `sliding_window_pattern` (Gemma 3, Cohere 2), every
 * second layer (Gemma 2), `max_window_layers` (Qwen2), `no_rope_layers` (Llama 4).
 */
#include "command/layers.h"

#include <stdio.h>
#include <string.h>

#define LAYERS_MOST 4096
#define HEADS_MOST  16384
#define DIM_MOST    65536
#define WINDOW_MOST (1u << 30)

/* Kind of a layer, before layers are counted. */
enum kind { FULL, WINDOW, STATE };

/* Data about all layers, from the part of the file that describes text. */
struct shape {
	const json_t *text;
	const char *type; /* model_type; "" if absent */
	uint32_t layers, heads, kv_heads, head_dim, value_dim, window;
	/* number of layers, the last ones, that use other layers' keys and values */
	uint32_t shared;
};

static bool fail(char why[KVT_MODEL_WHY], const char *what, const char *expected)
{
	snprintf(why, KVT_MODEL_WHY, "%s: %s", what, expected);
	return false;
}

/* Returns the first of several names that has a number from 1 to `most`; 0: there is none. From a
 * list with one number per layer, the first is taken. */
static uint32_t number(const json_t *in, const char *const *names, uint64_t most)
{
	for (; *names != NULL; names++) {
		const json_t *value = json_object_get(in, *names);
		json_int_t n;

		if (json_is_array(value))
			value = json_array_get(value, 0);
		n = json_integer_value(value);
		if (json_is_integer(value) && n >= 1 && (uint64_t)n <= most)
			return (uint32_t)n;
	}
	return 0;
}

#define NUMBER(in, most, ...) number(in, (const char *const[]){__VA_ARGS__, NULL}, most)

static uint32_t read_kv_heads(const struct shape *s)
{
	const json_t *attention = json_object_get(s->text, "attn_config");
	uint32_t n = NUMBER(s->text, HEADS_MOST, "num_key_value_heads", "num_kv_heads", "n_head_kv",
		"multi_query_group_num", "num_query_groups");

	if (n == 0)
		n = NUMBER(attention, HEADS_MOST, "kv_n_heads");
	if (n == 0 && json_is_true(json_object_get(s->text, "multi_query")))
		n = 1;
	return n != 0 ? n : s->heads;
}

static bool read_shape(const json_t *text, struct shape *s, char why[KVT_MODEL_WHY])
{
	uint32_t hidden = NUMBER(text, 1u << 24, "hidden_size", "n_embd", "d_model");

	*s = (struct shape){.text = text, .type = ""};
	if (json_is_string(json_object_get(text, "model_type")))
		s->type = json_string_value(json_object_get(text, "model_type"));
	s->layers =
		NUMBER(text, LAYERS_MOST, "num_hidden_layers", "n_layer", "n_layers", "num_layers");
	s->heads = NUMBER(text, HEADS_MOST, "num_attention_heads", "n_head", "n_heads");
	if (s->layers == 0)
		return fail(why, "num_hidden_layers", "found none, expected the number of layers");
	if (s->heads == 0)
		return fail(why, "num_attention_heads", "found none, expected the number of heads");
	s->kv_heads = read_kv_heads(s);
	s->head_dim = NUMBER(text, DIM_MOST, "head_dim", "attention_head_dim", "kv_channels");
	if (s->head_dim == 0)
		s->head_dim = hidden / s->heads;
	if (s->head_dim == 0 || s->head_dim > DIM_MOST)
		return fail(why, "hidden_size", "found none, expected it, or head_dim");
	s->value_dim = NUMBER(text, DIM_MOST, "v_head_dim");
	if (s->value_dim == 0)
		s->value_dim = s->head_dim;
	s->window = NUMBER(text, WINDOW_MOST, "sliding_window", "attention_chunk_size",
		"sliding_window_size", "attention_window_size", "window_size");
	if (json_is_false(json_object_get(text, "use_sliding_window")))
		s->window = 0;
	s->shared = NUMBER(text, LAYERS_MOST, "num_kv_shared_layers");
	return s->shared < s->layers ||
	       fail(why, "num_kv_shared_layers", "found as many as layers, expected fewer");
}

/* --- kinds ------------------------------------------------------------------------------------ */

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* Returns the kind of a layer by its word in `layer_types` or a similar list. */
static enum kind kind_of_word(const char *word)
{
	if (begins(word, "sliding") || begins(word, "chunked") || begins(word, "local"))
		return WINDOW;
	if (begins(word, "full") || begins(word, "attention") || begins(word, "global") ||
		begins(word, "hybrid") || strcmp(word, "nope") == 0)
		return FULL;
	return STATE; /* other words: mamba, linear_attention, conv, recurrent, ... */
}

static const json_t *words_of(const struct shape *s)
{
	static const char *const names[] = {"layer_types", "layers_block_type", "block_types"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const json_t *words = json_object_get(s->text, names[i]);

		if (json_is_array(words) && json_array_size(words) > 0)
			return words;
	}
	return NULL;
}

/* Returns whether the layer is in a list of those with attention. */
static bool is_listed(const json_t *list, uint32_t layer)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (json_integer_value(json_array_get(list, i)) == (json_int_t)layer)
			return true;
	return false;
}

/* Returns whether the layer keeps a state instead of keys and values, for files without a list of
 * words. */
static bool is_state(const struct shape *s, uint32_t layer)
{
	const char *pattern =
		json_string_value(json_object_get(s->text, "hybrid_override_pattern"));
	const json_t *indices = json_object_get(s->text, "attn_layer_indices");
	uint32_t period = NUMBER(s->text, LAYERS_MOST, "attn_layer_period");
	uint32_t interval = NUMBER(s->text, LAYERS_MOST, "full_attention_interval");

	if (pattern != NULL)
		return layer >= strlen(pattern) || pattern[layer] != '*';
	if (json_is_array(indices))
		return !is_listed(indices, layer);
	if (period != 0)
		return layer % period != NUMBER(s->text, LAYERS_MOST, "attn_layer_offset") % period;
	return interval != 0 && (layer + 1) % interval != 0;
}

/* Returns whether the layer keeps a window, for files without a list of words. */
static bool is_window(const struct shape *s, uint32_t layer)
{
	const json_t *pattern = json_object_get(s->text, "hybrid_layer_pattern");
	const json_t *rotated = json_object_get(s->text, "no_rope_layers");
	uint32_t every = NUMBER(s->text, LAYERS_MOST, "sliding_window_pattern");
	uint32_t first = NUMBER(s->text, LAYERS_MOST, "max_window_layers");

	if (s->window == 0)
		return false;
	if (json_is_array(pattern))
		return json_integer_value(json_array_get(pattern, layer)) == 1;
	if (json_is_array(rotated) && json_array_size(rotated) > 0)
		return json_integer_value(json_array_get(rotated, layer)) == 1;
	if (begins(s->type, "llama4"))
		return (layer + 1) % 4 != 0;
	if (every == 0 && begins(s->type, "gemma3"))
		every = 6;
	if (every != 0)
		return (layer + 1) % every != 0;
	if (strcmp(s->type, "gemma2") == 0)
		return layer % 2 == 0;
	if (first != 0 && begins(s->type, "qwen"))
		return layer >= first;
	return true;
}

static enum kind kind_of(const struct shape *s, uint32_t layer)
{
	const json_t *words = words_of(s);
	const char *word;
	enum kind kind;

	if (words == NULL)
		return is_state(s, layer) ? STATE : is_window(s, layer) ? WINDOW : FULL;
	/* If the list is shorter than the model, it is repeated. */
	word = json_string_value(json_array_get(words, layer % json_array_size(words)));
	kind = word != NULL ? kind_of_word(word) : FULL;
	return kind == WINDOW && s->window == 0 ? FULL : kind;
}

/* --- shapes ----------------------------------------------------------------------------------- */

/* Finds the number of heads of a layer that has its own entry, as in models that a search has
 * pruned. Returns false if the layer has no attention. */
static bool block_heads(const struct shape *s, uint32_t layer, uint32_t *heads)
{
	const json_t *attention = json_object_get(
		json_array_get(json_object_get(s->text, "block_configs"), layer), "attention");
	uint32_t group = NUMBER(attention, HEADS_MOST, "n_heads_in_group");

	if (json_is_true(json_object_get(attention, "no_op")) ||
		json_is_true(json_object_get(attention, "replace_with_linear")))
		return false;
	if (group != 0)
		*heads = s->heads / group;
	return *heads > 0;
}

static void shape_of(const struct shape *s, enum kind kind, struct kvt_layer_group *g, bool *latent)
{
	uint32_t rank = NUMBER(s->text, DIM_MOST, "kv_lora_rank");
	uint32_t index = NUMBER(s->text, DIM_MOST, "index_head_dim");
	uint32_t heads, dim, value;

	*g = (struct kvt_layer_group){.kind = kind == WINDOW ? KVT_LAYER_WINDOW : KVT_LAYER_FULL,
		.count = 1,
		.heads = s->kv_heads,
		.key_dim = s->head_dim,
		.value_dim = s->value_dim};
	if (rank != 0) {
		*latent = true;
		g->heads = 1;
		g->key_dim = rank;
		g->value_dim = NUMBER(s->text, DIM_MOST, "qk_rope_head_dim");
		/* one byte for each element, and a scale of four bytes for every 128 elements */
		g->extra = index != 0 ? index + (index + 127) / 128 * 4 : 0;
		return;
	}
	heads = kind == WINDOW ? NUMBER(s->text, HEADS_MOST, "swa_num_key_value_heads")
			       : NUMBER(s->text, HEADS_MOST, "num_global_key_value_heads");
	dim = kind == WINDOW ? NUMBER(s->text, DIM_MOST, "swa_head_dim")
			     : NUMBER(s->text, DIM_MOST, "global_head_dim");
	value = kind == WINDOW ? NUMBER(s->text, DIM_MOST, "swa_v_head_dim") : 0;
	if (heads != 0)
		g->heads = heads;
	if (dim != 0)
		g->key_dim = g->value_dim = dim;
	if (value != 0)
		g->value_dim = value;
}

static bool count_in(struct kvt_model *m, const struct kvt_layer_group *g)
{
	for (uint32_t i = 0; i < m->group_count; i++) {
		struct kvt_layer_group *known = &m->groups[i];

		if (known->kind == g->kind && known->heads == g->heads &&
			known->key_dim == g->key_dim && known->value_dim == g->value_dim &&
			known->extra == g->extra) {
			known->count++;
			return true;
		}
	}
	if (m->group_count == KVT_MODEL_GROUPS)
		return false;
	m->groups[m->group_count++] = *g;
	return true;
}

bool kvt_layers_read(const json_t *text, struct kvt_model *m, char why[KVT_MODEL_WHY])
{
	struct kvt_layer_group g;
	struct shape s;

	if (!read_shape(text, &s, why))
		return false;
	m->layers = s.layers;
	m->context = NUMBER(text, UINT32_MAX, "max_position_embeddings", "n_positions",
		"max_seq_len", "seq_length", "max_sequence_length");
	m->shared_layers = s.shared;
	for (uint32_t layer = 0; layer < s.layers - s.shared; layer++) {
		enum kind kind = kind_of(&s, layer);

		if (kind != STATE)
			shape_of(&s, kind, &g, &m->latent);
		if (kind == STATE || !block_heads(&s, layer, &g.heads)) {
			m->state_layers++;
			continue;
		}
		if (kind == WINDOW)
			m->window = s.window;
		if (!count_in(m, &g))
			return fail(why, "layers", "found too many different ones to count");
	}
	return true;
}
