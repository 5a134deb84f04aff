/*
 * kube_call.h - one request at a time to the API of Kubernetes: a page of a list, a watch, or a
 * patch.
 *
 * Token and CA file are read for each request, since Kubernetes replaces both from time to time. A
 * list's body is collected, a watch's is passed on line by line. Everything has a limit: the bytes
 * of a page and of a line, the time of a list, the time for which a watch may send nothing.
 *
 * Threads: as the loop of its transfers (curl_loop.h), whose `done` must call kvw_kube_call_done.
 */
#ifndef KVW_KUBE_CALL_H
#define KVW_KUBE_CALL_H

#include "config/config.h"
#include "fleet/curl_loop.h"
#include "kvway/slice.h"

#define KVW_KUBE_PAGE_BYTES  ((size_t)16 << 20)
#define KVW_KUBE_EVENT_BYTES ((size_t)4 << 20) /* etcd refuses objects of more than 1.5 MiB */
#define KVW_KUBE_WHY         320

/* Cause of a failed call: a label of kvway_discovery_errors_total. */
enum kvw_kube_fault {
	KVW_KUBE_CONNECT,   /* no connection, or it was refused */
	KVW_KUBE_TLS,       /* the server failed TLS verification */
	KVW_KUBE_TIMEOUT,   /* of a list */
	KVW_KUBE_IDLE,      /* a watch sent nothing for too long */
	KVW_KUBE_CUT,       /* the answer was cut off */
	KVW_KUBE_DENIED,    /* 401, 403, or no token */
	KVW_KUBE_GONE,      /* status 410, of the answer or of an event: the version is too old */
	KVW_KUBE_THROTTLED, /* 429 */
	KVW_KUBE_SERVER,    /* 5xx */
	KVW_KUBE_STATUS,    /* any other status */
	KVW_KUBE_MALFORMED, /* the answer is malformed */
	KVW_KUBE_TOO_LARGE, /* a page or line too long, or too many objects */
	KVW_KUBE_LOCAL,     /* out of memory */
	KVW_KUBE_FAULTS,
	KVW_KUBE_NONE = KVW_KUBE_FAULTS,
};

const char *kvw_kube_fault_name(enum kvw_kube_fault fault);

struct kvw_kube_call;

/* How a call ended. Borrowed. */
struct kvw_kube_result {
	/* NONE: the body of a list is complete, or the server ended a watch. */
	enum kvw_kube_fault fault;
	const char *why;           /* one line */
	struct kvw_slice body;     /* of a list */
	int64_t wait_ms;           /* Retry-After; 0: none */
};

struct kvw_kube_call_ops {
	/* Called when the server has accepted a watch. */
	void (*open)(void *arg);
	/* Called for each line of a watch; returning false ends the watch, like kvw_kube_call_stop.
	 * Must not destroy the call. */
	bool (*line)(void *arg, struct kvw_slice line);
	/* Called at the end. May start another call. Not called after kvw_kube_call_stop. */
	void (*ended)(void *arg, const struct kvw_kube_result *result);
};

/* Makes a call object. ops and arg are borrowed, and so is config while it lives. */
enum kvw_err kvw_kube_call_create(struct kvw_curl_loop *loop, const struct kvw_config *config,
	const struct kvw_kube_call_ops *ops, void *arg, struct kvw_kube_call **out) KVW_MUST_CHECK;
/* NULL is allowed; must not be called from a callback of the call */
void kvw_kube_call_destroy(struct kvw_kube_call *call);

/* Starts a GET; a running call is stopped first. path: with its query, escaped. `ended` is always
 * called, from the loop and never from within this function. */
void kvw_kube_call_start(struct kvw_kube_call *call, const char *path, bool watch);
/* Sends a PATCH; it can fail like a list's call. patch: a JSON merge patch, copied. */
void kvw_kube_call_patch(struct kvw_kube_call *call, const char *path, const char *patch);
void kvw_kube_call_stop(struct kvw_kube_call *call);
bool kvw_kube_call_runs(const struct kvw_kube_call *call);

/* Handles the end of a transfer. user: the CURLOPT_PRIVATE that the loop passes to `done`. */
void kvw_kube_call_done(void *user, CURLcode code);

/* Reads the first line of a small file without surrounding blanks, on the heap. KVW_EIO: the file
 * cannot be read, or its first line is empty; `why` has the cause. */
enum kvw_err kvw_kube_read_word(
	const char *path, char **out, char *why, size_t room) KVW_MUST_CHECK;

/* Makes the transfer trust only the authorities in that PEM file, which is read now. KVW_EIO: the
 * file cannot be read; `why` has the cause. */
enum kvw_err kvw_kube_trust(CURL *easy, const char *path, char *why, size_t room) KVW_MUST_CHECK;

/* Returns the namespace of a pool, on the heap. NULL: `why` has the cause, or memory is out. */
char *kvw_kube_namespace(const struct kvw_config *config, size_t pool, char *why, size_t room);

#endif
