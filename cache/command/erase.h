/*
 * erase.h - `kvtier erase`: what is to be erased, and what was, before it is printed.
 */
#ifndef KVT_ERASE_H
#define KVT_ERASE_H

#include <stdio.h>

#include "kvtier/kvtier.h"
#include "command/store.h"

/* What was erased in one store. */
struct kvt_erase_result {
	const char *folder; /* NULL: there is no store, only a shared tier */
	struct kvt_owner owner;
	bool dry_run;
	enum kvt_status status;
	struct kvt_erased erased;
	char why[KVT_TIER_COUNT]
		[KVT_REASON_BYTES]; /* of a tier that was configured and is not there; else "" */
};

/* Were all tiers there? */
static inline bool kvt_erase_reached(const struct kvt_erase_result *r)
{
	for (size_t i = 0; i < KVT_TIER_COUNT; i++)
		if (r->why[i][0] != '\0')
			return false;
	return true;
}

/* Is all of it done, and sure to stay done? */
static inline bool kvt_erase_done(const struct kvt_erase_result *r)
{
	return kvt_erase_reached(r) && r->status == KVT_OK;
}

void kvt_erase_print(const struct kvt_erase_result *r, FILE *out);
/* One object; NULL: no memory. The caller owns it. */
struct json_t *kvt_erase_json(const struct kvt_erase_result *r);

#endif
