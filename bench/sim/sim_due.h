/*
 * sim_due.h - computes when a request that has a due time arrives, in simulated time.
 *
 * With --speed X the time that a request needs to pass the proxy would be X times as long in
 * simulated time, and requests that should come together would not. So a client that knows its
 * requests in advance sends each one early, with a header:
 *
 *     x-sim-due: DUE LEAD
 *
 * both in nanoseconds, DUE of CLOCK_MONOTONIC: to be sent at DUE - LEAD, counts as sent at DUE. The
 * time that the request really needed is added to DUE without multiplication, as it would be
 * without --speed.
 *
 * A client that will disconnect announces when, in nanoseconds of the same clock:
 *
 *     x-sim-leave: WHEN
 *
 * so that it can be counted how many of these requests came, and how many of them after that.
 */
#ifndef KVB_SIM_DUE_H
#define KVB_SIM_DUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/sim/sim_clock.h"

struct kvb_due {
	int64_t due_ns;  /* real time, >= 0 */
	int64_t lead_ns; /* >= 0 */
};

/* Parses a number without a sign. Returns false if it is none; then *out is not changed. */
bool kvb_due_number(const char *text, size_t len, int64_t *out);

/* Parses the header's value. Returns false if it is not two whole numbers; then *out is not
 * changed. */
bool kvb_due_parse(const char *text, size_t len, struct kvb_due *out);

/* Returns the simulated time of arrival of a request that really came at real_ns. It is later than
 * now in simulated time as long as the request needed less than about the lead. */
int64_t kvb_due_arrival_ns(
	const struct kvb_due *due, const struct kvb_sim_clock *clock, int64_t real_ns);

#endif
