/*
 * status.c - makes the document of /status, and serves it and the page.
 *
 *	traces --seen.c--------> prefixes, unknown models --+
 *	metrics --history.c----> the last hour -------------+--> document --> /ui, kvway top,
 *	fleet --workers_now.c--> workers, slow ones --------+                 kvway explain
 *	                          all of these --problems*.c-> what is wrong
 *
 * The loops do nothing for it: the control thread reads what they count for /metrics anyway.
 */
#include "status/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/http.h"
#include "fleet/wake/wakes.h"
#include "http/target.h"
#include "status/problems.h"
#include "status/ui.h"

#define FRESH_NS  (KVW_NS_PER_S / 2) /* a document this young is shown again */
#define RATE_NS   (60 * KVW_NS_PER_S)
#define RECENT_NS (5 * 60 * KVW_NS_PER_S)

struct kvw_status {
	struct kvw_history history;
	struct kvw_seen seen;
	char *text; /* the newest document; owned; NULL: none yet */
	int64_t made_ns, born_ns;
};

enum kvw_err kvw_status_create(struct kvw_status **out)
{
	struct kvw_status *status = calloc(1, sizeof(*status));

	if (status == NULL)
		return KVW_ENOMEM;
	status->born_ns = kvw_clock_ns();
	*out = status;
	return KVW_OK;
}

void kvw_status_destroy(struct kvw_status *status)
{
	if (status == NULL)
		return;
	kvw_seen_finish(&status->seen);
	free(status->text);
	free(status);
}

/* --- parts of the document --- */

static json_t *about_json(
	const struct kvw_status *status, const struct kvw_admin_facts *facts, int64_t now_ns)
{
	const struct kvw_strategy *strategy = facts->deps->fleet->strategy;

	return json_pack("{s:s, s:s, s:f, s:f, s:b, s:b, s:b}", "version", KVW_VERSION, "strategy",
		strategy == NULL ? "none" : strategy->ops->name, "uptime_seconds",
		(double)(now_ns - status->born_ns) / KVW_NS_PER_S, "time",
		(double)kvw_clock_wall_ns() / KVW_NS_PER_S, "draining", (int)facts->draining,
		"keys", facts->deps->admin_auth != NULL, "traced", facts->deps->trace != NULL);
}

static json_t *counts_json(
	const struct kvw_metrics_totals *from, const struct kvw_metrics_totals *to)
{
	json_t *root = json_object();

	for (int i = 0; i < KVW_TOTAL_COUNT; i++)
		json_object_set_new(root, kvw_total_name((enum kvw_total)i),
			json_integer((json_int_t)kvw_history_grown(from, to, (enum kvw_total)i)));
	return root;
}

static void put_first_token(json_t *root, const char *key, const struct kvw_metrics *metrics,
	const struct kvw_metrics_totals *from, const struct kvw_metrics_totals *to, double share)
{
	double seconds = kvw_totals_first_token(metrics, from, to, share);

	json_object_set_new(root, key, seconds < 0 ? json_null() : json_real(seconds * 1e3));
}

/* Returns what the last minute brought, and over how many seconds that was. */
static json_t *minute_json(const struct kvw_status *status, const struct kvw_metrics *metrics,
	const struct kvw_metrics_totals *now, int64_t now_ns)
{
	const struct kvw_history_sample *from =
		kvw_history_before(&status->history, RATE_NS, now_ns);
	json_t *root = counts_json(&from->totals, now);

	json_object_set_new(
		root, "seconds", json_real((double)(now_ns - from->at_ns) / KVW_NS_PER_S));
	put_first_token(root, "ttft_p50_ms", metrics, &from->totals, now, 0.5);
	put_first_token(root, "ttft_p90_ms", metrics, &from->totals, now, 0.9);
	return root;
}

/* Returns what requests wait for now. */
static json_t *waiting_json(
	const struct kvw_admin_facts *facts, const struct kvw_metrics_totals *now, int64_t now_ns)
{
	const struct kvw_wake_model *model = atomic_load(&facts->deps->fleet->wakes->first);
	json_t *list = json_array();

	json_array_append_new(
		list, json_pack("{s:s, s:I, s:f}", "for", "room at a worker", "requests",
			      (json_int_t)now->waiting, "seconds", now->oldest_s));
	for (; model != NULL; model = model->next) {
		uint32_t held = atomic_load(&model->held);
		int64_t since_ns = atomic_load(&model->asleep_ns);
		char text[256];
		int len = snprintf(text, sizeof(text), "a worker of %.200s", model->name);

		if (held > 0)
			json_array_append_new(list,
				json_pack("{s:o, s:I, s:f}", "for",
					kvw_problem_text(text, (size_t)len), "requests",
					(json_int_t)held, "seconds",
					since_ns == 0
						? 0.0
						: (double)(now_ns - since_ns) / KVW_NS_PER_S));
	}
	return list;
}

static json_t *document(
	struct kvw_status *status, const struct kvw_admin_facts *facts, int64_t now_ns)
{
	static const struct kvw_metrics_totals nothing = {.waiting = 0};
	const struct kvw_metrics *metrics = facts->deps->metrics;
	const struct kvw_history_sample *recent;
	struct kvw_workers_now workers;
	struct kvw_metrics_totals now;
	struct kvw_problem_facts problems = {.admin = facts,
		.workers = &workers,
		.history = &status->history,
		.seen = &status->seen,
		.totals = &now,
		.now_ns = now_ns};
	json_t *root = json_object();

	kvw_history_tick(&status->history, metrics, now_ns);
	kvw_seen_tick(&status->seen, facts->deps->trace, now_ns);
	kvw_metrics_totals(metrics, now_ns, &now);
	if (root == NULL || kvw_workers_now_read(facts, now_ns, &workers) != KVW_OK) {
		json_decref(root);
		return NULL;
	}
	recent = kvw_history_before(&status->history, RECENT_NS, now_ns);
	json_object_set_new(root, "kvway", about_json(status, facts, now_ns));
	json_object_set_new(root, "problems", kvw_problems_json(&problems));
	json_object_set_new(root, "in_flight", json_integer((json_int_t)now.exchanges));
	json_object_set_new(root, "waiting", waiting_json(facts, &now, now_ns));
	json_object_set_new(root, "totals", counts_json(&nothing, &now));
	json_object_set_new(root, "minute", minute_json(status, metrics, &now, now_ns));
	json_object_set_new(root, "five_minutes", counts_json(&recent->totals, &now));
	json_object_set_new(root, "workers", kvw_workers_now_json(&workers, facts, now_ns));
	json_object_set_new(root, "prefixes",
		kvw_seen_prefixes_json(&status->seen, facts->deps->fleet, now_ns));
	json_object_set_new(
		root, "hour", kvw_history_json(&status->history, metrics, &now, now_ns));
	kvw_workers_now_finish(&workers);
	return root;
}

/* Makes the document again unless it is fresh. text NULL: out of memory. */
static void renew(struct kvw_status *status, const struct kvw_admin_facts *facts, int64_t now_ns)
{
	json_t *root;

	if (status->text != NULL && now_ns - status->made_ns < FRESH_NS)
		return;
	root = document(status, facts, now_ns);
	free(status->text);
	status->text =
		root == NULL ? NULL : json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(15));
	status->made_ns = now_ns;
	json_decref(root);
}

/* --- serving --- */

static void serve_document(struct kvw_status *status, const struct kvw_admin_facts *facts,
	struct kvw_conn *conn, int64_t now_ns)
{
	if (!kvw_admin_http_method(conn, "GET, HEAD"))
		return;
	renew(status, facts, now_ns);
	kvw_admin_http_answer(conn, 200, "application/json", kvw_slice_of(status->text));
}

static void serve_page(struct kvw_conn *conn)
{
	char extra[1024];
	int len = snprintf(extra, sizeof(extra),
		"Cache-Control: no-cache\r\nContent-Security-Policy: %s\r\n"
		"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n",
		kvw_ui_policy);

	if (kvw_admin_http_method(conn, "GET, HEAD"))
		kvw_conn_answer(conn, &(struct kvw_http_answer){.status = 200,
					      .type = "text/html; charset=utf-8",
					      .body = {kvw_ui, kvw_ui_len},
					      .extra = {extra, (size_t)len}});
}

static bool on_request(
	void *arg, const struct kvw_admin_facts *facts, struct kvw_conn *conn, int64_t now_ns)
{
	struct kvw_slice path = kvw_target_path(conn->clients->head.target);
	bool page = kvw_slice_equal(path, KVW_SLICE("/ui"));

	if (!page && !kvw_slice_equal(path, KVW_SLICE("/status")))
		return false;
	if (page)
		serve_page(conn);
	else
		serve_document(arg, facts, conn, now_ns);
	return true;
}

static void on_tick(void *arg, const struct kvw_admin_facts *facts, int64_t now_ns)
{
	struct kvw_status *status = arg;

	kvw_history_tick(&status->history, facts->deps->metrics, now_ns);
	kvw_history_note_moved(&status->history, facts->deps->fleet, now_ns);
	kvw_seen_tick(&status->seen, facts->deps->trace, now_ns);
}

struct kvw_admin_pages kvw_status_pages(struct kvw_status *status)
{
	return (struct kvw_admin_pages){.tick = on_tick, .serve = on_request, .arg = status};
}
