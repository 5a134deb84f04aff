/*
 * stack_flags_test.c - the flags of production-stack's router: what they become, what is refused.
 */
#include "helpers.h"
#include "base/log.h"
#include "config/stack_flags.h"
#include "tests/unit/suite.h"

#define GIVEN_MOST 16

static const struct kvw_strategy_ops *const with_kvaware[] = {
	&kvw_prefixaware_ops, &kvw_session_ops, &kvw_roundrobin_ops, &kvw_kvaware_ops, NULL};

/* Index of a row by its flag. */
static size_t row_of(const char *flag)
{
	size_t i = 0;

	while (i < KVW_STACK_FLAG_COUNT && strcmp(kvw_stack_flags[i].flag, flag) != 0)
		i++;
	ck_assert_msg(i < KVW_STACK_FLAG_COUNT, "%s", flag);
	return i;
}

/* Pairs of flag and value, ended by NULL, together with kvway's own flags. */
static struct loaded load_pairs(const char *const *pairs, struct kvw_config_flags flags)
{
	struct kvw_stack_given given[GIVEN_MOST];
	struct loaded loaded = {0};
	size_t size = 0;
	FILE *errors = open_memstream(&loaded.errors, &size);

	ck_assert_ptr_nonnull(errors);
	flags.stack = given;
	for (; *pairs != NULL; pairs += 2) {
		ck_assert_uint_lt(flags.stack_count, GIVEN_MOST);
		given[flags.stack_count++] = (struct kvw_stack_given){row_of(pairs[0]), pairs[1]};
	}
	loaded.err = kvw_config_from_flags(&flags, with_kvaware, errors, &loaded.config);
	fclose(errors);
	loaded_count(&loaded);
	return loaded;
}

#define LOAD(...) load_pairs((const char *const[]){__VA_ARGS__, NULL}, (struct kvw_config_flags){0})

START_TEST(test_a_usual_start)
{
	struct loaded loaded = LOAD("--service-discovery", "static", "--static-backends",
		"http://a:8000, http://b:8000", "--static-models", "org/m1,m2", "--routing-logic",
		"session", "--session-key", "x-user-id", "--host", "::", "--port", "8080",
		"--engine-stats-interval", "15", "--request-stats-window", "60",
		"--static-backend-health-check-interval", "30",
		"--static-backend-health-check-timeout-seconds", "5",
		"--max-instance-failover-reroute-attempts", "0", "--request-rewriter", "noop",
		"--feature-gates", "", "--log-format", "text");
	const struct kvw_config *c = loaded.config;

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_str_eq(c->listen, "[::]:8080");
	ck_assert_str_eq(c->routing_strategy, "session");
	ck_assert_uint_eq(c->session_headers.count, 1);
	ck_assert_str_eq(c->session_headers.items[0], "x-user-id");
	ck_assert_uint_eq(c->session_body_fields.count, 1);
	ck_assert_str_eq(c->session_body_fields.items[0], "x-user-id");
	ck_assert_int_eq(c->health_metrics_interval_ms, 15000);
	ck_assert_int_eq(c->health_interval_ms, 30000);
	ck_assert_int_eq(c->health_timeout_ms, 5000);
	ck_assert_int_eq(c->retry_attempts, 0);
	ck_assert_uint_eq(c->worker_count, 2);
	ck_assert_str_eq(c->workers[0].url, "http://a:8000");
	ck_assert_str_eq(c->workers[0].models.items[0], "org/m1");
	ck_assert_str_eq(c->workers[1].url, "http://b:8000");
	ck_assert_str_eq(c->workers[1].models.items[0], "m2");
	ck_assert_str_eq(c->kvaware_lmcache_pull, "");
	loaded_release(&loaded);
}
END_TEST

/* What that router does without being asked to. */
START_TEST(test_defaults_of_that_router)
{
	struct loaded loaded = LOAD("--static-backends", "http://a", "--routing-logic", "kvaware");

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_str_eq(loaded.config->listen, "0.0.0.0:8001");
	ck_assert_str_eq(loaded.config->kvaware_lmcache_pull, "0.0.0.0:9000");
	ck_assert_str_eq(loaded.config->kvaware_lmcache_reply, "");
	ck_assert_uint_eq(loaded.config->workers[0].models.count, 0);
	ck_assert_int_eq(loaded.config->retry_attempts, 2);
	loaded_release(&loaded);
	loaded = LOAD("--static-backends", "http://a", "--routing-logic", "kvaware",
		"--lmcache-controller-port", "8300", "--lmcache-controller-reply-port", "8400",
		"--lmcache-controller-heartbeat-port", "8082", "--lmcache-worker-timeout", "60");
	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_str_eq(loaded.config->kvaware_lmcache_pull, "0.0.0.0:8300");
	ck_assert_str_eq(loaded.config->kvaware_lmcache_reply, "0.0.0.0:8400");
	ck_assert_str_eq(loaded.config->kvaware_lmcache_heartbeat, "0.0.0.0:8082");
	ck_assert_int_eq(loaded.config->kvaware_lmcache_timeout_ms, 60000);
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_one_server_of_many_models)
{
	struct loaded loaded = LOAD("--static-backends",
		"http://a:1,http://b:1,http://A:1/,http://a:1", "--static-models", "m,m,n,m");

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_uint_eq(loaded.config->worker_count, 2);
	ck_assert_uint_eq(loaded.config->workers[0].models.count, 2);
	ck_assert_str_eq(loaded.config->workers[0].models.items[1], "n");
	ck_assert_uint_eq(loaded.config->workers[1].models.count, 1);
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_pools_of_prefill_and_decode)
{
	struct loaded loaded = LOAD("--static-backends", "http://a:1,http://b:1,http://c:1",
		"--static-model-labels", "p1,d1,x", "--prefill-model-labels", "p0,p1",
		"--decode-model-labels", "d1", "--routing-logic",
		"disaggregated_prefill_orchestrated");
	static const struct {
		const char *logic;
		enum kvw_pd_transfer transfer;
	} logics[] = {{"disaggregated_prefill_orchestrated", KVW_PD_TRANSFER_NIXL},
		{"disaggregated_prefill", KVW_PD_TRANSFER_SHARED}};

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_int_eq(loaded.config->workers[0].role, KVW_ROLE_PREFILL);
	ck_assert_int_eq(loaded.config->workers[1].role, KVW_ROLE_DECODE);
	ck_assert_int_eq(loaded.config->workers[2].role, KVW_ROLE_BOTH);
	loaded_release(&loaded);
	for (size_t i = 0; i < 2; i++) {
		struct loaded other =
			LOAD("--static-backends", "http://a:1", "--routing-logic", logics[i].logic);

		ck_assert_msg(other.err == KVW_OK, "%s", other.errors);
		ck_assert_str_eq(other.config->routing_strategy, "prefixaware");
		ck_assert_int_eq(other.config->pd_transfer, logics[i].transfer);
		loaded_release(&other);
	}
}
END_TEST

START_TEST(test_together_with_own_flags)
{
	const char *const workers[] = {"http://c:1"};
	const char *const pairs[] = {"--routing-logic", "roundrobin", NULL};
	struct loaded loaded = load_pairs(pairs, (struct kvw_config_flags){.listen = "127.0.0.1:7",
							 .workers = workers,
							 .worker_count = 1,
							 .log_level = "critical"});

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_str_eq(loaded.config->listen, "127.0.0.1:7");
	ck_assert_str_eq(loaded.config->workers[0].url, "http://c:1");
	ck_assert_int_eq(loaded.config->log_level, KVW_LOG_ERROR);
	loaded_release(&loaded);
}
END_TEST

struct wrong {
	const char *flag, *value;
	const char *says; /* the whole report; backends are given unless this is about them */
};

static const struct wrong wrongs[] = {
	{"--port", "http", "--port: found `http`, expected a port from 1 to 65535\n"},
	{"--port", "65536", "--port: found `65536`, expected a port from 1 to 65535\n"},
	{"--port", "9090",
		"--port: found `0.0.0.0:9090`, expected a port that differs from `admin.listen` "
		"(127.0.0.1:9090)\n"},
	{"--host", "a b",
		"--host: found `a b:8001`, expected HOST:PORT such as 0.0.0.0:8080 or "
		"[::1]:8080\n"},
	{"--root-path", "/v",
		"--root-path: found `/v`, expected no path: let the proxy in front of "
		"kvway strip it\n"},
	{"--service-discovery", "external-only",
		"--service-discovery: found `external-only`, expected `static`, with "
		"--static-backends; workers from Kubernetes are `discovery.kubernetes` of a file\n"},
	{"--routing-logic", "prefixawre",
		"--routing-logic: found `prefixawre`, expected one of prefixaware, session, "
		"roundrobin, kvaware; did you mean `prefixaware`?\n"},
	{"--routing-logic", "disaggregated",
		"--routing-logic: found `disaggregated`, expected one of prefixaware, "
		"session, "
		"roundrobin, kvaware\n"},
	{"--session-key", "x user",
		"--session-key: found `x user`, expected a name of letters, digits "
		"and -_.!#$%&'*+^`|~\n"},
	{"--session-key", "",
		"--session-key: found empty text, expected a name of letters, digits and "
		"-_.!#$%&'*+^`|~\n"},
	{"--engine-stats-interval", "fast",
		"--engine-stats-interval: found `fast`, expected a whole number of seconds\n"},
	{"--engine-stats-interval", "0",
		"--engine-stats-interval: found `0s`, expected a duration from 100ms to 24h\n"},
	{"--max-instance-failover-reroute-attempts", "99",
		"--max-instance-failover-reroute-attempts: found `99`, expected a whole number "
		"from 0 to "
		"16\n"},
	{"--lmcache-controller-port", "0",
		"--lmcache-controller-port: found `0`, expected a port from 1 to 65535\n"},
	{"--callbacks", "a.b",
		"--callbacks: found a flag that kvway has no use for, expected no Python "
		"code: change requests in a proxy in front of kvway\n"},
	{"--enable-batch-api", NULL,
		"--enable-batch-api: found a flag that kvway has no use for, expected "
		"no batches: kvway does not keep files\n"},
	{"--log-format", "json",
		"--log-format: found `json`, expected `text`: kvway logs lines of "
		"key=value; `--access-log` writes JSON\n"},
	{"--static-models", "m,n",
		"--static-models: found 2 names, expected one for each of "
		"--static-backends, in the same order: 1\n"},
	{"--static-model-labels", "p,d",
		"--static-model-labels: found 2 labels, expected one for each of "
		"--static-backends, in the same order: 1\n"},
	{"--static-models", "",
		"--static-models: found empty text, expected a model's name between "
		"commas\n"},
	{"--static-backends", "http://a:1,http://a:1/",
		"--static-backends: found `http://a:1` again, expected each worker once: it is "
		"workers[0] already\n"},
	{"--static-backends", "http://a:1,",
		"--static-backends: found empty text, expected http://HOST:PORT such as "
		"http://127.0.0.1:8000\n"},
	{"--static-backends", "a:8000",
		"--static-backends: found `a:8000`, expected http://HOST:PORT such as "
		"http://127.0.0.1:8000; did you mean `http://a:8000`?\n"},
};

START_TEST(test_wrong_values)
{
	const struct wrong *wrong = &wrongs[_i];
	bool backends = strcmp(wrong->flag, "--static-backends") != 0;
	struct loaded loaded = LOAD(
		wrong->flag, wrong->value, backends ? "--static-backends" : NULL, "http://a:8000");

	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	ck_assert_str_eq(loaded.errors, wrong->says);
	ck_assert_ptr_null(loaded.config);
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_two_flags_for_one_thing)
{
	const char *const workers[] = {"http://c:1"};
	const char *const pairs[] = {"--routing-logic", "session", "--port", "80",
		"--static-backends", "http://a:1", NULL};
	const char *const models[] = {"--static-models", "m", NULL};
	struct loaded loaded = load_pairs(pairs, (struct kvw_config_flags){.listen = "127.0.0.1:7",
							 .strategy = "roundrobin",
							 .workers = workers,
							 .worker_count = 1});

	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	ck_assert_str_eq(loaded.errors,
		"--routing-logic: found together with --strategy, expected one of the two: both "
		"set "
		"`routing.strategy`\n"
		"--port: found together with --listen, expected one of the two: both set `listen`\n"
		"--static-backends: found together with --worker, expected one of the two\n");
	loaded_release(&loaded);
	loaded = load_pairs(
		models, (struct kvw_config_flags){.workers = workers, .worker_count = 1});
	ck_assert_str_eq(loaded.errors,
		"--static-models: found `m`, expected --static-backends with it, in "
		"place of --worker\n");
	loaded_release(&loaded);
}
END_TEST

/* Each row names keys that exist, and says what users need to know. */
START_TEST(test_rows_are_sound)
{
	struct kvw_own_keys own;

	kvw_own_keys_init(&own, with_kvaware);
	for (size_t i = 0; i < KVW_STACK_FLAG_COUNT; i++) {
		const struct kvw_stack_flag *row = &kvw_stack_flags[i];
		const char *keys = row->keys;

		ck_assert_msg(strncmp(row->flag, "--", 2) == 0, "%s", row->flag);
		ck_assert_uint_eq(row_of(row->flag), i); /* no flag twice */
		if (row->use == KVW_STACK_NOTE || row->use == KVW_STACK_REFUSED)
			ck_assert_msg(keys[0] == '\0' && row->text[0] != '\0', "%s", row->flag);
		if (row->use == KVW_STACK_ONLY)
			continue;
		while (*keys != '\0') {
			size_t len = strcspn(keys, " ");
			char path[KVW_SCHEMA_MAX_PATH];

			snprintf(path, sizeof(path), "%.*s", (int)len, keys);
			ck_assert_msg(strcmp(path, "workers") == 0 ||
					      kvw_own_find_key(&own, path) < own.schema.key_count,
				"%s: %s", row->flag, path);
			keys += len;
			keys += *keys == ' ';
		}
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("stack flags");

	tcase_add_test(tc, test_a_usual_start);
	tcase_add_test(tc, test_defaults_of_that_router);
	tcase_add_test(tc, test_one_server_of_many_models);
	tcase_add_test(tc, test_pools_of_prefill_and_decode);
	tcase_add_test(tc, test_together_with_own_flags);
	tcase_add_loop_test(tc, test_wrong_values, 0, (int)(sizeof(wrongs) / sizeof(wrongs[0])));
	tcase_add_test(tc, test_two_flags_for_one_thing);
	tcase_add_test(tc, test_rows_are_sound);
	return run_tcase("config stack flags", tc);
}
