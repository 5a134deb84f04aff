"""An engine of one node: gets prompts of known bytes, checks every one, stores what is missing, until SIGTERM.

	kvtier_node.py PACKAGE CONFIG NUMBER SEED PROMPTS

CONFIG is JSON: memory of its own, a store of its own, a tier that it shares with the node's other engines. Every
0.1 s, and at its end, it writes a line of JSON with what it has counted so far. Some leases are held for a while and checked
again when they are given back. A few prompts are its own: no other engine asks for them, they are stored, drained and
pinned, and when it is started again after a kill they must be there.
"""

import collections
import ctypes
import hashlib
import json
import random
import select
import signal
import sys
import time

CHUNKS = 4  # of a prompt
OWN = 2  # prompts
SECOND = 10**9
LEASES = 4  # held at once
PAUSE = 0.002  # between requests: the machine has other work


def key_of(prompt, index):
    return hashlib.sha256(f"{prompt}/{index}".encode()).digest()


def data_of(key):
    size = 8192 + int.from_bytes(key[:2], "big") % 49152
    return (hashlib.sha256(key).digest() * (size // 32 + 1))[:size]


class Node:
    def __init__(self, config, number, seed, prompts):
        from kvtier import library

        self.library, self.number, self.prompts = library, number, prompts
        self.rng = random.Random(seed)
        self.count = collections.Counter()
        self.ended, self.held = False, collections.deque()
        self.cache = library.Cache([json.dumps(config)])
        assert not self.cache.mistakes, self.cache.mistakes
        self.poll = select.poll()
        self.poll.register(self.cache.eventfd(), select.POLLIN)
        self.own = [[key_of(f"own {number} {i}", j) for j in range(CHUNKS)] for i in range(OWN)]

    def metric(self, name, tier):
        for line in self.cache.metrics().splitlines():
            if line.startswith(f'kvtier_tier_{name}{{tier="{tier}"}} '):
                return float(line.split()[1])
        return 0

    def wait(self, op):
        """(status, count) of what was begun."""
        while op is not None:
            self.poll.poll(1000)
            for found, _, _, status, count in self.cache.poll():
                if found == op:
                    return status, count
        return self.library.BUSY, 0

    def put(self, keys, before):
        """Those of a chain that are missing."""
        library = self.library
        for index in range(before, len(keys)):
            data = data_of(keys[index])
            item = library.Item(size=ctypes.sizeof(library.Item), tokens=256, bytes=len(data))
            item.key.bytes[:] = keys[index]
            if index:
                parent = library.Key()
                parent.bytes[:] = keys[index - 1]
                item.parent = ctypes.pointer(parent)
            status, reservation, rooms = self.cache.reserve([item])
            if reservation is None:
                if status != library.EXISTS:
                    return
                continue
            at = 0
            for address, size in rooms[0]:
                ctypes.memmove(address, data[at : at + size], size)
                at += size
            assert self.cache.commit(reservation, 1)
            self.count["puts"] += 1

    def check(self, lease, keys):
        for index in range(lease.contents.count):
            view = lease.contents.views[index]
            parts = lease.contents.segments[view.first_segment : view.first_segment + view.segment_count]
            data = b"".join(ctypes.string_at(part.base, part.bytes) for part in parts)
            self.count["wrong"] += data != data_of(keys[index])
            self.count[self.library.TIER_NAMES[view.tier]] += 1
            self.count["bytes"] += len(data)

    def get(self, keys):
        """As an engine does: asks all tiers, gets, and computes the rest. How many chunks there were."""
        self.wait(self.cache.find_begin(keys, SECOND, 1))
        op = self.cache.get_begin(keys, 5 * SECOND, 2)
        self.wait(op)
        lease, got = self.cache.take(op), 0
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
        keys = [key_of(prompt, index) for index in range(CHUNKS)]
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
