/*
 * blend.c - chooses the tokens of loaded fragments that are computed again.
 *
 * The first tokens of a fragment come first: they deviate most, since they should attend to the
 * text before the fragment. Then follow the tokens whose keys and values deviate most on the first
 * layers, which by CacheBlend (arXiv 2405.16444) predicts those that deviate most on all layers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fragments/rope.h"
#include "kvtier/kvtier_fragments.h"

/* One value, widened. */
static float value_at(uint32_t values, const void *from, size_t i)
{
	uint16_t narrow;
	uint32_t bits;
	float out;

	if (values == KVT_FRAGMENT_F32) {
		memcpy(&out, (const char *)from + i * sizeof(out), sizeof(out));
		return out;
	}
	memcpy(&narrow, (const char *)from + i * sizeof(narrow), sizeof(narrow));
	if (values == KVT_FRAGMENT_F16)
		return kvt_rope_half_to_float(narrow);
	bits = (uint32_t)narrow << 16;
	memcpy(&out, &bits, sizeof(out));
	return out;
}

enum kvt_status kvt_blend_deviation(
	uint32_t values, const void *computed, const void *loaded, size_t tokens, size_t count, float *deviation)
{
	if (values > KVT_FRAGMENT_F16 || computed == NULL || loaded == NULL || deviation == NULL || count == 0)
		return KVT_EINVAL;
	for (size_t t = 0; t < tokens; t++) {
		float sum = 0;

		for (size_t i = t * count; i < (t + 1) * count; i++) {
			float d = value_at(values, computed, i) - value_at(values, loaded, i);

			sum += d * d;
		}
		deviation[t] += sum;
	}
	return KVT_OK;
}

struct candidate {
	float deviation;
	uint32_t token;
};

/* Compares tokens: the one that deviates more comes first; of equal ones the earlier. */
static int by_deviation(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->deviation != y->deviation)
		return x->deviation > y->deviation ? -1 : 1;
	return x->token < y->token ? -1 : x->token > y->token;
}

static bool fragments_fit(const struct kvt_fragment *fragments, size_t n, size_t prompt_tokens, size_t *tokens)
{
	uint64_t end = 0;

	*tokens = 0;
	for (size_t i = 0; i < n; i++) {
		if (fragments[i].first < end)
			return false;
		end = (uint64_t)fragments[i].first + fragments[i].count;
		*tokens += fragments[i].count;
	}
	return end <= prompt_tokens;
}

/* Chooses the first tokens of each fragment: one of each fragment, then a second one of each, and
 * so on. Returns how much of `room` is left. */
static size_t choose_first(const struct kvt_blend *blend, const struct kvt_fragment *fragments, size_t n, uint8_t *chosen,
	size_t room)
{
	for (uint32_t i = 0; i < blend->first_tokens && room > 0; i++) {
		size_t before = room;

		for (size_t f = 0; f < n && room > 0; f++) {
			if (i < fragments[f].count) {
				chosen[fragments[f].first + i] = 1;
				room--;
			}
		}
		if (room == before)
			break;
	}
	return room;
}

static void choose_deviating(const struct kvt_fragment *fragments, size_t n, const float *deviation, uint8_t *chosen,
	size_t room, struct candidate *candidates)
{
	size_t count = 0;

	for (size_t f = 0; f < n; f++) {
		for (uint32_t t = fragments[f].first; t < fragments[f].first + fragments[f].count; t++) {
			float d = isnan(deviation[t]) ? INFINITY : deviation[t];

			if (chosen[t] == 0)
				candidates[count++] = (struct candidate){d, t};
		}
	}
	qsort(candidates, count, sizeof(*candidates), by_deviation);
	for (size_t i = 0; i < count && i < room; i++)
		chosen[candidates[i].token] = 1;
}

enum kvt_status kvt_blend_choose(const struct kvt_blend *blend, const struct kvt_fragment *fragments, size_t n,
	const float *deviation, size_t prompt_tokens, uint8_t *chosen, size_t *count)
{
	struct candidate *candidates = NULL;
	size_t tokens, room, made = 0;

	if (blend == NULL || blend->size < sizeof(*blend) || !(blend->share >= 0 && blend->share <= KVT_BLEND_SHARE_MOST) ||
		(fragments == NULL && n > 0) || chosen == NULL || prompt_tokens > KVT_CUT_TOKENS_MOST ||
		!fragments_fit(fragments, n, prompt_tokens, &tokens))
		return KVT_EINVAL;
	room = (size_t)floor((double)tokens * blend->share + 1e-9); /* 100 * 0.15 is 15 */
	if (deviation != NULL && room > 0) {
		candidates = malloc(tokens * sizeof(*candidates));
		if (candidates == NULL)
			return KVT_ENOMEM;
	}
	memset(chosen, 0, prompt_tokens);
	room = choose_first(blend, fragments, n, chosen, room);
	if (candidates != NULL)
		choose_deviating(fragments, n, deviation, chosen, room, candidates);
	free(candidates);
	for (size_t i = 0; i < prompt_tokens; i++)
		made += chosen[i];
	if (count != NULL)
		*count = made;
	return KVT_OK;
}
