"""The bytes that `lmcache_drive.py` stores: a function of token, place, layer, half and column."""

import struct


def kv_bytes(first_token, start, tokens, layers=2, row_bytes=32):
    """Keys and values of tokens first_token + start, ...: [half][layer][token][column]."""
    columns = [31 * column for column in range(row_bytes)]
    out = bytearray()
    for half in range(2):
        for layer in range(layers):
            for place in range(start, start + tokens):
                token = first_token + place
                base = token * 2654435761 + place * 40503 + layer * 9973 + half * 613
                out += bytes(((base + c) ^ ((base + c) >> 13)) & 255 for c in columns)
    return bytes(out)


def metadata(length, tokens, layers=2, row_bytes=32):
    """LMCache's 28 bytes: length, format KV_2LTD, bfloat16, shape."""
    return struct.pack("<7i", length, 1, 3, 2, layers, tokens, row_bytes // 2)
