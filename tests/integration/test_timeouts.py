"""Every timeout ends what it guards, with the right answer, and counts it."""

import signal
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from rig.client import CHAT, MESSAGES, Client, chat_body
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


def silent(ex):
    assert ex.gone(15), "the router never gave up"
    ex.keep = False


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


@pytest.mark.parametrize("stream", [False, True])
def test_no_first_token_is_504_and_not_repeated(workers, kvway, stream):
    fleet = workers(2, script=silent)
    router = kvway(fleet, {"timeouts.first_token": "300ms"})
    started = time.monotonic()
    got = router.ask("POST", CHAT, body=chat_body(stream=stream))
    assert got.status == 504
    assert "error" in got.json()
    assert 0.25 < took(started) < 3 * PATIENCE
    assert sum(len(w.requests) for w in fleet) == 1, "a timeout must not be repeated"
    assert router.metric("kvway_timeouts_total", kind="first_token") == 1
    router.wait_idle()


def test_first_token_is_waited_for_once_whatever_is_tried(workers, kvway):
    """The time began again with each worker."""

    def breaks(ex):
        time.sleep(0.7)
        ex.reset()

    fleet = workers(2, script=breaks)
    router = kvway(fleet, {"timeouts.first_token": "1s"})
    started = time.monotonic()
    assert router.ask("POST", CHAT, body=chat_body()).status == 504
    assert took(started) < 1.3 * PATIENCE
    assert [len(w.requests) for w in fleet] == [1, 1]


@pytest.mark.parametrize("stream", [False, True])
def test_a_worker_that_takes_too_long_is_left_for_another(workers, kvway, stream):
    def head_at_most(ex):
        if stream:
            ex.start_stream()
        silent(ex)

    fleet = workers(2)
    fleet[0].script = head_at_most
    config = {"timeouts.attempt": "300ms", "routing.strategy": "roundrobin"}
    router = kvway(fleet, config)
    for _ in range(2):
        got = router.ask("POST", CHAT, body=chat_body(stream=stream))
        assert got.status == 200 and (b"three" if stream else b"w1") in got.body
    assert [len(w.requests) for w in fleet] == [2, 2]
    assert router.metric("kvway_timeouts_total", kind="attempt") == 2
    assert router.metric("kvway_worker_bad_answers_total") == 2
    router.wait_idle()


def test_a_kept_connection_does_not_bring_a_left_worker_the_request_again(workers, kvway):
    fleet = workers(2)
    config = {"timeouts.attempt": "300ms", "routing.strategy": "roundrobin"}
    router = kvway(fleet, config)
    for _ in range(4):
        assert router.ask("POST", CHAT, body=chat_body()).status == 200
    fleet[0].script = silent
    for _ in range(2):
        assert router.ask("POST", CHAT, body=chat_body()).status == 200
    assert [len(w.requests) for w in fleet] == [2 + 2, 2 + 2]


def test_where_no_other_worker_is_left_the_first_token_is_waited_for(pair):
    def late(ex):
        time.sleep(0.6)
        ex.respond(body=b"late")

    worker, router = pair(late, {"timeouts.attempt": "100ms"})
    got = router.ask("POST", CHAT, body=chat_body())
    assert (got.status, got.body) == (200, b"late")
    assert len(worker.requests) == 1
    assert router.metric("kvway_timeouts_total", kind="attempt") == 0


@pytest.mark.parametrize("body", [chat_body(), b"x" * 100], ids=["whole", "streamed"])
def test_request_timeout_without_an_answer_is_504(pair, body):
    worker, router = pair(silent, {"timeouts.request": "400ms"})
    started = time.monotonic()
    got = router.ask("POST", CHAT, body=body)
    assert got.status == 504 and "timeouts.request" in got.json()["error"]["message"]
    assert 0.35 < took(started) < 3 * PATIENCE
    assert router.metric("kvway_timeouts_total", kind="request") == 1
    assert router.metric("kvway_worker_bad_answers_total") == 0
    router.wait_idle()


def test_request_timeout_counts_from_the_head(pair):
    """It ends a body that comes in time for its own limits."""
    _, router = pair(config={"timeouts.request": "600ms"})
    with Client(router.port) as client:
        client.send_head("POST", CHAT, [("Content-Length", "1000"), ("Content-Type", "application/json")])
        for _ in range(4):
            client.send(b" " * 10)
            time.sleep(0.05)
        assert client.read().status == 504
        assert client.closed_by_peer()
    router.wait_idle()


def test_request_timeout_cuts_an_answer(pair):
    def script(ex):
        ex.start_stream()
        while not ex.gone(0.05):
            ex.event("more")

    _, router = pair(script, {"timeouts.request": "500ms"})
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body(stream=True))
        answer = client.read_head()
        assert answer.status == 200
        with pytest.raises(Closed):
            client.read_body(answer)
    assert router.metric("kvway_requests_total", end="timeout") == 1
    router.wait_idle()


def test_request_timeout_begins_again_with_each_request(pair):
    def script(ex):
        time.sleep(0.3)
        ex.respond(body=b"ok")

    _, router = pair(script, {"timeouts.request": "700ms"})
    with Client(router.port) as client:
        for _ in range(4):
            assert client.ask("POST", CHAT, body=chat_body()).status == 200


def test_request_timeout_ends_what_waits_for_a_model(kvway):
    router = kvway(["http://127.0.0.1:1"], {"timeouts.request": "300ms"})
    got = router.ask("POST", CHAT, body=chat_body(model="nosuch"))
    assert got.status in (503, 504)
    router.wait_idle()


def test_stream_head_without_a_token_is_504(pair):
    """The head of a stream comes early; only a token counts."""

    def script(ex):
        ex.start_stream()
        silent(ex)

    _, router = pair(script, {"timeouts.first_token": "300ms"})
    assert router.ask("POST", CHAT, body=chat_body(stream=True)).status == 504


def test_504_has_the_shape_of_its_path(pair):
    _, router = pair(silent, {"timeouts.first_token": "200ms"})
    error = router.ask("POST", CHAT, body=chat_body()).json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["code"] == 504
    error = router.ask("POST", MESSAGES, body=chat_body(max_tokens=5)).json()
    assert error["type"] == "error" and set(error["error"]) >= {"type", "message"}


def test_silence_within_a_stream_cuts_it(pair):
    def script(ex):
        ex.start_stream()
        ex.event("first")
        silent(ex)

    _, router = pair(script, {"timeouts.stream_idle": "300ms"})
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body(stream=True))
        answer = client.read_head()
        assert answer.status == 200
        started = time.monotonic()
        with pytest.raises(Closed):
            client.read_body(answer)
        assert took(started) < 3 * PATIENCE
    assert router.metric("kvway_timeouts_total", kind="stream_idle") == 1
    router.wait_idle()


def test_slow_stream_that_keeps_talking_is_left_alone(pair):
    def script(ex):
        ex.start_stream()
        for i in range(12):
            ex.event(i)
            time.sleep(0.1)
        ex.end_stream()

    _, router = pair(script, {"timeouts.stream_idle": "500ms", "timeouts.first_token": "500ms"})
    answer = router.ask("POST", CHAT, body=chat_body(stream=True))
    assert len(answer.events()) == 12


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


def test_connection_without_a_byte_is_closed_in_time(pair):
    _, router = pair(config={"timeouts.head": "300ms", "timeouts.client_idle": "1s"})
    with Client(router.port) as client:
        assert client.closed_by_peer(5)


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
