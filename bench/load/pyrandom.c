/*
 * pyrandom.c - the numbers of Python's random.Random, one for one. Cost: one step of MT19937 per 32
 * bits.
 */
#include "bench/load/pyrandom.h"

#include <stdbool.h>
#include <stdlib.h>

#include "bench/load/mem.h"

#define N KVB_PY_WORDS
#define M 397

static void seed_word(uint32_t *mt, uint32_t seed)
{
	mt[0] = seed;
	for (uint32_t i = 1; i < N; i++)
		mt[i] = UINT32_C(1812433253) * (mt[i - 1] ^ (mt[i - 1] >> 30)) + i;
}

/* The reference code's init_by_array(), which Python calls with the seed's 32-bit digits. */
static void seed_digits(uint32_t *mt, const uint32_t *key, size_t count)
{
	size_t i = 1, j = 0;

	seed_word(mt, UINT32_C(19650218));
	for (size_t k = N; k > 0; k--) {
		mt[i] = (mt[i] ^ ((mt[i - 1] ^ (mt[i - 1] >> 30)) * UINT32_C(1664525))) + key[j] +
			(uint32_t)j;
		j = (j + 1) % count;
		if (++i == N) {
			mt[0] = mt[N - 1];
			i = 1;
		}
	}
	for (size_t k = N - 1; k > 0; k--) {
		mt[i] = (mt[i] ^ ((mt[i - 1] ^ (mt[i - 1] >> 30)) * UINT32_C(1566083941))) -
			(uint32_t)i;
		if (++i == N) {
			mt[0] = mt[N - 1];
			i = 1;
		}
	}
	mt[0] = UINT32_C(0x80000000);
}

void kvb_py_seed(struct kvb_py_random *random, int64_t seed)
{
	uint64_t size = seed < 0 ? -(uint64_t)seed : (uint64_t)seed;
	uint32_t key[2] = {(uint32_t)size, (uint32_t)(size >> 32)};

	seed_digits(random->words, key, key[1] != 0 ? 2 : 1);
	random->next = N;
}

static uint32_t mixed(uint32_t high, uint32_t low, uint32_t far)
{
	uint32_t y = (high & UINT32_C(0x80000000)) | (low & UINT32_C(0x7fffffff));

	return far ^ (y >> 1) ^ (y & 1 ? UINT32_C(0x9908b0df) : 0);
}

static void refill(struct kvb_py_random *random)
{
	uint32_t *mt = random->words;

	for (size_t i = 0; i < N; i++)
		mt[i] = mixed(mt[i], mt[(i + 1) % N], mt[(i + M) % N]);
	random->next = 0;
}

static uint32_t word(struct kvb_py_random *random)
{
	uint32_t y;

	if (random->next == N)
		refill(random);
	y = random->words[random->next++];
	y ^= y >> 11;
	y ^= (y << 7) & UINT32_C(0x9d2c5680);
	y ^= (y << 15) & UINT32_C(0xefc60000);
	return y ^ (y >> 18);
}

uint64_t kvb_py_bits(struct kvb_py_random *random, unsigned bits)
{
	uint64_t low;

	if (bits <= 32)
		return word(random) >> (32 - bits);
	low = word(random);
	return low | (uint64_t)(word(random) >> (64 - bits)) << 32;
}

uint64_t kvb_py_randbelow(struct kvb_py_random *random, uint64_t n)
{
	unsigned bits = 64 - (unsigned)__builtin_clzll(n);
	uint64_t value;

	do
		value = kvb_py_bits(random, bits);
	while (value >= n);
	return value;
}

double kvb_py_unit(struct kvb_py_random *random)
{
	uint32_t a = word(random) >> 5, b = word(random) >> 6;

	return ((double)a * 67108864.0 + (double)b) * (1.0 / 9007199254740992.0);
}

uint32_t kvb_py_choice(struct kvb_py_random *random, uint32_t n)
{
	return (uint32_t)(kvb_py_unit(random) * (double)n);
}

void kvb_py_shuffle(struct kvb_py_random *random, uint32_t *items, size_t count)
{
	for (size_t i = count; i-- > 1;) {
		size_t j = (size_t)kvb_py_randbelow(random, i + 1);
		uint32_t swapped = items[i];

		items[i] = items[j];
		items[j] = swapped;
	}
}

/* Returns whether Python's sample() remembers the drawn numbers; for small n it removes them from a
 * list. */
static bool remembers(uint32_t n, uint32_t count)
{
	uint64_t size = 21;

	if (count > 5) {
		uint64_t power = 1;

		while (power < (uint64_t)count * 3)
			power *= 4;
		size += power;
	}
	return n > size;
}

void kvb_py_sample(struct kvb_py_random *random, uint32_t n, uint32_t *out, uint32_t count)
{
	bool remember = remembers(n, count);
	/* the numbers that are left or, with `remember`, 1 for each drawn number */
	uint32_t *pool = kvb_alloc(n, sizeof(*pool));

	for (uint32_t i = 0; i < n && !remember; i++)
		pool[i] = i;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t left = remember ? n : n - i;
		uint32_t j = (uint32_t)kvb_py_randbelow(random, left);

		while (remember && pool[j])
			j = (uint32_t)kvb_py_randbelow(random, left);
		out[i] = remember ? j : pool[j];
		pool[j] = remember ? 1 : pool[left - 1];
	}
	free(pool);
}
