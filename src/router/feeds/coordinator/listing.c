/*
 * listing.c - what L2 held before kvway knew of it: the listing of a server's objects.
 *
 * Events say what is stored from now on. What a shared L2 holds already, or got while reports were
 * lost, would stay unknown, and so would never be evicted. So a server that registers without being
 * known, and one whose reports have a gap, is asked for its L2's objects, page by page (`GET
 * /cache/objects`). LMCache 0.5.6 lists S3; what cannot be listed stays unknown until it is stored
 * again. A key that is new by a listing counts as used longest ago.
 *
 * One page of one server is under way at a time, and at most one in PAGE_NS. A shared pool is not
 * listed again for POOL_NS, except after a gap: the servers that mount it are asked in turn.
 * A server that fails rests for AGAIN_NS: others are listed meanwhile, from their first page on. If
 * there is none, the listing goes on where it failed.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "feeds/coordinator/directory_parts.h"
#include "feeds/coordinator/request.h"

#define FIRST_PAGE "/cache/objects?tier=l2&page_size=500"
#define PAGE_NS    (100 * KVW_NS_PER_MS)
#define AGAIN_NS   (30 * KVW_NS_PER_S) /* after a failure */
#define POOL_NS    (600 * KVW_NS_PER_S)

/* Adds an object to the directory, unless it is known. */
static void adopt(struct kvw_coordinator *coordinator, struct kvw_cd_instance *server,
	const struct kvw_ce_batch *batch, const json_t *item)
{
	struct kvw_cd *cd = coordinator->cd;
	const json_t *size = json_object_get(item, "size_bytes");
	struct kvw_ce_entry entry = {.offset = -1};
	struct kvw_cd_object *object;
	char hash[KVW_CE_HASH_MOST];

	if (!kvw_cr_read_key(json_object_get(item, "key"), hash, &entry.key) ||
		!json_is_integer(size) || json_integer_value(size) < 0)
		return;
	object = kvw_cd_find(cd, &entry.key);
	if (object != NULL && object->l2 != NULL)
		return;
	entry.size_bytes = (uint64_t)json_integer_value(size);
	cd->salts.touched = NULL;
	kvw_cd_store(cd, server, batch, &entry);
	object = kvw_cd_find(cd, &entry.key);
	if (object == NULL || object->l2 == NULL)
		return;
	kvw_cd_l2_age(cd, object->l2);
	coordinator->listing.keys++;
}

static void end_listing(struct kvw_coordinator *coordinator, struct kvw_cd_instance *server)
{
	struct kvw_coordinator_listing *listing = &coordinator->listing;

	server->l2_known = true;
	listing->path[0] = '\0';
	kvw_info("coordinator", "instance=%s has listed its L2 new_keys=%llu", server->id,
		(unsigned long long)listing->keys);
}

/* The path of the next page; "": there is none, or it would be the same page again. */
static void note_next(struct kvw_coordinator_listing *listing, const json_t *token)
{
	char next[sizeof(listing->path)] = "";
	char *coded = json_is_string(token) ? curl_easy_escape(NULL, json_string_value(token),
						      (int)json_string_length(token))
					    : NULL;

	if (coded != NULL && snprintf(next, sizeof(next), FIRST_PAGE "&page_token=%s", coded) >=
				     (int)sizeof(next))
		next[0] = '\0';
	curl_free(coded);
	if (strcmp(next, listing->path) == 0)
		next[0] = '\0';
	memcpy(listing->path, next, sizeof(next));
}

static void take_page(struct kvw_coordinator *coordinator, struct kvw_cd_instance *server,
	const json_t *page, int64_t now_ns)
{
	struct kvw_coordinator_listing *listing = &coordinator->listing;
	const char *adapter = json_string_value(json_object_get(page, "adapter"));
	struct kvw_ce_batch batch = {.type = KVW_CE_STORE,
		.tier = KVW_CE_L2,
		.incarnation = server->incarnation,
		.backend = kvw_slice_of(adapter),
		.shared = json_is_true(json_object_get(page, "shared"))};
	const json_t *item;
	size_t i;

	if (adapter == NULL || batch.backend.len == 0 || batch.backend.len > KVW_CE_BACKEND_MOST ||
		(batch.shared && !server->gap && listing->listed_ns != 0 &&
			now_ns - listing->listed_ns < POOL_NS &&
			strcmp(listing->listed, adapter) == 0)) {
		end_listing(coordinator, server);
		return;
	}
	json_array_foreach(json_object_get(page, "entries"), i, item)
		adopt(coordinator, server, &batch, item);
	note_next(listing, json_object_get(page, "next_page_token"));
	if (listing->path[0] != '\0')
		return;
	if (batch.shared) {
		listing->listed_ns = now_ns;
		(void)snprintf(listing->listed, sizeof(listing->listed), "%s", adapter);
	}
	end_listing(coordinator, server);
	kvw_coordinator_evict(coordinator);
}

static void on_page(void *ctx, long status, struct kvw_slice answer)
{
	struct kvw_coordinator *coordinator = ctx;
	struct kvw_coordinator_listing *listing = &coordinator->listing;
	struct kvw_cd_instance *server =
		kvw_cd_find_instance(coordinator->cd, kvw_slice_of(listing->instance));
	int64_t now_ns = kvw_feed_now(coordinator->feed);
	json_t *page = status == 200 ? json_loadb(answer.data, answer.len, 0, NULL) : NULL;

	listing->asking = false;
	listing->due_ns = now_ns + PAGE_NS;
	if (server == NULL || !server->registered)
		listing->path[0] = '\0';
	else if (json_is_object(page))
		take_page(coordinator, server, page, now_ns);
	else if (status == 0 || status == 500)
		server->list_rest_ns = now_ns + AGAIN_NS;
	else
		end_listing(coordinator, server); /* its L2 cannot be listed, or it has none */
	json_decref(page);
}

/* The server to ask, and its page in listing->path. NULL: none. */
static struct kvw_cd_instance *next_server(struct kvw_coordinator *coordinator, int64_t now_ns)
{
	struct kvw_coordinator_listing *listing = &coordinator->listing;
	struct kvw_cd_instance *at = NULL;

	if (listing->path[0] != '\0')
		at = kvw_cd_find_instance(coordinator->cd, kvw_slice_of(listing->instance));
	if (at == NULL || !at->registered)
		listing->path[0] = '\0';
	else if (now_ns >= at->list_rest_ns)
		return at;
	TAILQ_FOREACH(at, &coordinator->cd->instances, entry)
	if (at->registered && at->has_cursor && !at->l2_known && now_ns >= at->list_rest_ns)
		break;
	if (at == NULL)
		return NULL;
	(void)snprintf(listing->instance, sizeof(listing->instance), "%s", at->id);
	(void)snprintf(listing->path, sizeof(listing->path), "%s", FIRST_PAGE);
	return at;
}

void kvw_coordinator_list_tick(struct kvw_coordinator *coordinator, int64_t now_ns)
{
	struct kvw_coordinator_listing *listing = &coordinator->listing;
	struct kvw_cd_instance *server;

	if (listing->asking || now_ns < listing->due_ns || !kvw_coordinator_evicts(coordinator))
		return;
	server = next_server(coordinator, now_ns);
	if (server == NULL)
		return;
	listing->asking =
		kvw_calls_start(&coordinator->calls, &(struct kvw_call_options){.server = server,
							     .method = "GET",
							     .path = listing->path,
							     .done = on_page,
							     .ctx = coordinator,
							     .duty = true}) == KVW_OK;
	if (!listing->asking)
		server->list_rest_ns = now_ns + AGAIN_NS;
}
