/*
 * legs.h - plans the two bodies of a request that one worker prefills and another decodes, and
 * reads the parameters that the prefiller's answer has for the decoder.
 *
 * The bodies are those that vLLM's NixlConnector expects (transfer by pull). The prefiller gets the
 * client's body, changed to generate one token without a stream, and to say that a remote worker
 * decodes. Its answer has an object `kv_transfer_params`, which is put byte for byte into the
 * client's body for the decoder. All other bytes of both bodies are the client's own. A member that
 * the prefiller must not see keeps its place and gets its neutral value. Pure functions.
 */
#ifndef KVW_OPENAI_LEGS_H
#define KVW_OPENAI_LEGS_H

#include "kvway/route_request.h"
#include "openai/splice.h"

/*
 * Plans the prefiller's body. api: KVW_API_CHAT, _COMPLETIONS, _RESPONSES or _MESSAGES. KVW_EINVAL:
 * the request must stay whole, because it has transfer parameters of its own, asks for something
 * that both workers would have to answer (several choices, echo, logprobs of the prompt, beam
 * search, work in the background), spells a name with escapes, or repeats members too often.
 * KVW_EPROTO: not a JSON object.
 */
enum kvw_err kvw_leg_prefill(
	struct kvw_slice body, enum kvw_api api, struct kvw_splice *out) KVW_MUST_CHECK;

/* Plans the decoder's body: params, borrowed by *out, becomes the value of `kv_transfer_params`.
 * Fails like kvw_leg_prefill. */
enum kvw_err kvw_leg_decode(struct kvw_slice body, struct kvw_slice params,
	struct kvw_splice *out) KVW_MUST_CHECK;

/* The prefiller's parameters. Borrowed from its answer. */
struct kvw_leg_params {
	struct kvw_slice text;      /* the object `kv_transfer_params`, as received */
	struct kvw_slice engine_id; /* the prefiller's engine id, as spelled */
	double expires_s;           /* value of remote_blocks_expiry_time; 0: not stated */
	uint32_t prompt_tokens;     /* 0: not said */
	uint32_t cached_tokens;     /* those of the prompt's tokens that the prefiller had cached */
};

/* Reads the parameters from the whole body of the prefiller's answer. KVW_EINVAL: there are none,
 * or they lack something without which the decoder would recompute the prompt and report no error.
 * KVW_EPROTO: not a JSON object. */
enum kvw_err kvw_leg_params_read(
	struct kvw_slice answer, struct kvw_leg_params *out) KVW_MUST_CHECK;

#endif
