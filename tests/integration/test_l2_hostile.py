"""libkvtier over a Redis that lies: the bytes are right or there are none, in time and in bounds.

A proxy falsifies the answers of an honest redis-server (rig/liar.py lists how). After each lie the
same cache must find everything again by itself, but for lies that may cost a chunk (LOSSY).
"""

import itertools

import pytest

from rig.hostile import (
    LIMIT_MS,
    SEED,
    filled_drive,
    lie_at_random,
    lie_to,
    wait_nothing_leased,
    whole,
)
from rig.liar import LIES, Liar
from rig.redis import SERVER
from rig.wait import until

pytestmark = pytest.mark.skipif(SERVER is None, reason="no redis-server")

CHUNKS, BYTES = 12, 150000
# A good value whose command is given the answer of another one looks corrupt, and is unlinked.
LOSSY = {"every answer twice"}


@pytest.fixture
def liar(redis):
    liar = Liar(redis.port, SEED)
    yield liar
    liar.stop()


@pytest.fixture
def drive(tmp_path, liar):
    with filled_drive(tmp_path, {"l2.url": liar.url}, CHUNKS, BYTES) as drive:
        yield drive


def all_there(drive):
    """An honest answer brings everything back from below."""
    drive.ask("reopen")
    return recovered(drive)


def recovered(drive, lossy=False):
    """lossy: what is missing is stored again, and must then come from below."""

    def back():
        got = whole(drive, SEED, CHUNKS, BYTES)
        if not got and lossy:
            drive.ask("put", SEED, CHUNKS, BYTES)
            drive.ask("drain", 2000)
            drive.ask("reopen")
        return got

    return until(back, 40, "everything back")  # a tier that was left alone is tried again with growing pauses


def test_an_honest_middle_changes_nothing(drive, liar):
    assert all_there(drive)["tiers"][2] == CHUNKS
    assert liar.changed == 0


@pytest.mark.parametrize("name", LIES)
def test_a_lie_gives_no_wrong_byte(drive, liar, name):
    lie_to(drive, liar, LIES[name], 4, CHUNKS, BYTES)
    recovered(drive, name in LOSSY)
    wait_nothing_leased(drive)


def test_corruption_is_counted_and_a_miss(drive, liar):
    drive.ask("reopen")
    liar.least, liar.lie = 10000, LIES["flipped bit"]  # payloads, not what a probe reads

    def counted():
        """A read that was late is a miss, too, and shows nothing."""
        assert drive.ask("find", SEED, CHUNKS, LIMIT_MS)["hits"] >= 0
        assert drive.ask("get", SEED, CHUNKS, BYTES, 2000)["wrong"] == 0
        return drive.ask("stats")["l2"]["corrupt"] > 0

    until(counted, 15, "corruption counted")


def test_the_breaker_opens_and_spares_the_caller(tmp_path, liar):
    """After some failures a lookup does not wait for the peer any more."""
    # What it knows of erases has to last for longer than the failures take: without it, the tier is not asked at all.
    config = {"l2.url": liar.url, "l2.seen_time": "10s"}
    with filled_drive(tmp_path, config, CHUNKS, BYTES) as drive:
        liar.lie = LIES["silence"]
        seeds = itertools.count(SEED + 5)  # names of which nothing is known
        until(
            lambda: drive.ask("find", next(seeds), CHUNKS, LIMIT_MS) and drive.ask("stats")["l2"]["trips"] > 0,
            20,
            "the breaker open",
        )
        quick = min(drive.ask("find", next(seeds), CHUNKS, LIMIT_MS)["ns"] for _ in range(5))
        assert quick < LIMIT_MS * 1e6 / 2, "it waits for a tier that is left alone"
        liar.lie = None
        drive.ask("reopen")
        recovered(drive)


def test_lies_at_random_under_load(drive, liar):
    lie_at_random(drive, liar, LIES, 300000)
    recovered(drive)
