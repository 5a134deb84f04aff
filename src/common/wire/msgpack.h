/*
 * msgpack.h - reads and writes MessagePack in a buffer of the caller.
 *
 * The reader is a cursor. It never allocates and never copies: texts are slices of the buffer,
 * arrays and maps are a count, and the caller reads that many values next. It is made for untrusted
 * bytes:
 *
 *   - a length must fit into the bytes that are left; a count of n values needs at least n bytes
 *     (2n for a map), so no caller reserves memory for values that cannot exist;
 *   - skipping nests at most KVW_MP_DEPTH deep and uses no recursion;
 *   - a failed call does not move the cursor, writes no result and sets `error`.
 *
 * Format: github.com/msgpack/msgpack/blob/master/spec.md. Every encoding of a value is accepted,
 * not only the shortest one; the writer writes the shortest.
 *
 * Threads: a reader or writer belongs to the thread that made it.
 */
#ifndef KVW_MSGPACK_H
#define KVW_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_MP_DEPTH 32 /* deepest nesting of arrays and maps that skip() accepts */

enum kvw_mp_type {
	KVW_MP_NIL,
	KVW_MP_BOOL,
	KVW_MP_UINT, /* an integer >= 0, in any encoding */
	KVW_MP_NEGATIVE,
	KVW_MP_FLOAT,
	KVW_MP_STR,
	KVW_MP_BIN,
	KVW_MP_EXT,
	KVW_MP_ARRAY,
	KVW_MP_MAP,
};

/* One value, or the head of an array or map. */
struct kvw_mp_value {
	enum kvw_mp_type type;
	int8_t ext_type; /* KVW_MP_EXT */
	union {
		bool boolean;
		uint64_t bits; /* UINT; NEGATIVE: two's complement */
		double real;
		struct kvw_slice bytes; /* STR, BIN, EXT: the bytes, borrowed from the buffer */
		uint32_t count;         /* number of values (ARRAY) or pairs (MAP) that follow */
	};
};

/* A reader. Borrows the buffer. A copy of the struct remembers a position to which the caller may
 * return. */
struct kvw_mp {
	const uint8_t *at, *end;
	const char *error; /* static text: reason of the last failure; NULL: there was none */
};

void kvw_mp_init(struct kvw_mp *mp, const void *data, size_t len);

static inline size_t kvw_mp_left(const struct kvw_mp *mp)
{
	return (size_t)(mp->end - mp->at);
}

/* Reads the next value or head. KVW_EPROTO: it is cut off, has a count beyond the buffer, or an
 * invalid byte. */
enum kvw_err kvw_mp_next(struct kvw_mp *mp, struct kvw_mp_value *value) KVW_MUST_CHECK;

/* Skips one value with all its members. Also KVW_ELIMIT: it is nested too deeply. */
enum kvw_err kvw_mp_skip(struct kvw_mp *mp) KVW_MUST_CHECK;

/* These read one value of a known type. KVW_EPROTO: it is of another type. */
enum kvw_err kvw_mp_array(struct kvw_mp *mp, uint32_t *count) KVW_MUST_CHECK;
enum kvw_err kvw_mp_map(struct kvw_mp *mp, uint32_t *pairs) KVW_MUST_CHECK;
enum kvw_err kvw_mp_str(struct kvw_mp *mp, struct kvw_slice *text) KVW_MUST_CHECK;
enum kvw_err kvw_mp_bool(struct kvw_mp *mp, bool *value) KVW_MUST_CHECK;
enum kvw_err kvw_mp_real(struct kvw_mp *mp, double *value) KVW_MUST_CHECK; /* or an integer */

/* Reads an integer from 0 to `most`. */
enum kvw_err kvw_mp_uint(struct kvw_mp *mp, uint64_t most, uint64_t *value) KVW_MUST_CHECK;

/* Reads any integer of 64 bits, signed or not, as its two's complement bits. */
enum kvw_err kvw_mp_bits(struct kvw_mp *mp, uint64_t *bits) KVW_MUST_CHECK;

/* Skips the next value and returns true if it is nil; else returns false and does not move. */
bool kvw_mp_take_nil(struct kvw_mp *mp);

/* A writer into a buffer of fixed size. The first value that does not fit sets `full`, and later
 * ones are not written. */
struct kvw_mp_out {
	uint8_t *data; /* borrowed */
	size_t size, len;
	bool full;
};

void kvw_mp_out_init(struct kvw_mp_out *out, void *data, size_t size);
void kvw_mp_put_nil(struct kvw_mp_out *out);
void kvw_mp_put_bool(struct kvw_mp_out *out, bool value);
void kvw_mp_put_uint(struct kvw_mp_out *out, uint64_t value);
void kvw_mp_put_int(struct kvw_mp_out *out, int64_t value);
void kvw_mp_put_real(struct kvw_mp_out *out, double value);
void kvw_mp_put_str(struct kvw_mp_out *out, struct kvw_slice text);  /* len < 2^32 */
void kvw_mp_put_bin(struct kvw_mp_out *out, struct kvw_slice bytes); /* len < 2^32 */
void kvw_mp_put_array(struct kvw_mp_out *out, uint32_t count);       /* then count values */
void kvw_mp_put_map(struct kvw_mp_out *out, uint32_t pairs);         /* then key, value, ... */

#endif
