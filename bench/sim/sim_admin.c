/*
 * sim_admin.c - the paths for tests, which a vLLM server does not have.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_routes.h"
#include "bench/sim/sim_store.h"
#include "bench/sim/sim_reporter.h"

static void reply_bad(struct kvb_conn *conn, const char *message)
{
	struct kvb_error error;

	kvb_error_set(&error, 400, "BadRequestError", "", "%s", message);
	kvb_error_send(conn, &error, false);
}

static void reply_ok(struct kvb_conn *conn)
{
	struct kvb_buf body = {0};

	kvb_buf_text(&body, "{\"ok\":true}");
	kvb_reply_json(conn, 200, &body);
}

static void add_tier_stats(const struct kvb_worker *worker, struct kvb_buf *out)
{
	struct kvb_store_stats s;

	if (worker->store == NULL)
		return;
	kvb_store_stats(worker->store, &s);
	kvb_buf_printf(out,
		",\"tiers\":{\"modelled\":%s,\"shrink\":%u,\"chunk_tokens\":%u,"
		"\"payload_bytes\":%llu,\"wrong_bytes\":%llu,\"checked_chunks\":%llu,"
		"\"loaded_l1\":%llu,\"loaded_nvme\":%llu,\"loaded_l2\":%llu,",
		worker->options->tier.modelled ? "true" : "false", worker->options->tier.shrink,
		worker->options->tier.chunk_tokens,
		(unsigned long long)worker->options->tier.payload_bytes,
		(unsigned long long)s.wrong_bytes, (unsigned long long)s.checked_chunks,
		(unsigned long long)s.loaded_tokens[0], (unsigned long long)s.loaded_tokens[1],
		(unsigned long long)s.loaded_tokens[2]);
	kvb_buf_printf(out,
		"\"asks\":%llu,\"fetches\":%llu,\"short\":%llu,\"stored\":%llu,"
		"\"existing\":%llu,\"refused\":%llu,\"waits\":%llu,\"late\":%llu,"
		"\"left\":%llu,\"under_way\":%llu}",
		(unsigned long long)s.asks, (unsigned long long)s.fetches,
		(unsigned long long)s.fetches_short, (unsigned long long)s.puts,
		(unsigned long long)s.puts_existing, (unsigned long long)s.puts_refused,
		(unsigned long long)s.waits, (unsigned long long)s.given_up,
		(unsigned long long)s.left_chunks, (unsigned long long)s.under_way);
}

static void sim_stats(struct kvb_worker *worker, struct kvb_conn *conn)
{
	struct kvb_engine_stats s;
	struct kvb_buf out = {0};

	kvb_engine_stats(worker->engine, &s);
	kvb_buf_printf(&out,
		"{\"simulated\":true,\"worker\":%u,\"profile\":\"%s\",\"speed\":%g,\"steps\":%llu,"
		"\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"prefilled_tokens\":%llu,"
		"\"decoded_tokens\":%llu,\"generated_tokens\":%llu,\"preemptions\":%llu,"
		"\"finished\":%llu,\"busy_s\":%.6f,\"now_s\":%.6f,",
		worker->index, worker->options->profile->name, worker->options->speed,
		(unsigned long long)s.steps, (unsigned long long)s.prompt_tokens,
		(unsigned long long)s.cached_tokens, (unsigned long long)s.prefilled_tokens,
		(unsigned long long)s.decoded_tokens, (unsigned long long)s.generated_tokens,
		(unsigned long long)s.preemptions, (unsigned long long)s.finished,
		(double)s.busy_ns / 1e9, (double)kvb_worker_sim_ns(worker) / 1e9);
	kvb_buf_printf(&out,
		"\"running\":%u,\"waiting\":%u,\"blocks_used\":%u,\"blocks_usable\":%u,"
		"\"blocks_cached\":%u,\"evictions\":%llu,\"load\":%u,\"connections\":%u,"
		"\"connections_accepted\":%llu,\"late_ms\":%.3f,\"late_mean_ms\":%.3f,"
		"\"early\":%llu,\"missed\":%llu,\"loaded_tokens\":%llu,"
		"\"leavers\":%llu,\"left_before\":%llu,\"left_before_ms\":%.3f",
		s.running, s.waiting, s.blocks_used, s.blocks_usable, s.blocks_published,
		(unsigned long long)s.evictions, worker->load, kvb_http_open(worker->first->http),
		(unsigned long long)kvb_http_accepted(worker->first->http),
		(double)worker->latest_ns / 1e6,
		worker->timers == 0 ? 0 : worker->late_sum_ns / (double)worker->timers / 1e6,
		(unsigned long long)worker->early, (unsigned long long)worker->missed,
		(unsigned long long)s.loaded_tokens, (unsigned long long)worker->leavers,
		(unsigned long long)worker->left_before, (double)worker->left_before_ns / 1e6);
	kvb_buf_printf(&out,
		",\"answered\":{\"prompt_tokens\":%llu,\"cached_tokens\":%llu,"
		"\"completion_tokens\":%llu}",
		(unsigned long long)worker->metrics.answered_prompt,
		(unsigned long long)worker->metrics.answered_cached,
		(unsigned long long)worker->metrics.answered_generated);
	kvb_reporter_stats(worker->reporter, &out);
	add_tier_stats(worker, &out);
	kvb_nixl_stats(worker, &out);
	kvb_buf_text(&out, "}");
	kvb_reply_json(conn, 200, &out);
}

/* Writes a line for each finished answer, the oldest first: simulated moments and lengths. */
static void sim_times(struct kvb_worker *worker, struct kvb_conn *conn)
{
	struct kvb_reply reply = {.status = 200, .content_type = "text/csv"};
	uint64_t count = worker->times_count;
	struct kvb_buf out = {0};

	kvb_buf_text(
		&out, "submit_ns,first_ns,end_ns,prompt_tokens,cached_tokens,generated_tokens\n");
	for (uint64_t i = count > KVB_TIMES_KEPT ? count - KVB_TIMES_KEPT : 0; i < count; i++) {
		const struct kvb_time *t = &worker->times[i % KVB_TIMES_KEPT];

		kvb_buf_printf(&out, "%lld,%lld,%lld,%u,%u,%u\n", (long long)t->submit_ns,
			(long long)t->first_ns, (long long)t->end_ns, t->prompt_len, t->cached_len,
			t->generated);
	}
	kvb_http_reply(conn, &reply, out.data, out.len);
	kvb_buf_finish(&out);
}

static void sim_health(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	char status[8];
	int value;

	if (!kvb_query_get(request, "status", status, sizeof(status)) ||
		(value = atoi(status)) < 200 || value > 599) {
		reply_bad(conn, "status=200 to 599 is needed");
		return;
	}
	worker->health_status = value;
	reply_ok(conn);
}

static void sim_fail(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	char spec[256] = "", count[16];
	struct kvb_fail fail;

	kvb_query_get(request, "spec", spec, sizeof(spec));
	if (!kvb_fail_parse(spec, strlen(spec), &fail)) {
		reply_bad(conn, "spec is wrong; kvsim --help lists the faults");
		return;
	}
	worker->fail = fail;
	worker->fail_left = spec[0] == '\0' ? 0 : -1;
	if (kvb_query_get(request, "count", count, sizeof(count)))
		worker->fail_left = strtoll(count, NULL, 10);
	reply_ok(conn);
}

static void add_header_pairs(struct kvb_buf *out, const struct kvb_request *request)
{
	const char *at = request->headers, *end = at + request->headers_len;
	bool first = true;

	while (at != NULL && at < end) {
		const char *line_end = memchr(at, '\n', (size_t)(end - at));
		const char *colon = memchr(at, ':', (size_t)(line_end - at));

		kvb_buf_text(out, first ? "[" : ",[");
		kvb_buf_json(out, at, (size_t)(colon - at));
		kvb_buf_text(out, ",");
		kvb_buf_json(out, colon + 2, (size_t)(line_end - colon - 2));
		kvb_buf_text(out, "]");
		first = false;
		at = line_end + 1;
	}
}

static void sim_echo(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	struct kvb_buf out = {0};

	kvb_buf_printf(
		&out, "{\"worker\":%u,\"method\":\"%s\",\"path\":", worker->index, request->method);
	kvb_buf_json(&out, request->path, strlen(request->path));
	kvb_buf_text(&out, ",\"query\":");
	kvb_buf_json(&out, request->query, strlen(request->query));
	kvb_buf_printf(&out, ",\"version\":\"1.%u\",\"headers\":[", request->http_minor);
	add_header_pairs(&out, request);
	kvb_buf_printf(&out, "],\"body_bytes\":%zu,\"body_xxh3\":\"%016llx\"}", request->body_len,
		(unsigned long long)XXH3_64bits(request->body, request->body_len));
	kvb_reply_json(conn, 200, &out);
}

static void sim_mirror(struct kvb_conn *conn, const struct kvb_request *request)
{
	struct kvb_reply reply = {.status = 200, .content_type = "application/octet-stream"};
	char text[16];
	size_t size, left = request->body_len;

	if (!kvb_query_get(request, "chunk", text, sizeof(text)) ||
		(size = strtoull(text, NULL, 10)) == 0) {
		kvb_http_reply(conn, &reply, request->body, request->body_len);
		return;
	}
	kvb_http_stream_begin(conn, reply.content_type);
	while (left > 0) {
		size_t now = left < size ? left : size;

		kvb_http_stream_chunk(conn, request->body + request->body_len - left, now, true);
		left -= now;
	}
	kvb_http_stream_end(conn);
}

void kvb_admin_request(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	const char *name = request->path + 5;
	char rank[8];

	if (kvb_query_get(request, "rank", rank, sizeof(rank)) &&
		strtoul(rank, NULL, 10) < worker->options->ranks)
		worker = worker->ranks[strtoul(rank, NULL, 10)];
	if (strcmp(name, "stats") == 0)
		sim_stats(worker, conn);
	else if (strcmp(name, "times") == 0)
		sim_times(worker, conn);
	else if (strcmp(name, "health") == 0)
		sim_health(worker, conn, request);
	else if (strcmp(name, "fail") == 0)
		sim_fail(worker, conn, request);
	else if (strcmp(name, "nixl") == 0)
		kvb_nixl_read(worker, conn, request);
	else if (strcmp(name, "echo") == 0)
		sim_echo(worker, conn, request);
	else if (strcmp(name, "mirror") == 0)
		sim_mirror(conn, request);
	else if (strcmp(name, "reset") == 0 && kvb_engine_reset_cache(worker->engine))
		reply_ok(conn);
	else if (strcmp(name, "restart") != 0)
		reply_bad(conn, "kvsim --help lists what /sim/ answers");
	else if (kvb_worker_restart(worker))
		reply_ok(conn);
	else
		reply_bad(conn, "out of memory");
}
