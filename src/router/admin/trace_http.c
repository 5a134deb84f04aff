/*
 * trace_http.c - serves traces.
 *
 *	GET /trace?id=ID&model=NAME&worker=URL&slow=MS&status=5xx&last=N&since=CURSOR
 *
 * The answer is JSON lines: a request each, as trace_page.h writes it, in the order in which they
 * began; at the end {"cursor": ..., "lost": N}. Without `since` these are all requests that are
 * remembered, including those under way; with it, those that have ended since the answer from which
 * the cursor came. A cursor names the kvway that gave it (by the time when its trace began), and
 * for each loop the number of requests that had ended. So `lost` is exact: how many requests have
 * ended and were overwritten before they were asked for.
 */
#include "admin/trace_http.h"

#include <stdlib.h>
#include <string.h>

#include "admin/http.h"
#include "admin/trace_page.h"
#include "base/clock.h"
#include "trace/trace.h"
#include "http/target.h"

#define LAST_DEFAULT 1000
#define LAST_MOST    10000

/* A question for traces: filters, and the form of the answer; the texts are owned. */
struct question {
	char *id, *model, *worker, *since; /* NULL: any */
	int64_t slow_ns;
	int status_from, status_to; /* 0, 0: any */
	size_t last;
};

/* A record that matches, by the position at which it is read again. */
struct match {
	int64_t wall_ns, start_ns;
	size_t loop, record;
};

/* How many requests of each loop had ended at the cursor, and have ended now. */
struct span {
	uint64_t from, to, found;
};

/* --- the question --- */

static bool digits(const char *text, uint64_t most, uint64_t *value)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	*value = strtoull(text, &end, 10);
	return *end == '\0' && *value <= most;
}

/* Reads a number. False: it is wrong, and the request was answered. */
static bool take_number(
	struct kvw_conn *conn, const char *name, uint64_t least, uint64_t most, uint64_t *value)
{
	char *text, message[160];
	bool good = kvw_admin_http_parameter(&conn->clients->head, name, &text) &&
		    (text == NULL || (digits(text, most, value) && *value >= least));

	if (!good) {
		(void)snprintf(message, sizeof(message),
			"%s: found `%.40s`, expected a number from %llu to %llu", name,
			text == NULL ? "" : text, (unsigned long long)least,
			(unsigned long long)most);
		kvw_admin_http_error(conn, 400, "", message);
	}
	free(text);
	return good;
}

/* "503" or "5xx". */
static bool take_status(struct kvw_conn *conn, struct question *q)
{
	char *text, message[160];
	uint64_t status = 0;
	bool good = kvw_admin_http_parameter(&conn->clients->head, "status", &text);

	if (good && text != NULL && strlen(text) == 3 && text[0] >= '1' && text[0] <= '5' &&
		strcmp(text + 1, "xx") == 0) {
		q->status_from = (text[0] - '0') * 100;
		q->status_to = q->status_from + 99;
	} else if (good && text != NULL) {
		good = digits(text, 599, &status) && status >= 100;
		q->status_from = q->status_to = (int)status;
	}
	if (!good) {
		(void)snprintf(message, sizeof(message),
			"status: found `%.40s`, expected one such as 503, or 5xx",
			text == NULL ? "" : text);
		kvw_admin_http_error(conn, 400, "", message);
	}
	free(text);
	return good;
}

/* Reads the question. False: it has a mistake, and the request was answered. */
static bool take_question(struct kvw_conn *conn, struct question *q)
{
	static const char *const names[] = {
		"id", "model", "worker", "slow", "status", "last", "since", NULL};
	const struct kvw_head *head = &conn->clients->head;
	uint64_t slow_ms = 0, last = LAST_DEFAULT;

	if (!kvw_admin_http_query_is(conn, head, names))
		return false;
	if (!kvw_admin_http_parameter(head, "id", &q->id) ||
		!kvw_admin_http_parameter(head, "model", &q->model) ||
		!kvw_admin_http_parameter(head, "worker", &q->worker) ||
		!kvw_admin_http_parameter(head, "since", &q->since)) {
		kvw_admin_http_error(conn, 400, "", "the query cannot be read");
		return false;
	}
	if (!take_number(conn, "slow", 0, 86400000, &slow_ms) ||
		!take_number(conn, "last", 1, LAST_MOST, &last) || !take_status(conn, q))
		return false;
	q->slow_ns = (int64_t)slow_ms * KVW_NS_PER_MS;
	q->last = (size_t)last;
	return true;
}

static void release_question(struct question *q)
{
	free(q->id);
	free(q->model);
	free(q->worker);
	free(q->since);
}

/* --- the cursor: BORN-N-N..., one N for each loop --- */

/* Parses a cursor. False: it is not one. If it is of another process, or of other loops, no request
 * counts as ended at the cursor. */
static bool read_cursor(const struct kvw_trace *trace, const char *text, struct span *spans)
{
	size_t loops = kvw_trace_loops(trace), count = 0;
	char *at;
	bool ours;

	if (strspn(text, "0123456789-") != strlen(text) || *text < '0')
		return false;
	ours = strtoll(text, &at, 10) == kvw_trace_born_ns(trace);
	while (*at == '-') {
		uint64_t ended = strtoull(at + 1, &at, 10);

		if (ours && count < loops && ended <= spans[count].to)
			spans[count].from = ended;
		count++;
	}
	return *at == '\0';
}

static void put_cursor(
	const struct kvw_trace *trace, const struct span *spans, bool since, struct kvw_page *out)
{
	uint64_t lost = 0;

	kvw_page_string(out, "{\"cursor\":\"");
	kvw_page_i64(out, kvw_trace_born_ns(trace));
	for (size_t i = 0; i < kvw_trace_loops(trace); i++) {
		kvw_page_string(out, "-");
		kvw_page_u64(out, spans[i].to);
		lost += spans[i].to - spans[i].from - spans[i].found;
	}
	kvw_page_string(out, "\",\"lost\":");
	kvw_page_u64(out, since ? lost : 0);
	kvw_page_string(out, "}\n");
}

/* --- which requests --- */

/* Compares a text with a stored one, which may have been cut. */
static bool is_text(const char *wanted, struct kvw_slice stored, size_t most)
{
	size_t len = strlen(wanted);

	return (stored.len == len || (stored.len == most && len > most)) &&
	       memcmp(wanted, stored.data, stored.len) == 0;
}

static bool has_trace(const struct kvw_trace_story *story, const char *wanted)
{
	char id[KVW_TRACE_ID_LEN];

	kvw_trace_id(id, &story->context);
	return story->context.span != 0 && strlen(wanted) == sizeof(id) &&
	       memcmp(wanted, id, sizeof(id)) == 0;
}

/* Returns whether the request went to this worker, given by its URL or its host:port. */
static bool asked(
	const struct kvw_fleet *fleet, const struct kvw_trace_story *story, const char *worker)
{
	for (size_t i = 0; i < story->note_count; i++) {
		const char *url = story->notes[i].kind == KVW_TRACE_ATTEMPT ||
						  story->notes[i].kind == KVW_TRACE_LEG
					  ? kvw_trace_worker_url(fleet, story->notes[i].more)
					  : NULL;
		const char *host = url == NULL ? NULL : strstr(url, "://");

		if (url != NULL && (strcmp(url, worker) == 0 ||
					   (host != NULL && strcmp(host + 3, worker) == 0)))
			return true;
	}
	return false;
}

static bool fits(const struct question *q, const struct kvw_fleet *fleet,
	const struct kvw_trace_story *story, int64_t now_ns)
{
	int64_t total_ns = story->ended != 0 ? story->total_ns : now_ns - story->start_ns;

	if (total_ns < q->slow_ns ||
		(q->status_to != 0 && (story->ended == 0 || story->status < q->status_from ||
					      story->status > q->status_to)))
		return false;
	if (q->id != NULL && !has_trace(story, q->id) &&
		!is_text(q->id, kvw_trace_story_text(story, story->id_word, story->id_len),
			KVW_TRACE_ID_MOST))
		return false;
	if (q->model != NULL &&
		!is_text(q->model, kvw_trace_story_text(story, story->model_word, story->model_len),
			KVW_TRACE_MODEL_MOST))
		return false;
	return q->worker == NULL || asked(fleet, story, q->worker);
}

static int by_begin(const void *a, const void *b)
{
	const struct match *x = a, *y = b;

	return x->wall_ns < y->wall_ns ? -1 : x->wall_ns > y->wall_ns;
}

/* Collects matching requests in *out, which the caller frees. False: out of memory. */
static bool find_requests(const struct kvw_trace *trace, const struct kvw_fleet *fleet,
	const struct question *q, int64_t now_ns, struct span *spans, struct match **out,
	size_t *count)
{
	struct kvw_trace_story story;
	size_t room = 0;

	for (size_t loop = 0; loop < kvw_trace_loops(trace); loop++) {
		for (size_t record = 0; record < kvw_trace_records(trace); record++) {
			if (!kvw_trace_read(trace, loop, record, &story) ||
				(q->since != NULL && (story.ended <= spans[loop].from ||
							     story.ended > spans[loop].to)))
				continue;
			spans[loop].found++;
			if (!fits(q, fleet, &story, now_ns))
				continue;
			if (*count == room) {
				struct match *grown;

				room = room == 0 ? 256 : 2 * room;
				grown = realloc(*out, room * sizeof(**out));
				if (grown == NULL)
					return false;
				*out = grown;
			}
			(*out)[(*count)++] =
				(struct match){story.wall_ns, story.start_ns, loop, record};
		}
	}
	if (*count > 0)
		qsort(*out, *count, sizeof(**out), by_begin);
	return true;
}

/* Writes a match. False: its record was overwritten meanwhile, and it is left out. to: number of
 * ended requests of its loop; a request that has ended since is shown as it was then, under way,
 * since the next answer shows its end. */
static bool put_match(const struct kvw_trace *trace, const struct kvw_fleet *fleet,
	const struct match *match, uint64_t to, int64_t now_ns, struct kvw_page *out)
{
	struct kvw_trace_story story;

	if (!kvw_trace_read(trace, match->loop, match->record, &story) ||
		story.start_ns != match->start_ns)
		return false;
	if (story.ended > to)
		story.ended = 0;
	kvw_trace_page(trace, fleet, &story, now_ns, out);
	return true;
}

static void answer_question(const struct kvw_trace *trace, const struct kvw_fleet *fleet,
	const struct question *q, struct kvw_conn *conn)
{
	struct span *spans = calloc(kvw_trace_loops(trace), sizeof(*spans));
	struct match *matches = NULL;
	struct kvw_page page = {0};
	int64_t now_ns = kvw_clock_ns();
	size_t count = 0;

	for (size_t i = 0; spans != NULL && i < kvw_trace_loops(trace); i++)
		spans[i].to = kvw_trace_ended(trace, i);
	if (spans != NULL && q->since != NULL && !read_cursor(trace, q->since, spans)) {
		kvw_admin_http_error(conn, 400, "",
			"since: found no cursor, expected that of an earlier answer");
		goto out;
	}
	if (spans != NULL && find_requests(trace, fleet, q, now_ns, spans, &matches, &count)) {
		for (size_t i = count > q->last ? count - q->last : 0; i < count; i++)
			if (!put_match(trace, fleet, &matches[i], spans[matches[i].loop].to, now_ns,
				    &page) &&
				q->since != NULL)
				spans[matches[i].loop].found--;
		put_cursor(trace, spans, q->since != NULL, &page);
	} else {
		page.failed = true;
	}
	kvw_admin_http_answer(conn, 200, "application/x-ndjson",
		(struct kvw_slice){page.failed ? NULL : page.data, page.len});
out:
	free(page.data);
	free(matches);
	free(spans);
}

bool kvw_trace_http(
	const struct kvw_trace *trace, const struct kvw_fleet *fleet, struct kvw_conn *conn)
{
	struct question q = {0};

	if (!kvw_slice_equal(kvw_target_path(conn->clients->head.target), KVW_SLICE("/trace")))
		return false;
	if (!kvw_admin_http_method(conn, "GET, HEAD") || !take_question(conn, &q))
		goto out;
	if (trace == NULL)
		kvw_admin_http_error(conn, 404, "", "requests are not traced: trace.requests is 0");
	else
		answer_question(trace, fleet, &q, conn);
out:
	release_question(&q);
	return true;
}
