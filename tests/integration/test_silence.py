"""Bytes for a client whose stream waits, and what ends a wait within an answer."""

import json
import threading
import time

import pytest

from rig.client import CHAT, MESSAGES, Client, chat_body
from rig.wait import until
from rig.wire import Closed

RESPONSES = "/v1/responses"
COMMENT = b": keep-alive\n\n"
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"good"}}]}\n\n'
COUNTERS = 'vllm:iteration_tokens_total_count{engine="0"} %d\nvllm:num_requests_running{engine="0"} 1\n'
OFTEN = {"http.keep_alive_comments": "100ms"}
TURNS = {"routing.strategy": "roundrobin", "ejection.max_share": 0}
BODIES = {
    CHAT: chat_body(stream=True),
    MESSAGES: chat_body(stream=True, max_tokens=3),
    RESPONSES: {"model": "tiny", "input": "hello", "stream": True},
}


@pytest.fixture
def release():
    event = threading.Event()
    yield event
    event.set()


def waits(release, head, then=lambda ex: (ex.chunk(TOKEN), ex.end_stream())):
    """With its head at once, as vLLM sends it, or with the first token."""

    def script(ex):
        ex.read_body()
        if head:
            ex.start_stream()
        release.wait(20)
        if not head:
            ex.start_stream()
        then(ex)

    return script


def begin(client, path=CHAT, version="HTTP/1.1"):
    """Asks, and returns the head with which comments begin to come."""
    client.send_request("POST", path, body=BODIES[path], version=version)
    head = client.read_head()
    assert head.status == 200 and head.headers.get("content-type").startswith("text/event-stream")
    return head


def without_comments(body):
    assert COMMENT in body
    return body.replace(COMMENT, b"")


@pytest.mark.parametrize("head", [False, True])
def test_a_client_that_waits_for_a_prefill_gets_comments(workers, kvway, release, head):
    (worker,) = workers(1, script=waits(release, head))
    router = kvway([worker], OFTEN)
    with Client(router.port) as client:
        begun = begin(client)
        assert begun.headers.get("x-request-id") or head
        release.set()
        assert without_comments(client.read_body(begun).body) == TOKEN
        assert client.ask("POST", CHAT, body=BODIES[CHAT]).body == TOKEN  # the connection goes on
    router.wait_idle()


def test_without_the_key_nothing_comes_before_the_answer(workers, kvway):
    def late(ex):
        ex.read_body()
        time.sleep(0.5)
        ex.respond(500, body={"error": {"message": "broken"}})

    (worker,) = workers(1, script=late)
    assert kvway([worker]).ask("POST", CHAT, body=BODIES[CHAT]).status == 500


@pytest.mark.parametrize("fails", ["reset", "error", "500"])
@pytest.mark.parametrize("head", [False, True])
def test_a_request_goes_elsewhere_behind_comments(workers, kvway, release, head, fails):
    def broken(ex):
        ex.read_body()
        if head:
            ex.start_stream()
        time.sleep(0.35)
        if fails == "reset" or (head and fails == "500"):
            ex.reset()
        elif fails == "500":
            ex.respond(500, body={"error": {"message": "broken"}})
        else:
            if not head:
                ex.start_stream()
            ex.event({"error": {"message": "broken", "code": 500}})
            ex.end_stream()

    release.set()
    fleet = workers(2, script=waits(release, True))
    fleet[0].script = broken
    router = kvway(fleet, dict(OFTEN, **TURNS))
    for _ in range(2):
        got = router.ask("POST", CHAT, body=BODIES[CHAT])
        assert got.body.replace(COMMENT, b"") == TOKEN
    assert router.metric("kvway_retries_total") == len(fleet[0].requests) > 0


def test_an_old_client_gets_comments_until_the_end_of_its_connection(workers, kvway, release):
    (worker,) = workers(1, script=waits(release, False))
    router = kvway([worker], OFTEN)
    with Client(router.port) as client:
        begun = begin(client, version="HTTP/1.0")
        release.set()
        assert without_comments(client.read_body(begun).body) == TOKEN


def events_of(body):
    return [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("path", sorted(BODIES))
def test_errors_behind_comments_are_events_of_the_path(workers, kvway, path):
    """kvway's own, and a worker's."""

    def refuses(ex):
        ex.read_body()
        time.sleep(0.35)
        text = '{"type": "error",\n "error": {"message": "too long", "type": "invalid"}}'
        ex.respond(400, body=text.encode(), headers=[("content-type", "application/json")])

    def breaks(ex):
        ex.read_body()
        time.sleep(0.35)
        ex.reset()

    (worker,) = workers(1, script=refuses)
    router = kvway([worker], dict(OFTEN, **TURNS))
    for script, part in ((refuses, "too long"), (breaks, "no worker could answer")):
        worker.script = script
        with Client(router.port) as client:
            body = client.read_body(begin(client, path)).body
            events = events_of(body)
            error = json.loads(events[0])
            assert part in error["error"]["message"]
            assert (events[1:] == ["[DONE]"]) == (path == CHAT)
            assert (b"event: error\n" in body) == (path != CHAT)
            assert error.get("type", "error") == "error"
    router.wait_idle()


def test_comments_of_a_worker_reach_the_client(workers, kvway, release):
    def comments(ex):
        ex.read_body()
        ex.start_stream()
        ex.chunk(COMMENT)
        release.wait(20)
        ex.chunk(TOKEN)
        ex.end_stream()

    (worker,) = workers(1, script=comments)
    router = kvway([worker])
    with Client(router.port) as client:
        begun = begin(client)
        release.set()
        assert without_comments(client.read_body(begun).body) == TOKEN


def test_a_client_whose_model_is_woken_gets_comments_and_then_an_event(workers, kvway):
    """It waits at kvway, and no worker is asked."""
    (worker,) = workers(1)
    config = {
        "discovery.wake.hold": "500ms",
        "discovery.wake.models": ["absent"],
        "discovery.wake.webhook": "http://127.0.0.1:9/wake",
    }
    router = kvway([worker], dict(OFTEN, **config))
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body(model="absent", stream=True))
        head = client.read_head()
        assert head.status == 200
        events = events_of(client.read_body(head).body)
        assert json.loads(events[0])["error"]["message"] and events[1] == "[DONE]"
    assert not worker.requests


def test_a_stream_whose_engine_computes_is_not_cut(workers, kvway, release):
    count = [5]

    def pauses(ex):
        ex.read_body()
        ex.start_stream()
        ex.chunk(TOKEN)
        for _ in range(20):
            count[0] += 1
            ex.worker.metrics = COUNTERS % count[0]
            time.sleep(0.1)
        ex.chunk(TOKEN)
        ex.end_stream()

    (worker,) = workers(1, script=pauses)
    worker.metrics = COUNTERS % 5
    config = {"timeouts.stream_idle": "700ms", "health.metrics_interval": "100ms"}
    router = kvway([worker], config)
    assert router.ask("POST", CHAT, body=BODIES[CHAT]).body == TOKEN + TOKEN


def test_what_cuts_an_answer_leaves_a_line_that_names_the_timer(workers, kvway, release):
    def pauses(ex):
        ex.read_body()
        ex.start_stream()
        ex.chunk(TOKEN)
        try:
            while not release.wait(0.05):
                ex.chunk(COMMENT)
        except Closed:
            pass
        ex.close()

    (worker,) = workers(1, script=pauses)
    worker.metrics = COUNTERS % 5
    timers = {"timeouts.stream_idle": "300ms", "timeouts.request": "300ms"}
    for timer, short in timers.items():
        router = kvway([worker], {timer: short})
        with pytest.raises(Closed):
            router.ask("POST", CHAT, body=BODIES[CHAT])
        until(lambda: f"answer cut: {timer} passed" in router.log(), 10, f"a line for {timer}")  # noqa: B023
        line = next(row for row in router.log().splitlines() if "answer cut" in row)
        assert worker.url in line and "request_id=" in line
