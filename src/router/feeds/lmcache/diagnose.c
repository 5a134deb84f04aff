/*
 * diagnose.c - finds out whether kvway understands an instance's keys.
 *
 * Absence proves little: the engine may have had the prompt in its own cache, or the store failed.
 * So one missing prompt proves nothing, nor do prompts without a later store, and a recipe is
 * accepted only if it yields a key that the instance has: 64 bits do not agree by chance.
 *
 * A prompt that was sent to two workers cannot show which one an instance belongs to, and is not
 * used for that.
 */
#include "feeds/lmcache/diagnose.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/lmcache_detect.h"
#include "base/log.h"

struct prompt {
	uint32_t worker, count;
	bool tried;     /* other recipes were tried on this prompt */
	bool ambiguous; /* a prompt with the same beginning went to another worker, too */
	int64_t routed_ns;
	uint64_t begins; /* hash of the prompt's beginning, to compare prompts */
	uint32_t tokens[KVW_LMDIAG_PROMPT];
};

struct kvw_lmdiag {
	struct kvw_lmdiag_options options;

	pthread_mutex_t lock; /* guards inbox, inbox_count and dropped; held only for one copy */
	struct prompt *inbox; /* [KVW_LMDIAG_PENDING] */
	size_t inbox_count;
	_Atomic uint64_t dropped;
	/* [workers], relaxed: whether prompts of the worker are still checked */
	_Atomic bool *wanted;

	/* feed thread */
	struct prompt *pending; /* [KVW_LMDIAG_PENDING] */
	size_t pending_count;
	int64_t searched_ns; /* when a recipe was last searched for */
	uint32_t told;       /* bits of spaces whose detection was logged */
};

enum kvw_err kvw_lmdiag_create(const struct kvw_lmdiag_options *options, struct kvw_lmdiag **out)
{
	struct kvw_lmdiag *diag = calloc(1, sizeof(*diag));

	if (diag == NULL)
		return KVW_ENOMEM;
	pthread_mutex_init(&diag->lock, NULL);
	diag->options = *options;
	diag->inbox = calloc(KVW_LMDIAG_PENDING, sizeof(diag->inbox[0]));
	diag->pending = calloc(KVW_LMDIAG_PENDING, sizeof(diag->pending[0]));
	diag->wanted = calloc(options->reg->options.worker_count + 1, sizeof(diag->wanted[0]));
	if (diag->inbox == NULL || diag->pending == NULL || diag->wanted == NULL) {
		kvw_lmdiag_destroy(diag);
		return KVW_ENOMEM;
	}
	*out = diag;
	return KVW_OK;
}

void kvw_lmdiag_destroy(struct kvw_lmdiag *diag)
{
	if (diag == NULL)
		return;
	free((void *)diag->wanted);
	free(diag->pending);
	free(diag->inbox);
	pthread_mutex_destroy(&diag->lock);
	free(diag);
}

void kvw_lmdiag_routed(struct kvw_lmdiag *diag, uint32_t worker, const uint32_t *tokens,
	size_t count, int64_t now_ns)
{
	struct prompt *prompt = NULL;

	if (worker >= diag->options.reg->options.worker_count ||
		!atomic_load_explicit(&diag->wanted[worker], memory_order_relaxed))
		return;
	if (pthread_mutex_trylock(&diag->lock) == 0) {
		if (diag->inbox_count < KVW_LMDIAG_PENDING) {
			prompt = &diag->inbox[diag->inbox_count++];
			prompt->worker = worker;
			prompt->routed_ns = now_ns;
			prompt->count =
				(uint32_t)(count < KVW_LMDIAG_PROMPT ? count : KVW_LMDIAG_PROMPT);
			memcpy(prompt->tokens, tokens, prompt->count * sizeof(tokens[0]));
		}
		pthread_mutex_unlock(&diag->lock);
	}
	if (prompt == NULL)
		atomic_fetch_add_explicit(&diag->dropped, 1, memory_order_relaxed);
}

/* --- keys --- */

/* Computes the key of a prompt's first chunk by a recipe. False: the prompt is too short for a
 * chunk. */
static bool first_key(
	const struct kvw_lmcache_recipe *recipe, const struct prompt *prompt, uint64_t *key)
{
	uint64_t state;
	size_t count = 0;

	return kvw_lmcache_begin(recipe, &state) == KVW_OK &&
	       kvw_lmcache_hash(recipe, &state, prompt->tokens, prompt->count, key, 1, &count) ==
		       KVW_OK &&
	       count == 1;
}

static const struct kvw_lmcache_recipe *recipe_of(const struct kvw_lmdiag *diag, uint32_t space)
{
	return &kvw_kvspaces_get(diag->options.spaces, space)->recipe;
}

static bool holds(const struct kvw_lmreg_instance *instance, uint64_t key)
{
	return kvw_lmreg_has(instance, key) || kvw_lmreg_admitted_since(instance, key, 0);
}

/* --- another recipe --- */

static bool known(void *context, uint64_t key)
{
	return holds(context, key);
}

/* Writes the settings with which a user can configure the found recipe. */
static void settings_text(const struct kvw_lmcache_recipe *configured,
	const struct kvw_lmcache_recipe *found, char *text, size_t size)
{
	FILE *out = fmemopen(text, size, "w");

	if (out == NULL) {
		text[0] = '\0';
		return;
	}
	if (configured->algorithm != found->algorithm)
		fprintf(out, " hash: %s,", kvw_lmcache_algorithm_name(found->algorithm));
	if (configured->chunk_size != found->chunk_size)
		fprintf(out, " chunk_size: %u,", found->chunk_size);
	if (found->root == KVW_LMCACHE_ROOT_NUMBER &&
		(configured->root != found->root || configured->none_hash != found->none_hash))
		fprintf(out, " none_hash: %" PRIi64 ",", (int64_t)found->none_hash);
	else if (found->root == KVW_LMCACHE_ROOT_SEED &&
		 (configured->root != found->root ||
			 (found->seed == NULL) != (configured->seed == NULL) ||
			 (found->seed != NULL && strcmp(found->seed, configured->seed) != 0)))
		fprintf(out, " hash_seed: \"%s\",", found->seed == NULL ? "unset" : found->seed);
	fclose(out);
	if (text[0] != '\0')
		text[strlen(text) - 1] = '\0'; /* the last comma */
}

static void switch_to(struct kvw_lmdiag *diag, struct kvw_lmreg_instance *instance, uint32_t space)
{
	const struct kvw_lmcache_recipe *configured = diag->options.configured;
	const struct kvw_lmcache_recipe *found = recipe_of(diag, space);
	char difference[256], settings[256] = "";

	kvw_lmreg_set_space(diag->options.reg, instance, space);
	instance->doubted = false;
	instance->matched = 1;
	kvw_lmreg_update_coverage(diag->options.reg, instance);
	diag->options.reg->stats.detected++;
	/* new instances start with this space, since a fleet's workers are configured alike */
	diag->options.reg->options.space = space;
	if ((diag->told >> space & 1) != 0)
		return;
	diag->told |= 1u << space;
	kvw_lmcache_difference(configured, found, difference, sizeof(difference));
	settings_text(configured, found, settings, sizeof(settings));
	kvw_warn("lmcache",
		"instance=%s names its chunks in another way than is configured: %s. This is used "
		"from now on; %s%s",
		instance->id, difference,
		settings[0] != '\0' ? "to have it from the start set in kvaware.lmcache:"
				    : "no setting is needed, it is found at each start",
		settings);
}

/* Tries other recipes on the prompt, against the instance's keys. True: one fits, and is used from
 * now on. */
static bool search(struct kvw_lmdiag *diag, struct prompt *prompt,
	struct kvw_lmreg_instance *instance, int64_t now_ns)
{
	struct kvw_lmcache_recipe found;
	uint64_t key;
	uint32_t space;

	for (space = 0; space < kvw_kvspaces_count(diag->options.spaces); space++)
		if (kvw_kvspaces_get(diag->options.spaces, space)->reporter ==
				KVW_REPORTER_LMCACHE &&
			space != instance->space &&
			first_key(recipe_of(diag, space), prompt, &key) && holds(instance, key)) {
			switch_to(diag, instance, space);
			return true;
		}
	if (!diag->options.detect || prompt->tried ||
		now_ns - diag->searched_ns < KVW_LMDIAG_PAUSE_NS)
		return false;
	diag->searched_ns = now_ns;
	prompt->tried = true;
	if (kvw_lmcache_detect(diag->options.configured, prompt->tokens, prompt->count, known,
		    instance, &found) != KVW_OK)
		return false;
	if (kvw_kvspaces_lmcache(diag->options.spaces, &found, &space) != KVW_OK)
		return false;
	switch_to(diag, instance, space);
	return true;
}

/* --- one prompt --- */

static void warn_missing(const struct kvw_lmdiag *diag, const struct kvw_lmreg_instance *instance)
{
	const struct kvw_lmcache_recipe *used = recipe_of(diag, instance->space);
	char root[64];

	if (used->root == KVW_LMCACHE_ROOT_NUMBER)
		(void)snprintf(root, sizeof(root), "none_hash: %" PRIi64, (int64_t)used->none_hash);
	else
		(void)snprintf(root, sizeof(root), "hash_seed: '%.32s'",
			used->seed == NULL ? "unset" : used->seed);
	if (instance->recent_count == 0)
		kvw_warn("lmcache",
			"instance=%s has registered but never stored anything, although "
			"prompts are sent to it: check that it has local_cpu or a disk tier "
			"(remote "
			"tiers report nothing), and restart its engine if it waited longer than "
			"worker_socket_recv_timeout_ms for this controller",
			instance->id);
	else
		kvw_warn("lmcache",
			"kvaware never matches instance=%s: none of %u prompts sent to it is among "
			"what it stores, which is looked for by `kvaware.lmcache: {hash: %s, %s, "
			"chunk_size: %u}`. Set kvaware.lmcache.hash_seed to the engines' "
			"PYTHONHASHSEED (or none_hash to the NONE_HASH that they log), hash to "
			"their pre_caching_hash_algorithm, chunk_size and partial_chunk to their "
			"chunk_size and save_unfull_chunk; or the instance belongs to another "
			"worker (lmcache_instance)",
			instance->id, instance->missed, kvw_lmcache_algorithm_name(used->algorithm),
			root, used->chunk_size);
}

/* Checks a prompt whose worker has an instance. True: the check is over. */
static bool check_mapped(struct kvw_lmdiag *diag, struct prompt *prompt,
	struct kvw_lmreg_instance *instance, int64_t now_ns)
{
	struct kvw_lmreg *reg = diag->options.reg;
	int64_t age_ns = now_ns - prompt->routed_ns;
	uint64_t key;

	if (!first_key(recipe_of(diag, instance->space), prompt, &key))
		return age_ns > KVW_LMDIAG_STORE_NS; /* the prompt is too short for a key */
	if (holds(instance, key)) {
		instance->matched++;
		reg->stats.matched++;
		instance->doubted = false;
		kvw_lmreg_update_coverage(reg, instance);
		return true;
	}
	if (age_ns > KVW_LMDIAG_STORE_NS && instance->matched == 0 &&
		kvw_lmreg_active_since(instance, prompt->routed_ns) &&
		search(diag, prompt, instance, now_ns))
		return true;
	if (age_ns <= KVW_LMDIAG_WAIT_NS)
		return false;
	if (instance->recent_count > 0 && !kvw_lmreg_active_since(instance, prompt->routed_ns))
		/* Nothing was stored since: the prompt was cached before, or was not stored at
		 * all. */
		return true;
	reg->stats.unmatched++;
	instance->missed++;
	if (instance->matched == 0 && instance->missed >= KVW_LMDIAG_MISSES) {
		instance->doubted = true;
		kvw_lmreg_update_coverage(reg, instance);
		if (!instance->warned)
			warn_missing(diag, instance);
		instance->warned = true;
	}
	return true;
}

static void hint(struct kvw_lmdiag *diag, struct kvw_lmreg_instance *instance, uint32_t worker)
{
	if (instance->hint_worker != worker) {
		instance->hint_worker = worker;
		instance->hint_count = 0;
	}
	if (++instance->hint_count < KVW_LMDIAG_HINTS)
		return;
	diag->options.reg->stats.learned++;
	kvw_lmreg_map(diag->options.reg, instance, worker, KVW_LMREG_LEARNED);
}

/* Returns the only instance without a worker that admitted the prompt after it was sent; NULL:
 * none, or several. */
static struct kvw_lmreg_instance *only_holder(struct kvw_lmdiag *diag, const struct prompt *prompt)
{
	struct kvw_lmreg *reg = diag->options.reg;
	struct kvw_lmreg_instance *found = NULL;
	uint64_t key;

	for (size_t i = 0; i < reg->count; i++) {
		struct kvw_lmreg_instance *instance = reg->instances[i];

		if (instance->worker != KVW_LMREG_NONE ||
			!first_key(recipe_of(diag, instance->space), prompt, &key) ||
			!kvw_lmreg_admitted_since(instance, key, prompt->routed_ns))
			continue;
		if (found != NULL)
			return NULL;
		found = instance;
	}
	return found;
}

/* Checks a prompt whose worker has no instance. True: the check is over. */
static bool check_unmapped(struct kvw_lmdiag *diag, struct prompt *prompt, int64_t now_ns)
{
	struct kvw_lmreg *reg = diag->options.reg;
	struct kvw_lmreg_instance *holder;
	int64_t age_ns = now_ns - prompt->routed_ns;

	if (prompt->ambiguous)
		/* kept for a while, to reveal other prompts as ambiguous */
		return age_ns > KVW_LMDIAG_WAIT_NS;
	if (age_ns < KVW_LMDIAG_STORE_NS)
		return false; /* a second instance with this prompt may follow */
	holder = only_holder(diag, prompt);
	if (holder != NULL) {
		hint(diag, holder, prompt->worker);
		return true;
	}
	for (size_t i = 0; i < reg->count && !prompt->tried; i++)
		if (reg->instances[i]->worker == KVW_LMREG_NONE &&
			reg->instances[i]->matched == 0 &&
			kvw_lmreg_active_since(reg->instances[i], prompt->routed_ns) &&
			search(diag, prompt, reg->instances[i], now_ns))
			/* the instance's keys are understood now: checks the prompt again */
			return false;
	return age_ns > KVW_LMDIAG_WAIT_NS;
}

/* --- all of them --- */

static void take_inbox(struct kvw_lmdiag *diag)
{
	size_t room = KVW_LMDIAG_PENDING - diag->pending_count, count;

	pthread_mutex_lock(&diag->lock);
	count = diag->inbox_count < room ? diag->inbox_count : room;
	memcpy(diag->pending + diag->pending_count, diag->inbox, count * sizeof(diag->inbox[0]));
	atomic_fetch_add_explicit(&diag->dropped, diag->inbox_count - count, memory_order_relaxed);
	diag->inbox_count = 0;
	pthread_mutex_unlock(&diag->lock);
	for (size_t i = diag->pending_count; i < diag->pending_count + count; i++) {
		struct prompt *prompt = &diag->pending[i];

		prompt->tried = prompt->ambiguous = false;
		if (!first_key(diag->options.configured, prompt, &prompt->begins))
			prompt->begins = 0;
		for (size_t k = 0; k < i; k++)
			if (diag->pending[k].worker != prompt->worker && prompt->begins != 0 &&
				diag->pending[k].begins == prompt->begins)
				prompt->ambiguous = diag->pending[k].ambiguous = true;
	}
	diag->options.reg->stats.routed += count;
	diag->pending_count += count;
}

static void update_wanted(struct kvw_lmdiag *diag)
{
	struct kvw_lmreg *reg = diag->options.reg;
	bool unmapped = false;

	for (size_t i = 0; i < reg->count; i++)
		unmapped = unmapped || reg->instances[i]->worker == KVW_LMREG_NONE;
	for (uint32_t w = 0; w < reg->options.worker_count; w++) {
		const struct kvw_lmreg_instance *instance = reg->by_worker[w];
		bool wanted = instance == NULL ? unmapped : instance->matched < KVW_LMDIAG_ENOUGH;

		atomic_store_explicit(&diag->wanted[w], wanted, memory_order_relaxed);
	}
}

void kvw_lmdiag_tick(struct kvw_lmdiag *diag, int64_t now_ns)
{
	struct kvw_lmreg *reg = diag->options.reg;
	size_t kept = 0;

	take_inbox(diag);
	for (size_t i = 0; i < diag->pending_count; i++) {
		struct prompt *prompt = &diag->pending[i];
		struct kvw_lmreg_instance *instance = reg->by_worker[prompt->worker];
		bool done = instance != NULL ? check_mapped(diag, prompt, instance, now_ns)
					     : check_unmapped(diag, prompt, now_ns);

		if (!done && kept++ != i)
			diag->pending[kept - 1] = *prompt;
	}
	diag->pending_count = kept;
	reg->stats.routed_dropped = atomic_load_explicit(&diag->dropped, memory_order_relaxed);
	update_wanted(diag);
}
