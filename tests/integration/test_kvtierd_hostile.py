"""kvtierd under clients that lie, stall, flood and leave in the middle.

Each test ends with the same questions: does an honest client still get the right bytes, are the
descriptors, the memory and the leases what they were, is the segment as large as it was?
"""

import os
import random
import socket
import time
import urllib.parse

import pytest

from rig.client import Client
from rig.kvtierd import Kvtierd, lease_of, take
from rig.router import SANITIZED
from rig.wait import PATIENCE, until
from rig.wire import Closed

SEED = int(os.environ.get("KVW_SEED", "1"))
HONEST = "/v1/kv/lmcache/honest@1@0@1d0318be153aea15@bfloat16"
HONEST_BYTES = bytes(range(256)) * 40
GROWTH = (512 if SANITIZED else 96) << 20
CONFIG = {
    "limits.connections": 64,
    "limits.leases": 32,
    "limits.object": "1MiB",
    "limits.head_time": "1s",
    "limits.body_time": "1s",
    "limits.idle_time": "5s",
    "limits.write_time": "2s",
    "lease.ttl": "1s",
    "lease.ttl_max": "10s",
    "segment.size": "16MiB",
}


def bytes_of(name, count=5000):
    return random.Random(name).randbytes(count)


class Watched:
    """A daemon with what it was before the test."""

    def __init__(self, daemon):
        self.daemon = daemon
        assert daemon.ask("PUT", HONEST, body=HONEST_BYTES).status == 200
        self.segment = daemon.segment()
        self.check_honest()
        self.fds, self.rss = daemon.fds(), daemon.rss()

    def check_honest(self):
        with self.daemon.client() as client:
            assert take(client, self.segment, HONEST) == HONEST_BYTES

    def check(self):
        daemon = self.daemon
        assert daemon.alive(), daemon.log()[-4000:]
        until(lambda: daemon.fds() <= self.fds + 4, 10, "descriptors back")
        until(lambda: daemon.metric("kvtierd_leases") == 0, 20, "leases back")
        until(lambda: daemon.metric("kvtierd_puts") == 0, 10, "puts back")
        self.check_honest()
        assert daemon.rss() < self.rss + GROWTH, (daemon.rss(), self.rss)
        assert self.segment.present()
        assert os.stat(self.segment.path).st_size == self.segment.size

    def get(self, path):
        with self.daemon.client() as client:
            return take(client, self.segment, path)


@pytest.fixture
def watched(tmp_path):
    daemon = Kvtierd(tmp_path, CONFIG)
    try:
        daemon.wait_up()
        both = Watched(daemon)
        yield both
        both.check()
        daemon.stop()
    finally:
        daemon.remove()


def answer_or_end(client):
    """Status of what the daemon says, or None where it just hangs up."""
    try:
        return client.read("PUT").status
    except (Closed, ConnectionError):
        return None


def raw(daemon, data, finish=True):
    """Sends bytes on a connection of their own; the status that came back."""
    with daemon.client() as client:
        try:
            client.send(data)
            if finish:
                client.finish_sending()
        except ConnectionError:
            pass  # refused before all was sent
        return answer_or_end(client)


# --- names ----------------------------------------------------------------------------------------

NAMES = [
    ("lmcache", "plain"),
    ("lmcache", "a/b"),
    ("lmcache/a", "b"),
    ("lmcache", "../../etc/passwd"),
    ("..", ".."),
    (".", "."),
    ("lmcache", "a%2Fb"),
    ("lmcache", "%"),
    ("lmcache", "a b+c%d:e,f~g(h)/i"),
    ("lmcache", "a b c%d:e,f~g(h)/i"),
    ("team a/b", "x"),
    ("lmcache", "leases"),
    ("lmcache", "x/leases"),
    ("lmcache", "ünï/键"),
    ("leases", "x"),
    ("lmcache", "?query"),
    ("lmcache", "#part"),
    ("lmcache", "k" * 1024),
    ("b" * 128, "k"),
]


def path_of(bucket, key):
    return f"/v1/kv/{urllib.parse.quote(bucket, safe='')}/{urllib.parse.quote(key, safe='')}"


def test_names_are_opaque_and_never_mixed_up(watched):
    daemon, stored = watched.daemon, {}
    for bucket, key in NAMES:
        status = daemon.ask("PUT", path_of(bucket, key), body=bytes_of(bucket + "|" + key)).status
        assert status in (200, 400), (bucket, key, status)
        if status == 200:
            stored[bucket, key] = bytes_of(bucket + "|" + key)
    assert ("team a/b", "x") in stored and ("lmcache", "a b+c%d:e,f~g(h)/i") in stored
    for (bucket, key), data in stored.items():
        assert watched.get(path_of(bucket, key)) == data, (bucket, key)
    # %40 and @, %7E and ~ are the same name; %2F is a slash inside a key, never a separator
    assert daemon.ask("PUT", "/v1/kv/lmcache/m@1~x", body=b"same").status == 200
    assert watched.get("/v1/kv/lmcache/m%401%7Ex") == b"same"
    assert daemon.ask("POST", "/v1/kv/lmcache/a/b/leases?timeout_ms=0&ttl_s=1").status == 400


BAD_TARGETS = [
    "/v1/kv/lmcache",
    "/v1/kv/lmcache/",
    "/v1/kv//x",
    "/v1/kv/",
    "/v1/kv/a/b/c",
    "/v1/kv/lmcache/%zz",
    "/v1/kv/lmcache/%",
    "/v1/kv/lmcache/a%2",
    "/v1/kv/lmcache/" + "k" * 1025,
    "/v1/kv/" + "b" * 129 + "/k",
    "/v1/kv/lmcache/" + "%6b" * 1025,
    "/v1/kv/lmcache/" + "k" * 20000,
    "/../etc/passwd",
    "/v1/../v1/kv/lmcache/x",
    "/v1/leases//release",
    "*",
]


@pytest.mark.parametrize("target", BAD_TARGETS, ids=lambda target: target[:24])
def test_a_target_that_is_none_is_refused(watched, target):
    for method in ("PUT", "POST", "GET", "DELETE"):
        data = f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"
        status = raw(watched.daemon, data.encode())
        assert status is not None and 400 <= status < 500 or status == 501, (method, status)


@pytest.mark.parametrize(
    "query",
    [
        "timeout_ms=-1&ttl_s=30",
        "timeout_ms=99999999999999999999&ttl_s=30",
        "timeout_ms=x&ttl_s=30",
        "timeout_ms=0&ttl_s=-5",
        "timeout_ms=0&ttl_s=nan",
        "timeout_ms=0&ttl_s=inf",
        "timeout_ms=0&ttl_s=1e308",
        "timeout_ms=0&ttl_s=1e-300",
        "timeout_ms=0&ttl_s=0",
        "timeout_ms=0&ttl_s=" + "9" * 400,
        "timeout_ms=0&ttl_s=30&ttl_s=1&x=y&&&=",
        "",
    ],
    ids=lambda query: query[:30],
)
def test_lease_options_that_make_no_sense(watched, query):
    """Refused, or cut to what the daemon allows; never a lease that lasts for ever."""
    with watched.daemon.client() as client:
        answer = client.ask("POST", f"{HONEST}/leases?{query}", body=b"")
        assert answer.status in (200, 400, 404, 504), answer
        lease = lease_of(answer)
        if lease is not None:
            assert watched.segment.read(lease[1]) == HONEST_BYTES
            released = client.ask("POST", f"/v1/leases/{lease[0]}/release").status
            assert released in (200, 404)  # a lease of no time is over already


@pytest.mark.parametrize("name", ["x", "%2e%2e", "a" * 32, "a" * 5000, "%00", "lease-0", "'\"<>"])
def test_a_lease_that_was_never_granted(watched, name):
    status = raw(watched.daemon, f"POST /v1/leases/{name}/release HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert status in (400, 404, 414), status


# --- sizes that lie -------------------------------------------------------------------------------


def put_head(path, *lengths, more=""):
    fields = "".join(f"Content-Length: {length}\r\n" for length in lengths)
    return f"PUT {path} HTTP/1.1\r\nHost: x\r\n{fields}{more}\r\n".encode()


@pytest.mark.parametrize(
    "lengths",
    [
        ("-1",),
        ("+5",),
        ("0x10",),
        ("5 5",),
        ("",),
        ("5,6",),
        ("5", "6"),
        ("5.0",),
        ("1e3",),
        (str(2**63),),
        (str(2**64),),
        (str(2**64 + 5),),
        ("9" * 40,),
        (str((1 << 20) + 1),),
        (str(1 << 40),),
    ],
    ids=lambda lengths: "-".join(lengths)[:24] or "empty",
)
def test_a_length_that_cannot_be(watched, lengths):
    path = "/v1/kv/lmcache/length"
    status = raw(watched.daemon, put_head(path, *lengths) + b"12345", finish=False)
    assert status is None or 400 <= status < 600 and status != 500, status
    assert watched.get(path) is None


@pytest.mark.parametrize("more", ["Transfer-Encoding: chunked\r\n", "Transfer-Encoding: gzip\r\n"])
def test_a_body_with_two_lengths_or_an_unknown_coding(watched, more):
    path = "/v1/kv/lmcache/coding"
    status = raw(watched.daemon, put_head(path, "5", more=more) + b"5\r\nhello\r\n0\r\n\r\n")
    assert status is None or 400 <= status < 600 and status != 500, status
    assert watched.get(path) is None


def test_an_empty_object_or_none_at_all(watched):
    for head in (put_head("/v1/kv/lmcache/empty", "0"), put_head("/v1/kv/lmcache/empty")):
        status = raw(watched.daemon, head)
        assert status is not None and 400 <= status < 500, status
    assert watched.get("/v1/kv/lmcache/empty") is None


def test_a_chunked_put_is_refused_or_right(watched):
    path, data = "/v1/kv/lmcache/chunked", bytes_of("chunked")
    with watched.daemon.client() as client:
        answer = client.ask("PUT", path, chunks=[data[:100], data[100:]])
    if answer.status == 200:
        assert watched.get(path) == data
    else:
        assert answer.status in (400, 411, 501), answer
        assert watched.get(path) is None


def test_more_body_than_said_is_never_stored(watched):
    path = "/v1/kv/lmcache/short"
    with watched.daemon.client() as client:
        client.send(put_head(path, "5") + b"12345" + b"6789 garbage that is no request\r\n\r\n")
        assert client.read("PUT").status == 200
        assert answer_or_end(client) in (None, 400, 501, 505)
    assert watched.get(path) == b"12345"


@pytest.mark.parametrize("end", ["fin", "reset"])
def test_a_put_cut_at_many_places_leaves_nothing(watched, end):
    daemon, path, data = watched.daemon, "/v1/kv/lmcache/cut", bytes_of("cut", 300000)
    whole = put_head(path, len(data)) + data
    used = daemon.metrics()
    places = [*range(1, 120, 7), *range(120, len(whole), 17011), len(whole) - 1]
    for at in places:
        client = daemon.client()
        client.send(whole[:at])
        if end == "reset":
            client.reset()
        else:
            client.finish_sending()
            assert answer_or_end(client) in (None, 400, 408)
            client.close()
    until(lambda: daemon.metric("kvtierd_puts") == 0, 10, "puts back")
    assert watched.get(path) is None
    name = "kvtier_tier_used_bytes"
    before = {k: v for k, v in used.items() if k[0] == name}
    until(
        lambda: {k: v for k, v in daemon.metrics().items() if k[0] == name} == before,
        10,
        "memory back",
    )
    assert daemon.ask("PUT", path, body=data).status == 200
    assert watched.get(path) == data


def test_a_replacement_cut_in_the_middle_keeps_the_old_bytes(watched):
    daemon, path = watched.daemon, "/v1/kv/lmcache/replace"
    old, new = bytes_of("old", 100000), bytes_of("new", 100000)
    assert daemon.ask("PUT", path, body=old).status == 200
    for at in (0, 1, 4096, 65536, 99999):
        client = daemon.client()
        client.send(put_head(path, len(new)) + new[:at])
        assert watched.get(path) == old
        client.reset()
        assert watched.get(path) == old
    assert daemon.ask("PUT", path, body=new).status == 200
    assert watched.get(path) == new


def test_a_replaced_object_lives_while_it_is_leased(watched):
    daemon, path = watched.daemon, "/v1/kv/lmcache/leased"
    versions = [bytes_of(f"version {i}", 50000) for i in range(6)]
    held = []
    with daemon.client() as client:
        for version in versions:
            assert daemon.ask("PUT", path, body=version).status == 200
            answer = client.ask("POST", f"{path}/leases?timeout_ms=0&ttl_s=30", body=b"")
            held.append((version, *lease_of(answer)))
        for version, _, fragments in held:
            assert watched.segment.read(fragments) == version
        for _, name, _ in held:
            assert client.ask("POST", f"/v1/leases/{name}/release").status == 200


def test_a_client_that_writes_into_the_segment(watched):
    """Stock engines map it writable: what was spoiled is never leased again."""
    daemon, path, data = watched.daemon, "/v1/kv/lmcache/spoiled", bytes_of("spoiled", 200000)
    for at in (0, 1, 65535, 199999):
        assert daemon.ask("PUT", path, body=data).status in (200, 409)
        with daemon.client() as client:
            name, fragments = lease_of(client.ask("POST", f"{path}/leases?timeout_ms=0&ttl_s=9", body=b""))
            left = at
            for fragment in fragments:
                if left < fragment["len"]:
                    break
                left -= fragment["len"]
            with open(watched.segment.path, "r+b") as file:
                file.seek(fragment["offset"] + left)
                file.write(bytes([data[at] ^ 16]))
            assert watched.get(path) is None, "spoiled bytes were leased"
            assert client.ask("POST", f"/v1/leases/{name}/release").status == 200
        assert daemon.ask("PUT", path, body=data).status == 200, "the same bytes must be taken again"
        assert watched.get(path) == data
    assert daemon.metric("kvtierd_corrupt_total") >= 4


# --- slow, many -----------------------------------------------------------------------------------


def test_slow_heads_and_slow_bodies_are_cut_off(watched):
    daemon = watched.daemon
    slow = []
    for i in range(20):
        client = daemon.client()
        whole = put_head(f"/v1/kv/lmcache/slow{i}", 100000) + b"x" * 5000
        client.send(whole[: 20 if i % 2 else len(whole)])
        slow.append(client)
    watched.check_honest()  # others do not wait for them
    for client in slow:
        client.sock.settimeout(15 * PATIENCE)
        assert answer_or_end(client) in (None, 400, 408)
        client.close()
    assert all(watched.get(f"/v1/kv/lmcache/slow{i}") is None for i in range(20))


def test_a_head_that_drips_is_cut_off_as_a_whole(watched):
    """A byte now and then does not renew the limit."""
    with watched.daemon.client() as client:
        begun = time.monotonic()
        try:
            for byte in b"PUT /v1/kv/lmcache/drip HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 300:
                client.send(bytes([byte]))
                time.sleep(0.1)
                if time.monotonic() - begun > 15 * PATIENCE:
                    break
        except ConnectionError:
            pass
        assert time.monotonic() - begun < 15 * PATIENCE, "still open"


def test_a_flood_of_leases_is_bounded_and_over_when_released(watched):
    daemon, held, refused = watched.daemon, [], 0
    with daemon.client() as client:
        for _ in range(200):
            answer = client.ask("POST", f"{HONEST}/leases?timeout_ms=0&ttl_s=60", body=b"")
            lease = lease_of(answer)
            if lease is None:
                assert answer.status in (429, 503), answer
                refused += 1
            else:
                held.append(lease)
        assert len(held) <= 32 and refused >= 168
        assert all(watched.segment.read(fragments) == HONEST_BYTES for _, fragments in held)
        for name, _ in held:
            assert client.ask("POST", f"/v1/leases/{name}/release").status == 200
            assert client.ask("POST", f"/v1/leases/{name}/release").status in (200, 404)


def test_leases_of_clients_that_died_expire(watched):
    daemon = watched.daemon
    for _ in range(8):
        client = daemon.client()
        assert client.ask("POST", f"{HONEST}/leases?timeout_ms=0&ttl_s=1", body=b"").status == 200
        client.reset()
    assert daemon.metric("kvtierd_leases") > 0
    until(lambda: daemon.metric("kvtierd_leases") == 0, 15, "leases over")


def test_memory_that_is_leased_is_never_given_away(watched):
    """A segment full of leased objects refuses puts; what is leased stays right."""
    daemon, held = watched.daemon, []
    objects = {f"/v1/kv/lmcache/full{i}": bytes_of(f"full{i}", 900000) for i in range(30)}
    with daemon.client() as client:
        for path, data in objects.items():
            if client.ask("PUT", path, body=data).status != 200:
                continue
            answer = client.ask("POST", f"{path}/leases?timeout_ms=0&ttl_s=60", body=b"")
            if (lease := lease_of(answer)) is not None:
                held.append((data, *lease))
        assert 4 < len(held) < 20
        refused = client.ask("PUT", "/v1/kv/lmcache/more", body=bytes_of("more", 900000)).status
        assert refused in (503, 507), refused
        for data, name, fragments in held:
            assert watched.segment.read(fragments) == data
            assert client.ask("POST", f"/v1/leases/{name}/release").status == 200
        assert client.ask("PUT", "/v1/kv/lmcache/more", body=bytes_of("more", 900000)).status == 200
    until(lambda: daemon.ask("PUT", HONEST, body=HONEST_BYTES).status in (200, 409), 5, "room")


def test_more_connections_than_allowed(watched):
    daemon, open_ones = watched.daemon, []
    try:
        for _ in range(300):
            try:
                open_ones.append(Client(daemon.port))
            except OSError:
                break
        until(lambda: daemon.fds() < watched.fds + 64 + 32, 10, "descriptors bounded")
    finally:
        for client in open_ones:
            client.close()
    until(lambda: daemon.fds() <= watched.fds + 4, 10, "descriptors back")


def test_pipelined_requests_are_answered_in_order(watched):
    daemon, objects = watched.daemon, [bytes_of(f"pipe{i}", 700 + i) for i in range(40)]
    with daemon.client() as client:
        client.send(
            b"".join(put_head(f"/v1/kv/p/{i}", len(o)) + o for i, o in enumerate(objects))
        )
        assert [client.read("PUT").status for _ in objects] == [200] * len(objects)
        for i in range(20):
            client.send(
                f"POST /v1/kv/p/{i}/leases?timeout_ms=0&ttl_s=30 HTTP/1.1\r\n"
                "Host: x\r\nContent-Length: 0\r\n\r\n".encode()
            )
        leases = [lease_of(client.read("POST")) for _ in range(20)]
        for i, (name, fragments) in enumerate(leases):
            assert watched.segment.read(fragments) == objects[i]
            assert client.ask("POST", f"/v1/leases/{name}/release").status == 200


def test_a_client_that_does_not_read_its_answers(watched):
    daemon = watched.daemon
    client = Client(daemon.port, receive_buffer=4096)
    line = b"POST /v1/leases/none/release HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    client.sock.settimeout(1)
    try:
        for _ in range(400):
            client.send(line * 100)
    except (TimeoutError, socket.timeout, ConnectionError):
        pass
    watched.check_honest()
    assert daemon.rss() < watched.rss + GROWTH
    client.reset()


# --- garbage --------------------------------------------------------------------------------------


def mutate(rng, data):
    out = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(out))
        kind = rng.randrange(4)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del out[at : at + rng.randrange(1, 20)]
        elif kind == 2:
            out[at:at] = rng.randbytes(rng.randrange(1, 20))
        else:
            out[at:at] = out[: rng.randrange(1, len(out) + 1)]
        if not out:
            out = bytearray(b"\0")
    return bytes(out)


def test_garbage(watched):
    rng, daemon = random.Random(SEED), watched.daemon
    data = bytes_of("fuzz", 300)
    honest = [
        put_head("/v1/kv/fuzz/a", len(data)) + data,
        b"POST /v1/kv/fuzz/a/leases?timeout_ms=0&ttl_s=0.2 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/leases/abc/release HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        rng.randbytes(400),
    ]
    for round_ in range(int(os.environ.get("KVW_ROUNDS", "300"))):
        client = daemon.client()
        try:
            client.send(mutate(rng, rng.choice(honest)))
            if round_ % 3 == 0:
                client.finish_sending()
                client.sock.settimeout(5 * PATIENCE)
                answer_or_end(client)
        except (ConnectionError, AssertionError, ValueError):
            pass  # its answer to what is no request need not be one to a PUT
        finally:
            client.close()
        assert daemon.alive(), f"seed {SEED}, round {round_}:\n{daemon.log()[-4000:]}"
