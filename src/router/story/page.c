/*
 * page.c - prints the trace of a request as text. Text from the network is printed without control
 * characters.
 *
 * Notes are left out if another line says the same: the wait for an answer begins with its attempt
 * and ends with a failure.
 */
#include "story/page.h"

#include <string.h>

#include "base/standard_out.h"
#include "kvway/route.h"

/* Meanings of the names of states, ends and clients. */
static const struct {
	const char *what, *name, *meaning; /* meaning NULL: the note is left out */
} meanings[] = {
	{"request", "read_body", "reads the request's body"},
	{"request", "routing", "looks for a worker"},
	{"request", "waiting", NULL},
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
	{"response", "none", NULL},
	{"response", "waiting", NULL},
	{"response", "held", "the answer's head has come, and is held until its first token"},
	{"response", "streaming", "the answer goes to the client"},
	{"response", "paused", "the client is slow: nothing is read from the worker"},
	{"response", "done", "the answer is whole"},
	{"attempt_end", NULL, NULL},
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

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text != NULL ? text : "";
}

static void put_text(FILE *out, const char *text)
{
	kvw_print_clean(out, text, strlen(text));
}

/* "12.3 ms", "3.21 s" */
static void put_duration(FILE *out, double ms)
{
	if (ms < 1000)
		fprintf(out, "%.1f ms", ms);
	else
		fprintf(out, "%.2f s", ms / 1000);
}

static const char *meaning_of(const char *what, const char *name, bool *hidden)
{
	*hidden = false;
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
		if (strcmp(meanings[i].what, what) != 0 ||
			(meanings[i].name != NULL && strcmp(meanings[i].name, name) != 0))
			continue;
		*hidden = meanings[i].meaning == NULL;
		return meanings[i].meaning;
	}
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
	const char *url = text_of(note, "worker"), *reason = text_of(note, "reason"),
		   *why = why_of(reason);
	double cached = json_number_value(json_object_get(note, "predicted_cached_tokens"));

	put_text(out, *url != '\0' ? url : "a worker that has left");
	if (*reason != '\0')
		fputs(": ", out);
	put_text(out, reason);
	if (why != NULL)
		fprintf(out, ", %s", why);
	if (cached > 0)
		fprintf(out, "; %.0f tokens of the prompt are predicted there", cached);
	put_knowledge(text_of(note, "knowledge"), out);
}

/* Writes a note, except for its first word. */
static void put_rest(const json_t *note, const char *what, const char *meaning, FILE *out)
{
	double most = json_number_value(json_object_get(note, "at_most_ms"));

	if (strcmp(what, "attempt") == 0 || strcmp(what, "prefill") == 0) {
		put_attempt(note, out);
	} else if (strcmp(what, "failed") == 0) {
		put_text(out, text_of(note, "why"));
		fputs("; then: ", out);
		put_text(out, text_of(note, "then"));
	} else if (strcmp(what, "answer") == 0) {
		fprintf(out, "%.0f by kvway: ", json_number_value(json_object_get(note, "status")));
		put_text(out, text_of(note, "message"));
	} else if (strcmp(what, "timer") == 0) {
		put_text(out, text_of(note, "name"));
		fputs(" has passed", out);
	} else if (strcmp(what, "wait") == 0) {
		fputs("for ", out);
		put_text(out, meaning != NULL ? meaning : text_of(note, "name"));
	} else if (strcmp(what, "grade") == 0 || strcmp(what, "client") == 0 ||
		   strcmp(what, "end") == 0 || strcmp(what, "step") == 0 ||
		   strcmp(what, "prefilled") == 0 || strcmp(what, "decode") == 0) {
		put_text(out, text_of(note, "name"));
		fprintf(out, "%s%s", meaning != NULL ? ": " : "", meaning != NULL ? meaning : "");
		if (*text_of(note, "verdict") != '\0')
			fputs(": ", out);
		put_text(out, text_of(note, "verdict"));
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
	const char *what = text_of(note, "what");

	return strcmp(what, "request") == 0 || strcmp(what, "response") == 0 ? text_of(note, "name")
									     : what;
}

static bool is_hidden(const json_t *note)
{
	bool hidden;

	(void)meaning_of(text_of(note, "what"), text_of(note, "name"), &hidden);
	return hidden;
}

static void put_note(const json_t *note, unsigned *attempts, FILE *out)
{
	const char *what = text_of(note, "what");
	bool hidden;
	const char *meaning = meaning_of(what, text_of(note, "name"), &hidden);
	char word[40];

	if (strcmp(what, "attempt") == 0)
		(void)snprintf(word, sizeof(word), "attempt %u", ++*attempts);
	else
		(void)snprintf(word, sizeof(word), "%.39s", word_of(note));
	fprintf(out, "%12.1f  ", json_number_value(json_object_get(note, "ms")));
	put_text(out, word);
	fprintf(out, "%*s", strlen(word) < 12 ? (int)(13 - strlen(word)) : 1, "");
	put_rest(note, what, meaning, out);
	fputc('\n', out);
}

static void put_head(const json_t *request, FILE *out)
{
	const json_t *status = json_object_get(request, "status");

	put_text(out, text_of(request, "ts"));
	fputs("  ", out);
	put_text(out, text_of(request, "route"));
	fputs("  ", out);
	put_text(out, *text_of(request, "model") != '\0' ? text_of(request, "model") : "-");
	if (status != NULL)
		fprintf(out, "  status %.0f, %s, after ", json_number_value(status),
			text_of(request, "end"));
	else
		fputs("  under way for ", out);
	put_duration(out, json_number_value(json_object_get(request, "total_ms")));
	fputs("  id ", out);
	put_text(out, text_of(request, "request_id"));
	if (*text_of(request, "trace_id") != '\0') {
		fputs("  trace ", out);
		put_text(out, text_of(request, "trace_id"));
	}
	fputc('\n', out);
}

/* Writes in which state the request spent most of its time, if that is worth a line. */
static void put_longest(const json_t *way, double total_ms, bool ended, FILE *out)
{
	const json_t *before = NULL, *longest = NULL;
	double most = 0;

	for (size_t i = 0; i <= json_array_size(way); i++) {
		const json_t *note = json_array_get(way, i);
		double at = note != NULL ? json_number_value(json_object_get(note, "ms"))
			    : ended      ? 0
					 : total_ms;
		double from = before != NULL ? json_number_value(json_object_get(before, "ms")) : 0;

		if (note != NULL && (is_hidden(note) || strcmp(text_of(note, "what"), "step") == 0))
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
	fputs(" in `", out);
	put_text(out, word_of(longest));
	fputs(strcmp(word_of(longest), "wait") == 0 ? "` for " : "`", out);
	if (strcmp(word_of(longest), "wait") == 0)
		put_text(out, text_of(longest, "name"));
	fputc('\n', out);
}

void kvw_story_print(const json_t *request, FILE *out)
{
	const json_t *way = json_object_get(request, "way");
	double skipped = json_number_value(json_object_get(request, "notes_skipped"));
	unsigned attempts = 0;

	put_head(request, out);
	for (size_t i = 0; i < json_array_size(way); i++)
		if (!is_hidden(json_array_get(way, i)))
			put_note(json_array_get(way, i), &attempts, out);
	if (skipped > 0)
		fprintf(out,
			"              and %.0f notes more, for which its record had no room\n",
			skipped);
	put_longest(way, json_number_value(json_object_get(request, "total_ms")),
		json_object_get(request, "status") != NULL, out);
}
