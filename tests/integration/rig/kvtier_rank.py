"""A rank of the connector in a process of its own, over a paged cache that is plain memory.

	kvtier_rank.py PACKAGE SOCKET RANK CAPACITY LATE_S

Reads one JSON command a line and answers each by one line. LATE_S: before each answer to the scheduler.
"""

import ctypes
import hashlib
import json
import logging
import os
import pathlib
import sys
import time
import types

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from rig.kvtier_paged import PlainCache  # noqa: E402

BLOCK_BYTES, BLOCKS = 4096, 256


class Paged(PlainCache):
    def __init__(self):
        super().__init__(ctypes.create_string_buffer(BLOCK_BYTES * BLOCKS), BLOCK_BYTES)


def content(rank, token):
    """Bytes of a block: no two ranks' or tokens' are the same."""
    return hashlib.sha256(f"{rank} {token}".encode()).digest() * (BLOCK_BYTES // 32)


class Child:
    def __init__(self, path, number, capacity, late_s):
        from kvtier import library, work
        from kvtier.rank import Rank

        self.work, self.number, self.paged = work, number, Paged()
        own = {"fingerprint": "ab" * 32, "rank": number, "l1": {"capacity": capacity}, "l2": {"url": os.environ.get("L2", "")},
               "protect": {"tenant_l1_bytes": os.environ.get("TENANT", "0")}}  # fmt: skip
        cache = library.Cache([json.dumps(own)])
        parts = library.KeyParts(size=ctypes.sizeof(library.KeyParts), rank=number, hash_recipe=b"sha256")
        parts.fingerprint[:] = bytes.fromhex("ab" * 32)
        self.rank = Rank(cache, self.paged, parts, path, 5, logging.getLogger("rank"))
        answer = self.rank._question

        def late(*args):
            time.sleep(late_s)
            answer(*args)

        self.rank._question = late

    def fill(self, blocks, tokens):
        """The engine computes these."""
        for block, token in zip(blocks, tokens, strict=True):
            ctypes.memmove(self.paged.at(block), content(self.number, token), BLOCK_BYTES)

    def holds(self, blocks, tokens):
        """Are these blocks as the engine computed them?"""
        return [
            ctypes.string_at(self.paged.at(block), BLOCK_BYTES) == content(self.number, token)
            for block, token in zip(blocks, tokens, strict=True)
        ]

    def store(self, stores):
        self.rank.store([self.work.Store(**{
            **one, "name": bytes.fromhex(one["name"]), "parent": one["parent"] and bytes.fromhex(one["parent"]),
            "hashes": [bytes.fromhex(h) for h in one["hashes"]],
            "before": one["before"] and bytes.fromhex(one["before"]),
            "token_ids": one["token_ids"] and bytes.fromhex(one["token_ids"]),
            "tenant": bytes.fromhex(one["tenant"]),
        }) for one in stores])  # fmt: skip

    def stored(self, requests):
        return sorted(self.rank.stored(set(requests)))

    def load(self, request, chunks, epoch, tenant="00" * 16):
        pieces = [self.work.LoadChunk(**{**c, "name": bytes.fromhex(c["name"])}) for c in chunks]
        self.rank.load(self.work.Load(request, pieces, epoch, bytes.fromhex(tenant)))

    def received(self):
        received, failed = self.rank.take_received()
        return [sorted(received), sorted(failed)]

    def counters(self):
        return dict(self.rank.take_counters())

    def key(self, name):
        return self.rank._key(bytes.fromhex(name)).hex()

    def lose(self):
        """All chunks go, as if they had been evicted."""
        self.rank.cache.reset()

    def close(self):
        self.rank.close()


def main():
    sys.path.insert(0, sys.argv[1])
    child = Child(sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
    print("ready", flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(getattr(child, name)(*arguments)), flush=True)


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).parent.mkdir(exist_ok=True)
    main()
