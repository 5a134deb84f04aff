"""What the tiers hold, as a real engine's own KV events report it, and what kvway makes of that."""

import json
import os
import random
import subprocess
import time

import pytest
from connected import BLOCK, CHUNK, PACKAGE, ConnectedEngine
from mixed import prose
from rig.router import Router
from rig.wait import until
from server import HERE, VENV
from told import complete

CONFIG = {
    "routing.strategy": "kvaware",
    "http.decision_headers": "on_request",
    "expose.engine_control": True,
    "routing.slow_start": "0s",
    "kvaware.tokens.timeout": "5s",
}
PLACES = {"GPU": ("GPU", None), "CPU": ("CPU", None), "NVMe": ("STORAGE", "LOCAL")}


@pytest.fixture
def engine(tmp_path):
    cache = {"l1": {"capacity": "64MiB"}, "nvme": {"path": str(tmp_path / "store"), "sync_time": "50ms"}}
    one = ConnectedEngine(tmp_path, 0, cache, publishes=True).ready()
    yield one
    one.kill()


def heard(engine):
    """All events since the engine's start."""
    told = subprocess.run(
        [f"{VENV}/bin/python", HERE / "heard.py", str(engine.replay)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in told.stdout.splitlines()]


def stored(events, place):
    """{hash: (tokens, hash before)} of blocks that were stored there."""
    medium, locality = PLACES[place]
    found = {}
    for event in events:
        if event["type"] != "BlockStored" or event["medium"] != medium or event.get("locality") != locality:
            continue
        before, tokens = event["parent_block_hash"], event["token_ids"]
        for index, name in enumerate(event["block_hashes"]):
            found[name] = (tokens[index * BLOCK : (index + 1) * BLOCK], before)
            before = name
    return found


def test_tiers_are_reported_in_the_engines_names(engine):
    """Same hashes as the device's blocks, with token ids in the first tier; the disk is reported while the engine
    has nothing to do; after a restart it is reported again, with tokens, before there is any request."""
    prompt = [random.Random(1).randrange(10, 600) for _ in range(10 * CHUNK + 7)]
    engine.complete(prompt)
    until(lambda: len(stored(heard(engine), "NVMe")) == 20, 20, "all chunks reported as stored on disk")
    events = heard(engine)
    device, memory, disk = (stored(events, place) for place in PLACES)
    assert len(device) == 20 and memory == device
    assert disk.keys() == device.keys()
    assert [before for _, before in disk.values()] == [before for _, before in device.values()]
    assert {event["block_size"] for event in events if event["type"] == "BlockStored"} == {BLOCK}
    engine.restart()
    until(lambda: stored(heard(engine), "NVMe") == device, 20, "reported again after a restart")
    assert stored(heard(engine), "GPU") == {}


def test_what_memory_evicts_is_reported(engine):
    rng = random.Random(2)
    for _ in range(40):
        engine.complete([rng.randrange(10, 600) for _ in range(1500)])
    events = heard(engine)
    removed = [e for e in events if e["type"] == "BlockRemoved"]
    gone = {name for e in removed if e["medium"] == "CPU" for name in e["block_hashes"]}
    memory = stored(events, "CPU")
    counts = engine.counts()
    if counts.get("kvtier:tier_evictions_total", 0):
        assert gone and gone <= memory.keys()
    engine.post("/reset_prefix_cache?reset_external=true")
    engine.complete([rng.randrange(10, 600) for _ in range(100)])

    def emptied():
        left = {place: {} for place in PLACES}
        for event in heard(engine):
            place = next((p for p, at in PLACES.items() if at == (event.get("medium"), event.get("locality"))), None)
            for name in event.get("block_hashes", ()):
                if event["type"] == "BlockStored":
                    left[place][name] = True
                else:
                    left[place].pop(name, None)
        return len(left["CPU"]) <= 3 and len(left["NVMe"]) <= 3

    until(emptied, 20, "all that was before the reset reported as removed")


def test_a_salted_prompts_tokens_are_not_published(engine):
    prompt = [random.Random(3).randrange(10, 600) for _ in range(4 * CHUNK)]
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1, "cache_salt": "mine"}
    engine.post("/v1/completions", body)
    until(lambda: len(stored(heard(engine), "NVMe")) >= 6, 20, "told")
    for place in ("CPU", "NVMe"):
        assert all(tokens == [] for tokens, _ in stored(heard(engine), place).values())


FULL = 2  # coverage of a worker's cache


def covered(router, engines):
    """kvway has received all that these engines have published."""
    known = lambda e: router.metric("kvway_worker_cache_coverage", worker=e.url, reporter="engine") == FULL  # noqa: E731
    until(lambda: all(known(e) for e in engines), 30, "coverage of all engines")


def test_kvway_knows_what_lies_below_the_device(engine, tmp_path):
    """Blocks that the device lost are predicted from memory, and from disk after a restart of the engine."""
    cache = {"l1": {"capacity": "64MiB"}, "nvme": {"path": str(tmp_path / "other"), "sync_time": "50ms"}}
    engines = [engine, ConnectedEngine(tmp_path, 1, cache, publishes=True).ready()]
    rng = random.Random(4)
    router = Router(tmp_path, engines, CONFIG).wait_up(engines)
    try:
        for one in engines:  # an engine that was never used has published nothing
            one.complete([rng.randrange(10, 600) for _ in range(200)])
        covered(router, engines)
        text = prose(rng, 6000)
        first = complete(router, text)
        home = next(one for one in engines if one.url == first.worker)
        until(lambda: right(complete(router, text), first), 20, "predicted from the device")
        chunks = first.prompt // CHUNK + 200 // CHUNK
        until(lambda: len(stored(heard(home), "CPU")) == chunks * CHUNK // BLOCK, 20, "memory reported")
        home.forget()
        home.complete([rng.randrange(10, 600) for _ in range(200)])  # it publishes the reset with its next step
        until(lambda: "AllBlocksCleared" in {event["type"] for event in heard(home)}, 20, "the reset reported")
        seen = complete(router, text)
        print(f"device emptied: {seen}")
        assert right(seen, first)
        time.sleep(1)  # all is on disk
        home.restart()
        router.wait_up(engines)
        covered(router, engines)
        seen = complete(router, text)
        print(f"engine restarted: {seen}")
        assert right(seen, first)
    finally:
        router.stop()
        engines[1].kill()


def right(seen, first):
    return seen.worker == first.worker and seen.predicted > 1000 and abs(seen.predicted - seen.actual) <= CHUNK


def test_the_interface_is_as_it_was():
    """Methods, hashes, specifications and events of the installed vLLM, without an engine."""
    told = subprocess.run(
        [f"{VENV}/bin/python", HERE / "interface.py"],
        capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": str(PACKAGE)},
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    print(told.stdout)
