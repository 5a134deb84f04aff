/*
 * reference.c - what a body means, computed the plain way: from jansson's tree of it.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "openai/chain.h"
#include "reference.h"

/* A growing run of bytes. */
struct bytes {
	unsigned char *data;
	size_t len, capacity;
};

struct pair {
	uint64_t hash;
	uint32_t units;
};

/* The fold, and whether all types were as promised. */
struct fold {
	struct seen *seen;
	uint64_t hash;
	uint32_t units;
	bool wrong;
};

static void bytes_add(struct bytes *bytes, const void *data, size_t len)
{
	if (bytes->capacity - bytes->len < len) {
		bytes->capacity = (bytes->len + len) * 2 + 16;
		bytes->data = realloc(bytes->data, bytes->capacity);
		if (bytes->data == NULL)
			abort();
	}
	memcpy(bytes->data + bytes->len, data, len);
	bytes->len += len;
}

/* The shortest JSON spelling of a string. */
static struct bytes canonical(const json_t *string)
{
	const char *p = json_string_value(string), *end = p + json_string_length(string);
	struct bytes bytes = {0};

	for (; p < end; p++) {
		static const char specials[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
		const char *special = *p == '\0' ? NULL : strchr(specials, *p);
		char spelt[8] = "\\";

		if (special != NULL) {
			spelt[1] = letters[special - specials];
			bytes_add(&bytes, spelt, 2);
		} else if ((unsigned char)*p < 0x20) {
			snprintf(spelt, sizeof(spelt), "\\u%04x", (unsigned)*p);
			bytes_add(&bytes, spelt, 6);
		} else {
			bytes_add(&bytes, p, 1);
		}
	}
	return bytes;
}

static struct pair string_value(const json_t *string)
{
	struct bytes bytes = canonical(string);
	struct pair value = {KVW_TAG_STRING, (uint32_t)bytes.len};

	for (size_t at = 0; at < bytes.len; at += 256) {
		size_t len = bytes.len - at < 256 ? bytes.len - at : 256;

		value.hash = kvw_mix(value.hash, XXH3_64bits(bytes.data + at, len));
	}
	value.hash = kvw_mix(value.hash, bytes.len);
	free(bytes.data);
	return value;
}

static uint64_t word(const char *text)
{
	json_t *string = json_string(text);
	uint64_t hash = string_value(string).hash;

	json_decref(string);
	return hash;
}

static bool is_media(const char *key)
{
	static const char *const names[] = {"url", "data", "file", "audio", "image", "video",
		"source", "file_url", "audio_url", "image_url", "video_url", "file_data",
		"input_audio", "image_embeds", "audio_embeds", "encrypted_content"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(key, names[i]) == 0)
			return true;
	}
	return false;
}

static int compare_members(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static struct pair any_value(const json_t *value);

/* Members but those named, sorted by the hash of their keys. nulls: whether a null counts. */
static struct pair members(const json_t *object, const char *const *except, bool nulls)
{
	size_t size = json_object_size(object), count = 0;
	uint64_t(*sorted)[2] = calloc(size + 1, sizeof(*sorted));
	struct pair sum = {KVW_TAG_OBJECT, 0};
	const char *key;
	json_t *member;

	json_object_foreach((json_t *)object, key, member)
	{
		struct pair value;
		bool skip = !nulls && json_is_null(member);

		for (const char *const *name = except; *name != NULL; name++)
			skip = skip || strcmp(key, *name) == 0;
		if (skip)
			continue;
		value = any_value(member);
		sorted[count][0] = XXH3_64bits(key, strlen(key));
		sorted[count++][1] = value.hash;
		sum.units +=
			(is_media(key) ? KVW_MEDIA_UNITS : value.units) + (uint32_t)strlen(key);
	}
	qsort(sorted, count, sizeof(*sorted), compare_members);
	for (size_t i = 0; i < count; i++)
		sum.hash = kvw_mix(kvw_mix(sum.hash, sorted[i][0]), sorted[i][1]);
	free(sorted);
	return count > 0 ? sum : (struct pair){0, 0};
}

static struct pair any_value(const json_t *value)
{
	static const char *const none[] = {NULL};
	struct pair result = {KVW_TAG_ARRAY, 0};
	char digits[32];
	double real;

	switch (json_typeof(value)) {
	case JSON_STRING:
		return string_value(value);
	case JSON_INTEGER:
		snprintf(digits, sizeof(digits), "%lld", (long long)json_integer_value(value));
		return (struct pair){
			kvw_mix(KVW_TAG_NUMBER, ~XXH3_64bits(digits, strlen(digits))), 4};
	case JSON_REAL:
		real = json_real_value(value);
		return (struct pair){kvw_mix(KVW_TAG_NUMBER, XXH3_64bits(&real, sizeof(real))), 4};
	case JSON_TRUE:
		return (struct pair){KVW_TAG_TRUE, 4};
	case JSON_FALSE:
		return (struct pair){KVW_TAG_FALSE, 4};
	case JSON_NULL:
		return (struct pair){KVW_TAG_NULL, 4};
	case JSON_ARRAY:
		for (size_t i = 0; i < json_array_size(value); i++) {
			struct pair element = any_value(json_array_get(value, i));

			result.hash = kvw_mix(result.hash, element.hash);
			result.units += element.units;
		}
		return result;
	default:
		result = members(value, none, true);
		return result.hash == 0 ? (struct pair){KVW_TAG_OBJECT, 0} : result;
	}
}

static void emit(struct fold *fold, uint64_t hash, uint32_t units)
{
	struct kvw_route_request *request = &fold->seen->request;

	if (hash == 0 && units == 0)
		return;
	fold->hash = kvw_mix(fold->hash, hash);
	if (units == 0)
		return;
	fold->units += units;
	if (request->chunk_count == MAX_CHUNKS)
		abort();
	fold->seen->chunks[request->chunk_count++] = (struct kvw_chunk){fold->hash, fold->units, 0};
}

static void emit_text(struct fold *fold, const json_t *string)
{
	struct bytes bytes = canonical(string);

	for (size_t at = 0; at < bytes.len; at += 256) {
		size_t len = bytes.len - at < 256 ? bytes.len - at : 256;

		emit(fold, XXH3_64bits(bytes.data + at, len), (uint32_t)len);
	}
	free(bytes.data);
}

static void emit_ids(struct fold *fold, const json_t *list)
{
	uint32_t ids[64], count = 0;

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *id = json_array_get(list, i);

		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
			json_integer_value(id) > (json_int_t)UINT32_MAX) {
			fold->wrong = true;
			return;
		}
		ids[count++] = (uint32_t)json_integer_value(id);
		if (count == 64 || i + 1 == json_array_size(list)) {
			emit(fold, XXH3_64bits(ids, count * sizeof(ids[0])), count);
			count = 0;
		}
	}
}

/* null counts as absent. */
static const json_t *get(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_null(value) ? NULL : value;
}

static const json_t *get_string(struct fold *fold, const json_t *object, const char *key)
{
	const json_t *value = get(object, key);

	fold->wrong = fold->wrong || (value != NULL && !json_is_string(value));
	return json_is_string(value) ? value : NULL;
}

static const json_t *get_list(struct fold *fold, const json_t *object, const char *key)
{
	const json_t *value = get(object, key);

	fold->wrong = fold->wrong || (value != NULL && !json_is_array(value));
	return json_is_array(value) ? value : NULL;
}

static bool is_plain_type(uint64_t type)
{
	return type == 0 || type == word("text") || type == word("input_text") ||
	       type == word("output_text") || type == word("summary_text");
}

/* system: of /v1/messages, where billing headers are dropped: then false. */
static bool emit_part(struct fold *fold, const json_t *part, bool first, bool system)
{
	static const char *const special[] = {"type", "text", "cache_control", NULL};
	static const char billing[] = "x-anthropic-billing-header";
	const json_t *text = json_is_string(part) ? part : NULL;
	struct pair rest = {0, 0};
	uint64_t type = 0;

	if (json_is_object(part)) {
		const json_t *name = get_string(fold, part, "type");

		text = get_string(fold, part, "text");
		type = name == NULL ? 0 : string_value(name).hash;
		rest = members(part, special, false);
	} else if (text == NULL) {
		fold->wrong = true;
		return true;
	}
	if (system && text != NULL &&
		strncmp(json_string_value(text), billing, sizeof(billing) - 1) == 0)
		return false;
	if (!is_plain_type(type))
		emit(fold, kvw_mix(KVW_TAG_PART, type), 0);
	else if (!first)
		emit(fold, KVW_TAG_PART, 0);
	if (text != NULL)
		emit_text(fold, text);
	emit(fold, rest.hash, rest.units);
	return true;
}

static void emit_content(struct fold *fold, const json_t *content, bool system)
{
	bool first = true;

	if (content == NULL)
		return;
	if (json_is_string(content)) {
		emit_text(fold, content);
		return;
	}
	if (!json_is_array(content)) {
		fold->wrong = true;
		return;
	}
	/* A part that was dropped leaves its place to the next. */
	for (size_t i = 0; i < json_array_size(content); i++)
		first = !emit_part(fold, json_array_get(content, i), first, system) && first;
}

static void emit_head(struct fold *fold, uint64_t role, uint64_t type)
{
	fold->hash = kvw_mix(fold->hash, kvw_mix(kvw_mix(KVW_TAG_MESSAGE, role), type));
	fold->units += KVW_MESSAGE_UNITS;
}

static void emit_message(struct fold *fold, const json_t *message)
{
	static const char *const special[] = {"role", "content", "type", "tool_calls",
		"function_call", "id", "status", "cache_control", NULL};
	static const char *const calls[] = {"tool_calls", "function_call"};
	const json_t *role, *type;
	struct pair extra;
	uint64_t type_hash;

	if (!json_is_object(message)) {
		fold->wrong = true;
		return;
	}
	role = get_string(fold, message, "role");
	type = get_string(fold, message, "type");
	type_hash = type == NULL ? 0 : string_value(type).hash;
	emit_head(fold, role == NULL ? 0 : string_value(role).hash,
		type_hash == word("message") ? 0 : type_hash);
	extra = members(message, special, false);
	emit(fold, extra.hash, extra.units);
	emit_content(fold, get(message, "content"), false);
	for (size_t i = 0; i < 2; i++) {
		const json_t *call = get(message, calls[i]);
		struct pair value;

		if (call == NULL)
			continue;
		/* A bare number or truth value is neither a list nor a call. */
		if (json_is_number(call) || json_is_boolean(call)) {
			fold->wrong = true;
			continue;
		}
		value = any_value(call);
		emit(fold, value.hash, value.units);
	}
}

static void emit_tools(struct fold *fold, const json_t *tools, uint64_t tag)
{
	static const char *const special[] = {"cache_control", NULL};

	if (tools == NULL || json_array_size(tools) == 0)
		return;
	fold->hash = kvw_mix(fold->hash, tag);
	for (size_t i = 0; i < json_array_size(tools); i++) {
		const json_t *tool = json_array_get(tools, i);
		struct pair value;

		if (!json_is_object(tool)) {
			fold->wrong = true;
			return;
		}
		value = members(tool, special, true);
		emit(fold, value.hash == 0 ? KVW_TAG_OBJECT : value.hash, value.units);
	}
}

static void end_chain(struct fold *fold)
{
	struct kvw_route_request *request = &fold->seen->request;

	if (request->chain_count == MAX_CHAINS)
		abort();
	fold->seen->chain_ends[request->chain_count++] = request->chunk_count;
	fold->hash = request->seed;
	fold->units = 0;
}

static void emit_prompt(struct fold *fold, const json_t *prompt)
{
	const json_t *first = json_array_get(prompt, 0);

	if (json_is_string(prompt)) {
		emit_text(fold, prompt);
		end_chain(fold);
		return;
	}
	if (!json_is_array(prompt)) {
		fold->wrong = true;
		return;
	}
	if (first == NULL || json_is_number(first)) {
		fold->seen->request.token_ids = first != NULL;
		emit_ids(fold, prompt);
		end_chain(fold);
		return;
	}
	for (size_t i = 0; i < json_array_size(prompt); i++) {
		const json_t *item = json_array_get(prompt, i);

		if (json_typeof(item) != json_typeof(first)) {
			fold->wrong = true;
		} else if (json_is_string(item)) {
			emit_text(fold, item);
		} else if (json_is_array(item)) {
			fold->seen->request.token_ids = true;
			emit_ids(fold, item);
		} else {
			fold->wrong = true;
		}
		end_chain(fold);
	}
}

/* A bit per API. */
#define BIT(api) (1u << KVW_API_##api)
#define TALKS                                                                                      \
	(BIT(CHAT) | BIT(RESPONSES) | BIT(MESSAGES) | BIT(COUNT_TOKENS) | BIT(TOKENIZE) |          \
		BIT(EMBEDDINGS))
#define ANTHROPIC (BIT(MESSAGES) | BIT(COUNT_TOKENS))

/* In the order of the fold; one number may have a name in each API. */
static const struct setting {
	unsigned number;
	const char *name;
	unsigned apis;
	enum { NO_DEFAULT, TRUE_DEFAULT, FALSE_DEFAULT, SPECIAL_DEFAULT } normal;
} settings[] = {
	{1, "chat_template", TALKS, NO_DEFAULT},
	{2, "chat_template_kwargs", TALKS, NO_DEFAULT},
	{3, "documents", TALKS, NO_DEFAULT},
	{4, "add_generation_prompt", TALKS, TRUE_DEFAULT},
	{5, "continue_final_message", TALKS, FALSE_DEFAULT},
	{6, "add_special_tokens", TALKS | BIT(COMPLETIONS), SPECIAL_DEFAULT},
	{7, "truncate_prompt_tokens", TALKS | BIT(COMPLETIONS), NO_DEFAULT},
	{8, "mm_processor_kwargs", TALKS, NO_DEFAULT},
	{9, "reasoning_effort", TALKS, NO_DEFAULT},
	{10, "reasoning", BIT(RESPONSES), NO_DEFAULT},
	{10, "output_config", ANTHROPIC, NO_DEFAULT},
	{11, "thinking", ANTHROPIC, NO_DEFAULT},
	{12, "prompt", BIT(RESPONSES), NO_DEFAULT},
	{13, "suffix", BIT(COMPLETIONS), NO_DEFAULT},
};

static uint64_t fold_settings(uint64_t hash, enum kvw_api api, const json_t *root, bool talk)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		const struct setting *setting = &settings[i];
		const json_t *value = get(root, setting->name);
		bool normal = false;

		if (value == NULL || !(setting->apis >> api & 1))
			continue;
		if (setting->normal == TRUE_DEFAULT)
			normal = json_is_true(value);
		else if (setting->normal == FALSE_DEFAULT)
			normal = json_is_false(value);
		else if (setting->normal == SPECIAL_DEFAULT)
			normal = talk ? json_is_false(value) : json_is_true(value);
		if (!normal)
			hash = kvw_mix(kvw_mix(hash, setting->number), any_value(value).hash);
	}
	return hash;
}

static uint64_t text_hash(const json_t *string)
{
	return string == NULL ? 0
			      : XXH3_64bits(json_string_value(string), json_string_length(string));
}

static void keep(struct kvw_slice *slice, char *to, size_t size, const json_t *string)
{
	size_t len = string == NULL ? 0 : json_string_length(string);

	if (len > size - 1)
		len = size - 1;
	if (len > 0)
		memcpy(to, json_string_value(string), len);
	*slice = (struct kvw_slice){to, len};
}

/* A number of tokens, or 0. */
static uint32_t tokens_of(const json_t *root, const char *name)
{
	const json_t *value = get(root, name);
	bool good = json_is_integer(value) && json_integer_value(value) >= 0 &&
		    json_integer_value(value) < 1000000000;

	return good ? (uint32_t)json_integer_value(value) : 0;
}

static void fold_most(struct kvw_route_request *request, const json_t *root)
{
	const unsigned old = BIT(CHAT) | BIT(COMPLETIONS) | BIT(MESSAGES);

	if (BIT(CHAT) >> request->api & 1)
		request->answer_most = tokens_of(root, "max_completion_tokens");
	if (BIT(RESPONSES) >> request->api & 1)
		request->answer_most = tokens_of(root, "max_output_tokens");
	if (request->answer_most == 0 && old >> request->api & 1)
		request->answer_most = tokens_of(root, "max_tokens");
}

/* Fields that are not content. */
static void read_fields(struct fold *fold, const json_t *root, enum kvw_api asked)
{
	const json_t *from = root;
	struct kvw_route_request *request = &fold->seen->request;
	const json_t *stream = get(root, "stream"), *options = get(root, "stream_options"), *usage;
	bool responses = request->api == KVW_API_RESPONSES;

	keep(&request->model, fold->seen->model, sizeof(fold->seen->model),
		get_string(fold, root, "model"));
	keep(&request->previous_id, fold->seen->previous, sizeof(fold->seen->previous),
		responses ? get_string(fold, root, "previous_response_id") : NULL);
	for (size_t i = 0; i < test_options.session_field_count && request->session.len == 0; i++) {
		const json_t *field = get(root, test_options.session_fields[i]);

		keep(&request->session, fold->seen->session, sizeof(fold->seen->session),
			json_is_string(field) ? field : NULL);
	}
	fold->wrong = fold->wrong || (stream != NULL && !json_is_boolean(stream)) ||
		      (options != NULL && !json_is_object(options));
	request->stream = json_is_true(stream);
	usage = json_is_object(options) ? get(options, "include_usage") : NULL;
	fold->wrong = fold->wrong || (usage != NULL && !json_is_boolean(usage));
	request->include_usage = json_is_true(usage);
	if (asked == KVW_API_GENERATE)
		from = json_is_object(get(root, "sampling_params")) ? get(root, "sampling_params") : NULL;
	if (from != NULL && (request->api == KVW_API_CHAT || request->api == KVW_API_COMPLETIONS)) {
		const json_t *n = get(from, "n");

		if (json_is_integer(n) && json_integer_value(n) >= 0 && json_integer_value(n) < 100000)
			request->choices = (uint32_t)json_integer_value(n);
	}
	if (asked != KVW_API_GENERATE) {
		fold_most(request, root);
	} else if (from != NULL) {
		request->answer_most = tokens_of(from, "max_tokens");
		if (request->answer_most == 0)
			request->answer_most = tokens_of(from, "max_new_tokens");
	}
}

static void fold_talk(struct fold *fold, const json_t *root, const json_t *messages)
{
	enum kvw_api api = fold->seen->request.api;
	const json_t *system = NULL;

	emit_tools(fold, get_list(fold, root, "tools"), KVW_TAG_TOOLS);
	if (api == KVW_API_CHAT)
		emit_tools(fold, get_list(fold, root, "functions"), KVW_TAG_FUNCTIONS);
	if (BIT(RESPONSES) >> api & 1)
		system = get(root, "instructions");
	else if (ANTHROPIC >> api & 1)
		system = get(root, "system");
	if (system != NULL) {
		emit_head(fold, word("system"), 0);
		emit_content(fold, system, api != KVW_API_RESPONSES);
	}
	if (json_is_string(messages)) {
		emit_head(fold, word("user"), 0);
		emit_text(fold, messages);
	}
	for (size_t i = 0; i < json_array_size(messages); i++)
		emit_message(fold, json_array_get(messages, i));
	end_chain(fold);
}

/* Each of the lists is a chat of its own. */
static void fold_batch(struct fold *fold, const json_t *root, const json_t *messages)
{
	struct kvw_route_request *request = &fold->seen->request;
	json_t *none = json_array();

	if (json_array_size(get(root, "tools")) > 0 || json_array_size(get(root, "functions")) > 0)
		fold->wrong = fold->wrong || messages != NULL;
	if (messages != NULL && json_array_size(messages) == 0)
		fold_talk(fold, root, none);
	for (size_t i = 0; i < json_array_size(messages); i++) {
		const json_t *talk = json_array_get(messages, i);

		fold->hash = request->seed;
		fold->units = 0;
		fold->wrong = fold->wrong || !json_is_array(talk);
		fold_talk(fold, root, json_is_array(talk) ? talk : none);
	}
	json_decref(none);
}

/* Types are checked by folding even what is not used in the end. */
static void check_types(struct fold *fold, const json_t *root, const json_t *prompt,
	const json_t *messages, bool talks, bool batch)
{
	struct kvw_route_request kept = fold->seen->request;

	if (prompt != NULL)
		emit_prompt(fold, prompt);
	if (talks && batch)
		fold_batch(fold, root, messages);
	if (talks)
		fold_talk(fold, root, batch ? NULL : messages);
	fold->seen->request = kept;
}

/* Of a body on /invocations. */
static enum kvw_api kind_of(const json_t *root)
{
	if (get(root, "messages") != NULL)
		return KVW_API_CHAT;
	if (get(root, "prompt") != NULL || get(root, "inputs") != NULL || get(root, "prompt_embeds") != NULL)
		return KVW_API_COMPLETIONS;
	return get(root, "input") != NULL ? KVW_API_EMBEDDINGS : KVW_API_RERANK;
}

/* /invocations: all that could be a prompt is of a type that a prompt has. Returns how many are there. */
static unsigned check_invocation(struct fold *fold, const json_t *root)
{
	static const char *const names[] = {"prompt", "inputs", "input"};
	struct kvw_route_request kept = fold->seen->request;
	unsigned count = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const json_t *prompt = get(root, names[i]);

		count += prompt != NULL;
		if (prompt != NULL)
			emit_prompt(fold, prompt);
	}
	fold->seen->request.api = KVW_API_CHAT;
	fold_talk(fold, root, get_list(fold, root, "messages"));
	fold->seen->request = kept;
	return count;
}

/* The prompt of a body on /generate, under whichever name; *twice: under several. Their types are checked. */
static const json_t *generated(struct fold *fold, const json_t *root, bool *twice)
{
	static const char *const names[] = {"token_ids", "input_ids", "text"};
	struct kvw_route_request kept = fold->seen->request;
	const json_t *found = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const json_t *prompt = get(root, names[i]);

		if (prompt == NULL)
			continue;
		*twice = found != NULL;
		found = prompt;
		emit_prompt(fold, prompt);
	}
	fold->seen->request = kept;
	return found;
}

enum verdict reference_see(enum kvw_api asked, const char *body, size_t len, struct seen **out)
{
	enum kvw_api api = asked;
	json_t *root = json_loadb(body, len, JSON_ALLOW_NUL, NULL);
	struct seen *seen = calloc(1, sizeof(*seen));
	struct fold fold = {.seen = seen};
	struct kvw_route_request *request = &seen->request;
	const json_t *prompt = NULL, *messages = NULL;
	bool talks, talk, twice = false;
	uint64_t hash;

	if (seen == NULL)
		abort();
	if (!json_is_object(root)) {
		json_decref(root);
		free(seen);
		return VERDICT_NOT_JSON;
	}
	if (asked == KVW_API_INVOCATIONS)
		api = kind_of(root);
	else if (asked == KVW_API_GENERATE)
		api = KVW_API_COMPLETIONS;
	else if (asked == KVW_API_CHAT_BATCH)
		api = KVW_API_CHAT;
	talks = TALKS >> api & 1;
	seen->chunks = calloc(MAX_CHUNKS, sizeof(*seen->chunks));
	request->api = api;
	request->chunks = seen->chunks;
	request->chain_ends = seen->chain_ends;
	read_fields(&fold, root, asked);
	if (asked == KVW_API_GENERATE)
		prompt = generated(&fold, root, &twice);
	else if (api == KVW_API_COMPLETIONS || api == KVW_API_TOKENIZE)
		prompt = get(root, "prompt");
	else if (api == KVW_API_EMBEDDINGS)
		prompt = get(root, "input");
	if (asked == KVW_API_INVOCATIONS && api == KVW_API_COMPLETIONS && prompt == NULL)
		prompt = get(root, "inputs");
	if (api == KVW_API_RESPONSES) {
		messages = get(root, "input");
		fold.wrong = fold.wrong || (messages != NULL && !json_is_string(messages) &&
						   !json_is_array(messages));
	} else if (talks) {
		messages = get_list(&fold, root, "messages");
	}
	talk = messages != NULL;
	hash = kvw_mix(KVW_TAG_SEED, KVW_CHAIN_VERSION);
	hash = kvw_mix(hash, talk ? KVW_TAG_TALK : KVW_TAG_TEXT);
	hash = kvw_mix(hash, text_hash(get_string(&fold, root, "model")));
	hash = kvw_mix(hash, text_hash(get_string(&fold, root, "cache_salt")));
	request->seed = fold.hash = fold_settings(hash, asked == KVW_API_GENERATE ? asked : api, root, talk);
	request->teaches = api == KVW_API_COMPLETIONS || api == KVW_API_CHAT ||
			   api == KVW_API_RESPONSES || api == KVW_API_MESSAGES;
	check_types(&fold, root, prompt, messages, talks, asked == KVW_API_CHAT_BATCH);
	if (asked == KVW_API_INVOCATIONS)
		twice = check_invocation(&fold, root) > 1 && api != KVW_API_CHAT;
	fold.hash = request->seed;
	fold.units = 0;
	request->content_known = (prompt != NULL) != (messages != NULL) && !twice;
	if (api == KVW_API_COMPLETIONS &&
		get(root, asked == KVW_API_GENERATE ? "input_embeds" : "prompt_embeds") != NULL)
		request->content_known = false;
	if (api == KVW_API_RESPONSES &&
		(get(root, "previous_response_id") != NULL || get(root, "conversation") != NULL ||
			get(root, "previous_input_messages") != NULL))
		request->content_known = false;
	if (request->content_known && prompt != NULL)
		emit_prompt(&fold, prompt);
	else if (request->content_known && asked == KVW_API_CHAT_BATCH)
		fold_batch(&fold, root, messages);
	else if (request->content_known)
		fold_talk(&fold, root, messages);
	json_decref(root);
	if (fold.wrong) {
		seen_free(seen);
		return VERDICT_WRONG;
	}
	*out = seen;
	return VERDICT_OK;
}
