/* collect_otel.c - writes samples of the export of spans (otel/exporter.h). */
#include <stdlib.h>

#include "admin/collect.h"
#include "otel/exporter.h"
#include "trace/trace.h"

static uint64_t load(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void put_dropped(struct kvw_collect *collect, const struct kvw_otel_state *state)
{
	static const char *const of_loops[KVW_TRACE_DROPS] = {
		[KVW_TRACE_DROP_FULL] = "queue", [KVW_TRACE_DROP_LIMIT] = "limit"};
	static const char *const of_thread[KVW_OTEL_DROPS] = {
		[KVW_OTEL_DROP_BUFFER] = "buffer",
		[KVW_OTEL_DROP_REFUSED] = "refused",
		[KVW_OTEL_DROP_FAILED] = "failed",
		[KVW_OTEL_DROP_STOPPED] = "stopped",
	};

	for (size_t i = 0; i < KVW_TRACE_DROPS; i++)
		kvw_sample_named(&collect->out, "reason", of_loops[i],
			kvw_trace_dropped(state->trace, (enum kvw_trace_drop)i));
	for (size_t i = 0; i < KVW_OTEL_DROPS; i++)
		kvw_sample_named(&collect->out, "reason", of_thread[i], load(&state->dropped[i]));
}

void kvw_collect_otel(struct kvw_collect *collect)
{
	const struct kvw_otel_state *state = collect->metrics->sources.otel;
	uint64_t repeated;

	if (state == NULL)
		return;
	switch ((enum kvw_collect_of)collect->arg) {
	case KVW_OF_OTEL_EXPORTED:
		kvw_sample_u64(&collect->out, NULL, 0, load(&state->exported));
		break;
	case KVW_OF_OTEL_DROPPED:
		put_dropped(collect, state);
		break;
	case KVW_OF_OTEL_REJECTED:
		kvw_sample_u64(&collect->out, NULL, 0, load(&state->rejected));
		break;
	case KVW_OF_OTEL_MESSAGES:
		repeated = load(&state->repeated);
		kvw_sample_named(&collect->out, "try", "first", load(&state->sent) - repeated);
		kvw_sample_named(&collect->out, "try", "repeated", repeated);
		break;
	case KVW_OF_OTEL_WAITING:
		kvw_sample_u64(&collect->out, NULL, 0, load(&state->waiting));
		break;
	default:
		abort(); /* cannot happen: metrics.def gives this collector another arg */
	}
}
