/*
 * pyrandom.h - generates exactly the numbers of Python's random.Random.
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
	size_t next; /* index of the next word; KVB_PY_WORDS: all are used */
};

/* Does what random.Random(seed) does; Python takes the absolute value of a negative seed. */
void kvb_py_seed(struct kvb_py_random *random, int64_t seed);
/* Returns getrandbits(bits), for 1 to 64 bits. */
uint64_t kvb_py_bits(struct kvb_py_random *random, unsigned bits);
/* Does what randrange(n) does; n > 0. */
uint64_t kvb_py_randbelow(struct kvb_py_random *random, uint64_t n);
/* Does what random() does: returns a number within [0, 1). */
double kvb_py_unit(struct kvb_py_random *random);
/* Returns one value of choices(range(n), k=1), n > 0. With a larger k, Python draws each value in
 * the same way. */
uint32_t kvb_py_choice(struct kvb_py_random *random, uint32_t n);
/* Does what shuffle(items) does. */
void kvb_py_shuffle(struct kvb_py_random *random, uint32_t *items, size_t count);
/* Writes sample(range(n), count) into out; count <= n. */
void kvb_py_sample(struct kvb_py_random *random, uint32_t n, uint32_t *out, uint32_t count);

#endif
