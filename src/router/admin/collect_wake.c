/* collect_wake.c - writes samples about models that are woken. */
#include <stdlib.h>

#include "admin/collect.h"
#include "base/clock.h"
#include "fleet/fleet.h"
#include "fleet/wake/wakes.h"

static void collect_held(struct kvw_collect *collect, const struct kvw_wakes *wakes)
{
	const struct kvw_wake_model *model = atomic_load(&wakes->first);

	for (; model != NULL; model = model->next)
		if (atomic_load(&model->asked))
			kvw_sample_named(
				&collect->out, "model", model->name, atomic_load(&model->held));
}

/* Returns whether requests wake workers, and none had to wait for one in vain. */
static bool is_ready(const struct kvw_collect *collect, const struct kvw_wakes *wakes)
{
	const struct kvw_config *config = collect->metrics->fleet->config;

	return config->discovery_wake_hold_ms > 0 && kvw_wakes_any(wakes, config) &&
	       kvw_wakes_stuck(wakes, config->discovery_wake_hold_ms, collect->now_ns) == NULL;
}

void kvw_collect_wake(struct kvw_collect *collect)
{
	const struct kvw_wakes *wakes = collect->metrics->fleet->wakes;

	switch ((enum kvw_collect_of)collect->arg) {
	case KVW_OF_WAKE_HELD:
		collect_held(collect, wakes);
		break;
	case KVW_OF_WAKE_CALLS:
		kvw_sample_u64(&collect->out, NULL, 0, atomic_load(&wakes->calls));
		break;
	case KVW_OF_WAKE_FAILURES:
		kvw_sample_u64(&collect->out, NULL, 0, atomic_load(&wakes->failures));
		break;
	case KVW_OF_WAKE_SECONDS:
		kvw_sample_double(&collect->out, NULL, 0,
			(double)atomic_load(&wakes->held_ns) / KVW_NS_PER_S);
		break;
	case KVW_OF_WAKE_REQUESTS:
		for (int i = 0; i < KVW_WAKE_RESULTS; i++)
			kvw_sample_named(&collect->out, "result",
				kvw_wake_result_name((enum kvw_wake_result)i),
				atomic_load(&wakes->results[i]));
		break;
	case KVW_OF_WAKE_READY:
		kvw_sample_u64(&collect->out, NULL, 0, is_ready(collect, wakes));
		break;
	default:
		abort(); /* cannot happen: metrics.def gives this collector another arg */
	}
}
