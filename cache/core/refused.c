/*
 * refused.c - retries a tier whose store could not be opened; refused.h says when.
 *
 * The thread that will step the tier makes it, and applies the erases that callers made meanwhile.
 * Only then is the tier shown: `tier` is set under the lock, at a moment when no erase is left to
 * apply. A later erase finds a tier like any other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/names.h"
#include "core/refused.h"
#include "options/settings.h"

/* longest pause between retries: the end of the owner is noticed within this time */
#define PAUSE_MOST_NS 30000000000
/* an owner that does not end within this time is expected to stay */
#define STAYS_NS      60000000000
#define NAMES_NS      1000000000  /* between checks whether names are known */
#define BUSY_NS       10000000    /* between checks whether requests to a lost tier have ended */
/* limit of remembered erased keys; beyond it the whole store is emptied */
#define KEYS_MOST     65536u
#define TENANTS_MOST  4096u

struct limit {
	struct kvt_tenant tenant;
	uint64_t bytes;
};

/* The erases and limits to apply to a store before it is shown. */
struct owed {
	struct kvt_key *keys;
	struct kvt_tenant *tenants;
	struct limit *limits;
	size_t key_count, tenant_count, limit_count;
	bool all;
};

struct kvt_refused {
	struct kvt_config config; /* a copy with texts of its own */
	struct kvt_tier_options options;
	int64_t begun_ns;
	int64_t again_ns; /* used only by the thread that retries, like pause_ns */
	uint64_t pause_ns;
	struct owed owed; /* under lock */
};

static uint64_t longest_pause(const struct kvt *k)
{
	uint64_t most = k->config.breaker_open_max_ns;

	return most < PAUSE_MOST_NS ? most : PAUSE_MOST_NS;
}

/* --- life ------------------------------------------------------------------------------------- */

static void owed_finish(struct owed *owed)
{
	free(owed->keys);
	free(owed->tenants);
	free(owed->limits);
	*owed = (struct owed){.keys = NULL};
}

void kvt_refused_destroy(struct kvt_refused *r)
{
	if (r == NULL)
		return;
	owed_finish(&r->owed);
	kvt_config_finish(&r->config);
	free(r);
}

/* NULL: no memory. */
static struct kvt_refused *make(struct kvt *k, const struct kvt_tier_options *options)
{
	struct kvt_refused *r = calloc(1, sizeof(*r));

	if (r == NULL || kvt_settings_copy(&k->config, &r->config) != KVT_OK) {
		free(r);
		return NULL;
	}
	r->options = *options;
	r->options.config = &r->config;
	r->options.again = true;
	return r;
}

static void set_pause(struct kvt *k, struct kvt_refused *r)
{
	r->pause_ns = k->config.breaker_open_ns;
	if (r->pause_ns > longest_pause(k))
		r->pause_ns = longest_pause(k);
	r->begun_ns = kvt_clock(k);
}

enum kvt_status kvt_refused_spare(struct kvt_lower *b, const struct kvt_tier_options *options)
{
	b->spare = make(b->k, options);
	return b->spare != NULL ? KVT_OK : KVT_ENOMEM;
}

enum kvt_status kvt_refused_begin(
	struct kvt_lower *b, const struct kvt_tier_options *options, enum kvt_status why)
{
	struct kvt *k = b->k;
	struct kvt_refused *r = make(k, options);

	if (r == NULL)
		return KVT_ENOMEM;
	set_pause(k, r);
	r->again_ns = r->begun_ns + (int64_t)r->pause_ns;
	b->refused = r;
	kvt_count(&k->counters.lock_refusals, why == KVT_ELOCKED);
	kvt_note(&k->surroundings, KVT_LOG_ERROR,
		"%s: left out for now: %s; tried again after %llu ms, then less and less often",
		b->ops->name, b->reason, (unsigned long long)(r->pause_ns / 1000000));
	return KVT_OK;
}

bool kvt_refused_may_have(const struct kvt_lower *b)
{
	return b->refused != NULL && kvt_clock(b->k) - b->refused->begun_ns < STAYS_NS;
}

/* --- erases and limits to apply; `lock` is held
 * --------------------------------------------------- */

bool kvt_refused_erase(struct kvt_lower *b, const struct kvt_key *keys, size_t n)
{
	struct owed *owed = b->refused != NULL ? &b->refused->owed : NULL;
	struct kvt_key *more = NULL;

	if (owed == NULL)
		return false;
	if (owed->all)
		return true;
	if (n <= KEYS_MOST - owed->key_count)
		more = reallocarray(owed->keys, owed->key_count + n, sizeof(*more));
	if (more == NULL) {
		owed->all = true;
		return true;
	}
	owed->keys = more;
	for (size_t i = 0; i < n; i++)
		owed->keys[owed->key_count++] = keys[i];
	return true;
}

bool kvt_refused_erase_tenant(struct kvt_lower *b, const struct kvt_tenant *tenant)
{
	struct owed *owed = b->refused != NULL ? &b->refused->owed : NULL;
	struct kvt_tenant *more = NULL;

	if (owed == NULL)
		return false;
	if (owed->all)
		return true;
	if (tenant != NULL && owed->tenant_count < TENANTS_MOST)
		more = reallocarray(owed->tenants, owed->tenant_count + 1, sizeof(*more));
	if (more == NULL) {
		owed->all = true;
		return true;
	}
	owed->tenants = more;
	owed->tenants[owed->tenant_count++] = *tenant;
	return true;
}

enum kvt_status kvt_refused_limit(
	struct kvt_lower *b, const struct kvt_tenant *tenant, uint64_t bytes)
{
	struct kvt_refused *r = b->refused != NULL ? b->refused : b->spare;
	struct owed *owed = r != NULL ? &r->owed : NULL;
	struct limit *more;

	if (owed == NULL || b->ops->limit_tenant == NULL)
		return KVT_OK;
	for (size_t i = 0; i < owed->limit_count; i++) {
		if (memcmp(&owed->limits[i].tenant, tenant, sizeof(*tenant)) == 0) {
			owed->limits[i].bytes = bytes;
			return KVT_OK;
		}
	}
	if (owed->limit_count == TENANTS_MOST)
		return KVT_FULL;
	more = reallocarray(owed->limits, owed->limit_count + 1, sizeof(*more));
	if (more == NULL)
		return KVT_ENOMEM;
	owed->limits = more;
	owed->limits[owed->limit_count++] = (struct limit){*tenant, bytes};
	return KVT_OK;
}

/* --- the tier comes --------------------------------------------------------------------------- */

static void erase_done(struct kvt_tier_request *request)
{
	*(bool *)request->user = true;
}

static bool erase_keys(struct kvt *k, struct kvt_tier *tier, const struct owed *owed)
{
	bool done = false;
	struct kvt_tier_request erase = {
		.verb = KVT_TIER_ERASE,
		.keys = owed->keys,
		.key_count = owed->key_count,
		.begun_ns = kvt_clock(k),
		.deadline_ns = KVT_TIER_NEVER,
		.done = erase_done,
		.user = &done,
	};
	int64_t next_ns;

	if (owed->key_count == 0)
		return true;
	for (size_t i = 0; i < owed->key_count; i++)
		if (!kvt_name_below(k, &owed->keys[i], &owed->keys[i]))
			return false;
	tier->ops->submit(tier, &erase);
	while (!done)
		(void)tier->ops->step(tier, 1000000, &next_ns);
	return erase.status == KVT_OK || erase.status == KVT_MISS;
}

/* Applies the erases. Chunks that cannot be erased one by one are erased together with all
 * others. */
static bool settle(struct kvt *k, struct kvt_tier *tier, const struct owed *owed)
{
	bool good = !owed->all && erase_keys(k, tier, owed);
	size_t count;

	for (size_t i = 0; good && i < owed->tenant_count; i++)
		good = tier->ops->erase_tenant(tier, &owed->tenants[i], &count) == KVT_OK;
	return good || tier->ops->erase_all(tier, &count) == KVT_OK;
}

/* Shows the tier, with its limits, if no erase is left to apply. Otherwise sets *owed to what is
 * left; the caller holds `lock`. */
static bool show(struct kvt_lower *b, struct kvt_tier *tier, struct owed *owed)
{
	struct kvt_refused *r = b->refused;

	if (r->owed.all || r->owed.key_count + r->owed.tenant_count != 0) {
		*owed = r->owed;
		r->owed = (struct owed){.limits = owed->limits, .limit_count = owed->limit_count};
		owed->limits = NULL; /* the limits stay until the handle closes */
		owed->limit_count = 0;
		return false;
	}
	for (size_t i = 0; i < r->owed.limit_count; i++)
		(void)!tier->ops->limit_tenant(
			tier, &r->owed.limits[i].tenant, r->owed.limits[i].bytes);
	b->refused = NULL;
	b->spare = r;
	b->state = KVT_TIER_WORKS;
	b->reason[0] = '\0';
	/* other threads may be using the old tier: it is kept, without its files */
	tier->retired = b->tier;
	atomic_store(&b->tier, tier);
	return true;
}

/* Returns whether requests to the lost tier are still under way; they must end before another tier
 * takes its place. The caller holds `lock`. */
static bool is_busy(struct kvt_lower *b)
{
	return b->tier != NULL && b->under_way != 0;
}

/* Shows a tier that was made. KVT_BUSY: not yet, since requests to the lost tier are under way;
 * KVT_EIO: erased chunks in its store could not be removed, so that it is not used now. */
static enum kvt_status attach(struct kvt_lower *b, struct kvt_tier *tier)
{
	struct kvt *k = b->k;
	enum kvt_status status;
	struct owed owed;
	bool shown;

	do {
		pthread_mutex_lock(&k->lock);
		status = is_busy(b) ? KVT_BUSY : KVT_OK;
		shown = status == KVT_OK && show(b, tier, &owed);
		pthread_mutex_unlock(&k->lock);
		if (!shown && status == KVT_OK) {
			status = settle(k, tier, &owed) ? KVT_OK : KVT_EIO;
			owed_finish(&owed);
		}
	} while (!shown && status == KVT_OK);
	if (status != KVT_OK) {
		pthread_mutex_lock(&k->lock);
		b->refused->owed.all = true; /* only a part of the erases may have been applied */
		pthread_mutex_unlock(&k->lock);
		tier->ops->destroy(tier);
		return status;
	}
	kvt_note(&k->surroundings, KVT_LOG_INFO,
		"%s: the store could be opened: used from now on", b->ops->name);
	k->tier_came(k);
	return KVT_OK;
}

/* The store still belongs to another process, or still cannot be opened. */
static void refused_again(struct kvt_lower *b, enum kvt_status status, const char *why)
{
	struct kvt *k = b->k;
	struct kvt_refused *r = b->refused;

	kvt_count(&k->counters.lock_refusals, status == KVT_ELOCKED);
	if (strcmp(b->reason, why) != 0)
		kvt_note(&k->surroundings, KVT_LOG_ERROR, "%s: still left out: %s", b->ops->name, why);
	pthread_mutex_lock(&k->lock);
	snprintf(b->reason, sizeof(b->reason), "%s", why);
	pthread_mutex_unlock(&k->lock);
	r->pause_ns *= 2;
	if (r->pause_ns > longest_pause(k))
		r->pause_ns = longest_pause(k);
	r->again_ns = kvt_clock(k) + (int64_t)r->pause_ns;
	if (status == KVT_EFORMAT || status == KVT_EINVAL || status == KVT_ENOTSUP)
		r->again_ns = KVT_NEVER; /* it stays like that */
}

/* Returns whether it is time to retry. A store is not opened before names are known: without names,
 * chunks that were erased meanwhile could not be erased in it one by one, and the store could not
 * be read either. */
static bool is_due(struct kvt_lower *b)
{
	struct kvt_refused *r = b->refused;
	int64_t now_ns = kvt_clock(b->k);
	bool busy;

	if (now_ns < r->again_ns)
		return false;
	pthread_mutex_lock(&b->k->lock);
	busy = is_busy(b);
	pthread_mutex_unlock(&b->k->lock);
	if (!busy && kvt_names_known(b->k))
		return true;
	r->again_ns = now_ns + (busy ? BUSY_NS : NAMES_NS);
	return false;
}

/* A lost store is made again at once, and empty: chunks erased meanwhile, or whose erase was not
 * yet known, are in no list, and would come back if its old content was kept. */
static struct kvt_refused *take_spare(struct kvt_lower *b)
{
	struct kvt *k = b->k;
	struct kvt_refused *r = b->spare;
	struct kvt_tier *tier = b->tier;

	if (r == NULL || tier == NULL || b->ops->lost == NULL || !b->ops->lost(tier))
		return NULL;
	pthread_mutex_lock(&k->lock);
	b->spare = NULL;
	b->refused = r;
	r->owed.all = true;
	set_pause(k, r);
	r->again_ns = r->begun_ns;
	pthread_mutex_unlock(&k->lock);
	return r;
}

size_t kvt_refused_step(struct kvt_lower *b, int64_t *next_ns)
{
	struct kvt_refused *r = b->refused != NULL ? b->refused : take_spare(b);
	char why[KVT_REASON_BYTES] = "";
	struct kvt_tier *tier = NULL;
	enum kvt_status status;

	if (r == NULL)
		return 0;
	if (is_due(b)) {
		status = b->ops->create(&r->options, why, &tier);
		if (status == KVT_OK) {
			status = attach(b, tier);
			if (status == KVT_OK)
				return 1;
			snprintf(why, sizeof(why),
				"what was erased meanwhile cannot be erased in it");
		}
		if (status == KVT_BUSY)
			r->again_ns = kvt_clock(b->k) + BUSY_NS;
		else
			refused_again(b, status, why[0] != '\0' ? why : kvt_status_text(status));
	}
	if (r->again_ns < *next_ns)
		*next_ns = r->again_ns;
	return 0;
}
