/*
 * sim_nixl.c - KV cache that a decoding worker pulls from a prefilling one, as vLLM's
 * NixlConnector.
 *
 * A pull is one request over HTTP to the port that the parameters name, where the real one has a
 * side channel: workers may run in other processes, which may be killed.
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_nixl.h"
#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_routes.h"
#include "bench/sim/sim_transfer.h"
#include "bench/sim/sim_worker.h"

/* A pull of KV that is under way. */
struct kvb_nixl_pull {
	struct kvb_exchange *x;
	struct bufferevent *io; /* NULL: it waits to ask again */
	struct event *again;
	bool waits;
	char *engine, *request, *host; /* texts of the source, owned */
	int port;
};

#define AGAIN_US 2000 /* time between two requests for KV that is not there yet */

void kvb_nixl_restart(struct kvb_worker *worker)
{
	unsigned long long a = kvb_worker_random(worker), b = kvb_worker_random(worker);

	snprintf(worker->nixl.engine_id, sizeof(worker->nixl.engine_id),
		"%08llx-%04llx-4%03llx-8%03llx-%012llx", a >> 32, a >> 16 & 0xffff, a & 0xfff,
		b >> 48 & 0xfff, b & 0xffffffffffff);
	worker->nixl.held_count = 0;
	worker->nixl.counts = (struct kvb_nixl_counts){0};
}

void kvb_nixl_finish(struct kvb_worker *worker)
{
	free(worker->nixl.held);
	worker->nixl.held = NULL;
}

/* --- the prefilling side --- */

static struct kvb_nixl_held *hold(struct kvb_exchange *x, const char *name)
{
	struct kvb_worker *worker = x->worker;
	struct kvb_nixl *nixl = &worker->nixl;
	struct kvb_nixl_held *held;

	if (nixl->held == NULL)
		nixl->held = calloc(KVB_NIXL_HELD, sizeof(*nixl->held));
	if (nixl->held == NULL)
		return NULL;
	held = &nixl->held[nixl->held_count++ % KVB_NIXL_HELD];
	snprintf(held->request, sizeof(held->request), "%s", name);
	for (char *at = held->request; *at != '\0'; at++)
		if (*at == '&' || *at == '%' || *at == '+' || *at == '#' || *at <= ' ')
			*at = '_';
	held->until_ns = worker->step_end_ns + (int64_t)(worker->options->nixl.lease_s * 1e9);
	held->tokens = x->choices[0].seq->prompt_len;
	held->taken = false;
	nixl->counts.held++;
	return held;
}

void kvb_nixl_answer(struct kvb_exchange *x, struct kvb_buf *out)
{
	char name[160];
	struct kvb_nixl_held *held = NULL;
	uint32_t blocks;

	if (kvb_transfer_answers(x) && kvb_transfer_name(x, name, sizeof(name)))
		held = hold(x, name);
	if (held == NULL) {
		kvb_buf_text(out, "null");
		return;
	}
	blocks = held->tokens / x->worker->options->block_size;
	kvb_buf_text(out, "{\"do_remote_prefill\":true,\"do_remote_decode\":false,\"remote_block_ids\":[[");
	for (uint32_t i = 0; i < blocks; i++)
		kvb_buf_printf(out, "%s%u", i > 0 ? "," : "", i + 1);
	kvb_buf_printf(out,
		"]],\"remote_engine_id\":\"%s\",\"remote_request_id\":\"%s\",\"remote_host\":\"%s\","
		"\"remote_port\":%u,\"tp_size\":1,\"dcp_size\":1,\"pp_size\":1,\"remote_num_tokens\":%u,"
		"\"remote_blocks_expiry_time\":null,\"transfer_mode\":\"%s\","
		"\"remote_prefill_cached_tokens\":%u}",
		x->worker->nixl.engine_id, held->request, x->worker->options->host,
		kvb_http_port(x->worker->http), held->tokens,
		x->worker->options->nixl.kind == KVB_TRANSFER_PUSH ? "push" : "pull",
		x->choices[0].seq->cached_len);
}

void kvb_nixl_computed(struct kvb_exchange *x)
{
	char name[160];

	if (!kvb_transfer_answers(x) && kvb_transfer_name(x, name, sizeof(name)))
		(void)hold(x, name);
}

static struct kvb_nixl_held *find_held(struct kvb_worker *worker, const char *request)
{
	struct kvb_nixl *nixl = &worker->nixl;
	uint64_t count = nixl->held_count < KVB_NIXL_HELD ? nixl->held_count : KVB_NIXL_HELD;

	for (uint64_t i = 0; i < count; i++)
		if (strcmp(nixl->held[i].request, request) == 0)
			return &nixl->held[i];
	return NULL;
}

void kvb_nixl_read(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	char engine[64], id[160];
	struct kvb_nixl_held *held;
	struct kvb_buf body = {0};
	bool good;

	if (!kvb_query_get(request, "engine", engine, sizeof(engine)) ||
		!kvb_query_get(request, "request", id, sizeof(id)) ||
		(engine[0] != '\0' && strcmp(engine, worker->nixl.engine_id) != 0)) {
		kvb_buf_text(&body, "{\"error\":\"another engine\"}");
		kvb_reply_json(conn, 404, &body);
		return;
	}
	held = find_held(worker, id);
	good = held != NULL && !held->taken && kvb_worker_sim_ns(worker) <= held->until_ns;
	if (held != NULL)
		held->taken = true;
	kvb_buf_printf(&body, "{\"tokens\":%u,\"known\":%s}", good ? held->tokens : 0,
		held != NULL ? "true" : "false");
	kvb_reply_json(conn, 200, &body);
}

/* --- the decoding side --- */

static bool is_text_of_query(const char *text)
{
	return text != NULL && text[0] != '\0' && strpbrk(text, " &%+#\r\n") == NULL;
}

/* Puts the request into the engine when its bytes could have arrived; the engine computes the
 * last token alone. */
static void go_on(struct kvb_exchange *x, uint32_t tokens)
{
	bool recomputes = tokens == 0 && x->worker->options->nixl.kind != KVB_TRANSFER_NIXL &&
			  x->worker->options->nixl.kind != KVB_TRANSFER_SIDECAR;
	const struct kvb_options *o = x->worker->options;
	struct kvb_seq *seq = x->choices[0].seq;
	double bytes = (double)seq->prompt_len * (double)(o->tier.kv_bytes > 0 ? o->tier.kv_bytes : o->profile->kv_bytes);

	if (recomputes) {
		x->worker->nixl.counts.recomputed++;
		x->arrival_ns = kvb_worker_sim_ns(x->worker);
		kvb_worker_expect(x->worker, x);
		return;
	}
	if (tokens == 0) { /* the freed blocks hold other content by now */
		x->worker->nixl.counts.wrong++;
		seq->text_state ^= UINT64_C(0x5bd1e995);
	} else {
		x->worker->nixl.counts.pulled++;
	}
	seq->pulled = seq->prompt_len - 1;
	x->arrival_ns = kvb_worker_sim_ns(x->worker) +
			(int64_t)((o->nixl.latency_s + bytes / o->nixl.bandwidth) * 1e9);
	kvb_worker_expect(x->worker, x);
}

static void close_io(struct kvb_nixl_pull *pull)
{
	if (pull->io != NULL)
		bufferevent_free(pull->io);
	pull->io = NULL;
}

static void end_pull(struct kvb_nixl_pull *pull)
{
	pull->x->pull = NULL;
	close_io(pull);
	if (pull->again != NULL)
		event_free(pull->again);
	free(pull->engine);
	free(pull->request);
	free(pull->host);
	free(pull);
}

static bool ask_source(struct kvb_nixl_pull *pull);

static void give_up(struct kvb_nixl_pull *pull)
{
	struct kvb_exchange *x = pull->x;

	end_pull(pull);
	x->worker->nixl.counts.refused++;
	kvb_exchange_give_up(x);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	if (!ask_source(arg))
		give_up(arg);
}

static void on_pull_event(struct bufferevent *io, short what, void *arg)
{
	struct kvb_nixl_pull *pull = arg;
	struct kvb_exchange *x = pull->x;
	struct evbuffer *in = bufferevent_get_input(io);
	char text[512] = "";
	const char *found;

	if ((what & BEV_EVENT_CONNECTED) != 0)
		return;
	evbuffer_copyout(in, text, sizeof(text) - 1);
	found = strstr(text, "{\"tokens\":");
	close_io(pull);
	if (found != NULL && pull->waits && strstr(text, "\"known\":false") != NULL) {
		event_add(pull->again, &(struct timeval){.tv_usec = AGAIN_US});
		return;
	}
	if (found == NULL && x->worker->options->nixl.kind == KVB_TRANSFER_P2P)
		found = "{\"tokens\":0"; /* answers as a worker that holds nothing */
	if (found == NULL) {
		give_up(pull);
		return;
	}
	end_pull(pull);
	go_on(x, (uint32_t)strtoul(found + 10, NULL, 10));
}

static bool ask_source(struct kvb_nixl_pull *pull)
{
	pull->io = bufferevent_socket_new(pull->x->worker->base, -1,
		BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
	if (pull->io == NULL)
		return false;
	bufferevent_setcb(pull->io, NULL, NULL, on_pull_event, pull);
	bufferevent_enable(pull->io, EV_READ | EV_WRITE);
	evbuffer_add_printf(bufferevent_get_output(pull->io),
		"GET /sim/nixl?engine=%s&request=%s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n\r\n",
		pull->engine, pull->request, pull->host);
	bufferevent_socket_connect_hostname(pull->io, NULL, AF_INET, pull->host, pull->port);
	return true;
}

bool kvb_nixl_pull(struct kvb_exchange *x, const struct kvb_nixl_source *source, bool waits)
{
	struct kvb_nixl_pull *pull;

	if (source->engine == NULL || strpbrk(source->engine, " &%+#\r\n") != NULL ||
		!is_text_of_query(source->request) || !is_text_of_query(source->host) ||
		source->port <= 0) {
		x->worker->nixl.counts.recomputed++;
		return false;
	}
	pull = calloc(1, sizeof(*pull));
	if (pull == NULL)
		return false;
	pull->x = x;
	pull->waits = waits;
	pull->engine = strdup(source->engine);
	pull->request = strdup(source->request);
	pull->host = strdup(source->host);
	pull->port = source->port;
	pull->again = evtimer_new(x->worker->base, on_again, pull);
	x->pull = pull;
	if (pull->engine != NULL && pull->request != NULL && pull->host != NULL &&
		pull->again != NULL && ask_source(pull))
		return true;
	end_pull(pull);
	return false;
}

void kvb_nixl_stats(const struct kvb_worker *worker, struct kvb_buf *out)
{
	const struct kvb_nixl_counts *c = &worker->nixl.counts;

	if (!worker->options->nixl.on)
		return;
	kvb_buf_printf(out,
		",\"nixl\":{\"engine_id\":\"%s\",\"held\":%llu,\"pulled\":%llu,\"wrong\":%llu,"
		"\"refused\":%llu,\"recomputed\":%llu}",
		worker->nixl.engine_id, (unsigned long long)c->held, (unsigned long long)c->pulled,
		(unsigned long long)c->wrong, (unsigned long long)c->refused,
		(unsigned long long)c->recomputed);
}

void kvb_nixl_drop(struct kvb_exchange *x)
{
	if (x->pull != NULL)
		end_pull(x->pull);
}
