/*
 * nodes.c - which workers an LMCache server serves, and what they may find in its L1.
 *
 * A worker belongs to the instance that its configuration names (`lmcache_instance`), or else to
 * the only registered instance at its address. All workers of a node get the blocks of its L1: each
 * has them as sources of its own in the exact index, one for each rank, since a chunk is a hit only
 * where all ranks hold their slices.
 *
 * LMCache's chunk hashes depend on the servers' settings. So kvway names chunks by their tokens and
 * positions (kvspace.h). Entries without tokens, as transfers driven by the engine send them, are
 * named by their hashes, which have to be those of the servers' default settings: until one of them
 * is that of a prompt's first chunk that was sent to a worker, such a worker is routed by text.
 */
#include "feeds/coordinator/parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/duty.h"
#include "base/log.h"
#include "fleet/worker.h"

#define EACH           UINT32_MAX
#define UNMAPPED_NS    (60 * KVW_NS_PER_S) /* before the log says so */
#define UNNAMED_ENOUGH 16u                 /* entries, before they are complained about */
#define PROMPTS_ENOUGH 5u                  /* sent, none of which was among the hashes */

/* --- names ------------------------------------------------------------------------------------ */

/* The space of a chunk, and its size in tokens; false: it has no name, or is of a size too many. */
static bool space_of(const struct kvw_coordinator *coordinator, const struct kvw_cd_object *object,
	uint32_t *space, uint32_t *tokens)
{
	const struct kvw_cd_binding *binding = object->binding;
	struct kvw_kvspaces *spaces = coordinator->deps->spaces;

	*tokens = binding->token_count;
	if (kvw_cd_is_named(object))
		return binding->offset / *tokens <= UINT32_MAX &&
		       kvw_kvspaces_positions(spaces, *tokens, space) == KVW_OK;
	if (*tokens > 0 || binding->len != KVW_BLAKE3_BYTES)
		return false;
	*tokens = (uint32_t)coordinator->deps->config->kvaware_lmcache_chunk;
	return kvw_kvspaces_hashes(spaces, *tokens, space) == KVW_OK;
}

/* --- hashes that kvway recognizes ------------------------------------------------------------- */

/* The hash of a prompt's first chunk, on its way to the feed's thread. */
struct first {
	struct kvw_coordinator *coordinator;
	struct kvw_lmcache_chunks chunks;
};

static void recognize(struct kvw_coordinator *coordinator)
{
	coordinator->hashes.known = true;
	atomic_store(&coordinator->hashes.asks, false);
	kvw_info("coordinator", "entries without token ids count by their hashes from now on");
}

static void take_first(struct kvw_feed *feed, void *arg)
{
	struct first *first = arg;
	struct kvw_coordinator_hashes *hashes = &first->coordinator->hashes;
	const struct kvw_slice hash = {(char *)first->chunks.hash, KVW_BLAKE3_BYTES};

	if (!kvw_feed_stopped(feed) && !hashes->known) {
		memcpy(hashes->firsts[hashes->count++ % KVW_COORDINATOR_FIRSTS], hash.data,
			hash.len);
		if (kvw_cd_find_binding(first->coordinator->cd, hash) != NULL)
			recognize(first->coordinator);
	}
	free(first);
}

void kvw_coordinator_note_first(
	struct kvw_coordinator *coordinator, const struct kvw_kvprompt *prompt)
{
	size_t chunk = (size_t)coordinator->deps->config->kvaware_lmcache_chunk;
	struct first *first;

	if (!kvw_coordinator_asks(coordinator) || prompt->lora.len > 0 || prompt->count < chunk)
		return;
	first = malloc(sizeof(*first));
	if (first == NULL)
		return;
	first->coordinator = coordinator;
	kvw_lmcache_chunks_start(&first->chunks);
	kvw_lmcache_chunks_next(&first->chunks, prompt->tokens, chunk);
	if (kvw_feed_post(coordinator->feed, take_first, first) != KVW_OK)
		free(first);
}

bool kvw_coordinator_can_name(void *ctx, const struct kvw_cd_object *object)
{
	struct kvw_coordinator *coordinator = ctx;
	struct kvw_coordinator_hashes *hashes = &coordinator->hashes;
	uint32_t space, tokens;

	if (!space_of(coordinator, object, &space, &tokens))
		return false;
	if (object->binding->token_count > 0 || hashes->known)
		return true;
	atomic_store(&hashes->asks, true);
	for (size_t i = 0; i < hashes->count && i < KVW_COORDINATOR_FIRSTS && !hashes->known; i++)
		if (memcmp(hashes->firsts[i], object->binding->text, KVW_BLAKE3_BYTES) == 0)
			recognize(coordinator);
	return true;
}

/* --- blocks of the index ---------------------------------------------------------------------- */

/* The object's name; false: it has none. */
static bool name_of(struct kvw_coordinator *coordinator, const struct kvw_cd_object *object,
	struct kvw_kvindex_blocks *blocks, uint64_t *key)
{
	const struct kvw_cd_binding *binding = object->binding;
	struct kvw_slice salt = {object->text + object->model_len, object->salt_len};
	uint32_t tokens;
	uint64_t root;

	if (object->group != 0 || !space_of(coordinator, object, &blocks->space, &tokens))
		return false;
	root = kvw_kvspace_engine_root(tokens, (struct kvw_slice){NULL, 0}, salt);
	*key = binding->token_count == 0
		       ? kvw_kvspace_hash_key(root, (const uint8_t *)binding->text)
		       : kvw_kvspace_position_key(root, (uint32_t)(binding->offset / tokens),
				 binding->tokens, tokens);
	return true;
}

static void require(struct kvw_coordinator *coordinator, uint32_t worker, uint32_t world)
{
	uint32_t ranks = world < KVW_EXACT_LMCACHE_SOURCES ? world : KVW_EXACT_LMCACHE_SOURCES;

	kvw_kvindex_require(kvw_exact_index(coordinator->deps->exact), worker,
		KVW_EXACT_LMCACHE_MASK, ((1u << ranks) - 1) << KVW_EXACT_LMCACHE_SOURCE);
}

void kvw_coordinator_l1(
	void *ctx, struct kvw_cd_instance *instance, struct kvw_cd_object *object, bool holds)
{
	struct kvw_coordinator *coordinator = ctx;
	struct kvw_coordinator_node *node = instance->user;
	struct kvw_kvindex *index = kvw_exact_index(coordinator->deps->exact);
	uint32_t world = object->rank >> 24, rank = object->rank >> 16 & 0xff;
	uint64_t key, hash = object->name_hash;
	struct kvw_kvindex_blocks blocks = {
		.tier = KVW_TIER_HOST, .count = 1, .hashes = &hash, .keys = &key};

	if (node == NULL || node->count == 0 || rank >= KVW_EXACT_LMCACHE_SOURCES ||
		!name_of(coordinator, object, &blocks, &key))
		return;
	if (holds && node->world != world) {
		node->world = world;
		for (uint32_t i = 0; i < node->count; i++)
			require(coordinator, node->workers[i], world);
	}
	for (uint32_t i = 0; i < node->count; i++) {
		struct kvw_kvindex_from from = {node->workers[i], KVW_EXACT_LMCACHE_SOURCE + rank};

		if (coordinator->only_worker != EACH && from.worker != coordinator->only_worker)
			continue;
		if (holds)
			kvw_kvindex_stored(index, from, &blocks);
		else
			kvw_kvindex_removed(index, from, &blocks);
		coordinator->named += holds;
	}
}

static void clear_index(struct kvw_coordinator *coordinator, uint32_t worker)
{
	for (uint32_t s = 0; s < KVW_EXACT_LMCACHE_SOURCES; s++)
		kvw_kvindex_cleared(kvw_exact_index(coordinator->deps->exact), worker,
			KVW_EXACT_LMCACHE_SOURCE + s, KVW_KVINDEX_ANY);
}

static void write_all(
	struct kvw_coordinator *coordinator, struct kvw_cd_instance *instance, uint32_t worker)
{
	coordinator->only_worker = worker;
	kvw_cd_each_l1(coordinator->cd, instance, true);
	coordinator->only_worker = EACH;
}

/* --- what is known ---------------------------------------------------------------------------- */

/* Why the instance's reports do not suffice; "" if they do. Static. */
static const char *what_is_wrong(
	const struct kvw_coordinator *coordinator, const struct kvw_cd_instance *instance)
{
	if (!instance->has_cursor)
		return "it has reported nothing: start its LMCache server with "
		       "--coordinator-event-reporting";
	if (instance->unnamed > instance->named)
		return "its reports have neither token ids nor hashes of BLAKE3: set "
		       "lmcache.mp.mp_transfer_mode of its engines to lmcache_driven (or the "
		       "fleet has chunks of more than 4 sizes)";
	if (instance->hashed > 0 && !coordinator->hashes.known)
		return "its reports have no token ids, and no hash was that of a prompt sent by "
		       "kvway yet: kvaware.lmcache.chunk_size has to be its --chunk-size and its "
		       "--hash-algorithm blake3, or set lmcache.mp.mp_transfer_mode of its "
		       "engines to lmcache_driven";
	if (instance->incomplete)
		return "reports of its LMCache server were missed: it counts again once as much "
		       "was stored as its L1 holds, or when the server starts again";
	return "";
}

void kvw_coordinator_cover(struct kvw_coordinator *coordinator, struct kvw_cd_instance *instance)
{
	struct kvw_coordinator_node *node = instance->user;
	const char *wrong = what_is_wrong(coordinator, instance);
	enum kvw_coverage coverage = wrong[0] == '\0' ? KVW_COVERAGE_FULL : KVW_COVERAGE_BLIND;

	if (node == NULL || (node->wrong == wrong && node->coverage == coverage))
		return;
	node->coverage = coverage;
	node->wrong = wrong;
	for (uint32_t i = 0; i < node->count; i++)
		kvw_feed_set_coverage(coordinator->feed, node->workers[i], KVW_REPORTER_LMCACHE,
			coverage, node->world > 0 ? node->world : 1, wrong);
}

/* Says once for each instance why it never matches. */
static void complain(struct kvw_coordinator *coordinator, struct kvw_cd_instance *instance)
{
	struct kvw_coordinator_node *node = instance->user;
	bool without_worker = instance->registered && (node == NULL || node->count == 0) &&
			      kvw_feed_now(coordinator->feed) - instance->came_ns > UNMAPPED_NS;
	bool without_tokens =
		(instance->unnamed > UNNAMED_ENOUGH && instance->unnamed > instance->named) ||
		(instance->hashed > UNNAMED_ENOUGH && !coordinator->hashes.known &&
			coordinator->hashes.count >= PROMPTS_ENOUGH);

	if ((!without_worker && !without_tokens) || (node != NULL && node->complained))
		return;
	if (node == NULL)
		node = instance->user = calloc(1, sizeof(*node));
	if (node == NULL)
		return;
	node->complained = true;
	if (without_worker)
		kvw_warn("coordinator",
			"kvaware never matches instance=%s: it belongs to no worker; its address "
			"%s is that of none, or of another instance too; set lmcache_instance of "
			"its workers, or --coordinator-advertise-ip of the server",
			instance->id, instance->ip);
	else
		kvw_warn("coordinator", "kvaware never matches instance=%s: %s", instance->id,
			what_is_wrong(coordinator, instance));
}

/* --- mapping ---------------------------------------------------------------------------------- */

static void set_seen(struct kvw_coordinator *coordinator, uint32_t worker, const char *id)
{
	pthread_mutex_lock(&coordinator->lock);
	snprintf(coordinator->seen[worker], sizeof(coordinator->seen[worker]), "%s", id);
	pthread_mutex_unlock(&coordinator->lock);
}

static void unmap(struct kvw_coordinator *coordinator, uint32_t worker)
{
	struct kvw_cd_instance *instance = coordinator->workers[worker].instance;
	struct kvw_coordinator_node *node;

	if (instance == NULL)
		return;
	node = instance->user;
	for (uint32_t i = 0; i < node->count; i++)
		if (node->workers[i] == worker)
			node->workers[i] = node->workers[--node->count];
	coordinator->workers[worker].instance = NULL;
	coordinator->workers[worker].lack = NULL;
	clear_index(coordinator, worker);
	require(coordinator, worker, 0);
	kvw_feed_set_coverage(
		coordinator->feed, worker, KVW_REPORTER_LMCACHE, KVW_COVERAGE_NONE, 0, "");
	set_seen(coordinator, worker, "");
}

static void map(
	struct kvw_coordinator *coordinator, uint32_t worker, struct kvw_cd_instance *instance)
{
	struct kvw_coordinator_node *node = instance->user;
	uint32_t *workers;

	if (node == NULL)
		node = instance->user = calloc(1, sizeof(*node));
	if (node == NULL)
		return;
	if (node->count == node->room) {
		workers = realloc(node->workers, (node->room + 8) * sizeof(*workers));
		if (workers == NULL)
			return;
		node->workers = workers;
		node->room += 8;
	}
	node->workers[node->count++] = worker;
	coordinator->workers[worker].instance = instance;
	coordinator->workers[worker].lack = NULL;
	clear_index(coordinator, worker);
	require(coordinator, worker, node->world);
	write_all(coordinator, instance, worker);
	set_seen(coordinator, worker, instance->id);
	kvw_info("coordinator", "instance=%s serves worker=%s", instance->id,
		coordinator->workers[worker].worker->url);
	node->wrong = NULL; /* report again */
	kvw_coordinator_cover(coordinator, instance);
}

void kvw_coordinator_freed(void *ctx, struct kvw_cd_instance *instance)
{
	struct kvw_coordinator *coordinator = ctx;
	struct kvw_coordinator_node *node = instance->user;

	if (node == NULL)
		return;
	while (node->count > 0)
		unmap(coordinator, node->workers[0]);
	free(node->workers);
	free(node);
	instance->user = NULL;
}

#define LACKS_SERVER                                                                               \
	"no LMCache server has registered from this worker's address: start its server with "      \
	"--coordinator-url and --coordinator-advertise-ip, or set lmcache_instance of the worker"
#define LACKS_NAME                                                                                 \
	"several LMCache servers have registered from this worker's address: set "                 \
	"lmcache_instance "                                                                        \
	"of the worker"
static const char lacks_elsewhere[] =
	"LMCache servers report to another replica of kvway: requests through this one go by text";
#define LACKS_NAMED "the LMCache server that its lmcache_instance names has not registered"

/* The only registered instance at the address that no worker names; NULL: none, or several, and
 * *lack says which. */
static struct kvw_cd_instance *instance_at(
	struct kvw_coordinator *coordinator, const char *ip, const char **lack)
{
	struct kvw_cd_instance *at, *found = NULL;

	*lack = LACKS_SERVER;

	TAILQ_FOREACH(at, &coordinator->cd->instances, entry)
	{
		bool taken = false;

		if (!at->registered || strcmp(at->ip, ip) != 0)
			continue;
		for (size_t w = 0; w < coordinator->worker_count && !taken; w++)
			taken = coordinator->workers[w].worker != NULL &&
				strcmp(coordinator->workers[w].worker->config.lmcache_instance,
					at->id) == 0;
		if (taken)
			continue;
		if (found != NULL) {
			*lack = LACKS_NAME;
			return NULL;
		}
		found = at;
	}
	return found;
}

static struct kvw_cd_instance *instance_for(
	struct kvw_coordinator *coordinator, uint32_t slot, const char **lack)
{
	const struct kvw_coordinator_worker *entry = &coordinator->workers[slot];
	const char *named = entry->worker->config.lmcache_instance;
	struct kvw_cd_instance *instance;

	*lack = named[0] == '\0' ? LACKS_SERVER : LACKS_NAMED;
	if (named[0] == '\0')
		return entry->ip[0] == '\0' ? NULL : instance_at(coordinator, entry->ip, lack);
	instance = kvw_cd_find_instance(coordinator->cd, kvw_slice_of(named));
	return instance != NULL && (instance->registered || instance->has_cursor) ? instance : NULL;
}

/* Reports why nothing is known of the worker. LMCache's controller, where it is configured, is the
 * one that reports. */
static void report_lack(struct kvw_coordinator *coordinator, uint32_t slot, const char *lack)
{
	struct kvw_coordinator_worker *entry = &coordinator->workers[slot];

	if (entry->lack == lack || coordinator->deps->config->kvaware_lmcache_pull[0] != '\0')
		return;
	entry->lack = lack;
	kvw_feed_set_coverage(coordinator->feed, slot, KVW_REPORTER_LMCACHE,
		lack == lacks_elsewhere ? KVW_COVERAGE_BLIND : KVW_COVERAGE_NONE, 0, lack);
}

/* Says so once servers have reported to several replicas, of which none knows all then. A process
 * that has ended, such as the one before this one, counts as another replica for a while. */
static void note_divided(struct kvw_coordinator *coordinator, bool divided)
{
	int64_t now_ns = kvw_feed_now(coordinator->feed);

	if (!divided) {
		coordinator->divided_ns = 0;
	} else if (coordinator->divided_ns == 0) {
		coordinator->divided_ns = now_ns;
	} else if (now_ns - coordinator->divided_ns > 2 * KVW_DUTY_LIFE_NS) {
		coordinator->divided_ns = INT64_MAX; /* it is said */
		kvw_warn("coordinator",
			"LMCache servers report to several replicas of kvway: this one does not "
			"evict from L2, and the other one does not know what these servers hold; "
			"--coordinator-url has to lead to one replica");
	}
}

/* Announces to the other replicas whether servers report here; true: they report to another one. */
static bool reports_elsewhere(struct kvw_coordinator *coordinator)
{
	struct kvw_duty *duty = coordinator->deps->coordinating;
	bool elsewhere = kvw_duty_elsewhere(duty, kvw_feed_now(coordinator->feed)), here = false;
	const struct kvw_cd_instance *at;

	if (duty == NULL)
		return false;
	TAILQ_FOREACH(at, &coordinator->cd->instances, entry)
	here = here || at->registered;
	atomic_store(&duty->wanted, here && coordinator->in_charge);
	note_divided(coordinator, here && elsewhere && coordinator->in_charge);
	return elsewhere && !here;
}

static void map_all(struct kvw_coordinator *coordinator)
{
	bool elsewhere = reports_elsewhere(coordinator);

	for (uint32_t w = 0; w < coordinator->worker_count; w++) {
		const char *lack = "";
		struct kvw_cd_instance *wanted = coordinator->workers[w].worker == NULL
							 ? NULL
							 : instance_for(coordinator, w, &lack);

		if (wanted != coordinator->workers[w].instance) {
			unmap(coordinator, w);
			if (wanted != NULL)
				map(coordinator, w, wanted);
		}
		if (wanted == NULL && coordinator->workers[w].worker != NULL)
			report_lack(coordinator, w, elsewhere ? lacks_elsewhere : lack);
	}
}

/* --- workers that come and go ----------------------------------------------------------------- */

static void unfollow(struct kvw_coordinator *coordinator, uint32_t slot)
{
	struct kvw_coordinator_worker *entry = &coordinator->workers[slot];

	if (entry->worker == NULL)
		return;
	unmap(coordinator, slot);
	kvw_worker_let_go(entry->worker);
	entry->worker = NULL;
	entry->lack = NULL;
}

static void look_up(struct kvw_coordinator_worker *entry)
{
	entry->address_version = atomic_load(&entry->worker->address_version);
	kvw_worker_ip(entry->worker, entry->ip, sizeof(entry->ip));
}

void kvw_coordinator_follow(struct kvw_coordinator *coordinator)
{
	const struct kvw_fleet *fleet = coordinator->deps->fleet;
	struct kvw_cd_instance *instance;

	coordinator->worker_count = fleet->count;
	for (uint32_t i = 0; i < coordinator->worker_count; i++) {
		struct kvw_coordinator_worker *entry = &coordinator->workers[i];
		struct kvw_worker *worker = fleet->workers[i];

		if (entry->worker != NULL && kvw_worker_life(worker) != KVW_WORKER_LIVE)
			unfollow(coordinator, i);
		if (entry->worker == NULL && kvw_worker_hold(worker)) {
			entry->worker = worker;
			look_up(entry);
			coordinator->remap = true;
		} else if (entry->worker != NULL &&
			   entry->address_version != atomic_load(&worker->address_version)) {
			look_up(entry);
			coordinator->remap = true;
		}
	}
	if (coordinator->remap)
		map_all(coordinator);
	coordinator->remap = false;
	TAILQ_FOREACH(instance, &coordinator->cd->instances, entry)
	{
		kvw_coordinator_cover(coordinator, instance);
		complain(coordinator, instance);
	}
}

void kvw_coordinator_unfollow_all(struct kvw_coordinator *coordinator)
{
	for (uint32_t i = 0; i < coordinator->worker_count; i++)
		unfollow(coordinator, i);
}

void kvw_coordinator_purged(struct kvw_coordinator *coordinator, uint32_t worker)
{
	struct kvw_cd_instance *instance =
		worker < coordinator->worker_count ? coordinator->workers[worker].instance : NULL;
	struct kvw_coordinator_node *node;

	if (instance == NULL)
		return;
	node = instance->user;
	clear_index(coordinator, worker);
	write_all(coordinator, instance, worker);
	node->wrong = NULL; /* report again */
	kvw_coordinator_cover(coordinator, instance);
}
