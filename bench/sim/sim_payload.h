/*
 * sim_payload.h - the bytes of a chunk as a function of its name, so that every byte that comes
 * back can be checked.
 *
 * The key seeds a generator whose output is the payload; a chunk of another key, an older one, a
 * shifted or a torn one differs from it in nearly every word. Pure functions.
 */
#ifndef KVB_SIM_PAYLOAD_H
#define KVB_SIM_PAYLOAD_H

#include <stdint.h>

struct kvt_key;

/* Writes bytes [from, from + bytes) of the chunk's payload; from is a multiple of 8. */
void kvb_payload_fill(const struct kvt_key *key, uint64_t from, void *out, uint64_t bytes);
/* Returns how many of these bytes differ from the payload. */
uint64_t kvb_payload_wrong(
	const struct kvt_key *key, uint64_t from, const void *bytes, uint64_t count);

#endif
