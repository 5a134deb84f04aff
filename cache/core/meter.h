/*
 * meter.h - the rate at which a tier moves bytes one way, learned while the tier is busy.
 *
 * Requests overlap, so bytes divided by one request's time are misleading. The meter counts the
 * bytes returned while the tier has requests, in pieces of some milliseconds; each piece is a
 * sample, and the rate moves to samples by a quarter. Writers hold the core's lock; rate and queue
 * are read without it.
 */
#ifndef KVT_METER_H
#define KVT_METER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kvt_meter {
	_Atomic uint64_t rate;   /* bytes a second; 0: unknown */
	_Atomic uint64_t queued; /* requested bytes that have not been moved yet */
	_Atomic int64_t
		asked_ns;  /* time of the last move, or of the last look regardless of cost */
	int64_t window_ns; /* begin of the time that `moved` covers */
	uint64_t moved;
};

void kvt_meter_begin(struct kvt_meter *m, uint64_t bytes, int64_t now_ns);
/* moved: the bytes were moved; false: the request failed. */
void kvt_meter_end(struct kvt_meter *m, uint64_t bytes, bool moved, int64_t now_ns);

/*
 * Returns whether this caller may ignore the cost, because the rate is old. True for one caller in
 * each ten seconds without a transfer: a tier that was slow once would otherwise never be used
 * again, and its rate never measured again. Any thread.
 */
bool kvt_meter_look_again(struct kvt_meter *m, int64_t now_ns);

#endif
