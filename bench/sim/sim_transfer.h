/*
 * sim_transfer.h - prefill and decode on different workers: which connector a worker has (--transfer),
 * and what a request's parameters say to it.
 *
 * As with the real ones, parameters of another connector, or incomplete ones, are not understood: the
 * prompt is computed without a word (`recomputed` of /sim/stats). Not thread-safe.
 */
#ifndef KVB_SIM_TRANSFER_H
#define KVB_SIM_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>

struct kvb_conn;
struct kvb_exchange;
struct kvb_request;
struct kvb_worker;

/* Begins the decoding side of a transfer. False: there is none, and the request goes into the engine as
 * any other. */
bool kvb_transfer_begin(struct kvb_exchange *x, const struct kvb_request *request);
/* Writes the name under which the prefilling side holds the request's KV; returns false if it
 * holds none. */
bool kvb_transfer_name(struct kvb_exchange *x, char *out, size_t size);
/* Returns whether the request's answer has transfer parameters. */
bool kvb_transfer_answers(const struct kvb_exchange *x);

/* GET /query of Mooncake's bootstrap server. */
void kvb_transfer_query(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request);

#endif
