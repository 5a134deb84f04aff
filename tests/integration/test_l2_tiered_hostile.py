"""libkvtier over a tiered-storage daemon that lies, and over a segment that a test spoils.

As test_l2_hostile.py does for Redis: the bytes are right or there are none, in time and in bounds,
and afterwards all is found again.
"""

import mmap
import os
import random
import time

import pytest

from rig.drive import sums_of
from rig.hostile import (
    LIMIT_MS,
    SEED,
    filled_drive,
    lie_at_random,
    lie_to,
    wait_nothing_leased,
    whole,
)
from rig.http_liar import LIES, http_liar
from rig.kvtierd import Kvtierd
from rig.wait import until

CHUNKS, BYTES = 10, 120000


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
    with filled_drive(tmp_path, config, CHUNKS, BYTES) as drive:
        yield drive


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
        got = whole(drive, seed, CHUNKS, BYTES)
        return got and got["tiers"][2] == CHUNKS

    until(again, 15, "chunks stored and found again")


def test_an_honest_middle_changes_nothing(drive, liar, daemon):
    drive.ask("reopen")
    assert until(lambda: whole(drive, SEED, CHUNKS, BYTES), 15, "everything back")["tiers"][2] == CHUNKS
    assert liar.changed == 0
    until(lambda: daemon.metric("kvtierd_leases") == 0, 10, "leases given back")


@pytest.mark.parametrize("name", LIES)
def test_a_lie_gives_no_wrong_byte(drive, liar, daemon, name):
    lie_to(drive, liar, LIES[name], 2, CHUNKS, BYTES)
    recovered(drive)
    wait_nothing_leased(drive)
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
    lie_at_random(drive, liar, LIES, 200000)
    wait_nothing_leased(drive)
