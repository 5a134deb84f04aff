"""An engine of a node that does what each line of standard input says, and checks every byte that it gets.

	kvtier_share.py PACKAGE CONFIG

CONFIG is JSON. Says "ready", then answers each line by one of JSON:
	put PROMPT...     stores what is missing of these prompts and waits until the tiers have it: {"put": N, "drained": B}
	get PROMPT...     {"got": N, "wrong": N} of the chunks of these prompts; tier by tier in "tiers"
	owner SALT         whose the prompts are that are put from now on: {}
	hash SALT         {"hash": HEX}, as stat and metrics show it
	forget            empties what is this engine's alone
	state             {TIER: [STATE, REASON]} of what is configured
	metric NAME       the sum of its samples
	loop SECONDS      puts and gets at random until the time is over: {"gets": N, "got": N, "wrong": N, "puts": N}
"""

import collections
import json
import pathlib
import random
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from rig.kvtier_chunks import CHUNKS, SECOND, Waits, chunks_of, data_of, keys_of, store_chain  # noqa: E402

__all__ = ["CHUNKS"]


class Engine:
    def __init__(self, config):
        from kvtier import library

        self.library = library
        self.cache = library.Cache([config])
        assert not self.cache.mistakes, self.cache.mistakes
        self.waits = Waits(library, self.cache)
        self.tenant = None

    def put_one(self, prompt):
        return store_chain(self.library, self.cache, keys_of(prompt), tenant=self.tenant)

    def get_one(self, prompt, count):
        keys = keys_of(prompt)
        lease = self.waits.get(keys)
        if lease is None:
            return
        for key, (tier, data) in zip(keys, chunks_of(lease), strict=False):
            count["got"] += 1
            count["wrong"] += data != data_of(key)
            count[self.library.TIER_NAMES[tier]] += 1
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

    def hash(self, salt):
        return {"hash": bytes(self.library.tenant_of(salt)).hex()}

    def owner(self, salt):
        self.tenant = self.library.tenant_of(salt)
        return {}

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
