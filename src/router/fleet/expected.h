/*
 * expected.h - workers that a former process of kvway knew and that may join again.
 *
 * Knowledge about a worker is stored under its slot. So after a restart each worker gets the slot
 * under which its knowledge was recalled: present workers have a slot, for the others a free slot
 * is reserved until discovery finds them, or until they are given up. The worker's metrics show
 * whether it is the same process: another process_start_time_seconds than before means that its
 * cache is lost (probe.c).
 *
 * Threads: the control thread, or before it runs the thread that starts kvway.
 */
#ifndef KVW_FLEET_EXPECTED_H
#define KVW_FLEET_EXPECTED_H

#include "fleet/fleet.h"

/* Reserves a slot for the worker that had this URL and this start time (started_s > 0). Sets *slot,
 * and *generation of the worker's cache in this process. KVW_ENOTFOUND: the worker is another
 * process by now, or was expected before; KVW_ELIMIT: no free slot; KVW_ENOMEM. */
enum kvw_err kvw_fleet_expect(struct kvw_fleet *fleet, const char *url, double started_s,
	uint32_t *slot, uint32_t *generation) KVW_MUST_CHECK;

/* Returns how many ranks of the worker of this URL are expected: the highest one plus 1; 0:
 * none. */
uint32_t kvw_fleet_expected_ranks(const struct kvw_fleet *fleet, const char *url);

/* Gives up workers that have not joined, and all knowledge of their slots. Returns their number. */
size_t kvw_fleet_expect_no_more(struct kvw_fleet *fleet);

#endif
