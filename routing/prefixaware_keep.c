/*
 * prefixaware_keep.c - what requests and answers have taught, over a restart: the prefix tree, and the share of
 * each worker's cache that predictions count on.
 *
 * Prefill rates are not kept: some eight streams teach them again, and the machine behind a URL may be another.
 */
#include <string.h>

#include "routing/prefixaware.h"
#include "routing/radix_keep.h"

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
	enum kvw_err err = kvw_radix_keep(pa->tree, out);

	return err != KVW_OK ? err : keep_shares(pa, out);
}

static void recall_share(struct kvw_prefixaware *pa, const struct kvw_keep_in *in, const uint8_t *bytes, size_t len)
{
	struct share_record record;

	if (len != sizeof(record))
		return;
	memcpy(&record, bytes, sizeof(record));
	if (record.worker >= KVW_MAX_WORKERS || in->workers[record.worker] >= KVW_MAX_WORKERS ||
		!(record.share >= (float)KVW_CAPACITY_SHARE_LEAST && record.share <= 1))
		return;
	atomic_store_explicit(&pa->known->capacity_share.share[in->workers[record.worker]], record.share,
		memory_order_relaxed);
}

void kvw_prefixaware_recall(struct kvw_strategy *self, const struct kvw_keep_in *in)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;
	struct kvw_radix_recall *tree = NULL;
	const uint8_t *bytes;
	enum kvw_keep_kind kind;
	size_t len;

	for (uint32_t i = 0; i < KVW_MAX_WORKERS; i++) {
		uint32_t id = in->workers[i];

		if (id < KVW_MAX_WORKERS)
			atomic_store_explicit(&pa->known->generations[id], in->generations[id],
				memory_order_relaxed);
	}
	while (in->next(in->arg, &kind, &bytes, &len)) {
		if (kind == KVW_KEPT_TREE && tree == NULL)
			/* What is not for this tree is left out. */
			(void)!kvw_radix_recall_begin(pa->tree, in, bytes, len, &tree);
		else if (kind == KVW_KEPT_NODE && tree != NULL)
			kvw_radix_recall_node(tree, bytes, len);
		else if (kind == KVW_KEPT_VIEW && tree != NULL)
			kvw_radix_recall_view(tree, bytes, len);
		else if (kind == KVW_KEPT_SHARE)
			recall_share(pa, in, bytes, len);
	}
	kvw_radix_recall_end(tree);
}
