/*
 * tenants.h - computes the cache salt of each tenant's requests, so that no tenant can learn
 * another's prompts from response times.
 *
 * An engine finds cached blocks of requests with the same salt only. A tenant's salt is
 * HMAC-SHA256, by a secret, of its name and the request's own salt: a client that knows both can
 * still not compute another tenant's salt, and so cannot send it with a key without tenant, or
 * directly to a worker. All replicas of kvway need the same secret, to find each other's cached
 * blocks.
 *
 * Threads: any; the struct does not change once it is created.
 */
#ifndef KVW_TENANTS_H
#define KVW_TENANTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"
#include "kvway/slice.h"

/* A salt's length, in base64url: vLLM refuses `@`, slash and backslash, and more than 128
 * characters. Then the limits for the length of the secret. */
#define KVW_TENANT_SALT         43
#define KVW_TENANT_SECRET_LEAST 32 /* bytes */
#define KVW_TENANT_SECRET_MOST  4096

struct kvw_tenants;

/* secret_file: path of the secret, in which white space at the end is ignored; empty: a random
 * secret that only this process has. KVW_EINVAL, KVW_EIO: the secret is too short or too long, or
 * cannot be read; `errors` has the cause. KVW_ENOMEM. */
enum kvw_err kvw_tenants_create(
	const char *secret_file, FILE *errors, struct kvw_tenants **out) KVW_MUST_CHECK;
void kvw_tenants_destroy(struct kvw_tenants *tenants); /* overwrites the secret; NULL is allowed */

/* Computes the salt for a request of this tenant. If has_own, the request's body has the salt
 * `own`. The result has no NUL at its end. */
void kvw_tenants_salt(const struct kvw_tenants *tenants, struct kvw_slice tenant, bool has_own,
	struct kvw_slice own, char out[KVW_TENANT_SALT]);

/* Returns a number that stands for the tenant in this process; never 0. */
uint64_t kvw_tenants_number(const struct kvw_tenants *tenants, struct kvw_slice tenant);

/* Returns whether the secret was read from a file, and so outlasts the process. */
bool kvw_tenants_last(const struct kvw_tenants *tenants);

#endif
