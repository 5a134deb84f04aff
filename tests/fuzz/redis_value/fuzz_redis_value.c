/*
 * fuzz_redis_value.c - the bytes came from Redis: the end of a value.
 *
 * The first byte says nothing. Checksums are put right first where the second byte is odd, since a
 * fuzzer does not find them and what lies behind them must hold too. What decodes is encoded again
 * and must decode to the same, and its lengths must agree with each other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "protect/little_endian.h"
#include "tiers/redis/redis_value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(x)                                                                                    \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static void prove(uint8_t *block, size_t len)
{
	XXH128_hash_t sum;

	memset(block + 16, 0, 16);
	sum = XXH3_128bits(block, len);
	kvt_put64(block + 16, sum.low64);
	kvt_put64(block + 24, sum.high64);
}

static void do_footer(uint8_t *p, size_t len, bool right)
{
	struct redis_footer f, again;
	uint8_t bytes[REDIS_FOOTER];
	uint64_t total = 0;

	if (right && len >= REDIS_FOOTER) {
		memcpy(p, "kvtvalue\1\0", 10);
		kvt_put32(p + 12, REDIS_FOOTER);
		prove(p, REDIS_FOOTER);
	}
	if (redis_footer_decode(p, len, &f) != KVT_OK)
		return;
	MUST(f.parts >= 1 && f.parts <= REDIS_MAX_PARTS && f.part < f.parts);
	MUST(f.part_payload >= 1 && f.part_payload <= f.part_bytes);
	MUST(redis_footer_extra(&f) <= REDIS_MAX_EXTRA);
	MUST(redis_footer_value(&f) >= f.part_payload + REDIS_FOOTER);
	for (uint32_t i = 0; i < f.parts; i++)
		total += redis_part_length(f.bytes, f.part_bytes, i);
	MUST(total == f.bytes);
	redis_footer_encode(&f, bytes);
	MUST(redis_footer_decode(bytes, sizeof(bytes), &again) == KVT_OK);
	MUST(memcmp(&f.key, &again.key, sizeof(f.key)) == 0 && f.bytes == again.bytes);
	MUST(f.writer == again.writer && f.epoch == again.epoch && f.part == again.part);
	MUST(f.names_bytes == again.names_bytes && f.tag_count == again.tag_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;
	bool right;

	if (size < 2)
		return 0;
	right = (data[1] & 1) != 0;
	copy = malloc(size > 2 ? size - 2 : 1); /* exactly as long, so that reading beyond it is noticed */
	memcpy(copy, data + 2, size - 2);
	do_footer(copy, size - 2, right);
	free(copy);
	return 0;
}
