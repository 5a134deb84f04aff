/*
 * flags_test.c - a configuration without a file.
 */
#include "helpers.h"
#include "base/log.h"
#include "tests/unit/suite.h"

static struct loaded load_flags(const struct kvw_config_flags *flags)
{
	struct loaded loaded = {0};
	size_t size = 0;
	FILE *errors = open_memstream(&loaded.errors, &size);

	ck_assert_ptr_nonnull(errors);
	loaded.err = kvw_config_from_flags(flags, test_strategies, errors, &loaded.config);
	fclose(errors);
	loaded_count(&loaded);
	return loaded;
}

START_TEST(test_flags_and_defaults)
{
	const char *const workers[] = {"http://a:1", "http://b:2/"};
	struct loaded loaded = load_flags(&(struct kvw_config_flags){.listen = "127.0.0.1:8081",
		.workers = workers,
		.worker_count = 2,
		.strategy = "roundrobin",
		.admin = "127.0.0.1:0",
		.access_log = "stdout",
		.log_level = "debug"});
	const struct kvw_config *c = loaded.config;

	ck_assert_msg(loaded.err == KVW_OK, "%s", loaded.errors);
	ck_assert_str_eq(c->listen, "127.0.0.1:8081");
	ck_assert_str_eq(c->admin_listen, "127.0.0.1:0");
	ck_assert_str_eq(c->routing_strategy, "roundrobin");
	ck_assert_str_eq(c->log_access, "stdout");
	ck_assert_int_eq(c->log_level, KVW_LOG_DEBUG);
	ck_assert_uint_eq(c->worker_count, 2);
	ck_assert_str_eq(c->workers[1].url, "http://b:2");
	ck_assert_str_eq(c->workers[1].api_key, "");
	ck_assert_uint_eq(c->limits_body, 64u << 20);
	loaded_release(&loaded);
}
END_TEST

/* Flags and a file that say the same give the same. */
START_TEST(test_only_workers)
{
	const char *const workers[] = {"http://127.0.0.1:8001"};
	struct loaded flags =
		load_flags(&(struct kvw_config_flags){.workers = workers, .worker_count = 1});
	struct loaded file = load_text(TEST_WORKER);

	ck_assert_int_eq(flags.err, KVW_OK);
	ck_assert_str_eq(flags.config->listen, file.config->listen);
	ck_assert_str_eq(flags.config->routing_strategy, file.config->routing_strategy);
	ck_assert_str_eq(flags.config->workers[0].url, file.config->workers[0].url);
	ck_assert_int_eq(flags.config->timeout_first_token_ms, file.config->timeout_first_token_ms);
	loaded_release(&flags);
	loaded_release(&file);
}
END_TEST

START_TEST(test_mistakes_name_the_flag)
{
	const char *const workers[] = {"a:1", "httpx://b:1", "http://c:1", "http://C:1/"};
	struct loaded loaded = load_flags(&(struct kvw_config_flags){.listen = "8081",
		.workers = workers,
		.worker_count = 4,
		.strategy = "fastest",
		.admin = "nowhere",
		.log_level = "wran"});

	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	ck_assert_str_eq(loaded.errors,
		"--listen: found `8081`, expected HOST:PORT such as 0.0.0.0:8080; did you mean "
		"`0.0.0.0:8081`?\n"
		"--strategy: found `fastest`, expected one of prefixaware, session, roundrobin\n"
		"--admin: found `nowhere`, expected HOST:PORT such as 0.0.0.0:8080\n"
		"--log-level: found `wran`, expected one of debug, info, warn, error; did you mean "
		"`warn`?\n"
		"--worker: found `a:1`, expected http://HOST:PORT such as http://127.0.0.1:8000; "
		"did "
		"you mean `http://a:1`?\n"
		"--worker: found `httpx://b:1`, expected the scheme http or https, "
		"http://HOST:PORT\n"
		"--worker: found `http://c:1` again, expected each worker once: it is workers[2] "
		"already\n");
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_rules_hold_for_flags)
{
	const char *const workers[] = {"http://a:1"};
	struct loaded loaded = load_flags(&(struct kvw_config_flags){
		.listen = "0.0.0.0:9090", .workers = workers, .worker_count = 1});

	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	ck_assert_str_eq(loaded.errors,
		"--listen: found `0.0.0.0:9090`, expected a port that differs "
		"from `admin.listen` (127.0.0.1:9090)\n");
	loaded_release(&loaded);
}
END_TEST

START_TEST(test_number_of_workers)
{
	const char **workers = calloc(1025, sizeof(*workers));
	struct loaded loaded = load_flags(&(struct kvw_config_flags){.workers = workers});

	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	ck_assert_int_eq(strncmp(loaded.errors, "--worker: found 0 of them", 25), 0);
	loaded_release(&loaded);
	for (size_t i = 0; i < 1025; i++)
		workers[i] = "http://a:1";
	loaded = load_flags(&(struct kvw_config_flags){.workers = workers, .worker_count = 1025});
	ck_assert_int_eq(loaded.err, KVW_EINVAL);
	ck_assert_int_eq(strncmp(loaded.errors, "--worker: found 1025 of them", 28), 0);
	loaded_release(&loaded);
	free(workers);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("flags");

	tcase_add_test(tc, test_flags_and_defaults);
	tcase_add_test(tc, test_only_workers);
	tcase_add_test(tc, test_mistakes_name_the_flag);
	tcase_add_test(tc, test_rules_hold_for_flags);
	tcase_add_test(tc, test_number_of_workers);
	return run_tcase("config flags", tc);
}
