/*
 * local.c - answers kvway's own paths.
 *
 * All answers except /metrics and /v1/usage are made at once, from a few atomics; usage is read
 * under a lock that is held for microseconds. /metrics is the control
 * thread's text (admin/metrics_copy.h): where no text is new enough, the exchange waits for the
 * next tick. SageMaker's /ping asks whether requests can be served, so kvway answers it like
 * /ready.
 */
#include "proxy/local.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/metrics_copy.h"
#include "http/target.h"
#include "proxy/cors.h"
#include "proxy/reply.h"
#include "usage/page.h"

#define TEXT_TYPE       "text/plain; charset=utf-8"
#define MOST_ID         1024 /* longest name of a model to look up, bytes */
#define METRICS_WAIT_NS KVW_NS_PER_S /* after this time the control thread counts as stuck */

static void reply_metrics(struct kvw_exchange *x, struct kvw_metrics_text *text)
{
	kvw_reply(x, 200, KVW_METRICS_TYPE, NULL, text->data, text->len);
	kvw_metrics_text_put(text);
}

static struct kvw_exchange_list *want_metrics(struct kvw_loop *loop)
{
	return &loop->want_metrics;
}

static const struct kvw_wait_kind metrics_text = {
	.name = "metrics",
	.text = "the text of /metrics",
	.list = want_metrics,
};

static void begin_metrics(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_metrics_text *text;

	if (!loop->config->http_metrics) {
		kvw_reply_error_as(x, 404, "NotFoundError", NULL, NULL,
			"metrics are not shown here: http.metrics is false");
		return;
	}
	text = kvw_admin_metrics(loop->admin, loop->now_ns);
	if (text != NULL) {
		reply_metrics(x, text);
		return;
	}
	kvw_wait_begin(x, &metrics_text, 0);
}

bool kvw_local_metrics(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_metrics_text *text = kvw_admin_metrics(loop->admin, loop->now_ns);

	if (text == NULL && loop->now_ns - x->wait.since_ns < METRICS_WAIT_NS)
		return false;
	kvw_wait_end(x, text != NULL ? KVW_WAITED : KVW_WAITED_EXPIRED);
	if (text != NULL)
		reply_metrics(x, text);
	else
		kvw_reply_error_as(x, 503, NULL, NULL, "retry-after: 1\r\n",
			"the metrics were not written in time");
	return true;
}

bool kvw_local_preflight(struct kvw_exchange *x)
{
	char fields[KVW_CORS_ROOM];

	if (!kvw_cors_own_preflight(x))
		return false;
	if (kvw_cors_preflight(x, &x->loop->request_head, fields))
		kvw_reply(x, 200, TEXT_TYPE, fields, "OK", 2);
	else
		kvw_reply(x, 400, TEXT_TYPE, NULL, "Disallowed CORS origin", 22);
	return true;
}

/* --- /v1/models/{id} --- */

/* Returns an entry of the list of models, as text that the caller frees; NULL: no such entry, or
 * out of memory. */
static char *entry_of(const struct kvw_local_answer *list, struct kvw_slice id)
{
	json_t *all = json_loadb(list->body, list->len, 0, NULL);
	char *text = NULL;
	json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(all, "data"), i, entry) {
		struct kvw_slice name =
			kvw_slice_of(json_string_value(json_object_get(entry, "id")));

		if (text == NULL && kvw_slice_equal(name, id))
			text = json_dumps(entry, JSON_COMPACT | JSON_PRESERVE_ORDER);
	}
	json_decref(all);
	return text;
}

/* Answers with the model's entry of /v1/models as this client sees it, or 404. path: as received,
 * without query. Names of models have slashes, which some clients write plainly and some as %2F.
 * The entry comes from the list itself, so both answers agree, and a key sees the entry in both or
 * in neither. */
static void answer_one_model(struct kvw_exchange *x, struct kvw_slice path)
{
	const struct kvw_slice list_path = KVW_SLICE("/v1/models");
	struct kvw_local_answer list;
	char id[MOST_ID], message[MOST_ID + 64];
	char *text = NULL;
	size_t len = kvw_path_model(path, id, sizeof(id));

	if (len > 0) {
		if (kvw_admin_answer(x->loop->admin, list_path, x->caller.key, x->loop->now_ns,
			    &list) != KVW_OK) {
			kvw_reply_error(x, 500, "out of memory");
			return;
		}
		text = entry_of(&list, (struct kvw_slice){id, len});
		free(list.body);
	}
	if (text != NULL) {
		kvw_reply(x, 200, "application/json", NULL, text, kvw_slice_of(text).len);
	} else {
		(void)snprintf(
			message, sizeof(message), "The model `%.*s` does not exist.", (int)len, id);
		kvw_reply_error_as(x, 404, "NotFoundError", "model", NULL, message);
	}
	free(text);
}

/* --- /v1/usage --- */

/* Sets *since_s by the query. False: it is not a time, and the request was answered. */
static bool take_since(struct kvw_exchange *x, int64_t wall_s, int64_t *since_s)
{
	struct kvw_slice text = kvw_target_parameter(x->target, "since");
	char copy[40];
	bool good = text.data == NULL;

	if (!good && text.len < sizeof(copy)) {
		memcpy(copy, text.data, text.len);
		copy[text.len] = '\0';
		good = kvw_usage_since(copy, wall_s, since_s);
	}
	free((char *)text.data);
	if (!good)
		kvw_reply_error_as(x, 400, NULL, "since", NULL,
			"since: expected " KVW_USAGE_SINCE_EXPECTED);
	return good;
}

/* Shows a key what it has used; the control thread has collected that within the last second. */
static void answer_usage(struct kvw_exchange *x)
{
	int64_t wall_s = (x->loop->now_ns + x->loop->wall_offset_ns) / KVW_NS_PER_S;
	struct kvw_usage_question question = {0};
	struct kvw_page page = {0};
	struct kvw_slice key;

	if (x->caller.key == NULL || x->loop->shared->ledger == NULL) {
		kvw_reply_error_as(x, 404, "NotFoundError", NULL, NULL,
			x->caller.key == NULL
				? "without API keys (auth) there is no usage of a key"
				: "usage is not counted: usage.entries is 0");
		return;
	}
	if (!take_since(x, wall_s, &question.since_s))
		return;
	key = kvw_slice_of(x->caller.key->name);
	question.key = &key;
	kvw_usage_page(x->loop->shared->ledger, &question, wall_s, &page);
	if (page.failed)
		kvw_reply_error(x, 500, "out of memory");
	else
		kvw_reply(x, 200, "application/json", NULL, page.data, page.len);
	free(page.data);
}

bool kvw_local_answers(struct kvw_exchange *x)
{
	static const char *const usage_path[] = {"/v1/usage"};
	struct kvw_slice path = kvw_target_path(x->target);
	const struct kvw_head *head = &x->loop->request_head;
	struct kvw_local_answer answer;
	enum kvw_err err;
	bool ping;

	if (x->path.kind != KVW_PATH_LOCAL)
		return false;
	ping = kvw_slice_equal(path, KVW_SLICE("/ping"));
	if (!head->head_method && !head->get_method && !(ping && head->post_method)) {
		kvw_reply_error_as(x, 405, NULL, NULL,
			ping ? "allow: GET, HEAD, POST\r\n" : "allow: GET, HEAD\r\n",
			ping ? "this path answers GET, HEAD and POST"
			     : "this path answers GET and HEAD");
		return true;
	}
	if (kvw_slice_equal(path, KVW_SLICE("/metrics"))) {
		begin_metrics(x);
		return true;
	}
	if (x->path.model_card) {
		answer_one_model(x, path);
		return true;
	}
	if (x->dry != NULL) { /* a dry run's loop has no admin address to ask */
		kvw_reply_error(x, 400, "kvway answers this path itself");
		return true;
	}
	if (kvw_path_listed(x->target, usage_path, 1)) {
		answer_usage(x);
		return true;
	}
	if (ping)
		path = KVW_SLICE("/ready");
	err = kvw_admin_answer(x->loop->admin, path, x->caller.key, x->loop->now_ns, &answer);
	if (err == KVW_ENOTFOUND) { /* the path is another spelling of one of kvway's own paths */
		kvw_reply_error_as(x, 404, "NotFoundError", NULL, NULL, "not found");
	} else if (err != KVW_OK) {
		kvw_reply_error(x, 500, "out of memory");
	} else {
		kvw_reply(x, answer.status, answer.content_type, NULL, answer.body, answer.len);
		free(answer.body);
	}
	return true;
}
