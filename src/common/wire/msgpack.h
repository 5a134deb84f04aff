/*
 * msgpack.h - read and write MessagePack inside a buffer of the caller.
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

#define KVW_MP_DEPTH 32 /* arrays and maps inside each other that skip() follows */

enum kvw_mp_type {
	KVW_MP_NIL,
	KVW_MP_BOOL,
	KVW_MP_UINT, /* an integer >= 0, however it is encoded */
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
		struct kvw_slice bytes; /* STR, BIN, EXT: borrowed from the buffer */
		uint32_t count;         /* ARRAY: values, MAP: pairs that follow */
	};
};

/* Reader. Borrows the buffer. A copy of the struct marks a position to return to. */
struct kvw_mp {
	const uint8_t *at, *end;
	const char *error; /* static text: reason of the last failure; NULL: none */
};

void kvw_mp_init(struct kvw_mp *mp, const void *data, size_t len);

static inline size_t kvw_mp_left(const struct kvw_mp *mp)
{
	return (size_t)(mp->end - mp->at);
}

/* Next value or head. KVW_EPROTO: cut off, a count beyond the buffer, or an invalid byte. */
enum kvw_err kvw_mp_next(struct kvw_mp *mp, struct kvw_mp_value *value) KVW_MUST_CHECK;

/* Skips one value with all its members. Also KVW_ELIMIT: nested too deep. */
enum kvw_err kvw_mp_skip(struct kvw_mp *mp) KVW_MUST_CHECK;

/* One value of a known type; KVW_EPROTO if it is another one. */
enum kvw_err kvw_mp_array(struct kvw_mp *mp, uint32_t *count) KVW_MUST_CHECK;
enum kvw_err kvw_mp_map(struct kvw_mp *mp, uint32_t *pairs) KVW_MUST_CHECK;
enum kvw_err kvw_mp_str(struct kvw_mp *mp, struct kvw_slice *text) KVW_MUST_CHECK;
enum kvw_err kvw_mp_bool(struct kvw_mp *mp, bool *value) KVW_MUST_CHECK;
enum kvw_err kvw_mp_real(struct kvw_mp *mp, double *value) KVW_MUST_CHECK; /* or an integer */

/* An integer from 0 to most. */
enum kvw_err kvw_mp_uint(struct kvw_mp *mp, uint64_t most, uint64_t *value) KVW_MUST_CHECK;

/* Any integer of 64 bits, signed or not, as its two's complement bits. */
enum kvw_err kvw_mp_bits(struct kvw_mp *mp, uint64_t *bits) KVW_MUST_CHECK;

/* Skips the next value and returns true if it is nil; else returns false and does not move. */
bool kvw_mp_take_nil(struct kvw_mp *mp);

/* Writer into a fixed buffer. The first value that does not fit sets `full`; later ones are not
 * written. */
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
