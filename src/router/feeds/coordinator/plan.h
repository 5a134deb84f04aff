/*
 * plan.h - which keys of L2 are to be deleted next, and at which server.
 *
 * A salt that reaches its quota loses keys until a fifth of the quota is free again; a quota of 0
 * loses all. The shared pools together lose keys of any salt when they hold nine tenths of their
 * cap, until they hold eight. The least recently used go first; pinned ones stay, and so do those
 * that no server can delete now: of a private L2 its own server alone.
 *
 * A plan is one request at one server, `DELETE /cache/objects` of one backend. Its keys count as
 * gone from now on. LMCache confirms with delete events. A key whose request failed, or whose event
 * does not come, is planned again; after two answered requests without an event the directory
 * forgets the placement, else one lost event would make it evict for ever.
 *
 * Threads: belongs to the feed's. No clock, no socket.
 */
#ifndef KVW_COORDINATOR_PLAN_H
#define KVW_COORDINATOR_PLAN_H

#include "base/page.h"
#include "feeds/coordinator/directory.h"

#define KVW_CD_PLAN_KEYS  10000u                     /* of a request: LMCache's limit */
#define KVW_CD_PLAN_AGAIN (INT64_C(60) * 1000000000) /* ns that a delete event may take */

struct kvw_cd_plan {
	struct kvw_cd_instance *server;
	const char *backend; /* of cd */
	size_t keys;
	uint64_t bytes;
	uint64_t number;
	bool in_vain;         /* something is to be deleted, and nothing can be */
	struct kvw_page body; /* of the request; owned by the caller */
};

/* Makes a plan. cap: bytes of all shared pools; 0: unlimited. False: nothing is to be deleted, or
 * nothing can be. */
bool kvw_cd_plan(
	struct kvw_cd *cd, uint64_t cap, int64_t now_ns, struct kvw_cd_plan *plan) KVW_MUST_CHECK;
/* The request was answered; or it failed, and its server rests for a while. */
void kvw_cd_plan_answered(struct kvw_cd *cd, uint64_t number);
void kvw_cd_plan_failed(
	struct kvw_cd *cd, uint64_t number, struct kvw_cd_instance *server, int64_t now_ns);

/* The cap by the servers' declarations: the sum of the shared pools' capacities; 0: not all declare
 * one, or they disagree. */
uint64_t kvw_cd_declared_cap(const struct kvw_cd *cd);
/* Bytes in the shared pools of L2. */
uint64_t kvw_cd_shared_bytes(const struct kvw_cd *cd);
/* The limit of a salt, its own or the default; false: it has none. */
bool kvw_cd_limit_of(const struct kvw_cd *cd, const struct kvw_cd_salt *salt, uint64_t *bytes);

#endif
