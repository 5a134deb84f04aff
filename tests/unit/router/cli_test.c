/*
 * cli_test.c - the command line: what runs, what is said, with which exit status.
 *
 * The list of strategies is the test's own, so that the words expected in messages are fixed.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "kvway/route.h"
#include "tests/unit/suite.h"

static const struct kvw_strategy_ops first_ops = {
	.name = "prefixaware", .help = "the help of the first"};
static const struct kvw_strategy_ops second_ops = {
	.name = "roundrobin", .help = "the help of the second"};
const struct kvw_strategy_ops *const kvw_strategies[] = {&first_ops, &second_ops, NULL};

#define WORDS_MOST 64

/* One call of the parser. */
struct called {
	enum kvw_cli_action action;
	struct kvw_cli cli;
	char *out, *err;
	char *line;
};

/* `line` is split at spaces. */
static struct called call(const char *line)
{
	struct called called = {.line = strdup(line)};
	char program[] = "kvway";
	char *argv[WORDS_MOST + 2] = {program};
	char *rest = NULL;
	int argc = 1;
	size_t out_size, err_size;
	FILE *out = open_memstream(&called.out, &out_size);
	FILE *err = open_memstream(&called.err, &err_size);

	ck_assert(out != NULL && err != NULL && called.line != NULL);
	for (char *word = strtok_r(called.line, " ", &rest); word != NULL && argc <= WORDS_MOST;
		word = strtok_r(NULL, " ", &rest))
		argv[argc++] = word;
	called.action = kvw_cli_parse(argc, argv, out, err, &called.cli);
	fclose(out);
	fclose(err);
	return called;
}

static void called_release(struct called *called)
{
	kvw_config_destroy(called->cli.config);
	free(called->out);
	free(called->err);
	free(called->line);
}

struct wrong {
	const char *line;
	const char *says; /* the beginning of standard error */
};

#define EXPECTED(word) \
	"kvway: found `" word "`, expected flags, `check` or `render`, or in front of all else " \
	"`explain`, `trace`, `top`, `usage`, `bundle`, `workers`, `groups`, `compare`, `state` or `key`"

static const struct wrong wrongs[] = {
	{"", "Usage:\n  kvway -c FILE"},
	{"check", "kvway: nothing to check: give -c FILE"},
	{"chekc", EXPECTED("chekc") "; did you mean `check`?"},
	{"-c f.yaml explain", EXPECTED("explain") "; did you mean `explain`?\n"},
	{"-c f.yaml worker", EXPECTED("worker") "; did you mean `workers`?\n"},
	{"check kvway.yaml", EXPECTED("kvway.yaml") "; did you mean `-c kvway.yaml`?\n"},
	{"check check -c f", "kvway: found `check`, expected flags"},
	{"serve -c f", EXPECTED("serve") "\n"},
	{"kye new a", EXPECTED("kye") "; did you mean `key`?\n"},
	{"--lisen 0.0.0.0:1", "kvway: unknown flag --lisen; did you mean `--listen`?\n"},
	{"--wroker=http://a:1",
		"kvway: unknown flag --wroker=http://a:1; did you mean `--worker`?\n"},
	{"--prot 80", "kvway: unknown flag --prot; did you mean `--port`?\n"},
	{"--static-bakcends http://a:1",
		"kvway: unknown flag --static-bakcends; did you mean `--static-backends`?\n"},
	{"render", "kvway: nothing to render: give -c FILE"},
	{"render check -c f", "kvway: found `check`, expected flags"},
	{"--port 1 --port 2", "kvway: --port was given twice\n"},
	{"--log-stats -c f.yaml",
		"kvway: --log-stats together with -c: with a file every setting is in the file\nTry"},
	{"-c f.yaml --routing-logic session",
		"kvway: --routing-logic together with -c: with a file every setting is in the file; set "
		"`routing.strategy` in f.yaml\n"},
	{"--log-stats=yes --port 1", "kvway: --log-stats=yes: this flag takes no value\n"},
	{"--service-discovery k8s --static-backends http://a:1",
		"--service-discovery: found `k8s`, expected `static`, with --static-backends; "},
	{"--port 1", "--static-backends: found nothing, expected the workers' URLs"},
	{"--static-backends http://a:1 --listen a:1 --host b",
		"--host: found together with --listen, expected one of the two: both set `listen`\n"},
	{"-x", "kvway: unknown flag -x\n"},
	{"-xh", "kvway: unknown flag -x\n"},
	{"--listen", "kvway: --listen needs a value\n"},
	{"-c", "kvway: -c needs a value\n"},
	{"check -c a --diff", "kvway: --diff needs a value\n"},
	{"check -c a --diff b --diff c", "kvway: --diff was given twice\n"},
	{"-c a --diff b", "kvway: --diff without `check`: give kvway check -c NEW --diff RUNNING\n"},
	{"check --diff b", "kvway: nothing to check: give -c FILE"},
	{"check --dfif b", "kvway: unknown flag --dfif; did you mean `--diff`?\n"},
	{"--help=please", "kvway: --help=please: this flag takes no value\n"},
	{"-c a -c b", "kvway: -c was given twice\n"},
	{"--listen a:1 --listen b:1", "kvway: --listen was given twice\n"},
	{"--strategy a --strategy b", "kvway: --strategy was given twice\n"},
	{"-c f.yaml --worker http://a:1",
		"kvway: --worker together with -c: with a file every setting "
		"is in the file; set `workers` in f.yaml\n"},
	{"--listen a:1 -c f.yaml",
		"kvway: --listen together with -c: with a file every setting is in "
		"the file; set `listen` in f.yaml\n"},
	{"--log-level info --config f.yaml",
		"kvway: --log-level together with -c: with a file every "
		"setting is in the file; set `log.level` in f.yaml\n"},
	{"--listen a:1", "kvway: no worker given with --listen: give -c FILE, or --worker URL"},
	{"--worker a:1", "--worker: found `a:1`, expected http://HOST:PORT"},
	{"--worker http://a:1 --strategy session", "--strategy: found `session`, expected one of "
						   "prefixaware, roundrobin\n"},
	{"--worker http://a:1 --log-level loud", "--log-level: found `loud`"},
	{"--worker http://a:1 --admin nowhere", "--admin: found `nowhere`"},
	{"--worker http://a:1 --worker http://a:1", "--worker: found `http://a:1` again"},
};

START_TEST(test_wrong_usage)
{
	const struct wrong *wrong = &wrongs[_i];
	struct called called = call(wrong->line);

	ck_assert_int_eq(called.action, KVW_CLI_EXIT);
	ck_assert_msg(called.cli.status == KVW_CLI_USAGE, "%s: %d", wrong->line, called.cli.status);
	ck_assert_ptr_null(called.cli.config);
	ck_assert_str_eq(called.out, "");
	ck_assert_msg(strncmp(called.err, wrong->says, strlen(wrong->says)) == 0,
		"%s\nsaid: %s\nwanted: %s", wrong->line, called.err, wrong->says);
	called_release(&called);
}
END_TEST

START_TEST(test_run_with_flags)
{
	struct called called =
		call("--listen=127.0.0.1:81 --worker http://a:1 --worker http://b:2 "
		     "--strategy roundrobin --admin 127.0.0.1:82 --access-log stderr "
		     "--log-level warn");

	ck_assert_msg(called.action == KVW_CLI_RUN, "%s", called.err);
	ck_assert_str_eq(called.err, "");
	ck_assert_str_eq(called.out, "");
	ck_assert_ptr_null(called.cli.config_path);
	ck_assert_str_eq(called.cli.config->listen, "127.0.0.1:81");
	ck_assert_str_eq(called.cli.config->admin_listen, "127.0.0.1:82");
	ck_assert_str_eq(called.cli.config->routing_strategy, "roundrobin");
	ck_assert_str_eq(called.cli.config->log_access, "stderr");
	ck_assert_uint_eq(called.cli.config->worker_count, 2);
	ck_assert_str_eq(called.cli.config->workers[1].url, "http://b:2");
	called_release(&called);
}
END_TEST

/* As users of production-stack's router start it. */
START_TEST(test_stack_flags)
{
	struct called called = call("--service-discovery static --static-backends http://a:1,http://b:2 "
				    "--static-models m,n --routing-logic roundrobin --port 81 --log-stats "
				    "--log-level warning --admin 127.0.0.1:82");

	ck_assert_msg(called.action == KVW_CLI_RUN, "%s", called.err);
	ck_assert_str_eq(
		called.err, "kvway: --log-stats has no effect: the numbers are in `/metrics`\n");
	ck_assert_str_eq(called.out, "");
	ck_assert_str_eq(called.cli.config->listen, "0.0.0.0:81");
	ck_assert_str_eq(called.cli.config->admin_listen, "127.0.0.1:82");
	ck_assert_str_eq(called.cli.config->routing_strategy, "roundrobin");
	ck_assert_uint_eq(called.cli.config->worker_count, 2);
	ck_assert_str_eq(called.cli.config->workers[1].models.items[0], "n");
	called_release(&called);
}
END_TEST

START_TEST(test_render)
{
	struct called called = call("render --static-backends http://a:1,http://b:2,http://a:1/ "
				    "--static-models m,n,o --session-key x-user-id --engine-stats-interval 60");

	ck_assert_int_eq(called.action, KVW_CLI_EXIT);
	ck_assert_int_eq(called.cli.status, KVW_CLI_OK);
	ck_assert_str_eq(called.err, "");
	ck_assert_str_eq(called.out, "# Keys that are not here have their defaults.\n"
				     "listen: 0.0.0.0:8001\n"
				     "routing:\n"
				     "  strategy: prefixaware\n"
				     "  session:\n"
				     "    headers: [x-user-id]\n"
				     "    body_fields: [x-user-id]\n"
				     "health:\n"
				     "  metrics_interval: 1m\n"
				     "workers:\n"
				     "  - url: http://a:1\n"
				     "    models: [m, o]\n"
				     "  - url: http://b:2\n"
				     "    models: [n]\n");
	called_release(&called);
}
END_TEST

START_TEST(test_files)
{
	char path[] = "/tmp/kvway-cli-XXXXXX", line[64], said[128];
	const char *text = "workers: [{url: \"http://a:1\"}, {url: \"http://b:1\"}]\n";
	const char *bad = "lops: 1\n";
	int fd = mkstemp(path);
	struct called called;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	snprintf(line, sizeof(line), "check -c %s", path);
	called = call(line);
	snprintf(said, sizeof(said), "%s: ok, 2 workers, strategy prefixaware\n", path);
	ck_assert_int_eq(called.action, KVW_CLI_EXIT);
	ck_assert_int_eq(called.cli.status, KVW_CLI_OK);
	ck_assert_str_eq(called.out, said);
	ck_assert_str_eq(called.err, "");
	called_release(&called);

	snprintf(line, sizeof(line), "-c %s", path);
	called = call(line);
	ck_assert_int_eq(called.action, KVW_CLI_RUN);
	ck_assert_str_eq(called.cli.config_path, path);
	ck_assert_str_eq(called.out, "");
	called_release(&called);

	ck_assert_int_eq(write(fd, bad, strlen(bad)), (ssize_t)strlen(bad));
	snprintf(line, sizeof(line), "--config=%s check", path);
	called = call(line);
	snprintf(said, sizeof(said), "%s:2:1: lops: found an unknown key", path);
	ck_assert_int_eq(called.action, KVW_CLI_EXIT);
	ck_assert_int_eq(called.cli.status, KVW_CLI_FAILED);
	ck_assert_str_eq(called.out, "");
	ck_assert_msg(strncmp(called.err, said, strlen(said)) == 0, "%s", called.err);
	called_release(&called);
	close(fd);
	unlink(path);
}
END_TEST

static void write_file(char path[], const char *text)
{
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

START_TEST(test_diff)
{
	static const struct {
		const char *text;
		enum kvw_cli_status status;
		const char *says; /* after the line that the file is ok */
	} rows[] = {
		{"listen: 0.0.0.0:1\nworkers: [{url: 'http://a:1'}, {url: 'http://b:1'}]\n", KVW_CLI_OK,
			"no difference from "},
		{"listen: 0.0.0.0:1\n"
		 "upstream: {stall: 2m}\n"
		 "workers: [{url: 'http://a:1', models: [m], api_key: hunter2}, {url: 'http://c:1'}]\n",
			KVW_CLI_OK,
			"KEY                        OLD    NEW       TAKES EFFECT\n"
			"upstream.stall             15s    2m        at reload\n"
			"worker http://b:1          there  removed   at reload\n"
			"worker http://a:1 models   []     [m]       at reload\n"
			"worker http://a:1 api_key  \"\"     (secret)  at reload\n"
			"worker http://c:1          -      added     at reload\n"
			"a reload takes all of this over\n"},
		{"loops: 2\nworkers: [{url: 'http://a:1'}, {url: 'http://b:1'}]\n", KVW_CLI_RESTART,
			"KEY     OLD        NEW           TAKES EFFECT\n"
			"listen  0.0.0.0:1  0.0.0.0:8080  needs a restart\n"
			"loops   0          2             needs a restart\n"
			"2 keys need a restart; until then the running values stay\n"},
	};
	char running[] = "/tmp/kvway-cli-XXXXXX", line[96], said[1024];
	struct called called;

	write_file(running, rows[0].text);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char path[] = "/tmp/kvway-cli-XXXXXX";

		write_file(path, rows[i].text);
		snprintf(line, sizeof(line), "check -c %s --diff %s", path, running);
		called = call(line);
		ck_assert_int_eq(called.action, KVW_CLI_EXIT);
		ck_assert_msg(called.cli.status == rows[i].status, "%s", called.out);
		ck_assert_str_eq(called.err, "");
		snprintf(said, sizeof(said), "%s%s", rows[i].says, i == 0 ? running : "");
		ck_assert_msg(strncmp(strchr(called.out, '\n') + 1, said, strlen(said)) == 0, "%s",
			called.out);
		called_release(&called);
		unlink(path);
	}
	snprintf(line, sizeof(line), "check -c %s --diff /nonexistent/f", running);
	called = call(line);
	ck_assert_int_eq(called.cli.status, KVW_CLI_FAILED);
	ck_assert_str_eq(called.err, "/nonexistent/f: cannot be opened: No such file or directory\n");
	called_release(&called);
	unlink(running);
}
END_TEST

START_TEST(test_missing_file)
{
	struct called called = call("-c /nonexistent/f.yaml");

	ck_assert_int_eq(called.action, KVW_CLI_EXIT);
	ck_assert_int_eq(called.cli.status, KVW_CLI_FAILED);
	ck_assert_str_eq(
		called.err, "/nonexistent/f.yaml: cannot be opened: No such file or directory\n");
	called_release(&called);
}
END_TEST

START_TEST(test_check_of_flags)
{
	struct called called = call("check --worker http://a:1");

	ck_assert_int_eq(called.cli.status, KVW_CLI_OK);
	ck_assert_str_eq(called.out, "flags: ok, 1 worker, strategy prefixaware\n");
	called_release(&called);
}
END_TEST

/* Help names every flag and every strategy, fits a terminal, and wins over what follows. */
START_TEST(test_help)
{
	static const char *const parts[] = {"Usage:", "Examples:", "check -c", "--listen ADDR",
		"--worker URL", "--strategy NAME", "--admin ADDR", "--access-log TARGET",
		"--log-level LEVEL", "--version", "config/REFERENCE.md", "prefixaware",
		"the help of the first", "roundrobin", "the help of the second"};
	struct called called = call("--help --nonsense");
	const char *line;

	ck_assert_int_eq(called.action, KVW_CLI_EXIT);
	ck_assert_int_eq(called.cli.status, KVW_CLI_OK);
	ck_assert_str_eq(called.err, "");
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		ck_assert_msg(strstr(called.out, parts[i]) != NULL, "%s", parts[i]);
	for (line = called.out; *line != '\0'; line += strcspn(line, "\n") + 1)
		ck_assert_msg(strcspn(line, "\n") <= 110, "%.120s", line);
	called_release(&called);
}
END_TEST

START_TEST(test_version)
{
	struct called called = call("-V");

	ck_assert_int_eq(called.action, KVW_CLI_EXIT);
	ck_assert_int_eq(called.cli.status, KVW_CLI_OK);
	ck_assert_str_eq(called.out, "kvway " KVW_VERSION "\n");
	called_release(&called);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("cli");

	tcase_add_loop_test(tc, test_wrong_usage, 0, (int)(sizeof(wrongs) / sizeof(wrongs[0])));
	tcase_add_test(tc, test_run_with_flags);
	tcase_add_test(tc, test_stack_flags);
	tcase_add_test(tc, test_render);
	tcase_add_test(tc, test_files);
	tcase_add_test(tc, test_diff);
	tcase_add_test(tc, test_missing_file);
	tcase_add_test(tc, test_check_of_flags);
	tcase_add_test(tc, test_help);
	tcase_add_test(tc, test_version);
	return run_tcase("cli", tc);
}
