/*
 * sim_routes.h - serves the paths of a worker except those that generate.
 */
#ifndef KVB_SIM_ROUTES_H
#define KVB_SIM_ROUTES_H

#include "bench/sim/sim_http.h"
#include "bench/sim/sim_worker.h"

/* Answers a request, or passes it to the API of its path. */
void kvb_routes_request(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request);

/* In sim_admin.c: serves everything under /sim/. */
void kvb_admin_request(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request);

/* In sim_render.c: returns the tokens of a request without executing it. */
struct kvb_api;
void kvb_render_request(struct kvb_worker *worker, struct kvb_conn *conn,
	const struct kvb_request *request, const struct kvb_api *api);

/* Copies the value of a query field, percent-decoded, into out. Returns false if it is missing or
 * too long. */
bool kvb_query_get(const struct kvb_request *request, const char *name, char *out, size_t size);
void kvb_reply_json(struct kvb_conn *conn, int status, struct kvb_buf *body); /* frees body */

#endif
