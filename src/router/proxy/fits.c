/*
 * fits.c - finds the workers that take a prompt of this length.
 */
#include "proxy/fits.h"

#include "base/find.h"
#include "proxy/tried.h"
#include "routing/choice.h"

/* Returns the longest prompt with answer that a worker takes. */
static uint32_t len_of(const struct kvw_exchange *x, const struct kvw_candidate *item)
{
	uint32_t len = atomic_load_explicit(
		&x->loop->fleet->workers[item->id]->max_model_len, memory_order_relaxed);

	return len == 0 ? UINT32_MAX : len;
}

void kvw_fits_keep(const struct kvw_exchange *x, struct kvw_fleet_table *table)
{
	uint32_t shortest =
		atomic_load_explicit(&x->loop->fleet->shortest_len, memory_order_relaxed);
	uint32_t longest = 0;
	uint64_t need;
	bool all = true;

	if (shortest == 0 || !kvw_exchange_computes(x))
		return;
	need = kvw_request_tokens(&x->route);
	need += (x->route.exact_tokens > 0 || x->route.token_ids ? 0 : need / 8) +
		x->route.answer_most;
	need = need > x->tried.too_long_for ? need : UINT64_C(1) + x->tried.too_long_for;
	if (need <= shortest)
		return;
	for (size_t i = 0; i < table->count; i++)
		if (table->items[i].usable && len_of(x, &table->items[i]) > longest)
			longest = len_of(x, &table->items[i]);
	/* if the request fits no worker, those with the longest limit answer with the cause */
	need = need < longest ? need : longest;
	for (size_t i = 0; i < table->count; i++) {
		bool fits = len_of(x, &table->items[i]) >= need;

		all = all && (fits || !table->items[i].usable);
		table->items[i].usable = table->items[i].usable && fits;
	}
	if (!all)
		table->version = 0; /* 0: the next read fills the table again */
}

bool kvw_fits_another(const struct kvw_exchange *x)
{
	struct kvw_fleet_table *table = &x->loop->candidates;
	uint32_t own =
		atomic_load_explicit(&x->attempt.worker->max_model_len, memory_order_relaxed);

	if (own == 0 || x->tried.too_long_for > 0 || !kvw_exchange_computes(x) ||
		!x->path.repeatable || !x->whole || x->pin.len > 0 ||
		x->attempt.decision.reason == KVW_REASON_OWNER)
		return false;
	kvw_tried_read_others(x, table);
	for (size_t i = 0; i < table->count; i++) {
		uint32_t len = len_of(x, &table->items[i]);

		if (table->items[i].usable && len > own && len < UINT32_MAX)
			return true;
	}
	return false;
}

bool kvw_fits_denies(const char *data, size_t len)
{
	/* Words that mean a prompt that is too long: those of vLLM, which differ from path to path,
	 * and of SGLang. */
	static const struct kvw_slice words[] = {
		KVW_SLICE("context length"), KVW_SLICE("maximum model length"),
		KVW_SLICE("max_model_len")};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (kvw_find(data, len, words[i]) != NULL)
			return true;
	return false;
}

void kvw_fits_leave(struct kvw_exchange *x)
{
	x->tried.too_long_for =
		atomic_load_explicit(&x->attempt.worker->max_model_len, memory_order_relaxed);
	kvw_attempt_excused(&x->attempt, KVW_EXCUSE_LACKS, "the prompt is too long for it");
}
