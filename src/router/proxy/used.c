/* used.c - what a request has used, by its answer's usage or estimated; see used.h. */
#include "proxy/used.h"

#include <string.h>

#include "base/record.h"
#include "proxy/loop.h"
#include "usage/ledger.h"

/* --- events --- */

/* Returns whether a line has more than the carriage return before its end. */
static bool has_text(const char *line, size_t len)
{
	return len > 1 || (len == 1 && line[0] != '\r');
}

/* Counts events, which end in an empty line: an engine sends one for each token, or for a few.
 * Lines end in LF or CRLF. */
void kvw_used_watch(struct kvw_exchange *x, const char *data, size_t len)
{
	struct kvw_rating *rating = &x->rating;
	const char *end = data + len, *next;

	for (; (next = memchr(data, '\n', (size_t)(end - data))) != NULL; data = next + 1) {
		bool empty = rating->line_ended && !has_text(data, (size_t)(next - data));

		rating->events += empty;
		rating->line_ended = !empty;
	}
	if (has_text(data, (size_t)(end - data)))
		rating->line_ended = false;
}

/* --- tokens --- */

static uint64_t predicted_prompt(const struct kvw_exchange *x)
{
	double units = (double)x->measure.units;

	if (x->rating.rated && x->rating.prompt > 0)
		return x->rating.prompt;
	if (x->attempt.decision.prompt_tokens > 0)
		return x->attempt.decision.prompt_tokens;
	if (units > 0 && x->route.tokens_per_unit > 0)
		return (uint64_t)(units * x->route.tokens_per_unit);
	return (uint64_t)((double)x->upload.body.payload_bytes /
			  x->config->routing_bytes_per_token);
}

struct kvw_used_tokens kvw_used_tokens(const struct kvw_exchange *x, enum kvw_end end)
{
	const struct kvw_usage *usage = &x->usage;
	bool good = x->status >= 200 && x->status < 300, whole = end == KVW_END_COMPLETE;
	uint64_t written = usage->completion_known ? usage->completion_tokens : 0;
	uint64_t passed = x->rating.events > x->said_all ? x->rating.events - x->said_all : 0;
	struct kvw_used_tokens used = {0};

	if (!kvw_exchange_computes(x) || x->tried.attempts == 0 ||
		(!good && (x->status != 0 || end != KVW_END_CLIENT_GONE)))
		return used;
	used.prompt_estimated = !usage->prompt_known;
	used.prompt = usage->prompt_known ? usage->prompt_tokens : predicted_prompt(x);
	used.completion = written;
	used.reported = whole && good && usage->prompt_known;
	if (!used.reported && (passed > written || !usage->completion_known)) {
		used.completion = passed > written ? passed : written;
		used.completion_estimated = true;
	}
	return used;
}

/* --- the end --- */

/* Returns whether the request counts: one that was understood, for another path than kvway's
 * own. */
static bool counts(const struct kvw_exchange *x)
{
	return x->loop->usage != NULL && x->path.kind != KVW_PATH_LOCAL && x->method.len > 0 &&
	       !x->page.preflight;
}

static uint64_t cached_tokens(const struct kvw_request_record *record)
{
	if (record->prefiller_url.len > 0) /* then the decoder's count is that of the transfer */
		return record->prefill_cached;
	return record->cached_known ? record->cached_tokens : 0;
}

void kvw_used_end(struct kvw_exchange *x, struct kvw_request_record *record)
{
	const struct kvw_user user = {record->key, record->tenant, record->model};
	struct kvw_used_tokens tokens;
	struct kvw_used used = {.n = {[KVW_USED_REQUESTS] = 1}};
	bool good = record->status > 0 && record->status < 400 &&
		    (record->end == KVW_END_COMPLETE || record->end == KVW_END_LOCAL);

	if (!counts(x))
		return;
	tokens = kvw_used_tokens(x, record->end);
	record->estimated_prompt = tokens.prompt_estimated ? (uint32_t)tokens.prompt : 0;
	record->estimated_completion =
		tokens.completion_estimated ? (uint32_t)tokens.completion : 0;
	if (!good && record->end != KVW_END_CLIENT_GONE)
		used.n[record->attempts == 0 ? KVW_USED_REFUSED : KVW_USED_FAILED] = 1;
	used.n[KVW_USED_PROMPT] = tokens.prompt;
	used.n[KVW_USED_CACHED] = tokens.prompt_estimated ? 0 : cached_tokens(record);
	used.n[KVW_USED_COMPLETION] = tokens.completion;
	used.n[KVW_USED_PROMPT_ESTIMATED] = record->estimated_prompt;
	used.n[KVW_USED_COMPLETION_ESTIMATED] = record->estimated_completion;
	used.n[KVW_USED_MICROSECONDS] = (uint64_t)(record->total_ns > 0 ? record->total_ns : 0) / 1000;
	kvw_usage_count(x->loop->usage, &user, &used);
}
