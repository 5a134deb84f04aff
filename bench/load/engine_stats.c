/*
 * engine_stats.c - what a run of `kvbench engine` has seen, in the terms of `lmcache bench engine`.
 * Rows of CSV end as Python's csv module ends them.
 */
#include "bench/load/engine_stats.h"

#include <errno.h>
#include <string.h>

struct kvb_engine_request kvb_engine_request_of(
	const struct kvb_record *record, const char *id, double speed, int64_t wall_ns)
{
	int64_t from = record->written_ns != 0 ? record->written_ns : record->sent_ns;
	struct kvb_engine_request request = {.id = id,
		.ok = record->ok,
		.ttft_s = -1,
		.latency_s = (double)(record->end_ns - from) / 1e9 * speed,
		.submit_s = (double)(from + wall_ns) / 1e9,
		.finish_s = (double)(record->end_ns + wall_ns) / 1e9,
		.connect_s = (double)(from - record->sent_ns) / 1e9 * speed,
		.error = record->ok ? "" : record->error};
	double decode_s = (double)(record->end_ns - record->first_ns) / 1e9 * speed;

	if (!record->ok)
		return request;
	request.ttft_s = (double)(record->first_ns - from) / 1e9 * speed;
	request.first_s = (double)(record->first_ns + wall_ns) / 1e9;
	request.input_tokens = record->prompt_tokens;
	request.output_tokens = record->completion_tokens;
	request.decode_speed = decode_s > 0 ? (double)record->completion_tokens / decode_s : 0;
	return request;
}

enum kvw_err kvb_engine_stats_open_csv(
	struct kvb_engine_stats *stats, const char *path, FILE *error)
{
	stats->csv = fopen(path, "we");
	if (stats->csv == NULL) {
		fprintf(error, "kvbench: %s: %s\n", path, strerror(errno));
		return KVW_EIO;
	}
	fputs("request_id,successful,ttft,request_latency,num_input_tokens,num_output_tokens,"
	      "decode_speed,submit_time,first_token_time,finish_time,error\r\n",
		stats->csv);
	return KVW_OK;
}

/* Writes a field of CSV; the text may hold any characters. */
static void write_text(FILE *out, const char *text)
{
	if (text[strcspn(text, ",\"\r\n")] == '\0') {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text != '\0'; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

static void write_row(FILE *out, const struct kvb_engine_request *r)
{
	fprintf(out, "%s,%s,%.9f,%.9f,%lld,%lld,%.6f,%.6f,%.6f,%.6f,", r->id,
		r->ok ? "True" : "False", r->ttft_s, r->latency_s, (long long)r->input_tokens,
		(long long)r->output_tokens, r->decode_speed, r->submit_s, r->first_s, r->finish_s);
	write_text(out, r->error);
	fputs("\r\n", out);
}

void kvb_engine_stats_add(struct kvb_engine_stats *stats, const struct kvb_engine_request *r)
{
	if (stats->csv != NULL)
		write_row(stats->csv, r);
	if (!r->ok) {
		stats->failed++;
		return;
	}
	stats->ok++;
	stats->input_tokens += (uint64_t)r->input_tokens;
	stats->output_tokens += (uint64_t)r->output_tokens;
	kvb_samples_add(&stats->ttft_ms, r->ttft_s * 1000);
	kvb_samples_add(&stats->latency_ms, r->latency_s * 1000);
	kvb_samples_add(&stats->decode_speed, r->decode_speed);
	kvb_samples_add(&stats->connect_ms, r->connect_s * 1000);
	if (r->output_tokens > 1)
		kvb_samples_add(&stats->tpot_ms,
			(r->latency_s - r->ttft_s) * 1000 / (double)(r->output_tokens - 1));
}

enum kvw_err kvb_engine_stats_close_csv(struct kvb_engine_stats *stats)
{
	FILE *csv = stats->csv;
	bool bad;

	if (csv == NULL)
		return KVW_OK;
	stats->csv = NULL;
	bad = ferror(csv) != 0;
	bad |= fclose(csv) != 0;
	return bad ? KVW_EIO : KVW_OK;
}

void kvb_engine_stats_finish(struct kvb_engine_stats *stats)
{
	if (stats->csv != NULL)
		fclose(stats->csv);
	kvb_samples_finish(&stats->ttft_ms);
	kvb_samples_finish(&stats->latency_ms);
	kvb_samples_finish(&stats->decode_speed);
	kvb_samples_finish(&stats->connect_ms);
	kvb_samples_finish(&stats->tpot_ms);
	*stats = (struct kvb_engine_stats){0};
}
