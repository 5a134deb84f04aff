/*
 * roster.h - which tenants have objects in which bucket, so that an erase of a bucket reaches them all.
 *
 * Clients may name the tenant of what they put (X-Kvtier-Tenant); libkvtier then knows the object under
 * that tenant, not under its bucket. A tenant of a bucket is entered before its first object is put, and
 * stays. The file is appended to; the system writes it, and the keeping thread syncs it each turn. A power loss may take
 * what was entered since, while an object is durable: an erase of the bucket then does not reach that, until its tenant puts
 * again.
 *
 * Threads: any.
 */
#ifndef KVT_ROSTER_H
#define KVT_ROSTER_H

#include <stdbool.h>

#include "chunk/note.h"

#define KVT_ROSTER_MOST 65536u

struct kvt_roster;

/* path NULL: not kept over a restart. Damaged records are passed over. KVT_EIO: `why`. */
enum kvt_status kvt_roster_create(const char *path, const struct kvt_surroundings *surroundings,
	char *why, struct kvt_roster **out) KVT_MUST_CHECK;
void kvt_roster_destroy(struct kvt_roster *r); /* NULL is allowed */

/* Enters it, unless it is there. False: it is not there (too many, or the file cannot be written). */
bool kvt_roster_enter(
	struct kvt_roster *r, const struct kvt_tenant *bucket, const struct kvt_tenant *tenant);
/* The first tenant of this bucket from *at on, which becomes the place behind it; false: no more. */
bool kvt_roster_next(struct kvt_roster *r, const struct kvt_tenant *bucket, uint32_t *at,
	struct kvt_tenant *tenant);
void kvt_roster_sync(struct kvt_roster *r); /* may wait for the disk */
uint32_t kvt_roster_count(struct kvt_roster *r);

#endif
