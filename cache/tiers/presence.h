/*
 * presence.h - recent answers about chunks that a remote tier holds or lacks.
 *
 * A bounded table of answers, each valid for a time: a set of a few places per hash, in which a new
 * answer replaces the oldest. The table may forget at any time, and its answers may be out of date,
 * so only speed may depend on it. Thread-safe, a lookup some 50 ns.
 */
#ifndef KVT_PRESENCE_H
#define KVT_PRESENCE_H

#include "tiers/tier.h"

struct kvt_presence;

enum kvt_presence_word { KVT_PRESENCE_UNKNOWN, KVT_PRESENCE_THERE, KVT_PRESENCE_MISSING };

/* max_entries must be above 0. KVT_ENOMEM. */
enum kvt_status kvt_presence_create(uint32_t max_entries, uint64_t seen_ns, uint64_t missing_ns,
	struct kvt_presence **out) KVT_MUST_CHECK;
void kvt_presence_destroy(struct kvt_presence *p); /* NULL is allowed */

/* *out is set when the answer is THERE. */
enum kvt_presence_word kvt_presence_get(struct kvt_presence *p, const struct kvt_key *key,
	int64_t now_ns, struct kvt_tier_known *out);

/* Returns how many keys, from the first on, are known to be there. */
size_t kvt_presence_match(
	struct kvt_presence *p, const struct kvt_key *keys, size_t n, int64_t now_ns);

void kvt_presence_there(struct kvt_presence *p, const struct kvt_key *key,
	const struct kvt_tier_known *known, int64_t now_ns);
void kvt_presence_missing(struct kvt_presence *p, const struct kvt_key *key, int64_t now_ns);
void kvt_presence_forget(struct kvt_presence *p, const struct kvt_key *key);
/* Forgets all answers that name this tenant; NULL: all answers. */
void kvt_presence_forget_tenant(struct kvt_presence *p, const struct kvt_tenant *tenant);

/* Gives the number of valid entries, and the size of the table in bytes. */
void kvt_presence_stats(struct kvt_presence *p, uint64_t *entries, uint64_t *bytes);

#endif
