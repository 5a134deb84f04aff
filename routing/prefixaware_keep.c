/*
 * prefixaware_keep.c - keeps learned state over a restart: the prefix tree, and the share of each
 * worker's cache that predictions assume.
 *
 * Large trees are recalled while requests are served (kvw_prefixaware_recall_aside): into the final
 * tree, which no other thread sees yet, while requests use a small one. At the end one store puts
 * the large tree into use. A pick loads the tree once and may go on to use the small one, which
 * therefore lives as long as the large one.
 *
 * Prefill rates are not kept: some eight streams teach them again, and the machine at a URL may
 * have changed.
 */
#include <string.h>

#include "routing/prefixaware.h"
#include "routing/radix_keep.h"

/* The interim tree gets this part of the bytes. */
#define INTERIM_SHARE 16
#define INTERIM_MOST  (UINT64_C(64) << 20) /* bytes */

struct share_record {
	uint32_t worker;
	float share;
};

static enum kvw_err keep_shares(struct kvw_prefixaware *pa, const struct kvw_keep_out *out)
{
	for (uint32_t i = 0; i < KVW_MAX_WORKERS; i++) {
		const struct share_record record = {i, atomic_load_explicit(
				&pa->known->capacity_share.share[i], memory_order_relaxed)};
		enum kvw_err err;

		if (record.share >= 1)
			continue;
		err = out->put(out->arg, KVW_KEPT_SHARE, &record, sizeof(record));
		if (err != KVW_OK)
			return err;
	}
	return KVW_OK;
}

enum kvw_err kvw_prefixaware_keep(struct kvw_strategy *self, const struct kvw_keep_out *out)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;
	enum kvw_err err = kvw_radix_keep(kvw_prefixaware_tree(pa), out);

	return err != KVW_OK ? err : keep_shares(pa, out);
}

static void recall_share(
	struct kvw_prefixaware *pa, const struct kvw_keep_in *in, const uint8_t *bytes, size_t len)
{
	struct share_record record;

	if (len != sizeof(record))
		return;
	memcpy(&record, bytes, sizeof(record));
	if (record.worker >= KVW_MAX_WORKERS || in->workers[record.worker] >= KVW_MAX_WORKERS ||
		!(record.share >= (float)KVW_CAPACITY_SHARE_LEAST && record.share <= 1))
		return;
	atomic_store_explicit(&pa->known->capacity_share.share[in->workers[record.worker]],
		record.share, memory_order_relaxed);
}

enum kvw_err kvw_prefixaware_recall_aside(struct kvw_strategy *self)
{
	struct kvw_prefix_knowledge *known = ((struct kvw_prefixaware *)self)->known;
	uint64_t bytes = known->own_bytes / INTERIM_SHARE;
	const struct kvw_radix_options options = {
		.bytes = bytes < INTERIM_MOST ? bytes : INTERIM_MOST, .seed = known->seed};
	enum kvw_err err = KVW_OK;

	if (known->interim == NULL)
		err = kvw_radix_create(&options, &known->interim);
	if (err != KVW_OK)
		return KVW_ENOMEM;
	atomic_store_explicit(&known->tree, known->interim, memory_order_release);
	return KVW_OK;
}

/* Stores generations, unless another thread has stored a newer one. */
static void know_generations(struct kvw_prefix_knowledge *known, const struct kvw_keep_in *in)
{
	for (uint32_t i = 0; i < KVW_MAX_WORKERS; i++) {
		uint32_t id = in->workers[i], before;

		if (id >= KVW_MAX_WORKERS)
			continue;
		before = atomic_load(&known->generations[id]);
		while ((int32_t)(in->generations[id] - before) > 0 &&
			!atomic_compare_exchange_weak(
				&known->generations[id], &before, in->generations[id]))
			;
	}
}

/* Purges workers that have lost their caches meanwhile. */
static void purge_newer(struct kvw_prefix_knowledge *known, const struct kvw_keep_in *in)
{
	for (uint32_t i = 0; i < KVW_MAX_WORKERS; i++) {
		uint32_t id = in->workers[i];

		if (id < KVW_MAX_WORKERS &&
			atomic_load(&known->generations[id]) != in->generations[id])
			kvw_radix_purge(known->own, id);
	}
}

/* Puts the recalled tree into use. When a cache is lost, that is first recorded in `generations`,
 * and then the tree in use is purged. So either this function sees the record, before or after the
 * exchange, or the new tree is the one that is purged. */
static void use_own(struct kvw_prefix_knowledge *known, const struct kvw_keep_in *in)
{
	if (atomic_load(&known->tree) == known->own)
		return;
	purge_newer(known, in);
	atomic_store(&known->tree, known->own);
	purge_newer(known, in);
}

void kvw_prefixaware_add_other(const struct kvw_prefixaware *pa, const struct kvw_radix *tree,
	struct kvw_strategy_stats *stats)
{
	const struct kvw_prefix_knowledge *known = pa->known;
	struct kvw_radix *other = tree == known->own ? known->interim : known->own;
	struct kvw_strategy_stats more = {0};

	if (other == NULL)
		return;
	kvw_radix_stats(other, &more);
	stats->evicted_chunks += more.evicted_chunks;
	stats->purges += more.purges;
}

void kvw_prefixaware_recall(struct kvw_strategy *self, const struct kvw_keep_in *in)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;
	struct kvw_radix_recall *tree = NULL;
	const uint8_t *bytes;
	enum kvw_keep_kind kind;
	size_t len;

	know_generations(pa->known, in);
	while (in->next(in->arg, &kind, &bytes, &len)) {
		if (kind == KVW_KEPT_TREE && tree == NULL)
			/* Records of trees other than the first are skipped. */
			(void)!kvw_radix_recall_begin(pa->known->own, in, bytes, len, &tree);
		else if (kind == KVW_KEPT_NODE && tree != NULL)
			kvw_radix_recall_node(tree, bytes, len);
		else if (kind == KVW_KEPT_VIEW && tree != NULL)
			kvw_radix_recall_view(tree, bytes, len);
		else if (kind == KVW_KEPT_SHARE)
			recall_share(pa, in, bytes, len);
	}
	kvw_radix_recall_end(tree);
	use_own(pa->known, in);
}
