/*
 * weights.c - estimates parameters and operations from a model's config.json.
 *
 * The count of parameters comes from the shapes, without norms and biases: embeddings, attention,
 * and a network of two or three matrices in each layer; a mixture of experts has many networks and
 * a token meets a few. The count is within 2 % of the published numbers of models of this form.
 * Layers that keep a state count as if they had attention.
 */
#include "command/weights.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST ((json_int_t)1 << 32)

/* Returns the first of several names that has a number; 0: there is none. */
static double number(const json_t *in, const char *const *names)
{
	for (; *names != NULL; names++) {
		const json_t *value = json_object_get(in, *names);
		json_int_t n;

		if (json_is_array(value))
			value = json_array_get(value, 0);
		n = json_integer_value(value);
		if (json_is_integer(value) && n >= 1 && n <= MOST)
			return (double)n;
	}
	return 0;
}

#define NUMBER(in, ...) number(in, (const char *const[]){__VA_ARGS__, NULL})

/* --- parameters ------------------------------------------------------------------------------- */

static double hidden_of(const json_t *text)
{
	return NUMBER(text, "hidden_size", "n_embd", "d_model");
}

static double heads_of(const json_t *text)
{
	return NUMBER(text, "num_attention_heads", "n_head", "n_heads");
}

/* Return the number of elements of a query's head, and of a value's head. */
static double query_dim(const json_t *text)
{
	double latent = NUMBER(text, "qk_nope_head_dim") + NUMBER(text, "qk_rope_head_dim");
	double dim = NUMBER(text, "head_dim", "attention_head_dim", "kv_channels");

	if (NUMBER(text, "kv_lora_rank") > 0 && latent > 0)
		return latent;
	return dim > 0 ? dim : heads_of(text) > 0 ? hidden_of(text) / heads_of(text) : 0;
}

static double value_dim(const json_t *text)
{
	double dim = NUMBER(text, "v_head_dim");

	return dim > 0 ? dim : query_dim(text);
}

/* Weights of one layer. */
static double attention(const json_t *text, const struct kvt_model *m)
{
	double hidden = hidden_of(text), heads = heads_of(text), query = query_dim(text);
	double rank = NUMBER(text, "kv_lora_rank"), of_query = NUMBER(text, "q_lora_rank");
	double queries = of_query > 0 ? of_query * (hidden + heads * query) : hidden * heads * query;
	double out = heads * value_dim(text) * hidden, kv = heads;

	if (rank > 0)
		return queries + out + hidden * (rank + NUMBER(text, "qk_rope_head_dim")) +
		       rank * heads * (NUMBER(text, "qk_nope_head_dim") + value_dim(text));
	if (m->group_count > 0)
		kv = m->groups[0].heads;
	return queries + out + hidden * kv * (query + value_dim(text));
}

/* Returns the number of matrices in a layer's network: gate, in and out; older models have no
 * gate. */
static double matrices(const json_t *text)
{
	static const char *const without[] = {"gpt2", "gpt_neox", "gptj", "gpt_bigcode", "opt",
		"bloom", "falcon", "mpt", "phi", "starcoder2"};
	const char *type = json_string_value(json_object_get(text, "model_type"));

	for (size_t i = 0; type != NULL && i < sizeof(without) / sizeof(without[0]); i++)
		if (strcmp(type, without[i]) == 0)
			return 2;
	return 3;
}

/* Returns the parameters of all layers' networks, counting in each layer the experts that one token
 * uses, or all of them. */
static double networks(const json_t *text, double layers, bool all)
{
	double hidden = hidden_of(text), dense = NUMBER(text, "first_k_dense_replace");
	double inner = NUMBER(text, "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size");
	double experts = NUMBER(text, "num_experts", "num_local_experts", "n_routed_experts");
	double met = NUMBER(text, "num_experts_per_tok", "num_experts_per_token", "moe_topk");
	double of_expert = NUMBER(text, "moe_intermediate_size");
	double shared;

	if (inner == 0)
		inner = 4 * hidden;
	if (experts == 0)
		return layers * matrices(text) * hidden * inner;
	if (of_expert == 0)
		of_expert = inner;
	shared = NUMBER(text, "n_shared_experts") * of_expert +
		 NUMBER(text, "shared_expert_intermediate_size", "intermediate_size_mlp");
	if (dense > layers)
		dense = layers;
	return dense * matrices(text) * hidden * inner +
	       (layers - dense) * matrices(text) * hidden *
		       (shared + of_expert * (all || met == 0 ? experts : met));
}

/* --- bytes of one
 * ------------------------------------------------------------------------------ */

static double bits_of(const json_t *quantization)
{
	const char *method = json_string_value(json_object_get(quantization, "quant_method"));
	const json_t *groups = json_object_get(quantization, "config_groups");
	const json_t *weights =
		json_object_get(json_object_get(groups, "group_0"), "weights");
	double bits = NUMBER(quantization, "bits", "w_bit");

	if (bits == 0)
		bits = NUMBER(weights, "num_bits");
	if (bits == 0 && method != NULL && strstr(method, "fp8") != NULL)
		bits = 8;
	if (bits == 0 && method != NULL && strstr(method, "fp4") != NULL)
		bits = 4;
	if (bits == 0 && json_is_true(json_object_get(quantization, "load_in_4bit")))
		bits = 4;
	return bits;
}

void kvt_weights_read(const json_t *root, const json_t *text, struct kvt_model *m)
{
	const json_t *quantization = json_object_get(root, "quantization_config");
	double table = NUMBER(text, "vocab_size", "padded_vocab_size") * hidden_of(text), common;
	bool tied = json_is_true(json_object_get(text, "tie_word_embeddings")) ||
		    json_is_true(json_object_get(root, "tie_word_embeddings"));
	double bits;

	if (!json_is_object(quantization))
		quantization = json_object_get(text, "quantization_config");
	bits = bits_of(quantization);
	m->weight_bytes = bits > 0 ? bits / 8 : 2;
	if (hidden_of(text) == 0 || heads_of(text) == 0)
		return;
	common = m->layers * attention(text, m);
	m->parameters = table * (tied ? 1 : 2) + common + networks(text, m->layers, true);
	m->active = table + common + networks(text, m->layers, false);
	for (uint32_t i = 0; i < m->group_count; i++)
		if (m->groups[i].kind == KVT_LAYER_FULL)
			m->pair_flops += m->groups[i].count * heads_of(text) *
					 (query_dim(text) + value_dim(text));
}

/* --- files
 * ------------------------------------------------------------------------------------- */

static bool is_weights(const char *name)
{
	const char *end = strrchr(name, '.');

	/* Folders of Mistral models have all weights twice, the second time as consolidated*. */
	return end != NULL && strcmp(end, ".safetensors") == 0 &&
	       strncmp(name, "consolidated", 12) != 0;
}

uint64_t kvt_weights_files(const char *path)
{
	char folder[4096], file[4096 + 300];
	uint64_t bytes = 0;
	struct dirent *entry;
	struct stat st;
	char *slash;
	DIR *dir;

	if (snprintf(folder, sizeof(folder), "%s", path) >= (int)sizeof(folder))
		return 0;
	if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode)) {
		slash = strrchr(folder, '/');
		snprintf(slash != NULL ? slash : folder, 2, slash != NULL ? "" : ".");
	}
	dir = opendir(folder[0] != '\0' ? folder : "/");
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		snprintf(file, sizeof(file), "%s/%s", folder, entry->d_name);
		if (is_weights(entry->d_name) && stat(file, &st) == 0 && S_ISREG(st.st_mode))
			bytes += (uint64_t)st.st_size;
	}
	if (dir != NULL)
		closedir(dir);
	return bytes;
}
