/*
 * pin.h - finds the worker that a client names in the field x-kvway-pin (http.pin).
 *
 * Its value is the host:port of the worker's URL, as `id` of GET /workers shows it, or the whole
 * URL. The name of a server with data-parallel ranks stands for its rank with the fewest requests.
 *
 * Threads: event loops, in their turn; the control thread.
 */
#ifndef KVW_PIN_H
#define KVW_PIN_H

#include "fleet/fleet.h"
#include "kvway/route.h"

#define KVW_PIN_FIELD "x-kvway-pin"

/* Returns the named worker's index in the set. It must be usable or resting; a request without
 * computation may also name a sleeping one. KVW_ENOWORKER: `why` has the reason. */
enum kvw_err kvw_pin_find(const struct kvw_fleet *fleet, const struct kvw_candidates *set,
	struct kvw_slice id, bool computes, size_t *pos, char *why, size_t room) KVW_MUST_CHECK;

#endif
