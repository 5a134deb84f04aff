/*
 * find.c - finds the chunks of a chain: lookup, which never waits; find, which asks shared tiers
 * about chunks of which they are not known to have or to lack them; and prefetch, which asks and
 * then loads.
 *
 * One question covers the whole chain after its known chunks, so that one round trip is enough for
 * any length. Chunks that are still unknown afterwards count as missing.
 */
#include <stdlib.h>
#include <string.h>

#include "core/generations.h"
#include "core/lower.h"
#include "core/loads.h"
#include "core/moves.h"
#include "core/ops.h"
#include "core/probes.h"
#include "core/step.h"
#include "core/worth.h"

#define PREFETCH_PARTS 8 /* a prefetch may take one of this many parts of L1 */

/* --- lookup ----------------------------------------------------------------------------------- */

static enum kvt_status check(struct kvt *k, const struct kvt_key *keys, size_t n, const void *out)
{
	enum kvt_status status = kvt_usable(k);

	if (status == KVT_OK && ((keys == NULL && n != 0) || out == NULL || n > UINT32_MAX / 32))
		status = KVT_EINVAL;
	return status;
}

static void trace_lookup(struct kvt *k, const struct kvt_key *keys, size_t n,
	const struct kvt_lookup *plan, int64_t begun_ns)
{
	int64_t now_ns = kvt_clock(k);
	struct kvt_trace_event event = {.at_ns = now_ns,
		.took_ns = now_ns - begun_ns,
		.key = kvt_trace_key(keys),
		.missing = plan->worth < n ? kvt_trace_key(&keys[plan->worth]) : 0,
		.asked = (uint32_t)n,
		.had = (uint32_t)plan->worth,
		.what = KVT_TRACE_LOOKUP,
		.why = plan->worth < plan->hits ? KVT_WHY_SLOWER : KVT_WHY_NONE};

	kvt_trace_explain(k, &event);
	kvt_trace_note(k->trace, &event);
}

static void count_lookup(struct kvt *k, const struct kvt_key *keys, size_t n,
	const struct kvt_lookup *plan, int64_t begun_ns)
{
	if (k->trace != NULL && n > 0)
		trace_lookup(k, keys, n, plan, begun_ns);
	kvt_count(&k->counters.lookup_chunks, n);
	kvt_count(&k->counters.lookup_hits, plan->hits);
	kvt_count(&k->counters.not_worth, plan->hits - plan->worth);
}

/* Marks the tier of each chunk that is there, as far as no erase by another process is known. */
static void look(struct kvt *k, const struct kvt_key *keys, size_t n, uint32_t tier_mask, uint8_t *tiers,
	struct kvt_lookup *out)
{
	bool fresh = kvt_names_fresh(k);

	if (!fresh && tiers != NULL)
		memset(tiers, KVT_TIER_NONE, n);
	kvt_plan(k, keys, fresh ? n : 0, tier_mask, false, tiers, out);
}

enum kvt_status kvt_lookup(struct kvt *k, const struct kvt_key *keys, size_t n, uint32_t tier_mask,
	uint8_t *tiers, struct kvt_lookup *out)
{
	enum kvt_status status = check(k, keys, n, out);
	int64_t begun_ns;

	if (status != KVT_OK)
		return status;
	begun_ns = kvt_clock(k);
	look(k, keys, n, tier_mask, tiers, out);
	kvt_took(k, KVT_LATENCY_LOOKUP, begun_ns);
	kvt_count(&k->counters.lookups, 1);
	count_lookup(k, keys, n, out, begun_ns);
	return KVT_OK;
}

/* --- find ------------------------------------------------------------------------------------- */

struct find {
	struct kvt_op op; /* first */
	struct kvt_asker asker;
	int64_t begun_ns;
	uint32_t tier_mask;
	size_t n;
	struct kvt_key keys[];
};

static struct find *find_of(struct kvt_asker *asker)
{
	return (struct find *)((char *)asker - offsetof(struct find, asker));
}

static void complete(struct kvt *k, struct find *find, enum kvt_status status)
{
	struct kvt_lookup plan = {.hits = 0};

	kvt_probe_leave(&find->asker);
	/* otherwise the waiting caller looks up the chunks itself */
	if (find->op.id != 0 && status != KVT_ECANCELED) {
		kvt_plan(k, find->keys, find->n, find->tier_mask, true, NULL, &plan);
		kvt_took(k, KVT_LATENCY_FIND, find->begun_ns);
		count_lookup(k, find->keys, find->n, &plan, find->begun_ns);
	}
	kvt_op_done(k, &find->op, status, plan.hits);
}

static void answered(struct kvt *k, struct kvt_asker *asker)
{
	complete(k, find_of(asker), KVT_OK);
}

/* At the deadline the chunks known so far are the answer. */
static void expire(struct kvt *k, struct kvt_op *op, enum kvt_status why)
{
	complete(k, (struct find *)op, why == KVT_MISS ? KVT_OK : why);
}

static struct find *make(const struct kvt_key *keys, size_t n, uint32_t tier_mask, int64_t begun_ns)
{
	struct find *find = calloc(1, sizeof(*find) + n * sizeof(*keys));

	if (find == NULL)
		return NULL;
	find->op.kind = KVT_OP_FIND;
	find->op.expire = expire;
	find->asker.resolve = answered;
	find->begun_ns = begun_ns;
	find->tier_mask = tier_mask;
	find->n = n;
	if (n != 0)
		memcpy(find->keys, keys, n * sizeof(*keys));
	return find;
}

/* Asks shared tiers about the chunks after the first `known`; ends at once where there is nothing
 * to ask. Frees `find` on failure. */
static enum kvt_status begin(struct kvt *k, struct find *find, size_t known, uint64_t timeout_ns,
	const struct kvt_op_want *want)
{
	int64_t deadline_ns = kvt_deadline(k, timeout_ns);
	enum kvt_status status;

	pthread_mutex_lock(&k->lock);
	status = kvt_op_begin(k, &find->op, want, deadline_ns);
	if (status == KVT_OK && kvt_probe_begin(k, &find->keys[known], find->n - known,
					find->tier_mask, &find->asker) != KVT_OK)
		complete(k, find, KVT_OK);
	pthread_mutex_unlock(&k->lock);
	if (status != KVT_OK)
		free(find);
	return status;
}

enum kvt_status kvt_find(struct kvt *k, const struct kvt_key *keys, size_t n, uint32_t tier_mask,
	uint64_t timeout_ns, uint8_t *tiers, struct kvt_lookup *out)
{
	enum kvt_status status = check(k, keys, n, out);
	struct kvt_op_want want = {.id = NULL};
	struct kvt_lookup plan;
	struct find *find;
	int64_t begun_ns;
	bool fresh;

	if (status != KVT_OK)
		return status;
	begun_ns = kvt_clock(k);
	fresh = kvt_generations_await(k, timeout_ns);
	look(k, keys, n, tier_mask, tiers, &plan);
	if (fresh && plan.hits < n && kvt_probe_helps(k, &keys[plan.hits], tier_mask)) {
		find = make(keys, n, tier_mask, begun_ns);
		if (find == NULL)
			return KVT_ENOMEM;
		status = begin(k, find, plan.hits, timeout_ns, &want);
		if (status != KVT_OK)
			return status;
		kvt_op_wait(k, &find->op);
		status = (enum kvt_status)find->op.status;
		free(find);
		if (status != KVT_OK)
			return status;
		look(k, keys, n, tier_mask, tiers, &plan);
	}
	kvt_took(k, KVT_LATENCY_FIND, begun_ns);
	kvt_count(&k->counters.finds, 1);
	count_lookup(k, keys, n, &plan, begun_ns);
	*out = plan;
	return KVT_OK;
}

enum kvt_status kvt_find_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint32_t tier_mask, uint64_t timeout_ns, uint64_t user, uint64_t *op)
{
	enum kvt_status status = check(k, keys, n, op);
	struct kvt_op_want want = {.id = op, .user = user};
	struct kvt_lookup plan;
	struct find *find;

	if (status != KVT_OK)
		return status;
	if (!kvt_names_fresh(k))
		return KVT_BUSY;
	kvt_plan(k, keys, n, tier_mask, false, NULL, &plan);
	find = make(keys, n, tier_mask, kvt_clock(k));
	if (find == NULL)
		return KVT_ENOMEM;
	status = begin(k, find, plan.hits, timeout_ns, &want);
	if (status == KVT_OK)
		kvt_count(&k->counters.finds, 1);
	return status; /* another thread may own the operation by now */
}

/* --- prefetch --------------------------------------------------------------------------------- */

/* A prefetch that waits for a shared tier's answer about its chain. */
struct later {
	struct kvt_asker asker; /* first */
	size_t n;
	struct kvt_key keys[];
};

/* The caller holds `lock`. Loads at most a share of L1: a get of a longer chain loads it part by
 * part, and the prefetch must not evict what others use before then. */
static void load_all(struct kvt *k, const struct kvt_key *keys, size_t n)
{
	uint64_t most = kvt_arena_capacity(kvt_l1_arena(k->l1)) / PREFETCH_PARTS, before;
	size_t begun = 0;

	for (size_t i = 0; i < n && most > 0; i++) {
		if (kvt_l1_match(k->l1, &keys[i], 1) == 1)
			continue;
		before = k->loads.waiting_bytes;
		if (kvt_load_want(k, &keys[i], NULL) != KVT_OK)
			break;
		before = k->loads.waiting_bytes - before; /* 0: under way already */
		most -= before < most ? before : most;
		begun++;
	}
	kvt_pump(k);
	kvt_count(&k->counters.prefetches, begun);
}

static void load_later(struct kvt *k, struct kvt_asker *asker)
{
	struct later *later = (struct later *)asker;
	struct kvt_lookup plan;

	kvt_plan(k, later->keys, later->n, KVT_ALL_TIERS, true, NULL, &plan);
	kvt_count(&k->counters.not_worth, plan.hits - plan.worth);
	if (!k->closing)
		load_all(k, later->keys, plan.worth);
	free(later);
}

/* The caller holds `lock`. If no question can be asked, the rest of the chain is not prefetched. */
static void ask_first(struct kvt *k, const struct kvt_key *keys, size_t n)
{
	struct later *later = calloc(1, sizeof(*later) + n * sizeof(*keys));

	if (later == NULL)
		return;
	later->asker.resolve = load_later;
	later->n = n;
	memcpy(later->keys, keys, n * sizeof(*keys));
	if (kvt_probe_begin(k, keys, n, KVT_ALL_TIERS, &later->asker) != KVT_OK)
		free(later);
}

enum kvt_status kvt_prefetch(struct kvt *k, const struct kvt_key *keys, size_t n)
{
	enum kvt_status status = check(k, keys, n, keys);
	struct kvt_lookup plan;

	if (status != KVT_OK)
		return status;
	if (n == 0)
		return KVT_EINVAL;
	if (!kvt_names_fresh(k))
		return KVT_OK;
	kvt_plan(k, keys, n, KVT_ALL_TIERS, false, NULL, &plan);
	kvt_count(&k->counters.not_worth, plan.hits - plan.worth);
	pthread_mutex_lock(&k->lock);
	load_all(k, keys, plan.worth);
	if (plan.worth == plan.hits && plan.hits < n)
		ask_first(k, &keys[plan.hits], n - plan.hits);
	pthread_mutex_unlock(&k->lock);
	return KVT_OK;
}
