/* open_metrics.c - see open_metrics.h. */
#include "admin/open_metrics.h"

#include "admin/metrics_shard.h"
#include "http/accept.h"
#include "trace/trace.h"

bool kvw_open_metrics_wanted(const struct kvw_head *head)
{
	unsigned open = 0, text = 0;

	for (size_t i = 0; i < head->field_count; i++) {
		const struct kvw_field *field = &head->fields[i];
		unsigned o, t;

		if (!kvw_slice_equal_nocase(field->name, KVW_SLICE("accept")))
			continue;
		o = kvw_accept_weight(field->value, KVW_SLICE("application/openmetrics-text"),
			KVW_SLICE("1.0.0"));
		t = kvw_accept_weight(field->value, KVW_SLICE("text/plain"), KVW_SLICE("0.0.4"));
		open = o > open ? o : open;
		text = t > text ? t : text;
	}
	return open > 0 && open >= text;
}

/* --- exemplars --- */

static void note(struct kvw_metrics *metrics, const struct kvw_trace_story *story,
	enum kvw_exemplar_of of, int64_t value_ns)
{
	size_t bucket = kvw_bounds_find(&metrics->bounds.token, (uint64_t)value_ns);
	struct kvw_exemplar *exemplar = &metrics->exemplars.of[story->api][of][bucket];

	kvw_trace_id(exemplar->trace_id, &story->context);
	exemplar->value_ns = value_ns;
	exemplar->wall_ns = story->wall_ns + story->total_ns;
}

void kvw_metrics_made(void *arg, const struct kvw_trace_story *story)
{
	struct kvw_metrics *metrics = arg;
	bool forwarded = false;

	if (story->api >= KVW_API_COUNT)
		return;
	pthread_mutex_lock(&metrics->lock);
	for (size_t i = 0; i < story->note_count; i++) {
		const struct kvw_trace_note *at = &story->notes[i];

		forwarded = forwarded || at->kind == KVW_TRACE_ATTEMPT;
		if (at->kind == KVW_TRACE_FIRST_TOKEN && story->outcome.stream)
			note(metrics, story, KVW_EXEMPLAR_FIRST_TOKEN, (int64_t)at->at_us * 1000);
	}
	if (forwarded && story->total_ns > 0)
		note(metrics, story, KVW_EXEMPLAR_TOTAL, story->total_ns);
	pthread_mutex_unlock(&metrics->lock);
}
