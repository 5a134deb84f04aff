/*
 * legs.h - plans the two bodies of a request that one worker prefills and another decodes, and
 * reads the parameters that the prefiller's answer has for the decoder.
 *
 * The prefiller gets the client's body with one token to generate and no stream; either worker may
 * get an object `kv_transfer_params`, by which vLLM's connectors find each other. As the
 * NixlConnector wants it (transfer by pull), the prefiller's answer has such an object, which goes
 * byte for byte into the client's body for the decoder. All other bytes of both bodies are the
 * client's own. A member that the prefiller must not see keeps its place and gets its neutral
 * value. Pure functions.
 */
#ifndef KVW_OPENAI_LEGS_H
#define KVW_OPENAI_LEGS_H

#include "kvway/route_request.h"
#include "openai/splice.h"

/*
 * Plans the prefiller's body. api: KVW_API_CHAT, _COMPLETIONS, _RESPONSES or _MESSAGES. params,
 * borrowed by *out: its `kv_transfer_params`; len 0: it has none.
 * KVW_EINVAL: the request must stay whole: it has transfer parameters of its own, asks for what
 * both legs would have to answer (several choices, echo, logprobs of the prompt, beam search, work
 * in the background), spells a name with escapes or repeats members too often. KVW_EPROTO: no JSON
 * object.
 */
enum kvw_err kvw_leg_prefill(
	struct kvw_slice body, enum kvw_api api, struct kvw_slice params,
	struct kvw_splice *out) KVW_MUST_CHECK;

/* Plans the decoder's body: params, borrowed by *out, becomes the value of `kv_transfer_params`.
 * Fails like kvw_leg_prefill. */
enum kvw_err kvw_leg_decode(struct kvw_slice body, struct kvw_slice params,
	struct kvw_splice *out) KVW_MUST_CHECK;

/* The prefiller's parameters. Borrowed from its answer. */
struct kvw_leg_params {
	struct kvw_slice text;      /* the object, as it came */
	struct kvw_slice engine_id; /* of the prefiller, as spelled; likewise the next ones */
	struct kvw_slice host, port, tp_size, dcp_size, pp_size; /* len 0: not said */
	double expires_s;           /* remote_blocks_expiry_time; 0: not said */
	uint32_t prompt_tokens;     /* 0: not said */
	uint32_t cached_tokens;     /* those of the prompt's tokens that the prefiller had cached */
};

/* Reads the parameters from the whole body of the prefiller's answer. KVW_EINVAL: there are none,
 * or they lack something without which the decoder would recompute the prompt and report no error.
 * KVW_EPROTO: not a JSON object. */
enum kvw_err kvw_leg_params_read(
	struct kvw_slice answer, struct kvw_leg_params *out) KVW_MUST_CHECK;

#endif
