/*
 * command.c - runs `kvway top`: asks GET /status, once, or every second, and draws it.
 *
 * In a terminal the screen is drawn over the one before: the cursor goes home, each line ends with
 * "clear to its end", the rest below is cleared, and the terminal cuts a line that is too long. So
 * it needs no library, works over ssh in any terminal since the VT100, and leaves the last screen
 * as it is when Ctrl-C ends it.
 */
#include "top/command.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "admin_client.h"
#include "top/page.h"

#define HOME   "\033[H\033[?7l" /* lines do not wrap */
#define DONE   "\033[?7h"
#define CLEAR  "\033[2J"
#define TO_END "\033[K"
#define BELOW  "\033[J"

struct options {
	struct kvw_admin_options router;
	bool once;
};

/* The data of one run of the command. */
struct run {
	struct kvw_admin_client client;
	struct options options;
	bool screen; /* drawn again and again, in a terminal */
	bool drawn;
};

static const struct kvw_admin_flag flags[] = {
	{.name = "once", .offset = offsetof(struct options, once), .bare = true},
	{.name = NULL},
};

static const char help[] =
	"kvway top shows what a running router and its workers do now, and what is wrong, with "
	"the\n"
	"cause and what to do. The page /ui of the admin address shows the same.\n"
	"\n"
	"Usage:\n"
	"  kvway top                  drawn again every second, until Ctrl-C\n"
	"  kvway top --once           once, for a script or a report\n"
	"  kvway top --once --json    the document itself: GET /status\n"
	"\n"
	"Examples:\n"
	"  ssh router kvway top\n"
	"  kvway top --once || echo 'requests fail'\n"
	"  kvway top --once --json | jq '.workers[] | select(.slow) | .url, .slow'\n"
	"\n"
	"      --once               once, without codes for the terminal\n"
	"      --json               the router's answer as it is, a line each time\n"
	"\n" KVW_ADMIN_ADDRESS_HELP KVW_ADMIN_FLAGS_HELP
	"  -h, --help               this text\n"
	"\n"
	"Columns: requests in prefill and in decode, seconds of prefill queued (predicted), share "
	"of the\n"
	"KV memory in use and of prompt tokens that were cached; of the last minute: requests and "
	"generated\n"
	"tokens a second, time per token; prefill rate as learned.\n"
	"\n"
	"Exit status: 0 done, 1 the router refuses, 2 wrong usage, 3 no router answers, 4 with "
	"--once: a\n"
	"problem of severity error.\n";

/* Prints the page over the one before: `text` with each line cleared to its end. */
static void put_screen(struct run *run, const char *text)
{
	FILE *out = run->client.out;

	fputs(run->drawn ? HOME : CLEAR HOME, out);
	for (; *text != '\0'; text++)
		if (*text == '\n')
			fputs(TO_END "\n", out);
		else
			fputc(*text, out);
	fputs(BELOW DONE, out);
	run->drawn = true;
}

static struct kvw_top_look look_of(struct run *run)
{
	struct kvw_top_look look = {.color = run->screen, .width = 100};
	int terminal = fileno(run->client.out);
	struct winsize size;

	if (isatty(terminal) && ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
		look.width = size.ws_col;
		look.height = run->screen ? size.ws_row : 0;
	}
	return look;
}

static enum kvw_exit show(struct run *run, const struct kvw_admin_reply *reply)
{
	struct kvw_admin_client *client = &run->client;
	json_t *root = json_loadb(reply->body, reply->len, 0, NULL);
	struct kvw_top_look look = look_of(run);
	enum kvw_exit status = KVW_EXIT_OK;
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);
	bool good = to != NULL && reply->status == 200 &&
		    kvw_top_print(root, client->address, &look, to);

	if (to != NULL)
		fclose(to);
	if (!good)
		status = kvw_admin_client_refused(client, "/status", reply);
	else if (run->options.router.json)
		kvw_admin_client_pass(client, reply);
	else if (run->screen)
		put_screen(run, text);
	else
		fputs(text, client->out);
	if (good && run->options.once && kvw_top_has_errors(root))
		status = KVW_EXIT_PROBLEMS;
	fflush(client->out);
	free(text);
	json_decref(root);
	return status;
}

static enum kvw_exit ask(struct run *run)
{
	const struct kvw_admin_question question = {.path = "/status", .answer_ms = 10000};
	struct kvw_admin_reply reply;
	enum kvw_exit status = kvw_admin_client_ask(&run->client, &question, &reply);

	if (status == KVW_EXIT_OK) {
		status = show(run, &reply);
		free(reply.body);
	}
	return status;
}

/* A router that does not answer for a moment, such as during a restart, is asked again. */
static enum kvw_exit ask_all(struct run *run)
{
	enum kvw_exit status = ask(run);

	while (!run->options.once && !ferror(run->client.out) &&
		(status == KVW_EXIT_OK || (status == KVW_EXIT_UNREACHABLE && run->drawn))) {
		sleep(1);
		status = ask(run);
	}
	return status;
}

int kvw_top_command(int argc, char **argv, FILE *out, FILE *err)
{
	struct run run = {.client = {.command = "top", .out = out, .err = err}};
	struct kvw_admin_line line = {.command = "top",
		.help = help,
		.flags = flags,
		.stray = "expected flags only",
		.out = out,
		.err = err,
		.options = &run.options.router};
	enum kvw_exit status;

	run.client.options = &run.options.router;
	if (!kvw_admin_line_read(&line, argc, argv, &status))
		return (int)status;
	run.screen = !run.options.once && !run.options.router.json && isatty(fileno(out));
	status = kvw_admin_client_open(&run.client);
	if (status == KVW_EXIT_OK)
		status = ask_all(&run);
	kvw_admin_client_close(&run.client);
	return (int)status;
}
