"""What two parsers could read differently is refused, and nothing of it reaches a worker.

RFC 9112 sections 2.2, 5, 6.3, 7.1, 11.2. Each request is followed by a second one on the same
connection: if it were ever answered, the first one's end would have been misjudged.
"""

import random

import pytest

from rig.client import CHAT, Client
from rig.router import Router
from rig.wire import Closed
from rig.worker import Worker

POST = b"POST /v1/chat/completions HTTP/1.1\r\n"
HOST = b"Host: t\r\n"
GET = b"GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
END = b"\r\n"

# name: (raw request, allowed status)
HEADS = {
    "length and chunked": (POST + HOST + b"Content-Length: 3\r\n" + CHUNKED + END + b"0\r\n\r\n", 400),
    "chunked and length": (POST + HOST + CHUNKED + b"Content-Length: 3\r\n" + END + b"0\r\n\r\n", 400),
    "differing lengths": (POST + HOST + b"Content-Length: 3\r\nContent-Length: 4\r\n" + END + b"abcd", 400),
    "listed differing lengths": (POST + HOST + b"Content-Length: 3, 4\r\n" + END + b"abcd", 400),
    "listed equal lengths": (POST + HOST + b"Content-Length: 3, 3\r\n" + END + b"abc", 400),
    "repeated equal lengths": (POST + HOST + b"Content-Length: 3\r\nContent-Length: 3\r\n" + END + b"abc", 400),
    "signed length": (POST + HOST + b"Content-Length: +3\r\n" + END + b"abc", 400),
    "negative length": (POST + HOST + b"Content-Length: -3\r\n" + END + b"abc", 400),
    "hexadecimal length": (POST + HOST + b"Content-Length: 0x3\r\n" + END + b"abc", 400),
    "length with a blank": (POST + HOST + b"Content-Length: 1 2\r\n" + END + b"abc", 400),
    "empty length": (POST + HOST + b"Content-Length:\r\n" + END, 400),
    "length beyond 64 bits": (POST + HOST + b"Content-Length: 18446744073709551616\r\n" + END, (400, 413)),
    "coding gzip": (POST + HOST + b"Transfer-Encoding: gzip\r\n" + END, (400, 501)),
    "codings gzip, chunked": (POST + HOST + b"Transfer-Encoding: gzip, chunked\r\n" + END + b"0\r\n\r\n", (400, 501)),
    "codings chunked, identity": (POST + HOST + b"Transfer-Encoding: chunked, identity\r\n" + END + b"0\r\n\r\n", (400, 501)),
    "coding xchunked": (POST + HOST + b"Transfer-Encoding: xchunked\r\n" + END + b"0\r\n\r\n", (400, 501)),
    "coding in quotes": (POST + HOST + b'Transfer-Encoding: "chunked"\r\n' + END + b"0\r\n\r\n", (400, 501)),
    "coding after a vertical tab": (POST + HOST + b"Transfer-Encoding: \x0bchunked\r\n" + END + b"0\r\n\r\n", 400),
    "coding twice": (POST + HOST + CHUNKED + CHUNKED + END + b"0\r\n\r\n", 400),
    "coding on HTTP/1.0": (b"POST /x HTTP/1.0\r\n" + HOST + CHUNKED + END + b"0\r\n\r\n", 400),
    "folded header": (POST + HOST + b"X-A: b\r\n c\r\nContent-Length: 0\r\n" + END, 400),
    "folded coding": (POST + HOST + b"Transfer-Encoding:\r\n chunked\r\n" + END + b"0\r\n\r\n", 400),
    "folded first header": (POST + b" Host: t\r\n" + END, 400),
    "blank before colon": (POST + HOST + b"Content-Length : 3\r\n" + END + b"abc", 400),
    "tab before colon": (POST + HOST + b"Transfer-Encoding\t: chunked\r\n" + END + b"0\r\n\r\n", 400),
    "blank in name": (POST + HOST + b"X A: b\r\n" + END, 400),
    "empty name": (POST + HOST + b": b\r\n" + END, 400),
    "header without colon": (POST + HOST + b"nonsense\r\n" + END, 400),
    "NUL in name": (POST + HOST + b"X\x00A: b\r\n" + END, 400),
    "NUL in value": (POST + HOST + b"X-A: b\x00c\r\n" + END, 400),
    "control in value": (POST + HOST + b"X-A: b\x01c\r\n" + END, 400),
    "delete in value": (POST + HOST + b"X-A: b\x7fc\r\n" + END, 400),
    "bare CR in value": (POST + HOST + b"X-A: b\rc\r\n" + END, 400),
    "bare CR after empty value": (POST + HOST + b"X-A:\rTransfer-Encoding: chunked\r\n" + END, 400),
    "bare CR in request line": (b"POST /x\r HTTP/1.1\r\n" + HOST + END, 400),
    "bare LF in value": (POST + HOST + b"X-A: b\nTransfer-Encoding: chunked\r\n" + END + b"0\r\n\r\n", 400),
    "bare LF line ends": (b"GET /x HTTP/1.1\nHost: t\n\n", 400),
    "bare LF before the end": (POST + HOST + b"\n", 400),
    "no host": (b"GET /x HTTP/1.1\r\n" + END, 400),
    "two hosts": (b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n" + END, 400),
    "the same host twice": (b"GET /x HTTP/1.1\r\nHost: a\r\nHost: a\r\n" + END, 400),
    "host with a path": (b"GET /x HTTP/1.1\r\nHost: a/b\r\n" + END, 400),
    "host with a user": (b"GET /x HTTP/1.1\r\nHost: u@a\r\n" + END, 400),
    "host with a blank": (b"GET /x HTTP/1.1\r\nHost: a b\r\n" + END, 400),
    "version 2.0": (b"GET /x HTTP/2.0\r\nHost: t\r\n" + END, (400, 505)),
    "version 1.2": (b"GET /x HTTP/1.2\r\nHost: t\r\n" + END, (400, 505)),
    "version in lower case": (b"GET /x http/1.1\r\nHost: t\r\n" + END, (400, 505)),
    "version without a digit": (b"GET /x HTTP/1.\r\nHost: t\r\n" + END, (400, 505)),
    "version of another protocol": (b"GET /x ICAP/1.0\r\nHost: t\r\n" + END, (400, 505)),
    "no version": (b"GET /x\r\nHost: t\r\n" + END, (400, 505)),
    "two blanks in request line": (b"GET  /x HTTP/1.1\r\nHost: t\r\n" + END, 400),
    "tab in request line": (b"GET\t/x HTTP/1.1\r\nHost: t\r\n" + END, 400),
    "blank before the method": (b" GET /x HTTP/1.1\r\nHost: t\r\n" + END, 400),
    "blank in target": (b"GET /x y HTTP/1.1\r\nHost: t\r\n" + END, 400),
    "control in target": (b"GET /x\x01 HTTP/1.1\r\nHost: t\r\n" + END, 400),
    "NUL in target": (b"GET /x\x00 HTTP/1.1\r\nHost: t\r\n" + END, 400),
    "target without slash": (b"GET x HTTP/1.1\r\nHost: t\r\n" + END, 400),
    "unknown method": (b"GETX /x HTTP/1.1\r\nHost: t\r\n" + END, 501),
    "method in lower case": (b"get /x HTTP/1.1\r\nHost: t\r\n" + END, (400, 501)),
    "CONNECT": (b"CONNECT t:443 HTTP/1.1\r\nHost: t\r\n" + END, 405),
    "TRACE": (b"TRACE /x HTTP/1.1\r\nHost: t\r\n" + END, 405),
    "TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40 + b"\r\n\r\n", 400),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 501, 505)),
}  # fmt: skip

BODIES = {
    "empty chunk size": b"\r\nabc\r\n0\r\n\r\n",
    "chunk size with sign": b"+3\r\nabc\r\n0\r\n\r\n",
    "chunk size with 0x": b"0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size not hexadecimal": b"3g\r\nabc\r\n0\r\n\r\n",
    "blank before chunk size": b" 3\r\nabc\r\n0\r\n\r\n",
    "chunk size beyond 64 bits": b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "bare LF after chunk size": b"3\nabc\r\n0\r\n\r\n",
    "bare CR after chunk size": b"3\rabc\r\n0\r\n\r\n",
    "chunk longer than its size": b"3\r\nabcd\r\n0\r\n\r\n",
    "bare LF after chunk": b"3\r\nabc\n0\r\n\r\n",
    "bare LF in extension": b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    "control in extension": b"3;a\x00\r\nabc\r\n0\r\n\r\n",
    "length in trailers": b"3\r\nabc\r\n0\r\nContent-Length: 3\r\n\r\n",
    "coding in trailers": b"3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "host in trailers": b"3\r\nabc\r\n0\r\nHost: u\r\n\r\n",
    "trailer without colon": b"3\r\nabc\r\n0\r\nnonsense\r\n\r\n",
    "folded trailer": b"3\r\nabc\r\n0\r\nX-A: b\r\n c\r\n\r\n",
    "bare LF after last chunk": b"3\r\nabc\r\n0\n\r\n",
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """One router for all cases: each uses a connection of its own."""
    with Worker() as worker:
        router = Router(tmp_path_factory.mktemp("smuggling"), [worker]).wait_up([worker])
        yield worker, router
        router.stop()


def drain(client):
    """Reads whatever comes until the end, however it comes."""
    try:
        client.reader.to_end()
    except Closed:
        pass


def refused(router, raw, allowed):
    """Sends raw and a second request: one error answer, then the connection ends."""
    with Client(router.port) as client:
        client.send(raw + GET)
        answer = client.read()
        assert answer.status in (allowed if isinstance(allowed, tuple) else (allowed,)), answer
        message = answer.json()["error"]["message"]
        assert len(message) > 10, "the message must say what was wrong"
        assert client.closed_by_peer(), "the connection must not go on after a bad message"
    return message


@pytest.mark.parametrize("name", HEADS)
def test_head_is_refused(stage, name):
    worker, router = stage
    before = len(worker.requests)
    raw, allowed = HEADS[name]
    refused(router, raw, allowed)
    assert len(worker.requests) == before, "a worker saw something of it"


@pytest.mark.parametrize("path", [CHAT, "/opaque"])
@pytest.mark.parametrize("name", BODIES)
def test_chunked_body_is_refused(stage, name, path):
    worker, router = stage
    before = len(worker.requests)
    head = f"POST {path} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    refused(router, head + BODIES[name], 400)
    assert len(worker.requests) == before


def test_messages_name_the_fault(stage):
    _, router = stage
    for name, words in {
        "length and chunked": ("content-length", "transfer-encoding"),
        "no host": ("host",),
        "folded header": ("fold", "line"),
        "blank before colon": ("colon",),
        "unknown method": ("method",),
        "version 2.0": ("version",),
    }.items():
        message = refused(router, *HEADS[name]).lower()
        assert any(word in message for word in words), (name, message)


def test_head_too_large(stage):
    _, router = stage
    with Client(router.port) as client:
        client.send(b"GET /x HTTP/1.1\r\nHost: t\r\nX-Big: " + b"a" * 70_000 + b"\r\n\r\n")
        answer = client.read()
        assert answer.status == 431, answer


def test_too_many_fields(stage):
    _, router = stage
    lines = b"".join(b"X-%d: y\r\n" % i for i in range(200))
    refused(router, b"GET /x HTTP/1.1\r\nHost: t\r\n" + lines + b"\r\n", 431)


def test_target_too_long(stage):
    _, router = stage
    with Client(router.port) as client:
        client.send(b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: t\r\n\r\n")
        assert client.read().status in (414, 431)


def test_endless_trailers(stage):
    _, router = stage
    with Client(router.port) as client:
        client.send_head("POST", "/opaque", [("Transfer-Encoding", "chunked")])
        client.send(b"1\r\na\r\n0\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(9000)))
        assert client.read().status in (400, 431)


def test_endless_chunk_extension(stage):
    _, router = stage
    with Client(router.port) as client:
        client.send_head("POST", "/opaque", [("Transfer-Encoding", "chunked")])
        client.send(b"1;" + b"a" * 200_000)
        assert client.read().status in (400, 413, 431)


def test_random_damage_never_confuses(stage):
    """Requests with one byte changed: an answer or a close, and the router lives on."""
    worker, router = stage
    rng = random.Random(11)
    good = b"POST /x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    for _ in range(150):
        raw = bytearray(good)
        for _ in range(rng.randrange(1, 3)):
            raw[rng.randrange(len(raw))] = rng.choice(b"\x00\r\n \t:0;,a\xff")
        with Client(router.port, timeout=5) as client:
            client.send(bytes(raw))
            client.finish_sending()
            drain(client)
    assert router.alive()
    assert router.ask("GET", "/x").status == 200
    router.wait_idle()
