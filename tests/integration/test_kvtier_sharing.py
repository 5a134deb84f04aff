"""One store per node: engines keep their chunks in kvtierd (`node.share`), whatever becomes of it and of the others.

Every byte that an engine gets is checked. The daemon's memory holds a part of what is stored, its NVMe the rest.
"""

import os
import secrets
import subprocess
import time

import pytest
from rig.kvtier_share import CHUNKS
from rig.kvtierd import SHM, Kvtierd
from rig.router import BUILD
from rig.sharing import Engine
from rig.wait import until

PROMPTS = [f"prompt {n}" for n in range(30)]  # 120 chunks; the daemon has memory for 64
MOST = CHUNKS * len(PROMPTS) * 8 // 10  # a busy disk may keep the daemon from storing some
ABSENT, WORKS = 0, 1
ROUNDS = int(os.environ.get("KVW_ROUNDS", "3"))


class Node:
    """A daemon, and engines with a memory that is too small for all that they store."""

    def __init__(self, directory):
        self.directory, self.engines = directory, []
        config = {
            "segment.size": "4MiB",
            "lease.ttl_max": "1s",
            "cache.nvme.path": str(directory / "shared"),
            "cache.nvme.capacity": "64MiB",
            "cache.nvme.sync_time": "20ms",
        }
        self.daemon = Kvtierd(directory, config).wait_up()

    def engine(self, share="always", **sections):
        own = self.directory / f"own{len(self.engines)}"
        config = {
            "l1": {"capacity": "2MiB"},
            "nvme": {"path": str(own), "capacity": "32MiB"},
            "l2": {"lease_time": "1s", "missing_time": "10ms", "seen_time": "200ms", "deadline": "1s"},
            "node": {"share": share, "url": self.daemon.url, "segment": self.daemon.segment_name},
            "control": {"fetch_when_slower": True, "breaker_open": "50ms", "breaker_open_max": "200ms"},
            **sections,
        }
        self.engines.append(Engine(self.directory, f"engine{len(self.engines)}", config))
        self.engines[-1].own = own
        return self.engines[-1].ready()

    def engine_is_served(self, engine, prompts, at_least):
        until(lambda: engine.get(*prompts) >= at_least, 30, f"{at_least} chunks of {len(prompts)} prompts")

    def nothing_is_held(self):
        until(lambda: self.daemon.metric("kvtierd_leases") == 0, 20, "leases over")
        until(lambda: self.daemon.metric("kvtierd_puts") == 0, 20, "puts over")


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path)
    try:
        yield node
        for engine in node.engines:
            if engine.process.poll() is None:
                engine.close()
        node.daemon.stop()
    finally:
        for engine in node.engines:
            engine.kill()
        node.daemon.remove()


def stored(node, engine, prompts=PROMPTS):
    """One at a time, until it is on the daemon's disk, too: what comes faster than a disk writes is not stored there."""

    def on_disk():
        return node.daemon.metric("kvtier_tier_chunks", tier="nvme")

    for prompt in prompts:
        enough = on_disk() + CHUNKS
        assert engine.ask("put", prompt) == {"put": CHUNKS, "drained": True}
        until(lambda: on_disk() >= enough, 30, f"{prompt} on disk")


def shared_now(one, other):
    """Does what one stores now reach the other? What was stored while the daemon was away does not."""
    name = f"new {time.monotonic_ns()}"
    return one.ask("put", name)["drained"] and other.get(name) == CHUNKS


def test_replicas_and_the_next_pod_find_what_one_stored(node):
    old, replica = node.engine(), node.engine("auto")
    stored(node, old)
    assert replica.get(*PROMPTS) >= MOST
    assert replica.ask("get", *PROMPTS)["l2"] > 0
    disk, memory = (node.daemon.metric(f"kvtier_tier_{name}", tier=tier)
                    for name, tier in (("used_bytes", "nvme"), ("capacity_bytes", "l1")))  # fmt: skip
    assert disk > memory
    new = node.engine("auto")  # overlaps the old one
    assert new.get(*PROMPTS) >= MOST
    for engine in (old, replica, new):
        assert not engine.own.exists() and engine.state("nvme")[0] == ABSENT and engine.state("l2")[0] == WORKS
        assert engine.ask("metric", "kvtier_store_lock_refusals_total") == 0
    old.close()
    assert new.ask("put", "of the new one")["drained"] and replica.get("of the new one") == CHUNKS
    node.nothing_is_held()


def test_a_wrong_segment_is_named(node):
    engine = node.engine(node={"share": "always", "url": node.daemon.url, "segment": "kvtier-none"})
    said = engine.errors.read_text()
    assert "node: open /dev/shm/kvtier-none: No such file or directory; nothing is found until" in said, said


def test_a_reset_of_one_replica_costs_the_others_nothing(node):
    one, other = node.engine(), node.engine()
    stored(node, one, PROMPTS[:10])
    assert one.ask("forget")["forgot"]
    assert other.get(*PROMPTS[:10]) >= CHUNKS * 8


def test_engines_of_another_model_see_nothing(node):
    one, other = node.engine(), node.engine(fingerprint="ef" * 32)
    stored(node, one, PROMPTS[:10])
    assert other.get(*PROMPTS[:10]) == 0
    stored(node, other, PROMPTS[:10])
    assert other.get(*PROMPTS[:10]) >= CHUNKS * 8 and one.get(*PROMPTS[:10]) >= CHUNKS * 8


def test_engines_outlive_their_daemon(node):
    one, other = node.engine(), node.engine()
    stored(node, one, PROMPTS[:20])
    for turn in range(ROUNDS):
        for engine in (one, other):
            engine.begin("loop", 0.5)
        time.sleep(0.15)  # somewhere in a put or a get
        node.daemon.kill()
        if turn == 1:  # also the memory is another one
            for path in SHM.glob(f"*{node.daemon.segment_name}*"):
                path.unlink()
        time.sleep(0.1)
        node.daemon.start()
        node.daemon.wait_up()
        for engine in (one, other):
            count = engine.answer()
            assert count["wrong"] == 0 and count["gets"] > 0, count
    node.daemon.wait_writable()
    node.engine_is_served(other, PROMPTS[:20], CHUNKS * 16)  # it may have lost what was not durable yet
    until(lambda: shared_now(one, other), 30, "shared again")
    assert one.state("l2")[0] == other.state("l2")[0] == WORKS
    node.nothing_is_held()
    assert node.daemon.metric("kvtierd_corrupt_total") == 0


def test_engines_that_are_killed_leave_nothing_behind(node):
    spared = node.engine()
    stored(node, spared, PROMPTS[:20])
    for _ in range(ROUNDS):
        victims = [node.engine(), node.engine()]
        for engine in (spared, *victims):
            engine.begin("loop", 0.4)
        time.sleep(0.2)
        for engine in victims:
            engine.kill()
        assert spared.answer()["wrong"] == 0
    assert spared.get(*PROMPTS[:20]) >= CHUNKS * 16
    node.nothing_is_held()


def test_an_engine_that_is_alone_has_a_store_of_its_own(node):
    node.daemon.kill()
    alone = node.engine("auto")
    assert alone.own.exists() and alone.state("nvme")[0] == WORKS and alone.state("l2")[0] == ABSENT
    assert "a store of one's own, not kvtierd" in alone.errors.read_text()
    assert alone.ask("put", "a")["drained"]
    waits = node.engine("always")
    assert not waits.own.exists()
    assert waits.ask("put", "b")["put"] == CHUNKS and waits.get("b", "a") == CHUNKS
    node.daemon.start()
    node.daemon.wait_up().wait_writable()
    shared = node.engine("auto")
    assert shared.ask("put", "c")["drained"]
    node.engine_is_served(waits, ["c"], CHUNKS)
    assert alone.get("c") == 0 and alone.get("a") == CHUNKS


def test_chunks_that_are_encrypted_stay_with_their_engine(node, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"1: {secrets.token_hex(32)}\n")
    keys.chmod(0o600)
    engine = node.engine("always", protect={"keys": str(keys)})
    assert engine.own.exists() and "not used with protect.keys" in engine.errors.read_text()
    assert engine.state("l2")[0] == ABSENT


def test_what_the_node_shares_is_erased_by_command(node, tmp_path):
    engine = node.engine()
    stored(node, engine, PROMPTS[:5])
    engine.close()
    config = tmp_path / "cache.yaml"
    config.write_text(
        f"node: {{share: always, url: '{node.daemon.url}', segment: {node.daemon.segment_name}}}\nl2: {{lease_time: 1s}}\n"
    )
    argv = [BUILD / "cache/command/kvtier", "erase", "--config", config, "--model", "cd" * 32, "--yes"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr
    assert node.engine().get(*PROMPTS[:5]) == 0
