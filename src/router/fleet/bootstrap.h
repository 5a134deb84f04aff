/*
 * bootstrap.h - Mooncake's bootstrap server, which each prefilling server has: the engine ids by
 * which decoding workers ask for KV. Private to probe.c.
 *
 *	GET http://HOST:8998/query    {"0": {"engine_id": "...", "worker_addr": {...}}, ...}
 *
 * by global rank (vLLM 0.32, MooncakeConnector). Threads: the control thread.
 */
#ifndef KVW_BOOTSTRAP_H
#define KVW_BOOTSTRAP_H

#include "fleet/fleet.h"
#include "fleet/probe_request.h"
#include "fleet/probe_share.h"

/* Whether the worker's server is to be asked: pd.transfer is mooncake, and the worker prefills. */
bool kvw_bootstrap_wanted(const struct kvw_fleet *fleet, const struct kvw_worker *worker);

#define KVW_BOOTSTRAP_QUERY_ROOM 306

/* Writes the URL that is asked, which changes with pd.port, and returns it. */
const char *kvw_bootstrap_query(const struct kvw_config *config,
	const struct kvw_worker *worker, char url[KVW_BOOTSTRAP_QUERY_ROOM]);

/* Turns a request for a page of the worker, just prepared, into this one: without the worker's API
 * key, since the bootstrap server speaks plain HTTP, also where the worker has TLS. */
enum kvw_err kvw_bootstrap_direct(struct kvw_probe_request *request,
	const struct kvw_config *config, const struct kvw_worker *worker) KVW_MUST_CHECK;

/* Takes the answer, for each rank of the server (probe_share.h); without one no rank can be asked
 * for its KV. */
void kvw_bootstrap_take(struct kvw_probe_share *const *shares, const struct kvw_config *config,
	const char *body, size_t len);

#endif
