/*
 * rope_read.c - reads a model's config.json: how its keys turn with their position.
 *
 * The newer form has all numbers in `rope_parameters`, the older form has separate `rope_theta`,
 * `rope_scaling` and `partial_rotary_factor`; this file reads both, and the names of GPT-NeoX and
 * GPT-J. It refuses any unknown member that could change angles: a wrong turn damages answers
 * silently.
 */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "fragments/rope.h"
#include "fragments/scale.h"

struct model {
	const char *name;
	enum kvt_rope_layout layout;
	double theta, part;
	bool latent;
};

static const struct model models[] = {
#define KVT_ROPE_MODEL(name, layout, theta, part) {name, KVT_ROPE_##layout, theta, part, false},
#define KVT_ROPE_LATENT(name, layout, theta)      {name, KVT_ROPE_##layout, theta, 1, true},
#include "fragments/models.def"
#undef KVT_ROPE_MODEL
#undef KVT_ROPE_LATENT
};

/* State of reading a file. */
struct reading {
	json_t *text;  /* the part of the file for the language model; borrowed */
	json_t *turns; /* rope_parameters or rope_scaling, or NULL; borrowed */
	const struct model *model;
	struct kvt_rope_scale scale;
	struct kvt_rope rope;
	char *why; /* the caller's buffer of KVT_ROPE_TEXT bytes for the reason */
};

__attribute__((format(printf, 3, 4))) static enum kvt_status refuse(
	struct reading *r, enum kvt_status status, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(r->why, KVT_ROPE_TEXT, format, list);
	va_end(list);
	return status;
}

/* Reads a number, if `from` has it, which must be from `low` to `high`. */
static enum kvt_status number(
	struct reading *r, const json_t *from, const char *key, double low, double high, double *out)
{
	const json_t *value = json_object_get(from, key);
	double x;

	if (value == NULL || json_is_null(value))
		return KVT_OK;
	x = json_number_value(value);
	if (!json_is_number(value) || !(x >= low && x <= high))
		return refuse(r, KVT_EINVAL, "%s: expected a number from %g to %g", key, low, high);
	*out = x;
	return KVT_OK;
}

/* Reads a number that `from` must have. */
static enum kvt_status needed(
	struct reading *r, const json_t *from, const char *key, double low, double high, double *out)
{
	const json_t *value = json_object_get(from, key);

	if (value == NULL || json_is_null(value))
		return refuse(r, KVT_EINVAL, "%s is missing", key);
	return number(r, from, key, low, high, out);
}

static enum kvt_status find_model(struct reading *r)
{
	const char *name = json_string_value(json_object_get(r->text, "model_type"));

	if (name == NULL)
		return refuse(r, KVT_EINVAL, "model_type: expected a name");
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		if (strcmp(models[i].name, name) == 0) {
			r->model = &models[i];
			return KVT_OK;
		}
	}
	return refuse(r, KVT_ENOTSUP, "model_type %.40s: not among the models whose keys can be moved", name);
}

/* Refuses a file that has one of these names. The list ends with NULL. */
static enum kvt_status refuse_set(struct reading *r, const char *const *names)
{
	for (; *names != NULL; names++) {
		const json_t *value = json_object_get(r->text, *names);

		if (value != NULL && !json_is_null(value) && !json_is_false(value))
			return refuse(r, KVT_ENOTSUP, "%s: keys of such a model are not moved", *names);
	}
	return KVT_OK;
}

static enum kvt_status refuse_turns(struct reading *r, const char *const *names)
{
	for (; *names != NULL; names++)
		if (json_object_get(r->turns, *names) != NULL)
			return refuse(r, KVT_ENOTSUP, "%s: keys of such a model are not moved", *names);
	return KVT_OK;
}

/*
 * Refuses some models with latent keys. vLLM always turns neighbours, even if rope_interleave is
 * false, and always truncates YaRN's ramp, even if `truncate` is false; so vLLM computes a model
 * with such settings differently from its training, or not at all. An indexer (index_topk) has keys
 * of its own, which have positions, too.
 */
static enum kvt_status refuse_of_latent(struct reading *r)
{
	static const char *const of_model[] = {"index_topk", "index_n_heads", "index_head_dim", "compress_ratios",
		"llama_4_scaling", "rotary_dim", "rotary_pct", NULL};
	static const char *const of_turns[] = {"rope_dim", "is_deepseek_v4", NULL};
	const json_t *interleave = json_object_get(r->text, "rope_interleave");
	enum kvt_status status = refuse_set(r, of_model);

	if (status == KVT_OK)
		status = refuse_turns(r, of_turns);
	if (status == KVT_OK && interleave != NULL && !json_is_true(interleave))
		status = refuse(r, KVT_ENOTSUP, "rope_interleave: keys of such a model are not moved");
	if (status == KVT_OK && json_is_false(json_object_get(r->turns, "truncate")))
		status = refuse(r, KVT_ENOTSUP, "truncate: keys of such a model are not moved");
	return status;
}

/* Refuses keys that make angles depend on more than position * frequency. */
static enum kvt_status refuse_others(struct reading *r)
{
	static const char *const of_model[] = {"dual_chunk_attention_config", "rope_local_base_freq", "no_rope_layers",
		"no_rope_layer_interval", "global_rope_theta", "local_rope_theta", "alibi", NULL};
	/* keys that only models with latent keys have, also those that are not listed as such */
	static const char *const latent[] = {"q_lora_rank", "kv_lora_rank", NULL};
	static const char *const of_turns[] = {"mrope_section", "use_fope", "full_attention", "sliding_attention",
		"chunked_attention", "linear_attention", "short_factor", "mixed_b", NULL};
	enum kvt_status status = refuse_set(r, of_model);

	if (status == KVT_OK)
		status = r->model->latent ? refuse_of_latent(r) : refuse_set(r, latent);
	return status == KVT_OK ? refuse_turns(r, of_turns) : status;
}

static enum kvt_status read_scheme(struct reading *r)
{
	enum { OTHERS = 1, LATENT = 2 };
	static const struct {
		const char *name;
		enum kvt_rope_scheme scheme;
		int models;
	/* the name that vLLM gives the scheme after it has read the model */
	} schemes[] = {{"default", KVT_ROPE_PLAIN, OTHERS | LATENT}, {"linear", KVT_ROPE_LINEAR, OTHERS},
		{"ntk", KVT_ROPE_NTK, OTHERS}, {"yarn", KVT_ROPE_YARN, OTHERS | LATENT}, {"llama3", KVT_ROPE_LLAMA3, OTHERS},
		{"deepseek_yarn", KVT_ROPE_YARN, LATENT}};
	int mine = r->model->latent ? LATENT : OTHERS;
	const json_t *value = json_object_get(r->turns, "rope_type");
	const char *name;

	if (value == NULL)
		value = json_object_get(r->turns, "type");
	if (value == NULL && json_object_get(r->turns, "factor") == NULL)
		return KVT_OK; /* PLAIN */
	name = json_string_value(value);
	if (name == NULL)
		return refuse(r, KVT_EINVAL, "rope_type: expected a name");
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
		if ((schemes[i].models & mine) != 0 && strcmp(schemes[i].name, name) == 0) {
			r->scale.scheme = schemes[i].scheme;
			return KVT_OK;
		}
	}
	return refuse(r, KVT_ENOTSUP, "rope_type %.40s: its angles depend on more than the distance, or are not known", name);
}

static enum kvt_status read_scale(struct reading *r)
{
	struct kvt_rope_scale *s = &r->scale;
	const json_t *truncate = json_object_get(r->turns, "truncate");
	enum kvt_status status = read_scheme(r);

	if (status != KVT_OK || s->scheme == KVT_ROPE_PLAIN)
		return status;
	status = needed(r, r->turns, "factor", 1, 1e6, &s->factor);
	if (status != KVT_OK || s->scheme == KVT_ROPE_LINEAR || s->scheme == KVT_ROPE_NTK)
		return status;
	status = needed(r, r->turns, "original_max_position_embeddings", 1, 1e9, &s->original);
	if (status != KVT_OK)
		return status;
	if (s->scheme == KVT_ROPE_LLAMA3) {
		status = needed(r, r->turns, "low_freq_factor", 1e-3, 1e6, &s->low);
		if (status == KVT_OK)
			status = needed(r, r->turns, "high_freq_factor", s->low, 1e6, &s->high);
		return status;
	}
	s->beta_fast = 32;
	s->beta_slow = 1;
	s->truncate = !json_is_false(truncate);
	if (truncate != NULL && !json_is_boolean(truncate))
		return refuse(r, KVT_EINVAL, "truncate: expected true or false");
	status = number(r, r->turns, "beta_fast", 1e-3, 1e6, &s->beta_fast);
	if (status == KVT_OK)
		status = number(r, r->turns, "beta_slow", 1e-3, s->beta_fast, &s->beta_slow);
	return status;
}

static enum kvt_status read_theta(struct reading *r)
{
	enum kvt_status status;

	r->scale.theta = r->model->theta;
	status = number(r, r->text, "rotary_emb_base", 1.001, 1e12, &r->scale.theta); /* GPT-NeoX */
	if (status == KVT_OK)
		status = number(r, r->text, "rope_theta", 1.001, 1e12, &r->scale.theta);
	if (status == KVT_OK)
		status = number(r, r->turns, "rope_theta", 1.001, 1e12, &r->scale.theta);
	if (status == KVT_OK && r->scale.theta == 0)
		status = refuse(r, KVT_EINVAL, "rope_theta is missing");
	return status;
}

/* Reads sizes of a latent vector, which has no position, and of a rotary key, of which all values
 * turn. */
static enum kvt_status read_latent(struct reading *r)
{
	double latent = 0, key = 0, part = 1;
	enum kvt_status status = needed(r, r->text, "kv_lora_rank", 1, KVT_ROPE_HEAD_MAX, &latent);

	if (status == KVT_OK)
		status = needed(r, r->text, "qk_rope_head_dim", 2, KVT_ROPE_HEAD_MAX, &key);
	if (status == KVT_OK)
		status = number(r, r->text, "partial_rotary_factor", 1e-3, 1, &part);
	if (status == KVT_OK)
		status = number(r, r->turns, "partial_rotary_factor", 1e-3, part, &part);
	if (status != KVT_OK)
		return status;
	if (part < 1)
		return refuse(r, KVT_ENOTSUP, "partial_rotary_factor: keys of such a model are not moved");
	if (latent != floor(latent) || fmod(key, 2) != 0 || latent + key > KVT_ROPE_HEAD_MAX)
		return refuse(r, KVT_EINVAL, "kv_lora_rank %g and qk_rope_head_dim %g: expected whole numbers, an even second one, and "
			"at most %d together", latent, key, KVT_ROPE_HEAD_MAX);
	r->rope.head = (uint32_t)(latent + key);
	r->rope.offset = (uint32_t)latent;
	r->rope.rotated = (uint32_t)key;
	r->rope.latent = true;
	return KVT_OK;
}

/* Reads the size of a head, and how many of its values turn. */
static enum kvt_status read_head(struct reading *r)
{
	double head = 0, part = r->model->part, values = 0;
	enum kvt_status status = number(r, r->text, "head_dim", 2, KVT_ROPE_HEAD_MAX, &head);

	if (status == KVT_OK && head == 0) {
		bool gptj = json_object_get(r->text, "n_embd") != NULL;
		double width = 0, heads = 0;

		status = needed(r, r->text, gptj ? "n_embd" : "hidden_size", 2, 1e7, &width);
		if (status == KVT_OK)
			status = needed(r, r->text, gptj ? "n_head" : "num_attention_heads", 1, 1e5, &heads);
		if (status == KVT_OK)
			head = floor(width / heads);
	}
	if (status == KVT_OK)
		status = number(r, r->text, "rotary_pct", 1e-3, 1, &part);
	if (status == KVT_OK)
		status = number(r, r->text, "partial_rotary_factor", 1e-3, 1, &part);
	if (status == KVT_OK)
		status = number(r, r->turns, "partial_rotary_factor", 1e-3, 1, &part);
	if (status == KVT_OK)
		status = number(r, r->text, "rotary_dim", 2, KVT_ROPE_HEAD_MAX, &values);
	if (status == KVT_OK)
		status = number(r, r->turns, "rope_dim", 2, KVT_ROPE_HEAD_MAX, &values);
	if (status != KVT_OK)
		return status;
	if (values == 0)
		values = floor(head * part);
	if (head != floor(head) || head < 2 || head > KVT_ROPE_HEAD_MAX)
		return refuse(r, KVT_EINVAL, "a head of %g values: expected 2 to %d", head, KVT_ROPE_HEAD_MAX);
	if (values > head || values < 2 || fmod(values, 2) != 0)
		return refuse(r, KVT_EINVAL, "%g of %g values of a head turn: expected an even number of them", values, head);
	r->rope.head = (uint32_t)head;
	r->rope.rotated = (uint32_t)values;
	return KVT_OK;
}

static enum kvt_status read_all(struct reading *r, json_t *root)
{
	enum kvt_status status;

	if (!json_is_object(root))
		return refuse(r, KVT_EINVAL, "expected an object");
	r->text = json_object_get(root, "text_config");
	if (!json_is_object(r->text))
		r->text = root;
	r->turns = json_object_get(r->text, "rope_parameters");
	if (r->turns == NULL || json_is_null(r->turns))
		r->turns = json_object_get(r->text, "rope_scaling");
	if (r->turns != NULL && !json_is_null(r->turns) && !json_is_object(r->turns))
		return refuse(r, KVT_EINVAL, "rope_parameters or rope_scaling: expected an object");
	status = find_model(r);
	if (status == KVT_OK)
		status = refuse_others(r);
	if (status == KVT_OK)
		status = read_scale(r);
	if (status == KVT_OK)
		status = read_theta(r);
	if (status == KVT_OK)
		status = r->model->latent ? read_latent(r) : read_head(r);
	return status;
}

enum kvt_status kvt_rope_read(const char *json, size_t bytes, struct kvt_rope *out, char *why)
{
	struct reading r = {.why = why};
	json_error_t error;
	json_t *root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &error);
	enum kvt_status status;

	if (root == NULL) {
		if (json_error_code(&error) == json_error_out_of_memory)
			return KVT_ENOMEM;
		return refuse(&r, KVT_EINVAL, "line %d: %.100s", error.line, error.text);
	}
	status = read_all(&r, root);
	if (status == KVT_OK) {
		r.rope.layout = r.model->layout;
		kvt_rope_scale(&r.scale, r.rope.rotated, r.rope.frequency);
		*out = r.rope;
	}
	json_decref(root);
	return status;
}
