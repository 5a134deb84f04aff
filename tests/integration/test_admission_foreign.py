"""Clients that ask a worker around kvway: its own metrics show them, and what kvway sends goes by that."""

import pytest

from rig.client import CHAT, COMPLETIONS, Client, ask, chat_body
from rig.wait import until

# A prompt of theirs takes the simulated worker a third of a second, so that nearly all of them wait there.
SLOW_SIM = ("--speed", "0.2")
THEIRS = 40
WORDS = 1500
CONFIG = {
    "admission.enabled": True,
    "admission.worker_queue": "500ms",
    "loops": 1,
    "routing.prefill_tokens_per_second": 1000,
    "health.interval": "10m",
    "health.metrics_interval": "200ms",
    "http.decision_headers": "on_request",
}


class Intruders:
    """Requests that are sent to a worker directly and not waited for."""

    def __init__(self, worker, count):
        self.clients = []
        for number in range(count):
            self.clients.append(Client(worker.port))
            self.clients[-1].send_request("POST", CHAT, body=chat_body(f"{number} " + "word " * WORDS, stream=True))

    def close(self):
        for client in self.clients:
            client.close()
        self.clients = []


@pytest.fixture
def intrude():
    made = []

    def begin(worker, count=THEIRS):
        made.append(Intruders(worker, count))
        return made[-1]

    yield begin
    for intruders in made:
        intruders.close()


def seen(router, worker):
    """Until kvway knows that many wait there, and that they take some seconds."""
    until(lambda: router.metric("kvway_worker_foreign_waiting", worker=worker.url) >= THEIRS // 2, 20, "foreign requests")
    until(lambda: router.metric("kvway_worker_foreign_queue_seconds", worker=worker.url) > 4, 20, "their time")


def gone(router, worker):
    for what in ("waiting", "running"):
        name = f"kvway_worker_foreign_{what}"
        until(lambda name=name: router.metric(name, worker=worker.url) == 0, 20, "no foreign request")


def at_work(worker):
    """Requests that the engine has."""
    rows = worker.ask("GET", "/metrics").body.decode().splitlines()
    names = ("vllm:num_requests_waiting{", "vllm:num_requests_running{")
    return sum(float(row.rsplit(" ", 1)[1]) for row in rows if row.startswith(names))


def one(router, text, **more):
    """A prompt of one word through kvway; where it went."""
    answer = ask(router.port, "POST", CHAT, [("x-kvway-explain", "1")], chat_body(text, max_tokens=1, **more), timeout=60)
    assert answer.status == 200, answer
    return answer.headers.get("x-kvway-worker")


def explained(router):
    answer = ask(router.admin_port, "POST", "/explain", (), chat_body("hello"))
    assert answer.status == 200, answer
    return answer.json()


def test_the_other_worker_gets_what_kvway_sends_until_they_are_gone(kvsim, kvway, intrude):
    pair = kvsim(2, *SLOW_SIM, profile="llama-8b-h100")
    router = kvway(pair, CONFIG)
    home = one(router, "first")
    busy, free = sorted(pair, key=lambda worker: worker.url != home)
    assert router.metric("kvway_worker_foreign_queue_seconds") == 0
    theirs = intrude(busy)
    seen(router, busy)
    for number in range(3):
        assert one(router, f"{number}") == free.url
        assert one(router, "first") == free.url  # although the other one has it cached
    assert router.metric("kvway_worker_foreign_waiting", worker=free.url) == 0
    theirs.close()
    gone(router, busy)
    numbers = iter(range(100))
    until(lambda: one(router, f"again {next(numbers)}") == busy.url, 20, "one that goes there")


def test_a_promise_is_refused_until_they_are_gone(kvsim, kvway, intrude):
    (worker,) = kvsim(1, *SLOW_SIM, profile="llama-8b-h100")
    router = kvway([worker], {**CONFIG, "service_level.ttft": "1s"})
    assert one(router, "first") == worker.url
    theirs = intrude(worker)
    seen(router, worker)
    told = explained(router)
    assert (told["admission"]["verdict"], told["admission"]["reason"]) == ("refused", "service_level"), told
    assert told["workers"][0]["foreign_ms"] > 2000, told
    answer = ask(router.port, "POST", CHAT, (), chat_body("hello", max_tokens=1), timeout=60)
    assert (answer.status, answer.json()["error"]["code"]) == (429, "service_level"), answer
    assert worker.stats()["finished"] == 1
    theirs.close()
    gone(router, worker)
    assert one(router, "again") == worker.url
    assert explained(router)["admission"]["verdict"] == "admitted"
    router.wait_idle()


def test_without_a_promise_it_waits_no_longer_than_those_before_it(kvsim, kvway, intrude):
    """They keep on coming, so kvway's own request would never go if it waited for all of them."""
    (worker,) = kvsim(1, *SLOW_SIM, profile="llama-8b-h100")
    router = kvway([worker], CONFIG)
    intrude(worker, 12)
    until(lambda: router.metric("kvway_worker_foreign_queue_seconds") > 2, 20, "their time")
    with Client(router.port, 60) as client:
        client.send_request("POST", CHAT, body=chat_body("hello", max_tokens=1, stream=True))
        until(lambda: router.metric("kvway_waited_total") == 1, 20, "it waits")
        intrude(worker, 12)
        until(lambda: router.metric("kvway_worker_inflight") == 1, 20, "it is at the worker")
        assert at_work(worker) > 3
    assert router.metric("kvway_wait_seconds_sum") > 1


OURS = [f"{number} " + "word " * WORDS for number in range(8)]


@pytest.mark.parametrize(
    ("path", "body"),
    [(CHAT, chat_body(OURS[0], n=8, stream=True)), (COMPLETIONS, {"model": "tiny", "prompt": OURS, "stream": True})],
)
def test_what_the_engine_makes_of_one_request_is_not_foreign(kvsim, kvway, path, body):
    (worker,) = kvsim(1, "--speed", "0.01", profile="llama-8b-h100")
    router = kvway([worker], CONFIG)
    with Client(router.port, 60) as client:
        client.send_request("POST", path, body=body)
        until(lambda: at_work(worker) >= 8, 20, "it is at the engine")
        before = worker.stats()["connections_accepted"]
        until(lambda: worker.stats()["connections_accepted"] >= before + 10, 20, "some pages are read")
        for what in ("waiting", "running"):
            assert router.metric(f"kvway_worker_foreign_{what}") == 0
        assert at_work(worker) >= 8
