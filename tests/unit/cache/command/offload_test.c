/*
 * offload_test.c - the sizes of models by their shapes, and from how many tokens on offloading is of use.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "command/format.h"
#include "command/offload.h"
#include "tests/unit/suite.h"

#define G 1e9

/* --- parameters --------------------------------------------------------------------------------- */

static const struct {
	const char *name, *text;
	double parameters, active, weight_bytes; /* as published, within 2 %; active 0: all */
} models[] = {
	{"Qwen2.5-1.5B",
		"{\"model_type\": \"qwen2\", \"hidden_size\": 1536, \"num_attention_heads\": 12,"
		"\"num_hidden_layers\": 28, \"num_key_value_heads\": 2, \"intermediate_size\": 8960,"
		"\"vocab_size\": 151936, \"tie_word_embeddings\": true}",
		1.54 * G, 0, 2},
	{"Llama-3.1-8B in fp8",
		"{\"model_type\": \"llama\", \"hidden_size\": 4096, \"num_attention_heads\": 32,"
		"\"num_hidden_layers\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336,"
		"\"vocab_size\": 128256, \"quantization_config\": {\"quant_method\": \"fbgemm_fp8\"}}",
		8.03 * G, 0, 1},
	{"Qwen2.5-72B with 4 bits",
		"{\"model_type\": \"qwen2\", \"hidden_size\": 8192, \"num_attention_heads\": 64,"
		"\"num_hidden_layers\": 80, \"num_key_value_heads\": 8, \"intermediate_size\": 29568,"
		"\"vocab_size\": 152064, \"quantization_config\": {\"bits\": 4}}",
		72.7 * G, 0, 0.5},
	{"Mixtral-8x7B",
		"{\"model_type\": \"mixtral\", \"hidden_size\": 4096, \"num_attention_heads\": 32,"
		"\"num_hidden_layers\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336,"
		"\"vocab_size\": 32000, \"num_local_experts\": 8, \"num_experts_per_tok\": 2}",
		46.7 * G, 12.9 * G, 2},
	{"Qwen3-30B-A3B",
		"{\"model_type\": \"qwen3_moe\", \"hidden_size\": 2048, \"num_attention_heads\": 32,"
		"\"num_hidden_layers\": 48, \"num_key_value_heads\": 4, \"head_dim\": 128,"
		"\"intermediate_size\": 6144, \"moe_intermediate_size\": 768, \"num_experts\": 128,"
		"\"num_experts_per_tok\": 8, \"vocab_size\": 151936}",
		30.5 * G, 3.05 * G, 2},
	{"DeepSeek-V3",
		"{\"model_type\": \"deepseek_v3\", \"hidden_size\": 7168, \"num_attention_heads\": 128,"
		"\"num_hidden_layers\": 61, \"num_key_value_heads\": 128, \"kv_lora_rank\": 512,"
		"\"q_lora_rank\": 1536, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64,"
		"\"v_head_dim\": 128, \"intermediate_size\": 18432, \"moe_intermediate_size\": 2048,"
		"\"n_routed_experts\": 256, \"n_shared_experts\": 1, \"num_experts_per_tok\": 8,"
		"\"first_k_dense_replace\": 3, \"vocab_size\": 129280,"
		"\"quantization_config\": {\"quant_method\": \"fp8\"}}",
		671 * G, 37 * G, 1},
	{"GPT-2",
		"{\"n_embd\": 768, \"n_head\": 12, \"n_layer\": 12, \"model_type\": \"gpt2\","
		"\"vocab_size\": 50257, \"tie_word_embeddings\": true}",
		0.124 * G, 0, 2},
};

static struct kvt_model model_of(const char *text)
{
	char why[KVT_MODEL_WHY] = "";
	struct kvt_model m;

	ck_assert_msg(kvt_model_parse(text, strlen(text), NULL, &m, why), "%s", why);
	return m;
}

START_TEST(parameters_by_shapes)
{
	struct kvt_model m = model_of(models[_i].text);
	double active = models[_i].active != 0 ? models[_i].active : models[_i].parameters;

	ck_assert_msg(fabs(m.parameters / models[_i].parameters - 1) < 0.02, "%s: %g",
		models[_i].name, m.parameters);
	ck_assert_msg(fabs(m.active / active - 1) < 0.1, "%s: %g", models[_i].name, m.active);
	ck_assert_double_eq(m.weight_bytes, models[_i].weight_bytes);
	ck_assert_double_gt(m.pair_flops, 0);
}
END_TEST

/* --- where the tokens go ------------------------------------------------------------------------ */

static struct kvt_offload machine(uint32_t gpus)
{
	return (struct kvt_offload){.count = gpus,
		.gpu = {.bytes = (uint64_t)100 << 30},
		.share = 0.5,
		.weights = (uint64_t)30 << 30,
		.ram = (uint64_t)1 << 40};
}

/* 2 x 4 heads x 128 x 2 bytes in each of 8 layers: 16 KiB. */
#define DENSE                                                                                      \
	"{\"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_hidden_layers\": 8,"           \
	"\"num_key_value_heads\": 4}"

START_TEST(a_copy_on_more_gpus)
{
	struct kvt_model m = model_of(DENSE);
	struct kvt_offload o = machine(6);

	ck_assert(kvt_offload_spread(&o, &m, 0, 1000));
	ck_assert_uint_eq(o.spread_count, 3); /* six ranks cannot share four heads */
	ck_assert_uint_eq(o.chosen.gpus, 1);
	ck_assert_double_eq_tol(o.chosen.tokens, 20 << 16, 1); /* 20 GiB of 16 KiB */
	ck_assert_uint_eq(o.spreads[2].gpus, 4);
	ck_assert_uint_eq(o.spreads[2].copies, 1);
	ck_assert_double_eq_tol(o.spreads[2].tokens, 170 << 16, 1);
	ck_assert(kvt_offload_spread(&o, &m, 0, 21 << 16));
	ck_assert_uint_eq(o.chosen.gpus, 2);
	ck_assert(kvt_offload_spread(&o, &m, 4, 0));
	ck_assert_uint_eq(o.chosen.gpus, 4);
	ck_assert(!kvt_offload_spread(&o, &m, 3, 0));
	o.weights = (uint64_t)70 << 30; /* not on one */
	ck_assert(kvt_offload_spread(&o, &m, 0, 0));
	ck_assert_uint_eq(o.chosen.gpus, 2);
	ck_assert(!kvt_offload_spread(&o, &m, 8, 0));
	o = machine(8);
	ck_assert(kvt_offload_spread(&o, &m, 0, UINT64_MAX));
	ck_assert_uint_eq(o.chosen.gpus, 8); /* each head lies in two of them */
	ck_assert_double_eq_tol(o.chosen.tokens, 185 << 16, 1);
}
END_TEST

START_TEST(rows_of_the_table)
{
	struct kvt_offload_row rows[KVT_OFFLOAD_ROWS];
	struct kvt_model m = model_of(DENSE);
	struct kvt_offload o = machine(1);

	ck_assert(kvt_offload_spread(&o, &m, 0, 0));
	kvt_offload_below(&o, &m);
	ck_assert_uint_eq(kvt_offload_table(&o, rows), 3);
	ck_assert_double_eq(rows[0].to, rows[1].from);
	ck_assert_double_eq_tol(rows[1].to, 512 << 16, 1);
	ck_assert_double_eq(rows[2].to, 0); /* how large the disk is was not said */
	o.disk = (uint64_t)8 << 40;
	kvt_offload_below(&o, &m);
	ck_assert_uint_eq(kvt_offload_table(&o, rows), 3);
	ck_assert_double_eq_tol(rows[2].to, 4096 << 16, 1);
	o.ram = (uint64_t)16 << 30; /* less than the GPU holds */
	kvt_offload_below(&o, &m);
	ck_assert_uint_eq(kvt_offload_table(&o, rows), 2);
	ck_assert_double_eq(rows[1].from, o.chosen.tokens);
	ck_assert_str_eq(rows[1].recommendation, "Consider Disk offloading");
}
END_TEST

START_TEST(windows_and_states)
{
	struct kvt_offload_row rows[KVT_OFFLOAD_ROWS];
	struct kvt_offload o = machine(1);
	/* Half of the layers keep 1024 tokens. */
	struct kvt_model m = model_of("{\"hidden_size\": 4096, \"num_attention_heads\": 32,"
				      "\"num_hidden_layers\": 8, \"num_key_value_heads\": 4,"
				      "\"sliding_window\": 1024, \"layer_types\":"
				      "[\"sliding_attention\", \"full_attention\"]}");

	ck_assert(kvt_offload_spread(&o, &m, 0, 0));
	ck_assert_double_eq_tol(o.chosen.tokens, 2 * (20 << 16) - 1024, 1);
	o.weights = (uint64_t)50 << 30;
	ck_assert(kvt_offload_spread(&o, &m, 0, 0));
	ck_assert_double_eq(o.chosen.tokens, 0); /* no room for KV at all */
	m = model_of("{\"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_hidden_layers\": 8,"
		     "\"layer_types\": [\"linear_attention\"]}");
	o = machine(1);
	ck_assert(kvt_offload_spread(&o, &m, 0, 0));
	kvt_offload_below(&o, &m);
	ck_assert_uint_eq(kvt_offload_table(&o, rows), 1);
	ck_assert_double_eq(rows[0].to, 0); /* any context */
}
END_TEST

START_TEST(times)
{
	struct kvt_model m = model_of(models[2].text);
	struct kvt_offload o = machine(4);

	ck_assert_double_eq(kvt_offload_compute_s(&o, &m, 1000), 0);
	ck_assert_double_eq(kvt_offload_fetch_s(&m, 1000, 0), 0);
	o.prefill_flops = 1e15;
	/* Of 8192 elements in 80 layers: pairs outweigh parameters from some 100,000 tokens on. */
	ck_assert_double_eq_tol(m.pair_flops, 80 * 64 * 256, 1);
	ck_assert_double_eq_tol(kvt_offload_compute_s(&o, &m, 1e6),
		(2 * m.active * 1e6 + 80 * 64 * 256 * 1e12) / 1e15, 1e-6);
	ck_assert_double_eq_tol(kvt_offload_fetch_s(&m, 1e6, 1e9), 1e6 * 327680 / 1e9, 1e-6);
}
END_TEST

START_TEST(bytes_as_people_write_them)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {{"80GB", 80000000000}, {"80 GiB", (uint64_t)80 << 30}, {"1.1TB", 1100000000000},
		{"1.1T", 1100000000000}, {"17", 17}, {"17B", 17}, {"2MiB", 2 << 20}};
	static const char *const bad[] = {
		"", "B", "GB", "iB", "8iB", "80gb", "-1GB", "1e3GB", "80GiBs", "0GB", "9999999PB"};
	uint64_t bytes;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert_msg(kvt_parse_bytes(good[i].text, &bytes), "%s", good[i].text);
		ck_assert_uint_eq(bytes, good[i].bytes);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!kvt_parse_bytes(bad[i], &bytes), "%s", bad[i]);
}
END_TEST

int main(void)
{
	TCase *all = tcase_create("all");

	tcase_add_loop_test(all, parameters_by_shapes, 0, (int)(sizeof(models) / sizeof(models[0])));
	tcase_add_test(all, a_copy_on_more_gpus);
	tcase_add_test(all, rows_of_the_table);
	tcase_add_test(all, windows_and_states);
	tcase_add_test(all, times);
	tcase_add_test(all, bytes_as_people_write_them);
	return run_tcase("offload", all);
}
