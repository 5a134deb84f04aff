"""kvway and stock LMCache's coordinator get the same requests from servers that restart, lose, repeat and
reorder batches; both must answer the same about what is where.

Left out on purpose: shared L1 pools, whose bytes kvway drops with their last reporter while LMCache's usage
view keeps them for ever.
"""

import json
import os
import pathlib
import random
import subprocess

import pytest

from lmc import PYTHON, START_SECONDS
from rig.lmcache_server import LMCacheServer
from rig.router import Router, die_with_parent
from rig.sim import Sim
from rig.wait import Port, until

ROUNDS = int(os.environ.get("KVW_ROUNDS", "500"))
PROMPTS = 1000
CHUNK = 16


class StockCoordinator:
    """`lmcache coordinator` of LMCache 0.5.6."""

    def __init__(self, directory):
        self.port = Port()
        self.address = f"127.0.0.1:{self.port.number}"
        self.log_path = directory / "coordinator.log"
        self.popen = subprocess.Popen(
            [
                pathlib.Path(PYTHON).parent / "lmcache", "coordinator", "--host", "127.0.0.1",
                "--port", str(self.port.number), "--chunk-size", str(CHUNK),
                "--eviction-check-interval", "0", "--instance-timeout", "3600",
            ],
            stdout=open(self.log_path, "ab"),
            stderr=subprocess.STDOUT,
            env={**os.environ, "LMCACHE_TRACK_USAGE": "false", "DO_NOT_TRACK": "1"},
            preexec_fn=die_with_parent,
        )  # fmt: skip
        until(self._up, 5 * START_SECONDS, "the coordinator to listen")

    def _up(self):
        assert self.popen.poll() is None, self.log_path.read_text()[-3000:]
        try:
            return LMCacheServer(self.address).ask("GET", "/healthz")[0] == 200
        except OSError:
            return False

    def kill(self):
        self.popen.kill()
        self.popen.wait()
        self.port.close()


@pytest.fixture
def both(tmp_path):
    """ask(method, path, body) -> both answers, after both have the same status."""
    stock, port, sim = StockCoordinator(tmp_path), Port(), Sim(tmp_path, 1)
    address = f"127.0.0.1:{port.number}"
    config = {
        "routing.strategy": "kvaware", "kvaware.lmcache.coordinator": address,
        "kvaware.lmcache.heartbeat_timeout": "1h",
    }  # fmt: skip
    router = Router(tmp_path, sim.workers, config)
    router.wait_up(sim.workers)
    clients = LMCacheServer(stock.address), LMCacheServer(address)

    def ask(method, path, body=None):
        theirs, ours = (client.ask(method, path, body) for client in clients)
        assert theirs[0] == ours[0], (method, path, theirs, ours)
        return theirs[1], ours[1]

    yield ask
    router.kill()
    sim.kill()
    stock.kill()
    port.close()


class Fleet:
    """Servers and their random life."""

    def __init__(self, seed, ask):
        self.random, self.ask = random.Random(seed), ask
        self.servers = [
            LMCacheServer("", f"mp-{i}", chunk=CHUNK, incarnation=100, ranks=1 + i % 2) for i in range(4)
        ]
        base = self.random.choices(range(1000), k=8 * CHUNK)
        self.prompts = [
            base[: self.random.randrange(9) * CHUNK] + self.random.choices(range(1000), k=6 * CHUNK)
            for _ in range(60)
        ]
        self.kept = []

    def batch(self, server):
        roll = self.random.random()
        prompt = self.random.choice(self.prompts)
        entries = server.entries(
            prompt[: self.random.randrange(1, len(prompt))],
            known=self.random.random() < 0.7,
            salt=self.random.choice(["", "", "tenant-a"]),
            size=self.random.randrange(1, 9000),
        )
        self.random.shuffle(entries)
        entries = entries[: self.random.randrange(12)]
        bare = [{"key": entry["key"]} for entry in entries]
        place = self.random.choice(
            [
                {"tier": "l1", "backend": "dram"}, {"tier": "l1", "backend": "devdax"},
                {"tier": "l2", "backend": "fs"}, {"tier": "l2", "backend": "s3", "shared": True},
            ]  # fmt: skip
        )
        if roll < 0.5:
            return server.batch("store", entries, **place)
        if roll < 0.75:
            return server.batch("delete", bare, **place)
        if roll < 0.9:
            return server.batch("access", bare, tier=place["tier"], backend="")
        return server.batch(
            "config", capacity_bytes=self.random.choice([0, 1 << 20, 1 << 30]),
            capacity_revision=self.random.randrange(4), **place,
        )  # fmt: skip

    def step(self):
        server = self.random.choice(self.servers)
        roll = self.random.random()
        if roll < 0.05:
            server.restart()
        elif roll < 0.1:
            body = {"instance_id": server.instance, "ip": "127.0.0.1", "http_port": 1 + self.random.randrange(9)}
            self.equal("POST", "/instances", body)
        elif roll < 0.14:
            self.equal("PUT", f"/instances/{server.instance}/heartbeat")
        elif roll < 0.16:
            self.equal("DELETE", f"/instances/{server.instance}")
        batches = [self.batch(server) for _ in range(self.random.randrange(1, 4))]
        self.kept = (self.kept + batches)[-20:]
        fate = self.random.random()
        if fate < 0.05:
            return  # lost
        if fate < 0.1:
            batches += self.random.choices(self.kept, k=2)  # repeated, from other servers and times too
        elif fate < 0.15:
            self.random.shuffle(batches)
        self.equal("POST", "/events", {"batches": batches})

    def equal(self, method, path, body=None):
        theirs, ours = self.ask(method, path, body)
        assert theirs == ours, (method, path, theirs, ours)

    def check(self, prompts):
        self.equal("GET", "/instances/usage")
        for server in self.servers:
            self.equal("GET", f"/instances/{server.instance}/usage")
        theirs, ours = self.ask("GET", "/directory/stats")
        assert {**theirs, "blend": 0} == {**ours, "blend": 0}
        for query in ("limit=10000", "limit=7&offset=3&tier=l2", "tier=l1&instance_id=mp-1", "backend=s3"):
            theirs, ours = self.ask("GET", f"/directory/keys?{query}")
            assert ordered(theirs) == ordered(ours), query
        for _ in range(prompts):
            server, prompt = self.random.choice(self.servers), self.random.choice(self.prompts)
            keys = [e["key"] for e in server.entries(prompt, salt=self.random.choice(["", "tenant-a", "x"]))]
            self.equal("POST", "/directory/lookup", {"keys": keys})


def ordered(page):
    """A page whose placements are in one order: LMCache lists them by arrival."""
    for row in page["keys"]:
        row["placements"].sort(key=json.dumps)
    return page


@pytest.mark.parametrize("seed", range(2))
def test_random_servers_leave_both_coordinators_alike(both, seed):
    fleet = Fleet(seed, both)
    for round_ in range(ROUNDS):
        fleet.step()
        if round_ % 50 == 49:
            fleet.check(20)
    fleet.check(PROMPTS)
