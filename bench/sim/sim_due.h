/*
 * sim_due.h - when a request that says when it is due arrives, in simulated time.
 *
 * With --speed X a request's way through the proxy would last X times as long in simulated time,
 * and what came together at the clock's speed would come apart. So a client that knows its requests
 * beforehand sends each one early and says so:
 *
 *     x-sim-due: DUE LEAD
 *
 * both in nanoseconds, DUE of CLOCK_MONOTONIC: to be sent at DUE - LEAD, counts as sent at DUE.
 * What the way really took is added to DUE unmultiplied, which is what it would have been at the
 * clock's speed.
 *
 * A client that will leave says when, in nanoseconds of the same clock:
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

/* A number without a sign; false if it is none, *out untouched. */
bool kvb_due_number(const char *text, size_t len, int64_t *out);

/* Reads the header's value; false if it is not two whole numbers, *out untouched. */
bool kvb_due_parse(const char *text, size_t len, struct kvb_due *out);

/* Simulated arrival of a request that really came at real_ns. Later than now in simulated time as
 * long as the way took less than about the lead. */
int64_t kvb_due_arrival_ns(
	const struct kvb_due *due, const struct kvb_sim_clock *clock, int64_t real_ns);

#endif
