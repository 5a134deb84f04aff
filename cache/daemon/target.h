/*
 * target.h - parses a request's target: decoded parts of the path, values of the query.
 *
 * The path is cut at its slashes first and decoded afterwards, so that %2F is a byte of a key and a
 * raw '/' never is. Stock clients send some characters raw and some encoded, and not always the
 * same way: only decoded names are compared. '.' and '..' are text like any other, and case is
 * significant. Any other path than those below is refused, with a sentence that names the expected
 * form.
 *
 * Pure functions, fuzzed.
 */
#ifndef KVT_TARGET_H
#define KVT_TARGET_H

#include "chunk/slots.h"
#include "daemon/objects.h"

enum kvt_path {
	KVT_PATH_HEALTH,  /* /health */
	KVT_PATH_READY,   /* /ready */
	KVT_PATH_METRICS, /* /metrics */
	KVT_PATH_TRACE,   /* /trace */
	KVT_PATH_BUCKETS, /* /v1/buckets */
	KVT_PATH_BUCKET,  /* /v1/kv/{bucket} */
	KVT_PATH_OBJECT,  /* /v1/kv/{bucket}/{key} */
	KVT_PATH_LEASES,  /* /v1/kv/{bucket}/{key}/leases */
	KVT_PATH_RELEASE, /* /v1/leases/{id}/release */
	KVT_PATH_GENERATIONS, /* /v1/generations */
};

#define KVT_TENANT_HEADER "X-Kvtier-Tenant" /* header field of a PUT that names the tenant */

#define KVT_LIST_MOST     1000 /* limit of objects in one answer */
#define KVT_QUERY_MS_MOST UINT64_C(1000000000)

/* A parsed target. Its slices point into itself, so it must not be copied. */
struct kvt_target {
	enum kvt_path path;
	struct kvw_slice bucket, key; /* from the path, or empty */
	struct kvw_slice id;          /* KVT_PATH_RELEASE: the lease's id, undecoded */

	/* Values of the query. Unknown names are ignored, and so is the query of paths that take
	 * none. */
	bool has_timeout, has_ttl;
	bool unchecked; /* check=0: the client checks the bytes itself */
	uint64_t timeout_ns, ttl_ns; /* KVT_PATH_LEASES */
	struct kvw_slice after;      /* KVT_PATH_BUCKET */
	size_t limit;                /* limit=, of lists and of KVT_PATH_TRACE */
	bool has_tenant;
	struct kvt_tenant tenant; /* tenant whose objects are to be erased */
	uint8_t table[KVT_TABLE_ID_BYTES]; /* KVT_PATH_GENERATIONS: id= */
	uint64_t number;                   /* after= */
	uint32_t slot;                     /* slot=; KVT_SLOT_NONE: none */

	size_t used;
	char text[KVT_BUCKET_MOST + 2 * KVT_OBJECT_KEY_MOST]; /* decoded */
};

/* The status and text with which a target is refused. */
struct kvt_refusal {
	int status;          /* 400 or 404 */
	const char *message; /* static */
};

/* Parses `target`, which is borrowed, comes from a request's head and begins with '/'; out->id
 * points into it. */
bool kvt_target_parse(struct kvw_slice target, struct kvt_target *out,
	struct kvt_refusal *refusal) KVT_MUST_CHECK;

/* Parses 32 hex digits. */
bool kvt_tenant_parse(struct kvw_slice text, struct kvt_tenant *out) KVT_MUST_CHECK;

#endif
