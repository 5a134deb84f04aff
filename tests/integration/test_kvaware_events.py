"""The strategy `kvaware` and vLLM's KV events: kvsim's workers publish what their simulated caches hold, and
what kvway predicts is what they then say they had."""

import collections
import itertools
import json
import random
import signal
import struct
import threading

import pytest

from rig import msgpack, zmtp
from rig.client import CHAT, Client
from rig.kvaware import BLOCK, SHOWN, chat, complete, direct, ids, coverage
from rig.kvaware import wait_heard, wait_log, wait_coverage
from rig.router import SANITIZED, settle
from rig.sim import Sim
from rig.wait import Port, until

WORDS = "sea king ship isle wind tide dawn boat tale keys memo coin".split()


@pytest.fixture
def start(tmp_path):
    """start(events=0, replay=0, port=0, ...): one worker in a process of its own, which publishes."""
    sims = []

    def make(*options, events=0, replay=0, port=0, count=1, **config):
        told = {
            "enable_kv_cache_events": True,
            "endpoint": f"tcp://*:{events}",
            "replay_endpoint": f"tcp://*:{replay}" if replay is not None else None,
            "topic": "kv@tiny",
            **config,
        }
        argv = ["--port", port, "--kv-events-config", json.dumps(told), *options]
        sims.append(Sim(tmp_path, count, *argv, name=f"sim{len(sims)}"))
        return sims[-1]

    yield make
    for sim in sims:
        sim.kill()


def listening(kvway, workers, config=None, **keys):
    """A router that knows all that these workers hold."""
    router = kvway(workers, {**SHOWN, **(config or {})}, **keys)
    wait_coverage(router, workers, "engine")
    return router


def text(seed, tokens):
    rng = random.Random(seed)
    return " ".join(rng.choices(WORDS, k=tokens))[: 4 * tokens]


class Talk:
    """One conversation: a shared system prompt, then questions and the answers that came."""

    def __init__(self, seed):
        self.seed = seed
        self.turns = 0
        self.messages = [{"role": "system", "content": text(0, 300)}]

    def ask(self, router, **more):
        self.turns += 1
        question = text(f"{self.seed}/{self.turns}", 40)
        self.messages.append({"role": "user", "content": question})
        outcome = chat(router, self.messages, 20, **more)
        self.messages.append({"role": "assistant", "content": outcome.text})
        return outcome


def place(workers, outcome):
    return next(w for w in workers if w.url == outcome.worker)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--kv-events-encoding", "arrays", "--kv-events-replay", "old"],
        ["--kv-events-hash", "bytes"],
    ],
    ids=["0.32", "0.23", "bytes"],
)
def test_conversations_are_predicted_to_the_token(start, kvway, options):
    workers = start(*options, count=3).workers
    router = listening(kvway, workers)
    talks = [Talk(seed) for seed in range(6)]
    homes = collections.defaultdict(list)
    for turn in range(4):
        for talk in talks:
            wait_heard(router, workers)
            outcome = talk.ask(router)
            assert outcome.predicted == outcome.cached, (turn, talk.seed, outcome)
            homes[talk.seed].append(outcome.worker)
            if turn > 0:
                assert outcome.cached > 300
    assert all(len(set(urls)) == 1 for urls in homes.values()), homes
    # the very first one need not be: perhaps no engine has reported yet how long a block is
    until(lambda: router.metric("kvway_worker_exact_right_total") >= 23, 5, "all others to be right")
    assert router.metric("kvway_worker_exact_wrong_total") == 0
    assert router.metric("kvway_kvaware_prompts_total", tokens="exact") == 24


def test_conversations_at_once_are_predicted_within_a_block(start, kvway):
    """Four at a time, as many as two workers get that share their blocks."""
    workers = start(count=2).workers
    router = listening(kvway, workers)
    Talk(-1).ask(router)
    wait_heard(router, workers)
    todo = [Talk(seed) for seed in range(16 if SANITIZED else 40)]
    outcomes, lock = [], threading.Lock()

    def user():
        while True:
            with lock:
                if not todo:
                    return
                talk = todo.pop()
            for _ in range(5):
                outcomes.append(talk.ask(router))
                settle(0.05)  # people read before they ask on; events need a moment

    users = [threading.Thread(target=user) for _ in range(4)]
    for one in users:
        one.start()
    for one in users:
        one.join()
    assert len(outcomes) == 5 * (16 if SANITIZED else 40)
    wrong = [o for o in outcomes if abs(o.predicted - o.cached) > BLOCK]
    assert len(wrong) <= len(outcomes) * 0.05, wrong


def test_small_caches_are_followed(start, kvway):
    """Evictions: caches hold a fraction of what is asked for."""
    workers = start("--kv-tokens", 16 * 120, count=2).workers
    router = listening(kvway, workers)
    rng = random.Random(4)
    hits = 0

    def prompt():
        return ids(rng.randrange(6), 600)[: rng.randrange(100, 600)]

    for i in range(12):
        for _ in range(20):
            direct(rng.choice(workers), prompt(), rng.randrange(1, 30))
        wait_heard(router, workers)
        settle(1)  # by then nothing is taken for being on its way still
        outcome = complete(router, prompt(), rng.randrange(1, 30))
        assert outcome.predicted == outcome.cached, (i, outcome)
        hits += outcome.cached > 0
    assert hits > 3
    assert sum(w.stats()["evictions"] for w in workers) > 100


def test_salts_and_adapters_keep_apart(start, kvway):
    workers = start("--lora", "tuned", count=2).workers
    router = listening(kvway, workers)
    prompt = ids(1, 100)
    variants = [{}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"model": "tuned"}]
    for expected in (0, 96):
        for more in variants:
            wait_heard(router, workers)
            outcome = complete(router, prompt + [7] * 10, **more)
            assert outcome.predicted == outcome.cached == expected, (more, outcome)


def test_a_restarted_router_learns_by_replay(start, kvway):
    workers = start(count=2).workers
    router = listening(kvway, workers)
    talks = [Talk(seed) for seed in range(6)]
    homes = {}
    for talk in talks:
        talk.ask(router)
        wait_heard(router, workers)
        homes[talk.seed] = talk.ask(router).worker
    router.stop()
    router = listening(kvway, workers)
    assert router.metric("kvway_kvaware_feed_total", what="replayed_batches") > 0
    for talk in talks:
        wait_heard(router, workers)
        outcome = talk.ask(router)
        assert outcome.predicted == outcome.cached > 300
        assert outcome.worker == homes[talk.seed]


def test_traffic_past_the_router_is_known(start, kvway):
    workers = start(count=3).workers
    router = listening(kvway, workers)
    for seed in range(9):
        direct(workers[seed % 3], ids(seed, 200))
        wait_heard(router, workers)
        outcome = complete(router, ids(seed, 200) + [1] * 20)
        assert (outcome.worker, outcome.predicted, outcome.cached) == (workers[seed % 3].url, 192, 192)
        assert outcome.reason == "kvaware"


def test_a_reset_through_the_router_is_honoured(start, kvway):
    (worker,) = start().workers
    router = listening(kvway, [worker], {"expose.engine_control": True})
    complete(router, ids(1, 200))
    wait_heard(router, [worker])
    assert router.ask("POST", "/reset_prefix_cache").status == 200
    outcome = complete(router, ids(1, 200) + [1] * 20)  # before the engine says a word of it
    assert outcome.cached == 0 and outcome.predicted == 0
    wait_coverage(router, [worker], "engine")
    wait_heard(router, [worker])
    outcome = complete(router, ids(1, 200) + [1] * 20)
    assert outcome.predicted == outcome.cached == 208


def test_a_reset_past_the_router_is_heard_with_the_next_request(start, kvway):
    (worker,) = start().workers
    router = listening(kvway, [worker])
    complete(router, ids(1, 200))
    worker.ask("POST", "/reset_prefix_cache")
    direct(worker, ids(2, 40))
    wait_heard(router, [worker])
    settle(1.5)  # by then kvway no longer takes the first request's blocks for being on their way
    outcome = complete(router, ids(1, 200))
    assert outcome.predicted == outcome.cached == 0


@pytest.mark.parametrize("how", ["in place", "process"])
def test_a_restarted_engine_is_purged_and_learned_again(start, kvway, how):
    ports = [Port() for _ in range(3)]
    port, events, replay = (p.number for p in ports)
    sim = start(port=port, events=events, replay=replay)
    other = start()
    workers = [sim.workers[0], other.workers[0]]
    # A worker that returned would be spared at first, whatever it holds.
    router = listening(kvway, workers, {"routing.slow_start": "0s"})
    for seed in range(6):
        direct(workers[0], ids(seed, 200))
    wait_heard(router, [workers[0]])
    assert complete(router, ids(1, 200) + [1] * 20).worker == workers[0].url
    if how == "in place":
        workers[0].ask("GET", "/sim/restart")
    else:
        sim.signal(signal.SIGKILL)
        sim.wait()
        until(lambda: router.metric("kvway_worker_health", worker=workers[0].url, state="up") != 1, 10, "it to be down")
        sim = start(port=port, events=events, replay=replay)
    direct(workers[0], ids(100, 200))
    # kvway learns it from the next page of metrics, forgets the events before that and asks for them again.
    losses = lambda: router.metric("kvway_worker_cache_losses_total", worker=workers[0].url)  # noqa: E731
    until(lambda: losses() >= 1, 10, "its loss to be known")

    def heard():
        """Events that it publishes before kvway is connected are noticed as missing with the next one."""
        direct(workers[0], ids(next(more), 40))
        settle(0.2)
        told = router.metric("kvway_worker_cache_sequence", worker=workers[0].url, reporter="engine")
        return 0 < told == workers[0].stats()["kv_batches"] - 1

    more = itertools.count(200)
    until(heard, 10, "its events to be heard")
    wait_coverage(router, workers, "engine")
    until(lambda: router.ask("GET", "/ready").status == 200, 10, "a router that is ready")
    settle(1.5)
    for seed in range(1, 6):
        outcome = complete(router, ids(seed, 200) + [seed] * 20)
        assert outcome.predicted == outcome.cached == 0, (seed, outcome)
    outcome = complete(router, ids(100, 200) + [1] * 20)
    assert (outcome.worker, outcome.predicted, outcome.cached) == (workers[0].url, 192, 192)
    for held in ports:
        held.close()


def test_an_engine_may_connect(start, kvway):
    bound = Port()
    config = {
        "endpoint": f"tcp://127.0.0.1:{bound.number}",
        "topic": "kv@127.0.0.1:{port}@tiny",
    }
    workers = start(count=2, **config).workers
    router = kvway(workers, {**SHOWN, "kvaware.events.bind": f"tcp://127.0.0.1:{bound.number}"})
    wait_coverage(router, workers, "engine")
    settle(0.5)  # nothing shows when the engine has read the subscription
    for seed in range(4):
        direct(workers[seed % 2], ids(seed, 200))
        wait_heard(router, workers)
        outcome = complete(router, ids(seed, 200) + [1] * 20)
        assert (outcome.worker, outcome.predicted, outcome.cached) == (workers[seed % 2].url, 192, 192)
    bound.close()


def test_what_the_buffer_has_lost_is_reported_and_the_tree_helps(start, kvway):
    (worker,) = start(buffer_steps=2).workers
    for seed in range(6):
        direct(worker, ids(seed, 200))
    router = kvway([worker], SHOWN)
    wait_log(router, "warn", "cache events: blind", worker.url)
    assert coverage(router, worker, "engine") == 1
    for _ in range(2):
        outcome = complete(router, ids(50, 200))
    assert outcome.cached == 192 and outcome.reason != "kvaware"
    worker.ask("POST", "/reset_prefix_cache")  # from an emptied cache on, all is known
    direct(worker, ids(60, 200))
    wait_coverage(router, [worker], "engine")


def test_without_replay_the_first_batch_begins_it_all(start, kvway):
    (worker,) = start(replay=None).workers
    router = kvway([worker], SHOWN)
    wait_log(router, "cache events: listening", worker.url)
    settle(0.5)  # nothing shows when the engine has read the subscription
    direct(worker, ids(1, 200))
    wait_coverage(router, [worker], "engine")
    outcome = complete(router, ids(1, 200) + [1] * 20)
    assert outcome.predicted == outcome.cached == 192


# What may be wrong


def flowing(router, workers, count=6):
    """Requests are answered, by text where nothing else is known: the second turn meets the first."""
    for seed in range(count):
        talk = Talk(1000 + seed)
        first, second = talk.ask(router), talk.ask(router)
        assert second.cached > 300 and second.worker == first.worker


def test_an_endpoint_without_a_listener(start, kvway):
    workers = start(count=2).workers
    closed = Port()
    rows = [
        {
            "url": w.url,
            "events_endpoint": f"tcp://127.0.0.1:{closed.number}",
            "events_replay": f"tcp://127.0.0.1:{closed.number}",
        }
        for w in workers
    ]
    router = kvway(workers, {**SHOWN, "kvaware.events.discover": False, "workers": rows})
    flowing(router, workers)
    for worker in workers:
        wait_log(router, "warn", "cache events", worker.url, f":{closed.number}", seconds=30)
        assert coverage(router, worker, "engine") != 2
    closed.close()


def test_workers_that_publish_nothing(kvsim, kvway):
    workers = kvsim(2)
    router = kvway(workers, SHOWN)
    flowing(router, workers)
    for worker in workers:
        wait_log(router, "cache events: none", worker.url, "--kv-events-config")


def fake_batch(*events):
    return msgpack.pack([1.0, list(events), 0])


STORED = {
    "type": "BlockStored",
    "block_hashes": [1],
    "parent_block_hash": None,
    "token_ids": list(range(16)),
    "block_size": 16,
    "lora_id": None,
    "medium": "GPU",
}
GARBAGE = {
    "no message at all": [],
    "no msgpack": [b"\xc1" * 100],
    "five bytes that promise gigabytes": [b"\xdd\xff\xff\xff\xff", b"\x93\xcb" + bytes(8) + b"\xdd\xff\xff\xff\xff"],
    "a batch that is cut": [fake_batch(STORED)[:-20]],
    "members that do not fit": [fake_batch({**STORED, "block_size": 5})],
    "a block size of zero": [fake_batch({**STORED, "block_size": 0})],
    "an unknown event": [fake_batch({"type": "BlockMoved", "block_hashes": [1]})],
    "nested without end": [b"\x91" * 100000],
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_from_a_publisher(kvsim, kvway, what):
    workers = kvsim(2)
    sent = threading.Event()

    def publish(peer, frames):
        if frames and frames[0][:1] == b"\x01":
            for number, payload in enumerate(GARBAGE[what]):
                peer.send(b"kv@tiny", struct.pack(">Q", number), payload)
            peer.send(b"kv@tiny", b"short", fake_batch(STORED))
            peer.send(b"kv@tiny")
            sent.set()

    fake = zmtp.Listener("PUB", publish)
    rows = [{"url": w.url, "events_endpoint": f"tcp://127.0.0.1:{fake.port}"} for w in workers]
    router = kvway(workers, {**SHOWN, "kvaware.events.discover": False, "workers": rows})
    assert sent.wait(10)
    flowing(router, workers, 3)
    until(lambda: router.metric("kvway_kvaware_feed_total", what="refused") > 0, 10, "refusals")
    if what != "an unknown event":  # later versions may have more of them: no reason for doubts
        assert all(coverage(router, worker, "engine") != 2 for worker in workers)
    router.stop()
    fake.close()


def test_something_else_on_the_port(start, kvway):
    """An HTTP server where events should come from."""
    workers = start(count=2).workers
    rows = [{"url": w.url, "events_endpoint": f"tcp://127.0.0.1:{w.port}"} for w in workers]
    router = kvway(workers, {**SHOWN, "kvaware.events.discover": False, "workers": rows})
    flowing(router, workers, 3)
    assert all(coverage(router, worker, "engine") != 2 for worker in workers)


def test_a_tokenizer_that_does_not_answer_costs_a_deadline_only(start, kvway):
    workers = start(count=2).workers
    router = listening(kvway, workers, {"kvaware.tokens.timeout": "50ms"})
    for worker in workers:
        worker.fail("delay-ms%3D400", 3)
    outcome = chat(router, [{"role": "user", "content": text(1, 100)}])
    assert outcome.cached == 0
    until(lambda: router.metric("kvway_kvaware_prompts_total", tokens="timeout") > 0, 10, "a timeout")


def test_streams_and_plain_answers_count_alike(start, kvway):
    workers = start(count=2).workers
    router = listening(kvway, workers)
    messages = [{"role": "user", "content": text(3, 200)}]
    chat(router, messages)
    wait_heard(router, workers)
    body = {"model": "tiny", "messages": messages, "max_tokens": 4, "stream": True}
    with Client(router.port) as client:
        answer = client.ask("POST", CHAT, body={**body, "stream_options": {"include_usage": True}})
    headers = {name.lower(): value for name, value in answer.headers}
    usage = json.loads(answer.events()[-2])["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert int(headers["x-kvway-predicted-cached-tokens"]) == cached > 150
