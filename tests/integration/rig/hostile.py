"""What tests of a shared tier that lies share: the load, its bounds, and lies at random."""

import os
import random
import time
from contextlib import contextmanager

from rig.drive import Drive, sums_of
from rig.router import SANITIZED
from rig.wait import PATIENCE, until

SEED = int(os.environ.get("KVW_SEED", "1"))
LIMIT_MS = 400
SLACK = 1.0  # seconds beyond the limit, on a machine that does other things, too
LIMIT = (LIMIT_MS / 1000 + SLACK) * PATIENCE  # seconds
GROWTH = (512 if SANITIZED else 64) << 20


@contextmanager
def filled_drive(tmp_path, config, chunks, size):
    """A cache that has stored so many chunks of this size in its shared tier."""
    drive = Drive(tmp_path, config)

    def filled():
        """A store that is late is given up, and drained all the same."""
        drive.ask("put", SEED, chunks, size)
        drive.ask("drain", 10000)
        drive.ask("reopen")
        return whole(drive, SEED, chunks, size)

    try:
        drive.wait_open()
        until(filled, 60, "all stored below")
        yield drive
        drive.finish()
    finally:
        drive.kill()


def whole(drive, seed, chunks, size):
    """The answer to a get if it brought all chunks, else False. No byte may be wrong."""
    drive.ask("find", seed, chunks, LIMIT_MS)
    got = drive.ask("get", seed, chunks, size, 2000)
    assert got["wrong"] == 0, got
    return got["got"] == chunks and got


def wait_nothing_leased(drive):
    """A store that was on its way still reads its chunk."""
    until(lambda: drive.ask("stats")["l1"]["leased"] == 0, 15, "nothing leased")


def lie_to(drive, liar, lie, rounds, chunks, size):
    """Finds, gets and puts meet one lie: no wrong byte, in time and in bounds of memory."""
    drive.ask("reopen")
    rss = drive.rss()
    liar.lie = lie

    def meet():
        found = drive.ask("find", SEED, chunks, LIMIT_MS)
        assert found["ns"] / 1e9 < LIMIT, found
        got = drive.ask("get", SEED, chunks, size, LIMIT_MS)
        assert got["wrong"] == 0 and got["ns"] / 1e9 < LIMIT, got
        put = drive.ask("put", SEED + 1, 2, size)  # stores meet the liar, too
        assert put["put"] + put["there"] == 2
        time.sleep(0.05)
        return liar.changed > 0

    for _ in range(rounds):
        meet()
    until(meet, 5, "an answer to be falsified, without which the test shows nothing")
    assert drive.rss() < rss + GROWTH
    liar.lie = None


def lie_at_random(drive, liar, lies, most_bytes):
    """Load of several threads for KVW_SECONDS, under lies, honesty and cuts at random."""
    seconds = float(os.environ.get("KVW_SECONDS", "6"))
    rng, names = random.Random(SEED), list(lies)
    drive.ask("reopen")
    drive.send("run", SEED + 1000, int(seconds * 1000), 3, 60, 8, 1000, most_bytes, LIMIT_MS)
    until_time = time.monotonic() + seconds
    while time.monotonic() < until_time:
        liar.lie = lies[rng.choice(names)] if rng.random() < 0.7 else None
        if rng.random() < 0.2:
            liar.cut()
        time.sleep(rng.uniform(0.02, 0.3))
    liar.lie = None
    wrong, sums = sums_of(drive.answer("run", seconds=60)["passed"])
    assert not wrong and sums["wrong"] == 0, wrong[:5]
    assert sums["got"] > 0 and sums["errors"] == 0, sums
    slowest = max(sums["slowest_find_ns"], sums["slowest_get_ns"]) / 1e9
    assert slowest < LIMIT, sums
