/* rate.c - shows what is left of a request's limits, and charges its use; see rate.h. */
#include "proxy/rate.h"

size_t kvw_rate_fields(const struct kvw_exchange *x, char out[KVW_RATE_ROOM])
{
	struct kvw_rate_time time = kvw_rate_time_of(x->loop);

	if (!kvw_rate_holds(x))
		return 0;
	return kvw_rates_fields(&x->rating.ticket, &time,
		kvw_api_anthropic(x->path.api) ? KVW_RATE_ANTHROPIC : KVW_RATE_OPENAI, out);
}

/* --- use --- */

/* Counts events, which end in an empty line: an engine sends one for each token, or for a few.
 * Lines end in LF or CRLF. */
void kvw_rate_watch(struct kvw_exchange *x, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		bool end = data[i] == '\n';

		if (data[i] == '\r')
			continue;
		x->rating.events += end && x->rating.line_ended;
		x->rating.line_ended = end && !x->rating.line_ended;
	}
}

/* Returns the tokens that the request used. *answer: tokens of its answer, if there was one answer
 * that ended completely and reports its usage. */
static uint64_t used_tokens(const struct kvw_exchange *x, enum kvw_end end, uint64_t *answer)
{
	const struct kvw_usage *usage = &x->usage;
	bool good = x->status >= 200 && x->status < 300, whole = end == KVW_END_COMPLETE;
	uint64_t written = usage->completion_known ? usage->completion_tokens : 0;
	uint64_t passed = x->rating.events > x->said_all ? x->rating.events - x->said_all : 0;

	*answer = 0;
	if (!kvw_exchange_computes(x) || x->tried.attempts == 0)
		return 0;
	if (whole && good && usage->prompt_known) {
		if (usage->completion_known && x->rating.answers > 0)
			*answer = written / x->rating.answers;
		return usage->prompt_tokens + written;
	}
	if (!good && (x->status != 0 || end != KVW_END_CLIENT_GONE))
		return 0;
	return (usage->prompt_known ? usage->prompt_tokens : x->rating.prompt) +
	       (written > passed ? written : passed);
}

void kvw_rate_end(struct kvw_exchange *x, enum kvw_end end)
{
	uint64_t tokens, answer;

	if (!kvw_rate_holds(x))
		return;
	tokens = used_tokens(x, end, &answer);
	kvw_metrics_add(x->loop->metrics, KVW_COUNT_RATE_CHARGED, tokens);
	kvw_rates_settle(&x->rating.ticket, tokens, answer, x->tried.attempts > 0, x->loop->now_ns);
}
