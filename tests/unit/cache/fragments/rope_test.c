/* rope_test.c - what a config.json says about positions, and which are refused, by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fragments/rope.h"
#include "rope_reference.h"
#include "tests/unit/suite.h"

/* Single precision angles of the engine at both positions, in units of the pair's length. */
#define NEAR 3e-4

START_TEST(a_key_moves_to_where_vllm_puts_it)
{
	float key[64], longest = 0;
	char why[KVT_ROPE_TEXT] = "";
	struct kvt_rope_turn turn;
	struct kvt_rope rope;

	ck_assert_msg(kvt_rope_read(reference[_i].config, strlen(reference[_i].config), &rope, why) == KVT_OK, "%s: %s",
		reference[_i].name, why);
	ck_assert_uint_eq(rope.head, reference[_i].head);
	kvt_rope_turn_by(&rope, REFERENCE_TO - REFERENCE_FROM, &turn);
	kvt_rope_move(&turn, KVT_ROPE_F32, key, reference[_i].from, 1);
	for (unsigned int i = 0; i < rope.head; i++) {
		float moved = fabsf(reference[_i].to[i] - reference[_i].from[i]);

		ck_assert_msg(fabsf(key[i] - reference[_i].to[i]) < NEAR * 5, "%s: value %u is %g, not %g", reference[_i].name,
			i, (double)key[i], (double)reference[_i].to[i]);
		longest = moved > longest ? moved : longest;
	}
	ck_assert_float_gt(longest, 0.5F); /* or the case shows nothing */
	ck_assert_mem_eq(key, reference[_i].from, rope.offset * sizeof(float)); /* a latent vector */
	/* And back. */
	kvt_rope_turn_by(&rope, REFERENCE_FROM - REFERENCE_TO, &turn);
	kvt_rope_move(&turn, KVT_ROPE_F32, key, key, 1);
	for (unsigned int i = 0; i < rope.head; i++)
		ck_assert_float_eq_tol(key[i], reference[_i].from[i], 1e-5F);
}
END_TEST

#define LATENT "\"model_type\": \"deepseek_v3\", \"kv_lora_rank\": 512, "

static const struct {
	const char *config, *why;
	enum kvt_status status;
} wrong[] = {
	{"{", "line 1", KVT_EINVAL},
	{"[]", "expected an object", KVT_EINVAL},
	{"{}", "model_type", KVT_EINVAL},
	{"{\"model_type\": \"bloom\"}", "bloom", KVT_ENOTSUP},
	{"{\"model_type\": \"deepseek_v32\"}", "deepseek_v32", KVT_ENOTSUP},
	{"{\"model_type\": \"deepseek_v3\"}", "kv_lora_rank is missing", KVT_EINVAL},
	{"{" LATENT "\"qk_rope_head_dim\": null}", "qk_rope_head_dim is missing", KVT_EINVAL},
	{"{" LATENT "\"qk_rope_head_dim\": 63}", "qk_rope_head_dim 63", KVT_EINVAL},
	{"{" LATENT "\"qk_rope_head_dim\": 64}", "", KVT_OK},
	{"{" LATENT "\"qk_rope_head_dim\": 514}", "at most 1024", KVT_EINVAL},
	{"{" LATENT "\"qk_rope_head_dim\": 64, \"index_topk\": 2048}", "index_topk", KVT_ENOTSUP},
	{"{" LATENT "\"qk_rope_head_dim\": 64, \"rope_interleave\": false}", "rope_interleave", KVT_ENOTSUP},
	{"{" LATENT "\"qk_rope_head_dim\": 64, \"rope_interleave\": null}", "rope_interleave", KVT_ENOTSUP},
	{"{" LATENT "\"qk_rope_head_dim\": 64, \"partial_rotary_factor\": 0.5}", "partial_rotary_factor", KVT_ENOTSUP},
	{"{" LATENT "\"qk_rope_head_dim\": 64, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}", "linear",
		KVT_ENOTSUP},
	{"{" LATENT "\"qk_rope_head_dim\": 64, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, "
	 "\"original_max_position_embeddings\": 4096, \"truncate\": false}}", "truncate", KVT_ENOTSUP},
	{"{" LATENT "\"qk_rope_head_dim\": 64, \"rope_parameters\": {\"rope_type\": \"default\", "
	 "\"is_deepseek_v4\": true}}", "is_deepseek_v4", KVT_ENOTSUP},
	{"{\"model_type\": \"kimi_k2\", \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64}", "rope_theta is missing", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"kv_lora_rank\": 512}", "kv_lora_rank", KVT_ENOTSUP},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"rope_scaling\": {\"type\": \"deepseek_yarn\", \"factor\": 2}}",
		"deepseek_yarn", KVT_ENOTSUP},
	{"{\"model_type\": \"llama\"}", "hidden_size is missing", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"hidden_size\": 64}", "num_attention_heads is missing", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_attention_heads\": 0}", "num_attention_heads", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": \"64\"}", "head_dim: expected a number", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": 4096}", "head_dim", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": 63}", "63 of 63", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": 64.5}", "64.5", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"partial_rotary_factor\": 0.1}", "6 of 64", KVT_OK},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"partial_rotary_factor\": 1.5}", "partial_rotary_factor", KVT_EINVAL},
	{"{\"model_type\": \"gptj\", \"n_embd\": 64, \"n_head\": 2, \"rotary_dim\": 34}", "34 of 32", KVT_EINVAL},
	{"{\"model_type\": \"qwen2\", \"head_dim\": 64}", "rope_theta is missing", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"rope_theta\": 1}", "rope_theta", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"rope_scaling\": 4}", "expected an object", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"rope_scaling\": {\"factor\": 4}}", "rope_type", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"rope_scaling\": {\"type\": \"linear\"}}", "factor is missing", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 0.5}}", "factor",
		KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}", "dynamic",
		KVT_ENOTSUP},
	{"{\"model_type\": \"phi3\", \"head_dim\": 64, \"rope_scaling\": {\"type\": \"longrope\", \"factor\": 2}}", "longrope",
		KVT_ENOTSUP},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}}",
		"original_max_position_embeddings is missing", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, "
	 "\"original_max_position_embeddings\": 2048, \"truncate\": 1}}", "truncate", KVT_EINVAL},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 2, "
	 "\"original_max_position_embeddings\": 2048, \"low_freq_factor\": 4, \"high_freq_factor\": 1}}", "high_freq_factor",
		KVT_EINVAL},
	{"{\"model_type\": \"qwen2\", \"head_dim\": 64, \"rope_theta\": 10000, \"rope_scaling\": {\"type\": \"default\", "
	 "\"mrope_section\": [8, 12, 12]}}", "mrope_section", KVT_ENOTSUP},
	{"{\"model_type\": \"qwen2\", \"head_dim\": 64, \"rope_theta\": 10000, \"dual_chunk_attention_config\": {}}",
		"dual_chunk_attention_config", KVT_ENOTSUP},
	{"{\"model_type\": \"llama\", \"head_dim\": 64, \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 10000}}}",
		"full_attention", KVT_ENOTSUP},
	{"{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"gemma3_text\"}}", "gemma3_text", KVT_ENOTSUP},
};

START_TEST(what_cannot_be_moved_is_refused_by_name)
{
	struct kvt_rope rope = {.head = 7}, before = rope;
	char why[KVT_ROPE_TEXT] = "";
	enum kvt_status status = kvt_rope_read(wrong[_i].config, strlen(wrong[_i].config), &rope, why);

	ck_assert_msg(status == wrong[_i].status, "%s: %s, %s", wrong[_i].config, kvt_status_text(status), why);
	if (status != KVT_OK) {
		ck_assert_msg(strstr(why, wrong[_i].why) != NULL, "%s: %s", wrong[_i].config, why);
		ck_assert_mem_eq(&rope, &before, sizeof(rope));
	}
}
END_TEST

/* DeepSeek's sizes: 512 values without a position, and a rotary key of 64 behind them; head_dim is not asked. */
START_TEST(a_latent_key_turns_at_its_end)
{
	static const char *const models[] = {"deepseek_v2", "deepseek_v3", "kimi_k2"};
	char why[KVT_ROPE_TEXT] = "", config[300];
	struct kvt_rope rope;

	snprintf(config, sizeof(config), "{\"model_type\": \"%s\", \"head_dim\": 64, \"kv_lora_rank\": 512, \"q_lora_rank\": 1536, "
		"\"qk_rope_head_dim\": 64, \"rope_theta\": 50000}", models[_i]);
	ck_assert_msg(kvt_rope_read(config, strlen(config), &rope, why) == KVT_OK, "%s", why);
	ck_assert(rope.latent);
	ck_assert_uint_eq(rope.head, 576);
	ck_assert_uint_eq(rope.offset, 512);
	ck_assert_uint_eq(rope.rotated, 64);
	ck_assert_int_eq(rope.layout, KVT_ROPE_PAIRS);
}
END_TEST

START_TEST(a_language_model_inside_another_is_found)
{
	static const char config[] = "{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"llama\", \"head_dim\": 8, "
				     "\"partial_rotary_factor\": 0.5, \"rope_scaling\": null}}";
	char why[KVT_ROPE_TEXT] = "";
	struct kvt_rope rope;

	ck_assert_msg(kvt_rope_read(config, strlen(config), &rope, why) == KVT_OK, "%s", why);
	ck_assert_uint_eq(rope.head, 8);
	ck_assert_uint_eq(rope.rotated, 4);
	ck_assert_uint_eq(rope.offset, 0);
	ck_assert(!rope.latent);
	ck_assert_float_eq(rope.frequency[0], 1.0F);
	ck_assert_float_eq_tol(rope.frequency[1], 0.01F, 1e-8F);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("rope");

	tcase_add_loop_test(tcase, a_key_moves_to_where_vllm_puts_it, 0, (int)(sizeof(reference) / sizeof(reference[0])));
	tcase_add_loop_test(tcase, what_cannot_be_moved_is_refused_by_name, 0, (int)(sizeof(wrong) / sizeof(wrong[0])));
	tcase_add_loop_test(tcase, a_latent_key_turns_at_its_end, 0, 3);
	tcase_add_test(tcase, a_language_model_inside_another_is_found);
	return run_tcase("rope", tcase);
}
