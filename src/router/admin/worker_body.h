/*
 * worker_body.h - reads workers from the body of a request to the admin address. Private to
 * src/router/admin.
 *
 * The keys are those of an entry of `workers` in a file, and the file's loader reads them, so that
 * types, limits and messages are the same. Pure functions.
 */
#ifndef KVW_WORKER_BODY_H
#define KVW_WORKER_BODY_H

#include "config/config.h"

#define KVW_WORKER_BODY_MOST ((size_t)1 << 20)

/* Reads a worker, or a list of at least one (*many), into *out's `workers`. KVW_EINVAL: *why, which
 * the caller frees, names all mistakes. */
enum kvw_err kvw_worker_body_read(
	struct kvw_slice body, bool *many, struct kvw_config **out, char **why) KVW_MUST_CHECK;

/* Makes a copy of `base` with the keys of the body (null: the key's default), as *out's only
 * worker. */
enum kvw_err kvw_worker_body_change(struct kvw_slice body, const struct kvw_worker_config *base,
	struct kvw_config **out, char **why) KVW_MUST_CHECK;

#endif
