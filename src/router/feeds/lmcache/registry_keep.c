/*
 * registry_keep.c - the registry as records, for the process that takes over
 * (include/kvway/keep.h).
 *
 * 	INSTANCE           its worker, its hash recipe
 * 	RANK ...           its ranks in their order, which is that of the index's sources
 * 	LOCATION KEYS ...  the contents of one of these ranks in one location, and the next
 * 	                   sequence number
 *
 * Instances with a worker come first, so that no other one is mapped to that worker.
 *
 * The next process continues where this one stopped to listen: a rank's next sequence number shows
 * whether reports were lost in between, and a gap voids the location as usual. The next process
 * requests a full sync after a gap, or if this process would have: for a minute after the last sync
 * a rank does not answer. A rank that sends nothing may have sent its last report during the
 * handover, so one that is silent for KVW_LMREG_PROVE_NS gets one request, which does not disturb
 * an idle rank.
 *
 * A full sync under way is not handed over. The next process lets the rank store again, and
 * requests a sync later.
 *
 * Records are untrusted. After an invalid record nothing recalled with it counts as whole: the
 * other contents are as true as a worker's reports, but incomplete.
 */
#include "feeds/lmcache/registry.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "feeds/kvspace.h"

#define TEXT_MOST 2048 /* longest text in a record, in bytes */
#define LISTED    (KVW_KEPT_MOST / sizeof(uint64_t))

/* After it follow the instance's id, its worker's URL and address, and the recipe's seed. */
struct instance_record {
	uint64_t none_hash;
	uint32_t how, matched, missed, chunk_size;
	uint8_t algorithm, siphash, extra, fold, root, partial;
	uint8_t named;  /* routed prompts have confirmed the recipe */
	uint8_t seeded; /* it has a seed */
	uint8_t doubted, warned;
	uint16_t id_len, url_len, ip_len, seed_len;
	uint16_t unused[3];
};

/* After it follow the address, the address for peers, and the id of the last full sync. */
struct rank_record {
	int64_t registered_ns, unused_ns, beat_ns, asked_ns;
	uint32_t id;
	uint16_t port;
	uint8_t announced, beats, answers, whole, gone;
	uint8_t want; /* index in wants[]; 0: none */
	uint16_t ip_len, p2p_len, sync_len;
	uint16_t unused[3];
};

/* After it follows the location's name. */
struct location_record {
	uint64_t next;
	uint64_t keys; /* number of keys that follow */
	uint32_t rank; /* index among the instance's ranks */
	uint8_t expects, heard;
	uint16_t name_len;
};

_Static_assert(sizeof(struct instance_record) == 48 && sizeof(struct rank_record) == 56 &&
		       sizeof(struct location_record) == 24,
	"no gaps");

static const char *const wants[] = {
	NULL, "controller_restart", "sequence_gap", "sync_failed_retry"};

#define WANTS       (sizeof(wants) / sizeof(wants[0]))
#define WANT_FAILED 3

/* --- writing --- */

/* A record that is being written: room for its head, then its texts. */
struct draft {
	size_t len;
	uint8_t bytes[64 + 4 * TEXT_MOST];
};

/* Appends a text and returns its length; 0: it is too long, or NULL. */
static uint16_t add_text(struct draft *draft, const char *text)
{
	size_t len = text == NULL ? 0 : strlen(text);

	if (len > TEXT_MOST)
		len = 0;
	if (len > 0)
		memcpy(draft->bytes + draft->len, text, len);
	draft->len += len;
	return (uint16_t)len;
}

static uint8_t want_number(const char *want)
{
	for (uint8_t i = 1; want != NULL && i < WANTS; i++)
		if (strcmp(wants[i], want) == 0)
			return i;
	return want == NULL ? 0 : 1;
}

static enum kvw_err keep_instance(const struct kvw_lmreg *reg,
	const struct kvw_lmreg_instance *instance, const struct kvw_keep_out *out)
{
	const struct kvw_lmreg_options *options = &reg->options;
	const struct kvw_lmcache_recipe *recipe =
		options->spaces == NULL
			? NULL
			: &kvw_kvspaces_get(options->spaces, instance->space)->recipe;
	struct instance_record head = {.how = instance->how,
		.matched = instance->matched,
		.missed = instance->missed,
		.doubted = instance->doubted,
		.warned = instance->warned};
	struct draft draft = {.len = sizeof(head)};

	head.id_len = add_text(&draft, instance->id);
	if (instance->worker != KVW_LMREG_NONE && options->worker_url != NULL) {
		head.url_len =
			add_text(&draft, options->worker_url(options->ctx, instance->worker));
		head.ip_len = add_text(&draft, options->workers[instance->worker].ip);
	}
	if (recipe != NULL) {
		head.none_hash = recipe->none_hash;
		head.chunk_size = recipe->chunk_size;
		head.algorithm = (uint8_t)recipe->algorithm;
		head.siphash = (uint8_t)recipe->siphash;
		head.extra = (uint8_t)recipe->extra;
		head.fold = (uint8_t)recipe->fold;
		head.root = (uint8_t)recipe->root;
		head.partial = recipe->partial_chunk;
		head.seeded = recipe->seed != NULL;
		head.seed_len = add_text(&draft, recipe->seed);
		head.named = instance->matched > 0 &&
			     (recipe->seed == NULL || strlen(recipe->seed) == head.seed_len);
	}
	memcpy(draft.bytes, &head, sizeof(head));
	return out->put(out->arg, KVW_KEPT_INSTANCE, draft.bytes, draft.len);
}

static enum kvw_err keep_rank(const struct kvw_lmreg_rank *rank, const struct kvw_keep_out *out)
{
	struct rank_record head = {.registered_ns = rank->registered_ns,
		.beat_ns = rank->beat_ns,
		.asked_ns = rank->asked_ns,
		.id = rank->id,
		.port = rank->port,
		.announced = rank->announced,
		.beats = rank->beats,
		.answers = rank->answers,
		.whole = rank->whole,
		.gone = rank->gone,
		.want = rank->sync.active ? WANT_FAILED : want_number(rank->want)};
	struct draft draft = {.len = sizeof(head)};

	head.ip_len = add_text(&draft, rank->ip);
	head.p2p_len = add_text(&draft, rank->p2p);
	head.sync_len = add_text(&draft, rank->sync.active ? NULL : rank->sync.id);
	memcpy(draft.bytes, &head, sizeof(head));
	return out->put(out->arg, KVW_KEPT_RANK, draft.bytes, draft.len);
}

static enum kvw_err keep_location(
	const struct kvw_lmreg_place *place, uint32_t rank, const struct kvw_keep_out *out)
{
	struct location_record head = {
		.next = place->next,
		.keys = place->keys.count,
		.rank = rank,
		.expects = place->expects,
		.heard = place->heard};
	struct draft draft = {.len = sizeof(head)};
	uint64_t keys[LISTED];
	size_t at = 0, count;
	enum kvw_err err;

	head.name_len = add_text(&draft, place->name);
	memcpy(draft.bytes, &head, sizeof(head));
	err = out->put(out->arg, KVW_KEPT_LOCATION, draft.bytes, draft.len);
	while (err == KVW_OK && (count = kvw_keyset_list(&place->keys, &at, keys, LISTED)) > 0)
		err = out->put(out->arg, KVW_KEPT_KEYS, keys, count * sizeof(keys[0]));
	return err;
}

static enum kvw_err keep_all_of(const struct kvw_lmreg *reg,
	const struct kvw_lmreg_instance *instance, const struct kvw_keep_out *out)
{
	enum kvw_err err = keep_instance(reg, instance, out);

	for (uint32_t r = 0; err == KVW_OK && r < instance->rank_count; r++)
		err = keep_rank(&instance->ranks[r], out);
	for (uint32_t r = 0; err == KVW_OK && r < instance->rank_count; r++)
		for (uint32_t p = 0; err == KVW_OK && p < instance->ranks[r].place_count; p++)
			err = keep_location(&instance->ranks[r].places[p], r, out);
	return err;
}

enum kvw_err kvw_lmreg_keep(const struct kvw_lmreg *reg, const struct kvw_keep_out *out)
{
	enum kvw_err err = KVW_OK;

	for (int mapped = 1; mapped >= 0; mapped--)
		for (size_t i = 0; err == KVW_OK && i < reg->count; i++)
			if ((reg->instances[i]->worker != KVW_LMREG_NONE) == mapped)
				err = keep_all_of(reg, reg->instances[i], out);
	return err;
}

/* --- reading --- */

/* The part of a record that is not read yet. */
struct rest {
	const uint8_t *at;
	size_t left;
};

static bool take_head(struct rest *rest, void *head, size_t len)
{
	if (rest->left < len)
		return false;
	memcpy(head, rest->at, len);
	rest->at += len;
	rest->left -= len;
	return true;
}

static bool take_text(struct rest *rest, uint16_t len, struct kvw_slice *text)
{
	if (rest->left < len || len > TEXT_MOST || memchr(rest->at, '\0', len) != NULL)
		return false;
	*text = (struct kvw_slice){(const char *)rest->at, len};
	rest->at += len;
	rest->left -= len;
	return true;
}

/* Limits a handed-over time to the past. It is of the monotonic clock, which all processes of a
 * machine share. */
static int64_t past(int64_t ns, int64_t now_ns)
{
	if (ns < 0)
		return 0;
	return ns < now_ns ? ns : now_ns;
}

/* Returns the space of the recipe, or the configured space if no prompt has confirmed the recipe,
 * or it is invalid. */
static uint32_t space_of(
	struct kvw_lmreg *reg, const struct instance_record *head, struct kvw_slice seed)
{
	struct kvw_lmcache_recipe recipe = {
		.algorithm = (enum kvw_lmcache_algorithm)head->algorithm,
		.siphash = (enum kvw_siphash_variant)head->siphash,
		.extra = (enum kvw_lmcache_extra)head->extra,
		.fold = (enum kvw_lmcache_fold)head->fold,
		.root = (enum kvw_lmcache_root)head->root,
		.none_hash = head->none_hash,
		.chunk_size = head->chunk_size,
		.partial_chunk = head->partial != 0,
	};
	uint32_t space = reg->options.space;
	char *text;

	if (reg->options.spaces == NULL || head->named == 0 ||
		head->algorithm > KVW_LMCACHE_XXHASH || head->siphash > KVW_SIPHASH_24 ||
		head->extra > KVW_LMCACHE_EXTRA_NONE || head->fold > KVW_LMCACHE_FOLD_LAST ||
		head->root > KVW_LMCACHE_ROOT_NUMBER)
		return space;
	text = strndup(seed.len > 0 ? seed.data : "", seed.len);
	recipe.seed = head->seeded != 0 ? text : NULL;
	if (text == NULL || kvw_kvspaces_lmcache(reg->options.spaces, &recipe, &space) != KVW_OK)
		space = reg->options.space;
	free(text);
	return space;
}

/* Maps an instance by the present configuration; if nothing is configured for it, as before,
 * provided that the worker is the same at the same address. */
static void map_as_before(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance, uint32_t how,
	struct kvw_slice url, struct kvw_slice ip)
{
	const struct kvw_lmreg_options *options = &reg->options;

	kvw_lmreg_try_map(reg, instance);
	if (instance->worker != KVW_LMREG_NONE ||
		(how != KVW_LMREG_BY_ADDRESS && how != KVW_LMREG_LEARNED) ||
		options->worker_url == NULL || url.len == 0)
		return;
	for (uint32_t w = 0; w < options->worker_count; w++) {
		if (options->workers[w].instance[0] != '\0' || reg->by_worker[w] != NULL ||
			!kvw_slice_equal(kvw_slice_of(options->workers[w].ip), ip) ||
			!kvw_slice_equal(kvw_slice_of(options->worker_url(options->ctx, w)), url))
			continue;
		kvw_lmreg_map(reg, instance, w, (enum kvw_lmreg_how)how);
		return;
	}
}

static bool recall_instance(struct kvw_lmreg *reg, struct rest rest, int64_t now_ns)
{
	struct instance_record head;
	struct kvw_slice id, url, ip, seed;
	struct kvw_lmreg_instance *instance;

	reg->recalled.instance = NULL;
	reg->recalled.rank = KVW_LMREG_NONE;
	if (!take_head(&rest, &head, sizeof(head)) || !take_text(&rest, head.id_len, &id) ||
		!take_text(&rest, head.url_len, &url) || !take_text(&rest, head.ip_len, &ip) ||
		!take_text(&rest, head.seed_len, &seed) || rest.left > 0 || id.len == 0 ||
		id.len > KVW_LMC_TEXT_MAX || kvw_lmreg_find(reg, id) != NULL)
		return false;
	instance = reg->count < KVW_LMREG_INSTANCES ? kvw_lmreg_add_instance(reg, id) : NULL;
	if (instance == NULL)
		return false;
	instance->recalled = true;
	instance->heard_ns = now_ns;
	instance->matched = head.matched;
	instance->missed = head.missed;
	instance->doubted = head.doubted != 0;
	instance->warned = head.warned != 0;
	instance->space = space_of(reg, &head, seed);
	reg->recalled.instance = instance;
	map_as_before(reg, instance, head.how, url, ip);
	return true;
}

static char *copy_of(struct kvw_slice text)
{
	return text.len > 0 ? strndup(text.data, text.len) : NULL;
}

static bool recall_rank(struct kvw_lmreg *reg, struct rest rest, int64_t now_ns)
{
	struct kvw_lmreg_instance *instance = reg->recalled.instance;
	struct kvw_lmreg_rank *rank;
	struct rank_record head;
	struct kvw_slice ip, p2p, sync;

	if (instance == NULL || !take_head(&rest, &head, sizeof(head)) ||
		!take_text(&rest, head.ip_len, &ip) || !take_text(&rest, head.p2p_len, &p2p) ||
		!take_text(&rest, head.sync_len, &sync) || rest.left > 0 || head.want >= WANTS)
		return false;
	for (uint32_t r = 0; r < instance->rank_count; r++)
		if (instance->ranks[r].id == head.id)
			return false;
	rank = kvw_lmreg_add_rank(reg, instance, head.id);
	if (rank == NULL)
		return false;
	rank->ip = copy_of(ip);
	rank->p2p = copy_of(p2p);
	rank->sync.id = copy_of(sync);
	rank->port = head.port;
	rank->gone = head.gone != 0;
	rank->registered_ns = past(head.registered_ns, now_ns);
	rank->beat_ns = past(head.beat_ns, now_ns);
	/* silence does not count for the time in which no process listened */
	rank->heard_ns = now_ns;
	if (rank->gone)
		return true;
	rank->recalled = true;
	rank->was_whole = head.whole != 0 && head.want == 0;
	rank->announced = head.announced != 0;
	rank->beats = head.beats != 0;
	rank->answers = head.answers != 0;
	rank->asked_ns = past(head.asked_ns, now_ns);
	if (head.want > 0)
		kvw_lmreg_want_sync(rank, wants[head.want]);
	return true;
}

/* Reserves room for the keys at once: growing step by step would move millions of keys again and
 * again. */
static void make_room(const struct kvw_lmreg *reg, struct kvw_lmreg_place *place, uint64_t keys)
{
	uint64_t most = reg->options.key_limit > reg->stats.keys
				? reg->options.key_limit - reg->stats.keys
				: 0;

	if (kvw_keyset_reserve(&place->keys, keys < most ? keys : most) != KVW_OK)
		kvw_debug("lmcache", "no memory for keys at once location=%s", place->name);
}

static bool recall_location(struct kvw_lmreg *reg, struct rest rest)
{
	struct kvw_lmreg_instance *instance = reg->recalled.instance;
	struct kvw_lmreg_place *place;
	struct kvw_lmreg_rank *rank;
	struct location_record head;
	struct kvw_slice name;

	reg->recalled.rank = KVW_LMREG_NONE;
	if (instance == NULL || !take_head(&rest, &head, sizeof(head)) ||
		!take_text(&rest, head.name_len, &name) || rest.left > 0 || name.len == 0 ||
		name.len > KVW_LMC_TEXT_MAX || head.rank >= instance->rank_count)
		return false;
	rank = &instance->ranks[head.rank];
	if (!rank->recalled) /* the rank has gone, or is a new process */
		return true;
	place = kvw_lmreg_place(reg, rank, name);
	if (place == NULL)
		return false;
	place->expects = head.expects != 0;
	place->heard = head.heard != 0;
	place->next = head.next;
	make_room(reg, place, head.keys);
	reg->recalled.rank = head.rank;
	reg->recalled.place = (uint32_t)(place - rank->places);
	return true;
}

static bool recall_keys(struct kvw_lmreg *reg, struct rest rest)
{
	struct kvw_lmreg_instance *instance = reg->recalled.instance;
	struct kvw_lmreg_rank *rank;
	uint64_t keys[LISTED];
	size_t count = rest.left / sizeof(keys[0]);

	if (rest.left % sizeof(keys[0]) != 0 || count > LISTED)
		return false;
	if (instance == NULL || reg->recalled.rank == KVW_LMREG_NONE)
		return true; /* keys of a rank that has gone or was refused */
	rank = &instance->ranks[reg->recalled.rank];
	if (!rank->recalled)
		return true;
	memcpy(keys, rest.at, count * sizeof(keys[0]));
	reg->stats.recalled += count;
	kvw_lmreg_admit_all(reg, instance, rank, &rank->places[reg->recalled.place], keys, count);
	return true;
}

void kvw_lmreg_recall(struct kvw_lmreg *reg, enum kvw_keep_kind kind, const uint8_t *record,
	size_t len, int64_t now_ns)
{
	const struct rest rest = {record, len};
	bool makes_sense = true;

	if (kind == KVW_KEPT_INSTANCE)
		makes_sense = recall_instance(reg, rest, now_ns);
	else if (kind == KVW_KEPT_RANK)
		makes_sense = recall_rank(reg, rest, now_ns);
	else if (kind == KVW_KEPT_LOCATION)
		makes_sense = recall_location(reg, rest);
	else if (kind == KVW_KEPT_KEYS)
		makes_sense = recall_keys(reg, rest);
	reg->recalled.refused += !makes_sense;
}

/* Restores the rank's state, if all its records were read. */
static void believe(struct kvw_lmreg_rank *rank, bool all_came, int64_t now_ns)
{
	if (!rank->recalled)
		return;
	rank->recalled = false;
	rank->recalled_ns = now_ns;
	for (uint32_t p = 0; p < rank->place_count; p++)
		rank->places[p].unproved = rank->places[p].keys.count > 0;
	if (all_came)
		rank->whole = rank->was_whole;
	else
		kvw_lmreg_want_sync(rank, "controller_restart");
}

void kvw_lmreg_recall_end(struct kvw_lmreg *reg, bool all_came, int64_t now_ns)
{
	if (reg->recalled.refused > 0)
		kvw_warn("lmcache",
			"what was handed over makes no sense in part: workers are asked for all "
			"records=%llu",
			(unsigned long long)reg->recalled.refused);
	all_came = all_came && reg->recalled.refused == 0;
	for (size_t i = reg->count; i-- > 0;) {
		struct kvw_lmreg_instance *instance = reg->instances[i];
		bool alive = false;

		if (!instance->recalled)
			continue;
		instance->recalled = false;
		for (uint32_t r = 0; r < instance->rank_count; r++) {
			believe(&instance->ranks[r], all_came, now_ns);
			alive = alive || !instance->ranks[r].gone;
		}
		if (alive)
			kvw_lmreg_update_coverage(reg, instance);
		else
			kvw_lmreg_forget_instance(reg, instance);
	}
	reg->recalled = (struct kvw_lmreg_recalled){.rank = KVW_LMREG_NONE};
}
