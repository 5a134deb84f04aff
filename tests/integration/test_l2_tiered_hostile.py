"""libkvtier over a tiered-storage daemon that lies, and over a segment that a test spoils.

As test_l2_hostile.py does for Redis: the bytes are right or there are none, in time and in bounds,
and afterwards all is found again.
"""

import mmap
import os
import random
import time

import pytest

from rig.drive import Drive, sums_of
from rig.http_liar import LIES, http_liar
from rig.kvtierd import Kvtierd
from rig.router import SANITIZED
from rig.wait import PATIENCE, until

SEED = int(os.environ.get("KVW_SEED", "1"))
CHUNKS, BYTES = 10, 120000
LIMIT_MS = 400
SLACK = 1.0  # seconds beyond the limit, on a machine that does other things, too
GROWTH = (512 if SANITIZED else 64) << 20


@pytest.fixture
def daemon(tmp_path):
    daemon = Kvtierd(tmp_path, {"lease.ttl_max": "5s"})
    try:
        yield daemon.wait_up()
        daemon.stop()
    finally:
        daemon.remove()


@pytest.fixture
def liar(daemon):
    liar = http_liar(daemon.port, SEED)
    yield liar
    liar.stop()


@pytest.fixture
def drive(tmp_path, daemon, liar):
    config = {
        "l2.url": f"sagemaker-hyperpod://127.0.0.1:{liar.port}",
        "l2.segment": daemon.segment_name,
        "l2.lease_time": "5s",
    }
    drive = Drive(tmp_path, config)
    try:
        drive.wait_open()
        assert drive.ask("put", SEED, CHUNKS, BYTES)["put"] == CHUNKS
        assert drive.ask("drain", 10000)["drained"]
        yield drive
        drive.finish()
    finally:
        drive.kill()


def whole(drive, seed):
    drive.ask("find", seed, CHUNKS, LIMIT_MS)
    got = drive.ask("get", seed, CHUNKS, BYTES, 2000)
    assert got["wrong"] == 0, got
    return got["got"] == CHUNKS and got


def recovered(drive):
    """What is stored now comes back from the daemon. A lie about the marks of erases may have made
    everything older unreadable: the daemon seems to have lost them, so that no cache knows what
    was erased; losing chunks is allowed."""
    seed = SEED + 7000

    def again():
        nonlocal seed
        seed += 1
        drive.ask("put", seed, CHUNKS, BYTES)
        drive.ask("drain", 2000)
        drive.ask("reopen")
        got = whole(drive, seed)
        return got and got["tiers"][2] == CHUNKS

    until(again, 15, "chunks stored and found again")


def test_an_honest_middle_changes_nothing(drive, liar, daemon):
    drive.ask("reopen")
    assert until(lambda: whole(drive, SEED), 15, "everything back")["tiers"][2] == CHUNKS
    assert liar.changed == 0
    until(lambda: daemon.metric("kvtierd_leases") == 0, 10, "leases given back")


@pytest.mark.parametrize("name", LIES)
def test_a_lie_gives_no_wrong_byte(drive, liar, daemon, name):
    drive.ask("reopen")
    rss = drive.rss()
    liar.lie = LIES[name]
    limit = (LIMIT_MS / 1000 + SLACK) * PATIENCE
    for _ in range(2):
        found = drive.ask("find", SEED, CHUNKS, LIMIT_MS)
        assert found["ns"] / 1e9 < limit, found
        got = drive.ask("get", SEED, CHUNKS, BYTES, LIMIT_MS)
        assert got["wrong"] == 0 and got["ns"] / 1e9 < limit, got
        put = drive.ask("put", SEED + 1, 2, BYTES)  # stores meet the liar, too
        assert put["put"] + put["there"] == 2
        time.sleep(0.05)
    until(lambda: liar.changed > 0, 5, "an answer to be falsified, without which the test shows nothing")
    assert drive.rss() < rss + GROWTH
    liar.lie = None
    recovered(drive)
    until(lambda: drive.ask("stats")["l1"]["leased"] == 0, 15, "nothing leased")
    until(lambda: daemon.metric("kvtierd_leases") == 0, 20, "leases given back or over")


def test_a_segment_that_another_process_spoils(drive, daemon):
    """Any byte may change at any moment between the lease and the copy."""
    fd = os.open(f"/dev/shm/{daemon.segment_name}", os.O_RDWR)
    size, rng = os.fstat(fd).st_size, random.Random(SEED)
    with mmap.mmap(fd, size) as memory:
        os.close(fd)
        drive.ask("reopen")
        drive.send("run", SEED + 1000, 4000, 2, 10, 8, 1000, 200000, LIMIT_MS)
        until_time = time.monotonic() + 4
        while time.monotonic() < until_time:
            for _ in range(50):
                memory[rng.randrange(4 << 20)] ^= 1 << rng.randrange(8)
            time.sleep(0.002)
    wrong, sums = sums_of(drive.answer("run", seconds=60)["passed"])
    assert not wrong and sums["wrong"] == 0, wrong[:5]
    assert sums["got"] > 0, sums


def test_lies_at_random_under_load(drive, liar):
    seconds = float(os.environ.get("KVW_SECONDS", "6"))
    rng, names = random.Random(SEED), list(LIES)
    drive.ask("reopen")
    drive.send("run", SEED + 1000, int(seconds * 1000), 3, 60, 8, 1000, 200000, LIMIT_MS)
    until_time = time.monotonic() + seconds
    while time.monotonic() < until_time:
        liar.lie = LIES[rng.choice(names)] if rng.random() < 0.7 else None
        if rng.random() < 0.2:
            liar.cut()
        time.sleep(rng.uniform(0.02, 0.3))
    liar.lie = None
    wrong, sums = sums_of(drive.answer("run", seconds=60)["passed"])
    assert not wrong and sums["wrong"] == 0, wrong[:5]
    assert sums["got"] > 0 and sums["errors"] == 0, sums
    slowest = max(sums["slowest_find_ns"], sums["slowest_get_ns"]) / 1e9
    assert slowest < (LIMIT_MS / 1000 + SLACK) * PATIENCE, sums
