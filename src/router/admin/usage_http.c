/*
 * usage_http.c - GET /usage?since=TIME&key=NAME&top=N&format=csv
 */
#include "admin/usage_http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/http.h"
#include "base/clock.h"
#include "http/target.h"
#include "usage/page.h"

static void refuse(
	struct kvw_conn *conn, const char *name, const char *found, const char *expected)
{
	char message[320];

	(void)snprintf(message, sizeof(message), "%s: found `%.40s`, expected %s", name,
		found == NULL ? "a query that cannot be read" : found, expected);
	kvw_admin_http_error(conn, 400, "", message);
}

static bool take_top(const char *text, size_t *top)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	*top = (size_t)value;
	return *text >= '1' && *text <= '9' && *end == '\0' && value <= 1000000;
}

/* Reads the parameters. False: one is wrong, and the request was answered. */
static bool take_question(struct kvw_conn *conn, int64_t wall_s, struct kvw_usage_question *q,
	struct kvw_slice *key, char *texts[4])
{
	static const char *const names[] = {"since", "key", "top", "format", NULL};
	const struct kvw_head *head = &conn->clients->head;

	if (!kvw_admin_http_query_is(conn, head, names))
		return false;
	for (size_t i = 0; i < 4; i++)
		if (!kvw_admin_http_parameter(head, names[i], &texts[i])) {
			refuse(conn, names[i], NULL, "a value");
			return false;
		}
	if (texts[0] != NULL && !kvw_usage_since(texts[0], wall_s, &q->since_s)) {
		refuse(conn, "since", texts[0], KVW_USAGE_SINCE_EXPECTED);
		return false;
	}
	if (texts[1] != NULL) {
		*key = kvw_slice_of(texts[1]);
		q->key = key;
	}
	if (texts[2] != NULL && !take_top(texts[2], &q->top)) {
		refuse(conn, "top", texts[2], "a number from 1 to 1000000");
		return false;
	}
	q->csv = texts[3] != NULL && strcmp(texts[3], "csv") == 0;
	if (texts[3] != NULL && !q->csv && strcmp(texts[3], "json") != 0) {
		refuse(conn, "format", texts[3], "json or csv");
		return false;
	}
	return true;
}

static void answer(struct kvw_ledger *ledger, const struct kvw_usage_question *q, int64_t wall_s,
	struct kvw_conn *conn)
{
	struct kvw_page page = {0};

	kvw_ledger_collect(ledger, wall_s);
	kvw_usage_page(ledger, q, wall_s, &page);
	kvw_admin_http_answer(conn, 200, q->csv ? "text/csv; charset=utf-8" : "application/json",
		(struct kvw_slice){page.failed ? NULL : page.data, page.len});
	free(page.data);
}

bool kvw_usage_http(struct kvw_ledger *ledger, struct kvw_conn *conn)
{
	int64_t wall_s = kvw_clock_wall_ns() / KVW_NS_PER_S;
	struct kvw_usage_question q = {0};
	struct kvw_slice key;
	char *texts[4] = {NULL};

	if (!kvw_slice_equal(kvw_target_path(conn->clients->head.target), KVW_SLICE("/usage")))
		return false;
	if (!kvw_admin_http_method(conn, "GET, HEAD") ||
		!take_question(conn, wall_s, &q, &key, texts))
		goto out;
	if (ledger == NULL)
		kvw_admin_http_error(conn, 404, "", "usage is not counted: usage.entries is 0");
	else
		answer(ledger, &q, wall_s, conn);
out:
	for (size_t i = 0; i < 4; i++)
		free(texts[i]);
	return true;
}
