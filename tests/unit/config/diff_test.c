/*
 * diff_test.c - what differs between two configurations, and what a running process keeps.
 */
#include "helpers.h"
#include "config/diff.h"
#include "config/own_keys.h"
#include "tests/unit/suite.h"

/* Two texts and their diff. */
struct compared {
	struct loaded before, after;
	struct kvw_config_diff *diff;
};

static struct compared compare(const char *before, const char *after)
{
	struct compared c = {.before = load_text(before), .after = load_text(after)};

	ck_assert_msg(c.before.err == KVW_OK, "%s", c.before.errors);
	ck_assert_msg(c.after.err == KVW_OK, "%s", c.after.errors);
	ck_assert_int_eq(
		kvw_config_diff(c.before.config, c.after.config, test_strategies, &c.diff), KVW_OK);
	return c;
}

static void release(struct compared *c)
{
	kvw_config_diff_destroy(c->diff);
	loaded_release(&c->before);
	loaded_release(&c->after);
}

static void expect_change(const struct kvw_config_change *change, const char *path,
	const char *before, const char *after, bool reload)
{
	ck_assert_str_eq(change->path, path);
	ck_assert_str_eq(change->before, before);
	ck_assert_str_eq(change->after, after);
	ck_assert_int_eq(change->reload, reload);
}

START_TEST(test_nothing_differs)
{
	struct compared c = compare(TEST_WORKER, TEST_WORKER);

	ck_assert_uint_eq(c.diff->key_count, 0);
	ck_assert_uint_eq(c.diff->worker_count, 0);
	ck_assert_uint_eq(c.diff->restart_count, 0);
	release(&c);
	c = compare("timeouts: {body: 1m, head: 2s}\nlimits: {body: 1MiB}\nrouting: {omega: 0}\n"
		    "workers: [{url: 'http://a:1'}, {url: 'http://b'}]\n",
		"timeouts: {body: 60s, head: 2000ms}\nlimits: {body: 1048576}\n"
		"routing: {omega: -0.0, strategy: prefixaware}\n"
		"workers: [{url: 'http://B:80/'}, {url: 'http://A:1'}]\n");
	ck_assert_uint_eq(c.diff->key_count, 0);
	ck_assert_uint_eq(c.diff->worker_count, 0);
	release(&c);
}
END_TEST

START_TEST(test_keys)
{
	struct compared c = compare("listen: 0.0.0.0:1\n" TEST_WORKER,
		"listen: \"[::1]:2\"\n"
		"loops: 3\n"
		"routing:\n"
		"  strategy: session\n"
		"  omega: 0.25\n"
		"  session: {headers: [x-a, X-B], body_fields: [\"a, b\", \"q\\\"\"], ttl: 90m}\n"
		"limits: {body: 1536}\n"
		"http: {half_close: serve}\n"
		"timeouts: {connect: 1500ms}\n"
		"upstream: {stall: 0s}\n"
		"expose: {lora: true}\n"
		"log: {access: 'a b'}\n" TEST_WORKER);
	const struct kvw_config_change *k = c.diff->keys;

	ck_assert_uint_eq(c.diff->key_count, 13);
	expect_change(&k[0], "listen", "0.0.0.0:1", "\"[::1]:2\"", false);
	expect_change(&k[1], "loops", "0", "3", false);
	expect_change(&k[2], "routing.strategy", "prefixaware", "session", true);
	expect_change(&k[3], "routing.omega", "0.07", "0.25", true);
	expect_change(&k[4], "routing.session.headers",
		"[x-session-id, x-claude-code-session-id, session-id, session_id, x-session-affinity, "
		"x-dynamo-session-id, x-amzn-sagemaker-session-id]",
		"[x-a, X-B]", true);
	expect_change(&k[5], "routing.session.body_fields",
		"[session_id, vllm_xargs.agentic_context.session_id, nvext.agent_context.session_id, metadata.session_id, "
		"prompt_cache_key, metadata.user_id, user, user_id]",
		"[\"a, b\", \"q\\\"\"]", true);
	expect_change(&k[6], "limits.body", "64MiB", "1536", true);
	expect_change(&k[7], "http.half_close", "abort", "serve", true);
	expect_change(&k[8], "timeouts.connect", "2s", "1500ms", true);
	expect_change(&k[9], "upstream.stall", "15s", "0s", true);
	expect_change(&k[10], "expose.lora", "false", "true", true);
	expect_change(&k[11], "log.access", "off", "\"a b\"", false);
	ck_assert_str_eq(k[12].path, "routing.session.ttl");
	ck_assert_str_eq(k[12].after, "90m");
	ck_assert_uint_eq(c.diff->restart_count, 3 + !k[12].reload);
	ck_assert_uint_eq(c.diff->worker_count, 0);
	release(&c);
}
END_TEST

START_TEST(test_workers)
{
	struct compared c = compare("workers:\n"
				    "  - {url: http://a:1, api_key: hunter2}\n"
				    "  - {url: http://b:1, models: [m]}\n"
				    "  - {url: http://c:1}\n",
		"workers:\n"
		"  - {url: http://d:1}\n"
		"  - {url: http://c:1, api_key: hunter4}\n"
		"  - {url: http://a:1, api_key: hunter3, models: [x, y]}\n");
	const struct kvw_worker_change *w = c.diff->workers;

	ck_assert_uint_eq(c.diff->key_count, 0);
	ck_assert_uint_eq(c.diff->worker_count, 4);
	ck_assert_int_eq(w[0].kind, KVW_WORKER_REMOVED);
	ck_assert_str_eq(w[0].url, "http://b:1");
	ck_assert(w[0].before == 1 && w[0].after == SIZE_MAX && w[0].key_count == 0);
	ck_assert_int_eq(w[1].kind, KVW_WORKER_ADDED);
	ck_assert_str_eq(w[1].url, "http://d:1");
	ck_assert(w[1].before == SIZE_MAX && w[1].after == 0);
	ck_assert_int_eq(w[2].kind, KVW_WORKER_CHANGED);
	ck_assert_uint_eq(w[2].key_count, 1);
	expect_change(&w[2].keys[0], "api_key", "\"\"", "(secret)", true);
	ck_assert(w[3].before == 0 && w[3].after == 2);
	ck_assert_uint_eq(w[3].key_count, 2);
	expect_change(&w[3].keys[0], "models", "[]", "[x, y]", true);
	expect_change(&w[3].keys[1], "api_key", "(secret)", "(secret)", true);
	ck_assert_uint_eq(c.diff->restart_count, 0);
	release(&c);
}
END_TEST

/* The same of aliases. */
START_TEST(test_models)
{
	struct compared c = compare("models: {a: {to: b}, 'c: d': {to: a}}\n" TEST_WORKER,
		"models: {'c: d': {to: a}, a: {to: b}}\n" TEST_WORKER);

	ck_assert_uint_eq(c.diff->key_count, 0);
	release(&c);
	c = compare("models: {a: {to: b}, 'c: d': {to: a}}\n" TEST_WORKER, "models: {a: {to: c}}\n" TEST_WORKER);
	ck_assert_uint_eq(c.diff->key_count, 1);
	expect_change(&c.diff->keys[0], "models", "{a: {to: b}, \"c: d\": {to: a}}", "{a: {to: c}}", true);
	ck_assert_uint_eq(c.diff->restart_count, 0);
	release(&c);
}
END_TEST

/* One change for the whole list, which a reload takes over; order is no difference. */
START_TEST(test_service_levels)
{
	struct compared c = compare("admission: {classes: [a, b]}\n"
				    "service_levels: [{model: m, ttft: 60s}, {class: a, tpot: 5ms}]\n" TEST_WORKER,
		"admission: {classes: [a, b]}\n"
		"service_levels: [{class: a, tpot: 5ms}, {model: m, ttft: 1m}]\n" TEST_WORKER);

	ck_assert_uint_eq(c.diff->key_count, 0);
	release(&c);
	c = compare(TEST_WORKER, "loops: 2\n"
				 "admission: {classes: [a], default_class: a}\n"
				 "service_levels:\n"
				 "  - {ttft: 0s, model: \"m, n\", class: a}\n"
				 "  - {model: x, tpot: 5ms, ttft_per_1k_tokens: 1s}\n" TEST_WORKER);
	ck_assert_uint_eq(c.diff->key_count, 4);
	expect_change(&c.diff->keys[1], "admission.classes", "[]", "[a]", true);
	expect_change(&c.diff->keys[2], "admission.default_class", "\"\"", "a", true);
	expect_change(&c.diff->keys[3], "service_levels", "[]",
		"[{model: \"m, n\", class: a, ttft: 0s}, "
		"{model: x, ttft_per_1k_tokens: 1s, tpot: 5ms}]",
		true);
	ck_assert_uint_eq(c.diff->restart_count, 1);
	release(&c);
	c = compare("service_levels: [{model: m, ttft: 0s}]\n" TEST_WORKER,
		"service_levels: [{model: m, tpot: 0s}]\n" TEST_WORKER);
	ck_assert_uint_eq(c.diff->key_count, 1);
	expect_change(&c.diff->keys[0], "service_levels", "[{model: m, ttft: 0s}]",
		"[{model: m, tpot: 0s}]", true);
	release(&c);
	c = compare("service_levels: [{model: m, ttft: 0s, tpot: 5ms}]\n" TEST_WORKER,
		"service_levels: [{model: m, ttft: 0s, tpot: 6ms}]\n" TEST_WORKER);
	ck_assert_uint_eq(c.diff->key_count, 1);
	release(&c);
}
END_TEST

START_TEST(test_rate_limits)
{
	struct compared c = compare("rate_limits: [{tenant: t, concurrent: 1}, {model: m, concurrent: 2}]\n" TEST_WORKER,
		"rate_limits: [{model: m, concurrent: 2}, {tenant: t, concurrent: 1}]\n" TEST_WORKER);

	ck_assert_uint_eq(c.diff->key_count, 0);
	release(&c);
	c = compare(TEST_WORKER,
		"rate_limits: [{tenant: 'a, b', requests_per_minute: 9, burst: 60s}]\n" TEST_WORKER);
	ck_assert_uint_eq(c.diff->key_count, 1);
	expect_change(&c.diff->keys[0], "rate_limits", "[]",
		"[{tenant: \"a, b\", requests_per_minute: 9, burst: 1m}]", true);
	ck_assert_uint_eq(c.diff->restart_count, 0);
	release(&c);
}
END_TEST

/* One change for the whole list, which needs a restart and is kept until then. */
START_TEST(test_pools)
{
	struct compared c = compare("discovery: {kubernetes: {pools: [{service: a, models: [m]}]}}\n",
		"discovery: {kubernetes: {pools: [{selector: 'b in (c, d)', port: 1, api_key: k}, {service: a}]}}\n");
	struct kvw_config *after = c.after.config;

	ck_assert_uint_eq(c.diff->key_count, 1);
	ck_assert_uint_eq(c.diff->restart_count, 1);
	expect_change(&c.diff->keys[0], "discovery.kubernetes.pools", "[{service: a, models: [m]}]",
		"[{selector: \"b in (c, d)\", port: 1, api_key: (secret)}, {service: a}]", false);
	ck_assert_int_eq(kvw_config_take_restart_keys(c.before.config, after, test_strategies), KVW_OK);
	ck_assert_uint_eq(after->pool_count, 1);
	ck_assert_str_eq(after->pools[0].service, "a");
	ck_assert_str_eq(after->pools[0].models.items[0], "m");
	release(&c);
	c = compare("discovery: {kubernetes: {pools: [{service: a}]}}\n",
		"discovery:\n  kubernetes:\n    pools:\n      - service: a\n");
	ck_assert_uint_eq(c.diff->key_count, 0);
	release(&c);
}
END_TEST

/* `after` then differs in nothing that needs a restart, and owns what it has. */
START_TEST(test_restart_keys_are_kept)
{
	struct compared c = compare("listen: 0.0.0.0:1\n"
				    "admin: {listen: 127.0.0.1:2}\n"
				    "kvaware: {index_bytes: 2MiB}\n"
				    "log: {level: warn}\n"
				    "routing: {session: {headers: [a]}}\n" TEST_WORKER,
		"listen: 0.0.0.0:3\n"
		"log: {level: error, access: stdout}\n"
		"routing: {session: {headers: [b, c]}}\n" TEST_WORKER "  - url: http://b:1\n");
	struct kvw_config *after = c.after.config;

	ck_assert_uint_eq(c.diff->restart_count, 4);
	kvw_config_diff_destroy(c.diff);
	ck_assert_int_eq(
		kvw_config_take_restart_keys(c.before.config, after, test_strategies), KVW_OK);
	ck_assert_int_eq(kvw_config_diff(c.before.config, after, test_strategies, &c.diff), KVW_OK);
	ck_assert_uint_eq(c.diff->restart_count, 0);
	ck_assert_uint_eq(c.diff->key_count, 2);
	ck_assert_uint_eq(c.diff->worker_count, 1);
	kvw_config_destroy(c.before.config);
	c.before.config = NULL;
	ck_assert_str_eq(after->listen, "0.0.0.0:1");
	ck_assert_str_eq(after->admin_listen, "127.0.0.1:2");
	ck_assert_uint_eq(after->kvaware_index_bytes, 2u << 20);
	ck_assert_str_eq(after->log_access, "off");
	ck_assert_uint_eq(after->session_headers.count, 2);
	release(&c);
}
END_TEST

/* Every key's value as text loads as the same value. */
static void reload_as_text(const struct kvw_config *config)
{
	struct kvw_own_keys own;

	kvw_own_keys_init(&own, test_strategies);
	for (size_t i = 0; i < own.schema.key_count; i++) {
		const struct kvw_key *key = &own.keys[i];
		char yaml[8192], path[KVW_SCHEMA_MAX_PATH], *text = NULL;
		const char *name = path, *dot;
		size_t used = 0, depth = 0;
		struct loaded again;

		ck_assert_int_eq(kvw_key_text(key, config, &text), KVW_OK);
		snprintf(path, sizeof(path), "%s", key->path);
		for (; (dot = strchr(name, '.')) != NULL; name = dot + 1)
			used += (size_t)snprintf(yaml + used, sizeof(yaml) - used, "%*s%.*s:\n",
				(int)(2 * depth++), "", (int)(dot - name), name);
		snprintf(yaml + used, sizeof(yaml) - used, "%*s%s: %s\n" TEST_WORKER,
			(int)(2 * depth), "", name, text);
		again = load_text(yaml);
		ck_assert_msg(again.err == KVW_OK ||
				      strstr(again.errors, "expected certificate") != NULL ||
				      strstr(again.errors, key->path) == NULL,
			"%s: %s", key->path, again.errors);
		if (again.err == KVW_OK)
			ck_assert_msg(kvw_key_same(key, config, again.config), "%s", yaml);
		free(text);
		loaded_release(&again);
	}
}

START_TEST(test_text_loads_again)
{
	struct loaded loaded = load_text(
		TEST_WORKER "routing:\n"
			    "  omega: 0.1234567890123456789\n"
			    "  context_ns_per_token: 1e6\n"
			    "  session:\n"
			    "    body_fields: [':a', 'a:', 'a: b', '- y', \"\\u0085\\u009b\", "
			    "\"a\\u2028b\\uFEFF\", '\"\\', 'null']\n"
			    "    cookies: ['!', 'x-`y']\n"
			    "log: {access: \"\\u2029 ' \\\\ \\\" \\u00e4\"}\n"
			    "health: {path: '/a:b?c=[d]'}\n");

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	reload_as_text(loaded.config);
	loaded_release(&loaded);
	loaded = load_text(TEST_WORKER);
	reload_as_text(loaded.config);
	loaded_release(&loaded);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("diff");

	tcase_add_test(tc, test_nothing_differs);
	tcase_add_test(tc, test_keys);
	tcase_add_test(tc, test_workers);
	tcase_add_test(tc, test_service_levels);
	tcase_add_test(tc, test_rate_limits);
	tcase_add_test(tc, test_models);
	tcase_add_test(tc, test_pools);
	tcase_add_test(tc, test_restart_keys_are_kept);
	tcase_add_test(tc, test_text_loads_again);
	return run_tcase("config diff", tc);
}
