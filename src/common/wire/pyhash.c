/*
 * pyhash.c - computes what CPython's Python/pyhash.c, Objects/tupleobject.c and
 * Python/bootstrap_hash.c do, as far as the results leave the Python process.
 */
#include "wire/pyhash.h"

#include <stdbool.h>
#include <string.h>

#define MODULUS  ((UINT64_C(1) << 61) - 1) /* Python hashes ints modulo this Mersenne prime */
#define SEED_MAX UINT64_C(4294967295)

static uint64_t never_minus_one(uint64_t hash)
{
	return hash == UINT64_MAX ? (uint64_t)-2 : hash;
}

static bool seed_parse(const char *text, uint32_t *seed)
{
	uint64_t value = 0;

	if (*text == '\0')
		return false;
	for (; *text != '\0'; text++) {
		if (*text < '0' || *text > '9')
			return false;
		value = value * 10 + (uint64_t)(*text - '0');
		if (value > SEED_MAX)
			return false;
	}
	*seed = (uint32_t)value;
	return true;
}

/* Returns eight bytes, little-endian, of the generator from which CPython makes its secret. */
static uint64_t secret_word(uint32_t *state)
{
	uint64_t word = 0;

	for (unsigned i = 0; i < 8; i++) {
		*state = *state * 214013u + 2531011u;
		word |= (uint64_t)((*state >> 16) & 0xff) << (8 * i);
	}
	return word;
}

enum kvw_err kvw_py_key_init(
	struct kvw_py_key *key, enum kvw_siphash_variant variant, const char *text)
{
	uint32_t seed;

	if (!seed_parse(text, &seed))
		return KVW_EINVAL;
	*key = (struct kvw_py_key){.variant = variant};
	if (seed != 0) { /* 0 means a secret of zeros */
		key->k0 = secret_word(&seed);
		key->k1 = secret_word(&seed);
	}
	return KVW_OK;
}

uint64_t kvw_py_hash_text(const struct kvw_py_key *key, const void *data, size_t len)
{
	if (len == 0) /* the hash of "" and b"" is 0 with every seed */
		return 0;
	return never_minus_one(kvw_siphash(key->variant, key->k0, key->k1, data, len));
}

uint64_t kvw_py_hash_int(int64_t value)
{
	uint64_t magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;

	magnitude %= MODULUS;
	return never_minus_one(value < 0 ? -magnitude : magnitude);
}

uint64_t kvw_py_tuple_hash(const struct kvw_py_tuple *tuple)
{
	uint64_t hash = tuple->acc + (tuple->length ^ (KVW_PY_TUPLE_START ^ UINT64_C(3527539)));

	return hash == UINT64_MAX ? UINT64_C(1546275796) : hash;
}
