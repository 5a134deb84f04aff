/*
 * sim_payload.c - a counter through SplitMix64, started from all 32 bytes of the key.
 */
#include <string.h>

#include "kvtier/kvtier.h"
#include "bench/sim/sim_payload.h"

#define STEP UINT64_C(0x9e3779b97f4a7c15)

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint64_t start_of(const struct kvt_key *key)
{
	uint64_t state = 0, word;

	for (size_t i = 0; i < KVT_KEY_BYTES; i += sizeof(word)) {
		memcpy(&word, key->bytes + i, sizeof(word));
		state = mix(state + STEP + word);
	}
	return state;
}

void kvb_payload_fill(const struct kvt_key *key, uint64_t from, void *out, uint64_t bytes)
{
	uint64_t start = start_of(key), index = from / 8;
	uint8_t *at = out;

	for (; bytes >= 8; bytes -= 8, at += 8) {
		uint64_t word = mix(start + ++index * STEP);

		memcpy(at, &word, 8);
	}
	if (bytes > 0) {
		uint64_t word = mix(start + ++index * STEP);

		memcpy(at, &word, bytes);
	}
}

uint64_t kvb_payload_wrong(
	const struct kvt_key *key, uint64_t from, const void *bytes, uint64_t count)
{
	uint64_t right[512], wrong = 0;
	const uint8_t *at = bytes;

	while (count > 0) {
		uint64_t now = count < sizeof(right) ? count : sizeof(right);

		kvb_payload_fill(key, from, right, now);
		if (memcmp(right, at, now) != 0)
			for (uint64_t i = 0; i < now; i++)
				wrong += at[i] != ((const uint8_t *)right)[i];
		from += now;
		at += now;
		count -= now;
	}
	return wrong;
}
