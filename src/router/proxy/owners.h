/*
 * owners.h - which worker made which response of /v1/responses, which session of /invocations, or
 * what else has an id.
 *
 * A worker keeps what it made; a request that names it (previous_response_id, GET, DELETE and
 * cancel by id; a session in the head, sagemaker.h) can be served by no other. The table is
 * bounded: the oldest entry goes.
 *
 * An entry is also of the tenant whose request made the thing: for all others the id is one that
 * there is not.
 *
 * Threads: any; a mutex guards the table (only such requests come here).
 */
#ifndef KVW_OWNERS_H
#define KVW_OWNERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_OWNER_PREFIX 256 /* bytes of an answer within which its id stands */

struct kvw_owners;

/* limit: most ids remembered. Memory is taken with the first id. */
enum kvw_err kvw_owners_create(size_t limit, struct kvw_owners **out) KVW_MUST_CHECK;
void kvw_owners_destroy(struct kvw_owners *owners); /* NULL is allowed */

/* Stands for a tenant by name, over restarts too; 0: of none. */
uint64_t kvw_owners_tenant(struct kvw_slice tenant);

enum kvw_owned {
	KVW_OWNED_UNKNOWN,
	KVW_OWNED_KNOWN,  /* by *worker */
	KVW_OWNED_FOREIGN /* another tenant's */
};

/* An id that another tenant has stays that tenant's. */
void kvw_owners_set(
	struct kvw_owners *owners, struct kvw_slice id, uint64_t tenant, uint32_t worker);
enum kvw_owned kvw_owners_find(
	struct kvw_owners *owners, struct kvw_slice id, uint64_t tenant, uint32_t *worker);

/* An entry, over a restart. */
struct kvw_owner {
	uint64_t id; /* hash */
	uint64_t tenant;
	uint32_t worker;
};

/* Copies the next entries that have a worker, oldest first; *at: 0 at first. Returns how many; 0:
 * that was all. What changes meanwhile may be missing. */
size_t kvw_owners_copy(struct kvw_owners *owners, size_t *at, struct kvw_owner *out, size_t room);
/* Puts one back. */
void kvw_owners_recall(struct kvw_owners *owners, const struct kvw_owner *owner);

/* The id in the beginning of an answer, plain or a stream's first event: the first member "id"
 * whose value is a string that begins with `begins`. len 0: not (yet) there. */
struct kvw_slice kvw_owners_id_in(const char *data, size_t len, struct kvw_slice begins);

/* The worker has left: none of its ids is known any more. */
void kvw_owners_forget(struct kvw_owners *owners, uint32_t worker);

#endif
