/*
 * command.c - asks the admin address for /usage, and prints the answer: as a table, or as it is.
 */
#include "usage/command/command.h"

#include <stdlib.h>

#include "admin_client.h"
#include "admin_json.h"
#include "base/standard_out.h"

/* Borrowed from argv; NULL: not given. */
struct options {
	struct kvw_admin_options router;
	const char *since, *key_name, *top;
	bool csv;
};

/* --- command line --- */

static const char help[] =
	"kvway usage shows the usage of a running router: requests, tokens and seconds by key, "
	"tenant\n"
	"and model.\n"
	"\n"
	"Usage:\n"
	"  kvway usage                        all hours that are kept (usage.hours)\n"
	"  kvway usage --since 24h            since the beginning of that hour\n"
	"\n"
	"Examples:\n"
	"  the busiest keys of a day          kvway usage --since 2026-11-30 --top 10\n"
	"  one key alone                      kvway usage --key-name alice\n"
	"  for a spreadsheet                  kvway usage --csv > usage.csv\n"
	"\n"
	"      --since TIME         2026-11-30T08:00:00Z, 2026-11-30 (UTC), seconds since 1970, or "
	"how\n"
	"                           long ago: 24h, 7d\n"
	"      --key-name NAME      of the key with this name alone\n"
	"      --top N              those with the most tokens; the others in one line\n"
	"      --csv                comma-separated values\n"
	"      --json               what the router answers, as it is\n"
	"\n" KVW_ADMIN_ADDRESS_HELP KVW_ADMIN_FLAGS_HELP
	"  -h, --help               this text\n"
	"\n"
	"PROMPT has cached tokens, too; CACHED is what answers say of them. A `~` marks tokens of "
	"which\n"
	"a part was estimated, since answers reported no usage.\n"
	"\n"
	"Exit status: 0 done, 1 the router refuses, or counts no usage, 2 wrong usage, 3 no "
	"router answers.\n";

#define AT(member) offsetof(struct options, member)

static const struct kvw_admin_flag flags[] = {
	{.name = "since", .offset = AT(since)},
	{.name = "key-name", .offset = AT(key_name)},
	{.name = "top", .offset = AT(top)},
	{.name = "csv", .offset = AT(csv), .bare = true},
	{.name = NULL},
};

static void check_form(struct kvw_admin_line *line)
{
	const struct options *options = (const struct options *)line->options;

	if (options->csv && options->router.json)
		kvw_admin_line_wrong(line, "found --csv and --json, expected one of them");
}

/* --- the answer --- */

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = kvw_json_text(object, name);

	return *text == '\0' ? "-" : text;
}

static void put_tokens(FILE *out, const json_t *used, const char *name, const char *estimated)
{
	bool exact = estimated == NULL || kvw_json_number(used, estimated) == 0;

	fprintf(out, " %12.0f%s", kvw_json_number(used, name), exact ? " " : "~");
}

static void put_row(FILE *out, const json_t *used, const char *key, const char *tenant,
	const char *model)
{
	static const char *const counts[] = {"requests", "refused", "failed"};

	kvw_print_column(out, key, 16);
	fputc(' ', out);
	kvw_print_column(out, tenant, 12);
	fputc(' ', out);
	kvw_print_column(out, model, 28);
	for (size_t i = 0; i < 3; i++)
		fprintf(out, " %8.0f", kvw_json_number(used, counts[i]));
	put_tokens(out, used, "prompt_tokens", "estimated_prompt_tokens");
	put_tokens(out, used, "cached_tokens", NULL);
	put_tokens(out, used, "completion_tokens", "estimated_completion_tokens");
	fprintf(out, " %11.1f\n", kvw_json_number(used, "seconds"));
}

static void print_table(const json_t *root, FILE *out)
{
	const json_t *entry, *other = json_object_get(root, "other");
	double others = kvw_json_number(other, "entries");
	char label[64];
	size_t i;

	kvw_printf(out, "From %s to %s\n", text_of(root, "since"), text_of(root, "until"));
	fprintf(out, "%-16s %-12s %-28s %8s %8s %8s %12s  %12s  %12s  %11s\n", "KEY", "TENANT",
		"MODEL", "REQUESTS", "REFUSED", "FAILED", "PROMPT", "CACHED", "COMPLETION",
		"SECONDS");
	json_array_foreach(json_object_get(root, "entries"), i, entry)
		put_row(out, entry, text_of(entry, "key"), text_of(entry, "tenant"),
			text_of(entry, "model"));
	if (others > 0) {
		(void)snprintf(label, sizeof(label), "other (%.0f)", others);
		put_row(out, other, label, "", "");
	}
}

static enum kvw_exit show(struct kvw_admin_client *client, const struct options *options,
	const struct kvw_admin_reply *reply)
{
	bool as_it_is = options->csv || options->router.json;
	json_t *root = as_it_is ? NULL : json_loadb(reply->body, reply->len, 0, NULL);
	enum kvw_exit status = KVW_EXIT_OK;

	if (reply->status != 200 || (!as_it_is && !json_is_object(root)))
		status = kvw_admin_client_refused(client, "/usage", reply);
	else if (as_it_is)
		kvw_admin_client_pass(client, reply);
	else
		print_table(root, client->out);
	json_decref(root);
	return status;
}

static enum kvw_exit ask(struct kvw_admin_client *client, const struct options *options)
{
	const struct kvw_admin_question question = {.path = "/usage",
		.parameters = {{"format", options->csv ? "csv" : "json"}, {"since", options->since},
			{"key", options->key_name}, {"top", options->top}}};
	struct kvw_admin_reply reply;
	enum kvw_exit status = kvw_admin_client_ask(client, &question, &reply);

	if (status == KVW_EXIT_OK) {
		status = show(client, options, &reply);
		free(reply.body);
	}
	return status;
}

int kvw_usage_command(int argc, char **argv, FILE *out, FILE *err)
{
	struct options options = {.csv = false};
	struct kvw_admin_client client = {
		.command = "usage", .options = &options.router, .out = out, .err = err};
	struct kvw_admin_line line = {.command = "usage",
		.help = help,
		.flags = flags,
		.stray = "expected flags only",
		.check = check_form,
		.out = out,
		.err = err,
		.options = &options.router};
	enum kvw_exit status;

	if (!kvw_admin_line_read(&line, argc, argv, &status))
		return (int)status;
	status = kvw_admin_client_open(&client);
	if (status == KVW_EXIT_OK)
		status = ask(&client, &options);
	kvw_admin_client_close(&client);
	return (int)status;
}
