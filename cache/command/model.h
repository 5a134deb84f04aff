/*
 * model.h - the keys and values that a model keeps for each token, by its config.json.
 *
 * The reader understands files of Hugging Face's transformers: attention with grouped heads, latent attention (MLA),
 * sliding and chunked windows, layers without attention (Mamba, linear attention, convolution), layers that share
 * another layer's keys and values, and text models inside multimodal ones. Layers without attention keep a state of
 * fixed size for each sequence, which does not depend on tokens and is not counted.
 */
#ifndef KVT_MODEL_H
#define KVT_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#define KVT_MODEL_GROUPS 16
#define KVT_MODEL_WHY    240 /* room for the reason why a file cannot be used */

enum kvt_layer_kind {
	KVT_LAYER_FULL,   /* keeps every token */
	KVT_LAYER_WINDOW, /* keeps the last `window` tokens */
};

/* Layers with equal bytes for a token. */
struct kvt_layer_group {
	enum kvt_layer_kind kind;
	uint32_t count;
	uint32_t heads;     /* heads of keys and values; 1 for latent attention */
	uint32_t key_dim;   /* elements; latent attention: the compressed vector */
	uint32_t value_dim; /* latent attention: the rotated part */
	uint32_t extra;     /* bytes of the keys of a sparse attention's indexer */
};

struct kvt_model {
	char name[96]; /* "Qwen2ForCausalLM", or the model's type */
	uint32_t layers;
	uint32_t state_layers;  /* layers that keep a state instead */
	uint32_t shared_layers; /* layers that use another layer's keys and values */
	uint32_t window;        /* tokens; 0: no such layer */
	bool latent;            /* MLA: every rank of a tensor-parallel group keeps the same values */
	struct kvt_layer_group groups[KVT_MODEL_GROUPS];
	uint32_t group_count;
	uint32_t element_bytes;
	char dtype[24];   /* type of keys and values */
	bool assumed;     /* the dtype is an engine's choice, not the file's */
	uint64_t context; /* tokens, max_position_embeddings; 0: absent */
	/* Set by weights.h. 0: the file has too little data. */
	double parameters;   /* parameters of all experts */
	double active;       /* parameters that a token meets */
	double weight_bytes; /* bytes of one parameter */
	double pair_flops;   /* operations of attention in full layers, per square of a prompt's tokens */
};

/*
 * Reads a file, or the config.json in a folder. `dtype`: "bf16", "fp16", "fp32", "fp8"; NULL: the file's. False: `why`
 * has one line.
 */
bool kvt_model_load(
	const char *path, const char *dtype, struct kvt_model *out, char why[KVT_MODEL_WHY]);

/* Reads a model from a text. */
bool kvt_model_parse(const char *text, size_t len, const char *dtype, struct kvt_model *out,
	char why[KVT_MODEL_WHY]);

/* Bytes that a rank keeps for each token in layers of a kind; `tensor` ranks share the heads. */
uint64_t kvt_model_token_bytes(
	const struct kvt_model *m, enum kvt_layer_kind kind, uint32_t tensor);

/* Bytes of a context of that many tokens: windows count up to their length. */
uint64_t kvt_model_context_bytes(const struct kvt_model *m, uint64_t tokens, uint32_t tensor);

/* False: that many ranks cannot share the heads. */
bool kvt_model_divides(const struct kvt_model *m, uint32_t tensor);

#endif
