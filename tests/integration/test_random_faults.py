"""Everything that can go wrong on both sides at once: the router stays, and nothing stays counted."""

import json
import random
import socket
import threading
import time

import pytest

from rig.client import CHAT, Client, chat_body
from rig.wait import until
from rig.wire import encode_chunks, encode_head, reset
from rig.worker import answer

SECONDS = 4
CLIENTS = 16

LIMITS = {
    "health.passive_failures": 10000,
    "timeouts.first_token": "700ms",
    "timeouts.stream_idle": "700ms",
    "timeouts.body": "400ms",
    "timeouts.head": "400ms",
    "timeouts.client_write": "1s",
    "timeouts.upstream_idle": "300ms",
    "limits.body": "8MiB",
    "limits.body_memory": "4MiB",
    "limits.high_water": "64KiB",
    "limits.low_water": "16KiB",
    "routing.scan_limit": "1MiB",
}


# --- workers: each fault leaves the connection as a real one would ---


def vanish(ex, _):
    ex.close()


def break_off(ex, _):
    ex.reset()


def half_head(ex, rng):
    ex.send(b"HTTP/1.1 200 OK\r\nx-a: " + b"y" * rng.randrange(400))
    ex.close()


def head_only(ex, _):
    ex.read_body()
    ex.start_stream()
    ex.close()


def broken_stream(ex, rng):
    ex.start_stream()
    for _ in range(rng.randrange(1, 20)):
        ex.chunk(b"data: x\n\n" * rng.randrange(1, 3000))
    rng.choice([ex.close, ex.reset])()


def bad_chunk(ex, _):
    ex.start_stream()
    ex.send(b"zz\r\nbad")
    ex.gone(0.5)
    ex.close()


def stall(ex, rng):
    ex.start_stream()
    ex.chunk(b"x")
    time.sleep(rng.random())
    ex.end_stream()


def late(ex, rng):
    time.sleep(rng.random())
    ex.read_body()
    ex.respond(body=b"late")


def interim(ex, _):
    ex.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
    ex.read_body()
    ex.respond(body=b"after hints")


def early_refusal(ex, rng):
    ex.respond(rng.choice([413, 503]), [("connection", "close")], body=b"no")
    ex.close()


def until_close(ex, rng):
    ex.send(rng.choice([b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"]))
    ex.send(bytes(rng.randrange(200000)))
    ex.close()


def too_short(ex, rng):
    size = rng.randrange(1, 200000)
    ex.head(200, [("content-length", str(size + 10))])
    ex.send(bytes(size))
    ex.close()


def one_too_many(ex, _):
    ex.read_body()
    ex.respond(body=b"one")
    ex.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


def drip(ex, _):
    ex.read_body()
    head = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
    for byte in encode_head("HTTP/1.1 200 OK", head) + encode_chunks([b"data: a\n\n"]):
        ex.send(bytes([byte]))


def well(ex, _):
    ex.read_body()
    answer(ex)


def empty(ex, rng):
    ex.read_body()
    ex.send(rng.choice([b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\n\r\n"]))


def garbage(ex, rng):
    ex.send(rng.choice([b"\x00garbage\r\n\r\n", b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n"]))
    ex.close()


def redirect(ex, rng):
    ex.read_body()
    where = rng.choice([ex.worker.url, "//" + ex.headers.get("host"), "http://[", "https://else.example", ""])
    ex.respond(rng.choice([201, 307]), headers=[("location", where + "/v1/x" * rng.choice([1, 1, 2000]))])


def denied(ex, rng):
    ex.read_body()
    ex.respond(404, headers=[("access-control-allow-origin", "*")] * rng.randrange(3), body=b"no such model")


def full(ex, rng):
    """As engines say it that take no more requests, whole or in pieces."""
    text = b'{"error": {"message": "The engine is currently busy and cannot accept new requests.", "code": 503}}'
    if rng.random() < 0.5:
        ex.read_body()
    if rng.random() < 0.3:
        ex.respond(rng.choice([429, 503]), [("retry-after", rng.choice(["1", "x"]))], body=text)
    elif rng.random() < 0.5:
        ex.start_stream()
        ex.chunk(b"data: " + text + b"\n\n")
        ex.end_stream()
    else:
        at = rng.randrange(len(text))
        ex.head(503, rng.choice([[("content-length", str(len(text)))], [("connection", "close")]]))
        ex.send(text[:at])
        time.sleep(0.01)
        ex.send(text[at:])
        ex.close()


OPENED = [b": keep-alive\n\n", b'event: response.created\ndata: {"type":"response.created"}\n\n',
          b'event: response.in_progress\ndata: {"type":"response.in_progress"}\n\n', b"event: ping\ndata: {}\n\n"]  # fmt: skip


def opened(ex, rng):
    """What servers send before an engine has computed anything, in pieces of any size; then a token, an error or nothing."""
    text = b"".join(rng.choice(OPENED) for _ in range(rng.choice([1, 3, 3, 4000])))
    text += rng.choice([b"", b"event: error\ndata: {}\n\n", b'data: {"error": {"code": 500}}\n\n',
                        b'event: response.output_text.delta\ndata: {"delta":"a"}\n\n'])  # fmt: skip
    ex.read_body()
    ex.start_stream()
    while text:
        size = rng.choice([1, 30, 5000, len(text)])
        ex.chunk(text[:size])
        text = text[size:]
        if rng.random() < 0.02:
            time.sleep(rng.random())
    rng.choice([ex.end_stream, ex.close, ex.reset])()


def encoded(ex, rng):
    ex.read_body()
    ex.respond(headers=[("content-encoding", rng.choice(["gzip", "zstd", "identity"]))], body=bytes(rng.randrange(9000)))


FAULTS = [vanish, break_off, half_head, head_only, broken_stream, bad_chunk, stall, late, interim,
          early_refusal, until_close, too_short, one_too_many, drip, well, empty, garbage, redirect, denied, full, opened, encoded]  # fmt: skip


# --- clients ---


def some_request(rng):
    version = rng.choice(["HTTP/1.1"] * 6 + ["HTTP/1.0"])
    path = rng.choice([CHAT, CHAT, "/v1/files", "/v1/responses"])
    size = rng.choice([1, 100, 9000, 70000, 1500000])
    body = json.dumps(chat_body("y" * size, stream=rng.random() < 0.5)).encode()
    head = [("Host", "x")]
    if rng.random() < 0.1:
        head.append(("Connection", rng.choice(["close", "keep-alive"])))
    if rng.random() < 0.1:
        head.append(("Expect", "100-continue"))
    if rng.random() < 0.2:
        head.append(("Origin", "https://chat.example"))
    if rng.random() < 0.1:
        head.append((rng.choice(["Content-Encoding", "Accept-Encoding"]), rng.choice(["gzip", "zstd", "identity"])))
    if rng.random() < 0.05:
        asks = [("Origin", "null"), ("Access-Control-Request-Method", "POST")]
        return encode_head(f"OPTIONS {rng.choice([path, '/v1/models'])} {version}", [*head, *asks])
    kind = rng.randrange(10)
    if kind == 0:
        return encode_head(f"GET {rng.choice(['/health', '/metrics', '/v1/x'])} {version}", head)
    if kind == 1:
        return encode_head(f"HEAD /v1/x {version}", head)
    if kind == 2:
        return rng.choice([b"NONSENSE\r\n\r\n", b"\r\n\r\n", b"GET /" + b"a" * 40000])
    if kind == 3 or kind == 4:
        wrong = [encode_chunks([body]), b"zz\r\n", b"5\r\nab", b"0\r\nHost: x\r\n\r\n"]
        chunked = [("Transfer-Encoding", "chunked")]
        return encode_head(f"POST {path} HTTP/1.1", head + chunked) + rng.choice(wrong)
    announced = rng.choice([len(body)] * 8 + [len(body) + 100, 100 << 20])
    return encode_head(f"POST {path} {version}", [*head, ("Content-Length", str(announced))]) + body


def send_in_pieces(sock, data, rng, finish):
    try:
        while data:
            size = rng.choice([1, 1000, 100000, len(data)])
            sock.sendall(data[:size])
            data = data[size:]
            if rng.random() < 0.05:
                time.sleep(rng.random() / 5)
        if finish:
            sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the router or the reading side closed


def one_connection(port, rng):
    sock = socket.socket()
    if rng.random() < 0.3:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(3)
    sock.connect(("127.0.0.1", port))
    data = b"".join(some_request(rng) for _ in range(rng.choice([1, 1, 1, 2, 5])))
    if rng.random() < 0.3:
        data = data[: rng.randrange(len(data) + 1)]
    sender = threading.Thread(
        target=send_in_pieces, args=(sock, data, random.Random(rng.random()), rng.random() < 0.2))
    sender.start()
    ends = time.monotonic() + rng.choice([0.05, 0.5, 1.5])
    try:
        while time.monotonic() < ends:
            sock.settimeout(max(0.01, ends - time.monotonic()))
            if not sock.recv(rng.choice([500, 65536])):
                break
    except OSError:
        pass
    if rng.random() < 0.2:
        reset(sock)
    else:
        sock.close()
    sender.join()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("half_close", ["abort", "serve"])
def test_random_faults_on_both_sides_leave_nothing_behind(workers, kvway, seed, half_close):
    fleet = workers(3, read_body=False)
    rng = random.Random(seed)

    def fail_somehow(ex):
        rng.choice(FAULTS)(ex, rng)
        if ex.body is None:
            ex.close()  # as a server that did not read the request must

    for worker in fleet:
        worker.script = fail_somehow
    router = kvway(fleet, {**LIMITS, "http.half_close": half_close})
    ends = time.monotonic() + SECONDS
    connections = [0] * CLIENTS

    def client(number):
        own = random.Random(seed * 1000 + number)
        while time.monotonic() < ends and router.alive():
            one_connection(router.port, own)
            connections[number] += 1

    threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert router.alive(), router.log()[-8000:]
    assert sum(connections) > CLIENTS
    router.wait_idle(10)
    for worker in fleet:
        worker.script = lambda ex: well(ex, rng)
    with Client(router.port) as one:
        for _ in range(10):
            assert one.ask("POST", CHAT, body=chat_body()).status == 200
    until(lambda: router.metric("kvway_client_connections") == 0, 5, "clients gone")
