/*
 * command.c - runs `kvway top`: asks GET /status, once, or every second, and draws it.
 *
 * In a terminal the screen is drawn over the one before: the cursor goes home, each line ends with
 * "clear to its end", the rest below is cleared, and the terminal cuts a line that is too long. So
 * it needs no library, works over ssh in any terminal since the VT100, and leaves the last screen
 * as it is when Ctrl-C ends it.
 */
#include "top/command.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "admin_client.h"
#include "base/standard_out.h"
#include "cli.h"
#include "top/options.h"
#include "top/page.h"

#define PAUSE_NS INT64_C(1000000000)
#define HOME     "\033[H\033[?7l" /* lines do not wrap */
#define DONE     "\033[?7h"
#define CLEAR    "\033[2J"
#define TO_END   "\033[K"
#define BELOW    "\033[J"

/* The data of one run of the command. */
struct run {
	const struct kvw_top_options *options;
	struct kvw_config *config; /* the file of -c; owned; NULL: not given */
	struct kvw_admin_where where;
	char *key;   /* owned */
	bool screen; /* drawn again and again, in a terminal */
	bool drawn;
	FILE *out, *err;
};

/* Prints the page over the one before: `text` with each line cleared to its end. */
static void put_screen(struct run *run, const char *text)
{
	fputs(run->drawn ? HOME : CLEAR HOME, run->out);
	for (size_t len; *text != '\0'; text += len + 1) {
		len = strcspn(text, "\n");
		fwrite(text, 1, len, run->out);
		fputs(TO_END "\n", run->out);
		if (text[len] == '\0')
			break;
	}
	fputs(BELOW DONE, run->out);
	run->drawn = true;
}

static struct kvw_top_look look_of(const struct run *run)
{
	struct kvw_top_look look = {.color = run->screen};
	struct winsize size;

	if (isatty(fileno(run->out)) && ioctl(fileno(run->out), TIOCGWINSZ, &size) == 0)
		look.width = size.ws_col;
	if (run->screen && look.width > 0)
		look.height = size.ws_row;
	if (look.width == 0)
		look.width = 100;
	return look;
}

static enum kvw_top_status show(struct run *run, const struct kvw_admin_reply *reply)
{
	json_t *root = json_loadb(reply->body == NULL ? "" : reply->body, reply->len, 0, NULL);
	struct kvw_top_look look = look_of(run);
	enum kvw_top_status status = KVW_TOP_OK;
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	if (to == NULL || reply->status != 200 ||
		!kvw_top_print(root, run->where.address, &look, to)) {
		const char *message = json_string_value(
			json_object_get(json_object_get(root, "error"), "message"));

		if (message == NULL)
			message = "what answers is no kvway with /status";
		fputs("kvway top: ", run->err);
		kvw_print_clean(run->err, message, strlen(message));
		fprintf(run->err, " (status %ld)\n", reply->status);
		status = KVW_TOP_FAILED;
	} else if (run->options->router.json) {
		fwrite(reply->body, 1, reply->len, run->out);
		fputc('\n', run->out);
	} else {
		fflush(to);
		if (run->screen)
			put_screen(run, text);
		else
			fputs(text, run->out);
	}
	if (status == KVW_TOP_OK && run->options->once && kvw_top_has_errors(root))
		status = KVW_TOP_ERRORS;
	fflush(run->out);
	if (to != NULL)
		fclose(to);
	free(text);
	json_decref(root);
	return status;
}

static enum kvw_top_status ask(struct run *run)
{
	const struct kvw_admin_question question = {
		.method = "GET", .target = "/status", .key = run->key, .answer_ms = 10000};
	struct kvw_admin_reply reply = {0};
	char why[CURL_ERROR_SIZE];
	enum kvw_err err = kvw_admin_client_ask(&run->where, &question, why, &reply);
	enum kvw_top_status status = KVW_TOP_FAILED;

	if (err == KVW_EIO) {
		kvw_admin_client_missed(&run->where, "top", why, "", run->err);
		status = KVW_TOP_UNREACHABLE;
	} else if (err != KVW_OK) {
		fputs("kvway top: out of memory\n", run->err);
	} else {
		status = show(run, &reply);
	}
	free(reply.body);
	return status;
}

/* A router that does not answer for a moment, such as during a restart, is asked again. */
static enum kvw_top_status ask_all(struct run *run)
{
	const struct timespec pause = {.tv_sec = PAUSE_NS / 1000000000};
	enum kvw_top_status status = ask(run);

	while (!run->options->once && !ferror(run->out) &&
		(status == KVW_TOP_OK || (status == KVW_TOP_UNREACHABLE && run->drawn))) {
		nanosleep(&pause, NULL);
		status = ask(run);
	}
	return status;
}

int kvw_top_command(int argc, char **argv, FILE *out, FILE *err)
{
	struct kvw_top_options options;
	struct run run = {.options = &options, .out = out, .err = err};
	enum kvw_top_status status;

	if (!kvw_top_options_parse(argc, argv, out, err, &options, &status))
		return (int)status;
	if (options.router.config != NULL &&
		kvw_cli_load_file(options.router.config, err, &run.config) != KVW_OK)
		return KVW_TOP_FAILED;
	run.screen = !options.once && !options.router.json && isatty(fileno(out));
	if (kvw_admin_client_find(&options.router, run.config, "top", err, &run.where) != KVW_OK)
		status = KVW_TOP_USAGE;
	if (status == KVW_TOP_OK && options.router.key_file != NULL) {
		run.key = kvw_admin_client_key(options.router.key_file, "top", err);
		if (run.key == NULL)
			status = KVW_TOP_FAILED;
	}
	if (status == KVW_TOP_OK)
		status = ask_all(&run);
	free(run.key);
	kvw_config_destroy(run.config);
	return (int)status;
}
