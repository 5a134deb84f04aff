/*
 * load_test.c - right configurations: defaults, every type, files, the examples.
 *
 * Argument: the folder config/ of the source tree.
 */
#include <dirent.h>
#include <inttypes.h>
#include <unistd.h>

#include "helpers.h"
#include "base/log.h"
#include "config/own_keys.h"
#include "tests/unit/suite.h"

static const char *config_dir;

START_TEST(test_defaults)
{
	struct loaded loaded = load_text(TEST_WORKER);
	const struct kvw_config *c = loaded.config;

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_str_eq(loaded.errors, "");
	ck_assert_str_eq(c->listen, "0.0.0.0:8080");
	ck_assert_str_eq(c->admin_listen, "127.0.0.1:9090");
	ck_assert_int_eq(c->loops, 0);
	ck_assert_str_eq(c->routing_strategy, "prefixaware");
	ck_assert_uint_eq(c->routing_scan_limit, 32u << 20);
	ck_assert(c->routing_omega > 0.0699 && c->routing_omega < 0.0701);
	ck_assert_uint_eq(c->limits_body, 64u << 20);
	ck_assert_uint_eq(c->limits_body_memory, 1u << 30);
	ck_assert_int_eq(c->timeout_first_token_ms, 600000);
	ck_assert_int_eq(c->timeout_upstream_idle_ms, 4000);
	ck_assert_int_eq(c->half_close, KVW_HALF_CLOSE_ABORT);
	ck_assert_int_eq(c->forwarded, KVW_FORWARDED_BOTH);
	ck_assert_int_eq(c->log_level, KVW_LOG_INFO);
	ck_assert_int_eq(c->decision_headers, KVW_DECISION_HEADERS_OFF);
	ck_assert(!c->expose_lora);
	ck_assert_uint_eq(c->session_headers.count, 7);
	ck_assert_str_eq(c->session_headers.items[0], "x-session-id");
	ck_assert_str_eq(c->session_headers.items[1], "x-claude-code-session-id");
	ck_assert_str_eq(c->session_headers.items[6], "x-amzn-sagemaker-session-id");
	ck_assert_uint_eq(c->session_cookies.count, 0);
	ck_assert_uint_eq(c->session_body_fields.count, 8);
	ck_assert_str_eq(c->session_body_fields.items[5], "metadata.user_id");
	ck_assert_str_eq(c->session_body_fields.items[7], "user_id");
	ck_assert_str_eq(c->log_access, "off");
	ck_assert_uint_eq(c->worker_count, 1);
	ck_assert_str_eq(c->workers[0].url, "http://127.0.0.1:8001");
	ck_assert_str_eq(c->workers[0].api_key, "");
	ck_assert_double_eq(c->workers[0].weight, 1);
	ck_assert_uint_eq(c->workers[0].models.count, 0);
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_every_type)
{
	struct loaded loaded = load_text("listen: \"[::1]:18080\"\n"
					 "loops: '7'\n"
					 "admin: {listen: localhost:0}\n"
					 "routing:\n"
					 "  strategy: session\n"
					 "  omega: 1.5e-1\n"
					 "  prefixaware:\n"
					 "  session:\n"
					 "    headers: [X-A, x-b]\n"
					 "    body_fields: [1.5, true, ~tilde, \"\\u00e4\"]\n"
					 "    ttl: 720h\n"
					 "http:\n"
					 "  decision_headers: on_request\n"
					 "  forwarded: x-forwarded-for\n"
					 "  half_close: serve\n"
					 "expose: {lora: true}\n"
					 "limits:\n"
					 "  body: 1048577\n"
					 "  high_water: 1MiB\n"
					 "  body_memory: 1TiB\n"
					 "drain: {timeout: 0s, settle: 1s}\n"
					 "timeouts: {head: 250ms, connect: 10m}\n"
					 "log:\n"
					 "  access: /tmp/a b.json\n"
					 "  level: error\n"
					 "workers:\n"
					 "  - url: HTTP://Worker-1.Example\n"
					 "    models: [org/model, 42]\n"
					 "    api_key: sk-123!\n"
					 "    weight: 0.1\n"
					 "  - url: \"http://[2001:DB8::1]:9000/some/prefix/\"\n"
					 "  - {url: http://10.0.0.1:80}\n");
	const struct kvw_config *c = loaded.config;

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_str_eq(c->listen, "[::1]:18080");
	ck_assert_int_eq(c->loops, 7);
	ck_assert_str_eq(c->admin_listen, "localhost:0");
	ck_assert_str_eq(c->routing_strategy, "session");
	ck_assert(c->routing_omega > 0.1499 && c->routing_omega < 0.1501);
	ck_assert_str_eq(c->session_headers.items[1], "x-b");
	ck_assert_uint_eq(c->session_body_fields.count, 4);
	ck_assert_str_eq(c->session_body_fields.items[0], "1.5");
	ck_assert_str_eq(c->session_body_fields.items[2], "~tilde");
	ck_assert_str_eq(c->session_body_fields.items[3], "\xC3\xA4");
	ck_assert_int_eq(kvw_config_own(c, test_strategies, &kvw_session_ops)[0].integer,
		INT64_C(720) * 3600 * 1000);
	ck_assert_int_eq(c->decision_headers, KVW_DECISION_HEADERS_ON_REQUEST);
	ck_assert(c->expose_lora);
	ck_assert_int_eq(c->forwarded, KVW_FORWARDED_X);
	ck_assert_int_eq(c->half_close, KVW_HALF_CLOSE_SERVE);
	ck_assert_uint_eq(c->limits_body, 1048577);
	ck_assert_uint_eq(c->limits_body_memory, UINT64_C(1) << 40);
	ck_assert_int_eq(c->drain_timeout_ms, 0);
	ck_assert_int_eq(c->drain_settle_ms, 1000);
	ck_assert_int_eq(c->timeout_head_ms, 250);
	ck_assert_int_eq(c->timeout_connect_ms, 600000);
	ck_assert_str_eq(c->log_access, "/tmp/a b.json");
	ck_assert_int_eq(c->log_level, KVW_LOG_ERROR);
	ck_assert_uint_eq(c->worker_count, 3);
	ck_assert_str_eq(c->workers[0].url, "http://worker-1.example:80");
	ck_assert_str_eq(c->workers[0].models.items[1], "42");
	ck_assert_str_eq(c->workers[0].api_key, "sk-123!");
	ck_assert_double_eq(c->workers[0].weight, 0.1);
	ck_assert_double_eq(c->workers[1].weight, 1);
	ck_assert_str_eq(c->workers[1].url, "http://[2001:db8::1]:9000/some/prefix");
	ck_assert_str_eq(c->workers[2].url, "http://10.0.0.1:80");
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_admission)
{
	struct loaded loaded = load_text(TEST_WORKER);
	const struct kvw_config *c = loaded.config;
	struct kvw_service_level_ms promise;

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert(c->admission_enabled);
	ck_assert_int_eq(c->admission_max_wait_ms, 30000);
	ck_assert_int_eq(c->admission_max_queue, 1024);
	ck_assert_int_eq(c->admission_worker_queue_ms, 1000);
	ck_assert_uint_eq(c->admission_classes.count, 0);
	ck_assert_str_eq(c->admission_default_class, "");
	ck_assert_str_eq(c->admission_class_header, "");
	ck_assert_str_eq(c->admission_program_headers.items[0], "x-kvway-program");
	ck_assert_str_eq(c->admission_program_headers.items[1], "x-claude-code-session-id");
	ck_assert_int_eq(c->admission_programs, 65536);
	ck_assert_uint_eq(c->service_level_count, 0);
	ck_assert_ptr_null(c->service_levels);
	kvw_config_promise(c, "m", 1, 0, &promise);
	ck_assert(promise.ttft == 0 && promise.ttft_per_1k_tokens == 0 && promise.tpot == 0);
	loaded_release(&loaded);
	/* A level without admission counts for nothing, and is no mistake. */
	loaded = load_text("admission: {enabled: false, classes: [a, b], default_class: A}\n"
			   "service_levels: [{class: B, tpot: 1ms}]\n" TEST_WORKER);
	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_str_eq(loaded.config->admission_default_class, "A");
	ck_assert_uint_eq(loaded.config->service_levels[0].class_index, 1);
	loaded_release(&loaded);
}
END_TEST

static void expect_promise(const struct kvw_config *config, const char *model, size_t class_index,
	int64_t ttft, int64_t ttft_per_1k_tokens, int64_t tpot)
{
	struct kvw_service_level_ms promise;

	kvw_config_promise(config, model, strlen(model), class_index, &promise);
	ck_assert_msg(promise.ttft == ttft && promise.ttft_per_1k_tokens == ttft_per_1k_tokens &&
			      promise.tpot == tpot,
		"%s %zu: %" PRId64 " %" PRId64 " %" PRId64, model, class_index, promise.ttft,
		promise.ttft_per_1k_tokens, promise.tpot);
}

/* Each duration by itself: model and class, model, class, all; whatever the order of the file. */
START_TEST(test_service_levels)
{
	static const char *const orders[] = {
		"  - {model: m, class: batch, tpot: 9ms}\n"
		"  - {class: batch, ttft: 20s, ttft_per_1k_tokens: 200ms, tpot: 0s}\n"
		"  - {model: m, ttft: 3s}\n",
		"  - {model: m, ttft: 3s}\n"
		"  - {class: batch, ttft: 20s, ttft_per_1k_tokens: 200ms, tpot: 0s}\n"
		"  - {model: m, class: batch, tpot: 9ms}\n",
	};

	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		char text[1024];
		struct loaded loaded;
		const struct kvw_config *c;

		snprintf(text, sizeof(text), "service_levels:\n%s"
			"service_level: {ttft: 1s, ttft_per_1k_tokens: 100ms, tpot: 50ms}\n"
			"admission: {classes: [chat, batch]}\n" TEST_WORKER, orders[i]);
		loaded = load_text(text);
		c = loaded.config;
		ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
		expect_promise(c, "n", 0, 1000, 100, 50);
		expect_promise(c, "", 0, 1000, 100, 50);
		expect_promise(c, "m", 0, 3000, 100, 50);
		expect_promise(c, "n", 1, 20000, 200, 0); /* 0s: nothing is promised */
		expect_promise(c, "m", 1, 3000, 200, 9);
		expect_promise(c, "mm", 1, 20000, 200, 0);
		expect_promise(c, "M", 0, 1000, 100, 50);
		expect_promise(c, "m", 2, 3000, 100, 50); /* no class of that index */
		loaded_release(&loaded);
	}
}
END_TEST

static size_t class_of(const struct kvw_config *config, const char *name)
{
	return kvw_config_class(config, kvw_slice_of(name));
}

START_TEST(test_class)
{
	struct loaded loaded = load_text(TEST_WORKER);

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_uint_eq(class_of(loaded.config, NULL), 0);
	ck_assert_uint_eq(class_of(loaded.config, "chat"), 0);
	loaded_release(&loaded);
	loaded = load_text("admission: {classes: [chat, batch, night]}\n" TEST_WORKER);
	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_uint_eq(class_of(loaded.config, "CHAT"), 0);
	ck_assert_uint_eq(class_of(loaded.config, "batch"), 1);
	ck_assert_uint_eq(class_of(loaded.config, "cha"), 2);
	ck_assert_uint_eq(class_of(loaded.config, ""), 2);
	loaded_release(&loaded);
	loaded = load_text("admission: {classes: [chat, batch, night], default_class: Batch}\n" TEST_WORKER);
	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_uint_eq(class_of(loaded.config, "night"), 2);
	ck_assert_uint_eq(class_of(loaded.config, "none"), 1);
	ck_assert_uint_eq(class_of(loaded.config, NULL), 1);
	loaded_release(&loaded);
}
END_TEST

/* A model's name is bytes with a length: no NUL ends it, and none is needed. */
START_TEST(test_promise_to_any_bytes)
{
	struct loaded loaded = load_text("service_levels: [{model: m, ttft: 1s}]\n" TEST_WORKER);
	struct kvw_service_level_ms promise;
	char *bytes = malloc(1);

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_ptr_nonnull(bytes);
	bytes[0] = 'm';
	kvw_config_promise(loaded.config, bytes, 1, 0, &promise);
	ck_assert_int_eq(promise.ttft, 1000);
	kvw_config_promise(loaded.config, "m\0x", 3, 0, &promise);
	ck_assert_int_eq(promise.ttft, 0);
	kvw_config_promise(loaded.config, NULL, 0, 0, &promise);
	ck_assert_int_eq(promise.ttft, 0);
	free(bytes);
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_most_service_levels)
{
	for (size_t count = KVW_MAX_SERVICE_LEVELS; count <= KVW_MAX_SERVICE_LEVELS + 1; count++) {
		char text[8192] = "service_levels:\n";
		size_t used = strlen(text);
		struct loaded loaded;

		for (size_t i = 0; i < count; i++)
			used += (size_t)snprintf(text + used, sizeof(text) - used,
				"  - {model: m%zu, ttft: %zums}\n", i, i + 1);
		snprintf(text + used, sizeof(text) - used, TEST_WORKER);
		loaded = load_text(text);
		if (count <= KVW_MAX_SERVICE_LEVELS) {
			ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
			expect_promise(loaded.config, "m63", 0, 64, 0, 0);
		} else {
			ck_assert_int_eq(loaded.err, KVW_EINVAL);
			ck_assert_str_eq(loaded.errors, "t.yaml:2:3: service_levels: found 65 "
							"entries, expected at most 64\n");
		}
		loaded_release(&loaded);
	}
}
END_TEST

/* The section of a HyperPod manifest, before or after `routing`, which may say the same. */
START_TEST(test_routing_spec)
{
	static const char *const forms[][2] = {
		{"intelligentRoutingSpec:\n  enabled: true\n  routingStrategy: session\n" TEST_WORKER,
			"session"},
		{"intelligentRoutingSpec:\n  enabled: true\n" TEST_WORKER, "prefixaware"},
		{"intelligentRoutingSpec: {routingStrategy: session, enabled: false}\n" TEST_WORKER,
			"roundrobin"},
		{"routing: {strategy: session}\n"
		 "intelligentRoutingSpec: {enabled: true, routingStrategy: session}\n" TEST_WORKER,
			"session"},
		{"intelligentRoutingSpec: {enabled: true, routingStrategy: roundrobin}\n"
		 "routing: {omega: 0, strategy: roundrobin}\n" TEST_WORKER,
			"roundrobin"},
	};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct loaded loaded = load_text(forms[i][0]);

		ck_assert_msg(loaded.err == KVW_OK, "%zu: %s", i, loaded.errors);
		ck_assert_str_eq(loaded.config->routing_strategy, forms[i][1]);
		loaded_release(&loaded);
	}
}
END_TEST

/* A byte order mark, CRLF and an explicit document are ordinary. */
START_TEST(test_harmless_forms)
{
	static const char *const forms[] = {
		"\xEF\xBB\xBFlisten: 0.0.0.0:1\r\nworkers:\r\n  - url: http://127.0.0.1:8001\r\n",
		("%YAML 1.1\n---\nlisten: 0.0.0.0:1\n" TEST_WORKER "...\n"),
		"{listen: \"0.0.0.0:1\", workers: [{url: \"http://127.0.0.1:8001\"}]}",
		("? listen\n: 0.0.0.0:1\n" TEST_WORKER),
	};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct loaded loaded = load_text(forms[i]);

		ck_assert_msg(loaded.err == KVW_OK, "%zu: %s", i, loaded.errors);
		ck_assert_str_eq(loaded.config->listen, "0.0.0.0:1");
		ck_assert_str_eq(loaded.config->workers[0].url, "http://127.0.0.1:8001");
		loaded_release(&loaded);
	}
}
END_TEST

/* Every bound of keys.def parses and holds its default: the loader relies on both. */
START_TEST(test_keys_are_sound)
{
	struct kvw_own_keys own;

	kvw_own_keys_init(&own, kvw_strategies);
	for (size_t i = 0; i < KVW_KEY_COUNT + own.key_count; i++) {
		const struct kvw_key *key = kvw_own_key(&own, i);
		const char *dot = strrchr(key->path, '.');
		char section[KVW_SCHEMA_MAX_PATH];
		union kvw_value min, max, def;
		struct kvw_fault fault = {0};

		snprintf(section, sizeof(section), "%.*s", dot == NULL ? 0 : (int)(dot - key->path),
			key->path);
		ck_assert_msg(kvw_own_find_section(&own, section) <
				      KVW_SECTION_COUNT + own.section_count,
			"%s", key->path);
		ck_assert_uint_eq(kvw_own_find_key(&own, key->path), i); /* no path twice */
		ck_assert(key->text[0] != '\0');
		if (key->type->compare == NULL)
			continue;
		ck_assert_msg(key->type->parse(key->type, kvw_slice_of(key->min), NULL, &min,
				      &fault) == KVW_OK &&
				      key->type->parse(key->type, kvw_slice_of(key->max), NULL,
					      &max, &fault) == KVW_OK &&
				      key->type->parse(key->type, kvw_slice_of(key->def), NULL,
					      &def, &fault) == KVW_OK,
			"%s", key->path);
		ck_assert_msg(
			key->type->compare(&min, &def) <= 0 && key->type->compare(&def, &max) <= 0,
			"%s", key->path);
	}
}
END_TEST

static struct loaded load_file(const char *path)
{
	struct loaded loaded = {0};
	size_t size = 0;
	FILE *errors = open_memstream(&loaded.errors, &size);

	ck_assert_ptr_nonnull(errors);
	loaded.err = kvw_config_load(path, test_strategies, errors, &loaded.config);
	fclose(errors);
	loaded_count(&loaded);
	return loaded;
}

START_TEST(test_every_example_loads)
{
	char folder[512], path[1024];
	const struct dirent *entry;
	size_t seen = 0;
	DIR *dir;

	snprintf(folder, sizeof(folder), "%s/examples", config_dir);
	dir = opendir(folder);
	ck_assert_msg(dir != NULL, "%s", folder);
	while ((entry = readdir(dir)) != NULL) {
		struct loaded loaded;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		loaded = load_file(path);
		ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
		ck_assert_str_eq(loaded.errors, "");
		loaded_release(&loaded);
		seen++;
	}
	closedir(dir);
	ck_assert_uint_ge(seen, 3);
}
END_TEST

static bool same_strings(const struct kvw_strings *a, const struct kvw_strings *b)
{
	bool same = a->count == b->count;

	for (size_t i = 0; same && i < a->count; i++)
		same = strcmp(a->items[i], b->items[i]) == 0;
	return same;
}

/* full.yaml writes every key down with its default: field by field the same as giving none. */
START_TEST(test_full_example_is_the_defaults)
{
	char path[512], *text = NULL;
	size_t size = 0, given = 0;
	struct loaded defaults = load_text(TEST_WORKER), full;
	struct kvw_own_keys own;
	FILE *file;

	snprintf(path, sizeof(path), "%s/examples/full.yaml", config_dir);
	full = load_file(path);
	ck_assert_msg(full.err == KVW_OK, "%s", full.errors);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_gt(getdelim(&text, &size, '\0', file), 0);
	fclose(file);
	kvw_own_keys_init(&own, kvw_strategies);
	for (size_t i = 0; i < KVW_KEY_COUNT + own.key_count; i++) {
		const struct kvw_key *key = kvw_own_key(&own, i);
		const char *a = (const char *)defaults.config + key->offset;
		const char *b = (const char *)full.config + key->offset;
		const char *dot = strrchr(key->path, '.');
		char line[128];
		bool same;

		if (key->type->item != NULL)
			same = same_strings((const struct kvw_strings *)(const void *)a,
				(const struct kvw_strings *)(const void *)b);
		else if (key->type->owned)
			same = strcmp(*(char *const *)(const void *)a,
				       *(char *const *)(const void *)b) == 0;
		else
			same = memcmp(a, b, key->type->size) == 0;
		ck_assert_msg(same, "%s", key->path);
		snprintf(line, sizeof(line), " %s: ", dot != NULL ? dot + 1 : key->path);
		line[0] = dot != NULL ? ' ' : '\n';
		given += strstr(text, line) != NULL;
	}
	ck_assert_msg(given == KVW_KEY_COUNT + own.key_count,
		"examples/full.yaml has %zu of %zu keys: run `ninja -C BUILD reference`",
		given, (size_t)(KVW_KEY_COUNT + own.key_count));
	free(text);
	loaded_release(&defaults);
	loaded_release(&full);
}
END_TEST

START_TEST(test_file_that_is_not_there)
{
	struct loaded loaded = load_file("/nonexistent/kvway.yaml");

	ck_assert_int_eq(loaded.err, KVW_EIO);
	ck_assert_str_eq(loaded.errors,
		"/nonexistent/kvway.yaml: cannot be opened: No such file or directory\n");
	loaded_release(&loaded);
	loaded = load_file("/");
	ck_assert_int_eq(loaded.err, KVW_EIO);
	ck_assert_str_eq(loaded.errors, "/: cannot be read: Is a directory\n");
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_file_that_is_too_large)
{
	char path[] = "/tmp/kvway-config-XXXXXX";
	int fd = mkstemp(path);
	char *text = malloc(KVW_CONFIG_MAX_BYTES + 1);
	struct loaded loaded;

	ck_assert_int_ge(fd, 0);
	ck_assert_ptr_nonnull(text);
	memset(text, ' ', KVW_CONFIG_MAX_BYTES + 1);
	memset(text, '#', 1);
	memcpy(text + KVW_CONFIG_MAX_BYTES - strlen(TEST_WORKER) - 1, "\n" TEST_WORKER,
		strlen(TEST_WORKER) + 1);
	ck_assert_int_eq(write(fd, text, KVW_CONFIG_MAX_BYTES), KVW_CONFIG_MAX_BYTES);
	loaded = load_file(path);
	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	loaded_release(&loaded);
	ck_assert_int_eq(write(fd, "\n", 1), 1);
	loaded = load_file(path);
	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	ck_assert_ptr_nonnull(strstr(loaded.errors, "found more than 1048576 bytes"));
	loaded_release(&loaded);
	close(fd);
	unlink(path);
	free(text);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("load");

	if (argc != 2)
		return 2;
	config_dir = argv[1];
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_defaults);
	tcase_add_test(tc, test_every_type);
	tcase_add_test(tc, test_admission);
	tcase_add_test(tc, test_service_levels);
	tcase_add_test(tc, test_class);
	tcase_add_test(tc, test_promise_to_any_bytes);
	tcase_add_test(tc, test_most_service_levels);
	tcase_add_test(tc, test_routing_spec);
	tcase_add_test(tc, test_harmless_forms);
	tcase_add_test(tc, test_keys_are_sound);
	tcase_add_test(tc, test_every_example_loads);
	tcase_add_test(tc, test_full_example_is_the_defaults);
	tcase_add_test(tc, test_file_that_is_not_there);
	tcase_add_test(tc, test_file_that_is_too_large);
	return run_tcase("config load", tc);
}
