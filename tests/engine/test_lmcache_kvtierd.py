"""Stock LMCache 0.5.6 against kvtierd: every retrieve is right or a miss, and nothing leaks."""

import random
import re
import select
import signal
import socket
import threading
import time

import pytest

import lmc
from rig.kvtierd import PROGRAM, Kvtierd
from rig.wait import Port, until

pytestmark = [
    pytest.mark.skipif(not lmc.PYTHON, reason="set KVW_LMCACHE_PYTHON, or run tests/engine/lmcache.sh"),
    pytest.mark.skipif(not PROGRAM.exists(), reason="no kvtierd: build first, and set KVW_BUILD"),
]

TOKENS = 640  # 40 chunks
# 128 KiB a chunk, so that a small segment is too small
LARGE = ("--layers", 8, "--kv-heads", 8, "--head-size", 32)
LARGE_BYTES = 131072 + 28


class Node:
    """A daemon, its segment as it was first seen, and the engines over it."""

    def __init__(self, directory):
        self.directory, self.engines, self.daemon = directory, [], None

    def start(self, config=None):
        store = {
            "cache.nvme.path": str(self.directory / "store"),
            "cache.nvme.capacity": "64MiB",
            "lease.ttl_max": "3s",
        }
        self.daemon = Kvtierd(self.directory, {**store, **(config or {})}).wait_up().wait_writable()
        self.segment = self.daemon.segment()
        return self.daemon

    def settings(self, url=None, **extra):
        extra["sagemaker_hyperpod_shared_memory_name"] = self.daemon.segment_name
        extra.setdefault("sagemaker_hyperpod_timeout_ms", 2000)
        extra.setdefault("sagemaker_hyperpod_lease_ttl_s", 3.0)
        return lmc.environment(url or self.daemon.url, **extra)

    def engine(self, *options, url=None, **extra):
        name = f"lmcache{len(self.engines)}"
        cpu_gb = 0.05 if options else 0.01
        settings = self.settings(url, **extra) | {"LMCACHE_MAX_LOCAL_CPU_SIZE": str(cpu_gb)}
        self.engines.append(lmc.LMCache(self.directory, settings, *options, name=name))
        return self.engines[-1]

    def mp(self, ttl_ms=3000):
        name = f"mp{len(self.engines)}"
        settings = {"LEASE_TTL_MS": str(ttl_ms)}
        arguments = (self.daemon.url, self.daemon.segment_name)
        self.engines.append(
            lmc.MultiProcessClient(self.directory, settings, *arguments, name=name)
        )
        return self.engines[-1]

    def check(self):
        """Nothing leaked: no lease, the same inode, and its name is there."""
        until(lambda: self.daemon.metric("kvtierd_leases") == 0, 15, "leases over")
        until(self.segment.present, 5, "the segment's name, meaning the same inode")
        assert self.daemon.metric("kvtierd_corrupt_total") == 0

    def finish(self):
        try:
            for engine in self.engines:
                engine.kill()
            if self.daemon and self.daemon.alive():
                self.check()
                self.daemon.stop()
        finally:
            if self.daemon:
                self.daemon.remove()


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path)
    yield node
    node.finish()


def test_store_lookup_retrieve_in_another_process_twice_over(node):
    """The first reader's exit removes the segment's name; the second finds it again."""
    node.start()
    writer = node.engine()
    assert writer.store(1000, TOKENS)["stored"] == TOKENS
    writer.finish()
    for _ in range(2):
        until(node.segment.present, 5, "the segment's name")
        reader = node.engine()
        assert reader.ask("lookup", 1000, TOKENS)["hit"] == TOKENS
        got = reader.ask("retrieve", 1000, TOKENS)
        assert got["hit"] == TOKENS and got["equal"] is True, got
        assert reader.ask("retrieve", 9000, TOKENS)["hit"] == 0
        reader.finish()
        node.check()
    assert node.daemon.metric("kvtierd_segment_relinked_total") >= 2


def test_a_second_store_of_the_same_is_no_failure(node):
    node.start()
    first, second = node.engine(), node.engine()
    first.store(1000, 160)
    second.store(1000, 160)
    second.ask("clear", "LocalCPUBackend")
    assert second.ask("retrieve", 1000, 160)["equal"] is True
    first.finish()
    second.finish()


def test_eviction_under_pressure(node):
    """Twelve times what the segment holds: what is evicted is a miss, what is there is right."""
    node.start({"segment.size": "4MiB", "cache.nvme.path": ""})
    writer, reader = node.engine(*LARGE), node.engine(*LARGE)
    hits = 0
    for seed in range(1000, 25000, 1000):  # 24 prompts of 16 chunks: 48 MiB
        writer.store(seed, 256)
        hits += reader.ask("retrieve", seed, 256)["hit"]
        hits += reader.ask("retrieve", random.Random(seed).randrange(1000, seed + 1, 1000), 256)["hit"]
        reader.ask("clear", "LocalCPUBackend")
    assert hits > 0
    assert writer.ask("status")["healthy"] and reader.ask("status")["healthy"]
    writer.finish()
    reader.finish()


def test_what_was_evicted_from_memory_comes_from_disk(node):
    node.start({"segment.size": "4MiB"})
    writer = node.engine(*LARGE)
    for seed in range(1000, 9000, 1000):  # 16 MiB
        writer.store(seed, 256)
    writer.finish()
    until(node.segment.present, 5, "the segment's name")
    reader = node.engine(*LARGE)
    hits = [reader.ask("retrieve", seed, 256)["hit"] for seed in range(1000, 9000, 1000)]
    assert sum(hits) > 3 * 256, hits  # more than memory holds
    reader.finish()


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "ended"])
def test_the_daemon_restarts_in_the_middle(node, kill):
    """An engine that goes on over a restart reads right bytes or none, and stores again."""
    daemon = node.start()
    engine = node.engine()
    engine.store(1000, TOKENS)
    engine.ask("clear", "LocalCPUBackend")
    assert engine.ask("retrieve", 1000, TOKENS)["hit"] == TOKENS
    time.sleep(1.5)  # the records of what was stored below are durable by then
    engine.ask("clear", "LocalCPUBackend")
    daemon.restart(kill=kill)
    assert node.segment.present(), "the inode must be the same"
    engine.ask("retrieve", 1000, TOKENS)  # right or a miss: ask() looks
    daemon.wait_writable()
    engine.ask("clear", "LocalCPUBackend")
    warm = engine.ask("retrieve", 1000, TOKENS)
    assert warm["hit"] > 0 and warm["equal"] is True, "warm from disk"
    assert engine.store(5000, 160)["stored"] == 160
    engine.ask("clear", "LocalCPUBackend")
    got = engine.ask("retrieve", 5000, 160)
    assert got["hit"] == 160 and got["equal"] is True, got
    engine.finish()
    node.check()


def test_the_daemon_is_killed_again_and_again_under_an_engine(node):
    daemon, rng = node.start({"lease.ttl_max": "500ms"}), random.Random(1)
    engine = node.engine(sagemaker_hyperpod_lease_ttl_s=0.5)
    for round_ in range(5):
        engine.store(1000 * (round_ + 1), TOKENS)
        engine.ask("clear", "LocalCPUBackend")
        killer = threading.Timer(rng.uniform(0.005, 0.2), daemon.kill)
        killer.start()
        for seed in range(1000, 1000 * (round_ + 2), 1000):
            engine.ask("retrieve", seed, TOKENS)
            engine.ask("clear", "LocalCPUBackend")
        killer.join()
        daemon.start()
        daemon.wait_up().wait_writable()
        engine.ask("retrieve", 1000, TOKENS)
        engine.ask("clear", "LocalCPUBackend")
    engine.finish()


def test_an_engine_is_killed_while_it_reads(node):
    """Its leases end by themselves."""
    node.start()
    writer = node.engine()
    writer.store(1000, TOKENS)
    rng = random.Random(1)
    victim = node.engine()
    victim.ask("retrieve", 1000, TOKENS)
    victim.ask("clear", "LocalCPUBackend")
    victim.popen.stdin.write(f"retrieve 1000 {TOKENS}\n" * 20)
    victim.popen.stdin.flush()
    time.sleep(rng.uniform(0.01, 0.1))
    victim.kill()
    writer.ask("clear", "LocalCPUBackend")
    assert writer.ask("retrieve", 1000, TOKENS)["equal"] is True
    node.check()
    writer.finish()


def test_the_client_of_multi_process_mode(node):
    node.start()
    first, second = node.mp(), node.mp()
    key = "drive/tiny@00000001@0@1d0318be153aea15aabb"
    assert first.ask("put", key, 300000)["stored"] and first.ask("put", key, 300000)["stored"]
    for client in (first, second):
        got = client.ask("get", key, 300000)
        assert got["copied"] and got["released"] and got["equal"] is True, got
        assert not client.ask("get", "nope", 10)["hit"]
    assert first.ask("status")["healthy"]
    # killed with a lease in its hands
    assert second.ask("take", key)["hit"]
    assert node.daemon.metric("kvtierd_leases") == 1
    second.kill()
    node.check()
    # a lease that is over is not used
    assert first.ask("take", key)["hit"]
    first.stall()
    time.sleep(4)
    first.go_on()
    assert first.ask("copy", 300000)["copied"] is False
    # over a restart: it maps once and looks at the inode
    time.sleep(1.5)
    node.daemon.restart(kill=True).wait_writable()
    until(lambda: first.ask("get", key, 300000)["equal"], 20, "right again after the restart")
    assert first.ask("status")["current"]
    first.finish()


class OutOfBounds:
    """Between engine and daemon: while `lies` is set, leases name offsets beyond the segment."""

    def __init__(self, port):
        self.target, self.lies, self.changed = port, False, 0
        self.listen = Port()
        self.port = self.listen.number
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", self.port))
        self.socket.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target), 5)
            threading.Thread(target=self.serve, args=(client, server), daemon=True).start()

    def serve(self, client, server):
        try:
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for end in ready:
                    data = end.recv(1 << 16)
                    if not data:
                        return
                    (server if end is client else client).sendall(
                        data if end is client else self.changed(data)
                    )
        except OSError:
            pass
        finally:
            client.close()
            server.close()

    def changed(self, data):
        def beyond(found):
            self.changed += 1
            return found[1] + b"9" * len(found[2])

        # As many digits as before, so that lengths stay true; short offsets are made huge lengths.
        pattern = rb'("(?:offset|len)": ?)(\d+)'
        return re.sub(pattern, beyond, data) if self.lies else data

    def stop(self):
        self.socket.close()
        self.listen.close()


def test_the_self_test_after_failed_gets_ends_with_the_engine_on_again(node):
    """Twice: the second time LMCache puts other bytes under the same key, and wants them back."""
    node.start()
    liar = OutOfBounds(node.daemon.port)
    engine = node.engine(
        url=f"sagemaker-hyperpod://127.0.0.1:{liar.port}",
        get_blocking_failed_threshold=1,
        waiting_time_for_recovery=1,
        ping_interval=1,
    )
    for round_ in range(2):
        seed = 1000 * (round_ + 1)
        engine.store(seed, 64)
        engine.ask("clear", "LocalCPUBackend")
        liar.lies = True
        assert engine.ask("retrieve", seed, 64)["hit"] == 0 and liar.changed > 0
        until(lambda: not engine.ask("status")["healthy"], 30, "the engine off")
        liar.lies = False
        until(lambda: engine.ask("status")["healthy"], 60, f"the engine on again, time {round_ + 1}")
        engine.ask("clear", "LocalCPUBackend")
        got = engine.ask("retrieve", seed, 64)
        assert got["hit"] == 64 and got["equal"] is True, got
    engine.finish()
    liar.stop()
    node.check()


def test_an_engine_that_stalls_beyond_its_leases(node):
    """Stopped in the middle of reads while others fill the segment: right bytes or a miss."""
    node.start({"segment.size": "8MiB", "cache.nvme.path": ""})
    reader, writer = node.engine(*LARGE), node.engine(*LARGE)
    writer.store(1000, 256)
    for round_ in range(3):
        reader.popen.stdin.write("retrieve 1000 256\nclear LocalCPUBackend\n" * 4)
        reader.popen.stdin.flush()
        time.sleep(0.05 + 0.07 * round_)
        reader.popen.send_signal(signal.SIGSTOP)
        for seed in range(2000, 8000, 1000):
            writer.store(seed * (round_ + 1), 256)
        reader.popen.send_signal(signal.SIGCONT)
        for _ in range(4):
            got = reader._next("retrieve", 60)
            assert got.get("equal") in (True, None), got
            reader._next("clear", 60)
        writer.store(1000, 256)
    reader.finish()
    writer.finish()
