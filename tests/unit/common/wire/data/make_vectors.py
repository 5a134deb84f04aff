#!/usr/bin/env python3
"""make_vectors.py PYTHON_SIPHASH_24 PYTHON_SIPHASH_13 >python.json

Chunk hashes by LMCache's formula in plain Python, for cases in which no LMCache was asked. The two
arguments are interpreters: CPython 3.8 to 3.10, and 3.12 or later (whose hash(None) is a constant).
"""

import hashlib
import json
import os
import pickle
import subprocess
import sys

U32 = 2**32
TOKENS = [  # first token, how many, chunk size
    (5, 0, 16), (5, 1, 16), (5, 16, 16), (5, 17, 16), (5, 2, 16), (5, 3, 16), (5, 4, 16), (9, 5, 1),
    (0, 1, 16), (2**31 - 1, 1, 16), (U32 - 1, 1, 16), (U32 - 40, 40, 16), (2**31 - 20, 40, 16),
    (20, 8, 4), (65533, 8, 4), (0, 300, 256), (100, 4096, 4096), (3 * 10**9, 700, 256),
]  # fmt: skip


def chain(function, none_hash, extra, first, count, size):
    tokens, out, parent = range(first, first + count), [], none_hash
    for at in range(0, count, size):
        parent = function((parent, tuple(tokens[at : at + size]), extra))
        out.append(parent)
    return out


def vectors(function, none_hash, extra):
    return [
        {
            "first_token": f, "ntokens": n, "chunk_size": s,
            "hashes": [written(h) for h in chain(function, none_hash, extra, f, n, s)],
        }
        for f, n, s in TOKENS
    ]  # fmt: skip


def written(h):
    return str(h) if h >= 2**63 else h


def builtin():
    """One set of vectors, in an interpreter that was started under PYTHONHASHSEED."""
    seed = os.environ["PYTHONHASHSEED"]
    for extra in ((), None):
        if extra is None and sys.version_info < (3, 12):
            continue
        yield {
            "algorithm": "builtin", "pythonhashseed": seed, "extra": repr(extra),
            "siphash": "2-4" if sys.version_info < (3, 11) else "1-3",
            "none_hash": hash(seed), "vectors": vectors(hash, hash(seed), extra),
        }  # fmt: skip


def as_pickle(value):
    return pickle.dumps(value, protocol=5)


def as_cbor(value):
    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return head(0, value)
    if isinstance(value, str):
        return head(3, len(value)) + value.encode()
    return head(4, len(value)) + b"".join(map(as_cbor, value))


def head(major, n):
    """RFC 8949: the shortest form."""
    if n < 24:
        return bytes([major << 5 | n])
    wide = next(w for w in range(4) if n < 256 ** (1 << w))
    return bytes([major << 5 | 24 + wide]) + n.to_bytes(1 << wide, "big")


def sha256(data):
    return hashlib.sha256(data).digest()


def digests():
    kinds = {"sha256_cbor": as_cbor, "sha256": as_pickle}
    folds = {"first": slice(0, 8), "last": slice(-8, None)}
    for name, write in kinds.items():
        for extra, seed, fold in (
            ((), "0", "first"),
            ((), "42", "first"),
            (None, "0", "first"),
            ((), "random", "last"),
        ):

            def function(value):
                return int.from_bytes(sha256(write(value))[folds[fold]], "big")

            none_hash = function(seed)
            yield {
                "algorithm": name, "pythonhashseed": seed, "extra": repr(extra), "fold": fold,
                "none_hash": written(none_hash), "vectors": vectors(function, none_hash, extra),
            }  # fmt: skip


def main():
    if len(sys.argv) == 2:
        return print(json.dumps(list(builtin())))
    sets = []
    for python in sys.argv[1:3]:
        for seed in ("0", "1", "123", "4294967295"):
            env = {**os.environ, "PYTHONHASHSEED": seed}
            out = subprocess.run([python, __file__, "builtin"], env=env, capture_output=True, check=True)
            sets += json.loads(out.stdout)
    sets += digests()
    lines = ",\n".join(json.dumps(s) for s in sets)
    print('{"algorithms": [\n' + lines + "\n]}")


main()
