/*
 * meter.h - the rate at which a tier moves bytes one way, learned while the tier is busy.
 *
 * Requests overlap, so that the bytes of one request divided by its time would be misleading. While
 * a tier has requests, the meter counts the bytes that it returns, in intervals of some
 * milliseconds. Each interval is a sample, and moves the rate a quarter of the way to the sample's
 * rate. Writers hold the core's lock; rate and queue are read without it.
 */
#ifndef KVT_METER_H
#define KVT_METER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kvt_meter {
	_Atomic uint64_t rate;   /* bytes a second; 0: unknown */
	_Atomic uint64_t queued; /* requested bytes that are not yet transferred */
	/* time of the last transfer, or when a caller last ignored the cost */
	_Atomic int64_t asked_ns;
	int64_t window_ns; /* start of the interval in which `moved` was counted */
	uint64_t moved;
};

void kvt_meter_begin(struct kvt_meter *m, uint64_t bytes, int64_t now_ns);
/* moved: the bytes were moved; false: the request failed. */
void kvt_meter_end(struct kvt_meter *m, uint64_t bytes, bool moved, int64_t now_ns);

/*
 * Returns whether this caller may ignore the tier's cost, because the measured rate is old. True
 * for one caller in each ten seconds without a transfer: otherwise a tier that was slow once would
 * never be used again, and its rate never be measured again. Any thread.
 */
bool kvt_meter_look_again(struct kvt_meter *m, int64_t now_ns);

#endif
