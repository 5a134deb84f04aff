/*
 * tenants.h - the cache salt of each tenant's requests, so that no tenant can learn another's
 * prompts by timing.
 *
 * An engine finds cached blocks of requests with the same salt only. A tenant's salt is
 * HMAC-SHA256, by a secret, of its name and the request's own salt: a client that knows both still
 * cannot produce another tenant's salt, with a key without tenant or directly at a worker. All
 * replicas of kvway need the same secret, to find each other's cached blocks.
 *
 * Threads: any, once created; it never changes.
 */
#ifndef KVW_TENANTS_H
#define KVW_TENANTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"
#include "kvway/slice.h"

/* base64url: vLLM takes no `@`, slash or backslash, and 128 at most. */
#define KVW_TENANT_SALT         43
#define KVW_TENANT_SECRET_LEAST 32 /* bytes */
#define KVW_TENANT_SECRET_MOST  4096

struct kvw_tenants;

/* secret_file: white space at its end is ignored; empty: a secret of this process alone.
 * KVW_EINVAL, KVW_EIO: it is too short or too long, or cannot be read; `errors` has the cause;
 * KVW_ENOMEM. */
enum kvw_err kvw_tenants_create(
	const char *secret_file, FILE *errors, struct kvw_tenants **out) KVW_MUST_CHECK;
void kvw_tenants_destroy(struct kvw_tenants *tenants); /* wipes the secret; NULL is allowed */

/* The salt of a request of this tenant whose body has the salt `own`, if has_own.
 * Not NUL-terminated. */
void kvw_tenants_salt(const struct kvw_tenants *tenants, struct kvw_slice tenant, bool has_own,
	struct kvw_slice own, char out[KVW_TENANT_SALT]);

/* A number for the tenant in this process; never 0. */
uint64_t kvw_tenants_number(const struct kvw_tenants *tenants, struct kvw_slice tenant);

/* Whether the secret was read from a file, and so lasts. */
bool kvw_tenants_last(const struct kvw_tenants *tenants);

#endif
