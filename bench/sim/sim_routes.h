/*
 * sim_routes.h - the paths of a worker other than the generating ones.
 */
#ifndef KVB_SIM_ROUTES_H
#define KVB_SIM_ROUTES_H

#include "bench/sim/sim_http.h"
#include "bench/sim/sim_worker.h"

/* Answers, or hands to the API of that path. */
void kvb_routes_request(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request);

/* sim_admin.c: everything under /sim/. */
void kvb_admin_request(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request);

/* sim_render.c: the tokens of a request that is not carried out. */
struct kvb_api;
void kvb_render_request(struct kvb_worker *worker, struct kvb_conn *conn,
	const struct kvb_request *request, const struct kvb_api *api);

/* Value of a query field, percent-decoded into out; false if it is absent or too long. */
bool kvb_query_get(const struct kvb_request *request, const char *name, char *out, size_t size);
void kvb_reply_json(struct kvb_conn *conn, int status, struct kvb_buf *body); /* frees body */

#endif
