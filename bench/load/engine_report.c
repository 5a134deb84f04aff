/*
 * engine_report.c - the summary of `kvbench engine` as JSON and as a table; see engine.h.
 *
 * "config" and "results" have the members of `lmcache bench engine`, with their meaning. What is
 * known beyond them is in "kvbench".
 */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "bench/load/engine.h"
#include "bench/load/mem.h"

static json_t *config_json(const struct kvb_engine_options *o)
{
	return json_pack("{s:s,s:s,s:s,s:f,s:o,s:I,s:s,s:b,s:b,s:b,s:b,s:s}", "engine_url",
		o->engine_url, "model", o->model, "workload", o->workload, "kv_cache_volume_gb",
		o->kv_cache_volume_gb, "tokens_per_gb_kvcache",
		o->tokens_per_gb ? json_integer(o->tokens_per_gb) : json_null(), "seed",
		(json_int_t)o->seed, "output_dir", o->output_dir, "export_csv", o->csv,
		"export_json", o->json, "quiet", o->quiet, "ignore_eos", o->ignore_eos,
		"warmup_policy", o->warm_up ? "run" : "skip");
}

static void set_percentiles(json_t *all, const char *name, struct kvb_samples *samples)
{
	static const int ranks[] = {50, 90, 99};

	for (size_t i = 0; i < 3; i++) {
		char key[64];

		snprintf(key, sizeof(key), "p%d_%s", ranks[i], name);
		json_object_set_new(all, key, json_real(kvb_samples_percentile(samples, ranks[i])));
	}
}

static double per_second(uint64_t count, double seconds)
{
	return seconds > 0 ? (double)count / seconds : 0;
}

static json_t *results_json(const struct kvb_engine_outcome *outcome)
{
	struct kvb_engine_stats *s = outcome->stats;
	json_t *all = json_pack("{s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:I,s:I}", "total_requests",
		(json_int_t)(s->ok + s->failed), "successful_requests", (json_int_t)s->ok,
		"failed_requests", (json_int_t)s->failed, "elapsed_time", outcome->elapsed_s,
		"mean_ttft_ms", kvb_samples_mean(&s->ttft_ms), "mean_decode_speed",
		kvb_samples_mean(&s->decode_speed), "mean_request_latency_ms",
		kvb_samples_mean(&s->latency_ms), "input_throughput",
		per_second(s->input_tokens, outcome->elapsed_s), "output_throughput",
		per_second(s->output_tokens, outcome->elapsed_s), "total_input_tokens",
		(json_int_t)s->input_tokens, "total_output_tokens", (json_int_t)s->output_tokens);

	set_percentiles(all, "ttft_ms", &s->ttft_ms);
	set_percentiles(all, "decode_speed", &s->decode_speed);
	set_percentiles(all, "request_latency_ms", &s->latency_ms);
	return all;
}

static json_t *times_json(struct kvb_summary s, double scale)
{
	if (s.count == 0)
		return json_null();
	return json_pack("{s:f,s:f,s:f,s:f,s:f,s:I}", "mean", s.mean * scale, "p50", s.p50 * scale,
		"p90", s.p90 * scale, "p99", s.p99 * scale, "max", s.max * scale, "count",
		(json_int_t)s.count);
}

/* Makes the member "kvbench": figures that `lmcache bench engine` does not report. */
static json_t *own_json(const struct kvb_engine_outcome *outcome)
{
	const struct kvb_result *r = &outcome->result;
	struct kvb_engine_stats *s = outcome->stats;
	const struct kvb_tally *tally = outcome->tally;
	json_t *errors = json_object();

	for (size_t i = 0; i < tally->error_kinds; i++)
		json_object_set_new(errors, tally->errors[i].kind,
			json_integer((json_int_t)tally->errors[i].count));
	return json_pack("{s:s,s:b,s:f,s:b,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:o}", "version",
		KVW_VERSION, "simulated", outcome->options->speed != 1, "speed",
		outcome->options->speed, "interrupted", outcome->interrupted, "planned_requests",
		(json_int_t)outcome->planned, "unsent_requests",
		(json_int_t)(outcome->planned - outcome->asked), "warmup_requests",
		(json_int_t)outcome->warm_up, "warmup_failed", (json_int_t)outcome->warm_up_failed,
		"stale_connections", (json_int_t)outcome->stale, "connect_ms",
		times_json(kvb_samples_summary(&s->connect_ms, 1), 1), "late_ms",
		times_json(r->late_s, 1000), "itl_ms", times_json(r->itl_s, 1000), "tpot_ms",
		times_json(kvb_samples_summary(&s->tpot_ms, 1), 1), "cached_share",
		r->cached_reported ? json_real(r->cached_share) : json_null(), "errors", errors);
}

json_t *kvb_engine_summary(const struct kvb_engine_outcome *outcome)
{
	return json_pack("{s:o,s:o,s:o}", "config", config_json(outcome->options), "results",
		results_json(outcome), "kvbench", own_json(outcome));
}

static enum kvw_err write_to(const json_t *all, const char *path)
{
	FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
	bool bad = out == NULL ||
		   json_dumpf(all, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) != 0 ||
		   fputc('\n', out) == EOF || fflush(out) != 0;

	if (bad)
		fprintf(stderr, "kvbench: %s: %s\n", path, strerror(errno));
	if (out != NULL && out != stdout && fclose(out) != 0)
		bad = true;
	return bad ? KVW_EIO : KVW_OK;
}

enum kvw_err kvb_engine_write(const struct kvb_engine_outcome *outcome)
{
	const struct kvb_engine_options *o = outcome->options;
	json_t *all = kvb_engine_summary(outcome);
	struct kvb_buf path = {0};
	enum kvw_err err = KVW_OK;

	if (o->json) {
		kvb_buf_printf(&path, "%s/bench_summary.json", o->output_dir);
		err = write_to(all, kvb_buf_str(&path));
	}
	if (o->summary != NULL && write_to(all, o->summary) != KVW_OK)
		err = KVW_EIO;
	kvb_buf_finish(&path);
	json_decref(all);
	return err;
}

static void print_line(FILE *out, const char *name, struct kvb_samples *samples)
{
	if (samples->count == 0)
		fprintf(out, "  %-26s %10s %10s %10s %10s\n", name, "-", "-", "-", "-");
	else
		fprintf(out, "  %-26s %10.2f %10.2f %10.2f %10.2f\n", name,
			kvb_samples_mean(samples), kvb_samples_percentile(samples, 50),
			kvb_samples_percentile(samples, 90), kvb_samples_percentile(samples, 99));
}

/* Prints what limits the meaning of the figures. */
static void print_remarks(const struct kvb_engine_outcome *outcome, FILE *out)
{
	const struct kvb_tally *tally = outcome->tally;
	const struct kvb_result *r = &outcome->result;

	if (r->cached_reported > 0)
		fprintf(out, "  cached share %.1f %% of prompt tokens\n", r->cached_share * 100);
	if (outcome->asked < outcome->planned)
		fprintf(out, "  %llu of %llu requests were never sent: %s\n",
			(unsigned long long)(outcome->planned - outcome->asked),
			(unsigned long long)outcome->planned,
			outcome->interrupted ? "interrupted"
					     : "the answers before them came too late");
	if (r->late_s.p99 * 1000 > 50 * outcome->options->speed)
		fprintf(out, "  sent late: p99 %.0f ms, at worst %.0f ms\n", r->late_s.p99 * 1000,
			r->late_s.max * 1000);
	if (outcome->warm_up_failed > 0)
		fprintf(out, "  warm-up: %llu of %llu requests failed\n",
			(unsigned long long)outcome->warm_up_failed,
			(unsigned long long)outcome->warm_up);
	for (size_t i = 0; i < tally->error_kinds; i++)
		fprintf(out, "  failed: %llu x %s\n", (unsigned long long)tally->errors[i].count,
			tally->errors[i].kind);
}

void kvb_engine_print(const struct kvb_engine_outcome *outcome, FILE *out)
{
	const struct kvb_engine_options *o = outcome->options;
	struct kvb_engine_stats *s = outcome->stats;

	fprintf(out, "%s, model %s: %llu answered, %llu failed in %.2f s", o->workload, o->model,
		(unsigned long long)s->ok, (unsigned long long)s->failed, outcome->elapsed_s);
	if (o->speed != 1)
		fprintf(out, "  [simulated, speed %g]", o->speed);
	fprintf(out, "\n  %-26s %10s %10s %10s %10s\n", "", "mean", "p50", "p90", "p99");
	print_line(out, "time to first token ms", &s->ttft_ms);
	print_line(out, "request latency ms", &s->latency_ms);
	/* answers of one token are left out, since they have no time of decoding */
	if (s->tpot_ms.count > 0) {
		print_line(out, "decoding tokens/s", &s->decode_speed);
		print_line(out, "per token after first ms", &s->tpot_ms);
	}
	fprintf(out, "  input tokens %llu (%.0f/s)   output tokens %llu (%.0f/s)\n",
		(unsigned long long)s->input_tokens,
		per_second(s->input_tokens, outcome->elapsed_s),
		(unsigned long long)s->output_tokens,
		per_second(s->output_tokens, outcome->elapsed_s));
	print_remarks(outcome, out);
}
