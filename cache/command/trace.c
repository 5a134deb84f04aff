/*
 * trace.c - `kvtier trace`: shows the history of chunks of a running cache.
 *
 * The owner of a store keeps its events in memory and sends them over its socket, 16 KiB at a time.
 * The verb reads events that another program got by kvt_trace or GET /trace of kvtierd from
 * standard input.
 */
#include "command/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "admin/admin.h"
#include "command/command.h"
#include "command/store.h"

#define ANSWER_NS 2000000000ull
#define TRIES     3
#define RINGS     2 /* lists in a trace: the usual events; the slow, incomplete and failed ones */
#define LINE_MOST 4096 /* longest event on standard input, in bytes */
#define LAST      20
#define LAST_MOST 1000000

/* --- from the owner of a store ---------------------------------------------------------------- */

/* Reads one answer. *since: number from which the next answer begins. Returns false on failure,
 * which was reported. */
static bool take_answer(
	const char *folder, const char *answer, struct kvt_traces *into, json_int_t *since)
{
	json_t *root = json_loads(answer, 0, NULL), *events = json_object_get(root, "events"),
	       *event;
	bool good = json_is_array(events);
	size_t i;

	json_array_foreach(events, i, event) good =
		good && kvt_traces_add_take(into, json_incref(event));
	*since = json_integer_value(json_object_get(root, "next"));
	if (!good)
		fprintf(stderr, "kvtier trace: %s: its cache %s\n", folder,
			json_is_true(json_object_get(root, "off"))
				? "traces nothing: control.trace_events is 0"
				: "is of a version that has no trace");
	json_decref(root);
	return good;
}

/* If the machine is busy, the owner may drop a request that arrived slowly, so it is sent again. */
static enum kvt_status ask(const char *folder, const char *request, char *answer)
{
	enum kvt_status status = KVT_EIO;

	for (int i = 0; i < TRIES && status == KVT_EIO; i++)
		status = kvt_admin_ask(folder, request, ANSWER_NS, answer);
	if (status == KVT_MISS)
		fprintf(stderr,
			"kvtier trace: %s: its cache takes no requests: an older version, or one "
			"without threads\n",
			folder);
	else if (status != KVT_OK)
		fprintf(stderr, "kvtier trace: %s: its cache did not answer: %s\n", folder,
			strerror(errno));
	return status;
}

static bool ask_ring(const char *folder, unsigned ring, char *answer, struct kvt_traces *into)
{
	json_int_t since = -1, next = 0;
	char request[64];

	while (next > since) {
		since = next;
		(void)snprintf(request, sizeof(request), "trace 1 %u %lld", ring, (long long)since);
		if (ask(folder, request, answer) != KVT_OK ||
			!take_answer(folder, answer, into, &next))
			return false;
	}
	return true;
}

static bool ask_owner(const char *folder, struct kvt_traces *into)
{
	struct kvt_owner owner;
	char *answer;
	bool good = true;

	kvt_store_owner(folder, &owner);
	if (!owner.alive) {
		fprintf(stderr,
			"kvtier trace: %s: no cache uses it now; a trace ends with its cache\n",
			folder);
		return false;
	}
	answer = malloc(KVT_ADMIN_LINE);
	for (unsigned ring = 0; ring < RINGS && good; ring++)
		good = answer != NULL && ask_ring(folder, ring, answer, into);
	free(answer);
	return good;
}

/* --- from standard input ---------------------------------------------------------------------- */

static bool read_lines(FILE *in, struct kvt_traces *into)
{
	char line[LINE_MOST];
	bool good = true;

	while (good && fgets(line, sizeof(line), in) != NULL)
		good = kvt_traces_add_take(into, json_loads(line, 0, NULL));
	return good;
}

/* --- the verb --------------------------------------------------------------------------------- */

/* The options of the command line. */
struct words {
	const char *key, *slow, *last;
	bool miss, failed, json;
};

static bool number(const char *text, double most, double *out)
{
	char *end;

	*out = *text >= '0' && *text <= '9' ? strtod(text, &end) : -1;
	return *out >= 0 && *end == '\0' && *out <= most;
}

static bool read_words(const struct words *w, struct kvt_trace_filter *out)
{
	double last = LAST;

	*out = (struct kvt_trace_filter){.key = w->key,
		.wanted = (w->key != NULL ? KVT_FITS_KEY : 0u) |
			  (w->slow != NULL ? KVT_FITS_SLOW : 0u) | (w->miss ? KVT_FITS_MISS : 0u) |
			  (w->failed ? KVT_FITS_FAILED : 0u)};
	if (w->key != NULL &&
		(*w->key == '\0' || strspn(w->key, "0123456789abcdefABCDEF") != strlen(w->key)))
		kvt_command_wrong(
			"trace", "--key: found `%s`, expected hex digits of a key", w->key);
	else if (w->slow != NULL && !number(w->slow, 86400000, &out->slow_ms))
		kvt_command_wrong("trace", "--slow: found `%s`, expected milliseconds", w->slow);
	else if (w->last != NULL && !number(w->last, LAST_MOST, &last))
		kvt_command_wrong("trace", "--last: found `%s`, expected how many", w->last);
	else {
		out->last = (size_t)last;
		return true;
	}
	return false;
}

/* Shows the events of one cache. folder NULL: those on standard input. */
static int show(const char *folder, const struct kvt_trace_filter *filter, bool json, bool name)
{
	struct kvt_traces traces = {0};
	bool good = folder != NULL ? ask_owner(folder, &traces) : read_lines(stdin, &traces);

	if (good) {
		kvt_traces_sort(&traces, filter);
		if (name && !json)
			printf("%s\n", folder);
		if (kvt_traces_print(&traces, filter, json, stdout) == 0 && !json)
			fprintf(stderr, "kvtier trace: none of %zu events fits\n", traces.count);
	}
	kvt_traces_finish(&traces);
	return good ? KVT_EXIT_OK : KVT_EXIT_FAILED;
}

int kvt_command_trace(int argc, char **argv)
{
	struct words words = {0};
	const struct kvt_option options[] = {{"--key", &words.key, NULL},
		{"--slow", &words.slow, NULL}, {"--last", &words.last, NULL},
		{"--miss", NULL, &words.miss}, {"--failed", NULL, &words.failed},
		{"--json", NULL, &words.json}, {0}};
	struct kvt_trace_filter filter;
	struct kvt_stores stores;
	int result = KVT_EXIT_OK, given;
	const char *path[1];

	given = kvt_options_take(argc, argv, options, path, 1);
	if (given == 0)
		return kvt_command_wrong("trace", "expected a store's folder, or -");
	if (given != 1 || !read_words(&words, &filter))
		return KVT_EXIT_USAGE;
	if (strcmp(path[0], "-") == 0)
		return show(NULL, &filter, words.json, false);
	if (!kvt_stores_find("trace", path[0], &stores))
		return KVT_EXIT_FAILED;
	for (size_t i = 0; i < stores.count; i++) {
		int one = show(stores.folders[i], &filter, words.json, stores.count > 1);

		result = one > result ? one : result;
	}
	kvt_stores_finish(&stores);
	return result;
}
