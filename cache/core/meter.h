/*
 * meter.h - how fast a tier moves bytes one way, learned while it is busy.
 *
 * Requests overlap, so that bytes over one request's time say little. Counted is what comes back
 * between the moment a tier begins to have something to do and the moment it has nothing left, cut
 * into pieces of some milliseconds; each piece is a sample, and the rate follows samples by a
 * quarter. Writers hold the core's lock; rate and queue are read without.
 */
#ifndef KVT_METER_H
#define KVT_METER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kvt_meter {
	_Atomic uint64_t rate;   /* bytes a second; 0: unknown */
	_Atomic uint64_t queued; /* bytes asked for and not yet moved */
	_Atomic int64_t
		asked_ns;  /* when something was last moved, or looked at regardless of cost */
	int64_t window_ns; /* since when `moved` counts */
	uint64_t moved;
};

void kvt_meter_begin(struct kvt_meter *m, uint64_t bytes, int64_t now_ns);
/* moved: they were; false: the request failed. */
void kvt_meter_end(struct kvt_meter *m, uint64_t bytes, bool moved, int64_t now_ns);

/*
 * May this caller go without counting the cost, because the rate is old? True for one caller in
 * each ten seconds without a transfer: a tier that was slow once would otherwise never be asked
 * again, and its rate never measured again. Any thread.
 */
bool kvt_meter_look_again(struct kvt_meter *m, int64_t now_ns);

#endif
