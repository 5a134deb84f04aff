/* outcome.c - what a run of kvbench has seen, and the figures made of it. */
#include "bench/load/outcome.h"

#include <string.h>

double kvb_record_tpot_ns(const struct kvb_record *record)
{
	if (record->completion_tokens < 2)
		return 0;
	return (double)(record->e2e_ns - record->ttft_ns) / (double)(record->completion_tokens - 1);
}

bool kvb_record_good(const struct kvb_record *record, const struct kvb_slo *slo, double speed)
{
	double ttft_limit_s = slo->ttft_s + (double)record->prompt_tokens / slo->ttft_tokens_per_s;

	return record->ok && (double)record->ttft_ns / 1e9 * speed < ttft_limit_s &&
	       kvb_record_tpot_ns(record) / 1e9 * speed < slo->tpot_s;
}

static void count_error(struct kvb_tally *tally, const char *kind)
{
	size_t i = 0;

	while (i < tally->error_kinds && strncmp(tally->errors[i].kind, kind, 63) != 0)
		i++;
	if (i == tally->error_kinds) {
		if (i == KVB_ERROR_KINDS)
			i--; /* no room for a further kind: the last one counts for all of them */
		else
			tally->error_kinds++;
		snprintf(tally->errors[i].kind, sizeof(tally->errors[i].kind), "%s",
			i == KVB_ERROR_KINDS - 1 ? "other" : kind);
	}
	tally->errors[i].count++;
}

void kvb_tally_add(struct kvb_tally *tally, const struct kvb_record *record)
{
	/* counted as if the request had come when it was sent the last time */
	struct kvb_record last = *record;

	kvb_samples_add(&tally->late_s, (double)record->late_ns / 1e9);
	if (!record->ok) {
		tally->failed++;
		count_error(tally, record->error);
		return;
	}
	tally->ok++;
	tally->good += kvb_record_good(record, &tally->slo, tally->speed);
	last.ttft_ns -= record->tries_ns;
	last.e2e_ns -= record->tries_ns;
	tally->last_good += kvb_record_good(&last, &tally->slo, tally->speed);
	kvb_samples_add(&tally->last_ttft_s, (double)last.ttft_ns / 1e9);
	kvb_samples_add(&tally->ttft_s, (double)record->ttft_ns / 1e9);
	kvb_samples_add(&tally->e2e_s, (double)record->e2e_ns / 1e9);
	if (record->completion_tokens > 1)
		kvb_samples_add(&tally->tpot_s, kvb_record_tpot_ns(record) / 1e9);
	tally->prompt_tokens += (uint64_t)record->prompt_tokens;
	tally->completion_tokens += (uint64_t)record->completion_tokens;
	if (record->cached_known) {
		tally->cached_reported++;
		tally->cached_tokens += (uint64_t)record->cached_tokens;
		tally->cached_of_prompt += (uint64_t)record->prompt_tokens;
	}
}

void kvb_tally_add_refusal(struct kvb_tally *tally, int64_t ns, bool retry_after)
{
	kvb_samples_add(&tally->refused_s, (double)ns / 1e9);
	tally->refused_mute += !retry_after;
}

void kvb_tally_add_gap(struct kvb_tally *tally, int64_t ns)
{
	kvb_samples_add(&tally->itl_s, (double)ns / 1e9);
}

void kvb_tally_finish(struct kvb_tally *tally)
{
	kvb_samples_finish(&tally->ttft_s);
	kvb_samples_finish(&tally->itl_s);
	kvb_samples_finish(&tally->tpot_s);
	kvb_samples_finish(&tally->e2e_s);
	kvb_samples_finish(&tally->late_s);
	kvb_samples_finish(&tally->last_ttft_s);
	kvb_samples_finish(&tally->refused_s);
	kvb_samples_finish(&tally->left_late_s);
}

static double share(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

struct kvb_result kvb_tally_result(struct kvb_tally *tally, int64_t duration_ns)
{
	double seconds = (double)duration_ns / 1e9 * tally->speed;
	double speed = tally->speed;

	return (struct kvb_result){
		.ttft_s = kvb_samples_summary(&tally->ttft_s, speed),
		.itl_s = kvb_samples_summary(&tally->itl_s, speed),
		.tpot_s = kvb_samples_summary(&tally->tpot_s, speed),
		.e2e_s = kvb_samples_summary(&tally->e2e_s, speed),
		.late_s = kvb_samples_summary(&tally->late_s, speed),
		.last_ttft_s = kvb_samples_summary(&tally->last_ttft_s, speed),
		.left_late_s = kvb_samples_summary(&tally->left_late_s, 1),
		.refused_s = kvb_samples_summary(&tally->refused_s, speed),
		.ok = tally->ok,
		.failed = tally->failed,
		.duration_s = seconds,
		.requests_per_s = share((double)tally->ok, seconds),
		.prompt_tokens_per_s = share((double)tally->prompt_tokens, seconds),
		.completion_tokens_per_s = share((double)tally->completion_tokens, seconds),
		.goodput = share((double)tally->good, (double)(tally->ok + tally->failed)),
		.last_goodput = share((double)tally->last_good, (double)(tally->ok + tally->failed)),
		.cached_share =
			share((double)tally->cached_tokens, (double)tally->cached_of_prompt),
		.cached_reported = tally->cached_reported,
		.prompt_tokens = tally->prompt_tokens,
		.completion_tokens = tally->completion_tokens,
	};
}
