"""A slow side must not make the router buffer the fast one without limit."""

import threading
import time

import pytest

from rig.client import CHAT, Client, chat_body
from rig.router import SANITIZED
from rig.wait import until
from rig.wire import Closed

MIB = 1 << 20
# What a loop's buffers may come to for good: two slabs of huge pages, touched two MiB at a time.
SLABS = 8 * MIB
ONE_LOOP = {"loops": 1}
memory = pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not the program's")


class Flood:
    """A script that streams as fast as the router takes it, counting what it could send."""

    def __init__(self):
        self.sent = 0
        self.ended = threading.Event()

    def __call__(self, ex):
        piece = b"data: " + b"x" * 65528 + b"\n\n"
        try:
            ex.start_stream()
            while True:
                ex.chunk(piece)
                self.sent += len(piece)
        except Closed:
            ex.keep = False
        finally:
            self.ended.set()


def stalled(counter, seconds=0.5):
    """Waits until counter() no longer grows; returns it."""
    while True:
        before = counter()
        time.sleep(seconds)
        if counter() == before:
            return before


@memory
def test_slow_clients_on_fast_streams_keep_memory_bounded(pair):
    floods = []

    def script(ex):
        if not ex.json().get("stream"):
            ex.respond(body=b"warm")
            return
        flood = Flood()
        floods.append(flood)
        flood(ex)

    _, router = pair(script, ONE_LOOP)
    for i in range(20):  # so that what is made once is there already
        router.ask("POST", CHAT, body=chat_body(f"warm {i}"))
    before = router.rss()
    clients = [Client(router.port, receive_buffer=65536) for _ in range(10)]
    try:
        for client in clients:
            client.send_request("POST", CHAT, body=chat_body(stream=True))
            assert client.read_head().status == 200
        until(lambda: len(floods) == 10)
        stalled(lambda: sum(f.sent for f in floods))
        grown = router.rss() - before
        # ten streams of a quarter MiB of watermark each, and buffers
        assert router.metric("kvway_pending_bytes") < 10 * MIB / 2
        assert grown < 6 * MIB + SLABS, f"grew by {grown / MIB:.1f} MiB"
        # they stopped: what was sent lies in the kernel's buffers, which may grow to 36 MiB each
        assert not any(f.ended.is_set() for f in floods)
    finally:
        for client in clients:
            client.close()
    for flood in floods:
        assert flood.ended.wait(5), "the worker's stream must be closed when its client is gone"
    router.wait_idle()


@memory
def test_slow_reader_gets_everything_in_the_end(pair):
    total = 24 * MIB
    block = bytes(range(256)) * 256

    def script(ex):
        ex.head(200, [("content-length", str(total))])
        for _ in range(total // len(block)):
            ex.send(block)

    _, router = pair(script, ONE_LOOP)
    before = router.rss()
    with Client(router.port, receive_buffer=65536, timeout=30) as client:
        client.send_request("GET", "/large")
        assert client.read_head().status == 200
        time.sleep(0.5)
        assert router.rss() - before < 4 * MIB + SLABS
        left = total
        while left:
            data = client.reader.exactly(min(len(block), left))
            assert data == block
            left -= len(data)
    router.wait_idle()


@memory
def test_slow_worker_holds_a_fast_upload_back(pair):
    """A body that streams through: the client is stopped, not the router's memory filled."""
    go = threading.Event()
    total = 48 * MIB

    def script(ex):
        assert go.wait(30)
        got = len(ex.read_body())
        ex.respond(body=str(got).encode())

    worker, router = pair(script, ONE_LOOP, read_body=False)
    before = router.rss()
    sent = 0
    with Client(router.port, timeout=30) as client:
        client.send_head("PUT", "/opaque", [("Content-Length", str(total))])

        def push():
            nonlocal sent
            while sent < total:
                sent += client.sock.send(b"u" * min(65536, total - sent))

        thread = threading.Thread(target=push)
        thread.start()
        worker.wait_requests(1)
        assert stalled(lambda: sent) < total, "the upload was never held back"
        grown = router.rss() - before
        assert grown < 4 * MIB + SLABS, f"grew by {grown / MIB:.1f} MiB"
        go.set()
        thread.join(30)
        answer = client.read()
        assert (answer.status, answer.body) == (200, str(total).encode())
    router.wait_idle()


def test_pipelining_client_that_never_reads_is_stopped(pair):
    """Answers pile up nowhere: reading requests pauses while answers cannot leave."""
    worker, router = pair(lambda ex: ex.respond(body=b"y" * 100_000))
    with Client(router.port, receive_buffer=65536) as client:
        client.sock.settimeout(0.5)
        try:
            for _ in range(100_000):
                client.send(b"GET /x HTTP/1.1\r\nHost: t\r\nX-Pad: " + b"p" * 900 + b"\r\n\r\n")
        except (TimeoutError, OSError):
            pass  # stopped, as it should be; the kernel's own buffers took some megabytes
        else:
            pytest.fail("the router took 95 MB of requests from a client that reads nothing")
    router.wait_idle()
    assert len(worker.requests) < 2_000


@memory
def test_a_slow_client_does_not_slow_its_neighbours(pair):
    def script(ex):
        if ex.path == "/slow":
            Flood()(ex)
        else:
            ex.respond(body=b"quick")

    _, router = pair(script, {"loops": 1})
    with Client(router.port, receive_buffer=65536) as slow:
        slow.send_request("GET", "/slow")
        assert slow.read_head().status == 200
        stalled(lambda: router.cpu_seconds(), 0.3)
        with Client(router.port) as quick:
            for _ in range(50):
                assert quick.ask("GET", "/quick").body == b"quick"
        busy = router.cpu_seconds()
        time.sleep(1)
        assert router.cpu_seconds() - busy < 0.2, "the router spins while a client is slow"
