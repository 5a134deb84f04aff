/*
 * tracing.c - see tracing.h.
 *
 * Everything is kept in the request's record (trace/trace.h). A request without a record, because
 * more run than there are records, passes with the client's own fields, as without tracing.
 */
#include "proxy/tracing.h"

#include "http/target.h"
#include "proxy/loop.h"
#include "trace/trace.h"

/* Returns the value of the only `traceparent`; len 0: there is none, or there are several, of which
 * none counts. */
static struct kvw_slice traceparent_of(const struct kvw_head *head)
{
	struct kvw_slice name = KVW_SLICE("traceparent"), none = {NULL, 0};
	const struct kvw_field *field = kvw_head_find(head, name), *other = field;

	if (field == NULL)
		return none;
	while (++other < head->fields + head->field_count)
		if (kvw_slice_equal_nocase(other->name, name))
			return none;
	return field->value;
}

/* Returns method and path, without a copy: they lie one behind the other, but in a request whose
 * target is a whole URL. Of that: the method. */
static struct kvw_slice line_of(const struct kvw_head *head)
{
	struct kvw_slice line = head->method, path = kvw_target_path(head->target);

	if (path.data == line.data + line.len + 1)
		line.len += 1 + path.len;
	return line;
}

void kvw_tracing_join(struct kvw_exchange *x, const struct kvw_head *head)
{
	kvw_trace_join(x->trace, traceparent_of(head));
	kvw_trace_asks(x->trace, line_of(head));
}

/* Returns the client's name of the model where its workers have another one. */
static struct kvw_slice asked_model(const struct kvw_exchange *x)
{
	if (x->rewrite.alias != NULL)
		return kvw_slice_of(x->rewrite.alias->name);
	return kvw_slice_of(x->rewrite.rename_to == NULL || x->division.group == NULL
				    ? NULL
				    : x->division.group->model);
}

void kvw_tracing_end(const struct kvw_exchange *x)
{
	const struct kvw_trace_outcome outcome = {
		.prompt_known = x->usage.prompt_known,
		.completion_known = x->usage.completion_known,
		.cached_known = x->usage.cached_known,
		.stream = x->event_stream,
		.prompt = x->usage.prompt_tokens,
		.completion = x->usage.completion_tokens,
		.cached = x->usage.cached_tokens,
		.strategy = x->tried.attempts == 0 ? NULL : x->strategy->ops->name,
	};

	kvw_trace_answered(x->trace, &outcome, asked_model(x));
}
