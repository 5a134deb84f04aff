/*
 * model_test.c - bytes per token of models as they are published.
 *
 * Files are cut down to the keys that count; the sums in the comments are those of the engines.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command/advice.h"
#include "command/format.h"
#include "command/model.h"
#include "tests/unit/suite.h"

struct row {
	const char *name;
	const char *text;
	uint64_t full, window; /* bytes per token */
	uint32_t window_tokens, state_layers;
};

#define LLAMA4_SCOUT                                                                               \
	"{\"architectures\": [\"Llama4ForConditionalGeneration\"], \"text_config\": {"             \
	"\"model_type\": \"llama4_text\", \"num_hidden_layers\": 48, \"num_attention_heads\": 40," \
	"\"num_key_value_heads\": 8, \"head_dim\": 128, \"hidden_size\": 5120,"                    \
	"\"attention_chunk_size\": 8192, \"no_rope_layers\": [], \"torch_dtype\": \"bfloat16\"},"  \
	"\"vision_config\": {\"num_hidden_layers\": 34}}"

static const struct row rows[] = {
	/* grouped heads: 2 x layers x heads x dim x 2 bytes */
	{"Qwen2.5-1.5B",
		"{\"model_type\": \"qwen2\", \"hidden_size\": 1536, \"num_attention_heads\": 12,"
		"\"num_hidden_layers\": 28, \"num_key_value_heads\": 2, \"sliding_window\": 32768,"
		"\"use_sliding_window\": false, \"max_window_layers\": 21,"
		"\"torch_dtype\": \"bfloat16\"}",
		28 * 1024, 0, 0, 0},
	{"Qwen2.5-7B",
		"{\"model_type\": \"qwen2\", \"hidden_size\": 3584, \"num_attention_heads\": 28,"
		"\"num_hidden_layers\": 28, \"num_key_value_heads\": 4, \"sliding_window\": 131072,"
		"\"use_sliding_window\": false, \"max_window_layers\": 28,"
		"\"torch_dtype\": \"bfloat16\"}",
		56 * 1024, 0, 0, 0},
	{"Qwen2.5-72B",
		"{\"model_type\": \"qwen2\", \"hidden_size\": 8192, \"num_attention_heads\": 64,"
		"\"num_hidden_layers\": 80, \"num_key_value_heads\": 8, \"torch_dtype\":"
		"\"bfloat16\"}",
		320 * 1024, 0, 0, 0},
	{"Llama-3.1-8B",
		"{\"model_type\": \"llama\", \"hidden_size\": 4096, \"num_attention_heads\": 32,"
		"\"num_hidden_layers\": 32, \"num_key_value_heads\": 8, \"torch_dtype\":"
		"\"bfloat16\"}",
		128 * 1024, 0, 0, 0},
	{"all heads have their own",
		"{\"n_embd\": 768, \"n_head\": 12, \"n_layer\": 12, \"model_type\": \"gpt2\"}",
		12 * 12 * 128 * 2, 0, 0, 0},
	{"Falcon-7B",
		"{\"hidden_size\": 4544, \"num_attention_heads\": 71, \"num_hidden_layers\": 32,"
		"\"multi_query\": true, \"torch_dtype\": \"bfloat16\"}",
		32 * 128 * 2, 0, 0, 0},
	/* head_dim that is not hidden_size / heads */
	{"Qwen3-0.6B",
		"{\"hidden_size\": 1024, \"num_attention_heads\": 16, \"num_hidden_layers\": 28,"
		"\"num_key_value_heads\": 8, \"head_dim\": 128, \"dtype\": \"bfloat16\"}",
		28 * 8 * 256 * 2, 0, 0, 0},
	{"fp8 cache in the checkpoint",
		"{\"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_hidden_layers\": 32,"
		"\"num_key_value_heads\": 8, \"torch_dtype\": \"bfloat16\", "
		"\"quantization_config\":"
		"{\"kv_cache_scheme\": {\"num_bits\": 8, \"type\": \"float\"}}}",
		64 * 1024, 0, 0, 0},

	/* latent attention: layers x (kv_lora_rank + qk_rope_head_dim) x 2 */
	{"DeepSeek-V3",
		"{\"model_type\": \"deepseek_v3\", \"hidden_size\": 7168, \"num_attention_heads\":"
		"128, \"num_hidden_layers\": 61, \"num_key_value_heads\": 128, \"kv_lora_rank\": "
		"512,"
		"\"qk_rope_head_dim\": 64, \"qk_nope_head_dim\": 128, \"v_head_dim\": 128,"
		"\"torch_dtype\": \"bfloat16\", \"num_nextn_predict_layers\": 1}",
		70272, 0, 0, 0},
	{"DeepSeek-V3.2", /* and 132 bytes of index per layer */
		"{\"hidden_size\": 7168, \"num_attention_heads\": 128, \"num_hidden_layers\": 61,"
		"\"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, \"index_head_dim\": 128,"
		"\"index_n_heads\": 64, \"torch_dtype\": \"bfloat16\"}",
		70272 + 61 * 132, 0, 0, 0},

	/* windows */
	{"Mistral-7B-v0.1",
		"{\"model_type\": \"mistral\", \"hidden_size\": 4096, \"num_attention_heads\": 32,"
		"\"num_hidden_layers\": 32, \"num_key_value_heads\": 8, \"sliding_window\": 4096,"
		"\"torch_dtype\": \"bfloat16\"}",
		0, 128 * 1024, 4096, 0},
	{"Mistral-7B-v0.3",
		"{\"model_type\": \"mistral\", \"hidden_size\": 4096, \"num_attention_heads\": 32,"
		"\"num_hidden_layers\": 32, \"num_key_value_heads\": 8, \"sliding_window\": null,"
		"\"torch_dtype\": \"bfloat16\"}",
		128 * 1024, 0, 0, 0},
	{"gpt-oss-20b", /* 24 layers, every second one windowed */
		"{\"hidden_size\": 2880, \"num_attention_heads\": 64, \"num_hidden_layers\": 24,"
		"\"num_key_value_heads\": 8, \"head_dim\": 64, \"sliding_window\": 128,"
		"\"layer_types\": [\"sliding_attention\", \"full_attention\"],"
		"\"torch_dtype\": \"bfloat16\"}",
		12 * 8 * 128 * 2, 12 * 8 * 128 * 2, 128, 0},
	{"Gemma-2-9b",
		"{\"model_type\": \"gemma2\", \"hidden_size\": 3584, \"num_attention_heads\": 16,"
		"\"num_hidden_layers\": 42, \"num_key_value_heads\": 8, \"head_dim\": 256,"
		"\"sliding_window\": 4096, \"torch_dtype\": \"float32\"}",
		21 * 8 * 512 * 2, 21 * 8 * 512 * 2, 4096, 0},
	{"Gemma-3-27b", /* every sixth of 62 is full */
		"{\"text_config\": {\"model_type\": \"gemma3_text\", \"hidden_size\": 5376,"
		"\"num_attention_heads\": 32, \"num_hidden_layers\": 62, \"num_key_value_heads\": "
		"16,"
		"\"head_dim\": 128, \"sliding_window\": 1024}, \"torch_dtype\": \"bfloat16\"}",
		10 * 16 * 256 * 2, 52 * 16 * 256 * 2, 1024, 0},
	{"Llama-4-Scout", LLAMA4_SCOUT, 12 * 8 * 256 * 2, 36 * 8 * 256 * 2, 8192, 0},
	{"MiMo: windowed layers of another shape",
		"{\"hidden_size\": 4096, \"num_attention_heads\": 64, \"num_hidden_layers\": 4,"
		"\"num_key_value_heads\": 4, \"head_dim\": 192, \"v_head_dim\": 128,"
		"\"sliding_window\": 128, \"swa_num_key_value_heads\": 8, \"swa_head_dim\": 192,"
		"\"swa_v_head_dim\": 128, \"hybrid_layer_pattern\": [0, 1, 1, 0],"
		"\"torch_dtype\": \"bfloat16\"}",
		2 * 4 * 320 * 2, 2 * 8 * 320 * 2, 128, 0},

	/* layers without attention */
	{"Jamba", /* 4 of 32 */
		"{\"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_hidden_layers\": 32,"
		"\"num_key_value_heads\": 8, \"attn_layer_period\": 8, \"attn_layer_offset\": 4,"
		"\"torch_dtype\": \"bfloat16\"}",
		4 * 8 * 256 * 2, 0, 0, 28},
	{"Qwen3-Next", /* 12 of 48 */
		"{\"hidden_size\": 2048, \"num_attention_heads\": 16, \"num_hidden_layers\": 48,"
		"\"num_key_value_heads\": 2, \"head_dim\": 256, \"full_attention_interval\": 4,"
		"\"torch_dtype\": \"bfloat16\"}",
		12 * 2 * 512 * 2, 0, 0, 36},
	{"Nemotron-H and a number that is not JSON",
		"{\"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_hidden_layers\": 6,"
		"\"num_key_value_heads\": 8, \"hybrid_override_pattern\": \"M-M*-*\","
		"\"time_step_limit\": [0.0, Infinity], \"note\": \"NaN \\\" Infinity\","
		"\"torch_dtype\": \"bfloat16\"}",
		2 * 8 * 256 * 2, 0, 0, 4},
	{"Bamba",
		"{\"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_hidden_layers\": 32,"
		"\"num_key_value_heads\": 8, \"attn_layer_indices\": [9, 18, 27],"
		"\"torch_dtype\": \"bfloat16\"}",
		3 * 8 * 256 * 2, 0, 0, 29},
	{"layers that share", /* the last 15 of 35 use others' */
		"{\"hidden_size\": 2048, \"num_attention_heads\": 8, \"num_hidden_layers\": 35,"
		"\"num_key_value_heads\": 2, \"head_dim\": 256, \"num_kv_shared_layers\": 15,"
		"\"torch_dtype\": \"bfloat16\"}",
		20 * 2 * 512 * 2, 0, 0, 0},
	{"pruned by search", /* 8, none and 4 heads */
		"{\"hidden_size\": 8192, \"num_attention_heads\": 64, \"num_hidden_layers\": 3,"
		"\"block_configs\": [{\"attention\": {\"n_heads_in_group\": 8}},"
		"{\"attention\": {\"no_op\": true}}, {\"attention\": {\"n_heads_in_group\": 16}}],"
		"\"torch_dtype\": \"bfloat16\"}",
		12 * 256 * 2, 0, 0, 1},
};

START_TEST(bytes_per_token)
{
	const struct row *row = &rows[_i];
	char why[KVT_MODEL_WHY] = "";
	struct kvt_model m;

	ck_assert_msg(kvt_model_parse(row->text, strlen(row->text), NULL, &m, why), "%s: %s",
		row->name, why);
	ck_assert_msg(kvt_model_token_bytes(&m, KVT_LAYER_FULL, 1) == row->full,
		"%s: full: %lu, expected %lu", row->name,
		(unsigned long)kvt_model_token_bytes(&m, KVT_LAYER_FULL, 1),
		(unsigned long)row->full);
	ck_assert_msg(kvt_model_token_bytes(&m, KVT_LAYER_WINDOW, 1) == row->window,
		"%s: window: %lu, expected %lu", row->name,
		(unsigned long)kvt_model_token_bytes(&m, KVT_LAYER_WINDOW, 1),
		(unsigned long)row->window);
	ck_assert_uint_eq(m.window, row->window_tokens);
	ck_assert_uint_eq(m.state_layers, row->state_layers);
}
END_TEST

static struct kvt_model model_of(const char *text, const char *dtype)
{
	char why[KVT_MODEL_WHY] = "";
	struct kvt_model m;

	ck_assert_msg(kvt_model_parse(text, strlen(text), dtype, &m, why), "%s", why);
	return m;
}

START_TEST(ranks_share_heads)
{
	struct kvt_model m = model_of(rows[1].text, NULL); /* 4 heads */
	struct kvt_model latent = model_of(rows[8].text, NULL);

	ck_assert_uint_eq(kvt_model_token_bytes(&m, KVT_LAYER_FULL, 2), 28 * 1024);
	ck_assert_uint_eq(kvt_model_token_bytes(&m, KVT_LAYER_FULL, 4), 14 * 1024);
	ck_assert_uint_eq(kvt_model_token_bytes(&m, KVT_LAYER_FULL, 8), 14 * 1024);
	ck_assert(kvt_model_divides(&m, 8));
	ck_assert(!kvt_model_divides(&m, 3));
	ck_assert_uint_eq(kvt_model_token_bytes(&latent, KVT_LAYER_FULL, 8), 70272);
	ck_assert(kvt_model_divides(&latent, 3));
}
END_TEST

START_TEST(a_context_counts_windows_once)
{
	struct kvt_model m = model_of(rows[12].text, NULL);
	uint64_t each = 12 * 8 * 128 * 2;

	ck_assert_uint_eq(kvt_model_context_bytes(&m, 100, 1), 200 * each);
	ck_assert_uint_eq(kvt_model_context_bytes(&m, 128, 1), 256 * each);
	ck_assert_uint_eq(kvt_model_context_bytes(&m, 10000, 1), 10128 * each);
}
END_TEST

START_TEST(types_may_be_given)
{
	ck_assert_uint_eq(model_of(rows[0].text, "fp8").element_bytes, 1);
	ck_assert_uint_eq(model_of(rows[0].text, "fp32").element_bytes, 4);
	ck_assert(!model_of(rows[0].text, NULL).assumed);
	ck_assert(model_of(rows[4].text, NULL).assumed);  /* not said */
	ck_assert(model_of(rows[13].text, NULL).assumed); /* float32 is loaded as half */
	ck_assert_str_eq(model_of(rows[0].text, NULL).dtype, "bfloat16");
}
END_TEST

static const char *const wrong[] = {
	"",
	"[]",
	"{",
	"{}",
	"nonsense",
	"{\"num_hidden_layers\": 2}",
	"{\"num_hidden_layers\": -1, \"num_attention_heads\": 2, \"hidden_size\": 8}",
	"{\"num_hidden_layers\": 9999999, \"num_attention_heads\": 2, \"hidden_size\": 8}",
	"{\"num_hidden_layers\": 2.5, \"num_attention_heads\": 2, \"hidden_size\": 8}",
	"{\"num_hidden_layers\": 2, \"num_attention_heads\": 2}",
	"{\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"hidden_size\": 4}",
	"{\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"hidden_size\": 64,"
	"\"num_kv_shared_layers\": 2}",
	"{\"is_encoder_decoder\": true, \"num_hidden_layers\": 2, \"num_attention_heads\": 8,"
	"\"hidden_size\": 64}",
	"{\"num_hidden_layers\": 2, \"num_hidden_layers\": 2}",
};

START_TEST(what_is_no_model)
{
	char why[KVT_MODEL_WHY] = "";
	struct kvt_model m;

	ck_assert_msg(
		!kvt_model_parse(wrong[_i], strlen(wrong[_i]), NULL, &m, why), "%s", wrong[_i]);
	ck_assert_uint_gt(strlen(why), 5);
}
END_TEST

START_TEST(no_type_no_file)
{
	char why[KVT_MODEL_WHY] = "";
	struct kvt_model m;

	ck_assert(!kvt_model_parse(rows[0].text, strlen(rows[0].text), "int3", &m, why));
	ck_assert_ptr_nonnull(strstr(why, "one of bf16"));
	ck_assert(!kvt_model_load("/nonexistent/config.json", NULL, &m, why));
	ck_assert_ptr_nonnull(strstr(why, "No such file"));
	ck_assert(!kvt_model_load("/", NULL, &m, why));
}
END_TEST

/* Published: Llama-8B on one H100 at 40 % of 989 Tflop/s breaks even at 3.2 GB/s. */
START_TEST(break_even_is_as_computed_by_hand)
{
	double prefill = kvt_prefill_from_flops(989e12, 0.4, 8.03e9);

	ck_assert_double_eq_tol(prefill, 24632, 1);
	ck_assert_double_eq_tol(kvt_break_even(128 * 1024, prefill), 3.2286e9, 1e6);
	ck_assert_int_eq(kvt_worth_of(7e9, 3.2e9), KVT_WORTH_ALWAYS);
	ck_assert_int_eq(kvt_worth_of(6e9, 3.2e9), KVT_WORTH_LITTLE);
	ck_assert_int_eq(kvt_worth_of(3e9, 3.2e9), KVT_WORTH_LOADED);
	ck_assert_int_eq(kvt_worth_of(0, 3.2e9), KVT_WORTH_UNKNOWN);
	ck_assert_int_eq(kvt_worth_of(1, 0), KVT_WORTH_UNKNOWN);
	ck_assert_double_eq_tol(kvt_retention_bytes(1000, 50, 10), 500000, 0.1);
	ck_assert_double_gt(kvt_measure_copy(), 1e6);
}
END_TEST

START_TEST(numbers_for_people)
{
	char text[KVT_FORMAT_BYTES];
	double value = 0;
	uint64_t size = 0;

	ck_assert_str_eq(kvt_format_size(text, 28672), "28 KiB");
	ck_assert_str_eq(kvt_format_size(text, 1500), "1.5 KiB");
	ck_assert_str_eq(kvt_format_size(text, 12), "12 bytes");
	ck_assert_str_eq(kvt_format_rate(text, 3.53e9), "3.53 GB/s");
	ck_assert_str_eq(kvt_format_rate(text, 12e6), "12.0 MB/s");
	ck_assert_str_eq(kvt_format_count(text, 412345), "412k");
	ck_assert_str_eq(kvt_format_age(text, 7300), "2 h");
	ck_assert(kvt_parse_number("989T", &value));
	ck_assert_double_eq_tol(value, 989e12, 1);
	ck_assert(kvt_parse_number("0.5", &value));
	ck_assert(!kvt_parse_number("0", &value));
	ck_assert(!kvt_parse_number("-1", &value));
	ck_assert(!kvt_parse_number("0x10", &value));
	ck_assert(!kvt_parse_number("inf", &value));
	ck_assert(!kvt_parse_number("", &value));
	ck_assert(!kvt_parse_number("1kk", &value));
	ck_assert(kvt_parse_size("4MiB", &size));
	ck_assert_uint_eq(size, 4u << 20);
	ck_assert(!kvt_parse_size("4MB", &size));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("model");

	tcase_add_loop_test(tc, bytes_per_token, 0, sizeof(rows) / sizeof(rows[0]));
	tcase_add_test(tc, ranks_share_heads);
	tcase_add_test(tc, a_context_counts_windows_once);
	tcase_add_test(tc, types_may_be_given);
	tcase_add_loop_test(tc, what_is_no_model, 0, sizeof(wrong) / sizeof(wrong[0]));
	tcase_add_test(tc, no_type_no_file);
	tcase_add_test(tc, break_even_is_as_computed_by_hand);
	tcase_add_test(tc, numbers_for_people);
	return run_tcase("cache-command-model", tc);
}
