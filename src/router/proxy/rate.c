/* rate.c - shows what is left of a request's limits, and charges its use; see rate.h. */
#include "proxy/rate.h"

#include "proxy/used.h"

size_t kvw_rate_fields(const struct kvw_exchange *x, char out[KVW_RATE_ROOM])
{
	struct kvw_rate_time time = kvw_rate_time_of(x->loop);

	if (!kvw_rate_holds(x))
		return 0;
	return kvw_rates_fields(&x->rating.ticket, &time,
		kvw_api_anthropic(x->path.api) ? KVW_RATE_ANTHROPIC : KVW_RATE_OPENAI, out);
}

/* --- use --- */

void kvw_rate_end(struct kvw_exchange *x, enum kvw_end end)
{
	struct kvw_used_tokens used;
	uint64_t tokens, answer = 0;

	if (!kvw_rate_holds(x))
		return;
	used = kvw_used_tokens(x, end);
	tokens = used.prompt + used.completion;
	/* Only a complete answer that reports its usage teaches how long answers are. */
	if (used.reported && x->usage.completion_known && x->rating.answers > 0)
		answer = used.completion / x->rating.answers;
	kvw_metrics_add(x->loop->metrics, KVW_COUNT_RATE_CHARGED, tokens);
	kvw_rates_settle(&x->rating.ticket, tokens, answer, x->tried.attempts > 0, x->loop->now_ns);
}
