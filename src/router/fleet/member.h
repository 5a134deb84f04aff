/*
 * member.h - one entry of the lists that make up the fleet: what each source says of it, and the
 * places of its workers. Private to members.c.
 *
 * Threads: the control thread.
 */
#ifndef KVW_MEMBER_H
#define KVW_MEMBER_H

#include "fleet/members.h"

struct place; /* members.c: a worker in the fleet */

struct kvw_member {
	char *url;                                     /* owned, as the fleet writes it */
	/* settings by source, owned; url NULL: that source does not list it. */
	struct kvw_worker_config said[KVW_SOURCE_COUNT];
	/* By rank; NULL: not in the fleet, or leaving. Without ranks the first one. */
	struct place *places[KVW_RANKS_MOST];
	uint64_t rests;                                /* ranks, by the admin address; bits */
	bool removed, refused;                         /* by the admin address; by the fleet */
	uint32_t seen_ranks;                           /* by its metrics; 0: not read */
	uint32_t fewer_ranks;                          /* pages in a row that showed fewer */
	bool odd_ranks;                                /* logged: others than configured */
	uint32_t mark;                                 /* of the list that was read last */
};

void kvw_member_destroy(struct kvw_member *member); /* its places are not its own */

/* The source whose settings are effective; KVW_SOURCE_COUNT: none lists it. */
enum kvw_member_source kvw_member_lister(const struct kvw_member *member);
/* The effective settings; NULL: no source lists it, or the admin address has removed it. */
const struct kvw_worker_config *kvw_member_wanted(const struct kvw_member *member);
/* Records what a source says. Copies. */
enum kvw_err kvw_member_say(struct kvw_member *member, enum kvw_member_source source,
	const struct kvw_worker_config *config) KVW_MUST_CHECK;
/* Whether this rank of it rests. */
bool kvw_member_rests(const struct kvw_member *member, size_t at);
/* Whether so many ranks, by a page of its metrics, are to be believed: fewer than before only on
 * the third page in a row, since the lines of an engine that is starting may lack. */
bool kvw_member_believes(struct kvw_member *member, uint32_t ranks);
/* Rows that show it: its ranks, or itself. */
size_t kvw_member_rows(const struct kvw_member *member);

#endif
