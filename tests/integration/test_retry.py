"""What fails before its first token is tried elsewhere; what was seen by the client never is."""

import threading
import time

import pytest

from rig.client import CHAT, COMPLETIONS, MESSAGES, Client, chat_body
from rig.wait import until, unused_port
from rig.wire import Closed
from rig.worker import answer


def close_unanswered(ex):
    ex.close()


def reset_unanswered(ex):
    ex.reset()


def head_then_close(ex):
    """A stream that dies between its head and its first token."""
    ex.start_stream()
    ex.close()


def garbage(ex):
    ex.send(b"\x00\x01garbage\r\n\r\n")
    ex.close()


def partial_head(ex):
    ex.send(b"HTTP/1.1 200 OK\r\ncontent-")
    ex.reset()


def test_kept_connection_that_went_stale_is_retried_invisibly(pair):
    """The ordinary case with vLLM: it closes idle connections just when the next request comes."""

    served = {}

    def close_on_second(ex):
        key = id(ex.reader)
        served[key] = served.get(key, 0) + 1
        if served[key] == 2:
            ex.reset()  # the request arrived on an idle connection that is being closed
        else:
            answer(ex)

    worker, router = pair(close_on_second, {"loops": 1, "retry.attempts": 0})
    with Client(router.port) as client:
        for i in range(30):
            got = client.ask("POST", CHAT, body=chat_body(f"turn {i}"))
            assert got.status == 200, (i, got)
    assert worker.accepted > 10, "the test never met a stale connection"


def test_idle_connection_closed_by_the_worker_is_no_error(pair):
    worker, router = pair(config={"retry.attempts": 0})
    for _ in range(10):
        assert router.ask("POST", CHAT, body=chat_body()).status == 200
        worker.cut()  # FIN on the idle connection, as vLLM does after 5 s
    assert len(worker.requests) == 10


def test_idle_upstream_connections_are_closed_before_the_worker_does(pair):
    worker, router = pair(config={"timeouts.upstream_idle": "300ms"})
    assert router.ask("POST", CHAT, body=chat_body()).status == 200
    assert router.sockets_to(worker.port) >= 1
    until(lambda: router.sockets_to(worker.port) == 0, 5, "idle connection closed")


@pytest.mark.parametrize(
    "fault", [close_unanswered, reset_unanswered, head_then_close, garbage, partial_head]
)
@pytest.mark.parametrize("stream", [False, True])
def test_failure_before_the_first_token_goes_to_another_worker(workers, kvway, fault, stream):
    fleet = workers(2)
    fleet[0].script = fault
    router = kvway(fleet, {"routing.strategy": "roundrobin", "health.passive_failures": 1000})
    for i in range(6):
        got = router.ask("POST", CHAT, body=chat_body(str(i), stream=stream))
        assert got.status == 200, got
    assert fleet[0].requests, "round robin must have tried the bad one"
    assert len(fleet[1].requests) == 6
    router.wait_idle()


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, MESSAGES, "/v1/responses", "/v1/embeddings"])
def test_inference_paths_are_repeated(workers, kvway, path):
    fleet = workers(2)
    fleet[0].script = reset_unanswered
    router = kvway(fleet, {"routing.strategy": "roundrobin", "health.passive_failures": 1000})
    body = {**chat_body(), "input": "x", "prompt": "x", "max_tokens": 1}
    for _ in range(4):
        assert router.ask("POST", path, body=body).status == 200
    assert len(fleet[1].requests) == 4


def test_other_posts_are_not_repeated(workers, kvway):
    """It is unknown what a second one would do (RFC 9110 9.2.2)."""
    fleet = workers(2, script=reset_unanswered)
    router = kvway(fleet, {"routing.strategy": "roundrobin", "health.passive_failures": 1000})
    for i in range(4):
        got = router.ask("POST", "/v1/audio/unknown", body=b"payload")
        assert got.status == 502
        assert sum(len(w.requests) for w in fleet) == i + 1


def test_gets_are_repeated(workers, kvway):
    fleet = workers(2)
    fleet[0].script = reset_unanswered
    router = kvway(fleet, {"routing.strategy": "roundrobin", "health.passive_failures": 1000})
    for _ in range(4):
        assert router.ask("GET", "/version").status == 200


def test_refused_connection_goes_to_another_worker(workers, kvway):
    fleet = workers(2)
    router = kvway(fleet, {"routing.strategy": "roundrobin", "health.interval": "1h"})
    fleet[0].stop()
    for i in range(10):
        assert router.ask("POST", CHAT, body=chat_body(str(i))).status == 200
        assert router.ask("POST", "/opaque", body=b"nothing of it was sent").status == 200
    assert len(fleet[1].requests) == 20


def refuse(ex):
    """It says that it cannot serve, so that the request is not suspected of breaking workers."""
    ex.read_body()
    ex.respond(502, body=b"not now", reason="Bad Gateway")


def test_attempts_are_limited(workers, kvway):
    fleet = workers(6, script=refuse)
    router = kvway(
        fleet,
        {
            "routing.strategy": "roundrobin",
            "retry.attempts": 2,
            "health.passive_failures": 1000,
        },
    )
    got = router.ask("POST", CHAT, body=chat_body())
    assert got.status == 502
    tried = [w for w in fleet if w.requests]
    assert len(tried) == 3, "one try and two more, each on another worker"
    assert sum(len(w.requests) for w in fleet) == 3


def test_no_attempts_means_none(workers, kvway):
    fleet = workers(2, script=reset_unanswered)
    router = kvway(fleet, {"retry.attempts": 0, "health.passive_failures": 1000})
    assert router.ask("POST", CHAT, body=chat_body()).status == 502
    assert sum(len(w.requests) for w in fleet) == 1


def test_nothing_is_repeated_after_the_first_token(workers, kvway):
    def one_token(ex):
        ex.start_stream()
        ex.event("first")
        ex.reset()

    fleet = workers(2, script=one_token)
    router = kvway(fleet, {"routing.strategy": "roundrobin"})
    with Client(router.port) as client:
        with pytest.raises(Closed):
            client.ask("POST", CHAT, body=chat_body(stream=True))
    assert sum(len(w.requests) for w in fleet) == 1
    router.wait_idle()


def test_repeated_body_is_the_same(workers, kvway):
    fleet = workers(3)
    fleet[0].script, fleet[1].script = reset_unanswered, refuse
    router = kvway(fleet, {"routing.strategy": "roundrobin", "health.passive_failures": 1000})
    body = chat_body("ü" * 100_000)
    for _ in range(3):
        assert router.ask("POST", CHAT, body=body).status == 200
    bodies = {ex.body for w in fleet for ex in w.requests}
    assert len(bodies) == 1
    ids = {}
    for worker in fleet:
        for ex in worker.requests:
            ids.setdefault(ex.headers.get("x-request-id"), []).append(worker.name)
    assert len(ids) == 3, "a repeated request keeps its id"


@pytest.mark.parametrize("other", ["refused head", "good head", "head in pieces"])
def test_repeated_head_is_its_own_after_other_clients_were_read(workers, kvway, other):
    """One loop reads many clients: what it read last must not leak into a request sent again."""
    go = threading.Event()
    met = []

    def fail_the_first_time(ex):
        met.append(ex)
        if len(met) > 1:
            answer(ex)
        else:
            assert go.wait(10)
            ex.reset()

    fleet = workers(2, script=fail_the_first_time)
    router = kvway(fleet, {"loops": 1, "health.passive_failures": 1000})
    with Client(router.port) as first, Client(router.port) as second:
        first.send_request("POST", CHAT, [("X-Mine", "first")], chat_body("mine"))
        until(lambda: met, 5, "forwarded")
        if other == "refused head":
            second.send(b"POST /other HTTP/1.1\r\nHost: other\r\nX-Theirs: 1\r\nbad line\r\n\r\n")
            assert second.read().status == 400
        elif other == "good head":
            second.send(b"GET /health HTTP/1.1\r\nHost: other\r\nX-Theirs: 1\r\n\r\n")
            assert second.read().status == 200
        else:
            second.send(b"POST /other HTTP/1.1\r\nHost: other\r\nX-Thei")
            time.sleep(0.05)
        go.set()
        assert first.read().status == 200
    again = met[1]
    assert (again.method, again.target) == ("POST", CHAT)
    assert again.headers.get("x-mine") == "first" and "x-theirs" not in again.headers
    assert again.json() == chat_body("mine")


def test_an_error_of_two_workers_is_the_answer(workers, kvway):
    """A 500 is repeated on one other worker; if that says the same, the client gets its words."""
    fleet = workers(3, script=lambda ex: ex.respond(500, body=b'{"error":"mine"}', reason="Oops"))
    router = kvway(fleet)
    got = router.ask("POST", CHAT, body=chat_body())
    assert (got.status, got.body) == (500, b'{"error":"mine"}')
    assert sum(len(w.requests) for w in fleet) == 2


def test_failing_worker_is_left_out_and_let_back_in(workers, kvway):
    fleet = workers(2)
    router = kvway(
        fleet, {"routing.strategy": "roundrobin", "health.fall": 1, "health.interval": "200ms"}
    )
    fleet[0].healthy = False
    until(lambda: fleet[0].probes.count("/health") >= 2)
    time.sleep(0.5)
    before = len(fleet[0].requests)
    for i in range(10):
        assert router.ask("POST", CHAT, body=chat_body(str(i))).status == 200
    assert len(fleet[0].requests) == before, "an unhealthy worker got requests"
    fleet[0].healthy = True

    def used_again():
        router.ask("POST", CHAT, body=chat_body())
        return len(fleet[0].requests) > before

    until(used_again, 5, "the worker is used again")


def test_passive_failures_take_a_worker_out(workers, kvway):
    fleet = workers(2)
    fleet[0].script = reset_unanswered
    router = kvway(
        fleet,
        {
            "routing.strategy": "roundrobin",
            "health.passive_failures": 3,
            "health.interval": "1h",
        },
    )
    for i in range(30):
        assert router.ask("POST", CHAT, body=chat_body(str(i))).status == 200
    assert 3 <= len(fleet[0].requests) <= 6


def test_killed_worker_costs_only_what_it_had_begun(workers, kvway):
    """During load one of three workers dies as by SIGKILL: only streams that had their first
    token from it may fail, and the rest never notices."""
    begun = {}  # request id -> worker that sent its first token

    def script(ex):
        ex.read_body()
        time.sleep(0.03)
        ex.start_stream()
        begun[ex.headers.get("x-request-id")] = ex.worker.name
        for i in range(8):
            ex.event({"i": i, "from": ex.worker.name})
            time.sleep(0.01)
        ex.event("[DONE]")
        ex.end_stream()

    fleet = workers(3, script=script)
    router = kvway(fleet, {"routing.strategy": "roundrobin"})
    failed, good = [], []
    stop = threading.Event()

    def user(number):
        turn = 0
        while not stop.is_set():
            turn += 1
            name = f"u{number}-{turn}"
            try:
                with Client(router.port) as client:
                    got = client.ask(
                        "POST", CHAT, [("X-Request-Id", name)], chat_body(name, stream=True)
                    )
                    assert got.status == 200 and got.events()[-1] == "[DONE]", got
                good.append(name)
            except (Closed, AssertionError) as error:
                failed.append((name, str(error)))

    threads = [threading.Thread(target=user, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    until(lambda: len(good) > 60)
    fleet[1].stop()
    count = len(good)
    until(lambda: len(good) > count + 100)
    stop.set()
    for thread in threads:
        thread.join(10)
    wrong = [(n, why) for n, why in failed if begun.get(n) != "w1"]
    assert not wrong, f"lost without having had a token from the dead worker: {wrong[:3]}"
    assert len(failed) <= 24
    router.wait_idle()


def test_no_worker_at_all(kvway):
    """Nothing listens: 503 or 502 at once, naming what was tried."""
    port = unused_port()
    config = {"http.decision_headers": "on_request"}
    router = kvway([f"http://127.0.0.1:{port}"], config, worker_keys={"models": ["tiny"]})
    got = router.ask("POST", CHAT, body=chat_body())
    assert got.status in (502, 503)
    assert str(port) in got.json()["error"]["message"]
