"""Pipelining, at every edge of a buffer. HTTP/1.1's other corners are tests/requests/framing."""

import threading

import pytest

from rig.client import Client
from rig.wire import encode_head


def test_pipelined_requests_are_answered_in_order(pair):
    worker, router = pair(lambda ex: ex.respond(body=ex.target.encode()))
    count = 100
    with Client(router.port) as client:
        raw = b""
        for i in range(count):
            body = b"z" * (i * 37 % 500)
            head = encode_head(f"POST /n/{i} HTTP/1.1", [("Host", "t"), ("Content-Length", str(len(body)))])
            raw += head + body
        client.send(raw)
        for i in range(count):
            assert client.read().body == f"/n/{i}".encode()
    assert [ex.path for ex in worker.requests] == [f"/n/{i}" for i in range(count)]


@pytest.mark.parametrize("pad", [0, 100, 900, 5000, 20000])
def test_pipelined_heads_at_every_edge_of_a_buffer(pair, pad):
    """Sent without a pause: heads begin and end anywhere in the router's buffers."""
    _, router = pair(lambda ex: ex.respond(body=ex.target.encode()))
    count = max(200, min(3000, 3_000_000 // (pad + 60)))
    with Client(router.port, timeout=20) as client:

        def push():
            for i in range(count):
                client.send(b"GET /n/%d HTTP/1.1\r\nHost: t\r\nX-Pad: %b\r\n\r\n" % (i, b"p" * pad))

        thread = threading.Thread(target=push)
        thread.start()
        for i in range(count):
            answer = client.read()
            assert (answer.status, answer.body) == (200, b"/n/%d" % i), answer
        thread.join(20)
