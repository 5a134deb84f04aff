/*
 * group_choice.c - draws a request's group. Cost: some 20 ns per group.
 */
#include "routing/group_choice.h"

#include <math.h>

/* The mixing function of splitmix64. */
static uint64_t mixed(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* Returns a number between 0 and 1, excluding both. */
static double draw(uint64_t key, uint64_t hash)
{
	return ((double)(mixed(mixed(key) + hash) >> 12) + 0.5) * 0x1p-52;
}

size_t kvw_group_order(
	const struct kvw_group_share *shares, size_t count, uint64_t key, uint8_t *order)
{
	double costs[KVW_GROUPS_MOST];
	size_t found = 0;

	for (size_t i = 0; i < count && i < KVW_GROUPS_MOST; i++) {
		double cost;
		size_t at = found;

		if (!(shares[i].weight > 0))
			continue;
		cost = -log(draw(key, shares[i].hash)) / shares[i].weight;
		for (; at > 0 && cost < costs[at - 1]; at--) {
			costs[at] = costs[at - 1];
			order[at] = order[at - 1];
		}
		costs[at] = cost;
		order[at] = (uint8_t)i;
		found++;
	}
	return found;
}
