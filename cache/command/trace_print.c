/*
 * trace_print.c - chooses, joins and prints events of a trace.
 *
 * The output shows a get with the requests that it waited for, and a chunk that a get or lookup
 * missed with the last event of that chunk. Events may come from standard input: unknown words are
 * printed without control characters.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/standard_out.h"
#include "command/format.h"
#include "command/trace.h"

#define INDENT    "                       "
#define KEY_NAMED 8 /* number of hex digits of a key in an event */

/* --- members ---------------------------------------------------------------------------------- */

static const char *text(const json_t *event, const char *name)
{
	const char *value = json_string_value(json_object_get(event, name));

	return value != NULL ? value : "";
}

static double number(const json_t *event, const char *name)
{
	return json_number_value(json_object_get(event, name));
}

static bool is(const json_t *event, const char *what)
{
	return strcmp(text(event, "what"), what) == 0;
}

static bool asks(const json_t *event)
{
	return is(event, "get") || is(event, "lookup");
}

static double time_of(const json_t *event)
{
	return number(event, "ms") + number(event, "waited_ms");
}

/* --- choosing --------------------------------------------------------------------------------- */

bool kvt_traces_add_take(struct kvt_traces *t, json_t *event)
{
	if (!json_is_object(event) || *text(event, "ts") == '\0' || *text(event, "what") == '\0') {
		json_decref(event);
		return true;
	}
	if (t->count == t->room) {
		size_t room = t->room == 0 ? 1024 : 2 * t->room;
		struct kvt_traced *wider = reallocarray(t->items, room, sizeof(*wider));

		if (wider == NULL) {
			json_decref(event);
			return false;
		}
		t->items = wider;
		t->room = room;
	}
	t->items[t->count++] = (struct kvt_traced){.json = event,
		.time = text(event, "ts"),
		.get = json_integer_value(json_object_get(event, "get"))};
	return true;
}

void kvt_traces_finish(struct kvt_traces *t)
{
	for (size_t i = 0; i < t->count; i++)
		json_decref(t->items[i].json);
	free(t->items);
	*t = (struct kvt_traces){0};
}

static int by_time(const void *a, const void *b)
{
	return strcmp(((const struct kvt_traced *)a)->time, ((const struct kvt_traced *)b)->time);
}

static bool has_key(const json_t *event, const char *key)
{
	size_t len = strlen(key) < KEY_NAMED ? strlen(key) : KEY_NAMED;

	return strncasecmp(text(event, "key"), key, len) == 0 ||
	       strncasecmp(text(event, "missing"), key, len) == 0;
}

static bool has_failed(const json_t *event)
{
	const char *status = text(event, "status");

	return is(event, "dropped") || is(event, "away") ||
	       (!asks(event) && *status != '\0' && strcmp(status, "ok") != 0);
}

static unsigned fits(const json_t *event, const struct kvt_trace_filter *f)
{
	return (f->key != NULL && has_key(event, f->key) ? KVT_FITS_KEY : 0u) |
	       (time_of(event) >= f->slow_ms ? KVT_FITS_SLOW : 0u) |
	       (asks(event) && number(event, "had") < number(event, "asked") ? KVT_FITS_MISS : 0u) |
	       (has_failed(event) ? KVT_FITS_FAILED : 0u);
}

/* Marks the events that belong to the get at index `head`; they ended before it. */
static void gather(struct kvt_traces *t, size_t head)
{
	for (size_t i = head; t->items[head].get > 0 && i-- > 0;) {
		if (t->items[i].get != t->items[head].get)
			continue;
		t->items[i].head = head;
		t->items[head].fits |= t->items[i].fits;
	}
}

void kvt_traces_sort(struct kvt_traces *t, const struct kvt_trace_filter *filter)
{
	if (t->count > 0)
		qsort(t->items, t->count, sizeof(*t->items), by_time);
	for (size_t i = 0; i < t->count; i++) {
		t->items[i].head = i;
		t->items[i].fits = fits(t->items[i].json, filter);
	}
	for (size_t i = 0; i < t->count; i++)
		if (is(t->items[i].json, "get"))
			gather(t, i);
}

/* --- showing ---------------------------------------------------------------------------------- */

static const struct {
	const char *why, *meaning;
} meanings[] = {
	{"nowhere", "no tier has it"},
	{"tier_away", "no tier that can be asked now has it"},
	{"slower_than_computing", "to fetch it would take longer than to compute it"},
	{"late", "the time of the get was over"},
	{"canceled", "the get was cancelled"},
	{"no_room", "no room in memory"},
	{"tenant_limit", "its tenant is at its limit in memory"},
	{"not_read", "it could not be read"},
};

static void put(FILE *out, const char *words)
{
	kvw_print_clean(out, words, strlen(words));
}

static void put_why(const json_t *event, FILE *out)
{
	const char *why = text(event, "why");

	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (strcmp(meanings[i].why, why) == 0)
			why = meanings[i].meaning;
	put(out, why);
	if (strcmp(text(event, "why"), "tier_away") == 0) {
		fputs("; not asked: ", out);
		put(out, text(event, "tier"));
	}
}

/* "05:12:01.123" */
static void put_time(const struct kvt_traced *at, FILE *out)
{
	const char *hours = strlen(at->time) == 27 ? at->time + 11 : at->time;

	kvw_print_clean(out, hours, hours == at->time ? strlen(hours) : 12);
}

static void put_asked(const json_t *event, FILE *out)
{
	static const char *const tiers[] = {"memory", "nvme", "l2"};
	const char *before = ": ";

	fprintf(out, "%.0f of %.0f chunks in %.3f ms", number(event, "had"), number(event, "asked"),
		time_of(event));
	for (size_t i = 0; i < sizeof(tiers) / sizeof(tiers[0]); i++) {
		if (number(event, tiers[i]) == 0)
			continue;
		fprintf(out, "%s%.0f from %s", before, number(event, tiers[i]), tiers[i]);
		before = ", ";
	}
}

/* Prints a request to a tier, or a put. */
static void put_work(const json_t *event, FILE *out)
{
	char size[KVT_FORMAT_BYTES];

	if (is(event, "probe"))
		fprintf(out, "has %.0f of %.0f chunks, ", number(event, "had"),
			number(event, "asked"));
	if (number(event, "bytes") > 0)
		fprintf(out, "%s, ", kvt_format_size(size, number(event, "bytes")));
	if (number(event, "waited_ms") > 0)
		fprintf(out, "%.3f ms in line, ", number(event, "waited_ms"));
	fprintf(out, "%.3f ms", number(event, "ms"));
	if (strcmp(text(event, "status"), "ok") == 0)
		return;
	fputs(is(event, "put") ? ": refused: " : ": ", out);
	if (*text(event, "why") != '\0')
		put_why(event, out);
	else
		put(out, text(event, "status"));
}

static void put_event(const json_t *event, FILE *out)
{
	const char *what = text(event, "what"), *tier = text(event, "tier");

	put(out, what);
	fprintf(out, "%*s", strlen(what) < 8 ? (int)(8 - strlen(what)) : 1, "");
	put(out, *text(event, "key") != '\0' ? text(event, "key") : "-");
	fputs("  ", out);
	if (*tier != '\0' && !asks(event)) {
		fputs(is(event, "dropped")     ? "was not stored in "
			: is(event, "removed") ? "from "
					       : "",
			out);
		put(out, tier);
		fputs(is(event, "away") ? " is left alone for a while" : "", out);
	}
	if (asks(event)) {
		put_asked(event, out);
	} else if (*text(event, "status") != '\0') {
		fputs(*tier != '\0' ? ": " : "", out);
		put_work(event, out);
	}
	fputc('\n', out);
}

/* Prints the last event of the chunk that the event at index `at` missed. */
static void put_before(const struct kvt_traces *t, size_t at, FILE *out)
{
	const char *missing = text(t->items[at].json, "missing");

	for (size_t i = at; i-- > 0;) {
		const json_t *event = t->items[i].json;

		if (asks(event) || t->items[i].head == at ||
			strcmp(text(event, "key"), missing) != 0)
			continue;
		fputs(INDENT "before that, at ", out);
		put_time(&t->items[i], out);
		fputs(": ", out);
		put_event(event, out);
		return;
	}
}

static void put_head(const struct kvt_traces *t, size_t at, FILE *out)
{
	const json_t *event = t->items[at].json;

	put_time(&t->items[at], out);
	fputs("  ", out);
	put_event(event, out);
	for (size_t i = 0; i < at; i++)
		if (t->items[i].head == at) {
			fputs(INDENT, out);
			put_event(t->items[i].json, out);
		}
	if (*text(event, "missing") == '\0')
		return;
	fputs(INDENT "not ", out);
	put(out, text(event, "missing"));
	fputs(": ", out);
	put_why(event, out);
	fputc('\n', out);
	put_before(t, at, out);
}

static void put_json(const struct kvt_traces *t, size_t head, FILE *out)
{
	for (size_t i = 0; i <= head; i++)
		if (t->items[i].head == head) {
			json_dumpf(t->items[i].json, out, JSON_COMPACT | JSON_REAL_PRECISION(10));
			fputc('\n', out);
		}
}

size_t kvt_traces_print(
	const struct kvt_traces *t, const struct kvt_trace_filter *filter, bool as_json, FILE *out)
{
	size_t heads = 0, passed = 0;

	for (size_t i = 0; i < t->count; i++)
		heads += t->items[i].head == i &&
			 (t->items[i].fits & filter->wanted) == filter->wanted;
	for (size_t i = 0; i < t->count; i++) {
		if (t->items[i].head != i ||
			(t->items[i].fits & filter->wanted) != filter->wanted ||
			heads - passed++ > filter->last)
			continue;
		if (as_json)
			put_json(t, i, out);
		else
			put_head(t, i, out);
	}
	return heads;
}
