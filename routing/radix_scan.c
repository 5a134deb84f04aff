/*
 * radix_scan.c - scans holders without branches, since a word's worker and state are hard to
 * predict and cheap to compute.
 */
#include "routing/radix_scan.h"

#include <string.h>

#include "routing/radix_node.h"

static uint64_t load_word(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

static bool is_alive(const _Atomic uint64_t *windows, struct kvw_holder h)
{
	return kvw_view_alive(
		atomic_load_explicit(&windows[h.worker], memory_order_relaxed), h.tick);
}

uint32_t kvw_scan_of_worker(const _Atomic uint64_t *words, unsigned used, uint32_t worker)
{
	uint32_t mine = 0;

	for (unsigned i = 0; i < used; i++) {
		struct kvw_holder h = kvw_holder_unpack(load_word(&words[i]));

		mine |= (uint32_t)((h.worker == worker) & (h.upto != 0)) << i;
	}
	return mine;
}

uint32_t kvw_scan_dead(
	const _Atomic uint64_t *words, unsigned used, const _Atomic uint64_t *windows)
{
	uint32_t gone = 0;

	for (unsigned i = 0; i < used; i++) {
		struct kvw_holder h = kvw_holder_unpack(load_word(&words[i]));

		gone |= (uint32_t)((h.upto == 0) | !is_alive(windows, h)) << i;
	}
	return gone;
}

void kvw_scan_reach_none(struct kvw_radix_reach *reach)
{
	reach->count = 0;
	memset(reach->map, 0, reach->limit * sizeof(reach->map[0]));
}

void kvw_scan_reach(const _Atomic uint64_t *words, unsigned used, const _Atomic uint64_t *windows,
	uint32_t start, uint32_t length, struct kvw_radix_reach *reach)
{
	uint32_t count = reach->count;

	for (unsigned i = 0; i < used; i++) {
		struct kvw_holder h = kvw_holder_unpack(load_word(&words[i]));
		uint64_t window = atomic_load_explicit(&windows[h.worker], memory_order_relaxed);
		uint32_t extent = kvw_holder_extent(h, window);
		uint32_t upto = extent < length ? extent : length;
		bool counts = h.worker < reach->limit;
		uint32_t worker = counts ? h.worker : 0;
		uint32_t held = reach->map[worker];

		counts &= held - start < upto;
		reach->map[worker] = counts ? start + upto : held;
		reach->workers[count] = worker;
		count += counts & (held == 0);
	}
	reach->count = count;
}

void kvw_scan_reach_done(struct kvw_radix_reach *reach)
{
	for (uint32_t i = 0; i < reach->count; i++)
		reach->chunks[i] = reach->map[reach->workers[i]];
}
