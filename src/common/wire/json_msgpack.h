/*
 * json_msgpack.h - converts one JSON value to MessagePack.
 *
 * LMCache accepts JSON wherever a payload begins with '{'. After the conversion such a message
 * passes the same decoder and the same checks as all messages. jansson is unsuitable: its integers
 * end at 2^63-1, and half of all chunk hashes from digests are larger.
 */
#ifndef KVW_JSON_MSGPACK_H
#define KVW_JSON_MSGPACK_H

#include "kvway/err.h"
#include "kvway/slice.h"
#include "wire/msgpack.h"

/* Room in bytes that is enough for the output of any JSON text of len bytes. */
#define KVW_JSON_ROOM(len) (3 * (len) + 3 * KVW_MP_DEPTH + 16)

/*
 * Converts `json`, one value; only blanks may follow it. The grammar is that of RFC 8259; integers
 * are exact from -2^63 to 2^64-1 and refused beyond. KVW_EPROTO: the text is not JSON; *error
 * (static text) has the reason. KVW_ELIMIT: the value is nested deeper than KVW_MP_DEPTH, or out is
 * full.
 */
enum kvw_err kvw_json_to_msgpack(
	struct kvw_slice json, struct kvw_mp_out *out, const char **error) KVW_MUST_CHECK;

#endif
