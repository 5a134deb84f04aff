/*
 * keys.c - decides what a value means, by its key.
 *
 * The APIs differ only in their top-level keys; messages have one form.
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "openai/scan_state.h"

#define BIT(api) (1u << KVW_API_##api)
#define TALKS                                                                                      \
	(BIT(CHAT) | BIT(RESPONSES) | BIT(MESSAGES) | BIT(COUNT_TOKENS) | BIT(TOKENIZE) |          \
		BIT(EMBEDDINGS) | BIT(INVOCATIONS) | BIT(CHAT_BATCH))
#define CHATS   (BIT(CHAT) | BIT(INVOCATIONS) | BIT(CHAT_BATCH))
#define TEXTS   (BIT(COMPLETIONS) | BIT(INVOCATIONS))
#define PROMPTS (TEXTS | BIT(TOKENIZE))
#define ALL     UINT16_MAX

struct root_key {
	const char *name;
	uint8_t len;
	uint8_t node; /* enum node */
	uint8_t argument;
	uint16_t apis;
};

#define KEY(name, node, argument, apis)                                                            \
	{                                                                                          \
		name, sizeof(name) - 1, node, argument, apis                                       \
	}

/* Keys not listed here do not change the prompt. */
static const struct root_key root_keys[] = {
	KEY("model", NODE_SLOT, SLOT_MODEL, ALL),
	KEY("messages", NODE_MESSAGES, 0, TALKS & ~BIT(RESPONSES)),
	KEY("n", NODE_SKIP, SKIP_CHOICES, CHATS | TEXTS),
	KEY("temperature", NODE_SKIP, SKIP_TEMPERATURE, CHATS | TEXTS),
	KEY("max_tokens", NODE_SKIP, SKIP_MOST_OLD, CHATS | TEXTS | BIT(MESSAGES)),
	KEY("max_completion_tokens", NODE_SKIP, SKIP_MOST, CHATS),
	KEY("max_output_tokens", NODE_SKIP, SKIP_MOST, BIT(RESPONSES)),
	KEY("stream", NODE_STREAM, 0, ALL),
	KEY("stream_options", NODE_STREAM_OPTIONS, 0, ALL),
	KEY("kv_transfer_params", NODE_KV_PARAMS, 0, ALL),
	KEY("prompt", NODE_PROMPT, PROMPT_OWN, PROMPTS),
	/* LMI's name of the prompt, for a completion */
	KEY("inputs", NODE_PROMPT, PROMPT_INPUTS, BIT(INVOCATIONS)),
	KEY("input", NODE_PROMPT, PROMPT_INPUT, BIT(INVOCATIONS)),
	KEY("input", NODE_PROMPT, PROMPT_OWN, BIT(EMBEDDINGS)),
	/* names of vLLM; after them those of SGLang: */
	KEY("token_ids", NODE_PROMPT, PROMPT_OWN, BIT(GENERATE)),
	KEY("input_ids", NODE_PROMPT, PROMPT_INPUTS, BIT(GENERATE)),
	KEY("text", NODE_PROMPT, PROMPT_INPUT, BIT(GENERATE)),
	KEY("input_embeds", NODE_UNKNOWN, 0, BIT(GENERATE)),
	KEY("sampling_params", NODE_SAMPLING, 0, BIT(GENERATE)),
	KEY("input", NODE_INPUT, 0, BIT(RESPONSES)),
	KEY("system", NODE_SYSTEM, 0, BIT(MESSAGES) | BIT(COUNT_TOKENS)),
	KEY("instructions", NODE_SYSTEM, 0, BIT(RESPONSES)),
	KEY("tools", NODE_TOOLS, 0, TALKS),
	KEY("functions", NODE_FUNCTIONS, 0, CHATS),
	KEY("cache_salt", NODE_SLOT, SLOT_SALT, ALL),
	KEY("previous_response_id", NODE_SLOT, SLOT_PREVIOUS, BIT(RESPONSES)),
	KEY("prompt_embeds", NODE_UNKNOWN, 0, TEXTS),
	KEY("conversation", NODE_UNKNOWN, 1, BIT(RESPONSES)),
	KEY("previous_input_messages", NODE_UNKNOWN, 2, BIT(RESPONSES)),
	KEY("chat_template", NODE_SETTING, SETTING_CHAT_TEMPLATE, TALKS),
	KEY("chat_template_kwargs", NODE_SETTING, SETTING_CHAT_TEMPLATE_KWARGS, TALKS),
	KEY("documents", NODE_SETTING, SETTING_DOCUMENTS, TALKS),
	KEY("add_generation_prompt", NODE_SETTING, SETTING_ADD_GENERATION_PROMPT, TALKS),
	KEY("continue_final_message", NODE_SETTING, SETTING_CONTINUE_FINAL_MESSAGE, TALKS),
	KEY("add_special_tokens", NODE_SETTING, SETTING_ADD_SPECIAL_TOKENS, TALKS | PROMPTS),
	KEY("truncate_prompt_tokens", NODE_SETTING, SETTING_TRUNCATE_PROMPT_TOKENS,
		TALKS | PROMPTS),
	KEY("mm_processor_kwargs", NODE_SETTING, SETTING_MM_PROCESSOR_KWARGS, TALKS),
	KEY("reasoning_effort", NODE_SETTING, SETTING_REASONING_EFFORT, TALKS),
	KEY("reasoning", NODE_SETTING, SETTING_REASONING, BIT(RESPONSES)),
	KEY("thinking", NODE_SETTING, SETTING_THINKING, BIT(MESSAGES) | BIT(COUNT_TOKENS)),
	KEY("output_config", NODE_SETTING, SETTING_REASONING, BIT(MESSAGES) | BIT(COUNT_TOKENS)),
	KEY("prompt", NODE_SETTING, SETTING_PROMPT_TEMPLATE, BIT(RESPONSES)),
	KEY("suffix", NODE_SETTING, SETTING_SUFFIX, TEXTS),
};

static inline bool is(const char *key, size_t len, const char *name, size_t name_len)
{
	return len == name_len && memcmp(key, name, name_len) == 0;
}

#define IS(name) is(key, len, name, sizeof(name) - 1)

static inline unsigned root_bucket(const char *key, size_t len)
{
	return len == 0 ? 0
			: ((unsigned)len * 5 + (unsigned char)key[0] +
				  (unsigned char)key[len / 2] * 3u) %
				  64;
}

void keys_index(struct kvw_scan *scan)
{
	_Static_assert(sizeof(root_keys) / sizeof(root_keys[0]) < 64, "root_next is too short");
	for (size_t i = 0; i < sizeof(root_keys) / sizeof(root_keys[0]); i++) {
		unsigned bucket = root_bucket(root_keys[i].name, root_keys[i].len);

		scan->root_next[i + 1] = scan->root_first[bucket];
		scan->root_first[bucket] = (uint8_t)(i + 1);
	}
}

/* Returns whether a member of that name is a session field or leads to one, if `path` is the
 * field's remaining path in the open object. *rest: the path after this member. */
static bool leads_on(struct kvw_slice path, const char *key, size_t len, struct kvw_slice *rest)
{
	if (len == 0 || path.len < len || memcmp(path.data, key, len) != 0 ||
		(path.len > len && path.data[len] != '.'))
		return false;
	*rest = (struct kvw_slice){NULL, 0};
	if (path.len > len)
		*rest = (struct kvw_slice){path.data + len + 1, path.len - len - 1};
	return true;
}

/* Handles a member of the open object that has no meaning of its own. paths: bits of the session
 * fields whose paths lead into that object. */
static void session_key(
	struct kvw_scan *scan, struct frame *frame, const char *key, size_t len, uint8_t paths)
{
	frame->within = 0;
	for (uint32_t i = scan->session_count; paths != 0 && i-- > 0;) {
		struct kvw_slice path = scan->session_names[i], rest;

		for (uint32_t level = 1; level < scan->depth && path.len > 0; level++) {
			const char *dot = memchr(path.data, '.', path.len);

			path = dot == NULL ? (struct kvw_slice){NULL, 0}
					   : (struct kvw_slice){dot + 1,
						     (size_t)(path.data + path.len - dot) - 1};
		}
		if ((paths >> i & 1) == 0 || path.len == 0 || !leads_on(path, key, len, &rest))
			continue;
		/* the last of two equal members counts */
		scan->slots[SLOT_SESSION + i].first = UINT32_MAX;
		if (rest.len > 0) {
			frame->within |= (uint8_t)(1u << i);
			continue;
		}
		frame->member = NODE_SLOT;
		frame->argument = (uint8_t)(SLOT_SESSION + i);
	}
}

static void root_key(struct kvw_scan *scan, struct frame *frame, const char *key, size_t len)
{
	scan->places.empty = false;
	scan->places.ranked = scan->places.ranked || IS("routed_dp_rank") ||
			      IS("data_parallel_rank"); /* its older name */
	frame->member = NODE_SKIP;
	frame->argument = SKIP_ALL;
	frame->within = 0;
	frame->field = places_field(scan, key, len);
	frame->holds = scan->watched != 0 && IS("sampling_params");
	for (unsigned i = scan->root_first[root_bucket(key, len)]; i != 0; i = scan->root_next[i]) {
		const struct root_key *known = &root_keys[i - 1];

		if (!is(key, len, known->name, known->len) || !(known->apis >> scan->api & 1))
			continue;
		frame->member = known->node;
		frame->argument = known->argument;
		if (known->node == NODE_SKIP)
			/* the last of two equal members counts */
			*scan_skipped(scan, known->argument) = 0;
		else if (known->node == NODE_SAMPLING)
			scan->choices = scan->greedy = scan->most = scan->most_old = 0;
		return;
	}
	session_key(scan, frame, key, len, UINT8_MAX);
}

/* Handles a member of sampling_params, of vLLM or of SGLang. */
static void sampling_key(struct kvw_scan *scan, struct frame *frame, const char *key, size_t len)
{
	frame->member = NODE_SKIP;
	frame->argument = IS("n")              ? SKIP_CHOICES
			  : IS("max_tokens")     ? SKIP_MOST
			  : IS("max_new_tokens") ? SKIP_MOST_OLD
			  : IS("temperature")    ? SKIP_TEMPERATURE
						 : SKIP_ALL;
	if (frame->argument != SKIP_ALL)
		*scan_skipped(scan, frame->argument) = 0;
}

/* Returns the kind of request. A body that could be both is a chat, as for vLLM. */
static enum kvw_api kind_of(const struct kvw_scan *scan)
{
	if (scan->has_messages)
		return KVW_API_CHAT;
	if ((scan->prompts & (1u << PROMPT_OWN | 1u << PROMPT_INPUTS)) != 0 || scan->unknown != 0)
		return KVW_API_COMPLETIONS;
	return scan->prompts != 0 ? KVW_API_EMBEDDINGS : KVW_API_RERANK;
}

static void settle_invocation(struct kvw_scan *scan)
{
	scan->api = kind_of(scan);
	for (size_t i = 0; i < sizeof(root_keys) / sizeof(root_keys[0]); i++) {
		const struct root_key *key = &root_keys[i];

		if ((key->apis >> scan->api & 1) != 0 || (key->apis & BIT(INVOCATIONS)) == 0)
			continue;
		if (key->node == NODE_SETTING)
			scan->settings[key->argument] = 0;
		else if (key->node == NODE_UNKNOWN)
			scan->unknown = 0;
		else if (key->node == NODE_SKIP)
			*scan_skipped(scan, key->argument) = 0;
	}
	if (scan->api == KVW_API_CHAT)
		scan->prompts = 0;
}

void keys_settle(struct kvw_scan *scan)
{
	scan->batch = scan->api == KVW_API_CHAT_BATCH;
	if (scan->api == KVW_API_INVOCATIONS)
		settle_invocation(scan);
	else if (scan->api == KVW_API_GENERATE)
		scan->api = KVW_API_COMPLETIONS;
	else if (scan->batch)
		scan->api = KVW_API_CHAT;
	if ((scan->prompts & (scan->prompts - 1)) != 0)
		scan->unknown = 1; /* it is not known which of the two the worker reads */
}

/* Returns the meaning of a message's member that has one of its own. */
static enum node message_key(const char *key, size_t len, uint8_t *argument)
{
	*argument = 0;
	if (IS("role"))
		return NODE_ROLE;
	if (IS("content"))
		return NODE_CONTENT;
	if (IS("type"))
		return NODE_ITEM_TYPE;
	if (IS("tool_calls"))
		return NODE_CALLS;
	if (IS("function_call")) {
		*argument = 1;
		return NODE_CALLS;
	}
	/* The id and state of an item, which the API stores, never reach the template. */
	if (IS("id") || IS("status") || IS("cache_control"))
		return NODE_SKIP;
	return NODE_VALUE;
}

static enum node part_key(const char *key, size_t len)
{
	if (IS("type"))
		return NODE_PART_TYPE;
	if (IS("text"))
		return NODE_PART_TEXT;
	return IS("cache_control") ? NODE_SKIP : NODE_VALUE;
}

void keys_value_of(struct kvw_scan *scan, const char *key, size_t len)
{
	struct frame *frame = scan_top(scan);

	switch ((enum node)frame->node) {
	case NODE_ROOT:
		root_key(scan, frame, key, len);
		return;
	case NODE_STREAM_OPTIONS:
		frame->member = IS("include_usage") ? NODE_INCLUDE_USAGE : NODE_SKIP;
		return;
	case NODE_SAMPLING:
		sampling_key(scan, frame, key, len);
		return;
	case NODE_KV_PARAMS:
		frame->member = IS("kvtier.fragments") ? NODE_FRAGMENTS : NODE_SKIP;
		return;
	case NODE_MESSAGE:
		frame->member = message_key(key, len, &frame->argument);
		break;
	case NODE_PART:
		frame->member = part_key(key, len);
		break;
	case NODE_TOOL:
		frame->member = IS("cache_control") ? NODE_SKIP : NODE_VALUE;
		break;
	case NODE_SKIP:
		frame->member = NODE_SKIP;
		session_key(scan, frame, key, len, frame->inside);
		frame->field = frame->holds ? places_field(scan, key, len) : 0;
		return;
	default:
		frame->member = NODE_VALUE;
		break;
	}
	if (frame->member == NODE_VALUE) {
		frame->key = XXH3_64bits(key, len);
		frame->key_len = (uint32_t)len;
		frame->media = value_is_media(key, len);
	}
}
