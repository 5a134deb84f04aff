/* report.c - results as JSON, as a table, and several side by side. Comparison is in compare.c. */
#include "bench/load/report.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

static const char *workload_name(const struct kvb_options *options)
{
	return options->command == KVB_CHAT ? "chat" : "trace";
}

static json_t *summary_json(const struct kvb_summary *s)
{
	if (s->count == 0)
		return json_null();
	return json_pack("{s:f,s:f,s:f,s:f,s:f,s:I}", "mean", s->mean, "p50", s->p50, "p90", s->p90,
		"p99", s->p99, "max", s->max, "count", (json_int_t)s->count);
}

static json_t *parameters_json(const struct kvb_options *o)
{
	json_t *all = json_pack("{s:s,s:f,s:I,s:I,s:f,s:b}", "api",
		o->api == KVB_API_CHAT ? "chat" : "completions", "bytes_per_token",
		o->bytes_per_token, "concurrency", (json_int_t)o->concurrency, "requests",
		(json_int_t)o->requests, "timeout_s", o->timeout_s, "ignore_eos", o->ignore_eos);

	if (o->command == KVB_CHAT) {
		json_object_update_new(all,
			json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:s,s:I}", "users",
				(json_int_t)o->users, "sessions", (json_int_t)o->sessions, "rounds",
				(json_int_t)o->rounds, "system_prompts",
				(json_int_t)o->system_prompts, "system_tokens",
				(json_int_t)o->system_tokens, "question_tokens",
				(json_int_t)o->question_tokens, "answer_tokens",
				(json_int_t)o->answer_tokens, "qps", o->qps, "arrivals",
				o->poisson ? "poisson" : "fixed", "seed", (json_int_t)o->seed));
	} else {
		const char *slash = strrchr(o->trace, '/');

		json_object_update_new(
			all, json_pack("{s:s,s:f,s:I}", "trace", slash ? slash + 1 : o->trace,
				     "rate_scale", o->rate_scale, "block_tokens",
				     (json_int_t)o->block_tokens));
	}
	return all;
}

static json_t *errors_json(const struct kvb_tally *tally)
{
	json_t *errors = json_object();

	for (size_t i = 0; i < tally->error_kinds; i++)
		json_object_set_new(errors, tally->errors[i].kind,
			json_integer((json_int_t)tally->errors[i].count));
	return errors;
}

json_t *kvb_report_json(const struct kvb_report *report)
{
	const struct kvb_options *o = report->options;
	const struct kvb_result *r = &report->result;
	json_t *urls = json_array();
	json_t *all = json_pack("{s:s,s:s,s:s,s:s,s:s,s:b,s:f}", "program", "kvbench", "version",
		KVW_VERSION, "workload", workload_name(o), "label", o->label, "model",
		report->model, "simulated", o->speed != 1, "speed", o->speed);

	for (size_t i = 0; i < o->urls.count; i++)
		json_array_append_new(urls, json_string(o->urls.items[i]));
	json_object_set_new(all, "urls", urls);
	json_object_set_new(all, "parameters", parameters_json(o));
	json_object_update_new(all,
		json_pack("{s:I,s:I,s:o,s:I,s:I,s:f,s:f,s:f,s:f,s:I,s:I}", "completed",
			(json_int_t)r->ok, "failed", (json_int_t)r->failed, "errors",
			errors_json(report->tally), "stale_connections", (json_int_t)report->stale,
			"retried", (json_int_t)report->retried,
			"duration_s", r->duration_s, "requests_per_s", r->requests_per_s,
			"prompt_tokens_per_s", r->prompt_tokens_per_s, "completion_tokens_per_s",
			r->completion_tokens_per_s, "prompt_tokens", (json_int_t)r->prompt_tokens,
			"completion_tokens", (json_int_t)r->completion_tokens));
	json_object_set_new(all, "ttft_s", summary_json(&r->ttft_s));
	json_object_set_new(all, "itl_s", summary_json(&r->itl_s));
	json_object_set_new(all, "tpot_s", summary_json(&r->tpot_s));
	json_object_set_new(all, "e2e_s", summary_json(&r->e2e_s));
	json_object_set_new(all, "late_s", summary_json(&r->late_s));
	json_object_set_new(all, "goodput", json_real(r->goodput));
	json_object_set_new(all, "last_goodput", json_real(r->last_goodput));
	json_object_set_new(all, "last_ttft_s", summary_json(&r->last_ttft_s));
	json_object_set_new(all, "refused_s", summary_json(&r->refused_s));
	json_object_set_new(all, "left_late_s", summary_json(&r->left_late_s));
	json_object_set_new(all, "refused_mute", json_integer((json_int_t)report->tally->refused_mute));
	json_object_set_new(all, "slo",
		json_pack("{s:f,s:f,s:f}", "ttft_s", o->slo_ttft_s, "ttft_tokens_per_s",
			o->slo_ttft_tokens_per_s, "tpot_s", o->slo_tpot_s));
	json_object_set_new(
		all, "cached_share", r->cached_reported ? json_real(r->cached_share) : json_null());
	json_object_set_new(all, "cached_told", json_integer((json_int_t)r->cached_reported));
	return all;
}

enum kvw_err kvb_report_write(const struct kvb_report *report)
{
	const char *path = report->options->json;
	json_t *all = kvb_report_json(report);
	FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
	enum kvw_err err = KVW_OK;

	if (out == NULL || json_dumpf(all, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0 ||
		fputc('\n', out) == EOF || fflush(out) != 0) {
		fprintf(stderr, "kvbench: %s: %s\n", path, strerror(errno));
		err = KVW_EIO;
	}
	if (out != NULL && out != stdout && fclose(out) != 0)
		err = KVW_EIO;
	json_decref(all);
	return err;
}

static void print_times(FILE *out, const char *name, const struct kvb_summary *s, double scale)
{
	if (s->count == 0) {
		fprintf(out, "  %-22s %10s %10s %10s %10s\n", name, "-", "-", "-", "-");
		return;
	}
	fprintf(out, "  %-22s %10.3f %10.3f %10.3f %10.3f\n", name, s->mean * scale, s->p50 * scale,
		s->p90 * scale, s->p99 * scale);
}

void kvb_report_print(const struct kvb_report *report, FILE *out)
{
	const struct kvb_options *o = report->options;
	const struct kvb_result *r = &report->result;

	fprintf(out, "%s: %s, %llu answered, %llu failed in %.1f s", o->label, workload_name(o),
		(unsigned long long)r->ok, (unsigned long long)r->failed, r->duration_s);
	if (o->speed != 1)
		fprintf(out, "  [simulated, speed %g]", o->speed);
	fprintf(out, "\n  %-22s %10s %10s %10s %10s\n", "", "mean", "p50", "p90", "p99");
	print_times(out, "time to first token s", &r->ttft_s, 1);
	print_times(out, "between tokens ms", &r->itl_s, 1000);
	print_times(out, "per output token ms", &r->tpot_s, 1000);
	print_times(out, "end to end s", &r->e2e_s, 1);
	fprintf(out, "  requests/s %.3f   prompt tokens/s %.0f   output tokens/s %.0f\n",
		r->requests_per_s, r->prompt_tokens_per_s, r->completion_tokens_per_s);
	fprintf(out, "  goodput %.1f %%  (TTFT < %g s + tokens/%g, TPOT < %g ms)\n",
		r->goodput * 100, o->slo_ttft_s, o->slo_ttft_tokens_per_s, o->slo_tpot_s * 1000);
	if (r->cached_reported > 0)
		fprintf(out,
			"  cached share %.1f %% of prompt tokens  (%llu of %llu answers reported it)\n",
			r->cached_share * 100, (unsigned long long)r->cached_reported,
			(unsigned long long)r->ok);
	else
		fputs("  cached share unknown: no answer reported cached_tokens\n", out);
	if (r->late_s.p99 > 0.05 * o->speed && o->concurrency == 0)
		fprintf(out,
			"  sent late: p99 %.3f s; this machine could not keep up with the load\n",
			r->late_s.p99);
	for (size_t i = 0; i < report->tally->error_kinds; i++)
		fprintf(out, "  failed: %llu x %s\n",
			(unsigned long long)report->tally->errors[i].count,
			report->tally->errors[i].kind);
}
