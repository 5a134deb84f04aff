/*
 * fits.c - see fits.h.
 */
#include "proxy/fits.h"

#include "routing/choice.h"

/* Longest prompt and answer that a worker takes. */
static uint32_t len_of(const struct kvw_exchange *x, const struct kvw_candidate *item)
{
	uint32_t len = atomic_load_explicit(
		&x->loop->fleet->workers[item->id]->max_model_len, memory_order_relaxed);

	return len == 0 ? UINT32_MAX : len;
}

void kvw_fits_keep(const struct kvw_exchange *x, struct kvw_fleet_table *table)
{
	uint32_t shortest = atomic_load_explicit(&x->loop->fleet->shortest_len, memory_order_relaxed);
	uint32_t longest = 0;
	uint64_t need;
	bool all = true;

	if (shortest == 0 || !kvw_exchange_computes(x))
		return;
	need = kvw_request_tokens(&x->route);
	need += (x->route.exact_tokens > 0 || x->route.token_ids ? 0 : need / 8) + x->route.answer_most;
	if (need <= shortest)
		return;
	for (size_t i = 0; i < table->count; i++)
		if (table->items[i].usable && len_of(x, &table->items[i]) > longest)
			longest = len_of(x, &table->items[i]);
	need = need < longest ? need : longest; /* where it fits none, the longest say why */
	for (size_t i = 0; i < table->count; i++) {
		bool fits = len_of(x, &table->items[i]) >= need;

		all = all && (fits || !table->items[i].usable);
		table->items[i].usable = table->items[i].usable && fits;
	}
	if (!all)
		table->version = 0; /* it is refilled next time */
}
