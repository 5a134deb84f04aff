/*
 * kube_object.h - parses untrusted answers of the API of Kubernetes: pages of lists, events of a
 * watch.
 *
 * A pod, or an EndpointSlice, becomes an object: the list of its endpoints that may get requests. A
 * pod has one endpoint if it is ready, not being deleted, has an address and matches the selector,
 * else none; so a pod that may get no requests is an object without endpoints, not a missing
 * object. Texts are copied and bounded. The API:
 * https://kubernetes.io/docs/reference/using-api/api-concepts/
 *
 * Pure functions.
 */
#ifndef KVW_KUBE_OBJECT_H
#define KVW_KUBE_OBJECT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_KUBE_NAME           254  /* room for an object's name (a DNS subdomain) and a NUL */
#define KVW_KUBE_UID            65   /* room for a UID; longer ones are replaced by their hash */
#define KVW_KUBE_VERSION        65   /* resourceVersion */
#define KVW_KUBE_CONTINUE       4097 /* room for the token of the next page */
#define KVW_KUBE_ENDPOINTS_MOST 1000 /* endpoints of one EndpointSlice: Kubernetes' own limit */
#define KVW_KUBE_MODELS_MOST    64   /* in models_from */
/* objects in one page: an API server may ignore the requested limit. */
#define KVW_KUBE_PAGE_MOST      16384

struct kvw_kube_endpoint {
	char address[INET6_ADDRSTRLEN];
	bool v6;
	uint16_t port;
	char identity[KVW_KUBE_UID]; /* UID of the pod; "": not known */
};

/* One pod or EndpointSlice. Zeroed is empty. The owner calls kvw_kube_object_finish. */
struct kvw_kube_object {
	char name[KVW_KUBE_NAME];
	char uid[KVW_KUBE_UID];
	uint64_t version; /* resourceVersion as a number, which grows; 0: not a number */
	struct kvw_kube_endpoint *endpoints;
	size_t endpoint_count;
	struct kvw_strings models; /* read by models_from; count 0: not stated */
	double weight;             /* read by weight_from; 0: not stated */
	enum kvw_role role;        /* read from its labels; BOTH: not stated */
};

/* One page of a list. */
struct kvw_kube_page {
	struct kvw_kube_object *objects;
	size_t count;
	char version[KVW_KUBE_VERSION];   /* version of the list */
	char next[KVW_KUBE_CONTINUE];     /* "": this was the last page */
};

enum kvw_kube_event_kind {
	KVW_KUBE_ADDED,
	KVW_KUBE_MODIFIED,
	KVW_KUBE_DELETED,
	KVW_KUBE_BOOKMARK,
	KVW_KUBE_ERROR,
};

/* One line of a watch. */
struct kvw_kube_event {
	enum kvw_kube_event_kind kind;
	struct kvw_kube_object object;  /* object of ADDED, MODIFIED and DELETED */
	char version[KVW_KUBE_VERSION]; /* version of the object, or of the bookmark; "": none */
	int code;                       /* ERROR: its HTTP status; 0: none */
	char message[200];              /* ERROR: printable */
};

/* Reads a page of a list. pool: with complete configuration. KVW_EINVAL: the text is not a page, or
 * one item is not a valid object; then the whole page is refused. KVW_ENOMEM. */
enum kvw_err kvw_kube_page_read(const struct kvw_pool_config *pool, const char *text, size_t len,
	struct kvw_kube_page *out) KVW_MUST_CHECK;
void kvw_kube_page_finish(struct kvw_kube_page *page);

/* Reads a line of a watch. KVW_EINVAL: not a known event; KVW_ENOMEM. */
enum kvw_err kvw_kube_event_read(const struct kvw_pool_config *pool, const char *text, size_t len,
	struct kvw_kube_event *out) KVW_MUST_CHECK;
void kvw_kube_event_finish(struct kvw_kube_event *event);

/* Returns a resourceVersion as a number; 0: it is not a plain number. Versions are compared only as
 * numbers, which they are in every API server. */
uint64_t kvw_kube_version_number(const char *text);

void kvw_kube_object_finish(struct kvw_kube_object *object);

/* Reads the message of a Status object, as printable text; "": it has none. */
void kvw_kube_status_read(const char *text, size_t len, char *message, size_t room);

#endif
