/*
 * replay.c - a recorded trace sent over HTTP, each request when it was sent then.
 *
 * The text of a prompt follows from its hash ids (text.h), so that requests share prefixes exactly
 * where the recorded ones did. A trace names no conversations; two requests belong to the same one
 * when their second block is the same: in the public traces the first block is common to all, and
 * a later turn repeats the whole of the earlier prompt. That id is sent in the session header, for
 * routers that keep conversations together.
 */
#include <event2/event.h>
#include <string.h>

#include "bench/load/arrivals.h"
#include "bench/load/run.h"
#include "bench/load/text.h"
#include "bench/load/trace_file.h"

struct replay {
	const struct kvb_options *options;
	struct kvb_run *run;
	const char *model;
	/* real time by which requests are sent early; 0 where the workers run at the clock's
	 * speed */
	int64_t lead_ns;
	struct kvb_trace trace;
	uint64_t random; /* random state that chooses the clients that leave */
};

static void on_done(void *arg, const struct kvb_record *record, const struct kvb_buf *text)
{
	(void)arg;
	(void)record;
	(void)text; /* later requests of a trace do not depend on answers */
}

static int64_t row_offset(void *arg, uint64_t n)
{
	const struct replay *replay = arg;
	int64_t ms = replay->trace.rows[n].timestamp_ms - replay->trace.rows[0].timestamp_ms;

	return (int64_t)((double)ms * 1e6 / replay->options->rate_scale / replay->options->speed);
}

static void add_body(
	const struct replay *replay, const struct kvb_trace_row *row, struct kvb_buf *body)
{
	const struct kvb_options *options = replay->options;
	struct kvb_blocks blocks = {.ids = row->ids,
		.id_count = row->id_count,
		.tokens = row->input_tokens,
		.block_tokens = (uint32_t)options->block_tokens,
		.bytes_per_token = options->bytes_per_token};
	bool chat = options->api == KVB_API_CHAT;

	kvb_buf_text(body, "{\"model\":\"");
	kvb_buf_json_text(body, replay->model, strlen(replay->model));
	kvb_buf_text(body,
		chat ? "\",\"messages\":[{\"role\":\"user\",\"content\":\"" : "\",\"prompt\":\"");
	/* the text has only words and spaces, so nothing is escaped */
	kvb_text_add_blocks(body, &blocks);
	kvb_buf_printf(body,
		"\"%s,\"max_tokens\":%u,\"temperature\":0,%s\"stream\":true,"
		"\"stream_options\":{\"include_usage\":true}}",
		chat ? "}]" : "", row->output_tokens > 0 ? row->output_tokens : 1,
		options->ignore_eos ? "\"ignore_eos\":true," : "");
}

/* Returns whether this client has little patience. */
static bool leaves(struct replay *replay)
{
	return kvb_random_unit(&replay->random) < replay->options->leave_share;
}

static void on_arrival(void *arg, uint64_t n, int64_t due_ns)
{
	struct replay *replay = arg;
	const struct kvb_trace_row *row = &replay->trace.rows[n];
	struct kvb_request request = {.session = row->ids[row->id_count > 1 ? 1 : 0] + 1,
		.planned_tokens = row->input_tokens,
		.due_ns = due_ns + replay->lead_ns,
		.leaves = leaves(replay),
		.lead_ns = replay->lead_ns,
		.done = on_done,
		.arg = replay};

	add_body(replay, row, &request.body);
	kvb_run_submit(replay->run, &request);
}

enum kvw_err kvb_replay(
	struct kvb_run *run, struct event_base *base, const struct kvb_options *options)
{
	struct replay replay = {.options = options, .run = run, .random = options->seed};
	struct kvb_arrivals arrivals = {.when = row_offset, .arrive = on_arrival, .arg = &replay};
	enum kvw_err err =
		kvb_trace_load(options->trace, (size_t)options->requests, &replay.trace, stderr);

	if (err != KVW_OK)
		return err;
	if (options->speed != 1)
		replay.lead_ns = (int64_t)(options->lead_ms * 1e6);
	replay.model = kvb_run_model(run);
	if (replay.model != NULL) {
		kvb_run_expect(run, replay.trace.count);
		arrivals.total = replay.trace.count;
		arrivals.pause_ns = (int64_t)(options->pause_ms * 1e6);
		kvb_arrivals_begin(&arrivals, base);
		kvb_run_wait(run);
		kvb_arrivals_finish(&arrivals);
	} else {
		err = KVW_ENOTFOUND;
	}
	kvb_trace_finish(&replay.trace);
	return err;
}
