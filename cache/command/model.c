/*
 * model.c - computes bytes per token from a model's config.json.
 *
 * Every layer gets a kind and a shape: from a list with one word per layer if the file has one,
 * else by the rule of the model's family. Equal layers are then counted together, so that the sum
 * can be shown and checked by hand.
 */
#include "command/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command/layers.h"
#include "command/weights.h"
#include "base/read_file.h"

#define FILE_MOST (16u << 20)

static bool fail(char why[KVT_MODEL_WHY], const char *text)
{
	snprintf(why, KVT_MODEL_WHY, "%s", text);
	return false;
}

/* --- element types ---------------------------------------------------------------------------- */

static const struct {
	const char *name; /* the type's name in files and on the command line */
	const char *shown;
	uint32_t bytes;
} element_types[] = {
	{"bfloat16", "bfloat16", 2},
	{"bf16", "bfloat16", 2},
	{"float16", "float16", 2},
	{"fp16", "float16", 2},
	{"half", "float16", 2},
	{"float32", "float32", 4},
	{"fp32", "float32", 4},
	{"fp8", "fp8", 1},
	{"fp8_e4m3", "fp8", 1},
	{"fp8_e5m2", "fp8", 1},
	{"float8_e4m3fn", "fp8", 1},
};

static bool take_type(struct kvt_model *m, const char *name)
{
	if (strncmp(name, "torch.", 6) == 0)
		name += 6;
	for (size_t i = 0; i < sizeof(element_types) / sizeof(element_types[0]); i++) {
		if (strcmp(element_types[i].name, name) != 0)
			continue;
		snprintf(m->dtype, sizeof(m->dtype), "%s", element_types[i].shown);
		m->element_bytes = element_types[i].bytes;
		return true;
	}
	return false;
}

/* Returns whether the checkpoint was quantized together with its KV cache. */
static bool has_fp8_cache(const json_t *root)
{
	const json_t *quantization = json_object_get(root, "quantization_config");
	const json_t *scheme = json_object_get(quantization, "kv_cache_scheme");
	const char *algorithm =
		json_string_value(json_object_get(quantization, "kv_cache_quant_algo"));

	if (algorithm != NULL)
		return strcmp(algorithm, "FP8") == 0;
	return json_is_object(scheme) &&
	       json_integer_value(json_object_get(scheme, "num_bits")) == 8;
}

static const char *declared_type(const json_t *config)
{
	const char *name = json_string_value(json_object_get(config, "torch_dtype"));

	return name != NULL ? name : json_string_value(json_object_get(config, "dtype"));
}

static bool choose_type(struct kvt_model *m, const json_t *root, const json_t *text,
	const char *wanted, char why[KVT_MODEL_WHY])
{
	const char *declared = declared_type(text);

	if (wanted != NULL)
		return take_type(m, wanted) ||
		       fail(why, "the type must be one of bf16, fp16, fp32, fp8");
	if (has_fp8_cache(root))
		return take_type(m, "fp8");
	if (declared == NULL)
		declared = declared_type(root);
	if (declared != NULL && take_type(m, declared) && m->element_bytes == 2)
		return true;
	/* Engines load single precision as half precision, by default (vLLM's `auto`). */
	m->assumed = true;
	return take_type(m, "bfloat16");
}

/* --- sums ------------------------------------------------------------------------------------- */

bool kvt_model_divides(const struct kvt_model *m, uint32_t tensor)
{
	for (uint32_t i = 0; i < m->group_count && !m->latent; i++) {
		uint32_t heads = m->groups[i].heads;

		if (heads % tensor != 0 && tensor % heads != 0)
			return false;
	}
	return tensor > 0;
}

uint64_t kvt_model_token_bytes(const struct kvt_model *m, enum kvt_layer_kind kind, uint32_t tensor)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < m->group_count; i++) {
		const struct kvt_layer_group *g = &m->groups[i];
		uint64_t heads = g->heads > tensor ? g->heads / tensor : 1;

		if (g->kind == kind)
			bytes += g->count *
				 (heads * (g->key_dim + (uint64_t)g->value_dim) * m->element_bytes +
					 g->extra);
	}
	return bytes;
}

uint64_t kvt_model_context_bytes(const struct kvt_model *m, uint64_t tokens, uint32_t tensor)
{
	uint64_t windowed = tokens < m->window ? tokens : m->window;

	return kvt_model_token_bytes(m, KVT_LAYER_FULL, tensor) * tokens +
	       kvt_model_token_bytes(m, KVT_LAYER_WINDOW, tensor) * windowed;
}

/* --- the file --------------------------------------------------------------------------------- */

/* Returns the part of a multimodal model's file that describes text. */
static const json_t *text_part(const json_t *root)
{
	static const char *const names[] = {
		"thinker_config", "text_config", "llm_config", "language_config"};
	const json_t *part = root;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const json_t *inner = json_object_get(part, names[i]);

		if (json_is_object(inner))
			part = inner;
	}
	return part;
}

static void take_name(struct kvt_model *m, const json_t *root)
{
	const char *name =
		json_string_value(json_array_get(json_object_get(root, "architectures"), 0));

	if (name == NULL)
		name = json_string_value(json_object_get(root, "model_type"));
	snprintf(m->name, sizeof(m->name), "%s", name != NULL ? name : "model");
	for (char *c = m->name; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7F)
			*c = '?';
}

static bool read_root(
	const json_t *root, const char *dtype, struct kvt_model *m, char why[KVT_MODEL_WHY])
{
	const json_t *text = text_part(root);

	if (!json_is_object(root))
		return fail(why, "found no object, expected a model's config.json");
	if (json_is_true(json_object_get(root, "is_encoder_decoder")))
		return fail(
			why, "found an encoder-decoder model: its cache is not one of prefixes");
	take_name(m, root);
	if (!choose_type(m, root, text, dtype, why) || !kvt_layers_read(text, m, why))
		return false;
	kvt_weights_read(root, text, m);
	return true;
}

/* Replaces Infinity and NaN, which Python writes but JSON does not know; no number that is needed
 * here has such a value. */
static void repair_numbers(char *text, size_t len)
{
	static const char *const words[] = {"Infinity", "NaN"};
	bool quoted = false;

	for (size_t i = 0; i < len; i++) {
		if (quoted && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			quoted = !quoted;
		for (size_t w = 0; w < 2 && !quoted && i < len; w++) {
			size_t word = strlen(words[w]);

			if (len - i >= word && memcmp(text + i, words[w], word) == 0) {
				memset(text + i, ' ', word);
				text[i] = '0';
			}
		}
	}
}

bool kvt_model_parse(const char *text, size_t len, const char *dtype, struct kvt_model *out,
	char why[KVT_MODEL_WHY])
{
	struct kvt_model m = {0};
	char *copy = malloc(len + 1);
	json_error_t error;
	json_t *root;
	bool done;

	if (copy == NULL)
		return fail(why, "no memory");
	memcpy(copy, text, len);
	copy[len] = '\0';
	repair_numbers(copy, len);
	root = json_loadb(copy, len, JSON_REJECT_DUPLICATES, &error);
	free(copy);
	if (root == NULL) {
		snprintf(why, KVT_MODEL_WHY, "line %d, column %d: %s", error.line, error.column,
			error.text);
		return false;
	}
	done = read_root(root, dtype, &m, why);
	json_decref(root);
	if (done)
		*out = m;
	return done;
}

bool kvt_model_load(
	const char *path, const char *dtype, struct kvt_model *out, char why[KVT_MODEL_WHY])
{
	char inside[4096];
	struct stat info;
	size_t len = 0;
	char *text;
	bool done;

	if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
		int n = snprintf(inside, sizeof(inside), "%s/config.json", path);

		if (n < 0 || (size_t)n >= sizeof(inside))
			return fail(why, "too long a path");
		path = inside;
	}
	text = kvt_read_file(path, FILE_MOST, &len, why);
	if (text == NULL)
		return false;
	done = kvt_model_parse(text, len, dtype, out, why);
	free(text);
	return done;
}
