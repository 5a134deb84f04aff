/*
 * routes.c - the coordinator's requests: LMCache 0.5.6's routes but for /quota and /cache.
 *
 * Errors have LMCache's form, {"detail": ...}, but for the heartbeat of an unknown instance, which
 * has {"error": ...} there: the server registers again upon that 404.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "feeds/coordinator/pages.h"
#include "feeds/coordinator/request.h"

#define METADATA_MOST 16384u /* bytes of a registration's metadata, as JSON */
#define LOOKUP_MOST   10000u /* keys of a lookup */
#define COMPLAIN_NS   (10 * KVW_NS_PER_S)

/* --- instances -------------------------------------------------------------------------------- */

static struct kvw_slice trimmed(const char *text)
{
	size_t len = strlen(text);

	while (len > 0 && strchr(" \t\r\n", text[0]) != NULL) {
		text++;
		len--;
	}
	while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL)
		len--;
	return (struct kvw_slice){text, len};
}

/* The metadata as JSON, to be freed; NULL: not an object of texts, too long, or no memory. */
static char *metadata_of(json_t *metadata)
{
	const char *name;
	json_t *value;
	char *text;

	if (metadata == NULL)
		return strdup("{}");
	if (!json_is_object(metadata))
		return NULL;
	json_object_foreach(metadata, name, value) if (!json_is_string(value)) return NULL;
	text = json_dumps(metadata, JSON_COMPACT);
	if (text != NULL && strlen(text) > METADATA_MOST) {
		free(text);
		text = NULL;
	}
	return text;
}

/* False: error->text says what is wrong. */
static bool read_registration(json_t *object, struct kvw_cd_registration *registration,
	char **metadata, json_error_t *error)
{
	const char *id = "", *ip, *p2p_url = "";
	json_int_t http_port, mq_port = 0;
	json_t *hints = NULL;

	if (json_unpack_ex(object, error, 0, "{s?s, s:s, s:I, s?I, s?s, s?o}", "instance_id", &id,
		    "ip", &ip, "http_port", &http_port, "mq_port", &mq_port, "p2p_advertised_url",
		    &p2p_url, "metadata", &hints) != 0)
		return false;
	*metadata = metadata_of(hints);
	*registration = (struct kvw_cd_registration){.id = trimmed(id),
		.ip = trimmed(ip),
		.p2p_url = trimmed(p2p_url),
		.metadata = kvw_slice_of(*metadata),
		.http_port = (uint16_t)http_port,
		.mq_port = (uint16_t)mq_port};
	(void)snprintf(error->text, sizeof(error->text),
		"Expected an ip, ports below 65536, texts of at most 255, 1024 and 1024 bytes, "
		"and metadata of texts with at most 16 KiB");
	return registration->id.len <= KVW_CE_INSTANCE_MOST && registration->ip.len > 0 &&
	       registration->ip.len < NI_MAXHOST && registration->p2p_url.len <= 1024 &&
	       http_port > 0 && http_port <= UINT16_MAX && mq_port >= 0 && mq_port <= UINT16_MAX &&
	       *metadata != NULL;
}

/* A new name, as LMCache's coordinator makes them. */
static bool make_id(char id[40])
{
	unsigned char bytes[16];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return false;
	memcpy(id, "mp-", 3);
	for (size_t i = 0; i < sizeof(bytes); i++)
		(void)snprintf(id + 3 + 2 * i, 3, "%02x", bytes[i]);
	return true;
}

static void take_registration(struct kvw_conn *conn, struct kvw_cd_registration *registration)
{
	struct kvw_coordinator *coordinator = kvw_cr_of(conn);
	struct kvw_cd_instance *instance;
	struct kvw_page page = {0};
	char id[40];
	enum kvw_err err;
	bool again;

	if (registration->id.len == 0 && make_id(id))
		registration->id = kvw_slice_of(id);
	registration->wall_s = (double)kvw_clock_wall_ns() / 1e9;
	registration->now_ns = kvw_feed_now(coordinator->feed);
	err = registration->id.len == 0
		      ? KVW_ENOMEM
		      : kvw_cd_register(coordinator->cd, registration, &instance, &again);
	if (err != KVW_OK) {
		kvw_coordinator_error(
			conn, 503, "Retry-After: 10\r\n", "no room for another instance");
		return;
	}
	coordinator->remap = true;
	kvw_feed_heard_there(coordinator->feed);
	kvw_log(again ? KVW_LOG_DEBUG : KVW_LOG_INFO, "coordinator",
		"registered instance=%s at=%s:%u", instance->id, instance->ip, instance->http_port);
	kvw_cd_put(&page, "{'instance_id':%s,'re_registered':%b}", instance->id, again);
	kvw_cr_answer_take(conn, 200, &page);
}

static void register_instance(struct kvw_conn *conn)
{
	struct kvw_cd_registration registration;
	json_t *object = kvw_cr_body(conn, KVW_CR_SMALL_MOST);
	char *metadata = NULL;
	json_error_t error;

	if (object == NULL)
		return;
	if (read_registration(object, &registration, &metadata, &error))
		take_registration(conn, &registration);
	else
		kvw_cr_refuse_value(conn, "body", NULL, error.text);
	free(metadata);
	json_decref(object);
}

static void beat(struct kvw_conn *conn, struct kvw_slice id)
{
	struct kvw_page page = {0};
	bool known = kvw_cd_beat(kvw_cr_of(conn)->cd, id, kvw_feed_now(kvw_cr_of(conn)->feed));
	char message[KVW_CE_INSTANCE_MOST + 40];

	(void)snprintf(message, sizeof(message), "unknown instance %.*s; re-register",
		(int)(id.len < KVW_CE_INSTANCE_MOST ? id.len : KVW_CE_INSTANCE_MOST), id.data);
	if (known)
		kvw_cd_put(&page, "{'instance_id':%S}", id);
	else
		kvw_cd_put(&page, "{'error':%s}", message);
	kvw_cr_answer_take(conn, known ? 200 : 404, &page);
}

static void usage_of(struct kvw_conn *conn, struct kvw_slice id)
{
	struct kvw_page page = {0};
	char message[KVW_CE_INSTANCE_MOST + 32];

	if (kvw_cd_page_usage_of(&page, kvw_cr_of(conn)->cd, id)) {
		kvw_cr_answer_take(conn, 200, &page);
		return;
	}
	(void)snprintf(message, sizeof(message), "unknown instance '%.*s'",
		(int)(id.len < KVW_CE_INSTANCE_MOST ? id.len : KVW_CE_INSTANCE_MOST), id.data);
	kvw_coordinator_error(conn, 404, "", message);
}

/* /instances/ID, /instances/ID/heartbeat, /instances/ID/usage */
static void one_instance(struct kvw_conn *conn, struct kvw_slice rest)
{
	const char *slash = memchr(rest.data, '/', rest.len);
	struct kvw_slice id = {rest.data, slash == NULL ? rest.len : (size_t)(slash - rest.data)};
	struct kvw_slice what = {rest.data + id.len, rest.len - id.len};
	char text[KVW_CE_INSTANCE_MOST + 1];

	if (!kvw_target_decode(id, false, text, sizeof(text), &id.len) || id.len == 0) {
		kvw_coordinator_error(conn, 404, "", "Not Found");
		return;
	}
	id.data = text;
	if (kvw_slice_equal(what, KVW_SLICE("/heartbeat"))) {
		if (kvw_cr_only_method(conn, "PUT"))
			beat(conn, id);
	} else if (kvw_slice_equal(what, KVW_SLICE("/usage"))) {
		if (kvw_cr_only_method(conn, "GET"))
			usage_of(conn, id);
	} else if (what.len > 0) {
		kvw_coordinator_error(conn, 404, "", "Not Found");
	} else if (kvw_cr_only_method(conn, "DELETE")) {
		kvw_cd_leave(kvw_cr_of(conn)->cd, id);
		kvw_cr_of(conn)->remap = true;
		kvw_conn_answer(conn, &(struct kvw_http_answer){.status = 204});
	}
}

/* --- events ----------------------------------------------------------------------------------- */

/* A body of events that is being applied. */
struct applying {
	struct kvw_coordinator *coordinator;
	struct kvw_cd_instance *instance; /* of the batch; NULL: it is not applied */
	struct kvw_ce_batch batch;        /* the one before, to be ended */
	uint64_t applied, duplicates, stale, refused;
};

/* Ends the batch that is being applied. */
static void end_batch(struct applying *a)
{
	struct kvw_coordinator_node *node;
	struct kvw_coordinator *coordinator = a->coordinator;

	if (a->instance == NULL)
		return;
	kvw_cd_batch_end(coordinator->cd, a->instance, &a->batch);
	kvw_coordinator_cover(coordinator, a->instance);
	kvw_feed_count(coordinator->feed, KVW_FEED_BATCHES, 1);
	node = a->instance->user;
	for (uint32_t i = 0; node != NULL && i < node->count; i++)
		kvw_feed_heard(coordinator->feed, node->workers[i], KVW_REPORTER_LMCACHE,
			a->batch.seq, (int64_t)(a->batch.ts * 1e9));
	a->instance = NULL;
}

static bool on_batch(void *ctx, const struct kvw_ce_batch *batch)
{
	struct applying *a = ctx;

	end_batch(a);
	a->batch = *batch;
	switch (kvw_cd_batch(
		a->coordinator->cd, batch, kvw_feed_now(a->coordinator->feed), &a->instance)) {
	case KVW_CD_APPLIED:
		a->applied++;
		if (batch->type == KVW_CE_CONFIG) {
			end_batch(a);
			return false;
		}
		return true;
	case KVW_CD_DUPLICATE:
		a->duplicates++;
		break;
	case KVW_CD_STALE:
		a->stale++;
		break;
	case KVW_CD_FULL:
		a->refused++;
		break;
	}
	a->instance = NULL;
	return false;
}

static void on_entry(void *ctx, const struct kvw_ce_batch *batch, const struct kvw_ce_entry *entry)
{
	struct applying *a = ctx;

	kvw_cd_entry(a->coordinator->cd, a->instance, batch, entry);
	kvw_feed_count(a->coordinator->feed, KVW_FEED_EVENTS, 1);
}

static void refuse_events(struct kvw_conn *conn)
{
	struct kvw_coordinator *coordinator = kvw_cr_of(conn);
	int64_t now_ns = kvw_feed_now(coordinator->feed);

	kvw_feed_count(coordinator->feed, KVW_FEED_REFUSED, 1);
	if (coordinator->complained_ns == 0 || now_ns - coordinator->complained_ns >= COMPLAIN_NS) {
		coordinator->complained_ns = now_ns;
		kvw_warn("coordinator", "refused events: %s", coordinator->reader->error);
	}
	kvw_cr_refuse_value(conn, "body", NULL, coordinator->reader->error);
}

/* Checks the whole body first: a request is applied as a whole or not at all. */
static void take_events(struct kvw_conn *conn)
{
	struct kvw_coordinator *coordinator = kvw_cr_of(conn);
	struct applying a = {.coordinator = coordinator};
	const struct kvw_ce_sink sink = {.batch = on_batch, .entry = on_entry, .ctx = &a};
	struct kvw_slice body = kvw_conn_body(conn);
	struct kvw_page page = {0};

	if (body.len == 0)
		body = KVW_SLICE(" ");
	kvw_feed_count(coordinator->feed, KVW_FEED_MESSAGES, 1);
	kvw_feed_count(coordinator->feed, KVW_FEED_BYTES, body.len);
	if (kvw_ce_read(coordinator->reader, body, NULL) != KVW_OK) {
		refuse_events(conn);
		return;
	}
	if (kvw_ce_read(coordinator->reader, body, &sink) != KVW_OK)
		kvw_error("coordinator", "events that were checked cannot be read: %s",
			coordinator->reader->error);
	end_batch(&a);
	kvw_feed_heard_there(coordinator->feed);
	if (a.refused > 0) {
		kvw_coordinator_error(
			conn, 503, "Retry-After: 10\r\n", "no room for another instance");
		return;
	}
	coordinator->posts++;
	kvw_coordinator_evict(coordinator);
	kvw_cd_put(&page, "{'applied':%u,'duplicates':%u,'stale':%u}", a.applied, a.duplicates,
		a.stale);
	kvw_cr_answer_take(conn, 200, &page);
}

/* --- the directory ---------------------------------------------------------------------------- */

static void look_up(struct kvw_conn *conn, const json_t *keys)
{
	struct kvw_page page = {0};
	char hash[KVW_CE_HASH_MOST];
	struct kvw_ce_key key;
	json_t *item;
	size_t i;

	kvw_cd_put(&page, "{'chunks':%u,'results':[", (uint64_t)json_array_size(keys));
	json_array_foreach(keys, i, item)
	{
		if (page.len > KVW_CD_PAGE_MOST)
			break;
		if (!kvw_cr_read_key(item, hash, &key)) {
			free(page.data);
			kvw_cr_refuse_value(conn, "body", "keys",
				"a key is {chunk_hash_hex, model_name, kv_rank, object_group_id, "
				"cache_salt}");
			return;
		}
		kvw_page_string(&page, i == 0 ? "" : ",");
		kvw_cd_page_result(&page, kvw_cr_of(conn)->cd, &key);
	}
	kvw_page_string(&page, "]}");
	kvw_cr_answer_keys_take(conn, &page);
}

/* An answer to a lookup by token ids that is being written. */
struct looking {
	struct kvw_page page;
	const struct kvw_cd *cd;
	bool first;
};

static bool look_up_key(void *ctx, const struct kvw_ce_key *key)
{
	struct looking *looking = ctx;

	kvw_page_string(&looking->page, looking->first ? "" : ",");
	kvw_cd_page_result(&looking->page, looking->cd, key);
	looking->first = false;
	return looking->page.len <= KVW_CD_PAGE_MOST;
}

static void look_up_tokens(struct kvw_conn *conn, json_t *object)
{
	struct looking looking = {.cd = kvw_cr_of(conn)->cd, .first = true};
	struct kvw_cr_tokens tokens;

	if (!kvw_cr_read_tokens(conn, object, false, &tokens))
		return;
	kvw_cd_put(&looking.page, "{'chunks':%u,'results':[", (uint64_t)tokens.chunks);
	kvw_cr_each_key(kvw_cr_of(conn), &tokens, true, look_up_key, &looking);
	kvw_page_string(&looking.page, "]}");
	kvw_cr_answer_keys_take(conn, &looking.page);
}

static void take_lookup(struct kvw_conn *conn)
{
	json_t *object = kvw_cr_body(conn, KVW_CR_TOKENS_MOST);
	const json_t *keys = json_object_get(object, "keys");
	const json_t *tokens = json_object_get(object, "token_ids");

	if (object == NULL)
		return;
	if ((keys != NULL && !json_is_array(keys)) || (tokens != NULL && !json_is_array(tokens)))
		kvw_cr_refuse_value(conn, "body", NULL, "keys and token_ids are lists");
	else if ((json_array_size(keys) > 0) == (json_array_size(tokens) > 0))
		kvw_cr_refuse_value(
			conn, "body", NULL, "supply exactly one of 'keys' or 'token_ids'");
	else if (json_array_size(tokens) > 0)
		look_up_tokens(conn, object);
	else if (json_array_size(keys) > LOOKUP_MOST)
		kvw_cr_refuse_value(conn, "body", "keys", "at most 10000 keys");
	else
		look_up(conn, keys);
	json_decref(object);
}

/* LMCache's answer without --enable-blend-lookup, which is its default. */
static void blend_lookup(struct kvw_conn *conn)
{
	json_t *object = kvw_cr_body(conn, KVW_CR_SMALL_MOST);

	if (object == NULL)
		return;
	json_decref(object);
	kvw_conn_answer(conn, &(struct kvw_http_answer){.status = 200,
				      .type = "application/json",
				      .body = KVW_SLICE("{\"matches\":[]}")});
}

static void list_keys(struct kvw_conn *conn)
{
	const struct kvw_head *head = &conn->clients->head;
	char tier[8], instance[KVW_CE_INSTANCE_MOST + 1], backend[KVW_CE_BACKEND_MOST + 1];
	struct kvw_cd_filter filter = {.limit = 1000};
	struct kvw_page page = {0};

	if (!kvw_cr_parameter(head, "tier", tier, sizeof(tier)) ||
		(tier[0] != '\0' && strcmp(tier, "all") != 0 && strcmp(tier, "l1") != 0 &&
			strcmp(tier, "l2") != 0)) {
		kvw_cr_refuse_value(conn, "query", "tier", "Input should be 'l1', 'l2' or 'all'");
		return;
	}
	if (!kvw_cr_parameter(head, "instance_id", instance, sizeof(instance)) ||
		!kvw_cr_parameter(head, "backend", backend, sizeof(backend))) {
		kvw_cr_refuse_value(conn, "query", NULL, "the query cannot be read");
		return;
	}
	if (!kvw_cr_number(conn, "offset", 0, INT64_MAX, &filter.offset) ||
		!kvw_cr_number(conn, "limit", 1, 10000, &filter.limit))
		return;
	filter.any_tier = tier[0] == '\0' || tier[0] == 'a';
	filter.tier = strcmp(tier, "l2") == 0 ? KVW_CE_L2 : KVW_CE_L1;
	filter.instance = kvw_slice_of(instance);
	filter.backend = kvw_slice_of(backend);
	kvw_cd_page_keys(&page, kvw_cr_of(conn)->cd, &filter);
	kvw_cr_answer_keys_take(conn, &page);
}

/* --- the table -------------------------------------------------------------------------------- */

static void health(struct kvw_conn *conn)
{
	kvw_conn_answer(conn, &(struct kvw_http_answer){.status = 200,
				      .type = "application/json",
				      .body = KVW_SLICE("{\"status\":\"healthy\"}")});
}

static void metrics(struct kvw_conn *conn)
{
	struct kvw_page page = {0};

	kvw_cd_page_metrics(&page, kvw_cr_of(conn)->cd);
	kvw_cr_answer(conn, 200, "text/plain; version=0.0.4; charset=utf-8", "", &page);
	free(page.data);
}

static void instances(struct kvw_conn *conn)
{
	struct kvw_page page = {0};

	if (conn->clients->head.post_method) {
		register_instance(conn);
		return;
	}
	kvw_cd_page_instances(&page, kvw_cr_of(conn)->cd);
	kvw_cr_answer_take(conn, 200, &page);
}

static void usage(struct kvw_conn *conn)
{
	struct kvw_page page = {0};

	kvw_cd_page_usage(&page, kvw_cr_of(conn)->cd);
	kvw_cr_answer_take(conn, 200, &page);
}

static void stats(struct kvw_conn *conn)
{
	struct kvw_page page = {0};

	kvw_cd_page_stats(&page, kvw_cr_of(conn)->cd);
	kvw_cr_answer_take(conn, 200, &page);
}

struct route {
	const char *path, *methods;
	void (*serve)(struct kvw_conn *conn);
};

static const struct route routes[] = {
	{"/healthz", "GET", health},
	{"/metrics", "GET", metrics},
	{"/instances", "GET, POST", instances},
	{"/instances/usage", "GET", usage},
	{"/events", "POST", take_events},
	{"/directory/lookup", "POST", take_lookup},
	{"/directory/blend-lookup", "POST", blend_lookup},
	{"/directory/keys", "GET", list_keys},
	{"/directory/stats", "GET", stats},
};

void kvw_coordinator_request(struct kvw_conn *conn)
{
	struct kvw_slice path = kvw_target_path(conn->clients->head.target);
	const struct kvw_slice one = KVW_SLICE("/instances/");

	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		if (!kvw_slice_equal(path, kvw_slice_of(routes[i].path)))
			continue;
		if (kvw_cr_only_method(conn, routes[i].methods))
			routes[i].serve(conn);
		return;
	}
	if (path.len > one.len && memcmp(path.data, one.data, one.len) == 0) {
		one_instance(conn, (struct kvw_slice){path.data + one.len, path.len - one.len});
		return;
	}
	if (kvw_coordinator_cache_request(conn, path))
		return;
	kvw_coordinator_error(conn, 404, "", "Not Found");
}
