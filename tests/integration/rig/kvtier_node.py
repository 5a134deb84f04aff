"""An engine of one node: gets prompts of known bytes, checks every one, stores what is missing, until SIGTERM.

	kvtier_node.py PACKAGE CONFIG NUMBER SEED PROMPTS

CONFIG is JSON: memory of its own, a store of its own, a tier that it shares with the node's other engines. Every
0.1 s, and at its end, it writes a line of JSON with what it has counted so far. Some leases are held for a while and checked
again when they are given back. A few prompts are its own: no other engine asks for them, they are stored, drained and
pinned, and when it is started again after a kill they must be there.
"""

import collections
import ctypes
import json
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from rig.kvtier_chunks import CHUNKS, SECOND, Waits, chunks_of, data_of, keys_of, store_chain  # noqa: E402

OWN = 2  # prompts
LEASES = 4  # held at once
PAUSE = 0.002  # between requests: the machine has other work


class Node:
    def __init__(self, config, number, seed, prompts):
        from kvtier import library

        self.library, self.number, self.prompts = library, number, prompts
        self.rng = random.Random(seed)
        self.count = collections.Counter()
        self.ended, self.held = False, collections.deque()
        self.cache = library.Cache([json.dumps(config)])
        assert not self.cache.mistakes, self.cache.mistakes
        self.waits = Waits(library, self.cache)
        self.own = [keys_of(f"own {number} {i}") for i in range(OWN)]

    def metric(self, name, tier):
        for line in self.cache.metrics().splitlines():
            if line.startswith(f'kvtier_tier_{name}{{tier="{tier}"}} '):
                return float(line.split()[1])
        return 0

    def put(self, keys, before):
        """Those of a chain that are missing."""
        self.count["puts"] += store_chain(self.library, self.cache, keys, before)

    def check(self, lease, keys):
        for key, (tier, data) in zip(keys, chunks_of(lease), strict=False):
            self.count["wrong"] += data != data_of(key)
            self.count[self.library.TIER_NAMES[tier]] += 1
            self.count["bytes"] += len(data)

    def get(self, keys):
        """As an engine does: asks all tiers, gets, and computes the rest. How many chunks there were."""
        lease, got = self.waits.get(keys), 0
        if lease is not None:
            got = lease.contents.count
            self.check(lease, keys)
            self.held.append((lease, keys))
        while len(self.held) > LEASES:
            old, its = self.held.popleft()
            before = self.count.copy()
            self.check(old, its)
            wrong = self.count["wrong"]
            self.count = before
            self.count["wrong"] = wrong
            self.cache.release(old)
        return got

    def pin_own(self):
        flat = b"".join(key for keys in self.own for key in keys)
        assert self.cache.lib.kvt_pin(self.cache.handle, flat, ctypes.c_size_t(OWN * CHUNKS), None) == self.library.OK

    def begin(self):
        """Its own prompts: there since its last life, or stored now."""
        there = sum(self.get(keys) for keys in self.own)
        self.count.clear()
        self.count["own"] = there
        for keys in self.own:
            self.put(keys, 0)
        assert self.cache.drain(20 * SECOND)
        self.pin_own()
        self.count["store_works"] = self.metric("state", "nvme") == 1
        self.say(ready=True)

    def turn(self):
        prompt = int(self.prompts * self.rng.random() ** 2)
        keys = keys_of(prompt)
        got = self.get(keys)
        self.count["chunks"] += CHUNKS
        self.count["hits"] += got
        self.count["gets"] += 1
        if self.rng.random() < 0.02:
            self.count["own_lost"] += CHUNKS - self.get(self.rng.choice(self.own))
        self.put(keys, got)

    def say(self, **more):
        print(json.dumps({**self.count, **more}), flush=True)

    def run(self):
        said = 0.0
        while not self.ended:
            self.turn()
            if time.monotonic() > said + 0.1:
                said = time.monotonic()
                self.say()
            time.sleep(PAUSE)

    def end(self, empty):
        """Nothing is held any more; `empty`: and when all is forgotten, nothing is occupied."""
        for lease, _ in self.held:
            self.cache.release(lease)
        drained = self.cache.drain(20 * SECOND)
        tiers = ("l1", "nvme")
        last = {name: sum(self.metric(name, tier) for tier in tiers)
                for name in ("leased_chunks", "queued_read_bytes", "queued_write_bytes", "corrupt_total")}  # fmt: skip
        if empty:
            assert self.cache.forget()
            last["used_bytes"] = sum(self.metric("used_bytes", tier) for tier in tiers)
        self.cache.close()
        self.say(ended=True, drained=drained, last=last)


def main(package, config, number, seed, prompts):
    sys.path.insert(0, package)
    node = Node(json.loads(config), int(number), int(seed), int(prompts))

    def end(*_):
        node.ended = True

    signal.signal(signal.SIGTERM, end)
    node.begin()
    node.run()
    node.end(empty=int(number) % 2 == 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
