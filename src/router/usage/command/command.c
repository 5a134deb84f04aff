/*
 * command.c - asks the admin address for /usage, and prints the answer: as a table, or as it is.
 */
#include "usage/command/command.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "admin_client.h"
#include "base/page.h"
#include "base/standard_out.h"
#include "cli.h"

enum option_id { OPTION_SINCE = 256, OPTION_KEY_NAME, OPTION_TOP, OPTION_CSV };

static const struct option flags[] = {
	KVW_ADMIN_FLAGS,
	{"since", required_argument, NULL, OPTION_SINCE},
	{"key-name", required_argument, NULL, OPTION_KEY_NAME},
	{"top", required_argument, NULL, OPTION_TOP},
	{"csv", no_argument, NULL, OPTION_CSV},
	{NULL, 0, NULL, 0},
};

/* Borrowed from argv; NULL: not given. */
struct usage_options {
	struct kvw_admin_options router;
	const char *since, *key_name, *top;
	bool csv;
};

/* --- command line --- */

static void print_help(const struct kvw_admin_line *line)
{
	fputs("kvway usage shows the usage of a running router: requests, tokens and seconds by "
	      "key, tenant\n"
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
	      "      --since TIME         2026-11-30T08:00:00Z, 2026-11-30 (UTC), seconds since "
	      "1970, or how\n"
	      "                           long ago: 24h, 7d\n"
	      "      --key-name NAME      of the key with this name alone\n"
	      "      --top N              those with the most tokens; the others in one line\n"
	      "      --csv                comma-separated values\n"
	      "      --json               what the router answers, as it is\n"
	      "\n" KVW_ADMIN_ADDRESS_HELP KVW_ADMIN_FLAGS_HELP
	      "  -h, --help               this text\n"
	      "\n"
	      "PROMPT has cached tokens, too; CACHED is what answers say of them. A `~` marks "
	      "tokens of which\n"
	      "a part was estimated, since answers reported no usage.\n"
	      "\n"
	      "Exit status: 0 done, 1 the router refuses, or counts no usage, 2 wrong usage, 3 no "
	      "router answers.\n",
		line->out);
}

static bool take_option(struct kvw_admin_line *line, int option)
{
	struct usage_options *options = line->options;

	switch (option) {
	case OPTION_SINCE:
		kvw_admin_line_text(line, &options->since, "--since");
		break;
	case OPTION_KEY_NAME:
		kvw_admin_line_text(line, &options->key_name, "--key-name");
		break;
	case OPTION_TOP:
		kvw_admin_line_text(line, &options->top, "--top");
		break;
	case OPTION_CSV:
		options->csv = true;
		break;
	default:
		return false;
	}
	return true;
}

/* False: the program is to exit with *status. */
static bool parse(int argc, char **argv, FILE *out, FILE *err, struct usage_options *options,
	enum kvw_usage_status *status)
{
	struct kvw_admin_line line = {.command = "usage",
		.flags = flags,
		.letters = ":c:h",
		.out = out,
		.err = err,
		.router = &options->router,
		.options = options,
		.help = print_help,
		.take = take_option};

	*options = (struct usage_options){0};
	if (kvw_admin_line_read(&line, argc, argv) && optind < argc)
		kvw_admin_line_wrong(&line, "found `%s`, expected flags only", argv[optind]);
	if (!line.helped && !line.bad && options->csv && options->router.json)
		kvw_admin_line_wrong(&line, "found --csv and --json, expected one of them");
	if (!line.helped && !line.bad)
		kvw_admin_line_check(&line, &options->router);
	*status = line.bad ? KVW_USAGE_WRONG : KVW_USAGE_OK;
	return !line.helped && !line.bad;
}

/* --- the question --- */

static void put_parameter(struct kvw_page *target, const char *name, const char *value)
{
	char *coded = value == NULL ? NULL : kvw_admin_client_encode(value);

	if (value == NULL)
		return;
	kvw_page_string(target, name);
	if (coded == NULL)
		target->failed = true;
	else
		kvw_page_string(target, coded);
	free(coded);
}

static enum kvw_usage_status ask(const struct usage_options *options,
	const struct kvw_admin_where *where, const char *key, FILE *err,
	struct kvw_admin_reply *reply)
{
	struct kvw_admin_question question = {.method = "GET", .key = key};
	char why[CURL_ERROR_SIZE];
	struct kvw_page target = {0};
	enum kvw_err asked = KVW_ENOMEM;

	kvw_page_string(&target, options->csv ? "/usage?format=csv" : "/usage?format=json");
	put_parameter(&target, "&since=", options->since);
	put_parameter(&target, "&key=", options->key_name);
	put_parameter(&target, "&top=", options->top);
	kvw_page_put(&target, "", 1);
	question.target = target.data;
	if (!target.failed)
		asked = kvw_admin_client_ask(where, &question, why, reply);
	free(target.data);
	if (asked == KVW_OK)
		return KVW_USAGE_OK;
	if (asked == KVW_EIO)
		kvw_admin_client_missed(where, "usage", why, "", err);
	else
		fputs("kvway usage: out of memory\n", err);
	return asked == KVW_EIO ? KVW_USAGE_UNREACHABLE : KVW_USAGE_FAILED;
}

/* --- the answer --- */

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text == NULL ? "-" : text;
}

/* Writes a text to a width in characters, of UTF-8. */
static void put_text(FILE *out, const char *text, int width)
{
	size_t len = strlen(text);

	kvw_print_clean(out, text, len);
	for (size_t i = 0; i < len; i++)
		width -= ((unsigned char)text[i] & 0xc0) != 0x80;
	for (; width > 0; width--)
		fputc(' ', out);
}

static void put_tokens(FILE *out, const json_t *used, const char *name, const char *estimated)
{
	long long count = (long long)json_integer_value(json_object_get(used, name));
	bool exact = estimated == NULL || json_integer_value(json_object_get(used, estimated)) == 0;

	fprintf(out, " %*lld%s", 12, count, exact ? " " : "~");
}

static void put_row(FILE *out, const json_t *used, const char *key, const char *tenant,
	const char *model)
{
	static const char *const counts[] = {"requests", "refused", "failed"};

	put_text(out, key, 16);
	fputc(' ', out);
	put_text(out, tenant, 12);
	fputc(' ', out);
	put_text(out, model, 28);
	for (size_t i = 0; i < 3; i++)
		fprintf(out, " %8lld",
			(long long)json_integer_value(json_object_get(used, counts[i])));
	put_tokens(out, used, "prompt_tokens", "estimated_prompt_tokens");
	put_tokens(out, used, "cached_tokens", NULL);
	put_tokens(out, used, "completion_tokens", "estimated_completion_tokens");
	fprintf(out, " %11.1f\n", json_number_value(json_object_get(used, "seconds")));
}

static bool print_table(struct kvw_slice json, FILE *out)
{
	json_t *root = json_loadb(json.data, json.len, 0, NULL);
	const json_t *entry, *other = json_object_get(root, "other");
	char label[64];
	size_t i;

	if (!json_is_object(root))
		return false;
	fprintf(out, "From ");
	put_text(out, text_of(root, "since"), 0);
	fprintf(out, " to ");
	put_text(out, text_of(root, "until"), 0);
	fprintf(out, "\n%-16s %-12s %-28s %8s %8s %8s %12s  %12s  %12s  %11s\n", "KEY", "TENANT",
		"MODEL", "REQUESTS", "REFUSED", "FAILED", "PROMPT", "CACHED", "COMPLETION",
		"SECONDS");
	json_array_foreach(json_object_get(root, "entries"), i, entry)
		put_row(out, entry, text_of(entry, "key"), text_of(entry, "tenant"),
			text_of(entry, "model"));
	if (json_integer_value(json_object_get(other, "entries")) > 0) {
		(void)snprintf(label, sizeof(label), "other (%lld)",
			(long long)json_integer_value(json_object_get(other, "entries")));
		put_row(out, other, label, "", "");
	}
	json_decref(root);
	return true;
}

static enum kvw_usage_status show(const struct usage_options *options,
	const struct kvw_admin_reply *reply, FILE *out, FILE *err)
{
	struct kvw_slice text = {reply->body == NULL ? "" : reply->body, reply->len};
	const char *message;
	json_t *root;

	if (reply->status == 200) {
		if (!options->csv && !options->router.json && print_table(text, out))
			return KVW_USAGE_OK;
		fwrite(text.data, 1, text.len, out);
		return KVW_USAGE_OK;
	}
	root = json_loadb(text.data, text.len, 0, NULL);
	message = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
	fprintf(err, "kvway usage: the router answers %ld: ", reply->status);
	put_text(err, message == NULL ? "no reason is given" : message, 0);
	fputc('\n', err);
	json_decref(root);
	return KVW_USAGE_FAILED;
}

int kvw_usage_command(int argc, char **argv, FILE *out, FILE *err)
{
	struct usage_options options;
	struct kvw_admin_reply reply = {0};
	struct kvw_config *config = NULL;
	struct kvw_admin_where where;
	enum kvw_usage_status status;
	char *key = NULL;

	if (!parse(argc, argv, out, err, &options, &status))
		return (int)status;
	if (options.router.config != NULL &&
		kvw_cli_load_file(options.router.config, err, &config) != KVW_OK)
		status = KVW_USAGE_FAILED;
	else if (kvw_admin_client_find(&options.router, config, "usage", err, &where) != KVW_OK)
		status = KVW_USAGE_WRONG;
	if (status == KVW_USAGE_OK && options.router.key_file != NULL) {
		key = kvw_admin_client_key(options.router.key_file, "usage", err);
		if (key == NULL)
			status = KVW_USAGE_FAILED;
	}
	if (status == KVW_USAGE_OK)
		status = ask(&options, &where, key, err, &reply);
	if (status == KVW_USAGE_OK)
		status = show(&options, &reply, out, err);
	free(reply.body);
	free(key);
	kvw_config_destroy(config);
	return (int)status;
}
