/* replay_loads.c - see replay_loads.h. */
#include "bench/replay/replay_loads.h"

#include "bench/load/mem.h"

void kvb_loads_add(struct kvb_loads *loads, struct kvb_load load)
{
	if (loads->count == loads->room) {
		loads->room = loads->room > 0 ? 2 * loads->room : 64;
		loads->items = kvb_realloc(loads->items, loads->room, sizeof(loads->items[0]));
	}
	loads->items[loads->count++] = load;
}

int64_t kvb_loads_next_ns(const struct kvb_loads *loads)
{
	int64_t next = INT64_MAX;

	for (uint32_t i = 0; i < loads->count; i++)
		if (loads->items[i].end_ns < next)
			next = loads->items[i].end_ns;
	return next;
}

bool kvb_loads_end(struct kvb_loads *loads, int64_t now_ns, struct kvb_load *ended)
{
	for (uint32_t i = 0; i < loads->count; i++) {
		if (loads->items[i].end_ns > now_ns)
			continue;
		*ended = loads->items[i];
		loads->items[i] = loads->items[--loads->count];
		return true;
	}
	return false;
}

int64_t kvb_links_take(int64_t *from_ns, int64_t *to_ns, int64_t now_ns, int64_t takes_ns)
{
	int64_t begin_ns = now_ns > *from_ns ? now_ns : *from_ns;

	begin_ns = begin_ns > *to_ns ? begin_ns : *to_ns;
	return *from_ns = *to_ns = begin_ns + takes_ns;
}
