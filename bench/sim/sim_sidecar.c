/*
 * sim_sidecar.c - see sim_sidecar.h.
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_nixl.h"
#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_sidecar.h"
#include "bench/sim/sim_transfer.h"
#include "bench/sim/sim_worker.h"

/* A prefill by another worker that is under way. */
struct kvb_sidecar {
	struct kvb_exchange *x;
	struct bufferevent *io;
};

static void end_sidecar(struct kvb_sidecar *sidecar)
{
	sidecar->x->sidecar = NULL;
	bufferevent_free(sidecar->io);
	free(sidecar);
}

/* Makes the body for the other worker; the caller owns it. */
static char *body_of(const struct kvb_exchange *x)
{
	json_t *body = json_copy(x->body);
	char *text;

	if (body == NULL)
		return NULL;
	json_object_set_new(body, "kv_transfer_params", json_pack("{s:b}", "do_remote_decode", 1));
	json_object_set_new(body, "stream", json_false());
	json_object_del(body, "stream_options");
	json_object_set_new(body, json_object_get(body, "max_output_tokens") != NULL
					  ? "max_output_tokens"
					  : "max_tokens",
		json_integer(1));
	text = json_dumps(body, JSON_COMPACT);
	json_decref(body);
	return text;
}

/* Copies the answer's transfer parameters into the request. Returns false if it has none. */
static bool take_params(struct kvb_exchange *x, const char *answer, size_t len)
{
	json_t *whole = json_loadb(answer, len, 0, NULL);
	json_t *params = json_object_get(whole, "kv_transfer_params");
	bool good = json_is_object(params);

	if (good)
		json_object_set(x->body, "kv_transfer_params", params);
	json_decref(whole);
	return good;
}

/* Puts the request into the engine as one without a prefiller. */
static void compute(struct kvb_exchange *x)
{
	x->arrival_ns = kvb_worker_sim_ns(x->worker);
	kvb_worker_expect(x->worker, x);
	kvb_worker_kick(x->worker);
}

static void on_event(struct bufferevent *io, short what, void *arg)
{
	struct kvb_sidecar *sidecar = arg;
	struct kvb_exchange *x = sidecar->x;
	struct evbuffer *in = bufferevent_get_input(io);
	size_t len = evbuffer_get_length(in);
	char *text;
	const char *body;
	bool good;

	if ((what & BEV_EVENT_CONNECTED) != 0)
		return;
	text = (char *)evbuffer_pullup(in, -1);
	body = len == 0 ? NULL : memmem(text, len, "\r\n\r\n", 4);
	good = body != NULL && strncmp(text, "HTTP/1.1 200", 12) == 0 &&
	       take_params(x, body + 4, len - (size_t)(body + 4 - text));
	end_sidecar(sidecar);
	if (!good) {
		x->worker->nixl.counts.refused++;
		kvb_exchange_give_up(x);
	} else if (!kvb_transfer_begin(x, NULL)) {
		compute(x);
	}
}

bool kvb_sidecar_begin(struct kvb_exchange *x, const struct kvb_request *request)
{
	const char *value, *path = request == NULL ? NULL : request->path;
	char address[128], *colon, *body;
	struct kvb_sidecar *sidecar;
	size_t len;

	if (request == NULL ||
		!kvb_request_header(request, "x-prefiller-host-port", &value, &len) ||
		len >= sizeof(address))
		return false;
	snprintf(address, sizeof(address), "%.*s", (int)len, value);
	colon = strrchr(address, ':');
	body = body_of(x);
	sidecar = calloc(1, sizeof(*sidecar));
	if (colon == NULL || body == NULL || sidecar == NULL) {
		free(body);
		free(sidecar);
		return false;
	}
	*colon = '\0';
	sidecar->x = x;
	x->sidecar = sidecar;
	sidecar->io = bufferevent_socket_new(x->worker->base, -1,
		BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
	bufferevent_setcb(sidecar->io, NULL, NULL, on_event, sidecar);
	bufferevent_enable(sidecar->io, EV_READ | EV_WRITE);
	evbuffer_add_printf(bufferevent_get_output(sidecar->io),
		"POST %s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n"
		"content-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
		path, address, strlen(body), body);
	free(body);
	bufferevent_socket_connect_hostname(
		sidecar->io, NULL, AF_INET, address, atoi(colon + 1));
	return true;
}

void kvb_sidecar_drop(struct kvb_exchange *x)
{
	if (x->sidecar != NULL)
		end_sidecar(x->sidecar);
}
