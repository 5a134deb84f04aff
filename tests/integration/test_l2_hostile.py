"""libkvtier over a Redis that lies: the bytes are right or there are none, in time and in bounds.

A proxy falsifies the answers of an honest redis-server (rig/liar.py lists how). After each lie the
same cache must find everything again by itself.
"""

import os
import random
import time

import pytest

from rig.drive import Drive, sums_of
from rig.liar import LIES, Liar
from rig.redis import SERVER, RedisServer
from rig.router import SANITIZED
from rig.wait import PATIENCE, until

pytestmark = pytest.mark.skipif(SERVER is None, reason="no redis-server")

SEED = int(os.environ.get("KVW_SEED", "1"))
CHUNKS, BYTES = 12, 150000
LIMIT_MS = 400
SLACK = 1.0  # seconds beyond the limit, on a machine that does other things, too
GROWTH = (512 if SANITIZED else 64) << 20


@pytest.fixture
def redis(tmp_path):
    server = RedisServer(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def liar(redis):
    liar = Liar(redis.port, SEED)
    yield liar
    liar.stop()


@pytest.fixture
def drive(tmp_path, liar):
    drive = Drive(tmp_path, {"l2.url": liar.url})
    try:
        drive.wait_open()
        assert drive.ask("put", SEED, CHUNKS, BYTES)["put"] == CHUNKS
        assert drive.ask("drain", 10000)["drained"]
        yield drive
        drive.finish()
    finally:
        drive.kill()


def all_there(drive):
    """An honest answer brings everything back from below."""
    drive.ask("reopen")
    return recovered(drive)


def recovered(drive):
    def whole():
        drive.ask("find", SEED, CHUNKS, LIMIT_MS)
        got = drive.ask("get", SEED, CHUNKS, BYTES, 2000)
        assert got["wrong"] == 0, got
        return got["got"] == CHUNKS and got

    return until(whole, 15, "everything back")


def test_an_honest_middle_changes_nothing(drive, liar):
    assert all_there(drive)["tiers"][2] == CHUNKS
    assert liar.changed == 0


@pytest.mark.parametrize("name", LIES)
def test_a_lie_gives_no_wrong_byte(drive, liar, name):
    drive.ask("reopen")
    rss = drive.rss()
    liar.lie = LIES[name]
    limit = (LIMIT_MS / 1000 + SLACK) * PATIENCE
    for _ in range(4):
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
    # A store that was on its way still reads its chunk.
    until(lambda: drive.ask("stats")["l1"]["leased"] == 0, 15, "nothing leased")


def test_corruption_is_counted_and_a_miss(drive, liar):
    drive.ask("reopen")
    liar.least, liar.lie = 10000, LIES["flipped bit"]  # payloads, not what a probe reads
    assert drive.ask("find", SEED, CHUNKS, LIMIT_MS)["hits"] >= 0
    assert drive.ask("get", SEED, CHUNKS, BYTES, 2000)["wrong"] == 0
    assert drive.ask("stats")["l2"]["corrupt"] > 0


def test_the_breaker_opens_and_spares_the_caller(drive, liar):
    """After some failures a lookup does not wait for the peer any more."""
    drive.ask("reopen")
    liar.lie = LIES["silence"]
    until(
        lambda: drive.ask("find", SEED, CHUNKS, LIMIT_MS) and drive.ask("stats")["l2"]["trips"] > 0,
        20,
        "the breaker open",
    )
    quick = min(drive.ask("find", SEED + 5, CHUNKS, LIMIT_MS)["ns"] for _ in range(5))
    assert quick < LIMIT_MS * 1e6 / 2, "it waits for a tier that is left alone"
    liar.lie = None
    recovered(drive)


def test_lies_at_random_under_load(drive, liar):
    seconds = float(os.environ.get("KVW_SECONDS", "6"))
    rng, names = random.Random(SEED), list(LIES)
    drive.ask("reopen")
    drive.send("run", SEED + 1000, int(seconds * 1000), 3, 60, 8, 1000, 300000, LIMIT_MS)
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
    recovered(drive)
