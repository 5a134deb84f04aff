"""A real vLLM engine with kvtier inside, and prompts whose answers must not depend on it."""

import collections
import concurrent.futures
import json
import os
import random
import urllib.request

from rig.router import BUILD, parse_metrics
from rig.wait import until
from server import HERE, START_SECONDS, Engine

PACKAGE = HERE.parents[1] / "cache" / "python"
LIBRARY = BUILD / "cache" / "core" / "libkvtier.so.1"
BLOCK = 32
CHUNK = 64  # tokens: two blocks, so that short prompts have chunks, too
ANSWER_TOKENS, LONG_TOKENS = 8, 100
COUNT = int(os.environ.get("PROMPTS", "300"))
AT_ONCE = 8


class ConnectedEngine(Engine):
    """One `vllm serve`. cache: libkvtier's configuration, None: without the connector. keys: the connector's
    own. The model computes so fast that what is found is loaded whatever that costs, unless keys say otherwise."""

    name = "connected"

    def __init__(
        self, directory, number, cache, blocks=1024, module="kvtier.vllm", keys=None, publishes=False, prefix=()
    ):
        """publishes: whether it publishes KV events. prefix: a command that starts the rest of its arguments."""
        self.cache, self.blocks, self.module = cache, blocks, module
        self.publishes, self.prefix = publishes, prefix
        self.keys = {"chunk_size": CHUNK, "fetch_when_slower": True, **(keys or {})}
        super().__init__(directory, number)

    def environment(self):
        told = {
            "MAXLEN": str(min(4096, (self.blocks - 1) * BLOCK)),
            "PYTHONPATH": f"{PACKAGE}:{HERE}",
            "KVTIER_LIBRARY": str(LIBRARY),
        }
        return told if self.publishes else {**told, "EVENTS": "0"}

    def options(self):
        if self.cache is None:
            return []
        return ["--kv-transfer-config", json.dumps({
            "kv_connector": "KVTierConnector",
            "kv_connector_module_path": self.module,
            "kv_role": "kv_both",
            "kv_connector_extra_config": {**self.keys, "cache": self.cache},
        })]  # fmt: skip

    def ready(self):
        until(self.healthy, START_SECONDS, "engine up")
        return self

    def post(self, path, body=None, timeout=120):
        request = urllib.request.Request(
            self.url + path,
            data=json.dumps(body).encode() if body is not None else b"",
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            text = answer.read()
        return json.loads(text) if text else {}

    def forget_all(self):
        """Empties its prefix cache and all tiers that are its own."""
        self.post("/reset_prefix_cache?reset_external=true")

    def complete(self, prompt, tokens=ANSWER_TOKENS):
        """(text, cached tokens) of a greedy answer."""
        answer = self.post("/v1/completions", {
            "model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0,
            "ignore_eos": True,
        })  # fmt: skip
        details = answer["usage"].get("prompt_tokens_details") or {}
        return answer["choices"][0]["text"], details.get("cached_tokens") or 0

    def metrics(self):
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as page:
            return parse_metrics(page.read().decode())

    def counts(self):
        """Its metrics, summed over labels; those of a tier or a source of hits also as `name:tier`."""
        total = collections.Counter()
        for (name, labels), value in self.metrics().items():
            total[name] += value
            for label, what in labels:
                if label in ("tier", "source"):
                    total[f"{name}:{what}"] += value
        return total

    def count_after_a_step(self, name):
        """What tiers counted comes with the engine's next step, at most once a second."""
        self.complete([20, 21, 22], tokens=1)
        return self.counts()[name]

    def wait_count(self, name, least, seconds=30):
        until(lambda: self.count_after_a_step(name) >= least, seconds, f"{name} of {least}")

    def wait_stored(self, tier):
        """Until nothing more goes to a lower tier."""
        name, seen = f"kvtier:tier_stores_total:{tier}", []

        def still():
            seen.append(self.count_after_a_step(name))
            return len(seen) > 30 and seen[-1] == seen[-30] > 0

        until(still, 60, f"all stored in {tier}")


def prompts(count=COUNT, seed=1):
    """Prompts of 1 to 1,500 token ids, a quarter of them exact multiples of a block."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        length = rng.randrange(1, 1501) if number % 3 else int(1500 ** rng.random())
        if number % 4 == 0:
            length = max(BLOCK, length // BLOCK * BLOCK)
        made.append([rng.randrange(10, 600) for _ in range(length)])
    return made


ASKED = prompts()
LONG = [i for i, prompt in enumerate(ASKED) if 200 < len(prompt) < 1200][:32]  # also for long answers


def at_once(work, items, threads=AT_ONCE):
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


def answers(engine, asked=None, threads=AT_ONCE):
    """[(text, cached tokens)], in order, some at a time."""
    return at_once(engine.complete, ASKED if asked is None else asked, threads)


def cached(found):
    return sum(tokens for _, tokens in found)


def texts(found):
    return [text for text, _ in found]


def loadable(asked):
    """Tokens of these prompts that lie in whole chunks and need not be computed."""
    return sum(min(len(p) // CHUNK * CHUNK, (len(p) - 1) // BLOCK * BLOCK) for p in asked)


def of_size(mib, **more):
    """libkvtier's configuration with so much memory."""
    return {"l1": {"capacity": f"{mib}MiB"}, **more}


def through(daemon):
    """l2 of engines that share a kvtierd."""
    return {"url": daemon.url, "segment": daemon.segment_name}
