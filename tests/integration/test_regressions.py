"""Bugs that once were there. Each test is named after its bug and fails without its fix."""

import os
import resource
import signal
import threading
import time

import pytest

from rig.client import CHAT, Client, chat_body, crowd
from rig.router import SANITIZED, settle
from rig.wait import PATIENCE, until
from rig.wire import encode_head

UPLOAD = "/v1/files"  # no prompt in it: the body streams through as it comes


def send_upload_head(client, length):
    client.send_head("POST", UPLOAD, [("Content-Length", str(length))])


def test_slow_upload_after_a_whole_answer_that_waits_does_not_end_the_router(pair):
    """The body timer went on after the answer was complete, and its second answer was a bug check."""
    size = 16 << 20

    def answers_early(ex):
        ex.respond(200, body=b"a" * size)

    # Long enough to take the answer from the worker on a slow machine.
    config = {"timeouts.body": "2s", "limits.high_water": "64MiB", "loops": 1}
    worker, router = pair(answers_early, config, read_body=False)
    with Client(router.port, receive_buffer=4096) as client:
        send_upload_head(client, 100000)
        client.send(b"x" * 10)
        until(lambda: router.metric("kvway_upstream_busy_connections") == 0
              and router.metric("kvway_pending_bytes") > 0, 10, "answer taken from the worker")
        settle(3.5)
        assert router.alive(), router.log()
        answered = client.read_head()
        assert answered.status == 200
        assert client.reader.exactly(size) == b"a" * size
    router.wait_idle()


def test_stream_that_stalls_after_a_slow_client_caught_up_is_timed_out(pair):
    """A pause for a slow client took the stream's timeout away for good."""
    sent = []
    piece = b"a" * 16384

    def stalls_in_the_pause(ex):
        ex.start_stream()
        while router.metric("kvway_backpressure_pauses_total") == 0:
            ex.chunk(piece)
            sent.append(piece)
            settle(0.003)
        ex.gone(20 * PATIENCE)

    worker, router = pair(stalls_in_the_pause, {"timeouts.stream_idle": f"{700 * PATIENCE:.0f}ms", "loops": 1})
    with Client(router.port, receive_buffer=4096) as client:
        client.send_request("POST", CHAT, body=chat_body(stream=True))
        until(lambda: router.metric("kvway_backpressure_pauses_total") > 0, 20, "pause")
        assert client.read_head().status == 200
        got = 0
        while got < len(sent) * len(piece):
            got += len(client.reader.chunk())
        assert client.closed_by_peer(5), "the stream's silence was not noticed"
    until(lambda: router.metric("kvway_requests_total", end="timeout") == 1, 2, "timeout")
    router.wait_idle()


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not the program's")
def test_pipelined_requests_are_not_read_faster_than_answered(pair):
    """While requests were answered at once, reading went on and the unread ones filled memory."""
    worker, router = pair(config={"loops": 1})
    one = encode_head("GET /health HTTP/1.1", [("Host", "test")])
    before = router.rss()
    with Client(router.port) as client:
        client.sock.setblocking(False)
        block, sent, taken, deadline = one * 2000, 0, 0, time.monotonic() + 3
        view = memoryview(block)
        while time.monotonic() < deadline and sent < 400 << 20:
            try:
                sent += client.sock.send(view[sent % len(one):])
            except BlockingIOError:
                pass
            try:
                taken += len(client.sock.recv(1 << 20))
            except BlockingIOError:
                pass
        grown = router.rss() - before
    assert taken > 0
    assert grown < 24 << 20, f"{grown >> 20} MiB for {sent >> 20} MiB of requests"


def test_reset_is_noticed_while_an_upload_waits_for_its_worker(pair):
    """A client that broke off was not noticed before its worker read on."""
    seen = threading.Event()

    def does_not_read(ex):
        seen.set()
        time.sleep(2 * PATIENCE)
        ex.gone(20 * PATIENCE)

    worker, router = pair(does_not_read, read_body=False)
    with Client(router.port) as client:
        send_upload_head(client, 60 << 20)
        client.sock.setblocking(False)
        quiet = 0
        while quiet < 30:
            try:
                client.sock.send(b"x" * 65536)
                quiet = 0
            except BlockingIOError:
                quiet += 1
                time.sleep(0.01)
        assert seen.wait(5)
        client.reset()
    until(lambda: router.metric("kvway_requests_total", end="client_gone") == 1, 1, "client gone")
    router.wait_idle()


def test_upload_is_not_called_slow_while_its_worker_does_not_read(pair):
    """limits.body_rate counted the time in which the router itself did not read."""

    def reads_late(ex):
        settle(3)
        ex.respond(200, body=str(len(ex.read_body())).encode())

    size = 24 << 20
    config = {"timeouts.body": "300ms", "limits.body_rate": "4MiB"}
    worker, router = pair(reads_late, config, read_body=False)
    with Client(router.port) as client:
        got = client.ask("POST", UPLOAD, body=b"x" * size)
    assert (got.status, got.body) == (200, str(size).encode())


def test_clients_that_wait_when_draining_begins_are_served(pair):
    """Of those whose requests had arrived but were not looked at yet, some were dropped."""
    worker, router = pair(config={"loops": 1, "drain.timeout": "60s"})
    router.signal(signal.SIGSTOP)
    with crowd(router.port, 200) as clients:
        for client in clients:
            client.send_request("POST", CHAT, body=chat_body())
        router.signal(signal.SIGTERM)
        router.signal(signal.SIGCONT)
        got = [client.read().status for client in clients]
    assert got == [200] * 200
    assert router.wait() == 0


def test_worker_is_not_blamed_for_our_lack_of_descriptors(pair):
    """A connection for which we had no descriptor counted as the worker's failure and took it out."""
    config = {"loops": 1, "health.passive_failures": 1, "health.interval": "1h",
              "health.metrics_interval": "1h", "health.models_interval": "1h"}  # fmt: skip
    worker, router = pair(config=config)
    settle(0.3)  # connections of probes and of the start come to rest
    with Client(router.port) as client:
        assert client.ask("GET", "/health").status == 200
        soft, hard = resource.prlimit(router.pid, resource.RLIMIT_NOFILE)
        used = {int(name) for name in os.listdir(f"/proc/{router.pid}/fd")}
        lowest_free = next(n for n in range(len(used) + 1) if n not in used)
        resource.prlimit(router.pid, resource.RLIMIT_NOFILE, (lowest_free, hard))
        got = client.ask("POST", CHAT, body=chat_body())
        assert got.status == 503, got
        resource.prlimit(router.pid, resource.RLIMIT_NOFILE, (soft, hard))
        got = client.ask("POST", CHAT, body=chat_body())
        assert got.status == 200, got
    router.wait_idle()
