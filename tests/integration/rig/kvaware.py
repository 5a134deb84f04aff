"""What the tests of `kvaware` share: routers whose decisions can be seen, prompts of token ids."""

import random

from rig.client import CHAT, COMPLETIONS, ask
from rig.wait import until

SHOWN = {"routing.strategy": "kvaware", "http.decision_headers": "always"}
BLOCK = 16


def ids(seed, count):
    """A prompt of token ids."""
    return random.Random(seed).choices(range(1 << 16), k=count)


class Outcome:
    """One answered request: where it went, what was predicted, what the worker had."""

    def __init__(self, answer):
        assert answer.status == 200, answer
        headers = {name.lower(): value for name, value in answer.headers}
        self.worker = headers["x-kvway-worker"]
        self.reason = headers["x-kvway-reason"]
        self.knowledge = headers.get("x-kvway-knowledge")
        self.predicted = int(headers["x-kvway-predicted-cached-tokens"])
        self.usage = answer.json()["usage"]
        self.cached = self.usage["prompt_tokens_details"]["cached_tokens"]
        self.prompt_tokens = self.usage["prompt_tokens"]
        self.text = answer.json()["choices"][0].get("message", {}).get("content")

    def __repr__(self):
        return f"<{self.worker} {self.reason}: predicted {self.predicted}, cached {self.cached}>"


def complete(router, prompt, tokens=1, **more):
    body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, **more}
    return Outcome(router.ask("POST", COMPLETIONS, body=body, timeout=30))


def chat(router, messages, tokens=8, **more):
    body = {"model": "tiny", "messages": messages, "max_tokens": tokens, **more}
    return Outcome(router.ask("POST", CHAT, body=body, timeout=30))


def direct(worker, prompt, tokens=1):
    """A completion that no router sees; its cached tokens."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens}
    answer = worker.ask("POST", COMPLETIONS, body=body)
    assert answer.status == 200, answer
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def coverage(router, worker, reporter):
    """0: nothing is known of the worker's cache by its own word, 1: a part, 2: all."""
    return router.metric("kvway_worker_cache_coverage", worker=worker.url, reporter=reporter)


def wait_coverage(router, workers, reporter, level=2, seconds=15):
    def seen():
        return all(coverage(router, worker, reporter) == level for worker in workers)

    try:
        until(seen, seconds, f"coverage {level} of all workers ({reporter})")
    except AssertionError:
        print(router.log()[-4000:])
        raise


def wait_heard(router, workers):
    """Until the router has applied the last batch of events that each worker has published."""

    def heard():
        total = 0
        for worker in workers:
            batches = worker.stats()["kv_batches"]
            told = router.metric("kvway_worker_cache_sequence", worker=worker.url, reporter="engine")
            if batches > 0 and told != batches - 1:
                return False
            total += batches
        # the number does not distinguish batch 0 from none
        return router.metric("kvway_kvaware_feed_total", what="batches") >= total

    until(heard, 10, "all events to be applied")


def keys(router):
    """What LMCache's workers have reported and still hold, all together."""
    return router.metric("kvway_kvaware_lmcache", what="keys")


def wait_keys(router, count, seconds=15):
    until(lambda: keys(router) == count, seconds, f"{count} keys")


def reported(router, prompt):
    """{worker: {tier: tokens}} of the prompt's beginning, by the workers' own word."""
    body = {"model": "tiny", "prompt": prompt + [1]}  # one token is always computed
    said = ask(router.admin_port, "POST", f"/explain?path={COMPLETIONS}", body=body).json()
    return {w["worker"]: w["hit_tokens_by_tier"] for w in said["workers"] if w["exact"] and w["hit_tokens"] > 0}


def wait_log(router, *parts, seconds=15):
    """Until one line of the log has all of these in it; returns the line."""

    def line():
        for candidate in router.log().splitlines():
            if all(part in candidate for part in parts):
                return candidate
        return None

    try:
        return until(line, seconds, f"a log line with {parts}")
    except AssertionError:
        print(router.log()[-6000:])
        raise
