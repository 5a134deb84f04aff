/*
 * path_test.c - what paths mean, and that no spelling slips past a guard.
 */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "openai/api_path.h"
#include "tests/unit/suite.h"

static const struct {
	const char *target;
	enum kvw_path_kind kind;
	enum kvw_api api;
	bool prompt, repeatable;
} paths[] = {
	{"/v1/chat/completions", KVW_PATH_FORWARD, KVW_API_CHAT, true, true},
	{"/v1/chat/completions?a=b", KVW_PATH_FORWARD, KVW_API_CHAT, true, true},
	{"/v1/completions", KVW_PATH_FORWARD, KVW_API_COMPLETIONS, true, true},
	{"/v1/responses", KVW_PATH_FORWARD, KVW_API_RESPONSES, true, true},
	{"/v1/messages", KVW_PATH_FORWARD, KVW_API_MESSAGES, true, true},
	{"/v1/messages/count_tokens", KVW_PATH_FORWARD, KVW_API_COUNT_TOKENS, true, true},
	{"/v1/embeddings", KVW_PATH_FORWARD, KVW_API_EMBEDDINGS, true, true},
	{"/tokenize", KVW_PATH_FORWARD, KVW_API_TOKENIZE, true, true},
	{"/v2/rerank", KVW_PATH_FORWARD, KVW_API_RERANK, true, true},
	{"/v1/audio/transcriptions", KVW_PATH_FORWARD, KVW_API_AUDIO, true, true},
	{"/invocations", KVW_PATH_FORWARD, KVW_API_INVOCATIONS, true, true},
	{"/inference/v1/generate", KVW_PATH_FORWARD, KVW_API_GENERATE, true, true},
	{"/generate", KVW_PATH_FORWARD, KVW_API_GENERATE, true, true},
	{"/v1/chat/completions/batch", KVW_PATH_FORWARD, KVW_API_CHAT_BATCH, true, true},
	{"/cohere/v2/chat", KVW_PATH_FORWARD, KVW_API_CHAT, true, true},
	{"/v1/responses/render", KVW_PATH_FORWARD, KVW_API_TOKENIZE, true, true},
	{"/flush_cache", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/init_weights_send_group_for_remote_instance", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"http://host:80/v1/chat/completions", KVW_PATH_FORWARD, KVW_API_CHAT, true, true},
	{"/", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"*", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"http://host", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"/v1/chat/completion", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"/v1/chat/completionss", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"/v1/files", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"/is_sleeping", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"/health", KVW_PATH_LOCAL, KVW_API_OTHER, false, false},
	{"/ready", KVW_PATH_LOCAL, KVW_API_OTHER, false, false},
	{"/ping", KVW_PATH_LOCAL, KVW_API_OTHER, false, false},
	{"/metrics?x", KVW_PATH_LOCAL, KVW_API_OTHER, false, false},
	{"/v1/models", KVW_PATH_LOCAL, KVW_API_OTHER, false, false},
	{"/v1/usage?since=24h", KVW_PATH_LOCAL, KVW_API_OTHER, false, false},
	{"/v1/models/llama", KVW_PATH_LOCAL, KVW_API_OTHER, false, false},
	{"/v1/models/org%2fllama", KVW_PATH_LOCAL, KVW_API_OTHER, false, false},
	{"/v1/models/..", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"/v1/models/../../sleep", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/sleep", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/sleep?level=1", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/collective_rpc", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/shutdown_weight_transfer_engine", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/v1/load_lora_adapter", KVW_PATH_LORA, KVW_API_OTHER, false, false},
	{"/v1/unload_lora_adapter/", KVW_PATH_LORA, KVW_API_OTHER, false, false},
	/* other spellings of a guarded path */
	{"/sleep/", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"//sleep", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/%73leep", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/%73%6C%65%65%70", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/./sleep", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/a/../sleep", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/../sleep", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/a/b/c/d/e/f/g/h/../../../../../../../../sleep", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER,
		false, false},
	{"/%2e%2e/sleep", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/a%2f..%2fsleep", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"http://x/sleep", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/sleep#x", KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/../pause",
		KVW_PATH_ENGINE_CONTROL, KVW_API_OTHER, false, false},
	{"/v1//load_lora_adapter", KVW_PATH_LORA, KVW_API_OTHER, false, false},
	/* decoded once only, as servers do; a broken escape stands for itself */
	{"/%2573leep", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"/%7", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"/sleep%", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"/x/sleep", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"/sleep/x", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
	{"/resume1", KVW_PATH_FORWARD, KVW_API_OTHER, false, false},
};

START_TEST(path)
{
	struct kvw_path_info info = kvw_path_classify(kvw_slice_of(paths[_i].target));

	ck_assert_msg(info.kind == paths[_i].kind, "%s", paths[_i].target);
	ck_assert_msg(info.api == paths[_i].api, "%s", paths[_i].target);
	ck_assert_msg(info.prompt == paths[_i].prompt, "%s", paths[_i].target);
	ck_assert_msg(info.repeatable == paths[_i].repeatable, "%s", paths[_i].target);
	ck_assert(!info.response);
}
END_TEST

static const char *const emptying[] = {"/sleep", "//sleep?level=2", "/reset_prefix_cache", "/pause",
	"/collective_rpc", "/update_weights"};
static const char *const keeping[] = {"/v1/chat/completions", "/wake_up", "/resume", "/reset_mm_cache",
	"/health", "/is_sleeping", "/v1/load_lora_adapter", "/start_profile"};

START_TEST(paths_that_empty_the_cache)
{
	for (size_t i = 0; i < sizeof(emptying) / sizeof(emptying[0]); i++)
		ck_assert_msg(kvw_path_classify(kvw_slice_of(emptying[i])).empties_cache, "%s",
			emptying[i]);
	for (size_t i = 0; i < sizeof(keeping) / sizeof(keeping[0]); i++)
		ck_assert_msg(!kvw_path_classify(kvw_slice_of(keeping[i])).empties_cache, "%s",
			keeping[i]);
}
END_TEST

static const struct {
	const char *target, *id;
} ids[] = {
	{"/v1/responses/resp_12", "resp_12"},
	{"/v1/responses/resp_12?stream=true", "resp_12"},
	{"/v1/responses/resp_12/cancel", "resp_12"},
	{"/v1/responses/resp_12/input_items?x=/", "resp_12"},
	{"http://h/v1/responses/resp_12", "resp_12"},
	{"/v1/responses/", NULL},
	{"/v1/responses//cancel", NULL},
	{"/v1/response", NULL},
	{"/v1//resp_12", NULL},
	{"/v2/responses/resp_12", NULL},
	{"/v1/videos/v_1", "v_1"},
	{"/v1/videos/v_1/content", "v_1"},
};

START_TEST(id_of_a_response)
{
	struct kvw_path_info info = kvw_path_classify(kvw_slice_of(ids[_i].target));

	ck_assert(kvw_slice_equal(info.made_id, kvw_slice_of(ids[_i].id)));
	ck_assert_int_eq(info.kind, KVW_PATH_FORWARD);
	ck_assert(info.response == (info.made_id.len > 0 && strstr(ids[_i].target, "/v1/responses/") != NULL));
	ck_assert(kvw_path_cancels(kvw_slice_of(ids[_i].target), info.made_id) ==
		(strstr(ids[_i].target, "/cancel") != NULL && info.made_id.len > 0));
}
END_TEST

START_TEST(model_of_a_path)
{
	static const struct {
		const char *path, *model;
	} cards[] = {{"/v1/models/a", "a"}, {"/v1/models/org/base", "org/base"}, {"/v1/models/org%2fbase", "org/base"},
		{"http://h/v1/models/a+b%", "a+b%"}, {"/v1/models/", ""}, {"/v1/models", ""}, {"//v1/models/a", ""},
		{"/v1/models/0123456789abc", ""}};
	char model[12];

	for (size_t i = 0; i < sizeof(cards) / sizeof(cards[0]); i++) {
		size_t len = kvw_path_model(kvw_slice_of(cards[i].path), model, sizeof(model));

		ck_assert(kvw_slice_equal((struct kvw_slice){model, len}, kvw_slice_of(cards[i].model)));
	}
}
END_TEST

START_TEST(one_path_reads_the_rank_in_the_body)
{
	ck_assert(kvw_path_classify(KVW_SLICE("/%67enerate/?x")).rank_in_body);
	ck_assert(!kvw_path_classify(KVW_SLICE("/inference/v1/generate")).rank_in_body);
	ck_assert(!kvw_path_classify(KVW_SLICE("/v1/chat/completions")).rank_in_body);
}
END_TEST

START_TEST(paths_of_sleep)
{
	ck_assert(kvw_path_classify(KVW_SLICE("/%73leep/?level=2")).sleeps);
	ck_assert(!kvw_path_classify(KVW_SLICE("/sleep")).wakes);
	ck_assert(kvw_path_classify(KVW_SLICE("/wake_up?tags=weights")).wakes);
	ck_assert(!kvw_path_classify(KVW_SLICE("/wake_up")).sleeps);
	ck_assert(!kvw_path_classify(KVW_SLICE("/is_sleeping")).sleeps);
}
END_TEST

static const struct {
	const char *target, *value; /* value NULL: none */
} queries[] = {
	{"/p?model=m", "m"},
	{"/p?a=b&model=m&model=n", "m"},
	{"http://h:1/p?model=a%2fb+c%20d", "a/b c d"},
	{"/p?model=%zz%4", "%zz%4"},
	{"/p?model=?&x", "?"},
	{"/p", NULL},
	{"/p?", NULL},
	{"/p?model", NULL},
	{"/p?model=", NULL},
	{"/p?models=m&xmodel=m&MODEL=m", NULL},
	{"/model=m", NULL},
	{"", NULL},
};

START_TEST(parameter_of_a_query)
{
	struct kvw_slice value = kvw_target_parameter(kvw_slice_of(queries[_i].target), "model");

	ck_assert(kvw_slice_equal(value, kvw_slice_of(queries[_i].value)));
	free((char *)value.data);
}
END_TEST

START_TEST(every_api_has_a_name)
{
	for (int a = 0; a < KVW_API_COUNT; a++) {
		ck_assert_ptr_nonnull(kvw_api_name((enum kvw_api)a));
		for (int b = 0; b < a; b++)
			ck_assert_str_ne(
				kvw_api_name((enum kvw_api)a), kvw_api_name((enum kvw_api)b));
	}
	ck_assert_str_eq(kvw_api_name(KVW_API_CHAT), "chat");
	ck_assert_str_eq(kvw_api_name((enum kvw_api)99), "other");
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static bool listed(const char *target, const char *pattern)
{
	return kvw_path_listed(kvw_slice_of(target), &pattern, 1);
}

START_TEST(lists_of_paths_are_compared_as_a_careless_server_reads)
{
	ck_assert(listed("/v1/models", "/v1/models"));
	ck_assert(listed("/v1/models?a=b", "/v1/models"));
	ck_assert(listed("//v1/m%6fdels/", "/v1/models"));
	ck_assert(listed("http://h/v1/models", "/v1/models"));
	ck_assert(!listed("/v1/models/x", "/v1/models"));
	ck_assert(!listed("/v1/model", "/v1/models"));
	ck_assert(!listed("/v1/models2", "/v1/models"));
	ck_assert(!listed("/v1/models/../x", "/v1/models"));
	ck_assert(!listed("/v1%252fmodels", "/v1/models"));
	ck_assert(!listed("", "/v1/models"));
	ck_assert(!listed("*", "/*"));
	ck_assert(listed("/x", "/*"));
	ck_assert(!listed("/", "/*"));
	ck_assert(listed("/v1/responses/resp_1", "/v1/responses/*"));
	ck_assert(listed("/v1/responses/a/b/c/d/e/f/g/h", "/v1/responses/*"));
	ck_assert(listed("/v1/responses/"
			 "resp_0123456789012345678901234567890123456789/cancel",
		"/v1/responses/*"));
	ck_assert(!listed("/v1/responses", "/v1/responses/*"));
	ck_assert(!listed("/v1/responses/", "/v1/responses/*"));
	ck_assert(!listed("/v1/responses/..", "/v1/responses/*"));
	ck_assert(!listed("/v1/responses/../../sleep", "/v1/responses/*"));
	ck_assert(!listed("/v1/responses/%2e%2e/%2E./sleep", "/v1/responses/*"));
	ck_assert(!listed("/v1/responses/a%2f..%2f..%2fx", "/v1/responses/*"));
	ck_assert(!listed("/a/b/c/d/e/f/g", "/a/b/c/d/e/f"));
	ck_assert(listed("/a/b/c/d/e/f", "/a/b/c/d/e/f"));
}
END_TEST

/* vLLM resolves nothing: what it has below /metrics/ gets the first. */
START_TEST(no_list_names_a_path_that_can_be_read_in_two_ways)
{
	static const char *const winding[] = {"/metrics/../v1/responses/x", "/metrics/%2e%2E/v1/responses/x",
		"/metrics/.%2e/v1/responses/x", "/./v1/responses/x", "/v1/%2e/responses/x", "/v1/responses/x/.",
		"/v1/responses/x/..", "/v1/responses/x/%2E%2e", "/v1/responses/x/..?a", "/v1/responses/a%2Fb",
		"/v1%2fresponses/x", "//../v1/responses/x", "http://h/metrics/../v1/responses/x"};
	static const char *const straight[] = {"/v1/responses/x", "/v1/responses/...", "/v1/responses/..a",
		"/v1/responses/a..", "/v1/responses/.a", "/v1/responses/x?a=/../b%2f", "/v1/responses/%252e%252e",
		"/v1//responses/x/"};

	for (size_t i = 0; i < sizeof(winding) / sizeof(winding[0]); i++) {
		ck_assert_msg(!listed(winding[i], "/v1/responses/*"), "%s", winding[i]);
		ck_assert_msg(!listed(winding[i], "/*"), "%s", winding[i]);
		ck_assert_msg(!kvw_path_straight(kvw_slice_of(winding[i])), "%s", winding[i]);
	}
	for (size_t i = 0; i < sizeof(straight) / sizeof(straight[0]); i++) {
		ck_assert_msg(listed(straight[i], "/v1/responses/*"), "%s", straight[i]);
		ck_assert_msg(kvw_path_straight(kvw_slice_of(straight[i])), "%s", straight[i]);
	}
}
END_TEST

/* All that carries a prompt, and no control of an engine. */
START_TEST(paths_of_inference_are_those_with_prompts)
{
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		bool is = kvw_path_listed(
			kvw_slice_of(paths[i].target), kvw_inference_paths, kvw_inference_path_count);

		if (paths[i].prompt)
			ck_assert_msg(is, "%s", paths[i].target);
		if (paths[i].kind == KVW_PATH_ENGINE_CONTROL || paths[i].kind == KVW_PATH_LORA)
			ck_assert_msg(!is, "%s", paths[i].target);
	}
	for (size_t i = 0; i < kvw_inference_path_count; i++) {
		struct kvw_path_info info = kvw_path_classify(kvw_slice_of(kvw_inference_paths[i]));

		ck_assert(info.prompt || info.made_id.len > 0 || info.kind == KVW_PATH_LOCAL);
	}
}
END_TEST

/*
 * Every path of the engines that takes a body is known: data/paths.json, for vLLM as GET /openapi.json has them
 * (jq '.paths | map_values(keys)') with all tasks and development paths on. One that is new there fails here.
 */
START_TEST(paths_of_engines_are_known)
{
	/* These hold a session of a client's, and no prompt. */
	static const char *const plain[] = {"/open_session", "/close_session"};
	json_t *engines = json_load_file(TEST_DATA "/paths.json", 0, NULL), *all, *methods;
	const char *engine, *name;

	ck_assert(json_object_size(engines) == 4);
	json_object_foreach(engines, engine, all) {
		json_object_foreach(all, name, methods) {
			struct kvw_slice target = kvw_slice_of(name);
			struct kvw_path_info info = kvw_path_classify(target);
			bool known = info.prompt || info.response || info.kind != KVW_PATH_FORWARD, posts = false;
			json_t *method;
			size_t i;

			json_array_foreach(methods, i, method)
				posts = posts || strcmp(json_string_value(method), "GET") != 0;
			for (i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
				known = known || strcmp(name, plain[i]) == 0;
			ck_assert_msg(!posts || known, "%s of %s is not known", name, engine);
			ck_assert_msg(!info.prompt ||
					kvw_path_listed(target, kvw_inference_paths, kvw_inference_path_count),
				"%s of %s is not a path of inference", name, engine);
		}
	}
	json_decref(engines);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("paths");

	tcase_add_loop_test(tc, path, 0, COUNT(paths));
	tcase_add_test(tc, paths_that_empty_the_cache);
	tcase_add_loop_test(tc, id_of_a_response, 0, COUNT(ids));
	tcase_add_test(tc, model_of_a_path);
	tcase_add_test(tc, one_path_reads_the_rank_in_the_body);
	tcase_add_test(tc, paths_of_sleep);
	tcase_add_test(tc, paths_of_engines_are_known);
	tcase_add_loop_test(tc, parameter_of_a_query, 0, COUNT(queries));
	tcase_add_test(tc, every_api_has_a_name);
	tcase_add_test(tc, lists_of_paths_are_compared_as_a_careless_server_reads);
	tcase_add_test(tc, no_list_names_a_path_that_can_be_read_in_two_ways);
	tcase_add_test(tc, paths_of_inference_are_those_with_prompts);
	return run_tcase("openai-path", tc);
}
