/*
 * cache_routes.c - the routes /quota and /cache of LMCache 0.5.6's coordinator.
 *
 * Quotas and pins are the directory's. A prefetch and a deletion are passed on to the server that
 * the request names; the client waits for that server's answer, the feed's thread does not.
 */
#include <stdlib.h>
#include <string.h>

#include "feeds/coordinator/pages.h"
#include "feeds/coordinator/plan.h"
#include "feeds/coordinator/request.h"

#define GIB      1073741824.0
#define GIB_MOST 1e9 /* of a quota */

/* Tiers as a request may name them. */
enum tier { TIER_L1, TIER_L2, TIER_ALL };

static const char *const tier_names[] = {"l1", "l2", "all"};

/* False: it is none of the three. */
static bool read_tier(const char *text, enum tier *tier)
{
	for (size_t i = 0; i < sizeof(tier_names) / sizeof(tier_names[0]); i++)
		if (strcmp(text, tier_names[i]) == 0) {
			*tier = (enum tier)i;
			return true;
		}
	return false;
}

/* The tier of the query, L2 if it has none. False: it is answered. */
static bool query_tier(struct kvw_conn *conn, enum tier *tier)
{
	char text[8];

	*tier = TIER_L2;
	if (kvw_cr_parameter(&conn->clients->head, "tier", text, sizeof(text)) &&
		(text[0] == '\0' || read_tier(text, tier)))
		return true;
	kvw_cr_refuse_value(conn, "query", "tier", "Input should be 'l1', 'l2' or 'all'");
	return false;
}

/* The same of a body. */
static bool body_tier(struct kvw_conn *conn, const json_t *object, enum tier *tier)
{
	const json_t *member = json_object_get(object, "tier");

	if (member == NULL ||
		(json_is_string(member) && read_tier(json_string_value(member), tier)))
		return true;
	kvw_cr_refuse_value(conn, "body", "tier", "Input should be 'l1', 'l2' or 'all'");
	return false;
}

/* Only L2 has quotas. False: it is answered. */
static bool has_quotas(struct kvw_conn *conn, enum tier tier)
{
	char message[64];

	if (tier == TIER_L2)
		return true;
	(void)snprintf(message, sizeof(message), "quotas apply to tier 'l2' only, not '%s'",
		tier_names[tier]);
	kvw_coordinator_error(conn, 400, "", message);
	return false;
}

static bool has_usage(struct kvw_conn *conn, enum tier tier)
{
	if (tier != TIER_ALL)
		return true;
	kvw_coordinator_error(conn, 400, "", "tier 'all' has no usage accounting; only 'l1', 'l2'");
	return false;
}

/* --- quotas ----------------------------------------------------------------------------------- */

/* Reads a size in GiB; null: *given is false. False: it is answered. */
static bool size_member(struct kvw_conn *conn, const json_t *object, const char *name,
	bool may_lack, double *size, bool *given)
{
	const json_t *member = json_object_get(object, name);

	*given = json_is_number(member);
	*size = json_number_value(member);
	if ((*given && *size >= 0 && *size <= GIB_MOST) ||
		(may_lack && (member == NULL || json_is_null(member))))
		return true;
	kvw_cr_refuse_value(conn, "body", name,
		member == NULL ? "Field required" : "Input should be a number from 0 to 1e9");
	return false;
}

static void answer_config(struct kvw_conn *conn, bool given, double size)
{
	struct kvw_page page = {0};

	kvw_cd_put(&page, given ? "{'default_limit_gb':%f}" : "{'default_limit_gb':null}", size);
	kvw_cr_answer_take(conn, 200, &page);
}

static void put_config(struct kvw_conn *conn)
{
	json_t *object = kvw_cr_body(conn, KVW_CR_SMALL_MOST);
	struct kvw_cd_salts *salts = &kvw_cr_of(conn)->cd->salts;
	enum tier tier = TIER_L2;
	double size;
	bool given;

	if (object == NULL)
		return;
	if (size_member(conn, object, "default_limit_gb", true, &size, &given) &&
		body_tier(conn, object, &tier) && has_quotas(conn, tier)) {
		salts->has_default = given;
		salts->default_limit = given ? (uint64_t)(size * GIB) : 0;
		answer_config(conn, given, size);
	}
	json_decref(object);
}

static void get_config(struct kvw_conn *conn)
{
	const struct kvw_cd_salts *salts = &kvw_cr_of(conn)->cd->salts;
	enum tier tier;

	if (query_tier(conn, &tier) && has_quotas(conn, tier))
		answer_config(conn, salts->has_default, (double)salts->default_limit / GIB);
}

static void answer_quota(
	struct kvw_conn *conn, struct kvw_slice salt, double size, const char *status)
{
	struct kvw_page page = {0};

	kvw_cd_put(&page, "{'cache_salt':%S,'limit_gb':%f,'status':%s}", salt, size, status);
	kvw_cr_answer_take(conn, 200, &page);
}

static void put_quota(struct kvw_conn *conn, struct kvw_slice salt)
{
	json_t *object = kvw_cr_body(conn, KVW_CR_SMALL_MOST);
	enum tier tier = TIER_L2;
	double size;
	bool given;

	if (object == NULL)
		return;
	if (size_member(conn, object, "limit_gb", false, &size, &given) &&
		body_tier(conn, object, &tier) && has_quotas(conn, tier)) {
		if (kvw_cd_set_quota(kvw_cr_of(conn)->cd, salt, (uint64_t)(size * GIB)) == KVW_OK)
			answer_quota(conn, salt, size, "ok");
		else
			kvw_coordinator_error(
				conn, 503, "Retry-After: 10\r\n", "no room for another cache salt");
	}
	json_decref(object);
}

static void delete_quota(struct kvw_conn *conn, struct kvw_slice salt)
{
	enum tier tier;

	if (query_tier(conn, &tier) && has_quotas(conn, tier))
		answer_quota(conn, salt, 0,
			kvw_cd_drop_quota(kvw_cr_of(conn)->cd, salt) ? "removed" : "not_found");
}

/* salt NULL: all. */
static void get_quota(struct kvw_conn *conn, const struct kvw_slice *salt)
{
	struct kvw_page page = {0};
	enum tier tier;
	enum kvw_ce_tier of;

	if (!query_tier(conn, &tier) || !has_usage(conn, tier))
		return;
	of = tier == TIER_L1 ? KVW_CE_L1 : KVW_CE_L2;
	if (salt == NULL)
		kvw_cd_page_quotas(&page, kvw_cr_of(conn)->cd, of);
	else
		kvw_cd_page_quota(&page, kvw_cr_of(conn)->cd, *salt, of);
	kvw_cr_answer_take(conn, 200, &page);
}

/* /quota/config and /quota/SALT; the empty salt is written _default. */
static void one_quota(struct kvw_conn *conn, struct kvw_slice rest)
{
	bool config = kvw_slice_equal(rest, KVW_SLICE("config"));
	char text[KVW_CE_SALT_MOST + 1];
	struct kvw_slice salt = {text, 0};

	if (!kvw_target_decode(rest, false, text, sizeof(text), &salt.len) || salt.len == 0 ||
		strchr(text, '/') != NULL) {
		kvw_coordinator_error(conn, 404, "", "Not Found");
		return;
	}
	if (!kvw_cr_only_method(conn, "GET, PUT, DELETE"))
		return;
	if (kvw_slice_equal(salt, KVW_SLICE("_default")))
		salt.len = 0;
	if (kvw_cr_is_method(conn, "PUT")) {
		if (config)
			put_config(conn);
		else
			put_quota(conn, salt);
	} else if (kvw_cr_is_method(conn, "DELETE")) {
		delete_quota(conn, salt);
	} else if (config) {
		get_config(conn);
	} else {
		get_quota(conn, &salt);
	}
}

/* --- pins ------------------------------------------------------------------------------------- */

static bool pin_key(void *ctx, const struct kvw_ce_key *key)
{
	return kvw_cd_pin(ctx, key, 1) == KVW_OK;
}

static bool unpin_key(void *ctx, const struct kvw_ce_key *key)
{
	kvw_cd_unpin(ctx, key);
	return true;
}

static bool drop_pins(void *ctx, const struct kvw_ce_key *key)
{
	kvw_cd_drop_pins(ctx, key);
	return true;
}

static void change_pins(struct kvw_conn *conn, bool pin)
{
	json_t *object = kvw_cr_body(conn, KVW_CR_TOKENS_MOST);
	struct kvw_cd *cd = kvw_cr_of(conn)->cd;
	struct kvw_cr_tokens tokens;
	struct kvw_page page = {0};

	if (object == NULL)
		return;
	if (!kvw_cr_read_tokens(conn, object, true, &tokens)) {
		json_decref(object);
		return;
	}
	if (tokens.chunks * tokens.world > KVW_CD_PINS) {
		kvw_coordinator_error(conn, 400, "",
			"these tokens have more than 262144 keys, the most that can be pinned");
		json_decref(object);
		return;
	}
	if (pin && cd->pins.count + tokens.chunks * tokens.world > KVW_CD_PINS) {
		kvw_coordinator_error(conn, 503, "", "no room for so many pins");
		json_decref(object);
		return;
	}
	kvw_cr_each_key(kvw_cr_of(conn), &tokens, false, pin ? pin_key : unpin_key, cd);
	json_decref(object);
	kvw_cd_put(&page, "{'requested':%u,'affected':%u,'status':%s}", (uint64_t)tokens.chunks,
		(uint64_t)tokens.chunks * tokens.world, pin ? "pinned" : "unpinned");
	kvw_cr_answer_take(conn, 200, &page);
}

static void list_pins(struct kvw_conn *conn)
{
	char salt[KVW_CE_SALT_MOST + 1], model[KVW_CE_MODEL_MOST + 1];
	struct kvw_cd_pin_filter filter = {.limit = 1000};
	struct kvw_page page = {0};

	if (!kvw_cr_parameter(&conn->clients->head, "cache_salt", salt, sizeof(salt)) ||
		!kvw_cr_parameter(&conn->clients->head, "model_name", model, sizeof(model))) {
		kvw_cr_refuse_value(conn, "query", NULL, "the query cannot be read");
		return;
	}
	if (!kvw_cr_number(conn, "offset", 0, INT64_MAX, &filter.offset) ||
		!kvw_cr_number(conn, "limit", 1, 10000, &filter.limit))
		return;
	filter.salt = kvw_slice_of(salt);
	filter.model = kvw_slice_of(model);
	kvw_cd_page_pins(&page, kvw_cr_of(conn)->cd, &filter);
	kvw_cr_answer_take(conn, 200, &page);
}

static void pins(struct kvw_conn *conn)
{
	if (!kvw_cr_only_method(conn, "GET, POST, DELETE"))
		return;
	if (kvw_cr_is_method(conn, "GET"))
		list_pins(conn);
	else
		change_pins(conn, conn->clients->head.post_method);
}

/* --- requests that a server answers ----------------------------------------------------------- */

enum passed { PASSED_PREFETCH, PASSED_STATUS, PASSED_DELETE };

/* A request that is passed on. */
struct passing {
	struct kvw_wait wait; /* first */
	struct kvw_coordinator *coordinator;
	enum passed what;
	char instance[KVW_CE_INSTANCE_MOST + 1];
	json_t *object; /* owned: the request's body; NULL: none */
	struct kvw_cr_tokens tokens;
	bool drops_pins;
	uint64_t skipped; /* keys that pins hold */
};

static void free_passing(struct passing *passing)
{
	json_decref(passing->object);
	free(passing);
}

static uint64_t count_member(const json_t *object, const char *name)
{
	json_int_t value = json_integer_value(json_object_get(object, name));

	return value > 0 ? (uint64_t)value : 0;
}

static const char *text_member(const json_t *object, const char *name, const char *none)
{
	const json_t *text = json_object_get(object, name);

	return json_is_string(text) ? json_string_value(text) : none;
}

/* The answer to a deletion; result: the server's, NULL: it was not asked. */
static void answer_delete(struct kvw_conn *conn, const struct passing *passing,
	const json_t *result, const char *status)
{
	struct kvw_page page = {0};

	kvw_cd_put(&page,
		"{'instance_id':%s,'requested':%u,'affected':%u,'skipped':%u,'status':%s}",
		passing->instance, (uint64_t)passing->tokens.chunks,
		count_member(result, "deleted"), count_member(result, "skipped") + passing->skipped,
		status);
	kvw_cr_answer_take(conn, 200, &page);
}

static void answer_prefetch(
	struct kvw_conn *conn, const struct passing *passing, const json_t *result)
{
	struct kvw_page page = {0};

	kvw_cd_put(&page, "{'instance_id':%s,'request_id':%s,'chunks':%u,'status':%s}",
		passing->instance, text_member(result, "request_id", ""),
		count_member(result, "chunks"), text_member(result, "status", "submitted"));
	kvw_cr_answer_take(conn, 200, &page);
}

/* The server's answer and status as they are. */
static void answer_status(struct kvw_conn *conn, long status, struct kvw_slice text, bool is_json)
{
	struct kvw_page page = {0};

	if (is_json)
		kvw_page_put(&page, text.data, text.len);
	else
		kvw_cd_put(&page, "{'detail':%S}", text);
	kvw_cr_answer_take(conn, (int)status, &page);
}

static void answer_failure(
	struct kvw_conn *conn, const struct passing *passing, long status, struct kvw_slice why)
{
	static const char *const names[] = {
		"prefetch submit to", "prefetch status from", "delete to"};
	char message[KVW_CE_INSTANCE_MOST + 400];

	if (status == 0)
		(void)snprintf(message, sizeof(message), "%s '%s' failed: %.*s",
			names[passing->what], passing->instance,
			(int)(why.len < 300 ? why.len : 300), why.data);
	else
		(void)snprintf(message, sizeof(message), "%s '%s' failed: it answered %ld",
			names[passing->what], passing->instance, status);
	kvw_coordinator_error(conn, 502, "", message);
}

static void answer_passed(
	struct kvw_conn *conn, struct passing *passing, long status, struct kvw_slice text)
{
	json_t *result =
		status == 0 ? NULL : json_loadb(text.data, text.len, JSON_DECODE_ANY, NULL);

	if (status != 0 && passing->what == PASSED_STATUS)
		answer_status(conn, status, text, result != NULL);
	else if (status < 200 || status > 299 || !json_is_object(result))
		answer_failure(conn, passing, status, text);
	else if (passing->what == PASSED_PREFETCH)
		answer_prefetch(conn, passing, result);
	else
		answer_delete(conn, passing, result, "deleted");
	json_decref(result);
}

static void on_passed(void *ctx, long status, struct kvw_slice text)
{
	struct passing *passing = ctx;
	struct kvw_conn *conn = kvw_conn_settle(&passing->wait);

	if (passing->drops_pins && status >= 200 && status <= 299)
		kvw_cr_each_key(passing->coordinator, &passing->tokens, false, drop_pins,
			passing->coordinator->cd);
	if (conn != NULL) {
		answer_passed(conn, passing, status, text);
		kvw_conn_advance(conn);
	}
	free_passing(passing);
}

/* Sends the request on, and has the client wait. Takes passing and the body. */
static void pass_on_take(struct kvw_conn *conn, struct passing *passing, const char *method,
	const char *path, struct kvw_page *body)
{
	struct kvw_coordinator *coordinator = passing->coordinator;
	const struct kvw_cd_instance *server =
		kvw_cd_find_instance(coordinator->cd, kvw_slice_of(passing->instance));
	enum kvw_err err =
		kvw_calls_start(&coordinator->calls, &(struct kvw_call_options){.server = server,
							     .method = method,
							     .path = path,
							     .body = body,
							     .done = on_passed,
							     .ctx = passing});

	if (err == KVW_OK) {
		kvw_conn_await(conn, &passing->wait);
		return;
	}
	if (err == KVW_EINVAL)
		answer_failure(conn, passing, 0, KVW_SLICE("its address is none"));
	else
		kvw_coordinator_error(
			conn, 503, "Retry-After: 1\r\n", "too many requests to servers at once");
	free_passing(passing);
}

/* NULL: it is answered: the instance is not registered, or no memory. */
static struct passing *make_passing(struct kvw_conn *conn, enum passed what, struct kvw_slice id)
{
	const struct kvw_cd_instance *server = kvw_cd_find_instance(kvw_cr_of(conn)->cd, id);
	struct passing *passing = NULL;
	char message[KVW_CE_INSTANCE_MOST + 64];

	if (server == NULL || !server->registered) {
		(void)snprintf(message, sizeof(message),
			"no MP server registered with instance_id='%.*s'",
			(int)(id.len < KVW_CE_INSTANCE_MOST ? id.len : KVW_CE_INSTANCE_MOST),
			id.data);
		kvw_coordinator_error(conn, 404, "", message);
		return NULL;
	}
	passing = calloc(1, sizeof(*passing));
	if (passing == NULL) {
		kvw_coordinator_error(conn, 503, "", "out of memory");
		return NULL;
	}
	passing->coordinator = kvw_cr_of(conn);
	passing->what = what;
	(void)snprintf(passing->instance, sizeof(passing->instance), "%s", server->id);
	return passing;
}

/* The same for a body with tokens, which it takes. */
static struct passing *passing_of_take(struct kvw_conn *conn, enum passed what, json_t *object)
{
	const json_t *id = json_object_get(object, "instance_id");
	struct kvw_cr_tokens tokens;
	struct passing *passing = NULL;

	if (object == NULL)
		return NULL;
	if (!json_is_string(id))
		kvw_cr_refuse_value(conn, "body", "instance_id",
			id == NULL ? "Field required" : "Input should be a valid string");
	else if (kvw_cr_read_tokens(conn, object, true, &tokens))
		passing = make_passing(conn, what,
			(struct kvw_slice){json_string_value(id), json_string_length(id)});
	if (passing == NULL) {
		json_decref(object);
		return NULL;
	}
	passing->object = object;
	passing->tokens = tokens;
	return passing;
}

/* --- prefetches ------------------------------------------------------------------------------- */

static void put_tokens(struct kvw_page *page, const struct kvw_cr_tokens *tokens)
{
	kvw_cd_put(page, "{'model_name':%S,'world_size':%d,'cache_salt':%S,'token_ids':[",
		tokens->model, tokens->world, tokens->salt);
	for (size_t i = 0; i < json_array_size(tokens->ids); i++)
		kvw_cd_put(page, i == 0 ? "%u" : ",%u",
			(uint64_t)json_integer_value(json_array_get(tokens->ids, i)));
	kvw_page_string(page, "]}");
}

static void prefetch(struct kvw_conn *conn)
{
	struct passing *passing;
	struct kvw_page body = {0};

	if (!kvw_cr_only_method(conn, "POST"))
		return;
	passing = passing_of_take(conn, PASSED_PREFETCH, kvw_cr_body(conn, KVW_CR_TOKENS_MOST));
	if (passing == NULL)
		return;
	put_tokens(&body, &passing->tokens);
	pass_on_take(conn, passing, "POST", "/cache/prefetches", &body);
}

/* /cache/prefetches/INSTANCE/REQUEST */
static void prefetch_status(struct kvw_conn *conn, struct kvw_slice rest)
{
	const char *slash = memchr(rest.data, '/', rest.len);
	struct kvw_slice coded = {rest.data, slash == NULL ? 0 : (size_t)(slash - rest.data)}, id;
	struct kvw_slice request = {
		slash == NULL ? "" : slash + 1, slash == NULL ? 0 : rest.len - coded.len - 1};
	char text[KVW_CE_INSTANCE_MOST + 1], path[300];
	struct passing *passing;

	if (!kvw_target_decode(coded, false, text, sizeof(text), &id.len) || id.len == 0 ||
		request.len == 0 || request.len > 256 ||
		memchr(request.data, '/', request.len) != NULL) {
		kvw_coordinator_error(conn, 404, "", "Not Found");
		return;
	}
	id.data = text;
	if (!kvw_cr_only_method(conn, "GET"))
		return;
	passing = make_passing(conn, PASSED_STATUS, id);
	if (passing == NULL)
		return;
	(void)snprintf(
		path, sizeof(path), "/cache/prefetches/%.*s", (int)request.len, request.data);
	pass_on_take(conn, passing, "GET", path, NULL);
}

/* --- deletions -------------------------------------------------------------------------------- */

/* The keys of a deletion. */
struct deleting {
	const struct kvw_cd *cd;
	struct kvw_page *page;
	bool keeps_pinned;
	uint64_t keys, skipped;
};

static bool delete_key(void *ctx, const struct kvw_ce_key *key)
{
	struct deleting *deleting = ctx;

	if (deleting->keeps_pinned && kvw_cd_is_pinned(deleting->cd, key)) {
		deleting->skipped++;
		return true;
	}
	kvw_page_string(deleting->page, deleting->keys++ == 0 ? "" : ",");
	kvw_cd_page_key(deleting->page, key);
	return deleting->keys <= KVW_CD_PLAN_KEYS;
}

static void delete_keys_take(
	struct kvw_conn *conn, struct passing *passing, enum tier tier, bool force)
{
	struct kvw_coordinator *coordinator = passing->coordinator;
	struct kvw_page body = {0};
	struct deleting deleting = {
		.cd = coordinator->cd, .page = &body, .keeps_pinned = tier != TIER_L1 && !force};

	kvw_page_string(&body, "{\"keys\":[");
	kvw_cr_each_key(coordinator, &passing->tokens, true, delete_key, &deleting);
	kvw_cd_put(&body, "],'tier':%s,'force':%b}", tier_names[tier], force);
	passing->skipped = deleting.skipped;
	passing->drops_pins = tier != TIER_L1 && force;
	if (deleting.keys > 0 && deleting.keys <= KVW_CD_PLAN_KEYS) {
		pass_on_take(conn, passing, "DELETE", "/cache/objects", &body);
		return;
	}
	free(body.data);
	if (deleting.keys > 0)
		kvw_coordinator_error(conn, 400, "",
			"these tokens have more than 10000 keys, the most that a server deletes at "
			"once");
	else
		answer_delete(
			conn, passing, NULL, passing->tokens.chunks == 0 ? "noop" : "deleted");
	free_passing(passing);
}

static void delete_tokens(struct kvw_conn *conn)
{
	enum tier tier = TIER_ALL;
	const json_t *force;
	struct passing *passing;
	json_t *object;

	if (!kvw_cr_only_method(conn, "POST"))
		return;
	object = kvw_cr_body(conn, KVW_CR_TOKENS_MOST);
	force = json_object_get(object, "force");
	if (object == NULL)
		return;
	if (force != NULL && !json_is_boolean(force)) {
		kvw_cr_refuse_value(conn, "body", "force", "Input should be a valid boolean");
		json_decref(object);
		return;
	}
	if (!body_tier(conn, object, &tier)) {
		json_decref(object);
		return;
	}
	passing = passing_of_take(conn, PASSED_DELETE, object);
	if (passing != NULL)
		delete_keys_take(conn, passing, tier, json_is_true(force));
}

/* --- the table -------------------------------------------------------------------------------- */

/* Whether the path begins with `base`; *rest: what follows. */
static bool begins(struct kvw_slice path, struct kvw_slice base, struct kvw_slice *rest)
{
	*rest = (struct kvw_slice){path.data + base.len, path.len - base.len};
	return path.len > base.len && memcmp(path.data, base.data, base.len) == 0;
}

bool kvw_coordinator_cache_request(struct kvw_conn *conn, struct kvw_slice path)
{
	struct kvw_slice rest;

	if (kvw_slice_equal(path, KVW_SLICE("/quota"))) {
		if (kvw_cr_only_method(conn, "GET"))
			get_quota(conn, NULL);
	} else if (begins(path, KVW_SLICE("/quota/"), &rest)) {
		one_quota(conn, rest);
	} else if (kvw_slice_equal(path, KVW_SLICE("/cache/pins"))) {
		pins(conn);
	} else if (kvw_slice_equal(path, KVW_SLICE("/cache/delete"))) {
		delete_tokens(conn);
	} else if (kvw_slice_equal(path, KVW_SLICE("/cache/prefetches"))) {
		prefetch(conn);
	} else if (begins(path, KVW_SLICE("/cache/prefetches/"), &rest)) {
		prefetch_status(conn, rest);
	} else {
		return false;
	}
	return true;
}
