"""libkvtier with files and a shared tier, killed and stalled at any moment; so is the shared tier.

Chunks' bytes are a function of their keys, so each reader knows what is right. KVW_ROUNDS=N runs N
rounds instead of a few; KVW_SEED=N begins elsewhere.
"""

import os
import random
import signal
import time

import pytest

from rig.drive import Drive, sums_of
from rig.kvtierd import PROGRAM as KVTIERD
from rig.kvtierd import Kvtierd
from rig.redis import SERVER, RedisServer
from rig.wait import PATIENCE, until

SEED = int(os.environ.get("KVW_SEED", "1"))
ROUNDS = int(os.environ.get("KVW_ROUNDS", "8"))
CHAINS, DEPTH, LEAST, MOST = 40, 8, 1000, 200000
LIMIT_MS = 400
SLACK = 1.5  # seconds beyond the limit, on a machine that does other things, too


class RedisPeer:
    """A redis-server as a shared tier."""

    def __init__(self, directory):
        self.server = RedisServer(directory, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
        self.config = {"l2.url": self.server.url}

    def kill_and_start(self):
        self.server.restart()

    def stall(self):
        self.server.signal(signal.SIGSTOP)

    def go_on(self):
        self.server.signal(signal.SIGCONT)

    def ready(self):
        pass

    def finish(self):
        self.server.stop()


class KvtierdPeer:
    """kvtierd as a shared tier."""

    def __init__(self, directory):
        config = {
            "segment.size": "32MiB",
            "lease.ttl_max": "1s",
            "cache.nvme.path": str(directory / "kvtierd-store"),
            "cache.nvme.capacity": "64MiB",
        }
        self.daemon = Kvtierd(directory, config).wait_up()
        self.config = {
            "l2.url": self.daemon.url,
            "l2.segment": self.daemon.segment_name,
            "l2.lease_time": "1s",
        }

    def kill_and_start(self):
        self.daemon.restart(kill=True)

    def stall(self):
        self.daemon.signal(signal.SIGSTOP)

    def go_on(self):
        self.daemon.signal(signal.SIGCONT)

    def ready(self):
        self.daemon.wait_writable()

    def finish(self):
        try:
            self.daemon.stop()
        finally:
            self.daemon.remove()


PEERS = {"redis": RedisPeer, "kvtierd": KvtierdPeer}


@pytest.fixture(params=PEERS)
def peer(request, tmp_path):
    if request.param == "redis" and SERVER is None:
        pytest.skip("no redis-server")
    if request.param == "kvtierd" and not KVTIERD.exists():
        pytest.fail(f"{KVTIERD} is missing")
    peer = PEERS[request.param](tmp_path)
    yield peer
    peer.finish()


@pytest.fixture
def drives(tmp_path, peer):
    """drives(): another process over the same shared tier and its own files."""
    made = []

    def make(number=0, **more):
        config = {
            "l1.capacity": "16MiB",
            "nvme.path": str(tmp_path / f"store{number}"),
            "nvme.capacity": "32MiB",
            **peer.config,
            **more,
        }
        made.append(Drive(tmp_path, config, name=f"drive{number}"))
        return made[-1].wait_open(60)

    yield make
    for drive in made:
        drive.kill()


def run(drive, seconds, percent=30):
    drive.send("run", SEED, int(seconds * 1000), 2, CHAINS, DEPTH, LEAST, MOST, LIMIT_MS, percent)


def judge(lines, slack=SLACK):
    """No wrong byte; no call waited past the limit. Returns the last sums, if any."""
    wrong, sums = sums_of(lines)
    assert not wrong, wrong[:5]
    if sums is None:
        return None
    assert sums["wrong"] == 0 and sums["errors"] == 0, sums
    slowest = max(sums["slowest_find_ns"], sums["slowest_get_ns"]) / 1e9
    assert slowest < (LIMIT_MS / 1000 + slack) * PATIENCE, sums
    return sums


def test_what_one_process_stores_another_gets(drives, peer):
    peer.ready()
    first, second = drives(0), drives(1)
    assert first.ask("put", SEED, 10, 100000)["put"] == 10
    assert first.ask("drain", 10000)["drained"]

    def whole():
        second.ask("find", SEED, 10, 1000)
        got = second.ask("get", SEED, 10, 100000, 2000)
        assert got["wrong"] == 0, got
        return got["got"] == 10 and got

    assert until(whole, 15, "all ten chunks")["tiers"][2] > 0
    first.finish()
    second.finish()


def test_the_library_is_killed_at_any_moment(drives, peer):
    peer.ready()
    rng, got = random.Random(SEED), 0
    steady = drives(1)
    run(steady, 600)
    for _ in range(ROUNDS):
        drive = drives(0)
        run(drive, 600)
        time.sleep(rng.uniform(0.05, 0.6))
        drive.kill()
        sums = judge(drive.lines())
        got += sums["got"] if sums else 0
    judge(steady.lines())
    steady.kill()
    assert got > 0
    last = drives(0)  # its store and the shared tier are still of use
    run(last, 1, percent=0)
    assert judge(last.answer("run")["passed"])["got"] > 0
    last.finish()


def test_the_shared_tier_is_killed_at_any_moment(drives, peer):
    peer.ready()
    rng, drive = random.Random(SEED), drives(0)
    run(drive, ROUNDS * 0.8 + 2)
    for _ in range(ROUNDS):
        time.sleep(rng.uniform(0.05, 0.5))
        peer.kill_and_start()
    sums = judge(drive.answer("run", seconds=120)["passed"])
    assert sums["got"] > 0 and sums["puts"] > 0, sums
    stores = drive.ask("stats")["l2"]["stores"]

    def stored_again():
        drive.ask("put", SEED + 1000 + int(time.monotonic() * 50), 3, 100000)
        return drive.ask("stats")["l2"]["stores"] > stores

    until(stored_again, 30, "it is used again by itself")
    drive.finish()


def test_the_shared_tier_stalls(drives, peer):
    """Stopped for longer than any limit: lookups stay within theirs, the breaker opens, and all is
    well again by itself."""
    peer.ready()
    drive = drives(0)
    assert drive.ask("put", SEED + 5000, 6, 100000)["put"] == 6
    assert drive.ask("drain", 10000)["drained"]
    run(drive, 6, percent=20)
    time.sleep(0.5)
    for _ in range(2):
        peer.stall()
        time.sleep(2)
        peer.go_on()
        time.sleep(0.5)
    sums = judge(drive.answer("run", seconds=60)["passed"])
    assert sums["got"] > 0, sums
    assert drive.ask("stats")["l2"]["trips"] > 0
    until(lambda: drive.ask("stats")["l2"]["state"] == 1, 15, "the tier works again")
    drive.finish()


def test_the_library_stalls_while_it_reads(drives, peer):
    """A reader that is stopped for longer than its leases and deadlines uses nothing of them."""
    peer.ready()
    rng, drive, other = random.Random(SEED), drives(0), drives(1)
    run(other, 8, percent=60)  # memory is given to others meanwhile
    run(drive, 8)
    for _ in range(3):
        time.sleep(rng.uniform(0.1, 0.5))
        drive.signal(signal.SIGSTOP)
        time.sleep(1.6)
        drive.signal(signal.SIGCONT)
    judge(drive.answer("run", seconds=60)["passed"], slack=30)
    judge(other.answer("run", seconds=60)["passed"])
    drive.finish()
    other.finish()
