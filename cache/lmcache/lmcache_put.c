/*
 * lmcache_put.c - sets kvtier's settings and the connector's keys from LMCache's values.
 *
 * Every setting passes the same check as a user's own (kvt_setting_parse), so that the result can
 * always be read without a mistake.
 */
#include <stdlib.h>
#include <string.h>

#include "lmcache/lmcache.h"

const char *const kvt_lmcache_own_names[KVT_LMCACHE_OWN_COUNT] = {
	[KVT_LMCACHE_OWN_chunk_size] = "chunk_size",
	[KVT_LMCACHE_OWN_min_retrieve_tokens] = "min_retrieve_tokens",
	[KVT_LMCACHE_OWN_save_decode_cache] = "save_decode_cache",
	[KVT_LMCACHE_OWN_save_unfull_chunk] = "save_unfull_chunk",
	[KVT_LMCACHE_OWN_lookup_timeout_ms] = "lookup_timeout_ms",
	[KVT_LMCACHE_OWN_load_timeout_ms] = "load_timeout_ms",
	[KVT_LMCACHE_OWN_read_only] = "read_only",
};

static void keep(struct kvt_lmcache_reading *r, char **slot, const char *text)
{
	free(*slot);
	*slot = strdup(text);
	if (*slot == NULL)
		r->err = KVW_ENOMEM;
}

bool kvt_lmcache_put(struct kvt_lmcache_reading *r, size_t from, const char *path, const char *text)
{
	size_t at = kvt_setting_find(path);
	union kvw_value value;
	char shown[KVT_LMCACHE_SHOW];
	struct kvw_fault fault;
	enum kvw_err err;

	/* lmcache.def has a setting that settings.def does not have */
	if (at == KVT_SETTING_COUNT) {
		kvt_lmcache_mistake(r, from, "`%s` is not a setting of this version", path);
		return false;
	}
	err = kvt_setting_parse(&kvt_settings[at], kvw_slice_of(text), &value, &fault);
	if (err == KVW_OK && kvt_settings[at].type->owned)
		free(value.text);
	if (err == KVW_OK && !kvt_lmcache_is_text(text)) {
		snprintf(fault.expected, sizeof(fault.expected), "UTF-8");
		err = KVW_EINVAL;
	}
	if (err == KVW_OK)
		keep(r, &r->settings[at], text);
	else if (err == KVW_ENOMEM)
		r->err = err;
	else
		kvt_lmcache_mistake(r, from, "found %s, expected %s",
			fault.found != NULL ? fault.found
					    : kvt_lmcache_show(&r->values[from], from, shown),
			fault.expected);
	return err == KVW_OK;
}

void kvt_lmcache_put_own(struct kvt_lmcache_reading *r, const char *name, const char *json)
{
	for (size_t i = 0; i < KVT_LMCACHE_OWN_COUNT; i++)
		if (strcmp(kvt_lmcache_own_names[i], name) == 0)
			keep(r, &r->own[i], json);
}
