/*
 * write_test.c - a configuration written as YAML loads as the same.
 *
 * Argument: the folder config/ of the source tree.
 */
#include "helpers.h"
#include "config/diff.h"
#include "config/write.h"
#include "tests/unit/suite.h"

static const char *config_dir;

static char *written(
	const struct kvw_config *config, const struct kvw_strategy_ops *const *strategies)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	ck_assert_ptr_nonnull(out);
	ck_assert_int_eq(kvw_config_write(out, config, strategies), KVW_OK);
	fclose(out);
	return text;
}

START_TEST(test_only_what_differs)
{
	struct loaded loaded = load_text("loops: 0\n"
					 "timeouts: {body: 2m, head: 10s}\n"
					 "routing:\n"
					 "  omega: 0.5\n"
					 "  session: {ttl: 5m, headers: [a]}\n"
					 "upstream: {tls: {insecure: true}}\n"
					 "service_levels:\n"
					 "  - {tpot: 20ms, class: b, ttft: 0s}\n"
					 "  - {model: 'm: 1', ttft: 60s}\n"
					 "rate_limits: [{tenant: 't: 1', burst: 1m, concurrent: 5}, "
					 "{model: m, tokens_per_day: 7}]\n"
					 "admission: {classes: [a, b], default_class: a}\n"
					 "workers:\n"
					 "  - {url: 'http://a', api_key: hunter2}\n"
					 "  - {models: ['m: 1', n], url: 'http://b:2/x'}\n");
	char *text;

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	text = written(loaded.config, test_strategies);
	ck_assert_str_eq(text, "listen: 0.0.0.0:8080\n"
			       "routing:\n"
			       "  strategy: prefixaware\n"
			       "  omega: 0.5\n"
			       "  session:\n"
			       "    headers: [a]\n"
			       "    ttl: 5m\n"
			       "timeouts:\n"
			       "  body: 2m\n"
			       "upstream:\n"
			       "  tls:\n"
			       "    insecure: true\n"
			       "admission:\n"
			       "  classes: [a, b]\n"
			       "  default_class: a\n"
			       "service_levels:\n"
			       "  - class: b\n"
			       "    ttft: 0s\n"
			       "    tpot: 20ms\n"
			       "  - model: \"m: 1\"\n"
			       "    ttft: 1m\n"
			       "rate_limits:\n"
			       "  - model: m\n"
			       "    tokens_per_day: 7\n"
			       "  - tenant: \"t: 1\"\n"
			       "    concurrent: 5\n"
			       "    burst: 1m\n"
			       "workers:\n"
			       "  - url: http://a:80\n"
			       "    # api_key: (secret)\n"
			       "  - url: http://b:2/x\n"
			       "    models: [\"m: 1\", n]\n");
	free(text);
	loaded_release(&loaded);
}
END_TEST

/* `config`, written and loaded, is `config` but for secrets. */
static void expect_same(
	const struct kvw_config *config, const struct kvw_strategy_ops *const *strategies)
{
	struct kvw_config *again = NULL;
	struct kvw_config_diff *diff = NULL;
	char *text = written(config, strategies);

	ck_assert_msg(
		kvw_config_parse("again", text, strlen(text), strategies, stderr, &again) == KVW_OK,
		"%s", text);
	ck_assert_int_eq(kvw_config_diff(config, again, strategies, &diff), KVW_OK);
	ck_assert_msg(diff->key_count == 0, "%s", text);
	for (size_t i = 0; i < diff->worker_count; i++)
		ck_assert_msg(diff->workers[i].key_count == 1 &&
				      strcmp(diff->workers[i].keys[0].path, "api_key") == 0,
			"%s", text);
	kvw_config_diff_destroy(diff);
	kvw_config_destroy(again);
	free(text);
}

START_TEST(test_what_is_written_loads_as_the_same)
{
	static const char *const examples[] = {
		"minimal.yaml", "overload.yaml", "kubernetes.yaml", "production.yaml",
		"pd.yaml", "full.yaml"};
	struct loaded loaded =
		load_text("listen: '[::1]:80'\n"
			  "routing: {session: {body_fields: [\"\\u0085\", ': ', '#']}, "
			  "bytes_per_token: 3.3}\n"
			  "log: {access: \" a'\\\"\\\\\", ring: 65537, level: error}\n"
			  "health: {path: '/x?y=[1]'}\n"
			  "admission: {classes: ['a`', B]}\n"
			  "service_levels: [{model: \" '\\\"#, }\", class: b, tpot: 0s}, {class: 'a`', ttft: 1ms}, "
			  "{model: '- \u00e4:', ttft_per_1k_tokens: 1h}]\n"
			  "models: {gpt-4o: {to: ' a'}, '#: {x': {to: '*y'}, '~': {to: \"'\"}}\n"
			  "workers: [{url: 'http://[::1]'}]\n");

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	expect_same(loaded.config, test_strategies);
	loaded_release(&loaded);
	loaded = load_text("discovery: {file: workers.yaml}\n"); /* which lists the workers */
	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	expect_same(loaded.config, test_strategies);
	loaded_release(&loaded);
	loaded = load_text("discovery:\n"
			   "  kubernetes:\n"
			   "    namespace: n\n"
			   "    pools:\n"
			   "      - {selector: 'a in (b, c),!d', port: http, tls: true, models: [x, 'y: z']}\n"
			   "      - {service: s, name: 't: u', weight_from: w, scale: statefulsets/x}\n");
	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	expect_same(loaded.config, test_strategies);
	loaded_release(&loaded);
	for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
		struct kvw_config *config = NULL;
		char path[512];

		snprintf(path, sizeof(path), "%s/examples/%s", config_dir, examples[i]);
		ck_assert_int_eq(kvw_config_load(path, kvw_strategies, stderr, &config), KVW_OK);
		expect_same(config, kvw_strategies);
		kvw_config_destroy(config);
	}
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("write");

	config_dir = argc > 1 ? argv[1] : "config";
	tcase_add_test(tc, test_only_what_differs);
	tcase_add_test(tc, test_what_is_written_loads_as_the_same);
	return run_tcase("config write", tc);
}
