/*
 * command.c - runs `kvway bundle`. All that goes into the archive passes through one function,
 * which takes secrets out.
 */
#include "bundle/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "admin_client.h"
#include "base/read_file.h"
#include "bundle/archive.h"
#include "bundle/mask.h"
#include "config/write.h"
#include "kvway/route.h"

#define LOG_TAIL ((size_t)256 << 10)
#define NAME_ROOM 128

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
	struct kvw_admin_client client;
	struct kvw_mask mask;
	struct kvw_archive archive;
	char folder[NAME_ROOM / 2]; /* in the archive */
	FILE *summary;
	enum kvw_exit status;
};

static const char help[] =
	"kvway bundle writes one archive with what a support case needs: the configuration, "
	"metrics,\n"
	"workers, the latest requests and those that failed, the end of the access log, and "
	"versions.\n"
	"Values of secret keys, passwords in URLs, queries and bearer tokens are replaced by "
	KVW_MASKED ".\n"
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
	"usage, 3 it was written, but no router answers.\n";

static const struct kvw_admin_flag flags[] = {
	{.name = "output", .letter = 'o', .offset = offsetof(struct options, output)},
	{.name = NULL},
};

static void check_output(struct kvw_admin_line *line)
{
	const struct options *options = (const struct options *)line->options;

	if (options->router.json)
		kvw_admin_line_wrong(line, "--json: the archive has one form");
	else if (options->output != NULL && strcmp(options->output, "-") == 0 &&
		 isatty(STDOUT_FILENO))
		kvw_admin_line_wrong(line, "-o -: standard output is a terminal");
}

/* Adds a file, without secrets, and a line to the summary. */
static void add(struct bundle *b, const char *file, const char *data, size_t len, const char *what)
{
	char name[NAME_ROOM], *clean = NULL;
	size_t clean_len = 0;

	if (kvw_mask_text(&b->mask, data, len, &clean, &clean_len) != KVW_OK) {
		fprintf(b->summary, "%s: left out: out of memory\n", file);
		b->status = KVW_EXIT_FAILED;
		return;
	}
	(void)snprintf(name, sizeof(name), "%s/%s", b->folder, file);
	kvw_archive_add(&b->archive, name, clean, clean_len);
	fprintf(b->summary, "%s: %s, %zu bytes\n", file, what, clean_len);
	free(clean);
}

static void add_config(struct bundle *b)
{
	const struct kvw_config *config = b->client.config;
	char *text = NULL;
	size_t len = 0;
	FILE *to = config == NULL ? NULL : open_memstream(&text, &len);
	bool whole = to != NULL && kvw_config_write(to, config, kvw_strategies) == KVW_OK;

	if (to != NULL)
		whole = fclose(to) == 0 && whole;
	if (config == NULL) {
		fputs("config.yaml: left out: give -c FILE\n", b->summary);
	} else if (whole) {
		add(b, "config.yaml", text, len, b->options.router.config);
	} else {
		fputs("config.yaml: left out: out of memory\n", b->summary);
		b->status = KVW_EXIT_FAILED;
	}
	free(text);
}

/* Adds the end of the access log, if that is a file: to read from a pipe would take lines away. */
static void add_log(struct bundle *b)
{
	const char *path = b->client.config == NULL ? "off" : b->client.config->log_access;
	char *text = malloc(LOG_TAIL), *begin = NULL;
	struct stat about;
	size_t len = 0;
	int fd;

	if (strcmp(path, "off") == 0 || strcmp(path, "stdout") == 0 || strcmp(path, "stderr") == 0)
		goto out;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		(void)lseek(fd, -(off_t)LOG_TAIL, SEEK_END); /* a shorter file is read whole */
	if (fd >= 0 && fstat(fd, &about) == 0 && !S_ISREG(about.st_mode))
		fprintf(b->summary, "access_log.jsonl: left out: %s is no file\n", path);
	else if (text == NULL || fd < 0 || kvw_read_all(fd, text, LOG_TAIL, &len) != KVW_OK)
		fprintf(b->summary, "access_log.jsonl: left out: %s: %s\n", path, strerror(errno));
	else if (len == LOG_TAIL) /* secrets are not known in the rest of a line */
		begin = memchr(text, '\n', len);
	else
		begin = text;
	if (begin == NULL && len == LOG_TAIL)
		fprintf(b->summary, "access_log.jsonl: left out: %s: its last line is too long\n",
			path);
	else if (len == LOG_TAIL && begin != text)
		begin++;
	if (begin != NULL)
		add(b, "access_log.jsonl", begin, len - (size_t)(begin - text), path);
	if (fd >= 0)
		close(fd);
out:
	free(text);
}

/* Asks all questions, as long as a router answers. */
static void add_answers(struct bundle *b)
{
	for (size_t i = 0; i < QUESTIONS && b->status != KVW_EXIT_UNREACHABLE; i++) {
		const struct kvw_admin_question question = {.path = questions[i].target};
		struct kvw_admin_reply reply;
		enum kvw_exit asked = kvw_admin_client_ask(&b->client, &question, &reply);
		char what[32];

		if (asked == KVW_EXIT_OK) {
			(void)snprintf(what, sizeof(what), "status %ld", reply.status);
			add(b, questions[i].file, reply.body, reply.len, what);
			free(reply.body);
			continue;
		}
		b->status = asked;
		fprintf(b->summary, "%s%s: left out: %s\n", questions[i].file,
			asked == KVW_EXIT_UNREACHABLE ? " and what follows" : "", b->client.why);
	}
}

static void begin_summary(struct bundle *b, const char *time_text)
{
	struct utsname system;

	fprintf(b->summary,
		"kvway bundle %s\nversion of this program: kvway %s\nadmin address: %s\n",
		time_text, KVW_VERSION, b->client.address);
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
		b->status = kvw_admin_client_fail(&b->client, "out of memory");
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
		b->status = kvw_admin_client_fail(&b->client, "%s: %s", path, strerror(errno));
		return;
	}
	if (kvw_archive_take(&b->archive, fd, now) != KVW_OK) {
		b->status = kvw_admin_client_fail(&b->client, "out of memory");
		return;
	}
	fill(b, time_text);
	if (kvw_archive_end(&b->archive) != KVW_OK)
		b->status = kvw_admin_client_fail(&b->client, "%s: it cannot be written", path);
	else
		fprintf(b->client.err,
			"kvway bundle: wrote %s; look through it before you send it\n", path);
}

/* Finds the router to ask, and the secrets. */
static enum kvw_exit prepare(struct bundle *b)
{
	struct kvw_admin_client *client = &b->client;
	enum kvw_exit status = kvw_admin_client_open(client);

	if (status == KVW_EXIT_OK &&
		(kvw_mask_add(&b->mask, client->key) != KVW_OK ||
			(client->config != NULL &&
				kvw_mask_add_config(&b->mask, client->config) != KVW_OK)))
		status = kvw_admin_client_fail(client, "out of memory");
	return status;
}

int kvw_bundle_command(int argc, char **argv, FILE *out, FILE *err)
{
	struct bundle b = {.client = {.command = "bundle", .out = out, .err = err}};
	struct kvw_admin_line line = {.command = "bundle",
		.help = help,
		.flags = flags,
		.stray = "expected flags only",
		.check = check_output,
		.out = out,
		.err = err,
		.options = &b.options.router};

	b.client.options = &b.options.router;
	if (!kvw_admin_line_read(&line, argc, argv, &b.status))
		return (int)b.status;
	b.status = prepare(&b);
	if (b.status == KVW_EXIT_OK)
		write_archive(&b);
	kvw_mask_finish(&b.mask);
	kvw_admin_client_close(&b.client);
	return (int)b.status;
}
