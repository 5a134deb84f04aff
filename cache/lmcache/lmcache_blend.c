/*
 * lmcache_blend.c - translates LMCache's keys for blending to the section `fragments`.
 *
 * LMCache recomputes 0.15 of a fragment's tokens by default; kvtier recomputes none unless the file
 * says so, since vLLM's connector could not. LMCache leaves its separator out of all fragments; in
 * kvtier a separator ends the fragment before it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lmcache/lmcache.h"

#define TEXT_ROOM    2304
#define LEAST_TOKENS 16

static const struct kvt_lmcache_value *valid(const struct kvt_lmcache_reading *r, size_t key)
{
	return r->values[key].valid ? &r->values[key] : NULL;
}

/* Sets a setting to the first entry of a list, or of a text with commas. */
static void put_first(struct kvt_lmcache_reading *r, size_t key, const char *path)
{
	const struct kvt_lmcache_value *value = valid(r, key);
	const struct kvw_node *node;
	char text[TEXT_ROOM];

	if (value == NULL)
		return;
	node = value->text == NULL && value->node != NULL ? value->node->first : NULL;
	if (value->text != NULL)
		snprintf(text, sizeof(text), "%.*s", (int)strcspn(value->text, ","), value->text);
	else if (node != NULL && node->kind == KVW_NODE_SCALAR)
		snprintf(text, sizeof(text), "%s", node->text);
	else
		return;
	kvt_lmcache_put(r, key, path, text);
	if ((node != NULL && node->next != NULL) || (value->text != NULL && strchr(value->text, ',') != NULL))
		kvt_lmcache_note(r, key, "the first of several counts");
}

void kvt_lmcache_settle_blend(struct kvt_lmcache_reading *r)
{
	const struct kvt_lmcache_value *enabled = valid(r, KVT_LMC_enable_blending);
	const struct kvt_lmcache_value *least = valid(r, KVT_LMC_blend_min_tokens);
	const struct kvt_lmcache_value *separator = valid(r, KVT_LMC_blend_special_str);
	char text[32];

	if (enabled == NULL || !enabled->flag)
		return;
	kvt_lmcache_put(r, KVT_LMC_enable_blending, "fragments.enabled", "true");
	kvt_lmcache_note(r, KVT_LMC_enable_blending,
		"only requests with \"kvtier.fragments\": true in their kv_transfer_params are blended");
	if (separator != NULL && separator->len > 0)
		kvt_lmcache_put(r, KVT_LMC_blend_special_str, "fragments.separator", separator->text);
	if (least != NULL) {
		snprintf(text, sizeof(text), "%" PRId64, least->count < LEAST_TOKENS ? LEAST_TOKENS : least->count);
		kvt_lmcache_put(r, KVT_LMC_blend_min_tokens, "fragments.min_tokens", text);
	}
	put_first(r, KVT_LMC_blend_recompute_ratios, "fragments.recompute_share");
	put_first(r, KVT_LMC_blend_check_layers, "fragments.check_layer");
}
