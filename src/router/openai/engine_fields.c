/*
 * engine_fields.c - see engine_fields.h.
 *
 * Of vLLM 0.32 and SGLang. `extra_args` stands in `sampling_params`, where vLLM's
 * /inference/v1/generate takes what vllm_xargs is elsewhere; all others at the top.
 */
#include "openai/engine_fields.h"

#include <string.h>

static const struct {
	const char *name, *instead;
} fields[] = {
	{"priority", "0"}, /* of the engine's queue: none may pass others */
	/* Where KV is fetched from or sent to: hosts, ports, blocks of others. */
	{"kv_transfer_params", "null"},
	{"ec_transfer_params", "null"},
	{"bootstrap_host", "null"},
	{"bootstrap_port", "null"},
	{"bootstrap_room", "null"},
	/* Handed to the engine's plug-ins as they are; KV parameters can stand in them, too. */
	{"vllm_xargs", "null"},
	{"extra_args", "null"},
	{"custom_logit_processor", "null"}, /* code */
	{"lora_path", "null"},              /* a model besides the one that `model` names */
};

uint32_t kvw_engine_field(const char *name, size_t len)
{
	for (uint32_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (strlen(fields[i].name) == len && memcmp(fields[i].name, name, len) == 0)
			return i;
	return UINT32_MAX;
}

struct kvw_slice kvw_engine_field_default(uint32_t field)
{
	return kvw_slice_of(fields[field].instead);
}
