/*
 * page.c - prints the trace of a request as text. Text from the network is printed without control
 * characters.
 *
 * Notes are left out if another line says the same: the wait for an answer begins with its attempt
 * and ends with a failure.
 */
#include "story/page.h"

#include <string.h>

#include "admin_json.h"
#include "base/standard_out.h"
#include "kvway/route.h"

/* Meanings of the names of states, ends and clients. */
static const struct {
	const char *what, *name, *meaning; /* meaning "": the note is left out */
} meanings[] = {
	{"request", "read_body", "reads the request's body"},
	{"request", "routing", "looks for a worker"},
	{"request", "waiting", ""},
	{"wait", "models", "newer lists of the workers' models"},
	{"wait", "worker", "a worker of its model, which is being woken"},
	{"wait", "room", "room at a worker"},
	{"wait", "tokens", "the prompt's tokens"},
	{"wait", "metrics", "the text of /metrics"},
	{"wait", "prefill", "its prompt to be prefilled by another worker"},
	{"prefilled", "ok", "it has, and the decoder can have its KV cache"},
	{"prefilled", "no_params", "its answer does not say how its KV cache is got"},
	{"prefilled", "error", "it answered an error"},
	{"prefilled", "lost", "its connection was lost"},
	{"prefilled", "timeout", "it took too long"},
	{"prefilled", "full", "it is full"},
	{"prefilled", "cancelled", "the request ended, or its decoder failed"},
	{"decode", "transferred", "the decoder has the KV cache"},
	{"decode", "fallback", "the decoder gets the request whole"},
	{"decode", "quarantined", "whole: the prefiller is another engine, not tried yet"},
	{"decode", "refused", "the decoder answered an error, and gets the request whole"},
	{"decode", "expired", "half of the lease has passed without a token"},
	{"decode", "repeated", "the decoder failed: the prompt is prefilled again"},
	{"decode", "left", "the client left"},
	{"request", "connecting", "connects to the worker"},
	{"request", "sending", "sends the request to the worker"},
	{"request", "sent", "all of it is sent; the answer is waited for"},
	{"response", "none", ""},
	{"response", "waiting", ""},
	{"response", "held", "the answer's head has come, and is held until its first token"},
	{"response", "streaming", "the answer goes to the client"},
	{"response", "paused", "the client is slow: nothing is read from the worker"},
	{"response", "done", "the answer is whole"},
	{"attempt_end", NULL, ""},
	{"first_token", NULL, "the worker has computed the first of the answer"},
	{"client", "left", "closed its connection"},
	{"client", "reset", "reset its connection"},
	{"client", "slow", "took nothing for timeouts.client_write"},
	{"client", "vanished", "its host does not answer"},
	{"end", "complete", "the whole answer was sent"},
	{"end", "local", "kvway answered"},
	{"end", "client_gone", "the client left first"},
	{"end", "upstream_lost", "the worker failed behind its first token: the answer was cut"},
	{"end", "timeout", "a time has passed"},
	{"end", "shutdown", "kvway ended"},
};

/* "12.3 ms", "3.21 s" */
static void put_duration(FILE *out, double ms)
{
	if (ms < 1000)
		fprintf(out, "%.1f ms", ms);
	else
		fprintf(out, "%.2f s", ms / 1000);
}

/* Returns what a note means; NULL: its name says it; "": it is left out. */
static const char *meaning_of(const json_t *note)
{
	const char *what = kvw_json_text(note, "what"), *name = kvw_json_text(note, "name");

	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (strcmp(meanings[i].what, what) == 0 &&
			(meanings[i].name == NULL || strcmp(meanings[i].name, name) == 0))
			return meanings[i].meaning;
	return NULL;
}

static const char *why_of(const char *reason)
{
	for (unsigned i = 0; i < KVW_REASON_COUNT; i++)
		if (strcmp(kvw_reason_name((enum kvw_reason)i), reason) == 0)
			return kvw_reason_why((enum kvw_reason)i);
	return NULL;
}

static void put_knowledge(const char *name, FILE *out)
{
	for (unsigned i = 0; i < KVW_KNOWLEDGE_COUNT; i++) {
		const struct kvw_knowledge_text *text = kvw_knowledge_text((enum kvw_knowledge)i);

		if (text != NULL && strcmp(text->name, name) == 0)
			fprintf(out, "; knowledge %s, %s", text->name, text->why);
	}
}

static void put_attempt(const json_t *note, FILE *out)
{
	const char *url = kvw_json_text(note, "worker"), *reason = kvw_json_text(note, "reason"),
		   *why = why_of(reason);
	double cached = kvw_json_number(note, "predicted_cached_tokens");

	kvw_printf(out, "%s%s%s", *url != '\0' ? url : "a worker that has left",
		*reason != '\0' ? ": " : "", reason);
	if (why != NULL)
		fprintf(out, ", %s", why);
	if (cached > 0)
		fprintf(out, "; %.0f tokens of the prompt are predicted there", cached);
	put_knowledge(kvw_json_text(note, "knowledge"), out);
}

/* Writes a note, except for its first word. */
static void put_rest(const json_t *note, FILE *out)
{
	const char *what = kvw_json_text(note, "what"), *name = kvw_json_text(note, "name");
	const char *meaning = meaning_of(note), *verdict = kvw_json_text(note, "verdict");
	double most = kvw_json_number(note, "at_most_ms");

	if (strcmp(what, "attempt") == 0 || strcmp(what, "prefill") == 0) {
		put_attempt(note, out);
	} else if (strcmp(what, "failed") == 0) {
		kvw_printf(out, "%s; then: %s", kvw_json_text(note, "why"),
			kvw_json_text(note, "then"));
	} else if (strcmp(what, "answer") == 0) {
		kvw_printf(out, "%.0f by kvway: %s", kvw_json_number(note, "status"),
			kvw_json_text(note, "message"));
	} else if (strcmp(what, "timer") == 0) {
		kvw_printf(out, "%s has passed", name);
	} else if (strcmp(what, "wait") == 0) {
		kvw_printf(out, "for %s", meaning != NULL ? meaning : name);
	} else if (strcmp(what, "grade") == 0 || strcmp(what, "client") == 0 ||
		   strcmp(what, "end") == 0 || strcmp(what, "step") == 0 ||
		   strcmp(what, "prefilled") == 0 || strcmp(what, "decode") == 0) {
		kvw_printf(out, "%s%s%s%s%s", name, meaning != NULL ? ": " : "",
			meaning != NULL ? meaning : "", *verdict != '\0' ? ": " : "", verdict);
	} else if (meaning != NULL) {
		fputs(meaning, out);
	}
	if (most > 0) {
		fputs(", at most ", out);
		put_duration(out, most);
	}
}

/* Returns the first word of a note: the name of a state, or else the kind of the event. */
static const char *word_of(const json_t *note)
{
	const char *what = kvw_json_text(note, "what");
	bool state = strcmp(what, "request") == 0 || strcmp(what, "response") == 0;

	return state ? kvw_json_text(note, "name") : what;
}

static bool is_hidden(const json_t *note)
{
	const char *meaning = meaning_of(note);

	return meaning != NULL && *meaning == '\0';
}

static void put_note(const json_t *note, unsigned *attempts, FILE *out)
{
	char word[40];

	if (strcmp(kvw_json_text(note, "what"), "attempt") == 0)
		(void)snprintf(word, sizeof(word), "attempt %u", ++*attempts);
	else
		(void)snprintf(word, sizeof(word), "%.39s", word_of(note));
	fprintf(out, "%12.1f  ", kvw_json_number(note, "ms"));
	kvw_print_column(out, word, 12);
	fputc(' ', out);
	put_rest(note, out);
	fputc('\n', out);
}

static void put_head(const json_t *request, FILE *out)
{
	const char *model = kvw_json_text(request, "model");
	const char *trace = kvw_json_text(request, "trace_id");
	bool ended = json_object_get(request, "status") != NULL;

	kvw_printf(out, "%s  %s  %s", kvw_json_text(request, "ts"), kvw_json_text(request, "route"),
		*model != '\0' ? model : "-");
	if (ended)
		kvw_printf(out, "  status %.0f, %s, after ", kvw_json_number(request, "status"),
			kvw_json_text(request, "end"));
	else
		fputs("  under way for ", out);
	put_duration(out, kvw_json_number(request, "total_ms"));
	kvw_printf(out, "  id %s%s%s\n", kvw_json_text(request, "request_id"),
		*trace != '\0' ? "  trace " : "", trace);
}

/* Writes in which state the request spent most of its time, if that is worth a line. */
static void put_longest(const json_t *way, double total_ms, bool ended, FILE *out)
{
	const json_t *before = NULL, *longest = NULL;
	double most = 0;

	for (size_t i = 0; i <= json_array_size(way); i++) {
		const json_t *note = json_array_get(way, i);
		double at = note == NULL && !ended ? total_ms : kvw_json_number(note, "ms");
		double from = kvw_json_number(before, "ms");

		if (note != NULL &&
			(is_hidden(note) || strcmp(kvw_json_text(note, "what"), "step") == 0))
			continue;
		if (at - from > most) {
			most = at - from;
			longest = before;
		}
		before = note;
	}
	if (longest == NULL || most < 1)
		return;
	fputs("              most of the time: ", out);
	put_duration(out, most);
	kvw_printf(out, " in `%s`", word_of(longest));
	if (strcmp(word_of(longest), "wait") == 0)
		kvw_printf(out, " for %s", kvw_json_text(longest, "name"));
	fputc('\n', out);
}

void kvw_story_print(const json_t *request, FILE *out)
{
	const json_t *way = json_object_get(request, "way");
	double skipped = kvw_json_number(request, "notes_skipped");
	unsigned attempts = 0;

	put_head(request, out);
	for (size_t i = 0; i < json_array_size(way); i++)
		if (!is_hidden(json_array_get(way, i)))
			put_note(json_array_get(way, i), &attempts, out);
	if (skipped > 0)
		fprintf(out,
			"              and %.0f notes more, for which its record had no room\n",
			skipped);
	put_longest(way, kvw_json_number(request, "total_ms"),
		json_object_get(request, "status") != NULL, out);
}
