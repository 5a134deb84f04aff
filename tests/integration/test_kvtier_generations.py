"""What an erase of a tenant promises: once it is answered OK no process reads what it erased after l2.seen_time, whichever
was away, restarted or late meanwhile; a table of generations that is lost is a cold cache.
"""

import os
import random
import signal
import socket
import threading
import time

import pytest

from rig.drive import Drive
from rig.client import Client, ask
from rig.kvtierd import Kvtierd, take
from rig.redis import SERVER, RedisServer
from rig.wait import PATIENCE, until

SEED = int(os.environ.get("KVW_SEED", "1"))
SECONDS = int(os.environ.get("KVW_SECONDS", "12"))
SEEN = 1.0  # l2.seen_time of rig.drive
SLACK = 0.5 * PATIENCE
BYTES = 20000

class Redis:
    """A redis-server as the shared tier."""

    def __init__(self, directory):
        if SERVER is None:
            pytest.skip("no redis-server")
        self.server = RedisServer(directory)
        self.config = {"l2.url": self.server.url}

    def finish(self):
        self.server.signal(signal.SIGCONT)
        self.server.stop()


class Node:
    """kvtierd as the shared tier."""

    def __init__(self, directory):
        config = {"segment.size": "64MiB", "cache.nvme.path": str(directory / "kvtierd-store")}
        config.update({"cache.nvme.capacity": "64MiB", "lease.ttl_max": "1s"})
        self.server = Kvtierd(directory, config).wait_up()
        self.config = {"l2.url": self.server.url, "l2.segment": self.server.segment_name, "l2.lease_time": "1s"}

    def finish(self):
        self.server.signal(signal.SIGCONT)
        try:
            self.server.stop()
        finally:
            self.server.remove()


PEERS = {"redis": Redis, "kvtierd": Node}


@pytest.fixture(params=PEERS)
def peer(request, tmp_path):
    peer = PEERS[request.param](tmp_path)
    yield peer
    peer.finish()


@pytest.fixture
def redis(peer):
    return peer.server


REDIS_ALONE = pytest.mark.parametrize("peer", ["redis"], indirect=True)


@pytest.fixture
def drives(tmp_path, peer):
    """drives(N): a process with its own files over the shared tier; drives(N, store=False): with memory alone."""
    made = []

    def make(number, store=True, **more):
        config = {"l1.capacity": "16MiB", "l2.deadline": "20s", "l2.connect_timeout": "20s", **peer.config, **more}
        if store:
            config.update({"nvme.path": str(tmp_path / f"store{number}"), "nvme.capacity": "64MiB"})
        made.append(Drive(tmp_path, config, name=f"drive{number}"))
        return made[-1].wait_open(60)

    yield make
    for drive in made:
        drive.kill()


def put(drive, chain):
    assert drive.ask("put", chain, 1, BYTES)["full"] == 0


def got(drive, chain):
    answer = drive.ask("get", chain, 1, BYTES, 2000)
    assert answer["wrong"] == 0, answer
    return answer["got"]


def stored(drive):
    assert drive.ask("drain", 10000)["drained"]


def erase(drive, chain):
    return drive.ask("erase_tenant", chain, 5000)["erased"]


def test_a_running_process_with_many_tenants(drives):
    first, second = drives(0, store=False), drives(1)
    for chain in range(300):
        put(second, chain)
        if chain % 100 == 99:
            stored(second)  # memory holds some 250 chunks, and none may be refused
    second.ask("reopen")
    assert got(second, 299) == 1
    assert erase(first, 299)
    time.sleep(SEEN + SLACK)
    assert got(second, 299) == 0
    assert got(second, 298) == 1


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_process_that_was_away(drives, how):
    first, second = drives(0, store=False), drives(1)
    put(second, 1)
    put(second, 2)
    stored(second)
    if how == "killed":
        second.kill()
        assert erase(first, 1)
        second = drives(1)
    else:
        second.signal(signal.SIGSTOP)
        assert erase(first, 1)
        time.sleep(SEEN + SLACK)
        second.signal(signal.SIGCONT)
    assert got(second, 1) == 0
    assert got(second, 2) == 1


class Late:
    """A proxy that keeps what a connection sends from its next SET on, as a network that lost segments does."""

    def __init__(self, to):
        self.to, self.hold, self.held, self.go = to, False, 0, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.to))
            threading.Thread(target=self.up, args=(client, server), daemon=True).start()
            threading.Thread(target=self.down, args=(server, client), daemon=True).start()

    def up(self, client, server):
        kept = None
        while True:
            try:
                data = client.recv(1 << 16)
            except OSError:
                data = b""
            if data and kept is None and self.hold and b"\r\nSET\r\n" in data:
                kept = b""
                self.held += 1
            if kept is None:
                if not data:
                    return server.close()
                server.sendall(data)
            elif data:
                kept += data
            else:  # the client has given up
                self.go.wait()
                server.sendall(kept)
                time.sleep(0.5)
                self.held -= 1
                return server.close()

    @staticmethod
    def down(server, client):
        try:
            while data := server.recv(1 << 16):
                client.sendall(data)
        except OSError:
            pass
        client.close()


def values(redis):
    with redis.connect() as client:
        return sum(b"{" in key for key in client.keys())


@REDIS_ALONE
def test_an_object_of_kvtierd_whose_set_is_late(redis, tmp_path):
    """PUT v1, whose SET arrives after PUT v2: no other kvtierd serves v1, nor does the one that was asked for both."""
    late, path, first, second = Late(redis.port), "/v1/kv/b/k", b"1" * 100000, b"2" * 100000
    common = {"cache.l2.seen_time": "1s", "lease.ttl_max": "1s"}
    nodes = []
    try:
        for name, url in ("one", late.url), ("two", redis.url):
            config = {"cache.l2.url": url, "cache.l2.connections": 2, **common}
            nodes.append(Kvtierd(tmp_path, config, name=name).wait_up())
        one, two = nodes
        until(lambda: one.ask("PUT", "/v1/kv/b/warm", body=b"w" * 100000).status in (200, 409), 20, "a PUT")
        until(lambda: values(redis) == 1, 20, "its value")
        late.hold = True
        assert one.ask("PUT", path, body=first).status == 200
        until(lambda: late.held > 0, 10, "its SET being held")
        late.hold = False
        until(lambda: one.ask("PUT", path, body=second).status == 200, 20, "the other bytes being taken")
        late.go.set()
        until(lambda: late.held == 0, 30, "the late value")
        time.sleep(SEEN + SLACK)
        with two.client() as client, Client(one.port, 10.0) as own:
            views = two.segment(), one.segment()
            until(lambda: take(client, views[0], path, timeout_ms=2000) == second, 30, "the other bytes there")
            assert take(own, views[1], path, timeout_ms=2000) == second
            assert one.ask("PUT", path, body=first).status == 200
            time.sleep(SEEN + SLACK)
            assert take(client, views[0], path, timeout_ms=2000) in (None, first)
            for view in views:
                view.close()
    finally:
        late.go.set()
        for node in nodes:
            node.stop()
            node.remove()


@REDIS_ALONE
def test_a_set_that_is_late(drives, redis):
    late = Late(redis.port)
    writer = drives(0, store=False, **{"l2.url": late.url, "l2.connections": 2, "l2.deadline": "300ms"})
    reader = drives(1, store=False)
    late.hold = True
    put(writer, 1)
    until(lambda: late.held > 0, 10, "its SET being held")
    late.hold = False
    writer.ask("drain", 5000)
    until(lambda: erase(writer, 1), 20, "the erase")
    late.go.set()

    until(lambda: values(redis) > 0, 10, "the late value")
    time.sleep(SEEN + SLACK)
    assert got(reader, 1) == 0
    assert got(writer, 1) == 0


@REDIS_ALONE
def test_a_table_that_redis_evicted(drives, redis):
    first, second = drives(0), drives(1)
    for chain in range(20):
        put(first, chain)
    stored(first)
    assert got(second, 3) == 1
    assert erase(first, 3)
    with redis.connect() as client:
        assert client.cmd("DEL", "kvt1:generations") == 1

    def lost():
        return "l2" in first.ask("stats") and "its table of generations was lost" in first.log()

    until(lost, 10, "the line in the log")
    assert got(first, 3) == 0 and got(first, 4) == 0
    put(first, 4)
    stored(first)
    until(lambda: got(second, 4) == 1, 10, "what is stored under the new names")
    assert got(second, 3) == 0


@REDIS_ALONE
def test_a_master_without_its_last_changes(drives, redis):
    """After a failover: an erase is seen by a process that knows more changes than the new master had."""
    first, second, third = drives(0), drives(1), drives(2)
    for chain in range(6):
        put(second, chain)
    stored(second)
    assert got(second, 3) == 1
    third.signal(signal.SIGSTOP)
    with redis.connect() as client:
        before = client.cmd("DUMP", "kvt1:generations")
        assert erase(first, 1) and erase(first, 2)
        time.sleep(SEEN)  # the second one knows of both
        assert got(second, 1) == 0 and got(second, 3) == 1
        first.signal(signal.SIGSTOP)
        second.signal(signal.SIGSTOP)
        client.cmd("RESTORE", "kvt1:generations", 0, before, "REPLACE")
    third.signal(signal.SIGCONT)
    assert erase(third, 3) and erase(third, 4) and erase(third, 5)
    first.signal(signal.SIGCONT)
    second.signal(signal.SIGCONT)
    time.sleep(SEEN + SLACK)
    assert [got(second, chain) for chain in range(1, 6)] == [0] * 5
    assert [got(third, chain) for chain in range(1, 6)] == [0] * 5


def test_a_server_that_does_not_answer_makes_no_promise(drives, peer):
    first, second = drives(0, **{"l2.deadline": "300ms"}), drives(1)
    put(first, 1)
    stored(first)
    peer.server.signal(signal.SIGSTOP)
    assert not erase(first, 1)
    peer.server.signal(signal.SIGCONT)
    until(lambda: erase(first, 1), 20, "it is erased once it answers")
    time.sleep(SEEN + SLACK)
    assert got(second, 1) == 0


@REDIS_ALONE
def test_a_server_that_refuses_the_question_alone(drives, redis, tmp_path):
    """An ACL takes EVAL away: what lies in Redis is not read until it is back, and the log says so once."""
    (tmp_path / "password").write_text("secret\n")
    with redis.connect() as client:
        client.cmd("ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@all")
        user = {"l2.username": "reader", "l2.password_file": str(tmp_path / "password")}
        first, second = drives(0), drives(1, **user)
        for chain in range(4):
            put(first, chain)
        stored(first)
        assert got(second, 1) == 1 and got(second, 2) == 1
        stored(second)
        client.cmd("ACL", "SETUSER", "reader", "-eval")
        assert erase(first, 1) and erase(first, 3)
        time.sleep(SEEN + SLACK)
        assert got(second, 3) == 0 and got(second, 0) == 0
        assert got(second, 2) == 1  # in memory
        second.ask("stats")
        assert second.log().count("refuses to say which tenants were erased") == 1
        client.cmd("ACL", "SETUSER", "reader", "+eval")
    until(lambda: got(second, 0) == 1, 10, "the answer")
    assert got(second, 1) == 0 and got(second, 3) == 0 and got(second, 2) == 1


@REDIS_ALONE
def test_a_bucket_is_erased_at_each_kvtierd_above_one_redis(peer, tmp_path):
    """Objects of a bucket that another kvtierd put into Redis do not come back after its DELETE."""
    nodes, segments = [], []
    config = {"cache.l2.url": peer.server.url, "cache.l2.seen_time": "1s"}
    path, data = "/v1/kv/team/chunk", os.urandom(BYTES)

    def lease(at):
        with nodes[at].client() as client:
            return take(client, segments[at], path, timeout_ms=2000)

    try:
        for name in ("a", "b"):
            nodes.append(Kvtierd(tmp_path, config, name).wait_up().wait_writable())
            segments.append(nodes[-1].segment())
        assert nodes[0].ask("PUT", path, body=data).status == 200
        until(lambda: lease(1) == data, 20, "a lease at the other one")
        assert ask(nodes[0].admin_port, "DELETE", "/v1/kv/team").status == 200
        assert lease(0) is None
        until(lambda: lease(1) is None, 20, "the other one knows")
        time.sleep(SEEN)
        assert lease(0) is None and lease(1) is None
    finally:
        for segment in segments:
            segment.close()
        for node in nodes:
            node.remove()


class History:
    """What may be read: nothing of a tenant that was erased more than l2.seen_time ago and not put since."""

    def __init__(self):
        self.erased = {}  # chain: when that was answered

    def put(self, chain):
        self.erased.pop(chain, None)

    def judge(self, chain, begun, count):
        if count and chain in self.erased:
            assert begun < self.erased[chain] + SEEN + SLACK, f"{chain} is read {begun - self.erased[chain]:.2f} s after"


def test_random_histories(drives, peer):
    """Processes are killed, stopped and restarted, the server is slow: each looks at each tenant again and again."""
    rng, history = random.Random(SEED), History()
    ways = {0: {"l2.deadline": "300ms"}, 1: {}, 2: {}}  # the first gives up what takes longer
    crew = [drives(i, **ways[i]) for i in range(3)]
    end = time.monotonic() + SECONDS
    erases = reads = 0
    while time.monotonic() < end:
        number, chain = rng.randrange(3), rng.randrange(40)
        act = rng.random()
        if act < 0.02:
            crew[number].kill()
            crew[number] = drives(number, **ways[number])
        elif act < 0.04:
            crew[number].signal(signal.SIGSTOP)
            for _ in range(5):
                if erase(crew[(number + 1) % 3], rng.randrange(40)):
                    erases += 1
            time.sleep(rng.uniform(0, 2))
            crew[number].signal(signal.SIGCONT)
        elif act < 0.05:
            peer.server.signal(signal.SIGSTOP)
            time.sleep(rng.uniform(0, 0.2))
            peer.server.signal(signal.SIGCONT)
        elif act < 0.3:
            history.put(chain)
            crew[number].ask("put", chain, 1, BYTES)
        elif act < 0.4:
            if erase(crew[number], chain):
                history.erased[chain] = time.monotonic()
                erases += 1
        else:
            begun = time.monotonic()
            count = got(crew[number], chain)
            history.judge(chain, begun, count)
            reads += count
    assert erases > 10 and reads > 10, (erases, reads)
