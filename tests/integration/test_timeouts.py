"""Timeouts that need a clock, a deaf port or a paced peer. The others are tests/requests/timeouts."""

import signal
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from rig.client import CHAT, Client, chat_body
from rig.router import settle
from rig.wait import PATIENCE, until
from rig.wire import Closed
from rig.worker import answer


@contextmanager
def deaf_port():
    """A port whose connection attempts are never answered: its accept queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = []
        for _ in range(8):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        time.sleep(0.05)
        try:
            yield address[1]
        finally:
            for filler in fillers:
                filler.close()


def took(started):
    return time.monotonic() - started


def test_connect_timeout_goes_to_another_worker(workers, kvway):
    (good,) = workers(1)
    with deaf_port() as port:
        router = kvway(
            [f"http://127.0.0.1:{port}", good],
            {"timeouts.connect": "200ms", "routing.strategy": "roundrobin"},
            worker_keys={"models": ["tiny"]},
            up=False,
        ).wait_up()
        for i in range(4):
            assert router.ask("POST", CHAT, body=chat_body(str(i))).status == 200
    assert len(good.requests) == 4


def test_connect_timeout_alone(kvway):
    with deaf_port() as port:
        router = kvway(
            [f"http://127.0.0.1:{port}"],
            {"timeouts.connect": "200ms"},
            worker_keys={"models": ["tiny"]},
        )
        started = time.monotonic()
        got = router.ask("POST", CHAT, body=chat_body())
        assert got.status in (502, 503, 504), got
        assert got.json()["error"]["message"]
        assert took(started) < 3 * PATIENCE


def test_first_token_is_waited_for_once_whatever_is_tried(workers, kvway):
    """The time began again with each worker, and each broke before it was over."""

    def breaks(ex):
        time.sleep(1.4)
        ex.reset()

    fleet = workers(2, script=breaks)
    router = kvway(fleet, {"timeouts.first_token": "2s"})
    assert router.ask("POST", CHAT, body=chat_body()).status == 504
    assert [len(w.requests) for w in fleet] == [1, 1]


def test_where_no_other_worker_is_left_the_first_token_is_waited_for(pair):
    def late(ex):
        time.sleep(0.6)
        ex.respond(body=b"late")

    worker, router = pair(late, {"timeouts.attempt": "100ms"})
    got = router.ask("POST", CHAT, body=chat_body())
    assert (got.status, got.body) == (200, b"late")
    assert len(worker.requests) == 1
    assert router.metric("kvway_timeouts_total", kind="attempt") == 0


def test_request_timeout_begins_again_with_each_request(pair):
    def script(ex):
        time.sleep(0.6)
        ex.respond(body=b"ok")

    _, router = pair(script, {"timeouts.request": "2s"})
    with Client(router.port) as client:
        for _ in range(4):
            assert client.ask("POST", CHAT, body=chat_body()).status == 200


def test_request_timeout_ends_what_waits_for_a_model(kvway):
    router = kvway(["http://127.0.0.1:1"], {"timeouts.request": "300ms"})
    got = router.ask("POST", CHAT, body=chat_body(model="nosuch"))
    assert got.status in (503, 504)
    router.wait_idle()


def test_slow_stream_that_keeps_talking_is_left_alone(pair):
    def script(ex):
        ex.start_stream()
        for i in range(24):
            ex.event(i)
            time.sleep(0.1)
        ex.end_stream()

    _, router = pair(script, {"timeouts.stream_idle": "1500ms", "timeouts.first_token": "1500ms"})
    answer = router.ask("POST", CHAT, body=chat_body(stream=True))
    assert len(answer.events()) == 24


def test_slow_head_is_cut_off(pair):
    """One byte at a time does not extend the time for a head."""
    worker, router = pair(config={"timeouts.head": "400ms"})
    with Client(router.port) as client:
        started = time.monotonic()
        raw = b"GET /x HTTP/1.1\r\nHost: t\r\nX-Slow: " + b"a" * 1000
        status = None
        try:
            for byte in raw:
                client.send(bytes([byte]))
                time.sleep(0.05)
                if took(started) > 3 * PATIENCE:
                    pytest.fail("a slow head was waited for without end")
        except OSError:
            pass
        try:
            status = client.read().status
        except (Closed, OSError):
            pass
        assert status in (None, 408)
    assert worker.requests == []
    assert router.metric("kvway_timeouts_total", kind="head") == 1


def test_slow_body_is_cut_off(pair):
    worker, router = pair(config={"timeouts.body": "400ms", "limits.body_rate": "10KiB"})
    for path in (CHAT, "/opaque"):
        with Client(router.port) as client:
            client.send_head("POST", path, [("Content-Length", "100000")])
            started = time.monotonic()
            status = None
            try:
                while took(started) < 4 * PATIENCE:
                    client.send(b"x")
                    time.sleep(0.05)
                pytest.fail("a slow body was waited for without end")
            except OSError:
                pass
            try:
                status = client.read().status
            except (Closed, OSError):
                pass
            assert status in (None, 408)
    assert router.metric("kvway_timeouts_total", kind="body") == 2
    router.wait_idle()


def test_slow_body_above_the_least_rate_is_served(pair):
    worker, router = pair(config={"timeouts.body": "200ms", "limits.body_rate": "1KiB"})
    with Client(router.port) as client:
        client.send_head("POST", "/opaque", [("Content-Length", "20000")])
        for _ in range(20):
            client.send(b"x" * 1000)
            time.sleep(0.05)
        assert client.read().status == 200
    assert worker.requests[-1].body == b"x" * 20000


def test_idle_client_connection_is_closed(pair):
    _, router = pair(config={"timeouts.client_idle": "1s"})
    with Client(router.port) as client:
        assert client.ask("GET", "/x").status == 200
        started = time.monotonic()
        assert client.closed_by_peer(5)
        assert took(started) > 0.5


def test_client_that_takes_nothing_is_cut_off(pair):
    def script(ex):
        try:
            ex.start_stream()
            while True:
                ex.chunk(b"z" * 65536)
        except Closed:
            ex.keep = False

    worker, router = pair(script, {"timeouts.client_write": "1s"})
    with Client(router.port, receive_buffer=65536) as client:
        client.send_request("POST", CHAT, body=chat_body(stream=True))
        client.read_head()
        until(lambda: router.metric("kvway_timeouts_total", kind="client_write") == 1, 8, "cut off")
    router.wait_idle()


def test_what_came_while_kvway_was_stopped_is_no_timeout(pair):
    """A machine that was paused finds the answer in its socket, and the time for it over."""
    go, sent = threading.Event(), threading.Event()

    def late(ex):
        ex.read_body()
        assert go.wait(30)
        answer(ex)
        sent.set()

    worker, router = pair(late, {"timeouts.first_token": "4s"})
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body())
        worker.wait_requests(1)
        router.signal(signal.SIGSTOP)
        go.set()
        assert sent.wait(30)
        settle(4.5)  # longer than the time
        router.signal(signal.SIGCONT)
        assert client.read("POST").status == 200
