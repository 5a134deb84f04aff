/* engine_status.c - reads an LMCache server's /status; see engine.h. */
#include <jansson.h>
#include <string.h>

#include "bench/load/engine.h"

/* Returns the model's entry among the ranks' contexts. */
static const json_t *find_model(json_t *contexts, const char *model)
{
	const char *key;
	json_t *entry;

	json_object_foreach(contexts, key, entry)
	{
		const char *name = json_string_value(json_object_get(entry, "model_name"));

		if (name != NULL && strcmp(name, model) == 0)
			return entry;
	}
	return NULL;
}

enum kvw_err kvb_status_tokens_per_gb(
	const char *text, size_t len, const char *model, int64_t *out, FILE *error)
{
	json_t *status = json_loadb(text, len, 0, NULL);
	json_t *contexts = json_object_get(status, "cache_context_meta");
	const json_t *entry, *size, *ranks;
	enum kvw_err err = KVW_ENOTFOUND;
	double bytes;

	if (json_object_size(contexts) == 0) /* a server of blended caches has its own member */
		contexts = json_object_get(status, "cb_gpu_context_meta");
	entry = find_model(contexts, model);
	size = json_object_get(json_object_get(entry, "kv_cache_layout"), "cache_size_per_token");
	ranks = json_object_get(entry, "world_size");
	bytes = json_number_value(size) * (ranks != NULL ? json_number_value(ranks) : 1);
	if (status == NULL) {
		fputs("kvbench: /status of the LMCache server is not JSON\n", error);
		err = KVW_EPROTO;
	} else if (entry == NULL) {
		fprintf(error, "kvbench: the LMCache server knows no model '%s'\n", model);
	} else if (!(bytes >= 1 && bytes <= 1073741824.0)) {
		fprintf(error,
			"kvbench: the LMCache server reports no token size for '%s'; give "
			"--tokens-per-gb-kvcache\n",
			model);
	} else {
		*out = (int64_t)(1073741824.0 / bytes);
		err = KVW_OK;
	}
	json_decref(status);
	return err;
}
