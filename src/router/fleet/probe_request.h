/*
 * probe_request.h - the curl handle of one GET to one worker, ready to be run again and again.
 */
#ifndef KVW_PROBE_REQUEST_H
#define KVW_PROBE_REQUEST_H

#include <curl/curl.h>

#include "fleet/fleet.h"

/* Zeroed is empty. All members are owned; the handle refers to the lists. */
struct kvw_probe_request {
	CURL *easy;
	struct curl_slist *headers;
	struct curl_slist *resolve; /* addresses of the URL's host; NULL: a numeric host */
	/* Address to connect to, if the URL has the certificate's name instead; else NULL. */
	struct curl_slist *connect_to;
	char *certificate, *key; /* paths of kvway's own certificate and key; NULL: none */
	bool lacking; /* no file descriptor was free, so that the failure is not the worker's */
};

/* Prepares the handle. path: appended to the worker's own prefix. config: upstream.tls, borrowed
 * during the call. KVW_ENOTFOUND: the worker's name has no address. On failure finish() releases
 * the parts that were made. */
enum kvw_err kvw_probe_request_init(struct kvw_probe_request *request,
	const struct kvw_config *config, struct kvw_worker *worker,
	const char *path) KVW_MUST_CHECK;
/* Records the address that answered the probe, which requests then try first. */
void kvw_probe_request_connected(struct kvw_probe_request *request, struct kvw_worker *worker);
void kvw_probe_request_finish(struct kvw_probe_request *request);

#endif
