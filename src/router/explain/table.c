/*
 * table.c - prints an explanation as text.
 *
 * The first lines show the parsed request, the table compares the workers, the last line states the
 * decision. Text from the router is printed without control characters.
 */
#include "explain/table.h"

#include <jansson.h>
#include <string.h>

#include "admin_json.h"
#include "base/standard_out.h"

#define URL_WIDTH_MAX 60

static void put_number(FILE *out, const json_t *worker, const char *key, int width, int digits)
{
	const json_t *value = json_object_get(worker, key);

	if (json_is_number(value))
		fprintf(out, "  %*.*f", width, digits, json_number_value(value));
	else
		fprintf(out, "  %*s", width, "-");
}

static int url_width(const json_t *workers)
{
	int width = (int)strlen("worker");

	for (size_t i = 0; i < json_array_size(workers); i++) {
		size_t len = strlen(kvw_json_text(json_array_get(workers, i), "worker"));

		if ((int)len > width)
			width = len < URL_WIDTH_MAX ? (int)len : URL_WIDTH_MAX;
	}
	return width;
}

static void put_worker(FILE *out, const json_t *worker, int width)
{
	double fragments = kvw_json_number(worker, "fragment_tokens");

	kvw_print_column(out, kvw_json_text(worker, "worker"), width);
	put_number(out, worker, "hit_tokens", 7, 0);
	put_number(out, worker, "queue_ms", 9, 2);
	put_number(out, worker, "prefill_ms", 10, 2);
	put_number(out, worker, "others_ms", 9, 2);
	put_number(out, worker, "context_ms", 10, 2);
	put_number(out, worker, "evict_ms", 8, 2);
	put_number(out, worker, "total_ms", 9, 2);
	put_number(out, worker, "in_flight", 9, 0);
	kvw_printf(out, "  %s", kvw_json_text(worker, "verdict"));
	if (fragments > 0)
		fprintf(out, "; %.0f tokens more in fragments", fragments);
	fputc('\n', out);
}

/* Returns the words for a code in the answer. */
static const char *words_of(const char *reason)
{
	static const char *const words[][2] = {
		{"free", "a worker can take it"},
		{"not_held", "such a request never waits"},
		{"busy", "no worker can take it yet"},
		{"behind_others", "others wait before it"},
		{"programs", "running programs have all the context that the workers can keep"},
		{"price", "so much work is offered that it is too dear, or its class has no room"},
		{"service_level", "its service level could not be kept"},
		{"deadline", "it would wait for longer than admission.max_wait, or than it allows"},
		{"queue_full", "it may not wait"},
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(reason, words[i][0]) == 0)
			return words[i][1];
	return reason;
}

static void put_promise(FILE *out, const json_t *promise, const char *key, const char *what)
{
	double ms = kvw_json_number(promise, key);

	if (ms > 0)
		fprintf(out, ", promised %.0f ms %s", ms, what);
}

/* Prints admission, which the answer has only if it is enabled. */
static void put_admission(FILE *out, const json_t *admission)
{
	const json_t *promise = json_object_get(admission, "promise");
	double wait_ms = kvw_json_number(admission, "wait_ms");
	const char *class = kvw_json_text(admission, "class");

	if (!json_is_object(admission))
		return;
	kvw_printf(out, "Admission, estimated: %s", kvw_json_text(admission, "verdict"));
	if (wait_ms > 0)
		fprintf(out, ", %.0f ms until it can be sent", wait_ms);
	kvw_printf(out, ": %s", words_of(kvw_json_text(admission, "reason")));
	if (*class != '\0')
		kvw_printf(out, "; class %s", class);
	put_promise(out, promise, "ttft_ms", "to the first token");
	put_promise(out, promise, "ttft_per_1k_tokens_ms", "more for 1,000 tokens of the prompt");
	put_promise(out, promise, "tpot_ms", "per token");
	fputs(".\n", out);
}

/* Prints one limit of a tenant, key or model; prints nothing if the answer does not have it. */
static void put_limit(FILE *out, const json_t *party, const char *key, const char *what)
{
	const json_t *limit = json_object_get(party, key);
	double reset_ms = kvw_json_number(limit, "reset_ms");

	if (!json_is_object(limit))
		return;
	fprintf(out, "; %.0f of %.0f %s", kvw_json_number(limit, "remaining"),
		kvw_json_number(limit, "limit"), what);
	if (reset_ms > 0)
		fprintf(out, ", all in %.1f s", reset_ms / 1000);
}

static void put_limits(FILE *out, const json_t *limits)
{
	for (size_t i = 0; i < json_array_size(limits); i++) {
		const json_t *party = json_array_get(limits, i);

		kvw_printf(out, "Left of %s %s", kvw_json_text(party, "of"),
			kvw_json_text(party, "name"));
		if (*kvw_json_text(party, "served_as") != '\0')
			kvw_printf(out, " (served as %s)", kvw_json_text(party, "served_as"));
		put_limit(out, party, "requests_per_minute", "requests a minute");
		put_limit(out, party, "tokens_per_minute", "tokens a minute");
		put_limit(out, party, "tokens_per_day", "tokens a day");
		put_limit(out, party, "concurrent", "requests at once");
		fputs(".\n", out);
	}
}

/* Prints those steps that had a result. */
static void put_steps(FILE *out, const json_t *steps)
{
	for (size_t i = 0; i < json_array_size(steps); i++) {
		const json_t *step = json_array_get(steps, i);
		const char *why = kvw_json_text(step, "why");

		if (*why != '\0')
			kvw_printf(out, "Step %s: %s; %s.\n", kvw_json_text(step, "step"),
				kvw_json_text(step, "verdict"), why);
	}
}

static void put_request(FILE *out, const json_t *root)
{
	double tokens = kvw_json_number(root, "prompt_tokens");
	const char *model = kvw_json_text(root, "model"), *group = kvw_json_text(root, "group");

	if (json_is_true(json_object_get(root, "cold")))
		fputs("Cold: no router was asked. Every worker is taken to be usable and idle, "
		      "with nothing cached.\n",
			out);
	kvw_printf(out, "Strategy %s, model %s", kvw_json_text(root, "strategy"),
		*model != '\0' ? model : "not named");
	if (*group != '\0')
		kvw_printf(out, ", group %s (by %s)", group, kvw_json_text(root, "group_by"));
	kvw_printf(out, ", POST %s", kvw_json_text(root, "path"));
	if (tokens > 0)
		fprintf(out, ", about %.0f token%s.\n", tokens, tokens > 1 ? "s" : "");
	else
		fputs(", prompt not measured.\n", out);
	if (json_is_false(json_object_get(root, "body_read")))
		fputs("The body is not read: its path carries no prompt, or it is larger than "
		      "routing.scan_limit.\n",
			out);
	put_admission(out, json_object_get(root, "admission"));
	put_limits(out, json_object_get(root, "limits"));
	put_steps(out, json_object_get(root, "steps"));
	fputc('\n', out);
}

/* For kvaware: prints where each line's hits are known from, and what is wrong if that is not the
 * worker's own events. */
static void put_coverages(FILE *out, const json_t *root)
{
	const json_t *workers = json_object_get(root, "workers");
	const char *tokens = kvw_json_text(root, "tokens_from");

	if (*tokens == '\0')
		return;
	fputc('\n', out);
	kvw_printf(out, "Tokens of the prompt: from %s.\n", tokens);
	for (size_t i = 0; i < json_array_size(workers); i++) {
		const json_t *worker = json_array_get(workers, i), *reporter;
		json_t *told = json_object_get(worker, "cache_told_by");
		const char *name;

		kvw_printf(out, "%s: %s", kvw_json_text(worker, "worker"),
			json_is_true(json_object_get(worker, "exact")) ? "exact" : "by text");
		json_object_foreach (told, name, reporter) {
			const char *instance = kvw_json_text(reporter, "instance");
			const char *wrong = kvw_json_text(reporter, "wrong");

			kvw_printf(out, "; %s %s", name, kvw_json_text(reporter, "coverage"));
			if (*instance != '\0')
				kvw_printf(out, " by %s", instance);
			if (*wrong != '\0')
				kvw_printf(out, " (%s)", wrong);
		}
		fputc('\n', out);
	}
}

static void put_decision(FILE *out, const json_t *root)
{
	double cached = kvw_json_number(root, "predicted_cached_tokens");
	double fragments = kvw_json_number(root, "predicted_fragment_tokens");

	fputc('\n', out);
	kvw_printf(out, "%s would serve it (%s): %s", kvw_json_text(root, "worker"),
		kvw_json_text(root, "reason"), kvw_json_text(root, "why"));
	if (cached > 0)
		fprintf(out, "; %.0f tokens of it are expected to be cached", cached);
	if (fragments > 0)
		fprintf(out, ", %.0f of them in fragments", fragments);
	fputs(".\n", out);
	if (*kvw_json_text(root, "knowledge") != '\0')
		kvw_printf(out, "Knowledge: %s: %s.\n", kvw_json_text(root, "knowledge"),
			kvw_json_text(root, "knowledge_why"));
}

enum kvw_err kvw_explain_table_print(struct kvw_slice json, FILE *out)
{
	json_t *root = json_loadb(json.data, json.len, 0, NULL);
	const json_t *workers = json_object_get(root, "workers");
	int width = url_width(workers);

	if (!json_is_array(workers) || *kvw_json_text(root, "worker") == '\0') {
		json_decref(root);
		return KVW_EPROTO;
	}
	put_request(out, root);
	fprintf(out, "%-*s  %7s  %9s  %10s  %9s  %10s  %8s  %9s  %9s  %s\n", width, "worker", "hit",
		"queue ms", "prefill ms", "others ms", "context ms", "evict ms", "total ms",
		"in flight", "verdict");
	for (size_t i = 0; i < json_array_size(workers); i++)
		put_worker(out, json_array_get(workers, i), width);
	put_coverages(out, root);
	put_decision(out, root);
	json_decref(root);
	return KVW_OK;
}
