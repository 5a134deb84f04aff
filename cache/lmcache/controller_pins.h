/*
 * controller_pins.h - the chunks that the controller has pinned, and when these pins end.
 *
 * LMCache's controller pins and never unpins, so a worker's pins end after a time. The list is
 * bounded, and not thread-safe. Times are the caller's monotonic nanoseconds.
 */
#ifndef KVT_CONTROLLER_PINS_H
#define KVT_CONTROLLER_PINS_H

#include "kvtier/kvtier.h"

#define KVT_CONTROLLER_PINS_MAX 8192 /* chunks */

struct kvt_controller_pins {
	struct kvt_controller_pin *at; /* owned */
	size_t count;
};

void kvt_controller_pins_finish(struct kvt_controller_pins *pins);

/* Adds pins for keys, or makes them last longer. Returns how many keys, from the first on, have
 * one. */
size_t kvt_controller_pins_add(
	struct kvt_controller_pins *pins, const struct kvt_key *keys, size_t n, int64_t until_ns);

/* Takes a pin that has ended; returns 0 if there is none. Lowers *next_ns to the end of the next
 * pin, if that is earlier. */
size_t kvt_controller_pins_take(
	struct kvt_controller_pins *pins, int64_t now_ns, struct kvt_key *key, int64_t *next_ns);

#endif
