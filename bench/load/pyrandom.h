/*
 * pyrandom.h - the numbers of Python's random.Random, one for one.
 *
 * `lmcache bench engine` orders and words its requests by Python's generator (MT19937, seeded and
 * read as CPython's Lib/random.py and _randommodule.c do); with the same seed the workloads here
 * ask the same things in the same order. One state belongs to one caller; no threads.
 */
#ifndef KVB_PYRANDOM_H
#define KVB_PYRANDOM_H

#include <stddef.h>
#include <stdint.h>

#define KVB_PY_WORDS 624

struct kvb_py_random {
	uint32_t words[KVB_PY_WORDS];
	size_t next; /* word to be read; KVB_PY_WORDS: all are used */
};

/* random.Random(seed); Python takes a negative seed's absolute value. */
void kvb_py_seed(struct kvb_py_random *random, int64_t seed);
/* getrandbits(bits), 1 to 64 of them. */
uint64_t kvb_py_bits(struct kvb_py_random *random, unsigned bits);
/* randrange(n), n > 0. */
uint64_t kvb_py_randbelow(struct kvb_py_random *random, uint64_t n);
/* random(): uniform within [0, 1). */
double kvb_py_unit(struct kvb_py_random *random);
/* One of choices(range(n), k=1), n > 0. Python draws each of k alike. */
uint32_t kvb_py_choice(struct kvb_py_random *random, uint32_t n);
/* shuffle(items) */
void kvb_py_shuffle(struct kvb_py_random *random, uint32_t *items, size_t count);
/* sample(range(n), count) into out; count <= n. */
void kvb_py_sample(struct kvb_py_random *random, uint32_t n, uint32_t *out, uint32_t count);

#endif
