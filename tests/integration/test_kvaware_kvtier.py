"""libkvtier reports to an LMCache controller what it holds: caches in this process, kvway as the controller.

The workers that requests go to are kvsim's, whose own caches forget; what is predicted is what the caches
reported. A put names its chunks as the connector does.
"""

import re

import pytest

from rig import msgpack, zmtp
from rig.kvaware import SHOWN, complete, ids, reported, wait_coverage, wait_log
from rig.kvtier_engine import CPU, DISK, Engine
from rig.router import BUILD
from rig.sim import Sim
from rig.wait import Port, until

CHUNK = 32


@pytest.fixture
def stage(tmp_path, kvway, monkeypatch):
    """Two simulated workers, a cache for each, and how to make their router."""
    monkeypatch.setenv("KVTIER_LIBRARY", str(BUILD / "cache" / "core" / "libkvtier.so.1"))
    ports = [Port() for _ in range(3)]
    sim = Sim(tmp_path, 2, "--kv-tokens", 100000)
    engines = []

    class Stage:
        pull, reply, beat = (f"127.0.0.1:{p.number}" for p in ports)
        workers = sim.workers
        folder = tmp_path

        def engine(self, number=0, **sections):
            engines.append(Engine(self.pull, self.reply, f"e{number}", CHUNK, **sections))
            return engines[-1]

        def router(self, more=None, seen=0):
            rows = [{"url": w.url, "lmcache_instance": f"e{i}"} for i, w in enumerate(self.workers)]
            router = kvway(self.workers, {
                **SHOWN,
                "kvaware.lmcache.pull": self.pull,
                "kvaware.lmcache.reply": self.reply,
                "kvaware.lmcache.heartbeat": self.beat,
                "kvaware.lmcache.chunk_size": CHUNK,
                "kvaware.lmcache.detect": False,
                "workers": rows,
                **(more or {}),
            })  # fmt: skip
            router.numbers = {worker.url: i for i, worker in enumerate(self.workers)}
            wait_coverage(router, self.workers[:seen], "lmcache")
            return router

    yield Stage()
    for engine in engines:
        engine.close()
    sim.kill()
    for port in ports:
        port.close()


def wait_held(router, tokens, expected):
    """expected: {number of a worker: {tier: tokens}}"""

    def held():
        return {router.numbers[url]: tiers for url, tiers in reported(router, tokens).items()}

    until(lambda: held() == expected, 20, f"{expected} (is {held()})")


def command(port, message):
    """A controller's, to a worker's own socket."""
    peer = zmtp.connect(port, "REQ")
    peer.send(b"", msgpack.pack({"worker_event_id": "e", **message}))
    empty, payload = peer.receive()
    peer.close()
    assert empty == b""
    return msgpack.unpack(payload)


def test_a_prompt_goes_where_libkvtier_has_it_until_it_is_evicted(stage):
    router = stage.router()
    engines = [stage.engine(i, l1={"capacity": "2MiB", "policy": "lru", "staging_share": 0}) for i in range(2)]
    for name in ("e0", "e1"):
        wait_log(router, f"Worker registered: {name}")
    prompts = [ids(seed, 6 * CHUNK + 8) for seed in range(4)]
    for i, prompt in enumerate(prompts):
        engines[i % 2].put(prompt)
    for i, prompt in enumerate(prompts):
        wait_held(router, prompt, {i % 2: {"host": 6 * CHUNK}})
        outcome = complete(router, prompt)
        assert (outcome.worker, outcome.predicted) == (stage.workers[i % 2].url, 6 * CHUNK)
    for seed in range(100, 106):  # 36 chunks, of which 32 have room
        engines[0].put(ids(seed, 6 * CHUNK))
    wait_held(router, prompts[0], {})
    wait_held(router, prompts[1], {1: {"host": 6 * CHUNK}})
    engines[1].close()
    wait_held(router, prompts[1], {})  # it said good-bye


def test_a_controller_that_starts_again_gets_everything(stage):
    """The engine is there before any controller is, and longer than the first one."""
    engine = stage.engine(0)
    prompts = [ids(seed, 10 * CHUNK) for seed in range(8)]
    for prompt in prompts[:4]:
        engine.put(prompt)
    router = stage.router(seen=1)
    for prompt in prompts[:4]:
        wait_held(router, prompt, {0: {"host": 10 * CHUNK}})
    router.stop()
    for prompt in prompts[4:]:
        engine.put(prompt)
    until(lambda: engine.metric("registered") == 0, 20, "the silence to be noticed")
    router = stage.router(seen=1)
    for prompt in prompts:
        wait_held(router, prompt, {0: {"host": 10 * CHUNK}})
    assert engine.metric("full_syncs_total") >= 1
    assert engine.metric("silences_total") >= 1


def test_what_the_queue_has_no_room_for_comes_by_a_full_sync(stage):
    engine = stage.engine(0, controller={"queue": 16, "sync_batch": 7})
    router = stage.router(seen=1)
    prompts = [ids(seed, 20 * CHUNK) for seed in range(20)]
    for prompt in prompts:
        engine.put(prompt)
    until(lambda: engine.metric("changes_total") + engine.metric("queue_drops_total") >= 400, 10, "all changes")
    for prompt in prompts:
        wait_held(router, prompt, {0: {"host": 20 * CHUNK}})
    assert engine.metric("queue_drops_total") + engine.metric("dropped_total") > 0
    assert engine.metric("full_syncs_total") >= 1


def test_what_lies_on_nvme_is_reported_after_a_restart(stage):
    nvme = {"path": str(stage.folder / "nvme"), "capacity": "64MiB"}
    engine = stage.engine(0, nvme=nvme)
    router = stage.router(seen=1)
    prompt = ids(1, 8 * CHUNK)
    engine.put(prompt)
    wait_held(router, prompt, {0: {"host": 8 * CHUNK}})
    assert engine.cache.drain(20 * 10**9)
    engine.close()
    wait_held(router, prompt, {})
    engine = stage.engine(0, nvme=nvme)
    wait_held(router, prompt, {0: {"disk": 8 * CHUNK}})


def test_a_controllers_commands_are_obeyed(stage):
    engine = stage.engine(0, controller={"pin_time": "2s"})
    router = stage.router({"log.level": "debug"}, seen=1)
    port = int(re.search(r" at=\S+:(\d+)", wait_log(router, "registered instance=e0 rank=0")).group(1))
    prompt, other = ids(1, 200), ids(2, 200)
    engine.put(prompt)
    engine.put(other)
    wait_held(router, prompt, {0: {"host": 192}})
    wait_held(router, other, {0: {"host": 192}})
    assert command(port, {"type": "HealthWorkerMsg"}) == {"type": "HealthWorkerRetMsg", "error_code": 0}
    pin, clear = {"type": "PinWorkerMsg", "tokens": prompt[:70]}, {"type": "ClearWorkerMsg"}
    assert command(port, {**pin, "location": CPU})["num_tokens"] == 64
    assert command(port, {**pin, "location": DISK})["num_tokens"] == 0
    assert command(port, {**clear, "location": DISK})["num_tokens"] == 0
    assert command(port, {**clear, "location": CPU})["num_tokens"] == 128 + 192
    wait_held(router, prompt, {0: {"host": 64}})
    wait_held(router, other, {})
    until(lambda: engine.metric("pinned") == 0, 20, "the pins to end")
    assert command(port, {**clear, "location": CPU})["num_tokens"] == 64
    wait_held(router, prompt, {})


def test_without_a_controller_the_cache_works(stage):
    engine = stage.engine(0, controller={"queue": 16})
    for seed in range(40):
        engine.put(ids(seed, 20 * CHUNK))
    assert engine.metric("chunks") == 800
    assert engine.metric("registered") == 0
    engine.close()
