/*
 * json_msgpack.h - one JSON value written again as MessagePack.
 *
 * LMCache accepts JSON wherever a payload begins with '{'. Turned into MessagePack first, such a
 * message goes through the one decoder and the one set of checks that all messages go through.
 * jansson does not fit here: its integers end at 2^63-1, and half of all chunk hashes that
 * digests give lie above.
 */
#ifndef KVW_JSON_MSGPACK_H
#define KVW_JSON_MSGPACK_H

#include "kvway/err.h"
#include "kvway/slice.h"
#include "wire/msgpack.h"

/* Bytes that are always enough for a JSON text of len bytes. */
#define KVW_JSON_ROOM(len) (3 * (len) + 3 * KVW_MP_DEPTH + 16)

/*
 * Writes what json says; nothing may follow it but blanks. RFC 8259; integers are exact from
 * -2^63 to 2^64-1 and refused beyond. KVW_EPROTO: not JSON, *error (static text) says why.
 * KVW_ELIMIT: deeper than KVW_MP_DEPTH, or out is full.
 */
enum kvw_err kvw_json_to_msgpack(
	struct kvw_slice json, struct kvw_mp_out *out, const char **error) KVW_MUST_CHECK;

#endif
