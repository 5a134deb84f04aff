"""Byte identity: whatever the sizes, framings and splits on the wire, bodies arrive unchanged.

Everything random comes from seeds in the test's name, so a failure repeats.
"""

import hashlib
import json
import random

import pytest

from rig.client import CHAT, COMPLETIONS, Client
from rig.wire import encode_chunks, encode_head

SIZES = [0, 1, 2, 255, 256, 257, 4095, 4096, 16383, 16384, 65535, 65536, 262144, 1048576]


def random_size(rng):
    """Mostly small, sometimes up to 1 MB, with the edges of buffers well represented."""
    return rng.choice(
        [rng.choice(SIZES), rng.randrange(0, 64), rng.randrange(0, 70000), rng.randrange(1 << 20)]
    )


def split(rng, data, most=40):
    """Random pieces, none empty."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(most))) if data else []
    edges = [0, *cuts, len(data)]
    return [data[a:b] for a, b in zip(edges, edges[1:]) if a < b]


def json_body(rng, size):
    """A chat body of about that size, so that it is scanned and routed by content."""
    text = "".join(rng.choice('abc é"\\\n日😀\t/') for _ in range(min(size, 3000)))
    text *= max(1, size // max(1, len(text)))
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}]}
    return json.dumps(body, ensure_ascii=rng.random() < 0.5).encode()


def request_bytes(rng, path, body):
    """The request on the wire, chunked or with its length."""
    headers = [("Host", "t"), ("Content-Type", "application/json")]
    if rng.random() < 0.5:
        headers.append(("Transfer-Encoding", "chunked"))
        return encode_head(f"POST {path} HTTP/1.1", headers) + encode_chunks(split(rng, body))
    headers.append(("Content-Length", str(len(body))))
    return encode_head(f"POST {path} HTTP/1.1", headers) + body


def answer_bytes(rng, body, headers):
    if rng.random() < 0.5:
        headers = [*headers, ("transfer-encoding", "chunked")]
        return encode_head("HTTP/1.1 200 OK", headers) + encode_chunks(split(rng, body))
    headers = [*headers, ("content-length", str(len(body)))]
    return encode_head("HTTP/1.1 200 OK", headers) + body


def send_in_pieces(rng, send, data):
    for piece in split(rng, data, most=rng.choice([1, 3, 30])):
        send(piece)


def mirror(seed):
    """A script that answers with random bytes made from the request's X-Seed."""

    def script(ex):
        body = ex.read_body()
        rng = random.Random(f"{seed}/{ex.headers.get('x-seed')}")
        reply = rng.randbytes(random_size(rng))
        headers = [("x-got", hashlib.sha256(body).hexdigest()), ("x-len", str(len(body)))]
        send_in_pieces(rng, ex.send, answer_bytes(rng, reply, headers))

    return script


def expected_reply(seed, key):
    rng = random.Random(f"{seed}/{key}")
    return rng.randbytes(random_size(rng))


@pytest.mark.parametrize("seed", range(4))
def test_random_bodies_both_ways(pair, seed):
    _, router = pair(mirror(seed))
    rng = random.Random(seed)
    with Client(router.port) as client:
        for turn in range(25):
            json_like = rng.random() < 0.6
            size = random_size(rng)
            body = json_body(rng, size) if json_like else rng.randbytes(size)
            path = rng.choice([CHAT, COMPLETIONS, "/opaque"]) if json_like else "/opaque"
            raw = request_bytes(rng, path, body).replace(
                b"Host: t\r\n", f"Host: t\r\nX-Seed: {turn}\r\n".encode(), 1
            )
            send_in_pieces(rng, client.send, raw)
            answer = client.read()
            where = f"seed {seed} turn {turn} {path} {len(body)} bytes"
            assert answer.status == 200, (where, answer)
            assert answer.headers.get("x-len") == str(len(body)), where
            assert answer.headers.get("x-got") == hashlib.sha256(body).hexdigest(), where
            assert answer.body == expected_reply(seed, turn), where


@pytest.mark.parametrize("size", SIZES)
def test_sizes_at_the_edges_of_buffers(pair, size):
    received = []

    def script(ex):
        received.append(ex.read_body())
        ex.respond(200, body=ex.body)

    _, router = pair(script)
    data = random.Random(size).randbytes(size)
    for chunked in (False, True):
        if chunked:
            answer = router.ask("POST", "/echo", chunks=[data])
        else:
            answer = router.ask("POST", "/echo", body=data)
        assert answer.status == 200
        assert received[-1] == data
        assert answer.body == data


def test_event_stream_arrives_byte_for_byte(pair):
    rng = random.Random(7)
    events = [b"data: " + json.dumps({"t": "x" * rng.randrange(2000)}).encode() + b"\n\n"
              for _ in range(200)]  # fmt: skip
    whole = b"".join([*events, b": comment\r\n\r\n", b"event: e\ndata: \xc3\xa9\n\n"])
    whole += b"data: [DONE]\n\n"

    def script(ex):
        ex.start_stream()
        send_in_pieces(rng, ex.send, encode_chunks(split(rng, whole, 300)))

    _, router = pair(script)
    answer = router.ask("POST", CHAT, body={"model": "tiny", "stream": True, "messages": []})
    assert answer.headers.get("content-type") == "text/event-stream; charset=utf-8"
    assert answer.framing == "chunked"
    assert answer.body == whole
