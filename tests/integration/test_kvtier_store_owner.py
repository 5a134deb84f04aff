"""A store on disk has one owner. A second engine with the same path runs without it, says so, and has it once it is free."""

import os
import subprocess
import time

import pytest
from rig.kvtier_share import CHUNKS
from rig.router import BUILD
from rig.sharing import Engine
from rig.wait import until

PROGRAM = BUILD / "cache/command/kvtier"
WORKS, BROKEN = 1, 3


@pytest.fixture
def start(tmp_path):
    made = []

    def start(name, **nvme):
        config = {
            "l1": {"capacity": "4MiB"},
            "nvme": {"path": str(tmp_path / "store"), "capacity": "32MiB", "sync_time": "20ms", **nvme},
            "control": {"fetch_when_slower": True, "breaker_open": "50ms", "breaker_open_max": "200ms"},
        }
        made.append(Engine(tmp_path, name, config))
        return made[-1].ready()

    yield start
    for engine in made:
        engine.kill()


def comes(engine):
    until(lambda: engine.state("nvme")[0] == WORKS, 20, "the store")


def test_a_new_engine_takes_over_the_store_of_one_that_ends(start):
    old = start("old")
    assert old.ask("put", "a", "b") == {"put": 2 * CHUNKS, "drained": True}
    new = start("new", lock_wait="0s")
    state, reason = new.state("nvme")
    assert state == BROKEN and f"process {old.pid} owns" in reason
    assert "left out for now" in new.errors.read_text()
    assert new.ask("put", "c")["put"] == CHUNKS and new.get("c", "a") == CHUNKS  # memory alone
    refusals = new.ask("metric", "kvtier_store_lock_refusals_total")
    until(lambda: new.ask("metric", "kvtier_store_lock_refusals_total") >= refusals + 2, 20, "it asks again")
    assert new.ask("metric", "lmcache:lmcache_is_healthy") == 0
    old.close()
    comes(new)
    assert new.get("a", "b") == 2 * CHUNKS
    assert new.ask("metric", "lmcache:lmcache_is_healthy") == 1
    assert new.ask("put", "d")["drained"]
    # It is a store like any other: the next process finds what this one put there, and it can be asked to erase.
    path = new.config["nvme"]["path"]
    assert [at for at, _, files in os.walk(path) if "admin" in files]
    new.close()
    again = start("again")
    assert again.get("a", "d") == 2 * CHUNKS
    again.close()
    assert subprocess.run([PROGRAM, "verify", path], capture_output=True).returncode == 0


def test_the_store_of_an_engine_that_was_killed_is_taken_over(start):
    old, new = start("old"), None
    assert old.ask("put", "a")["drained"]
    new, third = start("new", lock_wait="0s"), start("third", lock_wait="0s")
    old.begin("loop", 30)
    time.sleep(0.2)  # somewhere in a put or a get
    old.kill()
    until(lambda: 1 in (new.state("nvme")[0], third.state("nvme")[0]), 20, "one of them has it")
    owner, other = (new, third) if new.state("nvme")[0] == WORKS else (third, new)
    assert owner.get("a") == CHUNKS
    state, reason = other.state("nvme")
    until(lambda: f"process {owner.pid} owns" in other.state("nvme")[1], 20, "the other says whose it is")
    assert state == BROKEN
    owner.kill()
    comes(other)
    assert other.get("a") == CHUNKS
    other.close()


def test_an_engine_that_waits_for_its_store_ends_at_once(start):
    old, new = start("old"), start("new", lock_wait="0s")
    assert new.get("nothing") == 0
    new.close()
    assert old.ask("put", "a")["drained"]
    old.close()
