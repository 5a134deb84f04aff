/* engine_options.c - the table of options of `kvbench engine`; see engine_options.h. */
#include "bench/load/engine_options.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "bench/load/workload.h"

enum {
	GENERAL = 1,
	OWN = 2,
	LDQA = 4,
	MRC = 8,
	LDP = 16,
	PSF = 32,
	RP = 64,
	RAG = 128,
	ALL = 255,
};

static const char *const shuffles[] = {"random", "tile", NULL};  /* enum kvb_shuffle */
static const char *const layouts[] = {"one", "messages", NULL}; /* enum kvb_rag_layout */

static const struct kvb_option rows[] = {
#define ROW(name, type, groups, field, min, max, value, text)                                      \
	{                                                                                          \
		name, type, groups, offsetof(struct kvb_engine_options, field), min, max, value,   \
			text, NULL                                                                 \
	}
	ROW("engine-url", KVB_TEXT, GENERAL, engine_url, 0, 0, "URL",
		"the engine, http://HOST:PORT; OPENAI_API_KEY is sent if set"),
	ROW("workload", KVB_TEXT, GENERAL, workload, 0, 0, "NAME", "one of the six below"),
	ROW("model", KVB_TEXT, GENERAL, model, 0, 0, "NAME",
		"default: the first that /v1/models names"),
	ROW("kv-cache-volume", KVB_NUMBER, GENERAL, kv_cache_volume_gb, 1e-9, 1e9, "GB",
		"KV cache that the workload should fill"),
	ROW("tokens-per-gb-kvcache", KVB_WHOLE, GENERAL, tokens_per_gb, 1, 1e12, "N",
		"tokens in a GB of it; or --lmcache-url"),
	ROW("lmcache-url", KVB_TEXT, GENERAL, lmcache_url, 0, 0, "URL",
		"LMCache server that knows them"),
	ROW("seed", KVB_WHOLE, GENERAL, seed, -9e15, 9e15, "N", "of order and texts"),
	ROW("output-dir", KVB_TEXT, GENERAL, output_dir, 0, 0, "DIR",
		"for bench_results.csv and bench_summary.json"),
	ROW("no-csv", KVB_OFF, GENERAL, csv, 0, 0, NULL, "no bench_results.csv"),
	ROW("json", KVB_ON, GENERAL, json, 0, 0, NULL, "write bench_summary.json"),
	ROW("quiet", KVB_ON, GENERAL, quiet, 0, 0, NULL,
		"(-q) no progress and no table: files and exit status"),
	ROW("ignore-eos", KVB_ON, GENERAL, ignore_eos, 0, 0, NULL,
		"answers have their full length (vLLM)"),
	ROW("no-warmup", KVB_OFF, GENERAL, warm_up, 0, 0, NULL, "measure from a cold start"),
	ROW("no-interactive", KVB_ON, GENERAL, no_interactive, 0, 0, NULL,
		"accepted: nothing is ever asked"),
	ROW("config", KVB_TEXT, GENERAL, config, 0, 0, "FILE", "options from a JSON file"),
	ROW("export-config", KVB_TEXT, GENERAL, export_config, 0, 0, "FILE",
		"write such a file and end"),

	ROW("ldqa-document-length", KVB_WHOLE, LDQA, ldqa.document_length, 1, 1e7, "N",
		"tokens of a document"),
	ROW("ldqa-query-per-document", KVB_WHOLE, LDQA, ldqa.queries_per_document, 1, 1e6, "N",
		"questions on each"),
	{"ldqa-shuffle-policy", KVB_CHOICE, LDQA, offsetof(struct kvb_engine_options, ldqa.shuffle),
		0, 0, "ORDER", "random, or tile: all documents, question by question", shuffles},
	ROW("ldqa-num-inflight-requests", KVB_WHOLE, LDQA, ldqa.inflight, 1, 1e5, "N",
		"most requests under way"),
	ROW("ldqa-max-output-length", KVB_WHOLE, LDQA, ldqa.max_output, 1, 1e7, "N",
		"tokens of an answer, at most"),

	ROW("mrc-shared-prompt-length", KVB_WHOLE, MRC, mrc.shared_prompt, 1, 1e7, "N",
		"tokens of the system prompt"),
	ROW("mrc-chat-history-length", KVB_WHOLE, MRC, mrc.history, 1, 1e7, "N",
		"tokens of the history that each session begins with"),
	ROW("mrc-user-input-length", KVB_WHOLE, MRC, mrc.user_input, 1, 1e7, "N",
		"tokens of a question"),
	ROW("mrc-output-length", KVB_WHOLE, MRC, mrc.output, 1, 1e7, "N",
		"tokens of an answer, at most"),
	ROW("mrc-qps", KVB_NUMBER, MRC, mrc.qps, 1e-6, 1e5, "X", "questions a second"),
	ROW("mrc-duration", KVB_NUMBER, MRC, mrc.duration_s, 1e-3, 1e7, "S",
		"for so long; answers under way are waited for"),

	ROW("ldp-num-contexts", KVB_WHOLE, LDP, ldp.contexts, 1, 1000, "N", "documents"),
	ROW("ldp-context-length", KVB_WHOLE, LDP, ldp.context_length, 1, 1e7, "N",
		"tokens of each"),
	ROW("ldp-system-prompt-length", KVB_WHOLE, LDP, ldp.system_prompt, 0, 1e7, "N",
		"tokens of the system prompt; 0: none"),
	ROW("ldp-num-permutations", KVB_WHOLE, LDP, ldp.permutations, 1, 1e5, "N",
		"orders of the documents, at most all"),
	ROW("ldp-num-inflight-requests", KVB_WHOLE, LDP, ldp.inflight, 1, 1e5, "N",
		"most requests under way"),
	ROW("ldp-max-output-length", KVB_WHOLE, LDP, ldp.max_output, 1, 1e7, "N",
		"tokens of an answer, at most"),

	ROW("psf-context-length", KVB_WHOLE, PSF, psf.context_length, 1, 1e7, "N",
		"tokens of a request"),
	ROW("psf-prefix-ratio", KVB_NUMBER, PSF, psf.prefix_ratio, 1e-6, 0.999999, "X",
		"the prefix's share of them"),
	ROW("psf-thrash", KVB_NUMBER, PSF, psf.thrash_gb, 1e-9, 1e9, "GB",
		"size of the tier to overflow"),

	ROW("rp-request-length", KVB_WHOLE, RP, rp.length, 1, 1e7, "N", "tokens of a request"),
	ROW("rp-num-requests", KVB_WHOLE, RP, rp.requests, 1, 1e5, "N", "requests, all at once"),

	ROW("rag-num-documents", KVB_WHOLE, RAG, rag.documents, 1, 1e5, "N", "documents"),
	ROW("rag-document-length", KVB_WHOLE, RAG, rag.document_length, 1, 1e7, "N",
		"tokens of each"),
	ROW("rag-num-topics", KVB_WHOLE, RAG, rag.topics, 1, 1e5, "N",
		"a request's documents are of one of so many topics"),
	ROW("rag-documents-per-request", KVB_WHOLE, RAG, rag.each, 1, 1e4, "N",
		"of them in a request, in any order"),
	ROW("rag-num-requests", KVB_WHOLE, RAG, rag.requests, 1, 1e6, "N", "requests"),
	ROW("rag-num-inflight-requests", KVB_WHOLE, RAG, rag.inflight, 1, 1e5, "N",
		"most requests under way"),
	ROW("rag-question-length", KVB_WHOLE, RAG, rag.question, 1, 1e7, "N",
		"tokens of a question"),
	ROW("rag-system-prompt-length", KVB_WHOLE, RAG, rag.system_prompt, 0, 1e7, "N",
		"tokens of the system prompt; 0: none"),
	ROW("rag-max-output-length", KVB_WHOLE, RAG, rag.max_output, 1, 1e7, "N",
		"tokens of an answer, at most"),
	ROW("rag-separator", KVB_TEXT, RAG, rag.separator, 0, 0, "TEXT",
		"between documents in one message"),
	{"rag-layout", KVB_CHOICE, RAG, offsetof(struct kvb_engine_options, rag.layout), 0, 0,
		"HOW", "one message for all documents, or messages: one each", layouts},

	ROW("summary", KVB_TEXT, OWN, summary, 0, 0, "FILE",
		"the JSON summary to this file; - is stdout"),
	ROW("tokenizer", KVB_TEXT, OWN, tokenizer, 0, 0, "PATH",
		"tokenizer.json or its folder, for exact lengths"),
	ROW("session-header", KVB_TEXT, OWN, session_header, 0, 0, "NAME",
		"header with the session's id, for routers"),
	ROW("timeout", KVB_NUMBER, OWN, timeout_s, 0.01, 1e6, "S",
		"a request with so long a silence has failed"),
	ROW("speed", KVB_NUMBER, OWN, speed, 1e-3, 1e6, "X",
		"the engine is simulated and X times faster than the clock"),
#undef ROW
};

static const struct kvb_engine_options defaults = {
	.kv_cache_volume_gb = 100,
	.seed = 42,
	.output_dir = ".",
	.csv = true,
	.warm_up = true,
	.ldqa = {.document_length = 10000,
		.queries_per_document = 2,
		.inflight = 3,
		.max_output = 128},
	.mrc = {.shared_prompt = 2000,
		.history = 10000,
		.user_input = 50,
		.output = 200,
		.qps = 1,
		.duration_s = 60},
	.ldp = {.contexts = 5,
		.context_length = 5000,
		.system_prompt = 1000,
		.permutations = 10,
		.inflight = 1,
		.max_output = 128},
	.psf = {.context_length = 8000, .prefix_ratio = 0.8, .thrash_gb = 20},
	.rp = {.length = 10000, .requests = 50},
	.rag = {.documents = 46,
		.document_length = 10000,
		.topics = 1,
		.each = 4,
		.requests = 100,
		.inflight = 1,
		.question = 50,
		.system_prompt = 200,
		.max_output = 128,
		.separator = " # # "},
	.timeout_s = 600,
	.speed = 1,
};

static const struct kvb_option_table table = {rows, sizeof(rows) / sizeof(rows[0]), &defaults};

/* The workloads, each with its own group of options. */
static const struct {
	const char *workload, *about;
	int group;
} groups[] = {
	{"long-doc-qa", "questions on long documents; documents = volume / length", LDQA},
	{"multi-round-chat",
		"sessions that go on, at a fixed rate; sessions = volume / (prompt + "
		"history)",
		MRC},
	{"long-doc-permutator", "the same documents in ever other orders", LDP},
	{"prefix-suffix-tuner",
		"every prefix twice, one after the other, a little more of them than "
		"a tier holds",
		PSF},
	{"random-prefill", "many long prompts at once, one token each", RP},
	{"rag-qa", "questions on some of many documents, in any order (kvbench's own)", RAG},
};

void kvb_engine_options_help(FILE *out)
{
	fputs("kvbench engine - the workloads of `lmcache bench engine`\n\n"
	      "  kvbench engine --engine-url URL --workload NAME --tokens-per-gb-kvcache N "
	      "[options]\n"
	      "  kvbench NAME --engine-url URL ...       the same\n\n"
	      "Sends a warm-up that fills the cache, then the workload, streamed, at temperature "
	      "0;\n"
	      "prints times to first token (TTFT), total times and decoding speeds. Options,\n"
	      "prompts, order and files are those of `lmcache bench engine` 0.5.6, so that results "
	      "can\n"
	      "be laid side by side; README.md in bench/load says what is done otherwise, and "
	      "why.\n\n",
		out);
	kvb_option_help(&table, GENERAL, out);
	fputs("  (--tokens-per-gb-kvcache is needed where the volume counts: not for "
	      "long-doc-permutator,\n"
	      "  random-prefill and rag-qa)\n",
		out);
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
		fprintf(out, "\n%s: %s\n", groups[i].workload, groups[i].about);
		kvb_option_help(&table, groups[i].group, out);
	}
	fputs("\nkvbench's own:\n", out);
	kvb_option_help(&table, OWN, out);
	fputs("\nExit status: 0 all answered, 1 some failed or the run could not be made, 2 wrong "
	      "usage.\n"
	      "Try, without a GPU:\n"
	      "  kvsim --port 8001 &\n"
	      "  kvbench multi-round-chat --engine-url http://127.0.0.1:8001 \\\n"
	      "          --kv-cache-volume 10 --tokens-per-gb-kvcache 8000 --mrc-qps 2 "
	      "--mrc-duration 20\n",
		out);
}

/* Sets the option of one member of a configuration file, whose name has '_' for '-'. */
static enum kvw_err set_member(struct kvb_engine_options *options, const char *key,
	const json_t *value, const char *file, FILE *error)
{
	char name[64], text[64]; /* the option's name, with dashes */
	const struct kvb_option *row;

	snprintf(name, sizeof(name), "%s", key);
	for (char *at = name; *at != '\0'; at++)
		*at = *at == '_' ? '-' : *at;
	row = kvb_option_find(&table, name, strlen(name));
	if (strcmp(key, "has_lmcache") == 0)
		return KVW_OK; /* `lmcache bench engine` asks and writes this; kvbench needs no answer */
	if (row == NULL || strcmp(name, "config") == 0 || strcmp(name, "export-config") == 0) {
		fprintf(error, "kvbench: %s: '%s' is not an option\n", file, key);
		return KVW_EINVAL;
	}
	if (json_is_null(value))
		return KVW_OK;
	if (row->type == KVB_ON || row->type == KVB_OFF) {
		if (json_is_boolean(value))
			return json_is_true(value) ? kvb_option_set(row, options, NULL, error)
						   : KVW_OK;
	} else if (json_is_string(value)) {
		return kvb_option_set(row, options, json_string_value(value), error);
	} else if (json_is_number(value)) {
		snprintf(text, sizeof(text), "%.17g", json_number_value(value));
		if (row->type == KVB_NUMBER || row->type == KVB_WHOLE)
			return kvb_option_set(row, options, text, error);
	}
	fprintf(error, "kvbench: %s: '%s' has a value of the wrong type\n", file, key);
	return KVW_EINVAL;
}

/* Sets the options of a parsed file and frees root; root is NULL where the text was not JSON, for
 * the reason `why`. */
static enum kvw_err read_root(struct kvb_engine_options *options, json_t *root_take,
	const json_error_t *why, const char *name, FILE *error)
{
	enum kvw_err err = KVW_OK;
	const char *key;
	json_t *value;

	options->kept = root_take;
	if (root_take == NULL) {
		fprintf(error, "kvbench: %s: %s\n", name, why->text);
		return KVW_EIO;
	}
	if (!json_is_object(root_take)) {
		fprintf(error, "kvbench: %s: not a JSON object\n", name);
		return KVW_EINVAL;
	}
	json_object_foreach(root_take, key, value) if (err == KVW_OK) err =
		set_member(options, key, value, name, error);
	return err;
}

enum kvw_err kvb_engine_options_read(struct kvb_engine_options *options, const char *text,
	size_t len, const char *name, FILE *error)
{
	json_error_t why;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);

	return read_root(options, root, &why, name, error);
}

void kvb_engine_options_init(struct kvb_engine_options *out)
{
	*out = defaults;
}

/* Reads the command line into *options; options that it does not name keep their values. */
static enum kvw_err read_arguments(
	int argc, char **argv, int from, struct kvb_engine_options *options, FILE *error)
{
	enum kvw_err err = KVW_OK;

	for (int i = from; i < argc && err == KVW_OK; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			options->help = true;
		else if (strcmp(argv[i], "-q") == 0)
			options->quiet = true;
		else
			err = kvb_option_parse(
				&table, ALL, "engine", argc, argv, &i, options, NULL, error);
	}
	return err;
}

static enum kvw_err check(const struct kvb_engine_options *options, FILE *error)
{
	const struct kvb_workload_ops *ops;

	if (options->workload == NULL) {
		fputs("kvbench: --workload is needed: ", error);
		goto names;
	}
	ops = kvb_workload_find(options->workload);
	if (ops == NULL) {
		fprintf(error, "kvbench: --workload is '%s', expected ", options->workload);
		goto names;
	}
	if (options->engine_url == NULL && options->export_config == NULL) {
		fputs("kvbench: --engine-url is needed: http://HOST:PORT of an engine or a "
		      "router\n",
			error);
		return KVW_EINVAL;
	}
	if (ops->needs_volume && options->tokens_per_gb == 0 && options->lmcache_url == NULL) {
		fprintf(error,
			"kvbench: %s needs --tokens-per-gb-kvcache, or --lmcache-url to ask "
			"there\n",
			options->workload);
		return KVW_EINVAL;
	}
	return KVW_OK;
names:
	kvb_workload_names(error);
	fputc('\n', error);
	return KVW_EINVAL;
}

enum kvw_err kvb_engine_options_parse(int argc, char **argv, int from, const char *workload,
	struct kvb_engine_options *out, FILE *error)
{
	const char *config;
	json_error_t why;
	enum kvw_err err;
	json_t *root;

	*out = defaults;
	err = read_arguments(argc, argv, from, out, error);
	if (err != KVW_OK || out->help)
		return err;
	config = out->config;
	/* the file's options first, then the command line's again, which win */
	if (config != NULL) {
		*out = defaults;
		out->config = config;
		root = json_load_file(config, JSON_REJECT_DUPLICATES, &why);
		err = read_root(out, root, &why, config, error);
		if (err == KVW_OK)
			err = read_arguments(argc, argv, from, out, error);
	}
	if (workload != NULL)
		out->workload = workload;
	return err == KVW_OK ? check(out, error) : err;
}

void kvb_engine_options_finish(struct kvb_engine_options *options)
{
	json_decref(options->kept);
	options->kept = NULL;
}

static json_t *value_json(const struct kvb_option *row, const struct kvb_engine_options *options)
{
	const void *at = (const char *)options + row->offset;

	switch (row->type) {
	case KVB_NUMBER:
		return json_real(*(const double *)at);
	case KVB_WHOLE:
		return json_integer(*(const int64_t *)at);
	case KVB_CHOICE:
		return json_string(row->choices[*(const int *)at]);
	case KVB_ON:
		return json_boolean(*(const bool *)at);
	case KVB_OFF:
		return json_boolean(!*(const bool *)at);
	default:
		return *(const char *const *)at ? json_string(*(const char *const *)at) : NULL;
	}
}

/* Returns whether an exported file has this option: not addresses, and not where results go. */
static bool exported(const struct kvb_option *row, int group)
{
	static const char *const names[] = {"model", "workload", "kv-cache-volume",
		"tokens-per-gb-kvcache", "ignore-eos", "no-warmup"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(row->name, names[i]) == 0)
			return true;
	return row->groups == group;
}

enum kvw_err kvb_engine_options_export(const struct kvb_engine_options *options, FILE *error)
{
	json_t *all = json_object();
	enum kvw_err err = KVW_OK;
	int group = 0;

	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		if (strcmp(groups[i].workload, options->workload) == 0)
			group = groups[i].group;
	for (size_t i = 0; i < table.count; i++) {
		char key[64];
		json_t *value = exported(&rows[i], group) ? value_json(&rows[i], options) : NULL;

		snprintf(key, sizeof(key), "%s", rows[i].name);
		for (char *at = key; *at != '\0'; at++)
			*at = *at == '-' ? '_' : *at;
		if (strcmp(key, "tokens_per_gb_kvcache") == 0 && options->tokens_per_gb == 0) {
			json_decref(value);
			value = NULL;
		}
		if (value != NULL)
			json_object_set_new(all, key, value);
	}
	if (json_dump_file(all, options->export_config, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) !=
		0) {
		fprintf(error, "kvbench: %s: %s\n", options->export_config, strerror(errno));
		err = KVW_EIO;
	}
	json_decref(all);
	return err;
}
