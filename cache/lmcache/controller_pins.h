/*
 * controller_pins.h - the chunks that the controller had pinned, until their time is over.
 *
 * LMCache's controller pins and never unpins; a worker's pins end by themselves. Bounded; not thread-safe. Times are
 * the caller's monotonic nanoseconds.
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

/* Remembers keys, or extends their time. Returns how many of them, from the first on. */
size_t kvt_controller_pins_add(
	struct kvt_controller_pins *pins, const struct kvt_key *keys, size_t n, int64_t until_ns);

/* Takes a pin whose time is over; 0: none. Lowers *next_ns to the end of the next pin, if earlier. */
size_t kvt_controller_pins_take(
	struct kvt_controller_pins *pins, int64_t now_ns, struct kvt_key *key, int64_t *next_ns);

#endif
