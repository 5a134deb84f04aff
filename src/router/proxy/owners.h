/*
 * owners.h - the table of workers that made responses of /v1/responses, sessions of /invocations,
 * or other objects with an id.
 *
 * A worker keeps the objects that it made; no other worker can serve a request that names one
 * (previous_response_id, GET, DELETE and cancel by id; a session in the head, sagemaker.h). The
 * table is bounded: a new entry replaces the oldest.
 *
 * An entry also names the tenant whose request made the object: for all other tenants the id does
 * not exist.
 *
 * Threads: any; a mutex guards the table, which only requests for such objects use.
 */
#ifndef KVW_OWNERS_H
#define KVW_OWNERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_OWNER_PREFIX 256 /* the id stands within this many bytes of an answer's beginning */

struct kvw_owners;

/* limit: most ids remembered. The first id allocates the memory. */
enum kvw_err kvw_owners_create(size_t limit, struct kvw_owners **out) KVW_MUST_CHECK;
void kvw_owners_destroy(struct kvw_owners *owners); /* NULL is allowed */

/* Returns a number for a tenant's name, the same after a restart; 0: no tenant. */
uint64_t kvw_owners_tenant(struct kvw_slice tenant);

enum kvw_owned {
	KVW_OWNED_UNKNOWN,
	KVW_OWNED_KNOWN,  /* by *worker */
	KVW_OWNED_FOREIGN /* another tenant's */
};

/* Sets the owner of an id. An id of another tenant stays that tenant's. */
void kvw_owners_set(
	struct kvw_owners *owners, struct kvw_slice id, uint64_t tenant, uint32_t worker);
enum kvw_owned kvw_owners_find(
	struct kvw_owners *owners, struct kvw_slice id, uint64_t tenant, uint32_t *worker);

/* An entry as saved for a restart. */
struct kvw_owner {
	uint64_t id; /* hash */
	uint64_t tenant;
	uint32_t worker;
};

/* Copies the next entries that have a worker, oldest first; *at: 0 at first. Returns how many; 0:
 * there are no more. Entries that change meanwhile may be missing. */
size_t kvw_owners_copy(struct kvw_owners *owners, size_t *at, struct kvw_owner *out, size_t room);
/* Puts one back. */
void kvw_owners_recall(struct kvw_owners *owners, const struct kvw_owner *owner);

/* Finds the id in the beginning of an answer, which is plain or a stream's first event: the first
 * member "id" whose value is a string that begins with `begins`. len 0: it is not there (yet). */
struct kvw_slice kvw_owners_id_in(const char *data, size_t len, struct kvw_slice begins);

/* Forgets all ids of a worker that has left. */
void kvw_owners_forget(struct kvw_owners *owners, uint32_t worker);

#endif
