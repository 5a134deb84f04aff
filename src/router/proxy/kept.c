/* kept.c - judges whether the promise to a request was kept. */
#include "proxy/kept.h"

#include "proxy/groups.h"
#include "proxy/loop.h"

/* The times of an answer and of its promise, in ns; 0: not promised, or unknown. */
struct answer {
	int64_t due_ns, tpot_ns;
	int64_t first_ns; /* time from the request to the first byte */
	int64_t rest_ns;  /* time from the first byte of a stream to its last */
	int64_t gaps;     /* tokens after the first */
};

static enum kvw_kept judge_stream(const struct answer *a)
{
	if (a->due_ns > 0 && a->first_ns > a->due_ns)
		return KVW_KEPT_LATE;
	if (a->tpot_ns > 0 && a->rest_ns > a->gaps * a->tpot_ns)
		return KVW_KEPT_SLOW;
	return KVW_KEPT;
}

/* Judges an answer that arrived all at once: by the first token's time, or by that of all
 * tokens. */
static enum kvw_kept judge_whole(const struct answer *a)
{
	if (a->due_ns > 0 && a->first_ns <= a->due_ns)
		return KVW_KEPT;
	if (a->gaps == 0 || a->tpot_ns == 0)
		return KVW_KEPT_UNSEEN;
	if (a->first_ns <= a->due_ns + a->gaps * a->tpot_ns)
		return KVW_KEPT;
	return a->due_ns > 0 ? KVW_KEPT_LATE : KVW_KEPT_UNSEEN;
}

static struct answer answer_of(const struct kvw_exchange *x)
{
	const struct kvw_entrant *e = &x->admission.entrant;
	uint32_t tokens = x->usage.completion_known ? x->usage.completion_tokens
			  : x->event_stream         ? x->stream_chunks
						    : 0;

	return (struct answer){
		.due_ns = kvw_promise_first_ns(&e->promise,
			x->usage.prompt_known ? x->usage.prompt_tokens : e->tokens),
		.tpot_ns = e->promise.tpot_ns,
		.first_ns = x->first_token_ns - e->wait.came_ns,
		.rest_ns = x->last_data_ns - x->first_token_ns,
		.gaps = tokens > 1 ? (int64_t)tokens - 1 : 0,
	};
}

/* Judges the promise. KVW_KEPT_COUNT: the end of the exchange says nothing about it. */
static enum kvw_kept judge_promise(const struct kvw_exchange *x, enum kvw_end end)
{
	struct answer a = answer_of(x);

	if (end == KVW_END_CLIENT_GONE) {
		if (x->first_token_ns == 0)
			a.first_ns = x->loop->now_ns - x->admission.entrant.wait.came_ns;
		return a.due_ns > 0 && a.first_ns > a.due_ns ? KVW_KEPT_LATE : KVW_KEPT_COUNT;
	}
	if (end == KVW_END_LOCAL && x->status == 429)
		return KVW_KEPT_REFUSED;
	if (x->status >= 400 && x->status < 500)
		return KVW_KEPT_COUNT;
	if (end != KVW_END_COMPLETE || x->status >= 500 || x->first_token_ns == 0)
		return KVW_KEPT_FAILED;
	return x->event_stream ? judge_stream(&a) : judge_whole(&a);
}

void kvw_kept_count(struct kvw_exchange *x, enum kvw_end end)
{
	const struct kvw_entrant *e = &x->admission.entrant;
	bool promised =
		e->promise.ttft_ns > 0 || e->promise.ttft_per_1k_ns > 0 || e->promise.tpot_ns > 0;

	if (x->event_stream && e->counted_ns > 0 && x->first_token_ns > e->sent_ns)
		kvw_metrics_first_token(
			x->loop->metrics, e->counted_ns, x->first_token_ns - e->sent_ns);
	if (promised) {
		enum kvw_kept kept = judge_promise(x, end);

		if (kept != KVW_KEPT_COUNT)
			kvw_metrics_kept(
				x->loop->metrics, x->in_force->class_labels[e->wait.class], kept);
		if (kept != KVW_KEPT_COUNT && x->division.group != NULL)
			kvw_metrics_group_kept(x->loop->metrics, kvw_groups_label(x), kept);
	}
}
