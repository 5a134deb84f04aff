/*
 * ratio_test.c - ratios of tokens to bytes, by how prompts begin.
 */
#include <check.h>
#include <stdlib.h>

#include "fleet_support.h"
#include "tests/unit/suite.h"

#define CHUNK       256u
#define MOST_CHUNKS 700u

static struct kvw_ratios *ratios;

/* A prompt of one chain. */
struct prompt {
	struct kvw_chunk chunks[MOST_CHUNKS];
	uint32_t end;
	struct kvw_route_request request;
};

static void setup(void)
{
	ck_assert_int_eq(kvw_ratios_create(&ratios), KVW_OK);
}

static void teardown(void)
{
	kvw_ratios_destroy(ratios);
}

/* `shared` chunks that begin all prompts of this root, then chunks of its own. */
static struct kvw_ratio_keys keys_of(
	struct prompt *prompt, uint64_t root, uint32_t shared, uint64_t own, uint32_t count)
{
	struct kvw_ratio_keys keys;

	for (uint32_t i = 0; i < count; i++)
		prompt->chunks[i] = (struct kvw_chunk){
			.hash = ((i < shared ? root : own) * 1000 + i + 1) *
				UINT64_C(0x9e3779b97f4a7c15),
			.end = (i + 1) * CHUNK,
		};
	prompt->end = count;
	prompt->request = (struct kvw_route_request){
		.chunks = prompt->chunks,
		.chunk_count = count,
		.chain_ends = &prompt->end,
		.chain_count = 1,
	};
	kvw_ratio_keys_of(&prompt->request, &keys);
	return keys;
}

START_TEST(a_longer_prompt_has_the_ratio_of_its_beginning)
{
	static struct prompt prompt;
	struct kvw_ratio_keys first = keys_of(&prompt, 1, 40, 2, 40);
	struct kvw_ratio_keys next = keys_of(&prompt, 1, 40, 3, 55);
	struct kvw_ratio_keys other = keys_of(&prompt, 4, 40, 4, 40);

	ck_assert_float_eq(kvw_ratios_find(ratios, &first), 0);
	kvw_ratios_learn(ratios, &first, 40 * CHUNK / 2);
	ck_assert_float_eq_tol(kvw_ratios_find(ratios, &first), 0.5f, 1e-4f);
	ck_assert_float_eq_tol(kvw_ratios_find(ratios, &next), 0.5f, 1e-4f);
	ck_assert_float_eq(kvw_ratios_find(ratios, &other), 0);
}
END_TEST

START_TEST(the_longest_known_beginning_counts)
{
	static struct prompt prompt;
	struct kvw_ratio_keys prose = keys_of(&prompt, 1, 4, 2, 64);
	struct kvw_ratio_keys code = keys_of(&prompt, 1, 4, 3, 64);
	struct kvw_ratio_keys new = keys_of(&prompt, 1, 4, 5, 64);

	kvw_ratios_learn(ratios, &prose, 64 * CHUNK / 4);
	kvw_ratios_learn(ratios, &code, 64 * CHUNK / 2);
	ck_assert_float_eq_tol(kvw_ratios_find(ratios, &prose), 0.25f, 1e-4f);
	ck_assert_float_eq_tol(kvw_ratios_find(ratios, &code), 0.5f, 1e-4f);
	ck_assert_float_eq_tol(kvw_ratios_find(ratios, &new), 0.375f, 1e-2f); /* of both */
}
END_TEST

/* A system prompt of prose before something else: a short question teaches more about it. */
START_TEST(a_shared_beginning_is_taught_by_how_much_it_makes_up)
{
	static struct prompt prompt;
	float found;

	for (uint64_t i = 0; i < 40; i++) {
		struct kvw_ratio_keys mostly = keys_of(&prompt, 1, 8, 100 + i, 9);
		struct kvw_ratio_keys hardly = keys_of(&prompt, 1, 8, 200 + i, 80);

		kvw_ratios_learn(ratios, &hardly, 80 * CHUNK);
		kvw_ratios_learn(ratios, &mostly, 9 * CHUNK / 4);
	}
	struct kvw_ratio_keys new = keys_of(&prompt, 1, 8, 99, 9);

	found = kvw_ratios_find(ratios, &new);
	ck_assert_float_lt(found, 0.35f);
	ck_assert_float_ge(found, 0.25f);
}
END_TEST

START_TEST(what_changes_is_followed)
{
	static struct prompt prompt;
	struct kvw_ratio_keys keys = keys_of(&prompt, 1, 16, 1, 16);

	for (int i = 0; i < 1000; i++)
		kvw_ratios_learn(ratios, &keys, 16 * CHUNK / 4);
	for (int i = 0; i < 8; i++)
		kvw_ratios_learn(ratios, &keys, 16 * CHUNK / 2);
	ck_assert_float_eq_tol(kvw_ratios_find(ratios, &keys), 0.5f, 0.01f);
}
END_TEST

START_TEST(lists_token_ids_and_nothing_have_no_keys)
{
	static struct prompt prompt;
	uint32_t ends[2] = {3, 6};
	struct kvw_ratio_keys keys = keys_of(&prompt, 1, 6, 1, 6);

	ck_assert_uint_eq(keys.count, 3);
	prompt.request.token_ids = true;
	kvw_ratio_keys_of(&prompt.request, &keys);
	ck_assert_uint_eq(keys.count, 0);
	prompt.request.token_ids = false;
	prompt.request.chain_ends = ends;
	prompt.request.chain_count = 2;
	kvw_ratio_keys_of(&prompt.request, &keys);
	ck_assert_uint_eq(keys.count, 0);
	kvw_ratios_learn(ratios, &keys, 100);
	ck_assert_float_eq(kvw_ratios_find(ratios, &keys), 0);
	prompt.request = (struct kvw_route_request){.chain_count = 1, .chain_ends = ends};
	kvw_ratio_keys_of(&prompt.request, &keys);
	ck_assert_uint_eq(keys.count, 0);
}
END_TEST

START_TEST(a_prompt_of_images_teaches_nothing)
{
	static struct prompt prompt;
	struct kvw_ratio_keys keys = keys_of(&prompt, 1, 700, 1, 700);

	ck_assert_uint_eq(keys.count, KVW_RATIO_BEGINNINGS);
	kvw_ratios_learn(ratios, &keys, 700 * CHUNK * 5);
	kvw_ratios_learn(ratios, &keys, 700 * CHUNK / 65);
	kvw_ratios_learn(ratios, &keys, 0);
	ck_assert_float_eq(kvw_ratios_find(ratios, &keys), 0);
}
END_TEST

START_TEST(the_fleet_falls_back_to_the_model)
{
	static struct prompt prompt;
	struct kvw_config *config = fleet_test_config(1, 18100);
	struct kvw_fleet *fleet = fleet_test_create(config, 1);
	struct kvw_model model = {.name = NULL};
	struct kvw_ratio_keys keys = keys_of(&prompt, 1, 20, 1, 20);
	const struct kvw_route_request ids = {.token_ids = true};

	ck_assert_float_eq(kvw_fleet_tokens_per_unit(fleet, NULL, &prompt.request, &keys), 0.25f);
	kvw_model_learn(&model, 2000, 1000);
	ck_assert_float_eq(kvw_fleet_tokens_per_unit(fleet, &model, &prompt.request, &keys), 0.5f);
	kvw_ratios_learn(fleet->ratios, &keys, 20 * CHUNK);
	ck_assert_float_eq(kvw_fleet_tokens_per_unit(fleet, &model, &prompt.request, &keys), 1);
	ck_assert_float_eq(kvw_fleet_tokens_per_unit(fleet, &model, &ids, &keys), 1);
	ck_assert_uint_eq(keys.count, 0);
	kvw_fleet_destroy(fleet);
	kvw_config_destroy(config);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("ratio");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_longer_prompt_has_the_ratio_of_its_beginning);
	tcase_add_test(tcase, the_longest_known_beginning_counts);
	tcase_add_test(tcase, a_shared_beginning_is_taught_by_how_much_it_makes_up);
	tcase_add_test(tcase, what_changes_is_followed);
	tcase_add_test(tcase, lists_token_ids_and_nothing_have_no_keys);
	tcase_add_test(tcase, a_prompt_of_images_teaches_nothing);
	tcase_add_test(tcase, the_fleet_falls_back_to_the_model);
	return run_tcase("ratio", tcase);
}
