"""An engine of a node that does what each line of standard input says, and checks every byte that it gets.

	kvtier_share.py PACKAGE CONFIG

CONFIG is JSON. Says "ready", then answers each line by one of JSON:
	put PROMPT...     stores what is missing of these prompts and waits until the tiers have it: {"put": N, "drained": B}
	get PROMPT...     {"got": N, "wrong": N} of the chunks of these prompts; tier by tier in "tiers"
	forget            empties what is this engine's alone
	state             {TIER: [STATE, REASON]} of what is configured
	metric NAME       the sum of its samples
	loop SECONDS      puts and gets at random until the time is over: {"gets": N, "got": N, "wrong": N, "puts": N}
"""

import collections
import ctypes
import hashlib
import json
import random
import re
import select
import sys
import time

CHUNKS = 4  # of a prompt
SECOND = 10**9


def key_of(prompt, index):
    return hashlib.sha256(f"{prompt}/{index}".encode()).digest()


def data_of(key):
    size = 8192 + int.from_bytes(key[:2], "big") % 49152
    return (hashlib.sha256(key).digest() * (size // 32 + 1))[:size]


def keys_of(prompt):
    return [key_of(prompt, index) for index in range(CHUNKS)]


class Engine:
    def __init__(self, config):
        from kvtier import library

        self.library = library
        self.cache = library.Cache([config])
        assert not self.cache.mistakes, self.cache.mistakes
        self.waits = select.poll()
        self.waits.register(self.cache.eventfd(), select.POLLIN)

    def wait(self, op):
        while op is not None:
            self.waits.poll(1000)
            if op in [done for done, *_ in self.cache.poll()]:
                return

    def put_one(self, prompt):
        library, keys, count = self.library, keys_of(prompt), 0
        for index, key in enumerate(keys):
            data = data_of(key)
            item = library.Item(size=ctypes.sizeof(library.Item), tokens=256, bytes=len(data))
            item.key.bytes[:] = key
            if index:
                parent = library.Key()
                parent.bytes[:] = keys[index - 1]
                item.parent = ctypes.pointer(parent)
            _, reservation, rooms = self.cache.reserve([item])
            if reservation is None:
                continue
            at = 0
            for address, size in rooms[0]:
                ctypes.memmove(address, data[at : at + size], size)
                at += size
            assert self.cache.commit(reservation, 1)
            count += 1
        return count

    def get_one(self, prompt, count):
        keys = keys_of(prompt)
        self.wait(self.cache.find_begin(keys, SECOND, 1))
        op = self.cache.get_begin(keys, 5 * SECOND, 2)
        self.wait(op)
        lease = self.cache.take(op)
        if lease is None:
            return
        for index in range(lease.contents.count):
            view = lease.contents.views[index]
            parts = lease.contents.segments[view.first_segment : view.first_segment + view.segment_count]
            data = b"".join(ctypes.string_at(part.base, part.bytes) for part in parts)
            count["got"] += 1
            count["wrong"] += data != data_of(keys[index])
            count[self.library.TIER_NAMES[view.tier]] += 1
        self.cache.release(lease)

    def put(self, *prompts):
        count = sum(self.put_one(prompt) for prompt in prompts)
        return {"put": count, "drained": self.cache.drain(10 * SECOND)}

    def get(self, *prompts):
        count = collections.Counter(got=0, wrong=0)
        for prompt in prompts:
            self.get_one(prompt, count)
        return count

    def loop(self, seconds):
        end, rng = time.monotonic() + float(seconds), random.Random()
        count = collections.Counter(got=0, wrong=0, gets=0, puts=0)
        while time.monotonic() < end:
            prompt = f"shared {int(60 * rng.random() ** 2)}"
            count["gets"] += 1
            self.get_one(prompt, count)
            count["puts"] += self.put_one(prompt)
            time.sleep(0.002)
        return count

    def forget(self):
        return {"forgot": self.cache.forget()}

    def state(self):
        text, found = self.cache.metrics(), {}
        for tier, reason in re.findall(r'kvtier_tier_info\{tier="(\w+)",mode="[^"]*",reason="([^"]*)"\}', text):
            state = re.search(rf'kvtier_tier_state\{{tier="{tier}"\}} (\d+)', text)
            found[tier] = [int(state[1]), reason]
        return found

    def metric(self, name):
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self.cache.metrics(), re.M))


def main(package, config):
    sys.path.insert(0, package)
    engine = Engine(config)
    print('"ready"', flush=True)
    for line in sys.stdin:
        verb, *rest = line.split("\t") if "\t" in line else line.split()
        print(json.dumps(getattr(engine, verb.strip())(*[word.strip() for word in rest])), flush=True)
    engine.cache.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
