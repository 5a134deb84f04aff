/* admissions.c - the list of admissions.def. */
#include <string.h>

#include "bench/replay/replay_admission.h"

extern const struct kvb_admission_ops kvb_admission_bounded_ops, kvb_admission_engine_ops,
	kvb_admission_envoy_ops, kvb_admission_kvway_ops, kvb_admission_llmd_ops;

const struct kvb_admission kvb_admissions[] = {
#define KVB_ADMISSION(name, ops, peer, param, source) {#name, ops, peer, param, source},
#include "bench/replay/admissions.def"
#undef KVB_ADMISSION
	{0},
};

const struct kvb_admission *kvb_admission_find(const char *name)
{
	for (const struct kvb_admission *a = kvb_admissions; a->name != NULL; a++)
		if (strcmp(a->name, name) == 0)
			return a;
	return NULL;
}
