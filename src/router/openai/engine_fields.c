/*
 * engine_fields.c - the table of members that control the engine.
 *
 * The members are those of vLLM 0.32 and SGLang 0.5. `extra_args` is a member of `sampling_params`,
 * where vLLM's /inference/v1/generate has it in place of vllm_xargs; all others are top-level
 * members.
 */
#include "openai/engine_fields.h"

#include <string.h>

static const struct {
	const char *name, *instead;
} fields[] = {
	{"priority", "0"}, /* rank in the engine's queue, by which clients could overtake others */
	/* Where KV comes from or goes to: hosts, ports, blocks of other requests. */
	{"kv_transfer_params", "null"},
	{"ec_transfer_params", "null"},
	{"bootstrap_host", "null"},
	{"bootstrap_port", "null"},
	{"bootstrap_room", "null"},
	{"bootstrap_pair_key", "null"},
	{"decode_tp_size", "null"},
	{"disagg_prefill_dp_rank", "null"},
	{"kv_router_hint", "null"},
	{"encoder_urls", "null"},
	{"http_worker_ipc", "null"}, /* the process that gets the answer */
	/* Passed on to the engine's plug-ins; may contain KV parameters, too. */
	{"vllm_xargs", "null"},
	{"extra_args", "null"},
	{"custom_logit_processor", "null"}, /* executable code */
	{"lora_path", "null"},              /* names a model other than the one in `model` */
	{"lora_id", "null"},
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
