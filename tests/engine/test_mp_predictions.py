"""What kvaware knows of real engines by the reports of LMCache's servers, whose coordinator kvway is.

Each of two engines has a stock `lmcache server` of its own. A prediction is right when it is within one chunk of
what the engine says was cached: all that its server loaded, in the first case, where the engine keeps nothing itself;
what it kept and what its server loaded beyond that, in the second, where it has room for a few talks and publishes
its own events, too.

    KVW_CHUNK   tokens of a chunk   (default 64; LMCache's is 256)
    KVW_TURNS   turns to play       (default 500)
"""

import json
import os
import pathlib
import random
import time

import pytest

from mixed import prose
from mp_server import MPServer, reporting_to
from rig.router import Router
from rig.wait import until, unused_port
from server import START_SECONDS, VENV, Engine
from talks import CONFIG, Talks, report, run
from told import complete

CHUNK = int(os.environ.get("KVW_CHUNK", "64"))
TURNS = int(os.environ.get("KVW_TURNS", "500"))
FULL = 2
PAUSE = 0.85
LMCACHE = pathlib.Path(VENV) / "bin" / "lmcache"
pytestmark = pytest.mark.skipif(not LMCACHE.exists(), reason="no LMCache in the engines' environment (README.md)")


class MPEngine(Engine):
    """One whose cache goes on in a server. blocks: how many of 32 tokens it keeps itself; 0: none."""

    name = "mp"

    def __init__(self, directory, number, server, blocks):
        self.server, self.keeps = server, blocks > 0
        self.blocks = blocks or super().blocks
        super().__init__(directory, number)

    def environment(self):
        return {"MAXLEN": "4096"} if self.keeps else {"MAXLEN": "4096", "EVENTS": "0"}

    def options(self):
        connected = ["--kv-transfer-config", json.dumps(self.server.connector())]
        return connected if self.keeps else [*connected, "--no-enable-prefix-caching"]


def hasty(router):
    """Prompts that grow every PAUSE seconds, one at a time: sooner than a server reports, which is once a second."""
    rng, rows = random.Random(1), []
    for number in range(8):
        text = prose(rng, 1000)
        for _ in range(8):
            due = time.monotonic() + PAUSE
            rows.append((number, complete(router, text)))
            text += prose(rng, 500)
            time.sleep(max(0, due - time.monotonic()))
    return rows


@pytest.mark.parametrize("blocks", [0, 256], ids=["the server alone", "an engine that keeps some"])
def test_talks(tmp_path, request, blocks):
    coordinator, running = unused_port(), []
    try:
        servers, engines = [], []
        for number in range(2):
            options = "--chunk-size", CHUNK, "--l1-size-gb", "1", *reporting_to(coordinator, f"mp-{number}")
            servers.append(MPServer(LMCACHE, tmp_path / f"lmcache{number}.log", *options))
            running.append(servers[-1])
        until(lambda: all(server.has_answered() for server in servers), START_SECONDS, "servers up")
        for number in range(2):
            engines.append(MPEngine(tmp_path, number, servers[number], blocks))
            running.append(engines[-1])
        rows = [{"url": e.url, "lmcache_instance": f"mp-{e.number}"} for e in engines]
        own = {"kvaware.lmcache.coordinator": f"127.0.0.1:{coordinator}", "kvaware.lmcache.chunk_size": CHUNK}
        router = Router(tmp_path, engines, {**CONFIG, **own, "workers": rows})
        running.append(router)
        until(lambda: all(engine.healthy() for engine in engines), START_SECONDS, "engines up")
        router.wait_up(engines)
        coverage = lambda e: router.metric("kvway_worker_cache_coverage", worker=e.url, reporter="lmcache")  # noqa: E731
        until(lambda: all(coverage(e) == FULL for e in engines), 60, "the servers' coverage")
        until(lambda: all(router.metric("kvway_worker_usable", worker=e.url) for e in engines), 60, "both in use")
        talks = Talks(7, rounds=5)
        seen = run(router, talks, talks.turns[:TURNS])
        share = report(router, request.node.callspec.id, seen, CHUNK)
        assert share >= 0.95 and report(router, "asked again between two reports", hasty(router), CHUNK) >= 0.95
        assert sum(one.actual for _, one in seen) > 0.3 * sum(one.prompt for _, one in seen)
    finally:
        for process in reversed(running):
            process.kill()
