"""libkvtier over a real Redis Cluster: values in parts, a slot that moves and a master that dies while
chunks are written and read. Their bytes are a function of their keys.
"""

import os

from rig.drive import Drive, sums_of
from rig.wait import until

SEED = int(os.environ.get("KVW_SEED", "1"))
CHUNKS, BYTES = 48, 600000  # each in three parts
CONFIG = {"l1.capacity": "64MiB", "l2.deadline": "2s"}


def opened(tmp_path, nodes, name="drive"):
    return Drive(tmp_path, {**CONFIG, "l2.url": nodes.url()}, name).wait_open()


def found_by_another(tmp_path, nodes, seed, name):
    """Chunks that a second process gets; it never stored one."""
    other = opened(tmp_path, nodes, name)
    try:
        other.ask("find", seed, CHUNKS, 5000)
        got = other.ask("get", seed, CHUNKS, BYTES, 10000)
        assert got["wrong"] == 0, got
        mode = other.ask("stats")["l2"]["mode"]
        assert "cluster of 3" in mode, mode
        other.finish()
        return got["got"]
    finally:
        other.kill()


def test_chunks_in_parts_are_spread_and_found_by_another_process(cluster, tmp_path):
    nodes = cluster(3)
    drive = opened(tmp_path, nodes)
    try:
        assert drive.ask("put", SEED, CHUNKS, BYTES)["put"] == CHUNKS
        assert drive.ask("drain", 10000)["drained"]
        sizes = [node.call("DBSIZE") for node in nodes.masters]
        assert min(sizes) > 0 and sum(sizes) >= 3 * CHUNKS, sizes
        assert found_by_another(tmp_path, nodes, SEED, "other") == CHUNKS
        assert drive.ask("erase", SEED, CHUNKS, 5000)["durable"]
        assert found_by_another(tmp_path, nodes, SEED, "third") == 0
        drive.finish()
    finally:
        drive.kill()


def test_a_master_dies_under_load(cluster, tmp_path):
    nodes = cluster(3, replicas=1)
    drive = opened(tmp_path, nodes)
    try:
        drive.send("run", SEED + 100, 15000, 3, 40, 8, 1000, 600000, 400)
        victim = nodes.masters[1]
        until(lambda: victim.call("DBSIZE") > 10, 20, "chunks at the one that will die")
        victim.kill()
        heir = until(
            lambda: next((r for r in nodes.replicas if r.role() == "master"), None),
            30,
            "a replica taking over",
        )
        stored = heir.call("DBSIZE")
        until(lambda: heir.call("DBSIZE") > stored, 20, "chunks stored at the heir")
        wrong, sums = sums_of(drive.answer("run", seconds=60)["passed"])
        assert wrong == [] and sums is not None
        assert drive.ask("put", SEED, CHUNKS, BYTES)["put"] == CHUNKS
        assert drive.ask("drain", 10000)["drained"]
        assert found_by_another(tmp_path, nodes, SEED, "other") == CHUNKS
        drive.finish()
    finally:
        drive.kill()


def test_slots_move_under_load(cluster, tmp_path):
    nodes = cluster(3)
    drive = opened(tmp_path, nodes)
    try:
        assert drive.ask("put", SEED, CHUNKS, BYTES)["put"] == CHUNKS
        assert drive.ask("drain", 10000)["drained"]
        drive.send("run", SEED + 100, 8000, 3, 40, 8, 1000, 600000, 400)
        source, target = nodes.masters[0], nodes.masters[1]
        full = [s for s in range(5461) if source.call("CLUSTER", "COUNTKEYSINSLOT", s)]
        for slot in full[:12]:
            nodes.move_slot(slot, source, target)
        wrong, _ = sums_of(drive.answer("run", seconds=60)["passed"])
        assert wrong == []
        assert found_by_another(tmp_path, nodes, SEED, "other") == CHUNKS
        drive.finish()
    finally:
        drive.kill()
