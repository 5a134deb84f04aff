/*
 * siphash.h - SipHash with a 128-bit key and a 64-bit result (Aumasson and Bernstein, 2012).
 *
 * CPython uses two variants for strings: 1-3 since 3.11, 2-4 before. The first number is rounds per
 * word of input, the second rounds at the end. Pure, no allocation, any thread.
 */
#ifndef KVW_SIPHASH_H
#define KVW_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

enum kvw_siphash_variant {
	KVW_SIPHASH_13 = 0, /* CPython 3.11 and later */
	KVW_SIPHASH_24,     /* CPython 3.4 to 3.10; also recommended by the algorithm's authors */
};

/* Returns the hash of len bytes. data may be NULL if len is 0. */
uint64_t kvw_siphash(
	enum kvw_siphash_variant variant, uint64_t k0, uint64_t k1, const void *data, size_t len);

#endif
