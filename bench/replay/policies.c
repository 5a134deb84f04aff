/* policies.c - the list of policies, and what several of them need. */
#include <string.h>

#include "bench/replay/replay_policy.h"

#define KVB_POLICY(name, impl, peer, param, source)                                                \
	extern const struct kvb_policy_ops kvb_##impl##_ops;
#include "bench/replay/policies.def"
#undef KVB_POLICY

const struct kvb_policy kvb_policies[] = {
#define KVB_POLICY(name, impl, peer, param, source) {#name, &kvb_##impl##_ops, peer, param, source},
#include "bench/replay/policies.def"
#undef KVB_POLICY
	{0},
};

const struct kvb_policy *kvb_policy_find(const char *name)
{
	for (const struct kvb_policy *p = kvb_policies; p->name != NULL; p++)
		if (strcmp(p->name, name) == 0)
			return p;
	return NULL;
}

uint32_t kvb_lowest(const double *costs, uint32_t count, uint64_t *state)
{
	uint32_t best = 0;
	uint32_t ties = 1;

	for (uint32_t w = 1; w < count; w++) {
		if (costs[w] < costs[best]) {
			best = w;
			ties = 1;
		} else if (costs[w] == costs[best] && kvb_random(state) * ++ties < 1) {
			best = w;
		}
	}
	return best;
}
