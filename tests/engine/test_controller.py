"""libkvtier and stock LMCache's controller; a real engine with kvtier inside and kvway as the controller."""

import json
import os
import pathlib
import subprocess
import urllib.request

import pytest

from connected import CHUNK, ConnectedEngine
from lmc import PYTHON
from rig.kvaware import SHOWN, complete, ids, wait_keys
from rig.kvtier_engine import CPU, DISK, Engine
from rig.router import BUILD, Router, with_parent
from rig.wait import Port, until
from server import START_SECONDS

STOCK_CHUNK = 256  # the controller's, which has no option for another


class StockController:
    """`lmcache_controller` of LMCache 0.5.6."""

    def __init__(self, directory):
        self.ports = [Port() for _ in range(4)]
        self.http, pull, reply, beat = (p.number for p in self.ports)
        self.pull, self.reply = f"127.0.0.1:{pull}", f"127.0.0.1:{reply}"
        self.beat = beat
        self.log_path = directory / "controller.log"
        self.popen = None

    def start(self):
        ports = {"pull": self.pull, "reply": self.reply}
        ports = {name: int(address.rsplit(":", 1)[1]) for name, address in ports.items()}
        self.popen = subprocess.Popen(
            with_parent([
                pathlib.Path(PYTHON).parent / "lmcache_controller", "--host", "127.0.0.1",
                "--port", str(self.http), "--monitor-ports", json.dumps({**ports, "heartbeat": self.beat}),
            ]),
            stdout=open(self.log_path, "ab"),
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )  # fmt: skip
        until(lambda: self._up(), START_SECONDS, "the controller to listen")
        return self

    def _up(self):
        assert self.popen.poll() is None, self.log_path.read_text()[-3000:]
        try:
            return self.ask("/query_worker_info", {"instance_id": "all"}) is not None
        except OSError:
            return False

    def ask(self, path, body):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http}{path}",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read())

    def lookup(self, tokens):
        return self.ask("/lookup", {"tokens": tokens})["layout_info"]

    def stop(self):
        if self.popen is not None:
            self.popen.kill()
            self.popen.wait()
        self.popen = None

    def close(self):
        self.stop()
        for port in self.ports:
            port.close()


def stock_names():
    """Settings with which libkvtier names chunks as the controller does: without vLLM it starts its chain with 0."""
    found = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    return {} if subprocess.run([PYTHON, "-c", found]).returncode == 0 else {"none_hash": "0"}


@pytest.fixture
def controller(tmp_path, monkeypatch):
    if not PYTHON:
        pytest.fail("set KVW_LMCACHE_PYTHON to a Python that has lmcache 0.5.6")
    monkeypatch.setenv("KVTIER_LIBRARY", str(BUILD / "cache" / "core" / "libkvtier.so.1"))
    one = StockController(tmp_path)
    yield one
    one.close()


def wait_lookup(controller, tokens, expected):
    until(lambda: controller.lookup(tokens) == expected, 30, f"{expected}")


def test_the_stock_controller_sees_a_libkvtier_worker(controller, tmp_path):
    """It registers though the controller comes later, is found, pinned, cleared, lost, and reports its chunks again."""
    nvme = {"path": str(tmp_path / "nvme"), "capacity": "64MiB"}
    engine = Engine(controller.pull, controller.reply, "lib0", STOCK_CHUNK, nvme=nvme, controller=stock_names())
    prompt, other = ids(1, 4 * STOCK_CHUNK), ids(2, 2 * STOCK_CHUNK)
    try:
        engine.put(prompt)
        controller.start()
        wait_lookup(controller, prompt, {"lib0": [CPU, 4 * STOCK_CHUNK]})
        engine.put(other)
        wait_lookup(controller, other, {"lib0": [CPU, 2 * STOCK_CHUNK]})
        assert controller.ask("/query_instance", {"event_id": "q", "ip": "127.0.0.1"})["res"] == "lib0"
        # Not of "all": that list is kept for a while, and may be from before the worker came.
        (worker,) = controller.ask("/query_worker_info", {"instance_id": "lib0"})["worker_infos"]
        assert (worker["instance_id"], worker["worker_id"], worker["ip"]) == ("lib0", 0, "127.0.0.1")
        beats, silences = engine.metric("heartbeats_total"), engine.metric("silences_total")
        until(lambda: engine.metric("heartbeats_total") > beats + 5, 20, "heartbeats")
        assert engine.metric("silences_total") == silences
        assert controller.ask("/health", {"instance_id": "lib0"})["error_codes"] == {"0": 0}
        assert engine.cache.drain(20 * 10**9)  # in both tiers
        pin = {"instance_id": "lib0", "location": CPU, "tokens": prompt[: 2 * STOCK_CHUNK]}
        assert controller.ask("/pin", pin)["num_tokens"] == 2 * STOCK_CHUNK
        cleared = controller.ask("/clear", {"instance_id": "lib0", "location": CPU})
        assert cleared["num_tokens"] == 4 * STOCK_CHUNK  # not what is pinned
        wait_lookup(controller, other, {"lib0": [DISK, 2 * STOCK_CHUNK]})
        assert controller.lookup(prompt)["lib0"][1] == 4 * STOCK_CHUNK
        controller.stop()
        until(lambda: engine.metric("registered") == 0, 30, "the silence to be noticed")
        controller.start()
        wait_lookup(controller, other, {"lib0": [DISK, 2 * STOCK_CHUNK]})
        assert engine.metric("bad_messages_total") == 0
    finally:
        engine.close()
    wait_lookup(controller, other, {})


def test_a_router_sees_what_a_real_engines_memory_tier_has(directory, tmp_path, monkeypatch):
    """kvway is the controller: a prompt goes where libkvtier has it, though the engine's own cache has
    forgotten it, and what was predicted is what was loaded."""
    ports = [Port() for _ in range(3)]
    pull, reply, beat = (f"127.0.0.1:{p.number}" for p in ports)
    told = {"pull": f"tcp://{pull}", "reply": f"tcp://{reply}", "heartbeat_time": "500ms", "hash": "sha256_cbor"}
    cache = {"l1": {"capacity": "64MiB"}, "controller": told}
    engines = [
        ConnectedEngine(
            directory, 70 + i, {**cache, "controller": {**told, "instance": f"v{i}", "ip": "127.0.0.1", "hash_seed": "0"}}
        )
        for i in range(2)
    ]
    router = None
    try:
        for engine in engines:
            engine.ready()
        router = Router(tmp_path, engines, {
            **SHOWN,
            "kvaware.lmcache.pull": pull,
            "kvaware.lmcache.reply": reply,
            "kvaware.lmcache.heartbeat": beat,
            "kvaware.lmcache.chunk_size": CHUNK,
            "kvaware.lmcache.hash": "sha256_cbor",
            "kvaware.lmcache.hash_seed": "0",
            "kvaware.lmcache.detect": False,
            "workers": [{"url": e.url, "lmcache_instance": f"v{i}"} for i, e in enumerate(engines)],
        }).wait_up(engines)  # fmt: skip
        prompts = [[3 + t % 200 for t in ids(seed, 4 * CHUNK + 20)] for seed in range(6)]
        places = []
        for prompt in prompts:
            places.append(complete(router, prompt).worker)
            wait_keys(router, 4 * len(places), 60)
        for engine in engines:
            engine.post("/reset_prefix_cache")  # the engine's own cache; kvtier's stays
        for prompt, place in zip(prompts, places):
            again = complete(router, prompt)
            assert again.worker == place
            assert again.predicted == again.cached == 4 * CHUNK, again
    finally:
        if router is not None:
            router.stop()
        for engine in engines:
            engine.kill()
        for port in ports:
            port.close()
