/*
 * expected.h - workers that a former process of kvway knew, and that may come.
 *
 * Knowledge of a worker is filed under its slot. So after a restart each worker gets the slot under
 * which its knowledge was recalled: workers that are there already have a slot, for the others a
 * free slot is reserved until they come by discovery, or until they are given up. Whether a worker
 * is the same process is known when its metrics are read: another process_start_time_seconds than
 * it had means that its cache is lost (probe.c).
 *
 * Threads: the control thread, or the one that starts kvway, before there is a control thread.
 */
#ifndef KVW_FLEET_EXPECTED_H
#define KVW_FLEET_EXPECTED_H

#include "fleet/fleet.h"

/* Expects the worker that had this URL and started_s > 0. Sets *slot, and *generation of the
 * worker's cache here. KVW_ENOTFOUND: the worker is known to be another process by now, or was
 * expected before; KVW_ELIMIT: there is no slot; KVW_ENOMEM. */
enum kvw_err kvw_fleet_expect(struct kvw_fleet *fleet, const char *url, double started_s,
	uint32_t *slot, uint32_t *generation) KVW_MUST_CHECK;

/* Stops waiting for workers that have not come: all knowledge of their slots is forgotten. Returns
 * how many they were. */
size_t kvw_fleet_expect_no_more(struct kvw_fleet *fleet);

#endif
