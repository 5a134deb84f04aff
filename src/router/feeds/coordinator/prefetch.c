/*
 * prefetch.c - has the server of the chosen worker load a prompt's chunks from L2 while the request
 * is on its way (kvaware.lmcache.prefetch).
 *
 * The loop that has chosen copies the prompt's tokens and posts them to the feed's thread, which
 * names the chunks and looks them up: from the first one on, those in the server's L1, and those
 * that are only in an L2 that the server has. If there are some of the latter, the server is asked
 * (`POST /cache/prefetches`), and then how far it is, since it keeps the result until it was asked.
 * A chunk is asked for once in FRESH_NS, so that many requests with one prefix ask once.
 *
 * Bounded: KVW_COORDINATOR_FETCHES prompts between here and the servers' answers; others are
 * counted and left alone. Nothing waits for a prefetch, and a failure costs nothing else. A server
 * at which most were in vain is left alone for a while (worth.h).
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "feeds/coordinator/pages.h"
#include "feeds/coordinator/parts.h"
#include "wire/lmcache_chunks.h"

#define TOKENS_MOST 1000000u /* of a prompt: LMCache's limit */
#define CHUNKS_MIN  1u       /* cold chunks that are worth a request */
#define WALK_MOST   256u     /* objects of one chunk, of all salts and ranks, that are looked at */
#define FRESH_NS    (10 * KVW_NS_PER_S) /* a chunk is asked for once in it */
#define POLL_NS     (200 * KVW_NS_PER_MS)
#define GIVE_UP_NS  (30 * KVW_NS_PER_S)

/* A prompt on its way. */
struct kvw_coordinator_fetch {
	LIST_ENTRY(kvw_coordinator_fetch) entry; /* while it is asked about */
	struct kvw_coordinator *coordinator;
	uint32_t worker;
	uint32_t number;  /* of the prompt, not 0 */
	uint32_t *tokens; /* owned */
	size_t count;
	char salt[KVW_CE_SALT_MOST + 1];
	char instance[KVW_CE_INSTANCE_MOST + 1];
	char path[300]; /* of its status; "": it has none yet */
	bool asking;
	int64_t due_ns, end_ns;
	int64_t running_ns; /* when the server last said that it still loads; 0: it did not */
};

static void end_fetch(struct kvw_coordinator_fetch *fetch, bool listed)
{
	if (listed)
		LIST_REMOVE(fetch, entry);
	atomic_fetch_sub(&fetch->coordinator->prefetch.count, 1);
	free(fetch->tokens);
	free(fetch);
}

/* --- whether it was of use -------------------------------------------------------------------- */

static uint32_t ms_of(int64_t ns)
{
	return (uint32_t)(ns / KVW_NS_PER_MS);
}

void kvw_coordinator_first_token(
	struct kvw_coordinator *coordinator, uint32_t number, int64_t now_ns)
{
	atomic_store_explicit(&coordinator->prefetch.firsts[number % KVW_COORDINATOR_FETCHES],
		(uint64_t)number << 32 | ms_of(now_ns), memory_order_relaxed);
}

/* Returns whether the server still loaded after the prompt's first token. */
static bool came_late(const struct kvw_coordinator_fetch *fetch)
{
	uint64_t first = atomic_load_explicit(
		&fetch->coordinator->prefetch.firsts[fetch->number % KVW_COORDINATOR_FETCHES],
		memory_order_relaxed);

	return fetch->running_ns != 0 && first >> 32 == fetch->number &&
	       (int32_t)(ms_of(fetch->running_ns) - (uint32_t)first) > 0;
}

/* The server has answered for the last time, or not at all. */
static void judge(struct kvw_coordinator_fetch *fetch, bool loaded)
{
	struct kvw_coordinator *coordinator = fetch->coordinator;
	struct kvw_cd_instance *server =
		kvw_cd_find_instance(coordinator->cd, kvw_slice_of(fetch->instance));
	struct kvw_coordinator_node *node = server == NULL ? NULL : server->user;
	bool vain = !loaded || came_late(fetch);

	coordinator->prefetch.vain += vain;
	if (node == NULL ||
		!kvw_worth_note(&node->worth, vain, kvw_feed_now(coordinator->feed)))
		return;
	coordinator->prefetch.rested++;
	kvw_info("coordinator",
		"instance=%s: most of its last prefetches were in vain (failed, loaded nothing, or "
		"came after the first token): none for %d s",
		fetch->instance, (int)(KVW_WORTH_REST_NS / KVW_NS_PER_S));
}

/* --- which chunks are cold -------------------------------------------------------------------- */

enum heat { ABSENT, COLD, HOT };

static enum heat heat_of(const struct kvw_cd_object *object, const struct kvw_cd_instance *server)
{
	const struct kvw_cd_placement *at;
	enum heat heat = ABSENT;

	STAILQ_FOREACH(at, &object->placements, entry)
	{
		if (at->tier == KVW_CE_L1 && at->instance == server)
			return HOT;
		if (at->tier == KVW_CE_L2 && (at->shared || at->instance == server))
			heat = COLD;
	}
	return heat;
}

/* The first rank's object of a chunk under the salt; NULL: none, or it is one of very many. */
static struct kvw_cd_object *first_of(
	const struct kvw_cd *cd, struct kvw_slice hash, struct kvw_slice salt)
{
	const struct kvw_cd_binding *binding = kvw_cd_find_binding(cd, hash);
	struct kvw_cd_object *at;
	size_t seen = 0;

	if (binding == NULL)
		return NULL;
	LIST_FOREACH(at, &binding->objects, member)
	{
		struct kvw_slice own = {at->text + at->model_len, at->salt_len};

		if (++seen > WALK_MOST)
			return NULL;
		if (at->group == 0 && (at->rank >> 16 & 0xff) == 0 && kvw_slice_equal(salt, own))
			return at;
	}
	return NULL;
}

/* The heat of a chunk that all ranks must have. A cold one that was asked for lately is HOT. */
static enum heat chunk_heat(const struct kvw_cd *cd, const struct kvw_cd_object *first,
	const struct kvw_cd_instance *server, int64_t now_ns)
{
	struct kvw_ce_key key = kvw_cd_key_of(first);
	uint32_t world = first->rank >> 24;
	enum heat coldest = HOT;

	for (uint32_t rank = 0; rank < world; rank++) {
		const struct kvw_cd_object *object;
		enum heat heat;

		key.rank = world << 24 | rank << 16 | world << 8 | rank;
		object = kvw_cd_find(cd, &key);
		heat = object == NULL ? ABSENT : heat_of(object, server);
		coldest = heat < coldest ? heat : coldest;
	}
	if (coldest == COLD && first->l2 != NULL && first->l2->fetched_ns != 0 &&
		now_ns - first->l2->fetched_ns < FRESH_NS)
		return HOT;
	return coldest;
}

/* The part of a prompt that a server can load. */
struct loadable {
	size_t chunks, cold; /* chunks: from the first one on */
	struct kvw_slice model;
	uint32_t world;
};

static struct loadable look(const struct kvw_coordinator_fetch *fetch,
	const struct kvw_cd_instance *server, int64_t now_ns)
{
	const struct kvw_cd *cd = fetch->coordinator->cd;
	size_t size = (size_t)fetch->coordinator->deps->config->kvaware_lmcache_chunk;
	struct loadable found = {0};
	struct kvw_lmcache_chunks chunks;

	kvw_lmcache_chunks_start(&chunks);
	for (size_t at = 0; at + size <= fetch->count; at += size) {
		const struct kvw_cd_object *first;
		enum heat heat;

		kvw_lmcache_chunks_next(&chunks, fetch->tokens + at, size);
		first = first_of(cd,
			(struct kvw_slice){(const char *)chunks.hash, sizeof(chunks.hash)},
			kvw_slice_of(fetch->salt));
		heat = first == NULL ? ABSENT : chunk_heat(cd, first, server, now_ns);
		if (heat == ABSENT)
			break;
		found.chunks++;
		found.cold += heat == COLD;
		found.model = kvw_cd_key_of(first).model;
		found.world = first->rank >> 24;
		if (heat == COLD && first->l2 != NULL)
			first->l2->fetched_ns = now_ns;
	}
	return found;
}

/* --- asking the server ------------------------------------------------------------------------ */

static void write_body(
	struct kvw_page *page, const struct kvw_coordinator_fetch *fetch, struct loadable found)
{
	size_t count =
		found.chunks * (size_t)fetch->coordinator->deps->config->kvaware_lmcache_chunk;

	kvw_cd_put(page, "{'model_name':%S,'world_size':%d,'cache_salt':%s,'token_ids':[",
		found.model, found.world, fetch->salt);
	for (size_t i = 0; i < count; i++)
		kvw_cd_put(page, i == 0 ? "%d" : ",%d", fetch->tokens[i]);
	kvw_page_string(page, "]}");
}

static bool is_plain(const char *text)
{
	return text[0] != '\0' && strlen(text) < 200 &&
	       text[strspn(text,
		       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")] ==
		       '\0';
}

static void on_begun(void *ctx, long status, struct kvw_slice answer)
{
	struct kvw_coordinator_fetch *fetch = ctx;
	struct kvw_coordinator *coordinator = fetch->coordinator;
	json_t *object = status >= 200 && status <= 299
				 ? json_loadb(answer.data, answer.len, 0, NULL)
				 : NULL;
	const char *id = json_string_value(json_object_get(object, "request_id"));

	if (id != NULL && is_plain(id)) {
		(void)snprintf(fetch->path, sizeof(fetch->path), "/cache/prefetches/%s", id);
		fetch->due_ns = kvw_feed_now(coordinator->feed) + POLL_NS;
		LIST_INSERT_HEAD(&coordinator->prefetch.fetches, fetch, entry);
	} else {
		coordinator->prefetch.failures += !json_is_object(object);
		judge(fetch, false);
		end_fetch(fetch, false);
	}
	json_decref(object);
}

static void begin(struct kvw_feed *feed, void *arg)
{
	struct kvw_coordinator_fetch *fetch = arg;
	struct kvw_coordinator *coordinator = fetch->coordinator;
	struct kvw_cd_instance *server = coordinator->workers[fetch->worker].instance;
	struct kvw_page body = {0};
	struct loadable found = {0};
	int64_t now_ns = kvw_feed_now(feed);

	if (!kvw_feed_stopped(feed) && coordinator->in_charge && server != NULL &&
		server->registered &&
		!kvw_worth_rests(&((struct kvw_coordinator_node *)server->user)->worth, now_ns))
		found = look(fetch, server, now_ns);
	if (found.cold < CHUNKS_MIN) {
		end_fetch(fetch, false);
		return;
	}
	write_body(&body, fetch, found);
	(void)snprintf(fetch->instance, sizeof(fetch->instance), "%s", server->id);
	fetch->end_ns = now_ns + GIVE_UP_NS;
	coordinator->prefetch.begun++;
	if (kvw_calls_start(&coordinator->calls, &(struct kvw_call_options){.server = server,
							 .method = "POST",
							 .path = "/cache/prefetches",
							 .body = &body,
							 .done = on_begun,
							 .ctx = fetch}) != KVW_OK) {
		coordinator->prefetch.failures++;
		end_fetch(fetch, false);
	}
}

static void on_status(void *ctx, long status, struct kvw_slice answer)
{
	struct kvw_coordinator_fetch *fetch = ctx;
	struct kvw_coordinator *coordinator = fetch->coordinator;
	json_t *object = status == 200 ? json_loadb(answer.data, answer.len, 0, NULL) : NULL;
	const char *state = json_string_value(json_object_get(object, "status"));
	json_int_t keys = json_integer_value(json_object_get(object, "found_keys"));

	fetch->asking = false;
	if (state != NULL && strcmp(state, "pending") == 0 &&
		kvw_feed_now(coordinator->feed) < fetch->end_ns) {
		fetch->running_ns = kvw_feed_now(coordinator->feed);
		fetch->due_ns = fetch->running_ns + POLL_NS;
	} else {
		bool over = state != NULL && strcmp(state, "completed") == 0;

		coordinator->prefetch.keys += over && keys > 0 ? (uint64_t)keys : 0;
		coordinator->prefetch.failures += !over;
		judge(fetch, over && keys > 0);
		end_fetch(fetch, true);
	}
	json_decref(object);
}

void kvw_coordinator_prefetch_tick(struct kvw_coordinator *coordinator, int64_t now_ns)
{
	struct kvw_coordinator_fetch *fetch, *next;

	for (fetch = LIST_FIRST(&coordinator->prefetch.fetches); fetch != NULL; fetch = next) {
		const struct kvw_cd_instance *server;

		next = LIST_NEXT(fetch, entry);
		if (fetch->asking || now_ns < fetch->due_ns)
			continue;
		server = kvw_cd_find_instance(coordinator->cd, kvw_slice_of(fetch->instance));
		fetch->asking = server != NULL && server->registered &&
				kvw_calls_start(&coordinator->calls,
					&(struct kvw_call_options){.server = server,
						.method = "GET",
						.path = fetch->path,
						.done = on_status,
						.ctx = fetch}) == KVW_OK;
		if (!fetch->asking) {
			coordinator->prefetch.failures++;
			end_fetch(fetch, true);
		}
	}
}

void kvw_coordinator_prefetch_end(struct kvw_coordinator *coordinator)
{
	while (!LIST_EMPTY(&coordinator->prefetch.fetches))
		end_fetch(LIST_FIRST(&coordinator->prefetch.fetches), true);
}

/* --- any thread ------------------------------------------------------------------------------- */

uint32_t kvw_coordinator_prefetch(
	struct kvw_coordinator *coordinator, uint32_t worker, const struct kvw_kvprompt *prompt)
{
	const struct kvw_config *config = coordinator->deps->config;
	struct kvw_coordinator_fetch *fetch;
	uint32_t number;

	if (!config->kvaware_lmcache_prefetch || prompt->lora.len > 0 ||
		prompt->cache_salt.len > KVW_CE_SALT_MOST || prompt->count > TOKENS_MOST ||
		prompt->count < (size_t)config->kvaware_lmcache_chunk)
		return 0;
	if (atomic_fetch_add(&coordinator->prefetch.count, 1) >= KVW_COORDINATOR_FETCHES) {
		atomic_fetch_sub(&coordinator->prefetch.count, 1);
		atomic_fetch_add(&coordinator->prefetch.skipped, 1);
		return 0;
	}
	fetch = calloc(1, sizeof(*fetch));
	if (fetch != NULL)
		fetch->tokens = malloc(prompt->count * sizeof(*fetch->tokens));
	if (fetch == NULL || fetch->tokens == NULL) {
		free(fetch);
		atomic_fetch_sub(&coordinator->prefetch.count, 1);
		return 0;
	}
	do
		number = atomic_fetch_add(&coordinator->prefetch.number, 1) + 1;
	while (number == 0);
	fetch->coordinator = coordinator;
	fetch->worker = worker;
	fetch->number = number;
	fetch->count = prompt->count;
	memcpy(fetch->tokens, prompt->tokens, prompt->count * sizeof(*fetch->tokens));
	if (prompt->cache_salt.len > 0)
		memcpy(fetch->salt, prompt->cache_salt.data, prompt->cache_salt.len);
	if (kvw_feed_post(coordinator->feed, begin, fetch) != KVW_OK) {
		atomic_fetch_add(&coordinator->prefetch.skipped, 1);
		end_fetch(fetch, false);
		return 0;
	}
	return number;
}
