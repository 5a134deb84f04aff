/*
 * lmcache_http.c - see lmcache_http.h.
 *
 *	control thread: read, ask ----> feed thread: carry out, done
 *	control thread: answer   <---- mail to the server's loop
 *
 * A ticket is one request that waits. The desk, by which a done ticket finds the loop, outlives this
 * object while the feed still holds one: a command to a worker may take seconds, and kvway may stop.
 */
#include "admin/lmcache_http.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "admin/http.h"
#include "feeds/lmcache/lmcache.h"
#include "base/log.h"

#define TOKENS_MAX ((size_t)4 << 20)

enum form { LOOKUP, QUERY, WORKER_INFO, CLEAR, PIN, HEALTH, WORKERS, KEY_STATS };

/* Where done tickets go. */
struct desk {
	pthread_mutex_t lock;         /* of loop */
	struct kvw_server_loop *loop; /* NULL: none takes them any more */
	_Atomic uint32_t refs;        /* the owner's and each ticket's */
};

struct ticket {
	struct kvw_wait wait; /* first */
	struct desk *desk;
	enum form form;
	char event_id[64];
	bool one_rank; /* WORKERS: a rank was asked for, not all */
	bool some_ranks;
	uint8_t ranks[32];                /* ... by bit, of those below 256 */
	struct kvw_lmcache_answer answer; /* rows are owned */
};

struct kvw_lmcache_http {
	struct kvw_feed *feed;
	struct desk *desk;
};

/* --- desk --- */

static void drop_desk(struct desk *desk)
{
	if (atomic_fetch_sub(&desk->refs, 1) != 1)
		return;
	pthread_mutex_destroy(&desk->lock);
	free(desk);
}

static void free_ticket(struct ticket *ticket)
{
	drop_desk(ticket->desk);
	free((void *)ticket->answer.rows);
	free(ticket);
}

static struct desk *make_desk(struct kvw_server_loop *loop)
{
	struct desk *desk = calloc(1, sizeof(*desk));

	if (desk == NULL)
		return NULL;
	pthread_mutex_init(&desk->lock, NULL);
	atomic_init(&desk->refs, 1);
	desk->loop = loop;
	return desk;
}

/* The feed's thread, or kvw_feed_stop. */
static void on_answer(void *arg, const struct kvw_lmcache_answer *answer)
{
	struct ticket *ticket = arg;
	struct desk *desk = ticket->desk;
	struct kvw_lmcache_row *rows = NULL;
	bool closed;

	ticket->answer = *answer;
	if (answer->count > 0) {
		rows = malloc(answer->count * sizeof(rows[0]));
		if (rows != NULL)
			memcpy(rows, answer->rows, answer->count * sizeof(rows[0]));
		else
			ticket->answer.err = KVW_ENOMEM;
	}
	ticket->answer.rows = rows;
	pthread_mutex_lock(&desk->lock);
	closed = desk->loop == NULL;
	if (!closed)
		kvw_server_loop_post(desk->loop, &ticket->wait.mail);
	pthread_mutex_unlock(&desk->lock);
	if (closed)
		free_ticket(ticket);
}

/* --- answers --- */

static void send_json(struct kvw_conn *conn, int status, json_t *body)
{
	char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;

	json_decref(body);
	kvw_conn_answer(conn,
		&(struct kvw_http_answer){.status = text != NULL ? status : 500,
			.type = "application/json",
			.body = kvw_slice_of(text),
			.extra = KVW_SLICE("Cache-Control: no-store\r\n")});
	free(text);
}

/* As FastAPI does. */
static void send_detail(struct kvw_conn *conn, int status, const char *detail)
{
	send_json(conn, status, json_pack("{s:s}", "detail", detail));
}

/* A member that is missing or ill-shaped, as FastAPI says it. */
static void send_invalid(struct kvw_conn *conn, const char *member, const char *what)
{
	send_json(conn, 422,
		json_pack("{s:[{s:s,s:[s,s],s:s}]}", "detail", "type", "value_error", "loc", "body",
			member, "msg", what));
}

static json_t *lookup_body(const struct ticket *ticket)
{
	json_t *layout = json_object();

	for (size_t i = 0; i < ticket->answer.count; i++) {
		const struct kvw_lmcache_row *row = &ticket->answer.rows[i];

		json_object_set_new(layout, row->instance,
			json_pack("[s,I]", row->location, (json_int_t)row->number));
	}
	return json_pack("{s:s,s:o}", "event_id", ticket->event_id, "layout_info", layout);
}

static json_t *health_body(const struct ticket *ticket)
{
	json_t *codes = json_object();
	char rank[16];

	for (size_t i = 0; i < ticket->answer.count; i++) {
		snprintf(rank, sizeof(rank), "%u", ticket->answer.rows[i].rank);
		json_object_set_new(
			codes, rank, json_integer((json_int_t)ticket->answer.rows[i].number));
	}
	return json_pack("{s:s,s:o}", "event_id", ticket->event_id, "error_codes", codes);
}

/* Ranks keep the same chunks; where they differ, fewest are what all of them did. */
static json_t *tokens_body(const struct ticket *ticket)
{
	int64_t fewest = ticket->answer.count > 0 ? INT64_MAX : 0;

	for (size_t i = 0; i < ticket->answer.count; i++)
		if (ticket->answer.rows[i].number < fewest)
			fewest = ticket->answer.rows[i].number;
	return json_pack(
		"{s:s,s:I}", "event_id", ticket->event_id, "num_tokens", (json_int_t)fewest);
}

static json_t *rank_body(const struct kvw_lmcache_row *row, bool with_keys)
{
	json_t *body = json_pack("{s:s,s:i,s:s,s:i,s:s?,s:f,s:f}", "instance_id", row->instance,
		"worker_id", (int)row->rank, "ip", row->ip, "port", (int)row->port, "peer_init_url",
		row->p2p[0] != '\0' ? row->p2p : NULL, "registration_time", row->registered_s,
		"last_heartbeat_time", row->heartbeat_s);

	if (with_keys && body != NULL)
		json_object_set_new(body, "key_count", json_integer((json_int_t)row->number));
	return body;
}

static bool is_asked(const struct ticket *ticket, uint32_t rank)
{
	return !ticket->some_ranks ||
	       (rank < 256 && (ticket->ranks[rank / 8] >> (rank % 8) & 1) != 0);
}

static json_t *ranks_body(const struct ticket *ticket)
{
	bool with_keys = ticket->form == WORKERS;
	json_t *list = json_array();
	size_t count;

	for (size_t i = 0; i < ticket->answer.count; i++)
		if (is_asked(ticket, ticket->answer.rows[i].rank))
			json_array_append_new(list, rank_body(&ticket->answer.rows[i], with_keys));
	count = json_array_size(list);
	if (!with_keys)
		return json_pack("{s:s,s:o}", "event_id", ticket->event_id, "worker_infos", list);
	return json_pack("{s:o,s:I}", "workers", list, "total_count", (json_int_t)count);
}

static json_t *key_stats_body(const struct ticket *ticket)
{
	json_t *instances = json_array();
	json_int_t keys = 0, total = 0;
	int ranks = 0, count = 0;

	for (size_t i = 0; i < ticket->answer.count;
		i++) { /* ranks of an instance follow each other */
		const struct kvw_lmcache_row *row = &ticket->answer.rows[i];
		bool last = i + 1 == ticket->answer.count ||
			    strcmp(ticket->answer.rows[i + 1].instance, row->instance) != 0;

		keys += row->number;
		ranks++;
		if (!last)
			continue;
		json_array_append_new(
			instances, json_pack("{s:s,s:I,s:i}", "instance_id", row->instance,
					   "key_count", keys, "worker_count", ranks));
		total += keys;
		count++;
		keys = ranks = 0;
	}
	return json_pack("{s:I,s:i,s:I,s:o}", "total_key_count", total, "total_instance_count",
		count, "total_worker_count", (json_int_t)ticket->answer.count, "instances",
		instances);
}

static int status_of(enum kvw_err err)
{
	switch (err) {
	case KVW_ENOTFOUND:
		return 404;
	case KVW_ETIMEDOUT:
		return 504;
	case KVW_ELIMIT:
	case KVW_ECLOSED:
		return 503;
	default:
		return 500;
	}
}

static void send_ticket(struct kvw_conn *conn, const struct ticket *ticket)
{
	const struct kvw_lmcache_answer *answer = &ticket->answer;
	bool none = ticket->form == WORKERS && answer->count == 0 && ticket->event_id[0] != '\0';

	if (answer->err != KVW_OK) {
		send_detail(conn, status_of(answer->err), answer->error);
		return;
	}
	switch (ticket->form) {
	case LOOKUP:
		send_json(conn, 200, lookup_body(ticket));
		break;
	case QUERY:
		send_json(conn, 200,
			json_pack("{s:s,s:s}", "event_id", ticket->event_id, "res",
				answer->rows[0].instance));
		break;
	case HEALTH:
		send_json(conn, 200, health_body(ticket));
		break;
	case CLEAR:
	case PIN:
		send_json(conn, 200, tokens_body(ticket));
		break;
	case WORKER_INFO:
		send_json(conn, 200, ranks_body(ticket));
		break;
	case WORKERS:
		for (size_t i = 0; ticket->one_rank && i < answer->count; i++)
			if (is_asked(ticket, answer->rows[i].rank)) {
				send_json(conn, 200, rank_body(&answer->rows[i], true));
				return;
			}
		if (ticket->one_rank || none)
			send_detail(conn, 404, "no such worker is registered");
		else
			send_json(conn, 200, ranks_body(ticket));
		break;
	case KEY_STATS:
		send_json(conn, 200, key_stats_body(ticket));
		break;
	}
}

static void deliver(struct kvw_mail *mail, struct kvw_server_loop *loop)
{
	struct ticket *ticket = (struct ticket *)mail;
	struct kvw_conn *conn = kvw_conn_settle(&ticket->wait);

	(void)loop;
	if (conn != NULL) {
		send_ticket(conn, ticket);
		kvw_conn_advance(conn);
	}
	free_ticket(ticket);
}

/* --- requests --- */

/* prefix and a random UUID, as LMCache makes them. */
static void make_event_id(char *text, size_t size, const char *prefix)
{
	uint8_t r[16] = {0};

	if (getrandom(r, sizeof(r), 0) < 0)
		kvw_debug("admin", "no random bytes error=%s", strerror(errno));
	snprintf(text, size,
		"%s%02x%02x%02x%02x-%02x%02x-4%x%02x-%x%x%02x-%02x%02x%02x%02x%02x%02x", prefix,
		r[0], r[1], r[2], r[3], r[4], r[5], r[6] & 15u, r[7], 8 + (r[8] & 3u), r[8] >> 4,
		r[9], r[10], r[11], r[12], r[13], r[14], r[15]);
}

/* Token ids of a JSON array. Caller frees. False: the client got an error. */
static bool read_tokens(
	struct kvw_conn *conn, const json_t *list, uint32_t **tokens, size_t *count)
{
	size_t size = json_array_size(list);
	const char *fault = NULL;

	if (!json_is_array(list))
		fault = "Input should be a valid list";
	else if (size > TOKENS_MAX)
		fault = "too many tokens";
	if (fault == NULL) {
		*tokens = malloc((size + 1) * sizeof(**tokens));
		fault = *tokens == NULL ? "out of memory" : NULL;
	}
	for (size_t i = 0; fault == NULL && i < size; i++) {
		const json_t *item = json_array_get(list, i);

		if (!json_is_integer(item) || json_integer_value(item) < 0 ||
			json_integer_value(item) > UINT32_MAX)
			fault = "Input should be a list of token ids";
		else
			(*tokens)[i] = (uint32_t)json_integer_value(item);
	}
	if (fault == NULL) {
		*count = size;
		return true;
	}
	send_invalid(conn, "tokens", fault);
	return false;
}

static void ask(struct kvw_lmcache_http *http, struct kvw_conn *conn,
	struct ticket *ticket, const struct kvw_lmcache_question *question)
{
	struct kvw_lmcache *lmcache = kvw_lmcache_of(http->feed);
	enum kvw_err err;

	kvw_conn_await(conn, &ticket->wait);
	err = kvw_lmcache_ask(lmcache, question, on_answer, ticket);
	if (err == KVW_OK)
		return;
	(void)!kvw_conn_settle(&ticket->wait);
	free_ticket(ticket);
	send_detail(conn, status_of(err),
		err == KVW_ENOMEM ? "out of memory" : "too many questions wait");
}

static struct ticket *make_ticket(struct kvw_lmcache_http *http, struct kvw_conn *conn,
	enum form form, const char *prefix)
{
	struct ticket *ticket = calloc(1, sizeof(*ticket));

	if (ticket == NULL) {
		send_detail(conn, 500, "out of memory");
		return NULL;
	}
	ticket->desk = http->desk;
	atomic_fetch_add(&http->desk->refs, 1);
	ticket->wait.mail.deliver = deliver;
	ticket->form = form;
	if (prefix != NULL)
		make_event_id(ticket->event_id, sizeof(ticket->event_id), prefix);
	return ticket;
}

/* What each path takes: members that must be there, and what they become. */
struct route {
	const char *path, *prefix; /* of the event id */
	enum form form;
	enum kvw_lmcache_verb verb;
	bool instance, location, tokens, ip;
};

static const struct route routes[] = {
	{"/lookup", "Lookup", LOOKUP, KVW_LMCACHE_LOOKUP, false, false, true, false},
	{"/query_instance", "QueryInst", QUERY, KVW_LMCACHE_QUERY, false, false, false, true},
	{"/query_worker_info", "QueryWorkerInfo", WORKER_INFO, KVW_LMCACHE_WORKERS, true, false,
		false, false},
	{"/clear", "Clear", CLEAR, KVW_LMCACHE_CLEAR, true, true, false, false},
	{"/pin", "Pin", PIN, KVW_LMCACHE_PIN, true, true, true, false},
	{"/health", "health", HEALTH, KVW_LMCACHE_HEALTH, true, false, false, false},
};

/* A text member. NULL: the client got an error. */
static const char *read_text(
	struct kvw_conn *conn, const json_t *body, const char *member, bool needed)
{
	const char *text = json_string_value(json_object_get(body, member));

	if (!needed)
		return "";
	if (text == NULL || strlen(text) > KVW_LMC_TEXT_MAX) {
		send_invalid(conn, member, "Input should be a valid string");
		return NULL;
	}
	return text;
}

static void choose_ranks(struct ticket *ticket, const json_t *list)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
	{
		json_int_t rank = json_integer_value(item);

		ticket->some_ranks = true;
		if (json_is_integer(item) && rank >= 0 && rank < 256)
			ticket->ranks[rank / 8] |= (uint8_t)(1u << (rank % 8));
	}
}

static void answer_body(struct kvw_lmcache_http *http, struct kvw_conn *conn,
	const struct route *route, const json_t *body)
{
	struct kvw_lmcache_question question = {.verb = route->verb};
	struct ticket *ticket;
	uint32_t *tokens = NULL;

	question.instance = read_text(conn, body, "instance_id", route->instance);
	if (question.instance == NULL)
		return;
	question.location = read_text(conn, body, "location", route->location);
	if (question.location == NULL)
		return;
	question.ip = read_text(conn, body, "ip", route->ip);
	if (question.ip == NULL)
		return;
	if (route->tokens && !read_tokens(conn, json_object_get(body, "tokens"), &tokens,
				     &question.token_count))
		goto out;
	ticket = make_ticket(http, conn, route->form, route->prefix);
	if (ticket == NULL)
		goto out;
	if (route->form == WORKER_INFO)
		choose_ranks(ticket, json_object_get(body, "worker_ids"));
	question.event_id = ticket->event_id;
	question.tokens = tokens;
	ask(http, conn, ticket, &question);
out:
	free(tokens);
}

static void answer_post(
	struct kvw_lmcache_http *http, struct kvw_conn *conn, const struct route *route)
{
	struct kvw_slice input = kvw_conn_body(conn);
	json_error_t error;
	json_t *body = json_loadb(input.data, input.len, 0, &error);

	if (!json_is_object(body))
		send_invalid(conn, "", "Input should be a JSON object");
	else
		answer_body(http, conn, route, body);
	json_decref(body);
}

/* GET /controller/workers?instance_id=&worker_id= and /controller/key-stats. */
static void answer_get(
	struct kvw_lmcache_http *http, struct kvw_conn *conn, enum form form)
{
	const struct kvw_head *head = &conn->clients->head;
	struct kvw_lmcache_question question = {.verb = KVW_LMCACHE_WORKERS, .instance = "all"};
	char *instance = NULL, *rank = NULL;
	struct ticket *ticket;

	if (form == WORKERS && kvw_admin_http_parameter(head, "instance_id", &instance))
		(void)!kvw_admin_http_parameter(head, "worker_id", &rank);
	if (instance != NULL)
		question.instance = instance;
	ticket = make_ticket(http, conn, form, instance != NULL ? "workers" : NULL);
	if (ticket != NULL) {
		if (instance != NULL && rank != NULL) {
			unsigned long number = strtoul(rank, NULL, 10);

			ticket->one_rank = ticket->some_ranks = true;
			if (number < 256)
				ticket->ranks[number / 8] |= (uint8_t)(1u << (number % 8));
		}
		ask(http, conn, ticket, &question);
	}
	free(instance);
	free(rank);
}

static bool is_unsupported(struct kvw_slice path)
{
	static const char *const paths[] = {"/move", "/compress", "/decompress", "/check_finish"};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (kvw_slice_equal(path, kvw_slice_of(paths[i])))
			return true;
	return false;
}

bool kvw_lmcache_http(struct kvw_lmcache_http *http, struct kvw_conn *conn)
{
	const struct kvw_head *head = &conn->clients->head;
	struct kvw_slice path = kvw_admin_http_path(head);
	bool post = head->post_method, get = head->get_method;
	bool workers, stats;
	const struct route *route = NULL;

	for (size_t i = 0; post && i < sizeof(routes) / sizeof(routes[0]); i++)
		if (kvw_slice_equal(path, kvw_slice_of(routes[i].path)))
			route = &routes[i];
	workers = get && kvw_slice_equal(path, KVW_SLICE("/controller/workers"));
	stats = get && kvw_slice_equal(path, KVW_SLICE("/controller/key-stats"));
	if (route == NULL && !workers && !stats && !(post && is_unsupported(path)))
		return false;
	if ((http->feed == NULL || kvw_lmcache_of(http->feed) == NULL) && route != NULL &&
		route->form == HEALTH)
		return false; /* that path is kvway's own, by GET */
	if (http->feed == NULL || kvw_lmcache_of(http->feed) == NULL)
		send_detail(conn, 503, "kvaware.lmcache is not configured here");
	else if (route != NULL)
		answer_post(http, conn, route);
	else if (workers || stats)
		answer_get(http, conn, workers ? WORKERS : KEY_STATS);
	else
		send_detail(conn, 501,
			"kvway does not carry this out: it can look up, query, "
			"clear, pin and ask for health");
	return true;
}

/* --- life --- */

enum kvw_err kvw_lmcache_http_create(
	struct kvw_server_loop *loop, struct kvw_feed *feed, struct kvw_lmcache_http **out)
{
	struct kvw_lmcache_http *http = calloc(1, sizeof(*http));

	if (http == NULL)
		return KVW_ENOMEM;
	http->feed = feed;
	http->desk = make_desk(loop);
	if (http->desk == NULL) {
		free(http);
		return KVW_ENOMEM;
	}
	*out = http;
	return KVW_OK;
}

void kvw_lmcache_http_destroy(struct kvw_lmcache_http *http)
{
	if (http == NULL)
		return;
	pthread_mutex_lock(&http->desk->lock);
	http->desk->loop = NULL;
	pthread_mutex_unlock(&http->desk->lock);
	drop_desk(http->desk);
	free(http);
}
