"""BLAKE3 as LMCache's servers name chunks with it; slow, for some thousand chunks."""

import functools
import struct

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
MIXED = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
         (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))  # fmt: skip
START, END, ROOT = 1, 2, 8


def compress(chain, words, length, flags):
    v = list(chain) + list(IV[:4]) + [0, 0, length, flags]
    for _ in range(7):
        for i, (a, b, c, d) in enumerate(MIXED):
            for word, right, left in ((words[2 * i], 16, 12), (words[2 * i + 1], 8, 7)):
                v[a] = (v[a] + v[b] + word) & 0xFFFFFFFF
                x = v[d] ^ v[a]
                v[d] = (x >> right | x << 32 - right) & 0xFFFFFFFF
                v[c] = (v[c] + v[d]) & 0xFFFFFFFF
                x = v[b] ^ v[c]
                v[b] = (x >> left | x << 32 - left) & 0xFFFFFFFF
        words = [words[i] for i in ORDER]
    return [v[i] ^ v[i + 8] for i in range(8)]


def digest(data):
    """Of at most 1,024 bytes."""
    assert len(data) <= 1024
    blocks = [data[at : at + 64] for at in range(0, len(data), 64)] or [b""]
    chain = IV
    for i, block in enumerate(blocks):
        flags = (START if i == 0 else 0) | (END | ROOT if i == len(blocks) - 1 else 0)
        chain = compress(chain, struct.unpack("<16I", block.ljust(64, b"\0")), len(block), flags)
    return struct.pack("<8I", *chain)


def chunk_hash(before, tokens):
    """The name of a chunk after the one with the name `before`; b"": of the first one."""
    return named(before, struct.pack(f">{len(tokens)}I", *tokens))


@functools.lru_cache(maxsize=1 << 16)
def named(before, tokens):
    return digest((before or digest(bytes(12))) + tokens)
