/*
 * api_path.c - classifies a path in the form in which a lenient server might read it.
 *
 * Guarded paths must not be reachable by another spelling, so before the comparison percent-escapes
 * are decoded once, "." and ".." are resolved, and repeated and trailing slashes are dropped. The
 * forwarded path stays as received; only the decision uses the folded form. The folded form of
 * every path in the table is short: segments of more than SEGMENT bytes and paths of more than
 * SEGMENTS segments are cut there and can equal none of them.
 *
 * That suffices for denying, not for allowing: vLLM resolves no "..", so `/metrics/../v1/models` is
 * one of its paths below /metrics. So lists of allowed paths match no path with such segments or an
 * encoded slash.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "http/target.h"
#include "openai/api_path.h"

#define SEGMENT  48 /* longest kept segment in bytes; the longest known one has 43 */
#define SEGMENTS 6

struct folded {
	char text[SEGMENTS * (SEGMENT + 2)]; /* such as "/v1/models", without a trailing slash */
	size_t starts[SEGMENTS];             /* where in `text` the slash before each segment is */
	size_t len;
	size_t count; /* number of segments; those beyond SEGMENTS are not in `text` */
	/* The path had "." or "..", or an encoded slash, so that servers may read it in different
	 * ways. */
	bool winding;
};

enum effect {
	EFFECT_NONE,
	EFFECT_EMPTIES = 1,
	EFFECT_SLEEPS = 2,
	EFFECT_WAKES = 4,
	EFFECT_UNSALTED = 8,
	EFFECT_RANK = 16
};

struct known_path {
	const char *path;
	uint8_t len;
	uint8_t kind; /* enum kvw_path_kind */
	uint8_t api;  /* enum kvw_api */
	bool prompt;
	bool repeatable;
	uint8_t effects; /* bits of enum effect: what a POST does to the worker */
};

#define PROMPT(path, api)                                                                          \
	{                                                                                          \
		path, sizeof(path) - 1, KVW_PATH_FORWARD, KVW_API_##api, true, true, EFFECT_NONE   \
	}
/* A path of inference on which workers accept no cache_salt. */
#define UNSALTED(path, api)                                                                        \
	{                                                                                          \
		path, sizeof(path) - 1, KVW_PATH_FORWARD, KVW_API_##api, true, true,               \
			EFFECT_UNSALTED                                                            \
	}
/* The same of SGLang, whose body names the data-parallel rank that is to serve it. */
#define RANKED(path, api)                                                                          \
	{                                                                                          \
		path, sizeof(path) - 1, KVW_PATH_FORWARD, KVW_API_##api, true, true,               \
			EFFECT_UNSALTED | EFFECT_RANK                                              \
	}
#define LOCAL(path)                                                                                \
	{                                                                                          \
		path, sizeof(path) - 1, KVW_PATH_LOCAL, KVW_API_OTHER, false, false, EFFECT_NONE   \
	}
#define CONTROL(path)                                                                              \
	{                                                                                          \
		path, sizeof(path) - 1, KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false,      \
			EFFECT_NONE                                                                \
	}
/* A path that empties the cache: always, by default, or perhaps (/collective_rpc). */
#define EMPTIES(path)                                                                              \
	{                                                                                          \
		path, sizeof(path) - 1, KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false,      \
			EFFECT_EMPTIES                                                             \
	}
#define SLEEPS(path)                                                                               \
	{                                                                                          \
		path, sizeof(path) - 1, KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false,      \
			EFFECT_EMPTIES | EFFECT_SLEEPS                                             \
	}
#define WAKES(path)                                                                                \
	{                                                                                          \
		path, sizeof(path) - 1, KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false,      \
			EFFECT_WAKES                                                               \
	}
#define LORA(path)                                                                                 \
	{                                                                                          \
		path, sizeof(path) - 1, KVW_PATH_LORA, KVW_API_OTHER, false, false, EFFECT_NONE    \
	}

static const struct known_path known_paths[] = {
	PROMPT("/v1/chat/completions", CHAT),
	PROMPT("/v1/chat/completions/batch", CHAT_BATCH),
	PROMPT("/v1/completions", COMPLETIONS),
	PROMPT("/v1/responses", RESPONSES),
	PROMPT("/v1/messages", MESSAGES),
	PROMPT("/v1/messages/count_tokens", COUNT_TOKENS),
	PROMPT("/v1/embeddings", EMBEDDINGS),
	PROMPT("/inference/v1/generate", GENERATE),
	UNSALTED("/cohere/v2/chat", CHAT),
	PROMPT("/tokenize", TOKENIZE),
	/* These paths generate nothing: their bodies are those of chat and completions, and they
	 * work like /tokenize. */
	PROMPT("/detokenize", TOKENIZE),
	PROMPT("/v1/chat/completions/render", TOKENIZE),
	PROMPT("/v1/chat/completions/derender", TOKENIZE),
	PROMPT("/v1/completions/render", TOKENIZE),
	PROMPT("/v1/completions/derender", TOKENIZE),
	PROMPT("/v1/responses/render", TOKENIZE),
	PROMPT("/cohere/v2/chat/render", TOKENIZE),
	PROMPT("/v1/messages/render", COUNT_TOKENS),
	PROMPT("/rerank", RERANK),
	PROMPT("/v1/rerank", RERANK),
	PROMPT("/v2/rerank", RERANK),
	PROMPT("/score", RERANK),
	PROMPT("/v1/score", RERANK),
	PROMPT("/pooling", RERANK),
	PROMPT("/classify", RERANK),
	UNSALTED("/v2/embed", RERANK),
	PROMPT("/generative_scoring", RERANK),
	/* The path classifies a text; it generates none. */
	PROMPT("/v1/systemone", RERANK),
	UNSALTED("/v1/audio/transcriptions", AUDIO),
	UNSALTED("/v1/audio/translations", AUDIO),
	PROMPT("/invocations", INVOCATIONS),
	/* Paths of SGLang. */
	RANKED("/generate", GENERATE),
	UNSALTED("/generate_from_file", AUDIO), /* its body is a form */
	UNSALTED("/vertex_generate", GENERATE),
	UNSALTED("/encode", RERANK),
	UNSALTED("/v1/classify", RERANK),
	UNSALTED("/api/chat", CHAT), /* Ollama's */
	UNSALTED("/api/generate", COMPLETIONS),
	PROMPT("/v1/tokenize", TOKENIZE),
	PROMPT("/v1/detokenize", TOKENIZE),
	PROMPT("/parse_function_call", TOKENIZE),
	PROMPT("/separate_reasoning", TOKENIZE),
	LOCAL("/health"),
	LOCAL("/ready"),
	LOCAL("/ping"),
	LOCAL("/metrics"),
	LOCAL("/v1/models"),
	LOCAL("/v1/usage"),
	SLEEPS("/sleep"),
	WAKES("/wake_up"),
	EMPTIES("/release_kv_cache_memory"),
	EMPTIES("/pause"),
	CONTROL("/resume"),
	CONTROL("/abort_requests"),
	CONTROL("/inference/v1/abort_requests"),
	EMPTIES("/reset_prefix_cache"),
	CONTROL("/reset_mm_cache"),
	CONTROL("/reset_encoder_cache"),
	EMPTIES("/collective_rpc"),
	EMPTIES("/scale_elastic_ep"),
	CONTROL("/is_scaling_elastic_ep"),
	EMPTIES("/fault_tolerance/apply"),
	CONTROL("/init_weight_transfer_engine"),
	CONTROL("/shutdown_weight_transfer_engine"),
	CONTROL("/start_weight_update"),
	CONTROL("/start_draft_weight_update"),
	EMPTIES("/update_weights"),
	CONTROL("/update_weight_version"),
	EMPTIES("/finish_weight_update"),
	CONTROL("/weight_checker"),
	CONTROL("/start_profile"),
	CONTROL("/stop_profile"),
	/* Paths of SGLang. */
	EMPTIES("/flush_cache"),
	EMPTIES("/clear_hicache_storage_backend"),
	EMPTIES("/release_memory_occupation"),
	CONTROL("/resume_memory_occupation"),
	EMPTIES("/pause_generation"),
	CONTROL("/continue_generation"),
	CONTROL("/abort_request"),
	EMPTIES("/update_weights_from_disk"),
	EMPTIES("/update_weights_from_tensor"),
	EMPTIES("/update_weights_from_distributed"),
	EMPTIES("/update_weights_from_ipc"),
	CONTROL("/init_weights_update_group"),
	CONTROL("/destroy_weights_update_group"),
	CONTROL("/init_weights_send_group_for_remote_instance"),
	CONTROL("/send_weights_to_remote_instance"),
	CONTROL("/get_weights_by_name"),
	CONTROL("/set_internal_state"),
	CONTROL("/configure_logging"),
	CONTROL("/freeze_gc"),
	CONTROL("/slow_down"),
	CONTROL("/start_expert_distribution_record"),
	CONTROL("/stop_expert_distribution_record"),
	CONTROL("/dump_expert_distribution_record"),
	LORA("/load_lora_adapter"),
	LORA("/unload_lora_adapter"),
	LORA("/v1/load_lora_adapter"),
	LORA("/v1/unload_lora_adapter"),
};

/* Returns the path of a target: the part after scheme and authority, and before the query or
 * fragment. */
static struct kvw_slice path_of(struct kvw_slice target)
{
	struct kvw_slice path = target;
	size_t at = 0;

	if (target.len > 0 && target.data[0] != '/') {
		const char *scheme = memmem(target.data, target.len, "://", 3);
		const char *slash;

		if (scheme == NULL)
			return (struct kvw_slice){NULL, 0};
		scheme += 3;
		slash = memchr(scheme, '/', target.len - (size_t)(scheme - target.data));
		if (slash == NULL)
			return (struct kvw_slice){NULL, 0};
		path.data = slash;
		path.len = target.len - (size_t)(slash - target.data);
	}
	while (at < path.len && path.data[at] != '?' && path.data[at] != '#')
		at++;
	path.len = at;
	return path;
}

/* Adds a decoded segment of which `len` bytes were kept in `segment`. */
static void fold_segment(struct folded *folded, const char *segment, size_t len)
{
	if (len == 0)
		return;
	if (len == 1 && segment[0] == '.') {
		folded->winding = true;
		return;
	}
	if (len == 2 && segment[0] == '.' && segment[1] == '.') {
		folded->winding = true;
		if (folded->count == 0)
			return;
		folded->count--;
		if (folded->count < SEGMENTS)
			folded->len = folded->starts[folded->count];
		return;
	}
	if (folded->count < SEGMENTS) {
		folded->starts[folded->count] = folded->len;
		folded->text[folded->len++] = '/';
		memcpy(folded->text + folded->len, segment, len);
		folded->len += len;
	}
	folded->count++;
}

static void fold_path(struct folded *folded, struct kvw_slice path)
{
	char segment[SEGMENT + 1] = {
		/* one byte more than any known segment has, so that a segment that was cut equals
		 * none */
		0};
	size_t len = 0;

	folded->len = folded->count = 0;
	folded->winding = false;
	for (size_t i = 0; i < path.len; i++) {
		char c;

		folded->winding |= kvw_percent_byte(path.data, path.len, &i, &c) && c == '/';
		if (c == '/') {
			fold_segment(folded, segment, len);
			len = 0;
		} else if (len < sizeof(segment)) {
			segment[len++] = c;
		}
	}
	fold_segment(folded, segment, len);
}

static bool path_begins(struct kvw_slice text, struct kvw_slice with)
{
	return text.len >= with.len && memcmp(text.data, with.data, with.len) == 0;
}

/* Returns the id in /v1/KIND/{id}[/...], as it was received. */
static struct kvw_slice made_id(struct kvw_slice path)
{
	static const char prefix[] = "/v1/";
	struct kvw_slice id = {NULL, 0};
	const char *end, *slash;

	if (!path_begins(path, KVW_SLICE(prefix)))
		return id;
	end = path.data + path.len;
	path.data += sizeof(prefix) - 1;
	slash = memchr(path.data, '/', (size_t)(end - path.data));
	if (slash == NULL || slash == path.data)
		return id;
	id = (struct kvw_slice){slash + 1, (size_t)(end - slash - 1)};
	slash = memchr(id.data, '/', id.len);
	if (slash != NULL)
		id.len = (size_t)(slash - id.data);
	if (id.len == 0)
		id.data = NULL;
	return id;
}

bool kvw_path_cancels(struct kvw_slice target, struct kvw_slice id)
{
	struct kvw_slice end = KVW_SLICE("/cancel"), rest;

	if (id.len == 0)
		return false;
	rest.data = id.data + id.len;
	rest.len = (size_t)(target.data + target.len - rest.data);
	return path_begins(rest, end) && (rest.len == end.len || rest.data[end.len] == '?');
}

struct kvw_path_info kvw_path_classify(struct kvw_slice target)
{
	struct kvw_path_info info = {.kind = KVW_PATH_FORWARD, .api = KVW_API_OTHER};
	struct kvw_slice path = path_of(target);
	struct folded folded;

	fold_path(&folded, path);
	if (folded.count <= SEGMENTS) {
		for (size_t i = 0; i < sizeof(known_paths) / sizeof(known_paths[0]); i++) {
			const struct known_path *known = &known_paths[i];

			if (known->len != folded.len ||
				memcmp(known->path, folded.text, folded.len) != 0)
				continue;
			info.kind = (enum kvw_path_kind)known->kind;
			info.api = (enum kvw_api)known->api;
			info.prompt = known->prompt;
			info.repeatable = known->repeatable;
			info.unsalted = (known->effects & EFFECT_UNSALTED) != 0;
			info.rank_in_body = (known->effects & EFFECT_RANK) != 0;
			info.empties_cache = (known->effects & EFFECT_EMPTIES) != 0;
			info.sleeps = (known->effects & EFFECT_SLEEPS) != 0;
			info.wakes = (known->effects & EFFECT_WAKES) != 0;
			return info;
		}
	}
	if (folded.count > 2 && path_begins((struct kvw_slice){folded.text, folded.len},
					KVW_SLICE("/v1/models/"))) {
		info.kind = KVW_PATH_LOCAL;
		info.model_card = true;
		return info;
	}
	if (!folded.winding)
		info.made_id = made_id(path);
	info.response = info.made_id.len > 0 && path_begins(path, KVW_SLICE("/v1/responses/"));
	return info;
}

const char *const kvw_inference_paths[] = {"/v1/chat/completions", "/v1/chat/completions/batch",
	"/v1/chat/completions/render", "/v1/chat/completions/derender", "/v1/completions",
	"/v1/completions/render", "/v1/completions/derender", "/v1/responses", "/v1/responses/*",
	"/v1/messages", "/v1/messages/count_tokens", "/v1/messages/render", "/v1/embeddings",
	"/v2/embed", "/inference/v1/generate", "/cohere/v2/chat", "/cohere/v2/chat/render",
	"/tokenize", "/detokenize", "/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score",
	"/pooling", "/classify", "/generative_scoring", "/v1/systemone", "/v1/audio/transcriptions",
	"/v1/audio/translations", "/invocations", "/generate", "/generate_from_file",
	"/vertex_generate", "/encode", "/v1/classify", "/api/chat", "/api/generate", "/v1/tokenize",
	"/v1/detokenize", "/parse_function_call", "/separate_reasoning", "/v1/models",
	"/v1/usage"};
const size_t kvw_inference_path_count =
	sizeof(kvw_inference_paths) / sizeof(kvw_inference_paths[0]);

bool kvw_path_straight(struct kvw_slice target)
{
	struct folded folded;

	fold_path(&folded, path_of(target));
	return !folded.winding;
}

bool kvw_path_listed(struct kvw_slice target, const char *const *patterns, size_t count)
{
	struct folded folded;

	fold_path(&folded, path_of(target));
	if (folded.winding)
		return false;
	for (size_t i = 0; i < count; i++) {
		size_t len = strlen(patterns[i]);
		/* without the star, and without the slash before it */
		bool below = patterns[i][len - 1] == '*';

		if (below ? folded.len > len - 1 && memcmp(folded.text, patterns[i], len - 1) == 0
			  : folded.count <= SEGMENTS && folded.len == len &&
				    memcmp(folded.text, patterns[i], len) == 0)
			return true;
	}
	return false;
}

/* Decodes percent-escapes; an invalid escape stays as it is. form: plus signs become spaces. */
static size_t decode(char *out, struct kvw_slice text, bool form)
{
	size_t len = 0;

	for (size_t i = 0; i < text.len; i++) {
		if (!kvw_percent_byte(text.data, text.len, &i, &out[len]) && form &&
			out[len] == '+')
			out[len] = ' ';
		len++;
	}
	return len;
}

struct kvw_slice kvw_target_parameter(struct kvw_slice target, const char *name)
{
	struct kvw_slice coded;
	char *text;

	(void)kvw_target_query(target, name, &coded);
	text = coded.len == 0 ? NULL : malloc(coded.len);
	return (struct kvw_slice){text, text == NULL ? 0 : decode(text, coded, true)};
}

size_t kvw_path_model(struct kvw_slice path, char *out, size_t room)
{
	const struct kvw_slice before = KVW_SLICE("/v1/models/");

	path = path_of(path);
	if (!path_begins(path, before) || path.len - before.len > room)
		return 0;
	return decode(
		out, (struct kvw_slice){path.data + before.len, path.len - before.len}, false);
}

bool kvw_target_wakes_parts(struct kvw_slice target)
{
	struct kvw_slice coded;

	(void)kvw_target_query(target, "tags", &coded);
	return coded.data != NULL;
}

const char *kvw_api_name(enum kvw_api api)
{
	static const char *const names[KVW_API_COUNT] = {
		[KVW_API_OTHER] = "other",
		[KVW_API_COMPLETIONS] = "completions",
		[KVW_API_CHAT] = "chat",
		[KVW_API_RESPONSES] = "responses",
		[KVW_API_MESSAGES] = "messages",
		[KVW_API_COUNT_TOKENS] = "count_tokens",
		[KVW_API_EMBEDDINGS] = "embeddings",
		[KVW_API_RERANK] = "rerank",
		[KVW_API_TOKENIZE] = "tokenize",
		[KVW_API_AUDIO] = "audio",
		[KVW_API_INVOCATIONS] = "invocations",
		[KVW_API_GENERATE] = "generate",
		[KVW_API_CHAT_BATCH] = "chat_batch",
	};

	return (unsigned)api < KVW_API_COUNT ? names[api] : "other";
}
