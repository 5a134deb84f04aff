"""kvtierd killed and started again under clients that go on reading by the leases they have.

A client cannot know that the daemon was restarted: as long as its lease lasts, by its own clock, the
bytes must stay what they were. Objects' bytes are a function of their names.
"""

import os
import random
import threading
import time

import pytest

from rig.kvtierd import Kvtierd, lease_of, take
from rig.wait import until
from rig.wire import Closed

SEED = int(os.environ.get("KVW_SEED", "1"))
ROUNDS = int(os.environ.get("KVW_ROUNDS", "4"))
TTL = 1.5
NAMES = 120
ERRORS = (OSError, Closed)


def path_of(number):
    return f"/v1/kv/lmcache/object@{number}"


def bytes_of(number):
    rng = random.Random(number)
    return rng.randbytes(rng.randrange(1000, 150000))


@pytest.fixture
def daemon(tmp_path):
    config = {
        "segment.size": "4MiB",  # a quarter of the objects
        "lease.ttl_max": f"{int(TTL * 1000)}ms",
        "cache.nvme.path": str(tmp_path / "store"),
        "cache.nvme.capacity": "64MiB",
        "cache.nvme.sync_time": "100ms",
    }
    daemon = Kvtierd(tmp_path, config)
    try:
        daemon.wait_up()
        yield daemon
        daemon.stop()
    finally:
        daemon.remove()


class Clients:
    """Threads that store, lease and read at random, and hold what they read to its name."""

    def __init__(self, daemon, readers=3, writers=2):
        self.daemon, self.segment = daemon, daemon.segment()
        self.ended, self.wrong, self.failures = False, [], []
        self.read = self.stored = 0
        self.data = [bytes_of(number) for number in range(NAMES)]
        runs = [self.reader] * readers + [self.writer] * writers
        self.threads = [
            threading.Thread(target=self.guard, args=(run, random.Random(SEED * 100 + i)))
            for i, run in enumerate(runs)
        ]
        for thread in self.threads:
            thread.start()

    def guard(self, run, rng):
        while not self.ended:
            try:
                with self.daemon.client(timeout=3) as client:
                    while not self.ended:
                        run(client, rng)
            except ERRORS:
                time.sleep(0.02)  # the daemon is down
            except AssertionError as error:
                self.failures.append(error)
                return

    def writer(self, client, rng):
        number = rng.randrange(NAMES)
        status = client.ask("PUT", path_of(number), body=self.data[number]).status
        assert status in (200, 409, 503, 507), status
        self.stored += status == 200
        if status == 503:
            time.sleep(0.05)

    def reader(self, client, rng):
        """Reads again and again as long as the lease lasts, restarts of the daemon or not."""
        number, begun = rng.randrange(NAMES), time.monotonic()
        answer = client.ask("POST", f"{path_of(number)}/leases?timeout_ms=500&ttl_s={TTL}", body=b"")
        lease = lease_of(answer)
        if lease is None:
            return
        until_time = begun + (TTL if rng.random() < 0.3 else rng.random() * 0.1)
        while True:
            data = self.segment.read(lease[1])
            if time.monotonic() - begun >= TTL:
                break  # read too late: not to be used
            if data != self.data[number]:
                self.wrong.append((number, time.monotonic() - begun))
            self.read += 1
            if time.monotonic() >= until_time:
                client.ask("POST", f"/v1/leases/{lease[0]}/release")
                break
            time.sleep(0.02)

    def end(self):
        self.ended = True
        for thread in self.threads:
            thread.join(30)
        self.segment.close()
        assert not self.failures, self.failures[0]
        assert not self.wrong, self.wrong[:5]


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "ended"])
def test_what_is_leased_stays_over_restarts(daemon, kill):
    clients, rng = Clients(daemon), random.Random(SEED)
    inode = clients.segment.inode
    try:
        for _ in range(ROUNDS):
            time.sleep(rng.uniform(0.2, 1.0))
            stored, read = clients.stored, clients.read
            daemon.restart(kill=kill)
            again = daemon.segment()
            assert again.inode == inode
            again.close()
            until(lambda: clients.stored > stored, 20, "puts after the restart")
            until(lambda: clients.read > read, 20, "reads after the restart")
    finally:
        clients.end()
    assert clients.read > 50 and clients.stored > 20
    until(lambda: daemon.metric("kvtierd_leases") == 0, 15, "leases over")


def test_a_killed_daemon_is_warm_again(daemon):
    """What had reached the disk is there after kill -9, right or not at all."""
    with daemon.client() as client:
        for number in range(20):
            assert client.ask("PUT", path_of(number), body=bytes_of(number)).status == 200
    time.sleep(1)
    daemon.restart(kill=True).wait_writable()
    segment, warm = daemon.segment(), 0
    with daemon.client() as client:
        for number in range(20):
            data = take(client, segment, path_of(number), timeout_ms=1000)
            assert data in (None, bytes_of(number)), number
            warm += data is not None
    segment.close()
    assert warm > 0


def test_a_daemon_stopped_for_long_gives_nothing_wrong(daemon):
    """SIGSTOP beyond all leases: its clients time out; afterwards all is as it was."""
    clients = Clients(daemon)
    try:
        for _ in range(2):
            time.sleep(0.5)
            daemon.signal(19)
            time.sleep(TTL + 1)
            daemon.signal(18)
        stored = clients.stored
        until(lambda: clients.stored > stored, 20, "puts again")
    finally:
        clients.end()
    assert clients.read > 20
