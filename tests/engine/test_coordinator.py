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
import yaml

from lmc import PYTHON, START_SECONDS
from rig.lmcache_node import LMCacheNode, SharedL2
from rig.lmcache_server import LMCacheServer
from rig.router import Router, with_parent
from rig.sim import Sim
from rig.wait import Port, until

ROUNDS = int(os.environ.get("KVW_ROUNDS", "500"))
PROMPTS = 1000
CHUNK = 16


RENDERED = pathlib.Path(__file__).parents[1] / "integration/data/render/lmcache_server.golden.yaml"
READ_ARGUMENTS = """
import argparse, json, sys
from lmcache.cli.commands.server import ServerCommand
from lmcache.integration.vllm.mp_server_launcher import MPServerAutostartConfig
from lmcache.v1.distributed.config import parse_args_to_config
from lmcache.v1.multiprocess.config import parse_args_to_coordinator_config
command = MPServerAutostartConfig.from_extra_config(json.loads(sys.argv[1]), "tcp://localhost", 5555).command()
parser = argparse.ArgumentParser()
ServerCommand().add_arguments(parser)
args = parser.parse_args(command[3:])
(adapter,) = parse_args_to_config(args).l2_adapter_config.adapters
print(json.dumps([parse_args_to_coordinator_config(args).url, adapter.host, adapter.port, adapter.shared]))
"""


def test_lmcache_takes_the_arguments_that_kvway_renders():
    (args,) = [
        d["spec"]["template"]["spec"]["containers"][0]["args"]
        for d in yaml.safe_load_all(RENDERED.read_text())
        if (d["kind"], d["metadata"]["name"]) == ("Deployment", "search-worker")
    ]
    extra = json.loads(args[args.index("--kv-transfer-config") + 1])["kv_connector_extra_config"]
    quiet = {**os.environ, "LMCACHE_TRACK_USAGE": "false", "DO_NOT_TRACK": "1", "LMCACHE_LOG_LEVEL": "ERROR"}
    done = subprocess.run([PYTHON, "-c", READ_ARGUMENTS, json.dumps(extra)], stdout=subprocess.PIPE, text=True, check=True, env=quiet)
    domain = "default.svc.cluster.local"
    read = json.loads(done.stdout.splitlines()[-1])
    assert read == [f"http://search-coordinator.{domain}:9300", f"search-redis.{domain}", 6379, True]


class StockCoordinator:
    """`lmcache coordinator` of LMCache 0.5.6."""

    def __init__(self, directory):
        self.port = Port()
        self.address = f"127.0.0.1:{self.port.number}"
        self.log_path = directory / "coordinator.log"
        self.popen = subprocess.Popen(
            with_parent([
                pathlib.Path(PYTHON).parent / "lmcache", "coordinator", "--host", "127.0.0.1",
                "--port", str(self.port.number), "--chunk-size", str(CHUNK),
                "--eviction-check-interval", "0", "--instance-timeout", "3600",
            ]),
            stdout=open(self.log_path, "ab"),
            stderr=subprocess.STDOUT,
            env={**os.environ, "LMCACHE_TRACK_USAGE": "false", "DO_NOT_TRACK": "1"},
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
        "kvaware.lmcache.heartbeat_timeout": "1h", "kvaware.lmcache.chunk_size": str(CHUNK),
        "kvaware.lmcache.l2_evict": "false",
    }  # fmt: skip
    router = Router(tmp_path, sim.workers, config)
    router.wait_up(sim.workers)
    clients = LMCacheServer(stock.address), LMCacheServer(address)

    def ask(method, path, body=None):
        theirs, ours = (client.ask(method, path, body) for client in clients)
        assert theirs[0] == ours[0], (method, path, theirs, ours)
        return theirs[1], ours[1]

    ask.addresses = stock.address, address
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
            LMCacheServer("", f"mp-{i}", chunk=CHUNK, incarnation=100, ranks=1 + i % 2, blake3=True)
            for i in range(4)
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

    def operate(self):
        """What an operator does: quotas and pins."""
        roll = self.random.random()
        salt = self.random.choice(["_default", "tenant-a", "x"])
        if roll < 0.3:
            body = {"limit_gb": self.random.choice([0, 0.5, 1e-5, 3])}
            self.equal("PUT", f"/quota/{salt}", body)
        elif roll < 0.4:
            self.equal("DELETE", f"/quota/{salt}")
        elif roll < 0.5:
            self.equal("PUT", "/quota/config", {"default_limit_gb": self.random.choice([None, 0, 0.25])})
        else:
            self.equal(self.random.choice(["POST", "DELETE"]), "/cache/pins", self.tokens())

    def tokens(self):
        prompt = self.random.choice(self.prompts)
        return {
            "model_name": self.servers[0].model, "world_size": self.random.choice([1, 2]),
            "token_ids": prompt[: self.random.randrange(1, len(prompt))],
            "cache_salt": self.random.choice(["", "tenant-a", "x"]),
        }  # fmt: skip

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
        for path in ("/quota", "/quota?tier=l1", "/quota/_default", "/quota/tenant-a", "/quota/x?tier=l1",
                     "/quota/config", "/cache/pins", "/cache/pins?limit=3&offset=5&cache_salt=x"):  # fmt: skip
            self.equal("GET", path)
        for _ in range(prompts):
            self.equal("POST", "/directory/lookup", self.tokens())
            server, prompt = self.random.choice(self.servers), self.random.choice(self.prompts)
            keys = [e["key"] for e in server.entries(prompt, salt=self.random.choice(["", "tenant-a", "x"]))]
            self.equal("POST", "/directory/lookup", {"keys": keys})


WRONG = [
    ("PUT", "/quota/x", {}),
    ("PUT", "/quota/x", {"limit_gb": -1}),
    ("PUT", "/quota/x", {"limit_gb": 1, "tier": "l1"}),
    ("PUT", "/quota/x", {"limit_gb": 1, "tier": "l3"}),
    ("PUT", "/quota/config", {"default_limit_gb": -1}),
    ("PUT", "/quota/config", {"default_limit_gb": 1, "tier": "all"}),
    ("GET", "/quota?tier=all", None),
    ("GET", "/quota/x?tier=all", None),
    ("GET", "/quota/config?tier=l1", None),
    ("DELETE", "/quota/x?tier=l1", None),
    ("DELETE", "/quota/config", None),
    ("POST", "/quota", None),
    ("POST", "/cache/pins", {"model_name": "m", "token_ids": [1]}),
    ("POST", "/cache/pins", {"model_name": "m@x", "world_size": 1, "token_ids": [1] * CHUNK}),
    ("POST", "/cache/pins", {"model_name": "m", "world_size": 1, "token_ids": [1], "cache_salt": "a/b"}),
    ("GET", "/cache/pins?limit=0", None),
    ("POST", "/directory/lookup", {"token_ids": [1] * CHUNK}),
    ("POST", "/cache/prefetches", {"instance_id": "none", "model_name": "m", "world_size": 1}),
    ("POST", "/cache/delete", {"instance_id": "none", "model_name": "m", "world_size": 1}),
    ("POST", "/cache/delete", {"instance_id": "none", "model_name": "m", "world_size": 1, "tier": "x"}),
    ("GET", "/cache/prefetches/none/r", None),
    ("GET", "/cache/prefetches/none", None),
]


def test_wrong_requests_have_the_same_status(both):
    for method, path, body in WRONG:
        both(method, path, body)


def test_what_servers_are_asked_is_the_same(both):
    """Prefetches and deletions, with a pin in the way: the answers, and what the server got."""
    node = LMCacheNode("", "mp-node", chunk=CHUNK, blake3=True, l2=SharedL2())
    try:
        body = {"instance_id": "mp-node", "ip": "127.0.0.1", "http_port": node.http.server_address[1]}
        both("POST", "/instances", body)
        tokens = {"model_name": node.model, "world_size": 2, "token_ids": list(range(5 * CHUNK + 3)), "cache_salt": "t"}
        named = {**tokens, "instance_id": "mp-node"}
        pinned = {**tokens, "token_ids": list(range(2 * CHUNK))}
        asked = [
            ("POST", "/cache/prefetches", named), ("POST", "/cache/prefetches", {**named, "token_ids": [1]}),
            ("GET", "/cache/prefetches/mp-node/r-1", None), ("GET", "/cache/prefetches/mp-node/r-2", None),
            ("POST", "/cache/pins", pinned), ("POST", "/cache/delete", named),
            ("POST", "/cache/delete", {**named, "tier": "l1"}), ("POST", "/cache/delete", {**named, "force": True}),
            ("GET", "/cache/pins", None), ("POST", "/cache/delete", {**named, "token_ids": [1]}),
        ]  # fmt: skip
        for method, path, body in asked:
            node.asked.clear()
            theirs, ours = both(method, path, body)
            assert theirs == ours, (method, path)
            assert len(node.asked) in (0, 2) and node.asked[:1] == node.asked[1:], (method, path)
        node.fault = "refuse"
        for method, path, body in asked[:3] + asked[5:6]:
            both(method, path, body)
    finally:
        node.close()


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
        fleet.operate()
        if round_ % 50 == 49:
            fleet.check(20)
    fleet.check(PROMPTS)


class Recorded(Fleet):
    """The same servers, whose life goes into an event trace, a file each."""

    def __init__(self, seed, ask):
        super().__init__(seed, ask)
        self.rows = []
        for server in self.servers:
            self.note("lifecycle", self.start(server.instance, 1))

    def start(self, instance, port):
        return {"phase": "start", "instance_id": instance, "incarnation": 0, "ip": "127.0.0.1", "http_port": port}

    def note(self, kind, args):
        self.rows.append({"t": len(self.rows), "kind": kind, "args": args})

    def equal(self, method, path, body=None):
        if path == "/events":
            for batch in body["batches"]:
                self.note("batch", batch)
        elif path == "/instances":
            self.note("lifecycle", self.start(body["instance_id"], body["http_port"]))
        elif method == "DELETE":
            instance = path.rsplit("/", 1)[1]
            self.note("lifecycle", {"phase": "stop", "instance_id": instance})


def test_event_traces_replayed_by_lmcache_leave_both_coordinators_alike(both, tmp_path):
    """LMCache's recorder writes the traces, its `lmcache trace replay-events` replays them into both."""
    fleet = Recorded(7, both)
    for _ in range(ROUNDS):
        fleet.step()
    quiet = {**os.environ, "LMCACHE_TRACK_USAGE": "false", "DO_NOT_TRACK": "1", "LMCACHE_LOG_LEVEL": "WARNING"}
    script = pathlib.Path(__file__).parent / "events_trace.py"
    text = "".join(json.dumps(row) + "\n" for row in fleet.rows)
    subprocess.run([PYTHON, script, tmp_path], input=text, text=True, check=True, env=quiet)
    files = [tmp_path / f"{server.instance}.lct" for server in fleet.servers]
    replays = [
        subprocess.Popen(
            [pathlib.Path(PYTHON).parent / "lmcache", "trace", "replay-events", *files,
             "--coordinator-url", f"http://{address}", "--heartbeat-interval", "0"],
            env=quiet, stdout=subprocess.DEVNULL,
        )
        for address in both.addresses
    ]  # fmt: skip
    assert [replay.wait() for replay in replays] == [0, 0]
    Fleet(7, both).check(PROMPTS)
