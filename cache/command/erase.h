/*
 * erase.h - the results of `kvtier erase`, before they are printed.
 */
#ifndef KVT_ERASE_H
#define KVT_ERASE_H

#include <stdio.h>

#include "kvtier/kvtier.h"
#include "command/store.h"

/* The result of erasing in one store. */
struct kvt_erase_result {
	const char *folder; /* folder of the store; NULL: no store, only a shared tier */
	struct kvt_owner owner;
	bool dry_run;
	enum kvt_status status;
	struct kvt_erased erased;
	char why[KVT_TIER_COUNT]
		[KVT_REASON_BYTES]; /* reason for which a configured tier is missing; "": none is */
};

/* Returns whether the erase reached all tiers. */
static inline bool kvt_erase_reached(const struct kvt_erase_result *r)
{
	for (size_t i = 0; i < KVT_TIER_COUNT; i++)
		if (r->why[i][0] != '\0')
			return false;
	return true;
}

/* Returns whether the erase is complete, and durable. */
static inline bool kvt_erase_done(const struct kvt_erase_result *r)
{
	return kvt_erase_reached(r) && r->status == KVT_OK;
}

void kvt_erase_print(const struct kvt_erase_result *r, FILE *out);
/* Makes a JSON object that the caller owns; NULL: memory is short. */
struct json_t *kvt_erase_json(const struct kvt_erase_result *r);

#endif
