/*
 * command.c - runs `kvway bundle`. All that goes into the archive passes through one function,
 * which takes secrets out.
 */
#include "bundle/command.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "admin_client.h"
#include "base/read_file.h"
#include "bundle/archive.h"
#include "bundle/mask.h"
#include "cli.h"
#include "config/write.h"
#include "kvway/route.h"

#define LOG_TAIL ((size_t)256 << 10)
#define NAME_ROOM 128

enum status { STATUS_OK, STATUS_FAILED, STATUS_USAGE, STATUS_UNREACHABLE };

/* Questions to the admin address, and the files of their answers. */
static const struct {
	const char *file, *target;
} questions[] = {
	{"health.txt", "/health"},
	{"ready.txt", "/ready"},
	{"workers.json", "/workers"},
	{"groups.json", "/groups"},
	{"models.json", "/v1/models"},
	{"metrics.txt", "/metrics"},
	{"failed.jsonl", "/trace?status=5xx&last=200"},
	{"latest.jsonl", "/trace?last=200"},
};

#define QUESTIONS (sizeof(questions) / sizeof(questions[0]))

struct options {
	struct kvw_admin_options router;
	const char *output;
};

struct bundle {
	struct options options;
	struct kvw_config *config; /* the file of -c; owned; NULL: not given */
	struct kvw_admin_where where;
	char *key;                 /* owned; NULL: none */
	struct kvw_mask mask;
	struct kvw_archive archive;
	char folder[NAME_ROOM / 2]; /* in the archive */
	FILE *summary;
	enum status status;
	FILE *err;
};

static void print_help(const struct kvw_admin_line *line)
{
	fputs("kvway bundle writes one archive with what a support case needs: the configuration, "
	      "metrics,\n"
	      "workers, the latest requests and those that failed, the end of the access log, and "
	      "versions.\n"
	      "Values of secret keys, passwords in URLs, queries and bearer tokens are replaced by "
	      "" KVW_MASKED ".\n"
	      "Look through it before you send it: it names hosts, models and request ids.\n"
	      "\n"
	      "Usage:\n"
	      "  kvway bundle -c FILE            of the router with this configuration\n"
	      "  kvway bundle --admin ADDR       of a router elsewhere, without its configuration\n"
	      "  kvway bundle -c FILE -o -       to standard output\n"
	      "\n"
	      "  -o, --output FILE        the archive (default kvway-bundle-TIME.tar.gz), - for "
	      "standard output\n" KVW_ADMIN_ADDRESS_HELP KVW_ADMIN_FLAGS_HELP
	      "  -h, --help               this text\n"
	      "\n"
	      "Exit status: 0 done, 1 it cannot be written, or the configuration cannot be read, 2 "
	      "wrong\n"
	      "usage, 3 it was written, but no router answers.\n",
		line->out);
}

static bool take_option(struct kvw_admin_line *line, int option)
{
	struct options *options = line->options;

	if (option != 'o')
		return false;
	kvw_admin_line_text(line, &options->output, "-o");
	return true;
}

/* False: the program ends with *status. */
static bool parse(int argc, char **argv, FILE *out, FILE *err, struct options *options,
	enum status *status)
{
	static const struct option flags[] = {
		KVW_ADMIN_FLAGS,
		{"output", required_argument, NULL, 'o'},
		{NULL, 0, NULL, 0},
	};
	struct kvw_admin_line line = {.command = "bundle",
		.flags = flags,
		.letters = ":c:o:h",
		.out = out,
		.err = err,
		.router = &options->router,
		.options = options,
		.help = print_help,
		.take = take_option};
	bool go_on = kvw_admin_line_read(&line, argc, argv);

	if (go_on && optind < argc)
		kvw_admin_line_wrong(&line, "found `%s`, expected flags alone", argv[optind]);
	if (go_on && !line.bad)
		kvw_admin_line_check(&line, &options->router);
	if (go_on && !line.bad && options->router.json)
		kvw_admin_line_wrong(&line, "--json: the archive has one form");
	if (go_on && !line.bad && options->output != NULL && strcmp(options->output, "-") == 0 &&
		isatty(STDOUT_FILENO))
		kvw_admin_line_wrong(&line, "-o -: standard output is a terminal");
	*status = line.bad ? STATUS_USAGE : STATUS_OK;
	return go_on && !line.bad;
}

/* Adds a file, without secrets, and a line to the summary. */
static void add(struct bundle *b, const char *file, const char *data, size_t len, const char *what)
{
	char name[NAME_ROOM], *clean = NULL;
	size_t clean_len = 0;

	if (kvw_mask_text(&b->mask, data, len, &clean, &clean_len) != KVW_OK) {
		fprintf(b->summary, "%s: left out: out of memory\n", file);
		b->status = STATUS_FAILED;
		return;
	}
	(void)snprintf(name, sizeof(name), "%s/%s", b->folder, file);
	kvw_archive_add(&b->archive, name, clean, clean_len);
	fprintf(b->summary, "%s: %s, %zu bytes\n", file, what, clean_len);
	free(clean);
}

static void add_config(struct bundle *b)
{
	char *text = NULL;
	size_t len = 0;
	FILE *to = b->config == NULL ? NULL : open_memstream(&text, &len);

	if (b->config == NULL) {
		fputs("config.yaml: left out: give -c FILE\n", b->summary);
		return;
	}
	if (to == NULL || kvw_config_write(to, b->config, kvw_strategies) != KVW_OK) {
		fputs("config.yaml: left out: out of memory\n", b->summary);
		b->status = STATUS_FAILED;
	}
	if (to != NULL && fclose(to) == 0 && b->status == STATUS_OK)
		add(b, "config.yaml", text, len, b->options.router.config);
	free(text);
}

/* Adds the end of the access log, if that is a file. */
static void add_log(struct bundle *b)
{
	const char *path = b->config == NULL ? "off" : b->config->log_access;
	char *text = malloc(LOG_TAIL);
	size_t len = 0;
	int fd;

	if (strcmp(path, "off") == 0 || strcmp(path, "stdout") == 0 || strcmp(path, "stderr") == 0)
		goto out;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		(void)lseek(fd, -(off_t)LOG_TAIL, SEEK_END); /* a shorter file is read whole */
	if (text == NULL || fd < 0 || kvw_read_all(fd, text, LOG_TAIL, &len) != KVW_OK)
		fprintf(b->summary, "access_log.jsonl: left out: %s: %s\n", path, strerror(errno));
	else
		add(b, "access_log.jsonl", text, len, path);
	if (fd >= 0)
		close(fd);
out:
	free(text);
}

/* Asks all questions, as long as a router answers. */
static void add_answers(struct bundle *b)
{
	for (size_t i = 0; i < QUESTIONS; i++) {
		const struct kvw_admin_question question = {
			.method = "GET", .target = questions[i].target, .key = b->key};
		struct kvw_admin_reply reply = {0};
		char why[CURL_ERROR_SIZE], what[32];
		enum kvw_err err = kvw_admin_client_ask(&b->where, &question, why, &reply);

		if (err == KVW_EIO) {
			kvw_admin_client_missed(&b->where, "bundle", why, "", b->err);
			fprintf(b->summary, "%s and what follows: left out: %s\n",
				questions[i].file, why);
			b->status = STATUS_UNREACHABLE;
			return;
		}
		(void)snprintf(what, sizeof(what), "status %ld", reply.status);
		add(b, questions[i].file, reply.body == NULL ? "" : reply.body, reply.len, what);
		free(reply.body);
	}
}

static void begin_summary(struct bundle *b, const char *time_text)
{
	struct utsname system;

	fprintf(b->summary,
		"kvway bundle %s\nversion of this program: kvway %s\nadmin address: %s\n",
		time_text, KVW_VERSION, b->where.address);
	if (uname(&system) == 0)
		fprintf(b->summary, "system: %s %s %s\n", system.sysname, system.release,
			system.machine);
	fprintf(b->summary,
		"Secrets are replaced by " KVW_MASKED ". metrics.txt has the version of the router "
		"(kvway_build_info).\n\n");
}

/* Fills the archive. */
static void fill(struct bundle *b, const char *time_text)
{
	char *text = NULL;
	size_t len = 0;

	b->summary = open_memstream(&text, &len);
	if (b->summary == NULL) {
		b->status = STATUS_FAILED;
		return;
	}
	begin_summary(b, time_text);
	add_config(b);
	add_log(b);
	add_answers(b);
	(void)fflush(b->summary);
	add(b, "summary.txt", text, len, "this text");
	(void)fclose(b->summary);
	free(text);
}

/* Opens the archive, fills and ends it. */
static void write_archive(struct bundle *b)
{
	const char *path = b->options.output;
	time_t now = time(NULL);
	char time_text[32] = "", name[NAME_ROOM];
	struct tm tm;
	int fd;

	if (gmtime_r(&now, &tm) != NULL)
		(void)strftime(time_text, sizeof(time_text), "%Y%m%dT%H%M%SZ", &tm);
	(void)snprintf(b->folder, sizeof(b->folder), "kvway-bundle-%s", time_text);
	(void)snprintf(name, sizeof(name), "%s.tar.gz", b->folder);
	path = path == NULL ? name : path;
	fd = strcmp(path, "-") == 0
		     ? dup(STDOUT_FILENO)
		     : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0) {
		fprintf(b->err, "kvway bundle: %s: %s\n", path, strerror(errno));
		b->status = STATUS_FAILED;
		return;
	}
	if (kvw_archive_take(&b->archive, fd, now) != KVW_OK) {
		fputs("kvway bundle: out of memory\n", b->err);
		b->status = STATUS_FAILED;
		return;
	}
	fill(b, time_text);
	if (kvw_archive_end(&b->archive) != KVW_OK) {
		fprintf(b->err, "kvway bundle: %s: it cannot be written\n", path);
		b->status = STATUS_FAILED;
	} else {
		fprintf(b->err, "kvway bundle: wrote %s; look through it before you send it\n",
			path);
	}
}

/* Finds the router to ask, and the secrets. */
static void prepare(struct bundle *b)
{
	const struct kvw_admin_options *router = &b->options.router;

	b->status = STATUS_FAILED;
	if (router->config != NULL &&
		kvw_cli_load_file(router->config, b->err, &b->config) != KVW_OK)
		return;
	if (kvw_admin_client_find(router, b->config, "bundle", b->err, &b->where) != KVW_OK) {
		b->status = STATUS_USAGE;
		return;
	}
	if (router->key_file != NULL) {
		b->key = kvw_admin_client_key(router->key_file, "bundle", b->err);
		if (b->key == NULL)
			return;
	}
	if (kvw_mask_add(&b->mask, b->key) == KVW_OK &&
		(b->config == NULL || kvw_mask_add_config(&b->mask, b->config) == KVW_OK))
		b->status = STATUS_OK;
	else
		fputs("kvway bundle: out of memory\n", b->err);
}

int kvw_bundle_command(int argc, char **argv, FILE *out, FILE *err)
{
	struct bundle b = {.err = err};

	if (!parse(argc, argv, out, err, &b.options, &b.status))
		return (int)b.status;
	prepare(&b);
	if (b.status == STATUS_OK)
		write_archive(&b);
	kvw_mask_finish(&b.mask);
	free(b.key);
	kvw_config_destroy(b.config);
	return (int)b.status;
}
