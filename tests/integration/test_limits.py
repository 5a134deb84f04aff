"""Limits: what is too large is refused at once, and memory stays bounded."""

import json
import threading

import pytest

from rig.client import CHAT, COMPLETIONS, Client, chat_body, crowd
from rig.router import SANITIZED
from rig.wait import until
from rig.wire import Closed


def test_chunked_body_over_the_limit_is_413(pair):
    worker, router = pair(config={"limits.body": "1MiB"})
    for path in (CHAT, "/opaque"):
        with Client(router.port) as client:
            client.send_head("POST", path, [("Transfer-Encoding", "chunked")])
            try:
                for _ in range(40):
                    client.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused in the middle: the answer may be lost with the rest
            else:
                assert client.read().status == 413
    router.wait_idle()


def test_two_million_tokens_go_where_their_beginning_is(workers, kvway):
    """With default limits, as text and as token ids; in time and memory that grow as the prompt does."""
    fleet = workers(2)
    for worker in fleet:
        worker.metrics = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="300000"} 1\n'
    router = kvway(fleet, {"http.decision_headers": "always"})
    words = " ".join(f"{i % 8191} of these" for i in range(640_000))
    prompts = [words[:9_500_000], [i * 7919 % 128_000 for i in range(2_000_000)]]
    before = router.cpu_seconds(), router.rss()
    for prompt in prompts:
        body = json.dumps({"model": "tiny", "prompt": prompt}).encode()
        seen = []
        for _ in range(2):
            got = router.ask("POST", COMPLETIONS, [("Content-Type", "application/json")], body, timeout=60)
            assert got.status == 200
            seen.append((got.headers.get("x-kvway-worker"), int(got.headers.get("x-kvway-predicted-cached-tokens"))))
        assert seen[0][0] == seen[1][0] and seen[0][1] == 0 and seen[1][1] > 1_900_000
    assert router.cpu_seconds() - before[0] < 2  # 0.1 s, of which most is the copy of 50 MB
    assert router.rss() - before[1] < 128 << 20


def test_announced_bodies_hold_no_memory(pair):
    """What a head promised was charged at once: a few clients that sent nothing shut all others out."""
    # Prompts as long as these would wait for each other at kvway.
    worker, router = pair(config={"limits.body_memory": "4MiB", "admission.enabled": False})
    head = [("Content-Length", str(3 << 20)), ("Content-Type", "application/json")]
    router.wait_idle()  # the exchanges below are the clients', none is one of the start
    with crowd(router.port, 20) as clients:
        for client in clients:
            client.send_head("POST", CHAT, head)
        until(lambda: router.metric("kvway_exchanges") == 20, 5, "all have announced")
        assert router.metric("kvway_body_bytes") == 0
        assert router.ask("POST", CHAT, body=chat_body("x" * 2_000_000)).status == 200
        clients[0].send(b" " * 100_000)
        until(lambda: router.metric("kvway_body_bytes") >= 100_000, 5, "what came is charged")
        assert router.metric("kvway_body_bytes") < 500_000  # with what it is read into
        clients[0].close()
        until(lambda: router.metric("kvway_body_bytes") == 0, 5, "it is given back")
        # two bodies that do not fit together: one is refused in its middle, what it held goes back
        clients[1].send(b" " * (3 << 19))
        clients[2].send(b" " * (3 << 19))
        until(lambda: router.metric("kvway_body_bytes") >= 3 << 20, 5, "both halves are there")
        clients[1].send(b" " * (3 << 19))
        got = clients[1].read()
        assert got.status == 503 and got.headers.get("connection") == "close"
        until(lambda: 3 << 19 <= router.metric("kvway_body_bytes") < (3 << 19) + 500_000, 5, "one half is left")
        rest = json.dumps(chat_body()).encode()
        clients[2].send(b" " * ((3 << 19) - len(rest)) + rest)
        assert clients[2].read().status == 200
    router.wait_idle()


TINY_MESSAGES = b'{"model":"tiny","messages":[' + b"{}," * 60_000


SHAPES = {
    "messages": (CHAT, TINY_MESSAGES),
    "parts": (CHAT, b'{"model":"tiny","messages":[{"role":"user","content":[' + b'"",' * 60_000),
    "prompts": (COMPLETIONS, b'{"model":"tiny","prompt":[' + b"[1]," * 60_000),
    "members": (CHAT, b'{"model":"tiny","tools":[{' + b"".join(b'"%d":1,' % i for i in range(60_000))),
}


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's own memory is not the router's")
@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_body_is_read_into_counts(pair, shape):
    """Short pieces are held as many times their bytes: the gauge shows what the process grows by."""
    path, body = SHAPES[shape]
    _, router = pair()
    before = router.rss()
    clients = [Client(router.port) for _ in range(40)]
    try:
        for client in clients:
            client.send_head("POST", path, [("Content-Type", "application/json"), ("Content-Length", "4000000")])
            client.send(body)
        until(lambda: router.metric("kvway_body_bytes") > 40 * len(body) * 2, 20, "the bodies are read")
        grown = router.rss() - before - (8 << 20)  # of which connections and code that was not used before
        assert router.metric("kvway_body_bytes") > 0.8 * grown, grown
    finally:
        for client in clients:
            client.close()
    until(lambda: router.metric("kvway_body_bytes") == 0, 10, "given back")


def flood(ex):
    """To clients that do not read it."""
    piece = b"data: " + b"x" * 65528 + b"\n\n"
    try:
        ex.start_stream()
        while True:
            ex.chunk(piece)
    except Closed:
        ex.keep = False


def open_at_length(ex):
    """A stream that echoes the request, and waits for its engine."""
    ex.start_stream()
    ex.chunk(b"event: response.created\ndata: {%s}\n\n" % (b"x" * 200_000))
    ex.gone(60)


WAITING = {  # of 60 clients, together
    "for slow clients": (flood, CHAT, chat_body(stream=True), 60 << 20),
    "for a first token": (open_at_length, "/v1/responses", {"model": "tiny", "input": "a", "stream": True}, 11 << 20),
}


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's own memory is not the router's")
@pytest.mark.parametrize("shape", WAITING)
def test_answers_that_wait_count(pair, shape):
    script, path, body, held = WAITING[shape]
    _, router = pair(script, {"limits.high_water": "1MiB", "loops": 1, "admission.enabled": False})
    before = router.rss()
    with crowd(router.port, 60) as clients:
        for client in clients:
            client.send_request("POST", path, body=body)
        until(lambda: router.metric("kvway_body_bytes") > held, 20, "answers wait")
        grown = router.rss() - before - (8 << 20)  # of which slabs, connections and code
        assert router.metric("kvway_body_bytes") > 0.8 * grown, grown
    until(lambda: router.metric("kvway_body_bytes") == 0, 20, "given back")


def test_answers_wait_in_less_memory_when_it_is_used_up(pair):
    config = {"limits.high_water": "4MiB", "limits.body_memory": "2MiB", "loops": 1, "admission.enabled": False}
    _, router = pair(flood, config)
    with crowd(router.port, 10) as clients:
        for client in clients:
            client.send_request("POST", CHAT, body=chat_body(stream=True))
        until(lambda: router.metric("kvway_backpressure_pauses_total") >= 10, 20, "all wait")
        assert router.metric("kvway_body_bytes") < 6 << 20  # forty before
        assert router.ask("POST", CHAT, body=chat_body()).status == 503
    until(lambda: router.metric("kvway_body_bytes") == 0, 20, "given back")


def test_what_a_body_is_read_into_is_refused_beyond_the_limit(pair):
    _, router = pair(config={"limits.body_memory": "16MiB"})
    clients = [Client(router.port) for _ in range(8)]
    try:
        for client in clients:
            client.send_head("POST", CHAT, [("Content-Type", "application/json"), ("Content-Length", "1000000")])
            client.send(TINY_MESSAGES)
        until(lambda: router.metric("kvway_body_memory_refused_total") >= 1, 20, "one is refused")
        # what the last reads of each brought is counted when it is there; all of it would be 200 MB
        assert router.metric("kvway_body_bytes") < 32 << 20
    finally:
        for client in clients:
            client.close()
    until(lambda: router.metric("kvway_body_bytes") == 0, 10, "given back")
    assert router.ask("POST", CHAT, body=chat_body()).status == 200


def test_body_memory_is_shared_by_all_requests(pair):
    """Bodies that would not fit together: 503 with Retry-After, and room again afterwards."""
    worker, router = pair(config={"limits.body_memory": "4MiB"})
    body = chat_body("x" * 1_500_000)
    go = threading.Event()

    def script(ex):
        assert go.wait(20)
        ex.respond(body=b"done")

    worker.script = script
    clients = [Client(router.port, timeout=20) for _ in range(6)]
    try:
        answers = []

        def send(client):
            client.send_request("POST", CHAT, body=body)
            answers.append(client.read())

        threads = [threading.Thread(target=send, args=(c,)) for c in clients]
        for thread in threads:
            thread.start()
        # A worker with so long a prompt before it is sent no second one: that waits in kvway.
        waiting = lambda: router.metric("kvway_waiting_requests")
        decided = lambda: len(answers) + len(worker.requests) + waiting()
        until(lambda: decided() >= 6, 10, "all requests decided")
        refused = [a for a in answers if a.status == 503]
        assert len(refused) >= 4 and worker.requests, "two of six bodies of 1.5 MB fit into 4 MiB"
        assert all(int(a.headers.get("retry-after")) >= 1 for a in refused)
        assert all(a.json()["error"]["message"] for a in refused)
        go.set()
        for thread in threads:
            thread.join(20)
        assert [a.status for a in answers].count(200) == 6 - len(refused)
    finally:
        go.set()
        for client in clients:
            client.close()
    router.wait_idle()
    worker.script = lambda ex: ex.respond(body=b"again")
    assert router.ask("POST", CHAT, body=body).body == b"again"


def test_connections_over_the_limit_do_no_harm(pair):
    """As many clients as the limit says are served, whichever event loop accepts them first."""
    _, router = pair(config={"limits.connections": 32})
    until(lambda: router.metric("kvway_client_connections") == 0, 5, "no client connected")
    before = router.metric("kvway_connections_refused_total")

    def served(client):
        try:
            return client.ask("GET", "/x").status == 200
        except (OSError, Closed):
            return False

    clients = [Client(router.port, timeout=10) for _ in range(60)]
    try:
        refused = lambda: router.metric("kvway_connections_refused_total") - before
        until(lambda: refused() == 28, 10, "28 of 60 connections refused")
        assert [served(client) for client in clients].count(True) == 32
        assert router.alive()
    finally:
        for client in clients:
            client.close()
    until(lambda: router.ask("GET", "/x").status == 200, 5, "served again")
