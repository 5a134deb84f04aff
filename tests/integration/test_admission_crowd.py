"""Far more clients than a worker can answer: each is answered or refused, none is forgotten, and no memory stays behind."""

import pytest

from rig.client import CHAT, Client, chat_body
from rig.router import SANITIZED
from rig.wait import PATIENCE, until

CLIENTS = 400
LEAVERS = 40  # of these, close while they wait
ROUNDS = 3    # after the first; memory counts from the first of these on
WORDS = 3000  # of a prompt: 15 KB, a tenth of a second at the worker
RATE = 30000
MIB = 1 << 20
FLAT = 2 * MIB  # less than the bodies of one round


def metric_reaches(router, name, value):
    until(lambda: router.metric(name) >= value, 30, f"{name} of {value}")


class Crowd:
    """Kept-alive connections that all ask at the same time, again and again."""

    def __init__(self, router):
        self.router = router
        self.clients = [Client(router.port, 30.0) for _ in range(CLIENTS)]
        self.asked = 0
        self.tokens = 0  # of all prompts that were answered

    def close(self):
        for client in self.clients:
            client.close()

    def ask(self, deadline_s):
        """All of them; those after the first wait. Every prompt is new."""
        headers = [("x-kvway-deadline-ms", str(int(1000 * deadline_s * PATIENCE)))]
        for client in self.clients:
            self.asked += 1
            client.send_request("POST", CHAT, headers, chat_body(f"{self.asked} " + "word " * WORDS, max_tokens=1))

    def leave(self, count):
        """The last ones close, every other one with a reset, and are replaced."""
        for number, client in enumerate(self.clients[-count:]):
            if number % 2:
                client.reset()
            else:
                client.close()
        del self.clients[-count:]

    def join(self, count):
        self.clients += [Client(self.router.port, 30.0) for _ in range(count)]

    def read(self):
        """How many were answered; the others were refused as they should be."""
        answers = [client.read("POST") for client in self.clients]
        for answer in answers:
            assert answer.status in (200, 429), answer
            if answer.status == 429:
                assert answer.json()["error"]["type"] == "overloaded", answer
                assert int(answer.headers.get("retry-after")) >= 1, answer
            else:
                self.tokens += answer.json()["usage"]["prompt_tokens"]
        return sum(answer.status == 200 for answer in answers)


@pytest.fixture
def crowd(kvsim, kvway):
    (worker,) = kvsim(1, "--prefill-rate", str(RATE), profile="llama-8b-h100")
    router = kvway([worker], {
        "admission.enabled": True,
        "admission.worker_queue": "0s",
        "routing.prefill_tokens_per_second": RATE,
        "routing.attention_ns_per_pair": 0,
    })
    made = Crowd(router)
    made.worker = worker
    yield made
    made.close()


def saw_no_other(worker, crowd, answered):
    """The worker began no prompt but of those that were answered."""
    stats = worker.stats()
    assert (stats["finished"], stats["prompt_tokens"]) == (answered, crowd.tokens), stats


def test_a_crowd_is_answered_or_refused_and_leaves_nothing_behind(crowd):
    router, worker = crowd.router, crowd.worker
    crowd.ask(4)
    metric_reaches(router, "kvway_waited_total", CLIENTS - 20)
    crowd.leave(LEAVERS)
    answered = crowd.read()
    assert 0 < answered < CLIENTS // 2
    until(lambda: router.metric("kvway_waiting_requests") == 0, what="none that waits")
    stats = worker.stats()
    saw_no_other(worker, crowd, answered)
    crowd.join(LEAVERS)
    router.wait_idle()
    rss = []
    for _ in range(ROUNDS):
        crowd.ask(1)
        now = crowd.read()
        assert 0 < now < CLIENTS // 2
        answered += now
        router.wait_idle()
        rss.append(router.rss())
    until(lambda: router.metric("kvway_waiting_requests") == 0, what="none that waits")
    saw_no_other(worker, crowd, answered)
    refused = sum(router.metric(f"kvway_refused_{why}_total") for why in ("deadline", "service_level", "queue_full"))
    assert refused == crowd.asked - LEAVERS - answered
    if not SANITIZED:
        assert rss[-1] - rss[0] < FLAT, rss
