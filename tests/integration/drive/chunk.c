/* chunk.c - keys, and the bytes that belong to them. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "drive.h"

#define WORD 8u

void drive_key(uint64_t seed, uint32_t index, struct kvt_key *out)
{
	const uint32_t tokens[] = {(uint32_t)seed, (uint32_t)(seed >> 32), index};

	struct kvt_key_parts parts = {.size = sizeof(parts), .hash_recipe = "drive"};
	uint8_t chain_id[32];

	kvt_chain_id(NULL, tokens, 3, chain_id);
	parts.chain_id = chain_id;
	parts.chain_id_bytes = sizeof(chain_id);
	drive_tenant(seed, &parts.tenant);
	if (kvt_key_make(&parts, out) != KVT_OK)
		abort();
}

void drive_tenant(uint64_t seed, struct kvt_tenant *out)
{
	kvt_tenant_of(&seed, sizeof(seed), out);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t part_of(const struct kvt_key *key, size_t index)
{
	uint64_t part;

	memcpy(&part, key->bytes + index * sizeof(part), sizeof(part));
	return part;
}

uint64_t drive_bytes(const struct kvt_key *key, uint64_t least, uint64_t most)
{
	return least + part_of(key, 1) % (most - least + 1);
}

static uint64_t word_at(const struct kvt_key *key, uint64_t index)
{
	return mix(part_of(key, 0) + (index + 1) * UINT64_C(0x9e3779b97f4a7c15)) ^ part_of(key, 2);
}

void drive_fill(const struct kvt_key *key, uint64_t at, void *to, uint64_t count)
{
	unsigned char *out = to;

	while (count > 0) {
		const uint64_t word = word_at(key, at / WORD);
		const uint64_t skip = at % WORD;
		const uint64_t take = count < WORD - skip ? count : WORD - skip;

		memcpy(out, (const unsigned char *)&word + skip, take);
		out += take;
		at += take;
		count -= take;
	}
}

uint64_t drive_check(
	const struct kvt_lease *lease, size_t index, const struct kvt_key *key, uint64_t bytes)
{
	const struct kvt_view *view = &lease->views[index];
	uint64_t at = 0;
	unsigned char want[4096];

	for (uint32_t s = 0; s < view->segment_count; s++) {
		const struct kvt_segment *segment = &lease->segments[view->first_segment + s];
		uint64_t done = 0;

		while (done < segment->bytes) {
			const uint64_t left = segment->bytes - done;
			const uint64_t n = left < sizeof(want) ? left : sizeof(want);
			const unsigned char *have = (const unsigned char *)segment->base + done;

			drive_fill(key, at, want, n);
			for (uint64_t i = 0; i < n; i++) {
				if (want[i] != have[i])
					return at + i;
			}
			done += n;
			at += n;
		}
	}
	return at == bytes && view->bytes == bytes ? DRIVE_RIGHT : at;
}

int64_t drive_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
