"""kvtierd under requests of a stock LMCache 0.5.6, byte for byte as they were recorded.

Lease ids are the daemon's own, so a release names the one that the daemon gave; nothing else is
changed. What was recorded as answers of a peer that misbehaved on purpose is not expected here: the
daemon must answer what it holds, in a form that the client accepts.
"""

import hashlib
import json
import pathlib
import re
import urllib.parse

import pytest

from rig.client import Client
from rig.kvbytes import kv_bytes, metadata
from rig.kvtierd import Kvtierd, lease_of
from rig.wait import until

RECORD = pathlib.Path(__file__).parent / "data/lmcache/tiered_storage.jsonl"


def body_of(line):
    body = line.get("body", {})
    if not body:
        return b""
    if "counting" in body:
        data = bytes(i % 256 for i in range(body["counting"]))
    else:
        shape = body["layers"], body["row_bytes"]
        data = kv_bytes(body["first_token"], body["start"], body["tokens"], *shape)
        data = metadata(len(data), body["tokens"], *shape) + data
    assert hashlib.sha256(data).hexdigest() == line["body_sha256"]
    return data


class Replay:
    """One pass over the record, and what the daemon must hold by now."""

    def __init__(self, kvtierd):
        self.kvtierd, self.segment = kvtierd, kvtierd.segment()
        self.connections, self.held, self.leases = {}, {}, {}
        self.seen = {"stored": 0, "same": 0, "replaced": 0, "hit": 0, "miss": 0, "released": 0}

    def connection(self, line):
        key = (line["client"], line["connection"])
        if line["request"] == 1 or key not in self.connections:
            self.connections[key] = Client(self.kvtierd.port)
        return self.connections[key]

    def run(self, line):
        if "closed" in line:
            self.connections.pop((line["client"], line["closed"])).close()
        elif "unlinked" in line:  # by the resource tracker of a client that ended
            self.segment.path.unlink()
            until(self.segment.present, 5, "the segment's name back")
        elif "head" in line:
            self.exchange(line)

    def exchange(self, line):
        head, body = line["head"], body_of(line)
        method, target = head.split(" ", 2)[:2]
        released = re.match(r"/v1/leases/([^/]+)/release$", target)
        lease = None
        if released:
            recorded = urllib.parse.unquote(released[1])
            known = self.leases.get(recorded)  # none: step 26 was cut, its lease is not here
            lease = known.pop() if known else None
            head = head.replace(target, f"/v1/leases/{lease or recorded}/release", 1)
        client = self.connection(line)
        client.send(head.encode() + body)
        answer = client.read(method)
        assert answer.framing in ("length", "chunked") or answer.status == 204, answer
        assert answer.headers.get("connection", "").lower() != "close", answer
        path = tuple(urllib.parse.unquote(part) for part in target.split("?")[0].split("/")[3:5])
        if method == "PUT":
            self.put(path, body, answer)
        elif released:
            assert answer.status == (200 if lease else 404), answer
            self.seen["released"] += 1
        else:
            self.lease(line, path, answer)

    def put(self, path, body, answer):
        same = self.held.get(path) == body
        assert answer.status == (409 if same else 200), (path, answer)
        self.seen["same" if same else "replaced" if path in self.held else "stored"] += 1
        self.held[path] = body

    def lease(self, line, path, answer):
        if path not in self.held:
            assert answer.status in (404, 504), (path, answer)
            self.seen["miss"] += 1
            return
        lease = lease_of(answer)
        assert lease is not None, (path, answer)
        assert self.segment.read(lease[1]) == self.held[path], path
        self.seen["hit"] += 1
        try:  # under the name that the recorded client will release
            recorded = str(json.loads(line.get("answer_body", ""))["id"])
            self.leases.setdefault(recorded, []).append(lease[0])
        except (ValueError, KeyError):
            assert self.client_release(lease[0]) == 200

    def client_release(self, name):
        return self.kvtierd.ask("POST", f"/v1/leases/{name}/release").status

    def finish(self):
        for names in self.leases.values():  # what the recorded client could not use or did not reach
            assert all(self.client_release(name) == 200 for name in names)
        for client in self.connections.values():
            client.close()
        assert self.segment.present()
        self.segment.close()


@pytest.fixture
def kvtierd(tmp_path):
    daemon = Kvtierd(tmp_path)
    try:
        daemon.wait_up()
        yield daemon
        daemon.stop()
    finally:
        daemon.remove()


def lines():
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def play(kvtierd, rounds):
    replay = Replay(kvtierd)
    step = None
    for line in lines() * rounds:
        step = line.get("step", step)
        try:
            replay.run(line)
        except AssertionError as error:
            raise AssertionError(f"{step}: {line.get('head', '')[:120]!r}: {error}") from error
    replay.finish()
    until(lambda: kvtierd.metric("kvtierd_leases") == 0, 5, "no lease left")
    return replay.seen


def test_every_recorded_exchange(kvtierd):
    seen = play(kvtierd, 1)
    # The record has each kind; without them this test would show nothing.
    assert seen["stored"] >= 15 and seen["same"] >= 4, seen
    assert seen["replaced"] >= 1, seen  # LMCache's self-test, its second time
    assert seen["hit"] >= 60 and seen["miss"] >= 3 and seen["released"] >= 60, seen


def test_the_record_twice_over(kvtierd):
    """The same clients again: everything is there already, and nothing leaks between the rounds."""
    seen = play(kvtierd, 2)
    assert seen["same"] >= 19 and seen["replaced"] >= 2, seen


@pytest.mark.parametrize("step", [1, 7, 64, 1000])
def test_a_recorded_put_in_pieces(kvtierd, step):
    """The same bytes, cut anywhere, are the same request."""
    line = next(line for line in lines() if line.get("head", "").startswith("PUT"))
    data = line["head"].encode() + body_of(line)
    with kvtierd.client() as client, kvtierd.client() as other:
        for at in range(0, len(data), step):
            client.send(data[at : at + step])
        assert client.read("PUT").status == 200
        path = line["head"].split(" ")[1]
        answer = other.ask("POST", f"{path}/leases?timeout_ms=1000&ttl_s=30.0", body=b"")
        segment = kvtierd.segment()
        assert segment.read(lease_of(answer)[1]) == body_of(line)
        segment.close()
