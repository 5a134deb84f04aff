/*
 * member.h - an entry of the lists that make up the fleet: what each source says about a worker,
 * and the worker's places in the fleet. Private to members.c.
 *
 * Threads: the control thread.
 */
#ifndef KVW_MEMBER_H
#define KVW_MEMBER_H

#include "fleet/members.h"

struct place; /* a worker in the fleet; defined in members.c */

struct kvw_member {
	char *url;                                     /* the URL in the fleet's spelling; owned */
	/* settings by source, owned; url NULL: that source does not list the worker. */
	struct kvw_worker_config said[KVW_SOURCE_COUNT];
	/* Places by rank; NULL: that rank is not in the fleet, or leaving. A worker without ranks
	 * has the first place. */
	struct place *places[KVW_RANKS_MOST];
	uint64_t rests; /* bits of the ranks that the admin address lets rest */
	bool removed, refused; /* removed: by the admin address; refused: by the fleet */
	uint32_t seen_ranks; /* number of ranks in its metrics; 0: not read */
	uint32_t fewer_ranks; /* successive pages that showed fewer ranks */
	bool odd_ranks; /* it was logged that its ranks are not the configured ones */
	uint32_t mark; /* number of the list that was read last and has it */
};

void kvw_member_destroy(struct kvw_member *member); /* does not free the places */

/* Returns the source whose settings are effective; KVW_SOURCE_COUNT: no source lists the member. */
enum kvw_member_source kvw_member_lister(const struct kvw_member *member);
/* Returns the effective settings; NULL: no source lists the member, or the admin address has
 * removed it. */
const struct kvw_worker_config *kvw_member_wanted(const struct kvw_member *member);
/* Records the settings that a source has for the member. Copies. */
enum kvw_err kvw_member_say(struct kvw_member *member, enum kvw_member_source source,
	const struct kvw_worker_config *config) KVW_MUST_CHECK;
/* Returns whether the member's rank `at` rests. */
bool kvw_member_rests(const struct kvw_member *member, size_t at);
/* Returns whether the number of ranks in a page of metrics is believed: fewer than before only on
 * the third such page in a row, since a starting engine's page may not have all lines yet. */
bool kvw_member_believes(struct kvw_member *member, uint32_t ranks);
/* Returns how many rows show the member: one for each of its ranks, or one. */
size_t kvw_member_rows(const struct kvw_member *member);

#endif
