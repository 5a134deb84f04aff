/* cut_test.c - where fragments begin and end: they cover the prompt, and the same text has the same cuts. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kvtier/kvtier_fragments.h"
#include "tests/unit/suite.h"

#define TOKENS 20000
#define MOST   4096

static uint64_t state = 1;

static uint32_t chance(uint32_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % below;
}

static size_t cut(const struct kvt_cut *how, const uint32_t *tokens, size_t count, struct kvt_fragment *out)
{
	size_t found, end = 0;

	ck_assert_int_eq(kvt_fragments_cut(how, tokens, count, out, MOST, &found), KVT_OK);
	ck_assert_uint_le(found, MOST);
	for (size_t i = 0; i < found; i++) {
		ck_assert_uint_eq(out[i].first, end);
		ck_assert_uint_gt(out[i].count, 0);
		end += out[i].count;
		ck_assert(how->max_tokens == 0 || out[i].count <= how->max_tokens);
	}
	ck_assert_uint_eq(end, count);
	return found;
}

static struct kvt_cut by_content(void)
{
	return (struct kvt_cut){.size = sizeof(struct kvt_cut), .by = KVT_CUT_CONTENT, .min_tokens = 32, .average_tokens = 128,
		.max_tokens = 512};
}

START_TEST(a_separator_ends_the_fragment_before_it)
{
	const uint32_t separator[] = {7, 9}, text[] = {1, 2, 7, 9, 7, 9, 3, 7, 8, 7, 9};
	struct kvt_cut how = {.size = sizeof(how), .by = KVT_CUT_SEPARATOR, .separator = separator, .separator_count = 2};
	struct kvt_fragment out[MOST];

	ck_assert_uint_eq(cut(&how, text, 11, out), 2);
	ck_assert_uint_eq(out[0].count, 6); /* both separators: none is a fragment of its own */
	ck_assert_uint_eq(out[1].count, 5);
	ck_assert_uint_eq(cut(&how, text, 10, out), 2);
	ck_assert_uint_eq(cut(&how, text, 0, out), 0);
	how.max_tokens = 4;
	ck_assert_uint_eq(cut(&how, text, 11, out), 4);
	ck_assert_uint_eq(out[0].count, 4);
}
END_TEST

START_TEST(bounds_are_taken_as_they_are)
{
	const uint32_t text[10] = {0}, bounds[] = {3, 4}, wrong[] = {4, 4}, beyond[] = {10};
	struct kvt_cut how = {.size = sizeof(how), .by = KVT_CUT_BOUNDS, .bounds = bounds, .bound_count = 2};
	struct kvt_fragment out[MOST];
	size_t found;

	ck_assert_uint_eq(cut(&how, text, 10, out), 3);
	ck_assert_uint_eq(out[1].first, 3);
	how.bounds = wrong;
	ck_assert_int_eq(kvt_fragments_cut(&how, text, 10, out, MOST, &found), KVT_EINVAL);
	how = (struct kvt_cut){.size = sizeof(how), .by = KVT_CUT_BOUNDS, .bounds = beyond, .bound_count = 1};
	ck_assert_int_eq(kvt_fragments_cut(&how, text, 10, out, MOST, &found), KVT_EINVAL);
}
END_TEST

START_TEST(cuts_by_content_keep_their_lengths)
{
	static uint32_t text[TOKENS];
	struct kvt_cut how = by_content();
	struct kvt_fragment out[MOST];
	size_t n;

	for (size_t i = 0; i < TOKENS; i++)
		text[i] = chance(50000);
	n = cut(&how, text, TOKENS, out);
	for (size_t i = 0; i + 1 < n; i++)
		ck_assert_uint_ge(out[i].count, how.min_tokens);
	ck_assert_uint_gt(n, TOKENS / 256); /* about TOKENS / 128 */
	ck_assert_uint_lt(n, TOKENS / 64);
	memset(text, 0, sizeof(text)); /* all candidates, or none */
	n = cut(&how, text, TOKENS, out);
	ck_assert_uint_le(n, TOKENS / how.min_tokens + 1);
}
END_TEST

/* Is [first, first + count) one of these fragments? */
static bool has(const struct kvt_fragment *in, size_t n, uint32_t first, uint32_t count)
{
	for (size_t i = 0; i < n; i++)
		if (in[i].first == first && in[i].count == count)
			return true;
	return false;
}

/* A document behind texts of other lengths: but for its first and last fragments it is cut as before. */
START_TEST(the_same_text_has_the_same_cuts_wherever_it_stands)
{
	static uint32_t text[TOKENS];
	struct kvt_cut how = by_content();
	struct kvt_fragment alone[MOST], behind[MOST];
	size_t document = 6000, same = 0, all = 0;

	for (int round = 0; round < 50; round++) {
		size_t before = chance(3000), after = chance(3000), n, m;

		for (size_t i = 0; i < before + document + after; i++)
			text[i] = chance(1000);
		n = cut(&how, text + before, document, alone);
		m = cut(&how, text, before + document + after, behind);
		for (size_t i = 0; i < n; i++) {
			all++;
			same += has(behind, m, alone[i].first + (uint32_t)before, alone[i].count);
		}
	}
	ck_assert_msg(same * 100 >= all * 85, "%zu of %zu", same, all);
}
END_TEST

START_TEST(no_mistake_is_taken)
{
	const uint32_t text[4] = {1};
	struct kvt_fragment out[4];
	size_t found = 77;
	struct kvt_cut wrong[] = {by_content(), by_content(), by_content(), by_content(), by_content(),
		{.size = sizeof(struct kvt_cut), .by = KVT_CUT_SEPARATOR}, {.size = sizeof(struct kvt_cut), .by = 9}, {.by = 2}};

	wrong[0].min_tokens = 1;
	wrong[1].average_tokens = 1;
	wrong[2].max_tokens = 200;
	wrong[3].max_tokens = 1u << 21;
	wrong[4].average_tokens = 1u << 20;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_int_eq(kvt_fragments_cut(&wrong[i], text, 4, out, 4, &found), KVT_EINVAL);
	ck_assert_int_eq(kvt_fragments_cut(NULL, text, 4, out, 4, &found), KVT_EINVAL);
	ck_assert_uint_eq(found, 77);
}
END_TEST

/* --- which tokens are computed again ---------------------------------------------------------- */

static size_t choose(double share, uint32_t first, const float *deviation, uint8_t *chosen)
{
	const struct kvt_fragment fragments[] = {{10, 40}, {60, 60}};
	struct kvt_blend blend = {sizeof(blend), first, share};
	size_t count, counted = 0;

	ck_assert_int_eq(kvt_blend_choose(&blend, fragments, 2, deviation, 130, chosen, &count), KVT_OK);
	for (size_t i = 0; i < 130; i++) {
		counted += chosen[i];
		ck_assert(chosen[i] == 0 || (i >= 10 && i < 50) || (i >= 60 && i < 120));
	}
	ck_assert_uint_eq(counted, count);
	return count;
}

START_TEST(first_tokens_go_first_and_then_those_that_deviate)
{
	float deviation[130] = {0};
	uint8_t chosen[130];

	deviation[5] = 100; /* of no fragment */
	deviation[30] = 3;
	deviation[70] = 2;
	deviation[71] = NAN;
	deviation[10] = 50; /* a first token */
	ck_assert_uint_eq(choose(0, 4, deviation, chosen), 0);
	ck_assert_uint_eq(choose(0.03, 4, deviation, chosen), 3); /* one of each, then the first one's second */
	ck_assert(chosen[10] == 1 && chosen[60] == 1 && chosen[11] == 1);
	ck_assert_uint_eq(choose(0.05, 1, deviation, chosen), 5);
	ck_assert(chosen[10] == 1 && chosen[60] == 1 && chosen[71] == 1 && chosen[30] == 1 && chosen[70] == 1);
	ck_assert_uint_eq(choose(0.3, 2, NULL, chosen), 4);
	ck_assert_uint_eq(choose(0.3, 0, deviation, chosen), 30);
}
END_TEST

START_TEST(no_choice_is_made_by_mistake)
{
	const struct kvt_fragment over[] = {{0, 10}, {9, 2}}, beyond[] = {{120, 11}}, wraps[] = {{4000000000u, 4000000000u}};
	struct kvt_blend blend = {sizeof(blend), 1, 0.1}, more = {sizeof(more), 1, 0.31}, less = {sizeof(less), 1, -0.1},
			 none = {sizeof(none), 1, (double)NAN};
	uint8_t chosen[130];

	ck_assert_int_eq(kvt_blend_choose(&blend, over, 2, NULL, 130, chosen, NULL), KVT_EINVAL);
	ck_assert_int_eq(kvt_blend_choose(&blend, beyond, 1, NULL, 130, chosen, NULL), KVT_EINVAL);
	ck_assert_int_eq(kvt_blend_choose(&blend, wraps, 1, NULL, 130, chosen, NULL), KVT_EINVAL);
	ck_assert_int_eq(kvt_blend_choose(&more, beyond, 0, NULL, 130, chosen, NULL), KVT_EINVAL);
	ck_assert_int_eq(kvt_blend_choose(&less, beyond, 0, NULL, 130, chosen, NULL), KVT_EINVAL);
	ck_assert_int_eq(kvt_blend_choose(&none, beyond, 0, NULL, 130, chosen, NULL), KVT_EINVAL);
	ck_assert_int_eq(kvt_blend_choose(&blend, NULL, 0, NULL, 130, chosen, NULL), KVT_OK);
}
END_TEST

START_TEST(deviation_is_the_squared_distance_of_each_type)
{
	const float a[] = {1, 2, 3, 4}, b[] = {1, 0, 3, 7};
	const uint16_t bf[] = {0x3f80, 0x4000}, bg[] = {0x3f80, 0}, h[] = {0x3c00, 0x4000}, g[] = {0x3c00, 0};
	float sum[2] = {1, 0};

	ck_assert_int_eq(kvt_blend_deviation(KVT_FRAGMENT_F32, a, b, 2, 2, sum), KVT_OK);
	ck_assert_float_eq(sum[0], 5);
	ck_assert_float_eq(sum[1], 9);
	ck_assert_int_eq(kvt_blend_deviation(KVT_FRAGMENT_BF16, bf, bg, 2, 1, sum), KVT_OK);
	ck_assert_float_eq(sum[1], 13);
	ck_assert_int_eq(kvt_blend_deviation(KVT_FRAGMENT_F16, h, g, 2, 1, sum), KVT_OK);
	ck_assert_float_eq(sum[1], 17);
	ck_assert_int_eq(kvt_blend_deviation(3, h, g, 2, 1, sum), KVT_EINVAL);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("cut");

	tcase_add_test(tcase, a_separator_ends_the_fragment_before_it);
	tcase_add_test(tcase, bounds_are_taken_as_they_are);
	tcase_add_test(tcase, cuts_by_content_keep_their_lengths);
	tcase_add_test(tcase, the_same_text_has_the_same_cuts_wherever_it_stands);
	tcase_add_test(tcase, no_mistake_is_taken);
	tcase_add_test(tcase, first_tokens_go_first_and_then_those_that_deviate);
	tcase_add_test(tcase, no_choice_is_made_by_mistake);
	tcase_add_test(tcase, deviation_is_the_squared_distance_of_each_type);
	return run_tcase("fragments", tcase);
}
