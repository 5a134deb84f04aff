/*
 * model.h - computes from a model's config.json how many bytes of keys and values each token needs.
 *
 * The reader understands files of Hugging Face's transformers: attention with grouped heads, latent
 * attention (MLA), sliding and chunked windows, layers without attention (Mamba, linear attention,
 * convolution), layers that share another layer's keys and values, and text models inside
 * multimodal ones. Layers without attention keep a state of fixed size for each sequence, which
 * does not depend on tokens and is not counted.
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
	KVT_LAYER_WINDOW, /* the layer keeps the last `window` tokens */
};

/* A group of layers that need equally many bytes for a token. */
struct kvt_layer_group {
	enum kvt_layer_kind kind;
	uint32_t count;
	uint32_t heads;     /* number of heads of keys and values; 1 for latent attention */
	uint32_t key_dim;   /* number of elements; for latent attention, of the compressed vector */
	uint32_t value_dim; /* for latent attention: elements of the rotated part */
	uint32_t extra;     /* bytes of the keys of a sparse attention's indexer */
};

struct kvt_model {
	char name[96]; /* "Qwen2ForCausalLM", or the type of the model */
	uint32_t layers;
	uint32_t state_layers;  /* number of layers that keep a state instead */
	uint32_t shared_layers; /* number of layers that use another layer's keys and values */
	uint32_t window;        /* tokens; 0: no such layer */
	/* MLA: each rank of a tensor-parallel group keeps the same values, not a part of them */
	bool latent;
	struct kvt_layer_group groups[KVT_MODEL_GROUPS];
	uint32_t group_count;
	uint32_t element_bytes;
	char dtype[24];   /* type of keys and values */
	bool assumed;     /* the dtype is the one that engines choose, since the file has none */
	uint64_t context; /* in tokens, max_position_embeddings; 0: the file has none */
	/* Set by kvt_weights_read. 0: the file has too little data. */
	double parameters;   /* parameters of all experts */
	double active;       /* parameters that a token meets */
	double weight_bytes; /* bytes of one parameter */
	/* operations of attention in layers that keep all tokens, for a prompt of one token; for n
	 * tokens, n * n times as many */
	double pair_flops;
};

/*
 * Reads a file, or the config.json in a folder. `dtype` is "bf16", "fp16", "fp32" or "fp8"; NULL:
 * as in the file. Returns false on failure; then `why` has one line.
 */
bool kvt_model_load(
	const char *path, const char *dtype, struct kvt_model *out, char why[KVT_MODEL_WHY]);

/* Reads a model from a text. */
bool kvt_model_parse(const char *text, size_t len, const char *dtype, struct kvt_model *out,
	char why[KVT_MODEL_WHY]);

/* Returns the bytes that a rank keeps for each token in layers of a kind; `tensor` ranks share the
 * heads. */
uint64_t kvt_model_token_bytes(
	const struct kvt_model *m, enum kvt_layer_kind kind, uint32_t tensor);

/* Returns the bytes for a context of that many tokens; a layer with a window keeps no more than its
 * window. */
uint64_t kvt_model_context_bytes(const struct kvt_model *m, uint64_t tokens, uint32_t tensor);

/* Returns false if that many ranks cannot share the heads. */
bool kvt_model_divides(const struct kvt_model *m, uint32_t tensor);

#endif
