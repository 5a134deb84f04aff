/*
 * cli.c - reads the command line of kvway: a configuration file, or a few flags instead of one.
 *
 * The two do not mix: with a file, every setting is in the file, so that the file shows what runs.
 * Each flag that sets something is one row of `settings`, which drives parsing, refusal together
 * with -c, and --help alike. The flags of production-stack's router stand in config/stack_flags.def
 * and are only collected here. config/ checks values and names the flag.
 *
 * After a mistyped command line kvway writes one line that names the mistake and one that says
 * where help is found, both to standard error, and exits with status 2.
 */
#include "cli.h"
#include "cli_diff.h"

#include <getopt.h>
#include <net/if.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "auth/jwt_keys.h"
#include "auth/jwt_gate.h"
#include "auth/keys_file.h"
#include "auth/tenants.h"
#include "config/stack_flags.h"
#include "config/write.h"
#include "kvway/route.h"
#include "settings/suggest.h"
#include "state/file.h"
#include "tls/tls.h"

enum option_id {
	OPTION_CONFIG = 'c',
	OPTION_HELP = 'h',
	OPTION_VERSION = 'V',
	OPTION_TAKEOVER = 254,
	OPTION_DIFF = 255,
	OPTION_SETTING = 256,
	OPTION_STACK = 512,
};

/* A flag that sets a key. */
struct setting {
	const char *name;
	const char *value; /* for --help */
	const char *key;   /* the key that it sets, as in a file */
	size_t offset;     /* offset of its text in struct kvw_config_flags; workers: SIZE_MAX */
	const char *help;
};

static const struct setting settings[] = {
	{"listen", "ADDR", "listen", offsetof(struct kvw_config_flags, listen),
		"address for clients, HOST:PORT (default 0.0.0.0:8080)"},
	{"worker", "URL", "workers", SIZE_MAX,
		"a vLLM server, http://HOST:PORT; once for each, at least one"},
	{"strategy", "NAME", "routing.strategy", offsetof(struct kvw_config_flags, strategy),
		"how a worker is chosen (default prefixaware), see below"},
	{"admin", "ADDR", "admin.listen", offsetof(struct kvw_config_flags, admin),
		"address for health and metrics (default 127.0.0.1:9090)"},
	{"access-log", "TARGET", "log.access", offsetof(struct kvw_config_flags, access_log),
		"off, stdout, stderr or a file's path (default off)"},
	{"log-level", "LEVEL", "log.level", offsetof(struct kvw_config_flags, log_level),
		"debug, info, warn or error (default info)"},
};

#define SETTING_COUNT (sizeof(settings) / sizeof(settings[0]))

/* The use of the configuration. */
enum command { COMMAND_RUN, COMMAND_CHECK, COMMAND_RENDER };

/* Options read so far. */
struct reader {
	FILE *out, *err;
	struct kvw_cli *cli;
	struct kvw_config_flags flags;
	const char **workers; /* owned; room for every argument */
	const char *given;    /* the first setting given; NULL: none */
	const char *given_key; /* key of the first setting that was given; NULL: it has none */
	struct kvw_stack_given stack[KVW_STACK_FLAG_COUNT];
	enum command command;
	const char *diff; /* the file after --diff; NULL: none */
	bool done;  /* nothing is left to do: the program ends with cli->status */
};

static void fail_usage(struct reader *r)
{
	fputs("Try `kvway --help`.\n", r->err);
	r->cli->status = KVW_CLI_USAGE;
	r->done = true;
}

static void print_usage(FILE *out)
{
	fputs("Usage:\n"
	      "  kvway -c FILE                               run with a configuration file\n"
	      "  kvway check -c FILE                         only say what is wrong in it\n"
	      "  kvway check -c FILE --diff RUNNING          "
	      "what a reload from RUNNING would change\n"
	      "  kvway [--listen ADDR] --worker URL ...      run without a file\n"
	      "  kvway render --worker URL ...               "
	      "the file that flags, or a file, amount to\n"
	      "  kvway render -f MANIFEST                    "
	      "Kubernetes objects for a manifest of HyperPod\n"
	      "  kvway explain < request.json                which worker would get it, and why\n"
	      "  kvway workers                               "
	      "those of a running router; add, drain, remove\n"
	      "  kvway trace                                 "
	      "what happened to requests: waits, workers, failures\n"
	      "  kvway usage                                 "
	      "requests and tokens of keys, tenants, models\n"
	      "  kvway bundle                                "
	      "one archive for a support case, without secrets\n"
	      "  kvway top                                   "
	      "what goes on now, and what is wrong\n"
	      "  kvway groups                                "
	      "groups of a model's workers, and their weights\n"
	      "  kvway compare GROUP GROUP                   how two of these differ\n"
	      "  kvway state FILE                            "
	      "what is in a snapshot, and whether it is whole\n"
	      "  kvway key new NAME                          "
	      "a key for a client, and its entry in the file of keys\n",
		out);
}

static void print_help(FILE *out)
{
	fputs("kvway stands in front of vLLM servers and sends each prompt to the one that "
	      "already\n"
	      "holds the beginning of it in its KV cache.\n\n",
		out);
	print_usage(out);
	fputs("\nExamples:\n"
	      "  kvway --listen 127.0.0.1:8080 --worker http://127.0.0.1:8001 \\\n"
	      "        --worker http://127.0.0.1:8002\n"
	      "  curl http://127.0.0.1:8080/v1/models\n"
	      "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: "
	      "application/json' \\\n"
	      "       -d '{\"model\": \"MODEL\", \"messages\": [{\"role\": \"user\", \"content\": "
	      "\"Hello\"}]}'\n"
	      "  kvway check -c kvway.yaml && kvway -c kvway.yaml\n",
		out);
	fputs("\nWith a file:\n"
	      "  -c, --config FILE        YAML; every key is explained in config/REFERENCE.md\n"
	      "      --diff RUNNING       "
	      "with `check`: the file that a router runs with; shows each key\n"
	      "                           and worker that differs, and whether it needs a restart\n"
	      "\nWithout a file:\n",
		out);
	for (size_t i = 0; i < SETTING_COUNT; i++) {
		int used = fprintf(out, "      --%s %s", settings[i].name, settings[i].value);

		fprintf(out, "%*s%s\n", used < 27 ? 27 - used : 1, "", settings[i].help);
	}
	fputs("  Flags of vLLM production-stack's router, such as --static-backends and "
	      "--routing-logic,\n"
	      "  are understood too: config/REFERENCE.md lists them, kvway render shows what they "
	      "become.\n",
		out);
	fputs("\nUpgrade:\n"
	      "      --takeover SOCKET    "
	      "take the sockets of the running kvway over, whose takeover.socket\n"
	      "                           "
	      "this is: it serves until this one is ready, then finishes and ends\n"
	      "\n  -h, --help               this text\n"
	      "  -V, --version            version of kvway\n"
	      "\nStrategies:\n",
		out);
	for (size_t i = 0; kvw_strategies[i] != NULL; i++)
		fprintf(out, "  %-24s %s\n", kvw_strategies[i]->name, kvw_strategies[i]->help);
	fputs("\nWhile it runs:\n"
	      "  http://127.0.0.1:9090/health, /ready and /metrics answer on the admin address.\n"
	      "  http://127.0.0.1:9090/ui shows what goes on, and what is wrong.\n"
	      "  kvway explain, workers, trace, top and usage ask there too, as their --help "
	      "says.\n"
	      "  SIGUSR2 starts the program that is installed now, which takes over without a lost "
	      "request.\n"
	      "  SIGTERM lets running requests finish, then exits 0; a second one exits at once.\n"
	      "\nExit status: 0 all is well, 1 mistakes in the configuration or no start, 2 wrong "
	      "usage,\n"
	      "3 `check --diff` found a difference that needs a restart.\n"
	      "\nWhere to look next:\n"
	      "  config/examples/minimal.yaml   the smallest useful file, to begin with\n"
	      "  config/REFERENCE.md            every key with its default and range\n"
	      "  deploy/quickstart.sh           see what prefix-aware routing gains, on this "
	      "machine\n",
		out);
}

/* Reports an unknown flag such as `--lisen`, with the most similar one. */
static void report_unknown_flag(struct reader *r, const char *argument)
{
	static const char *const others[] = {"config", "diff", "help", "takeover", "version"};
	struct kvw_suggest near;
	char name[KVW_SUGGEST_MAX + 1];
	const char *begin = argument + strspn(argument, "-");

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(begin, "="), begin);
	kvw_suggest_start(&near, name);
	for (size_t i = 0; i < SETTING_COUNT; i++)
		kvw_suggest_offer(&near, settings[i].name, settings[i].name);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		kvw_suggest_offer(&near, others[i], others[i]);
	for (size_t i = 0; i < KVW_STACK_FLAG_COUNT; i++)
		kvw_suggest_offer(&near, kvw_stack_flags[i].flag + 2, kvw_stack_flags[i].flag + 2);
	fprintf(r->err, "kvway: unknown flag %s", argument);
	if (near.best != NULL)
		fprintf(r->err, "; did you mean `--%s`?", near.best);
	fputc('\n', r->err);
	fail_usage(r);
}

static void take_twice(struct reader *r, const char *flag)
{
	fprintf(r->err, "kvway: %s was given twice\n", flag);
	fail_usage(r);
}

static void note_given(struct reader *r, const char *name, const char *key)
{
	if (r->given == NULL) {
		r->given = name;
		r->given_key = key;
	}
}

/* Notes a flag of production-stack's router. */
static void take_stack_flag(struct reader *r, size_t index, const char *value)
{
	const struct kvw_stack_flag *flag = &kvw_stack_flags[index];

	for (size_t i = 0; i < r->flags.stack_count && !r->done; i++)
		if (r->stack[i].flag == index)
			take_twice(r, flag->flag);
	if (r->done)
		return;
	note_given(r, flag->flag + 2,
		flag->use == KVW_STACK_ONLY || flag->keys[0] == '\0' ? NULL : flag->keys);
	r->stack[r->flags.stack_count++] = (struct kvw_stack_given){index, value};
}

static void take_setting(struct reader *r, const struct setting *setting, const char *value)
{
	const char **field;
	char flag[32];

	note_given(r, setting->name, setting->key);
	if (setting->offset == SIZE_MAX) {
		r->workers[r->flags.worker_count++] = value;
		return;
	}
	field = (const char **)(void *)((char *)&r->flags + setting->offset);
	if (*field != NULL) {
		snprintf(flag, sizeof(flag), "--%s", setting->name);
		take_twice(r, flag);
		return;
	}
	*field = value;
}

static void take_option(struct reader *r, int option, const char *argument)
{
	if (option >= OPTION_STACK) {
		take_stack_flag(r, (size_t)(option - OPTION_STACK), optarg);
	} else if (option >= OPTION_SETTING) {
		take_setting(r, &settings[option - OPTION_SETTING], optarg);
	} else if (option == OPTION_CONFIG && r->cli->config_path != NULL) {
		take_twice(r, "-c");
	} else if (option == OPTION_CONFIG) {
		r->cli->config_path = optarg;
	} else if (option == OPTION_DIFF && r->diff != NULL) {
		take_twice(r, "--diff");
	} else if (option == OPTION_DIFF) {
		r->diff = optarg;
	} else if (option == OPTION_TAKEOVER && r->cli->takeover_from != NULL) {
		take_twice(r, "--takeover");
	} else if (option == OPTION_TAKEOVER) {
		r->cli->takeover_from = optarg;
	} else if (option == OPTION_HELP) {
		print_help(r->out);
		r->done = true;
	} else if (option == OPTION_VERSION) {
		fputs("kvway " KVW_VERSION "\n", r->out);
		r->done = true;
	} else if (option == ':') {
		fprintf(r->err, "kvway: %s needs a value\n", argument);
		fail_usage(r);
	} else if (optopt != 0 && strncmp(argument, "--", 2) == 0) {
		fprintf(r->err, "kvway: %s: this flag takes no value\n", argument);
		fail_usage(r);
	} else if (optopt != 0) {
		/* a short flag that is not known; in "-xh" it may be the first of several, and
		 * `argument` is then not it */
		fprintf(r->err, "kvway: unknown flag -%c\n", optopt);
		fail_usage(r);
	} else {
		report_unknown_flag(r, argument);
	}
}

static void read_options(struct reader *r, int argc, char **argv)
{
	struct option options[SETTING_COUNT + KVW_STACK_FLAG_COUNT + 6] = {
		{"config", required_argument, NULL, OPTION_CONFIG},
		{"diff", required_argument, NULL, OPTION_DIFF},
		{"takeover", required_argument, NULL, OPTION_TAKEOVER},
		{"help", no_argument, NULL, OPTION_HELP},
		{"version", no_argument, NULL, OPTION_VERSION},
	};
	int option;

	for (size_t i = 0; i < SETTING_COUNT; i++)
		options[5 + i] = (struct option){
			settings[i].name, required_argument, NULL, OPTION_SETTING + (int)i};
	for (size_t i = 0, at = 5 + SETTING_COUNT; i < KVW_STACK_FLAG_COUNT; i++)
		if (kvw_stack_flags[i].use != KVW_STACK_SHARED)
			options[at++] = (struct option){kvw_stack_flags[i].flag + 2,
				kvw_stack_flags[i].argument != NULL ? required_argument
								    : no_argument,
				NULL, OPTION_STACK + (int)i};
	opterr = 0;
	optind = 0; /* glibc: starts over and forgets an earlier call */
	while (!r->done) {
		option = getopt_long(argc, argv, ":c:hV", options, NULL);
		if (option == -1)
			break;
		take_option(r, option, argv[optind - 1]);
	}
}

/* Words that are commands in front of all else. */
static const struct {
	const char *name;
	enum kvw_cli_action action;
} commands[] = {
	{"explain", KVW_CLI_EXPLAIN},
	{"trace", KVW_CLI_TRACE},
	{"top", KVW_CLI_TOP},
	{"usage", KVW_CLI_USED},
	{"bundle", KVW_CLI_BUNDLE},
	{"workers", KVW_CLI_WORKERS},
	{"groups", KVW_CLI_GROUPS},
	{"compare", KVW_CLI_GROUPS},
	{"state", KVW_CLI_STATE},
	{"key", KVW_CLI_KEY},
};

enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

/* Returns whether a word is meant as the configuration file. */
static bool names_yaml(const char *word)
{
	const char *ending = strrchr(word, '.');

	return ending != NULL && (strcmp(ending, ".yaml") == 0 || strcmp(ending, ".yml") == 0);
}

/* Reads words that are not flags: at most one of `check` and `render`; `commands` were handled
 * before. */
static void read_words(struct reader *r, int argc, char **argv)
{
	static const char *const words[] = {
		[COMMAND_CHECK] = "check", [COMMAND_RENDER] = "render"};
	struct kvw_suggest near;

	for (int i = optind; i < argc && !r->done; i++) {
		enum command command = COMMAND_RENDER;

		while (command != COMMAND_RUN && strcmp(argv[i], words[command]) != 0)
			command--;
		if (r->command == COMMAND_RUN && command != COMMAND_RUN) {
			r->command = command;
			continue;
		}
		kvw_suggest_start(&near, argv[i]);
		kvw_suggest_offer(&near, "check", "check");
		kvw_suggest_offer(&near, "render", "render");
		fprintf(r->err,
			"kvway: found `%s`, expected flags, `check` or `render`, or in front of "
			"all else",
			argv[i]);
		for (size_t k = 0; k < COMMANDS; k++) {
			bool last = k + 1 == COMMANDS;

			kvw_suggest_offer(&near, commands[k].name, commands[k].name);
			fprintf(r->err, "%s `%s`", k == 0 ? "" : last ? " or" : ",",
				commands[k].name);
		}
		if (r->cli->config_path == NULL && names_yaml(argv[i]))
			fprintf(r->err, "; did you mean `-c %s`?", argv[i]);
		else if (near.best != NULL)
			fprintf(r->err, "; did you mean `%s`?", near.best);
		fputc('\n', r->err);
		fail_usage(r);
	}
}

static void check_combination(struct reader *r)
{
	const char *path = r->cli->config_path;

	if (path != NULL && r->given != NULL) {
		fprintf(r->err,
			"kvway: --%s together with -c: with a file every setting is in the file",
			r->given);
		if (r->given_key != NULL)
			fprintf(r->err, "; set `%s` in %s", r->given_key, path);
		fputc('\n', r->err);
		fail_usage(r);
	} else if (r->diff != NULL && r->command != COMMAND_CHECK) {
		fputs("kvway: --diff without `check`: give kvway check -c NEW --diff RUNNING\n",
			r->err);
		fail_usage(r);
	} else if (r->cli->takeover_from != NULL && r->command != COMMAND_RUN) {
		fputs("kvway: --takeover is for a kvway that runs, not for `check` or `render`\n",
			r->err);
		fail_usage(r);
	} else if (path == NULL && r->flags.worker_count + r->flags.stack_count == 0) {
		if (r->given != NULL || r->command != COMMAND_RUN)
			fprintf(r->err,
				"kvway: %s%s: give -c FILE, or --worker URL for each worker\n",
				r->given != NULL                  ? "no worker given with --"
				: r->command == COMMAND_CHECK ? "nothing to check"
							      : "nothing to render",
				r->given != NULL ? r->given : "");
		else
			print_usage(r->err);
		fail_usage(r);
	}
}

/* Loads the configuration from the file, or from the flags if path is NULL. */
static enum kvw_err load_config(const char *path, const struct kvw_config_flags *flags,
	FILE *errors, struct kvw_config **out)
{
	enum kvw_err err;

	if (path != NULL)
		err = kvw_config_load(path, kvw_strategies, errors, out);
	else
		err = kvw_config_from_flags(flags, kvw_strategies, errors, out);
	if (err == KVW_ENOMEM)
		fputs("kvway: out of memory while reading the configuration\n", errors);
	return err;
}

enum kvw_err kvw_cli_load_file(const char *path, FILE *errors, struct kvw_config **out)
{
	return load_config(path, NULL, errors, out);
}

/* Prints the changes that a reload from the file r->diff to `config` would make. */
static void check_diff(struct reader *r, const struct kvw_config *config)
{
	struct kvw_config *running = NULL;
	struct kvw_config_diff *diff = NULL;

	r->cli->status = KVW_CLI_FAILED;
	if (load_config(r->diff, NULL, r->err, &running) != KVW_OK)
		return;
	if (kvw_config_diff(running, config, kvw_strategies, &diff) == KVW_OK) {
		kvw_cli_print_diff(r->out, diff, r->diff);
		r->cli->status = diff->restart_count > 0 ? KVW_CLI_RESTART : KVW_CLI_OK;
	} else {
		fputs("kvway: out of memory\n", r->err);
	}
	kvw_config_diff_destroy(diff);
	kvw_config_destroy(running);
}

/* Prints which flags have no effect, and what their users may expect instead. */
static void explain_stack_flags(const struct reader *r)
{
	for (size_t i = 0; i < r->flags.stack_count; i++) {
		const struct kvw_stack_flag *flag = &kvw_stack_flags[r->stack[i].flag];

		if (flag->use == KVW_STACK_NOTE)
			fprintf(r->err, "kvway: %s has no effect: %s\n", flag->flag, flag->text);
	}
}

/* Checks that the secret of tenants' salts can be read, as at a start. False: a mistake was
 * printed. */
static bool check_tenants(struct reader *r, const struct kvw_config *config)
{
	struct kvw_tenants *tenants = NULL;

	if (!config->auth_isolate_tenants || config->auth_tenant_secret_file[0] == '\0' ||
		(config->auth_keys_file[0] == '\0' && !kvw_jwt_wanted(config)))
		return true;
	if (kvw_tenants_create(config->auth_tenant_secret_file, r->err, &tenants) != KVW_OK)
		r->cli->status = KVW_CLI_FAILED;
	kvw_tenants_destroy(tenants);
	return tenants != NULL;
}

/* Checks a file of keys; "": there is none. False: mistakes were printed. */
static bool check_keys(struct reader *r, const char *path)
{
	struct kvw_keyring *ring = NULL;

	if (path[0] == '\0')
		return true;
	if (kvw_keys_file_load(path, r->err, &ring) != KVW_OK) {
		r->cli->status = KVW_CLI_FAILED;
		return false;
	}
	fprintf(r->out, "%s: ok, %zu key%s\n", path, kvw_keyring_count(ring),
		kvw_keyring_count(ring) == 1 ? "" : "s");
	kvw_keyring_unref(ring);
	return true;
}

/* Checks the file of keys that verify tokens. False: mistakes were printed. */
static bool check_token_keys(struct reader *r, const struct kvw_config *config)
{
	const char *path = config->auth_jwt_jwks_file;
	size_t count = 0;

	if (path[0] == '\0')
		return true;
	if (kvw_jwt_keys_check(path, r->err, &count) != KVW_OK) {
		r->cli->status = KVW_CLI_FAILED;
		return false;
	}
	fprintf(r->out, "%s: ok, %zu key%s of tokens\n", path, count, count == 1 ? "" : "s");
	return true;
}

/* Checks whether snapshots can be written. False: they cannot, and the reason was printed. */
static bool check_state(struct reader *r, const struct kvw_config *config)
{
	char why[KVW_STATE_WHY];

	if (config->state_file[0] == '\0' || kvw_state_file_may_write(config->state_file, why))
		return true;
	fprintf(r->err, "kvway: state.file: no snapshot can be written to %s: %s\n",
		config->state_file, why);
	r->cli->status = KVW_CLI_FAILED;
	return false;
}

/* Prints which addresses for engines cannot be passed on in an upgrade, since only libzmq
 * understands them (feeds/listener.h). That is no mistake. */
static void check_listeners(struct reader *r, const struct kvw_config *config)
{
	const struct {
		const char *key, *address;
	} items[] = {{"kvaware.events.bind", config->kvaware_events_bind},
		{"kvaware.lmcache.pull", config->kvaware_lmcache_pull},
		{"kvaware.lmcache.reply", config->kvaware_lmcache_reply},
		{"kvaware.lmcache.heartbeat", config->kvaware_lmcache_heartbeat}};

	for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
		const char *host = items[i].address;
		char name[IF_NAMESIZE];
		size_t len;

		host += strncmp(host, "tcp://", 6) == 0 ? 6 : 0;
		len = strcspn(host, ":");
		if (len == 0 || len >= sizeof(name))
			continue;
		memcpy(name, host, len);
		name[len] = '\0';
		if (if_nametoindex(name) != 0)
			fprintf(r->err,
				"kvway: warning: %s: %s is the name of an interface: an upgrade "
				"cannot take this address over, and fails; write the interface's "
				"address\n",
				items[i].key, name);
	}
}

static void check(struct reader *r, const struct kvw_config *config)
{
	if (!check_state(r, config) || !check_tenants(r, config) ||
		!check_keys(r, config->auth_keys_file) || !check_keys(r, config->admin_keys_file) ||
		!check_token_keys(r, config))
		return;
	check_listeners(r, config);
	fprintf(r->out, "%s: ok, %zu worker%s, strategy %s\n",
		r->cli->config_path != NULL ? r->cli->config_path : "flags", config->worker_count,
		config->worker_count == 1 ? "" : "s", config->routing_strategy);
	if (r->diff != NULL)
		check_diff(r, config);
}

static void render(struct reader *r, const struct kvw_config *config)
{
	fputs("# Keys that are not here have their defaults.\n", r->out);
	if (kvw_config_write(r->out, config, kvw_strategies) == KVW_OK)
		return;
	fputs("kvway: out of memory\n", r->err);
	r->cli->status = KVW_CLI_FAILED;
}

static void load_settings(struct reader *r)
{
	struct kvw_config *config = NULL;
	const char *path = r->cli->config_path;
	enum kvw_err err = load_config(path, &r->flags, r->err, &config);

	if (err != KVW_OK) {
		r->cli->status = path == NULL && err == KVW_EINVAL ? KVW_CLI_USAGE : KVW_CLI_FAILED;
		r->done = true;
		return;
	}
	explain_stack_flags(r);
	if (r->command != COMMAND_RUN) {
		if (r->command == COMMAND_CHECK)
			check(r, config);
		else
			render(r, config);
		kvw_config_destroy(config);
		r->done = true;
		return;
	}
	r->cli->config = config;
}

/* Returns whether `render` is called for a manifest rather than for a configuration of kvway. */
static bool is_manifest(int argc, char **argv)
{
	static const char *const words[] = {"--file", "--fields", "--help", "-h"};

	if (argc < 2 || strcmp(argv[1], "render") != 0)
		return false;
	for (int i = 2; i < argc; i++) {
		if (strncmp(argv[i], "-f", 2) == 0 || strncmp(argv[i], "--file=", 7) == 0)
			return true;
		for (size_t k = 0; k < sizeof(words) / sizeof(words[0]); k++)
			if (strcmp(argv[i], words[k]) == 0)
				return true;
	}
	return false;
}

enum kvw_cli_action kvw_cli_parse(int argc, char **argv, FILE *out, FILE *err, struct kvw_cli *cli)
{
	struct reader r = {.out = out, .err = err, .cli = cli};

	*cli = (struct kvw_cli){.status = KVW_CLI_OK};
	for (size_t i = 0; argc > 1 && i < COMMANDS; i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].action;
	if (is_manifest(argc, argv))
		return KVW_CLI_MANIFEST;
	r.workers = calloc((size_t)argc + 1, sizeof(*r.workers));
	if (r.workers == NULL) {
		fputs("kvway: out of memory\n", err);
		cli->status = KVW_CLI_FAILED;
		return KVW_CLI_EXIT;
	}
	r.flags.workers = r.workers;
	r.flags.stack = r.stack;
	read_options(&r, argc, argv);
	if (!r.done)
		read_words(&r, argc, argv);
	if (!r.done)
		check_combination(&r);
	if (!r.done)
		load_settings(&r);
	free(r.workers);
	return r.done ? KVW_CLI_EXIT : KVW_CLI_RUN;
}
