/*
 * probe_request.h - the curl handle of one GET to one worker, ready to be run again and again.
 */
#ifndef KVW_PROBE_REQUEST_H
#define KVW_PROBE_REQUEST_H

#include <curl/curl.h>

#include "fleet/fleet.h"

/* Zeroed is empty. All owned; the handle refers to the lists. */
struct kvw_probe_request {
	CURL *easy;
	struct curl_slist *headers;
	struct curl_slist *connect_to; /* https: where the host of the URL is */
};

/* path: appended to the worker's own prefix. config: upstream.tls, borrowed during the call. On failure
 * finish() releases what there is. */
enum kvw_err kvw_probe_request_init(struct kvw_probe_request *request,
	const struct kvw_config *config, const struct kvw_worker *worker,
	const char *path) KVW_MUST_CHECK;
void kvw_probe_request_finish(struct kvw_probe_request *request);

#endif
