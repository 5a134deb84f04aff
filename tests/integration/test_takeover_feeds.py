"""What a new kvway knows of the caches after it has taken over, and the addresses at which engines connect."""

import http.client
import json
import threading

import pytest

from rig.kvaware import SHOWN, complete, coverage, direct, ids, wait_coverage, wait_heard
from rig.lmcache_server import LMCacheServer
from rig.router import settle
from rig.sim import Sim
from rig.takeover import Line
from rig.wait import Port, until

CHUNK = 32


@pytest.fixture
def stage(tmp_path):
    """stage(config, *options, count=...): kvways that take over from each other, before workers with caches."""
    made = []

    def make(config, *options, count=2, plain=0, instance=""):
        sims = [Sim(tmp_path, count, "--port", 0, *options, name=f"sim{len(made)}")]
        if plain > 0:
            sims.append(Sim(tmp_path, plain, "--port", 0, name="plain"))
        made.extend(sims)
        workers = [worker for sim in sims for worker in sim.workers]
        rows = [{"url": worker.url} for worker in workers]
        if instance:  # of the first one: an address that several share does not show it
            rows[0]["lmcache_instance"] = instance
        line = Line(tmp_path, workers, {"http.decision_headers": "always", "workers": rows, **config})
        made.append(line)
        line.sims = sims
        line.first()
        return line, workers

    yield make
    for one in reversed(made):
        one.stop() if isinstance(one, Line) else one.kill()


def events(**config):
    return "--kv-events-config", json.dumps({"enable_kv_cache_events": True, "publisher": "zmq", **config})


def predicted(line, seeds):
    return sum(complete(line, ids(seed, 200) + [1] * 20).predicted for seed in seeds)


def test_the_new_one_waits_until_feeds_have_replayed(stage):
    """From its first request on it predicts as the one before."""
    line, workers = stage(
        SHOWN, *events(endpoint="tcp://*:0", replay_endpoint="tcp://*:0", topic="kv@tiny")
    )
    wait_coverage(line, workers, "engine")
    for seed in range(20):
        direct(workers[seed % 2], ids(seed, 200))
    wait_heard(line, workers)
    assert predicted(line, range(20)) == 20 * 192
    before = predicted(line, range(20))
    line.upgrade(wait=False)
    assert predicted(line, range(20)) == before
    assert all(coverage(line, worker, "engine") == 2 for worker in workers)


def test_what_the_old_one_has_learned_is_handed_over(stage):
    """Also without state.file: the prefix tree, with all of the last moment."""
    line, _ = stage({"routing.strategy": "prefixaware"})
    seeds = range(30)
    until(lambda: predicted(line, [1000]) > 0, 20, "workers that are known")
    predicted(line, seeds)
    before = predicted(line, seeds)
    assert before > 0
    old = line.upgrade()
    assert "snapshot read file=handed-over" in line.log()
    assert abs(predicted(line, seeds) - before) <= 0.02 * before
    assert "snapshot for the process that takes over" in old.log()
    assert line.metric("kvway_state_snapshots_total") == 0


def test_engines_that_connect_come_over(stage):
    """None of them is refused; what they published meanwhile is made good by their replay sockets."""
    held = Port()
    bound = f"tcp://127.0.0.1:{held.number}"
    line, workers = stage(
        {**SHOWN, "kvaware.events.bind": bound},
        *events(endpoint=bound, replay_endpoint="tcp://*:0", topic="kv@127.0.0.1:{port}@tiny"),
    )
    wait_coverage(line, workers, "engine")
    settle(0.5)
    for turn in range(3):
        direct(workers[0], ids(turn, 200))
        before = line.upgrade()
        direct(workers[1], ids(100 + turn, 200))
        assert "not adopted" not in line.log()
        settle(1)
        for i in range(2):  # shows a gap, if there is one
            direct(workers[i], ids(1000 + 2 * turn + i, 200))
        until(lambda: line.metric("kvway_kvaware_feed_handover_seconds") > 0, 10, "the gap is known")
        wait_coverage(line, workers, "engine")
        for at, seed in ((0, turn), (1, 100 + turn)):
            until(lambda: right(line, seed, workers[at]), 10, f"what was published in turn {turn}")
        assert before.wait(30) == 0
    held.close()


def right(line, seed, worker):
    got = complete(line, ids(seed, 200) + [1] * 20)
    return (got.worker, got.predicted, got.cached) == (worker.url, 192, 192)


@pytest.fixture
def lmcache(stage):
    """lmcache(config): kvways that are LMCache's controller, its one worker, and another worker."""
    ports = [Port() for _ in range(3)]
    pull, reply, beat = (f"127.0.0.1:{port.number}" for port in ports)
    at = {"kvaware.lmcache.pull": pull, "kvaware.lmcache.reply": reply, "kvaware.lmcache.heartbeat": beat}
    fixed = {**SHOWN, **at, "kvaware.lmcache.chunk_size": CHUNK, "kvaware.lmcache.detect": False}
    options = ("--lmcache-controller", f"pull={pull},reply={reply}", "--lmcache-instance", "i0")

    def make(config=None, plain=0):
        line, workers = stage(
            {**fixed, **(config or {})},
            *(*options, "--lmcache-chunk-size", CHUNK, "--lmcache-heartbeat-s", 0.2),
            count=1,
            plain=plain,
            instance="i0" if plain > 0 else "",
        )
        wait_coverage(line, workers[:1], "lmcache")
        return line, workers[0]

    yield make
    for port in ports:
        port.close()


def wait_known(line, worker, prompts):
    """Until the worker has stored so many of 300 tokens, and the newest kvway knows it."""

    def counts():
        return line.metric("kvway_kvaware_lmcache", what="keys"), worker.stats()["lmcache"]["chunks"]

    until(lambda: counts() == (9 * prompts, 9 * prompts), 10, "all chunks to be known")


def test_lmcache_workers_come_over(lmcache):
    """Upgrades follow each other, and none asks for a full sync, which a worker would refuse the second time."""
    line, worker = lmcache()
    complete(line, ids(1, 300))
    for turn in range(2):
        wait_known(line, worker, turn + 1)
        line.upgrade()
        assert "not adopted" not in line.log()
        until(lambda: line.metric("kvway_kvaware_feed_handover_seconds") > 0, 10, "the gap is known")
        wait_coverage(line, [worker], "lmcache", seconds=2)
        complete(line, ids(100 + turn, 300))  # what follows is heard as well
    wait_known(line, worker, 3)
    assert worker.stats()["lmcache"]["syncs"] == 0
    assert line.metric("kvway_kvaware_lmcache_total", what="recalled") == 2 * 9
    assert line.metric("kvway_kvaware_feed_total", what="gaps") == 0
    worker.ask("POST", "/reset_prefix_cache")
    for seed in (1, 100, 101):
        got = complete(line, ids(seed, 300))
        assert (got.predicted, got.cached) == (288, 288)


def test_a_worker_that_goes_before_an_upgrade_is_forgotten(lmcache):
    """The old process has not noticed it; the new one finds it down, and does not believe what was handed over."""
    line, worker = lmcache({"health.interval": "1h", "kvaware.lmcache.heartbeat_timeout": "1h"}, plain=1)
    direct(worker, ids(1, 300))
    wait_known(line, worker, 1)
    line.sims[0].kill()
    line.upgrade({"health.interval": "200ms", "takeover.timeout": "10s"})
    until(lambda: line.metric("kvway_kvaware_lmcache_total", what="recalled") == 9, 10, "what came over")
    until(lambda: line.metric("kvway_kvaware_lmcache", what="keys") == 0, 10, "it to be forgotten")


@pytest.fixture
def coordinator(stage):
    """coordinator() -> kvways that are LMCache's coordinator, their worker, and a server that reports."""
    port = Port()

    def make():
        line, workers = stage(
            {
                **SHOWN, "kvaware.lmcache.coordinator": f"127.0.0.1:{port.number}",
                "kvaware.lmcache.chunk_size": CHUNK,
            },
            count=1,
        )  # fmt: skip
        server = LMCacheServer(f"127.0.0.1:{port.number}", chunk=CHUNK, blake3=True)
        server.register(metadata={"zone": "a"})
        server.config()
        server.store(ids(1, 2 * CHUNK))
        wait_coverage(line, workers, "lmcache")
        return line, workers, server

    yield make
    port.close()


def listed(server):
    return sorted(server.ask("GET", "/directory/keys")[1]["keys"], key=lambda row: row["key"]["chunk_hash_hex"])


def test_what_the_coordinator_knows_comes_over(coordinator):
    line, workers, server = coordinator()
    shared = {"tier": "l2", "backend": "fs", "shared": True}
    for seed in (3, 4):
        server.send(server.batch("store", server.entries(ids(seed, 3 * CHUNK), known=False, salt="t-a"), **shared))
    body = {"model_name": server.model, "world_size": 1, "token_ids": ids(3, 2 * CHUNK), "cache_salt": "t-a"}
    assert server.ask("POST", "/cache/pins", body)[0] == 200
    assert server.ask("PUT", "/quota/t-a", {"limit_gb": 1})[0] == 200
    assert server.ask("PUT", "/quota/config", {"default_limit_gb": 2})[0] == 200
    paths = ("/instances", "/instances/usage", "/directory/stats", "/quota", "/quota/config", "/cache/pins")
    before = [server.ask("GET", path) for path in paths]
    keys = listed(server)
    line.upgrade()
    assert [server.ask("GET", path) for path in paths] == before
    assert listed(server) == keys
    until(lambda: line.metric("kvway_kvaware_coordinator_total", what="recalled") == 8, 5, "the metric")
    wait_coverage(line, workers, "lmcache")
    assert complete(line, ids(1, 2 * CHUNK) + [1] * 5).predicted == 2 * CHUNK
    assert server.beat() == 200
    assert server.store(ids(2, CHUNK)) == {"applied": 1, "duplicates": 0, "stale": 0}
    wait_coverage(line, workers, "lmcache")
    assert server.send({**server.batch("store"), "seq": 1})["duplicates"] == 1


def test_a_report_that_neither_coordinator_got_is_a_gap(coordinator):
    line, workers, server = coordinator()
    line.upgrade()
    server.batch("store", lost=True)
    server.store(ids(2, CHUNK))
    wait_coverage(line, workers, "lmcache", 1)


def test_a_server_that_reports_all_the_time_is_known_whole_after_each_upgrade(coordinator):
    """A thread reports one chunk after the other by one kept connection, as LMCache's servers do."""
    line, workers, server = coordinator()
    done, faults = threading.Event(), []

    def report():
        connection, seed = http.client.HTTPConnection(server.address, timeout=20), 100
        while not done.is_set():
            seed += 1
            body = json.dumps({"batches": [server.batch("store", server.entries(ids(seed, CHUNK)))]})
            for _ in range(2):  # an idle connection may be closed at any time
                try:
                    connection.request("POST", "/events", body)
                    answer = connection.getresponse()
                    if answer.status != 200 or json.loads(answer.read())["stale"]:
                        faults.append(answer.status)
                    break
                except OSError:
                    connection.close()
        connection.close()

    thread = threading.Thread(target=report)
    thread.start()
    try:
        for _ in range(3):
            line.upgrade()
    finally:
        done.set()
        thread.join()
    assert not faults
    stats = server.ask("GET", "/directory/stats")[1]
    assert stats["l1_count"] == 2 + server.seq - 2
    wait_coverage(line, workers, "lmcache")
    assert line.metric("kvway_kvaware_coordinator_total", what="gaps") == 0
