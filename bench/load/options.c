/*
 * options.c - kvbench's command line; see options.h.
 *
 * One table holds every option with its type, range and text, so that --help and the parser cannot
 * disagree.
 */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum type { NUMBER, WHOLE, TEXT, FLAG_OFF, URL, API, ARRIVALS };
enum { FOR_CHAT = 1, FOR_TRACE = 2, FOR_BOTH = 3 };

static const struct option_row {
	const char *name;
	enum type type;
	int commands;
	size_t offset;
	double min, max;
	const char *value, *text;
} rows[] = {
#define ROW(name, type, commands, field, min, max, value, text)                                    \
	{                                                                                          \
		name, type, commands, offsetof(struct kvb_options, field), min, max, value, text   \
	}
	ROW("url", URL, FOR_BOTH, urls, 0, 0, "URL",
		"server, http://HOST:PORT; several: requests in turn"),
	ROW("model", TEXT, FOR_BOTH, model, 0, 0, "NAME",
		"default: the first that /v1/models names"),
	ROW("label", TEXT, FOR_BOTH, label, 0, 0, "TEXT", "name of this run in tables"),
	ROW("json", TEXT, FOR_BOTH, json, 0, 0, "FILE", "write the result as JSON; - is stdout"),
	ROW("speed", NUMBER, FOR_BOTH, speed, 1e-3, 1e6, "X",
		"the workers are simulated and X times faster than the clock"),
	ROW("concurrency", WHOLE, FOR_BOTH, concurrency, 0, 1e6, "N",
		"most requests under way; 0: no limit"),
	ROW("requests", WHOLE, FOR_BOTH, requests, 0, 1e9, "N", "stop after N; 0: all"),
	ROW("timeout", NUMBER, FOR_BOTH, timeout_s, 0.01, 1e6, "S",
		"give a request up after S real seconds of silence"),
	ROW("api", API, FOR_TRACE, api, 0, 0, "NAME", "completions or chat"),
	ROW("session-header", TEXT, FOR_BOTH, session_header, 0, 0, "NAME",
		"header with the conversation's id; '' sends none"),
	ROW("no-ignore-eos", FLAG_OFF, FOR_BOTH, ignore_eos, 0, 0, NULL,
		"let the model end its answer early"),
	ROW("text-bytes-per-token", NUMBER, FOR_BOTH, bytes_per_token, 0.5, 64, "X",
		"bytes of prompt text for a token"),
	ROW("slo-ttft", NUMBER, FOR_BOTH, slo_ttft_s, 0, 1e6, "S", "goodput: TTFT below S ..."),
	ROW("slo-prefill", NUMBER, FOR_BOTH, slo_ttft_tokens_per_s, 1, 1e12, "N",
		"... plus prompt tokens / N seconds"),
	ROW("slo-tpot", NUMBER, FOR_BOTH, slo_tpot_s, 0, 1e6, "S", "... and TPOT below S"),
	ROW("users", WHOLE, FOR_CHAT, users, 1, 1e6, "N", "conversations open at once"),
	ROW("sessions", WHOLE, FOR_CHAT, sessions, 0, 1e7, "N",
		"conversations in all; 0: one per user"),
	ROW("rounds", WHOLE, FOR_CHAT, rounds, 1, 1e5, "N", "questions in each conversation"),
	ROW("system-prompts", WHOLE, FOR_CHAT, system_prompts, 1, 1e6, "N",
		"distinct system prompts, shared by the conversations"),
	ROW("system-tokens", WHOLE, FOR_CHAT, system_tokens, 0, 1e6, "N", "length of each"),
	ROW("question-tokens", WHOLE, FOR_CHAT, question_tokens, 1, 1e6, "N", "of each question"),
	ROW("answer-tokens", WHOLE, FOR_CHAT, answer_tokens, 1, 1e6, "N", "of each answer"),
	ROW("qps", NUMBER, FOR_CHAT, qps, 0, 1e6, "X",
		"questions per second; 0: each user asks again when answered"),
	ROW("arrivals", ARRIVALS, FOR_CHAT, poisson, 0, 0, "KIND", "poisson or fixed gaps"),
	ROW("seed", WHOLE, FOR_CHAT, seed, 0, 9e15, "N", "of texts, arrivals and order"),
	ROW("trace", TEXT, FOR_TRACE, trace, 0, 0, "FILE", "requests in Mooncake's format"),
	ROW("rate-scale", NUMBER, FOR_TRACE, rate_scale, 1e-6, 1e6, "X",
		"arrivals X times as dense as recorded"),
	ROW("lead-ms", NUMBER, FOR_TRACE, lead_ms, 0, 1e4, "MS",
		"with --speed: send so early, for kvsim to hold until due"),
	ROW("pause-ms", NUMBER, FOR_TRACE, pause_ms, 0, 1e4, "MS",
		"at least so long between requests, so that they arrive in order"),
	ROW("block-tokens", WHOLE, FOR_TRACE, block_tokens, 1, 1e6, "N",
		"tokens that a hash id stands for"),
#undef ROW
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

static const struct kvb_options defaults = {
	.label = "run",
	.speed = 1,
	.timeout_s = 600,
	.seed = 42,
	.ignore_eos = true,
	.session_header = "x-session-id",
	.slo_ttft_s = 2,
	.slo_ttft_tokens_per_s = 8192,
	.slo_tpot_s = 0.1,
	.bytes_per_token = 4,
	.users = 32,
	.rounds = 6,
	.system_prompts = 4,
	.system_tokens = 1000,
	.question_tokens = 100,
	.answer_tokens = 100,
	.qps = 2,
	.poisson = true,
	.rate_scale = 1,
	.lead_ms = 25,
	.block_tokens = 512,
};

static void *field(struct kvb_options *options, const struct option_row *row)
{
	return (char *)options + row->offset;
}

static void print_default(FILE *out, const struct option_row *row)
{
	struct kvb_options options = defaults;
	const void *at = field(&options, row);

	if (row->type == NUMBER)
		fprintf(out, " (%g)", *(const double *)at);
	else if (row->type == WHOLE)
		fprintf(out, " (%lld)", (long long)*(const int64_t *)at);
	else if (row->type == TEXT && *(const char *const *)at != NULL)
		fprintf(out, " (%s)", *(const char *const *)at);
	else if (row->type == API)
		fputs(" (completions)", out);
	else if (row->type == ARRIVALS)
		fputs(" (poisson)", out);
}

static void print_rows(FILE *out, int commands)
{
	for (size_t i = 0; i < ROW_COUNT; i++) {
		char left[64];

		if (rows[i].commands != commands)
			continue;
		snprintf(left, sizeof(left), "--%s %s", rows[i].name,
			rows[i].value ? rows[i].value : "");
		fprintf(out, "  %-27s %s", left, rows[i].text);
		print_default(out, &rows[i]);
		fputc('\n', out);
	}
}

void kvb_options_help(FILE *out)
{
	fputs("kvbench - load for anything that speaks the OpenAI API\n\n"
	      "  kvbench chat  --url URL [options]               conversations with growing "
	      "histories\n"
	      "  kvbench trace --url URL --trace FILE [options]  replay of a recorded trace\n"
	      "  kvbench --compare A.json B.json ...             results side by side\n\n"
	      "Answers are streamed. Shown are the time to first token (TTFT), between tokens "
	      "(ITL),\n"
	      "per token after the first (TPOT) and to the end (E2E); goodput, the share of "
	      "requests\n"
	      "that met the service level; and the share of prompt tokens that workers had "
	      "cached,\n"
	      "which they tell in usage.prompt_tokens_details (vLLM: "
	      "--enable-prompt-tokens-details).\n"
	      "Load is open: a request is sent when it is due, whatever is still unanswered.\n\n"
	      "Both:\n",
		out);
	print_rows(out, FOR_BOTH);
	fputs("\nchat:\n", out);
	print_rows(out, FOR_CHAT);
	fputs("\ntrace:\n", out);
	print_rows(out, FOR_TRACE);
	fputs("\nWith --speed X all rates and times are those of the simulated workers: requests "
	      "are\n"
	      "sent X times as fast and measured times multiplied by X, and the result says so.\n"
	      "A trace's requests are then sent --lead-ms early and say by the header x-sim-due "
	      "when\n"
	      "they are due, so that their way to the worker is not multiplied too.\n"
	      "Where OPENAI_API_KEY is set, it is sent as a bearer token.\n\n"
	      "Try:\n"
	      "  kvbench chat --url http://127.0.0.1:8080 --users 16 --rounds 4 --label mine\n"
	      "  kvbench trace --url http://127.0.0.1:8080 --trace conversation_trace.jsonl \\\n"
	      "          --requests 2000 --json result.json\n"
	      "Public traces: github.com/kvcache-ai/Mooncake, folder FAST25-release/traces.\n",
		out);
}

static bool parse_number(const struct option_row *row, const char *text, double *out)
{
	char *end;
	double value;

	errno = 0;
	value = strtod(text, &end);
	if (errno || end == text || *end || !(value >= row->min && value <= row->max))
		return false;
	*out = value;
	return row->type != WHOLE || value == floor(value);
}

static enum kvw_err set_option(
	struct kvb_options *options, const struct option_row *row, char *text, FILE *error)
{
	void *at = field(options, row);
	double value;

	switch (row->type) {
	case NUMBER:
	case WHOLE:
		if (!parse_number(row, text, &value)) {
			fprintf(error, "kvbench: --%s is '%s', expected a %snumber from %g to %g\n",
				row->name, text, row->type == WHOLE ? "whole " : "", row->min,
				row->max);
			return KVW_EINVAL;
		}
		if (row->type == NUMBER)
			*(double *)at = value;
		else
			*(int64_t *)at = (int64_t)value;
		return KVW_OK;
	case TEXT:
		*(const char **)at = text;
		return KVW_OK;
	case FLAG_OFF:
		*(bool *)at = false;
		return KVW_OK;
	case URL:
		if (options->url_count == KVB_MAX_URLS) {
			fprintf(error, "kvbench: at most %d --url\n", KVB_MAX_URLS);
			return KVW_EINVAL;
		}
		options->urls[options->url_count++] = text;
		return KVW_OK;
	case API:
		*(enum kvb_api *)at =
			strcmp(text, "chat") == 0 ? KVB_API_CHAT : KVB_API_COMPLETIONS;
		if (strcmp(text, "chat") == 0 || strcmp(text, "completions") == 0)
			return KVW_OK;
		break;
	case ARRIVALS:
		*(bool *)at = strcmp(text, "poisson") == 0;
		if (strcmp(text, "poisson") == 0 || strcmp(text, "fixed") == 0)
			return KVW_OK;
		break;
	}
	fprintf(error, "kvbench: --%s is '%s', expected %s\n", row->name, text, row->text);
	return KVW_EINVAL;
}

/* One option, `--name value` or `--name=value`; *i moves over what was used. */
static enum kvw_err parse_option(
	int argc, char **argv, int *i, struct kvb_options *options, FILE *error)
{
	const char *name = argv[*i] + 2;
	size_t len = strcspn(name, "=");
	int command = options->command == KVB_CHAT ? FOR_CHAT : FOR_TRACE;

	for (size_t r = 0; r < ROW_COUNT; r++) {
		const struct option_row *row = &rows[r];

		if (strlen(row->name) != len || memcmp(row->name, name, len) != 0)
			continue;
		if (!(row->commands & command)) {
			fprintf(error, "kvbench: --%s is not an option of '%s'\n", row->name,
				argv[1]);
			return KVW_EINVAL;
		}
		if (row->type == FLAG_OFF)
			return set_option(options, row, NULL, error);
		if (name[len] == '=')
			return set_option(options, row, argv[*i] + 2 + len + 1, error);
		if (*i + 1 == argc) {
			fprintf(error, "kvbench: --%s needs a value: %s\n", row->name, row->text);
			return KVW_EINVAL;
		}
		*i += 1;
		return set_option(options, row, argv[*i], error);
	}
	fprintf(error, "kvbench: unknown option '%s'; kvbench --help lists them\n", argv[*i]);
	return KVW_EINVAL;
}

static enum kvw_err complete(struct kvb_options *options, FILE *error)
{
	if (options->url_count == 0) {
		fputs("kvbench: --url is needed: http://HOST:PORT of a router or a worker\n",
			error);
		return KVW_EINVAL;
	}
	if (options->command == KVB_TRACE && options->trace == NULL) {
		fputs("kvbench: --trace is needed; public ones are at\n"
		      "github.com/kvcache-ai/Mooncake, folder FAST25-release/traces\n",
			error);
		return KVW_EINVAL;
	}
	if (options->sessions == 0)
		options->sessions = options->users;
	if (options->users > options->sessions)
		options->users = options->sessions;
	return KVW_OK;
}

enum kvw_err kvb_options_parse(int argc, char **argv, struct kvb_options *out, FILE *error)
{
	struct kvb_options options = defaults;
	const char *command = argc > 1 ? argv[1] : "--help";
	enum kvw_err err = KVW_OK;

	if (strcmp(command, "--compare") == 0) {
		options.command = KVB_COMPARE;
		options.files = argv + 2;
		options.file_count = (size_t)(argc - 2);
		*out = options;
		if (argc > 3)
			return KVW_OK;
		fputs("kvbench: --compare needs two or more files written with --json\n", error);
		return KVW_EINVAL;
	}
	if (strcmp(command, "chat") == 0) {
		options.command = KVB_CHAT;
	} else if (strcmp(command, "trace") == 0) {
		options.command = KVB_TRACE;
		options.api = KVB_API_COMPLETIONS;
	} else if (strcmp(command, "--help") != 0 && strcmp(command, "-h") != 0) {
		fprintf(error, "kvbench: '%s', expected chat, trace, --compare or --help\n",
			command);
		return KVW_EINVAL;
	}
	for (int i = 2; i < argc && options.command != KVB_HELP && err == KVW_OK; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			options.command = KVB_HELP;
		else if (strncmp(argv[i], "--", 2) == 0)
			err = parse_option(argc, argv, &i, &options, error);
		else {
			fprintf(error, "kvbench: '%s' is not an option\n", argv[i]);
			err = KVW_EINVAL;
		}
	}
	if (err == KVW_OK && options.command != KVB_HELP)
		err = complete(&options, error);
	if (err == KVW_OK)
		*out = options;
	return err;
}
