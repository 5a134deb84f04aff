/*
 * options.c - kvbench's command line; see options.h.
 *
 * The commands chat and trace; engine_options.c has those of `engine`.
 */
#include "bench/load/options.h"

#include <string.h>

enum { FOR_CHAT = 1, FOR_TRACE = 2, FOR_BOTH = 3 };

static const char *const apis[] = {"chat", "completions", NULL};  /* enum kvb_api */
/* names of kvb_options.poisson 0 and 1 */
static const char *const arrivals[] = {"fixed", "poisson", NULL};

static const struct kvb_option rows[] = {
#define ROW(name, type, groups, field, min, max, value, text)                                      \
	{                                                                                          \
		name, type, groups, offsetof(struct kvb_options, field), min, max, value, text,    \
			NULL                                                                       \
	}
#define CHOICE(name, groups, field, value, text, choices)                                          \
	{                                                                                          \
		name, KVB_CHOICE, groups, offsetof(struct kvb_options, field), 0, 0, value, text,  \
			choices                                                                    \
	}
	ROW("url", KVB_TEXTS, FOR_BOTH, urls, 0, 0, "URL",
		"server, http://HOST:PORT; several: requests in turn"),
	ROW("model", KVB_TEXT, FOR_BOTH, model, 0, 0, "NAME",
		"default: the first that /v1/models names"),
	ROW("label", KVB_TEXT, FOR_BOTH, label, 0, 0, "TEXT", "name of this run in tables"),
	ROW("json", KVB_TEXT, FOR_BOTH, json, 0, 0, "FILE",
		"write the result as JSON; - is stdout"),
	ROW("speed", KVB_NUMBER, FOR_BOTH, speed, 1e-3, 1e6, "X",
		"the workers are simulated and X times faster than the clock"),
	ROW("concurrency", KVB_WHOLE, FOR_BOTH, concurrency, 0, 1e6, "N",
		"most requests under way; 0: no limit"),
	ROW("requests", KVB_WHOLE, FOR_BOTH, requests, 0, 1e9, "N", "stop after N; 0: all"),
	ROW("retries", KVB_WHOLE, FOR_BOTH, retries, 0, 1000, "N",
		"answered 429 or 503 with Retry-After: come back then, N times at most; it counts as waiting"),
	ROW("retry-spread", KVB_NUMBER, FOR_BOTH, retry_spread, 0, 100, "X",
		"come back up to X times Retry-After later than that, so that not all do at once"),
	ROW("timeout", KVB_NUMBER, FOR_BOTH, timeout_s, 0.01, 1e6, "S",
		"give a request up after S real seconds of silence"),
	CHOICE("api", FOR_TRACE, api, "NAME", "completions or chat", apis),
	ROW("session-header", KVB_TEXT, FOR_BOTH, session_header, 0, 0, "NAME",
		"header with the conversation's id; '' sends none"),
	ROW("no-ignore-eos", KVB_OFF, FOR_BOTH, ignore_eos, 0, 0, NULL,
		"let the model end its answer early"),
	ROW("text-bytes-per-token", KVB_NUMBER, FOR_BOTH, bytes_per_token, 0.5, 64, "X",
		"bytes of prompt text for a token"),
	ROW("slo-ttft", KVB_NUMBER, FOR_BOTH, slo_ttft_s, 0, 1e6, "S", "goodput: TTFT below S ..."),
	ROW("slo-prefill", KVB_NUMBER, FOR_BOTH, slo_ttft_tokens_per_s, 1, 1e12, "N",
		"... plus prompt tokens / N seconds"),
	ROW("slo-tpot", KVB_NUMBER, FOR_BOTH, slo_tpot_s, 0, 1e6, "S", "... and TPOT below S"),
	ROW("users", KVB_WHOLE, FOR_CHAT, users, 1, 1e6, "N", "conversations open at once"),
	ROW("sessions", KVB_WHOLE, FOR_CHAT, sessions, 0, 1e7, "N",
		"conversations in all; 0: one per user"),
	ROW("rounds", KVB_WHOLE, FOR_CHAT, rounds, 1, 1e5, "N", "questions in each conversation"),
	ROW("system-prompts", KVB_WHOLE, FOR_CHAT, system_prompts, 1, 1e6, "N",
		"distinct system prompts, shared by the conversations"),
	ROW("system-tokens", KVB_WHOLE, FOR_CHAT, system_tokens, 0, 1e6, "N", "length of each"),
	ROW("question-tokens", KVB_WHOLE, FOR_CHAT, question_tokens, 1, 1e6, "N",
		"of each question"),
	ROW("answer-tokens", KVB_WHOLE, FOR_CHAT, answer_tokens, 1, 1e6, "N", "of each answer"),
	ROW("qps", KVB_NUMBER, FOR_CHAT, qps, 0, 1e6, "X",
		"questions per second; 0: each user asks again when answered"),
	CHOICE("arrivals", FOR_CHAT, poisson, "KIND", "poisson or fixed gaps", arrivals),
	ROW("seed", KVB_WHOLE, FOR_CHAT, seed, 0, 9e15, "N", "of texts, arrivals and order"),
	ROW("trace", KVB_TEXT, FOR_TRACE, trace, 0, 0, "FILE", "requests in Mooncake's format"),
	ROW("rate-scale", KVB_NUMBER, FOR_TRACE, rate_scale, 1e-6, 1e6, "X",
		"arrivals X times as dense as recorded"),
	ROW("lead-ms", KVB_NUMBER, FOR_TRACE, lead_ms, 0, 1e4, "MS",
		"with --speed: send so early, for kvsim to hold until due"),
	ROW("pause-ms", KVB_NUMBER, FOR_TRACE, pause_ms, 0, 1e4, "MS",
		"at least so long between requests, so that they arrive in order"),
	ROW("leave-share", KVB_NUMBER, FOR_TRACE, leave_share, 0, 1, "X",
		"so many of the clients close their connection when ..."),
	ROW("leave-after", KVB_NUMBER, FOR_TRACE, leave_after_s, 0, 1e6, "S",
		"... no byte has come S seconds after they asked"),
	ROW("block-tokens", KVB_WHOLE, FOR_TRACE, block_tokens, 1, 1e6, "N",
		"tokens that a hash id stands for"),
#undef ROW
#undef CHOICE
};

static const struct kvb_options defaults = {
	.label = "run",
	.api = KVB_API_COMPLETIONS,
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
	.poisson = 1,
	.rate_scale = 1,
	.lead_ms = 25,
	.block_tokens = 512,
};

static const struct kvb_option_table table = {rows, sizeof(rows) / sizeof(rows[0]), &defaults};

void kvb_options_init(struct kvb_options *out)
{
	*out = defaults;
}

void kvb_options_help(FILE *out)
{
	fputs("kvbench - load for anything that speaks the OpenAI API\n\n"
	      "  kvbench chat  --url URL [options]               conversations with growing "
	      "histories\n"
	      "  kvbench trace --url URL --trace FILE [options]  replay of a recorded trace\n"
	      "  kvbench engine --engine-url URL --workload NAME   those of `lmcache bench "
	      "engine`;\n"
	      "                                                  kvbench engine --help\n"
	      "  kvbench --compare A.json B.json ...             results side by side\n\n"
	      "Answers are streamed. Shown are the time to first token (TTFT), between tokens "
	      "(ITL),\n"
	      "per token after the first (TPOT) and to the end (E2E); goodput, the share of "
	      "requests\n"
	      "that met the service level; and the share of prompt tokens that workers had "
	      "cached,\n"
	      "as reported in usage.prompt_tokens_details (vLLM: "
	      "--enable-prompt-tokens-details).\n"
	      "Load is open: a request is sent when it is due, whatever is still unanswered.\n\n"
	      "Both:\n",
		out);
	kvb_option_help(&table, FOR_BOTH, out);
	fputs("\nchat:\n", out);
	kvb_option_help(&table, FOR_CHAT, out);
	fputs("\ntrace:\n", out);
	kvb_option_help(&table, FOR_TRACE, out);
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

static enum kvw_err complete(struct kvb_options *options, FILE *error)
{
	if (options->urls.count == 0) {
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
		options.api = KVB_API_CHAT;
	} else if (strcmp(command, "trace") == 0) {
		options.command = KVB_TRACE;
	} else if (strcmp(command, "--help") != 0 && strcmp(command, "-h") != 0) {
		fprintf(error, "kvbench: '%s', expected chat, trace, engine, --compare or --help\n",
			command);
		return KVW_EINVAL;
	}
	for (int i = 2; i < argc && options.command != KVB_HELP && err == KVW_OK; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			options.command = KVB_HELP;
		else if (strncmp(argv[i], "--", 2) == 0)
			err = kvb_option_parse(&table,
				options.command == KVB_CHAT ? FOR_CHAT : FOR_TRACE, command, argc,
				argv, &i, &options, NULL, error);
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
