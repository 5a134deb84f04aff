/*
 * tenants.h - the cache salt of each tenant's requests, so that no tenant can learn by time what
 * another has asked.
 *
 * An engine finds cached blocks of requests with the same salt only. A tenant's is HMAC-SHA256 of
 * its name and of the salt that the request itself has, by a secret: a client that knows both still
 * cannot name another tenant's, by a key without a tenant or at a worker. All replicas of kvway
 * need the same secret, or what one has had computed another does not find.
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

/* secret_file: white space at its end does not count; empty: a secret of this process alone.
 * KVW_EINVAL, KVW_EIO: it is too short or too long, or cannot be read, which is in `errors`;
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

/* Was the secret read from a file? */
bool kvw_tenants_last(const struct kvw_tenants *tenants);

#endif
