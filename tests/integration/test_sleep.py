"""vLLM's sleep mode: a worker that sleeps gets nothing, and is back as soon as it wakes."""

import threading
import time

import pytest

from rig.client import CHAT, ask, chat_body
from rig.router import settle
from rig.wait import PATIENCE, until

ON = {"expose.engine_control": True, "http.pin": True, "routing.strategy": "roundrobin"}
ASLEEP = 'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 0\n'
AWAKE = 'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 1\n'


def id_of(worker):
    return worker.url.removeprefix("http://")


def state(router, worker):
    return ask(router.admin_port, "GET", f"/workers/{id_of(worker)}").json()["state"]


def serving(router):
    """Until each worker is known to serve the model: one that is not gets no requests."""
    until(lambda: all(w["models"] for w in ask(router.admin_port, "GET", "/workers").json()))


def chat(router, **more):
    return router.ask("POST", CHAT, body=chat_body("hello", **more), timeout=30.0)


def at(worker):
    return [("X-Kvway-Pin", id_of(worker))]


def chats(worker):
    return worker.paths().count(CHAT)


def test_metrics_take_it_out_and_back(workers, kvway):
    one, two = workers(2)
    one.metrics = two.metrics = AWAKE
    router = kvway([one, two], {**ON, "health.metrics_interval": "300ms"})
    one.metrics = ASLEEP
    until(lambda: state(router, one) == "asleep")
    for _ in range(4):
        assert chat(router).status == 200
    assert chats(one) == 0 and chats(two) == 4
    one.metrics = AWAKE
    until(lambda: state(router, one) == "up")
    for _ in range(4):
        assert chat(router).status == 200
    assert chats(one) == 2


def test_it_is_back_within_two_seconds_however_seldom_metrics_are_read(workers, kvway):
    (one,) = workers(1)
    one.metrics = AWAKE
    router = kvway([one], {**ON, "health.metrics_interval": "1m"})
    one.script = lambda ex: ex.respond(200, body=b"{}")
    assert router.ask("POST", "/sleep").status == 200
    one.metrics = ASLEEP
    settle(1.5)  # it is looked at meanwhile, and still sleeps
    assert state(router, one) == "asleep"
    one.metrics = AWAKE
    woken = time.monotonic()
    until(lambda: state(router, one) == "up")
    assert time.monotonic() - woken < 2 * PATIENCE
    assert chat(router).status == 200


def test_a_sleep_that_passes_through_bars_it_at_once(workers, kvway):
    """From before the engine has it: its metrics still say that it is awake until it sleeps."""
    one, two = workers(2)
    one.metrics = two.metrics = AWAKE
    arrived, go = threading.Event(), threading.Event()

    def script(ex):
        if ex.path == CHAT:
            ex.respond(200, body={})
            return
        arrived.set()
        go.wait(30)
        one.metrics = ASLEEP
        ex.respond(200, body={"status": "sleeping"})

    one.script = script
    router = kvway([one, two], ON)
    got = []
    thread = threading.Thread(
        target=lambda: got.append(router.ask("POST", "/sleep?level=1", at(one), timeout=30.0).status))
    thread.start()
    arrived.wait(30)
    assert state(router, one) == "asleep"
    settle(1.2)  # metrics are read four times
    for _ in range(4):
        assert chat(router).status == 200
    go.set()
    thread.join()
    assert got == [200] and state(router, one) == "asleep"
    settle(0.7)
    assert state(router, one) == "asleep"
    assert chats(one) == 0 and chats(two) == 4


@pytest.mark.parametrize("status", [400, 404])
def test_a_sleep_that_is_refused_changes_nothing(workers, kvway, status):
    one, two = workers(2)
    one.metrics = AWAKE
    one.script = lambda ex: ex.respond(status, body=b"no")
    router = kvway([one, two], {**ON, "health.metrics_interval": "1m"})
    assert router.ask("POST", "/sleep", at(one)).status == status
    assert state(router, one) == "up"


def test_a_sleep_without_an_answer_is_looked_into(workers, kvway):
    one, two = workers(2)
    one.metrics = AWAKE
    one.script = lambda ex: ex.reset()
    router = kvway([one, two], {**ON, "health.metrics_interval": "1m"})
    assert router.ask("POST", "/sleep", at(one)).status == 502
    assert state(router, one) == "asleep"
    until(lambda: state(router, one) == "up")


def test_a_sleep_that_cannot_be_sent_bars_none(workers, kvway):
    one, two = workers(2)
    router = kvway([one, two], {**ON, "health.interval": "1m"})
    one.stop()
    assert router.ask("POST", "/sleep", at(one)).status == 502
    assert state(router, one) == "up"


def test_a_question_is_no_sleep(workers, kvway):
    (one,) = workers(1)
    router = kvway([one], {**ON, "health.metrics_interval": "1m"})
    assert router.ask("GET", "/sleep").status == 200
    assert state(router, one) == "up"


def test_waking_goes_to_one_that_sleeps_and_opens_it_at_once(workers, kvway):
    one, two = workers(2)
    router = kvway([one, two], {**ON, "health.metrics_interval": "1m"})
    one.script = lambda ex: ex.respond(400 if ex.path == "/wake_up" else 200, body=b"{}")
    one.metrics = ASLEEP
    assert router.ask("POST", "/sleep", at(one)).status == 200
    for _ in range(3):
        assert router.ask("POST", "/wake_up").status == 400  # a bad answer opens nothing
        assert state(router, one) == "asleep"
    one.script = lambda ex: ex.respond(200, body=b"{}")
    one.metrics = AWAKE
    assert router.ask("POST", "/wake_up").status == 200
    assert state(router, one) == "up"
    assert one.paths().count("/wake_up") == 4 and "/wake_up" not in two.paths()
    assert router.ask("POST", "/wake_up").status == 200  # none sleeps: any worker may answer


def test_what_needs_no_engine_reaches_it_by_its_name(workers, kvway):
    one, two = workers(2)
    one.metrics = ASLEEP
    router = kvway([one, two], ON)
    until(lambda: state(router, one) == "asleep")
    assert router.ask("GET", "/is_sleeping", at(one)).status == 200
    assert one.paths() == ["/is_sleeping"]
    answer = router.ask("POST", CHAT, at(one), body=chat_body())
    assert answer.status == 503 and "is asleep" in answer.json()["error"]["message"]


def test_all_asleep(kvsim, kvway):
    sims = kvsim(2)
    router = kvway(sims, ON)
    for _ in sims:
        assert router.ask("POST", "/sleep").status == 200
    assert all(state(router, sim) == "asleep" for sim in sims)
    answer = chat(router)
    assert answer.status == 503 and answer.headers.get("retry-after") == "1"
    assert "no usable worker: 2 asleep" in answer.json()["error"]["message"]
    ready = ask(router.admin_port, "GET", "/ready")
    assert ready.status == 503
    settle(1.5)
    assert chat(router).status == 503
    for _ in sims:
        assert router.ask("POST", "/wake_up").status == 200
    assert chat(router).status == 200
    router.wait_idle()


def test_what_waits_there_is_answered_when_it_wakes(kvsim, kvway):
    """vLLM keeps what it has not computed while it sleeps: so kvway leaves it there."""
    sims = kvsim(2)
    router = kvway(sims, {**ON, "upstream.stall": "1m"})
    serving(router)
    sims[0].ask("POST", "/pause")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(chat(router).status)) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(answers) == 2)
    assert router.ask("POST", "/sleep", at(sims[0])).status == 200
    sims[0].ask("POST", "/resume")
    settle(1.0)
    assert len(answers) == 2
    assert router.ask("POST", "/wake_up").status == 200
    for thread in threads:
        thread.join()
    assert answers == [200] * 4


def test_what_waits_there_goes_elsewhere_in_the_end(kvsim, kvway):
    """An engine from which nothing comes for upstream.stall stands still, asleep or not."""
    sims = kvsim(2)
    router = kvway(sims, {**ON, "upstream.stall": "1s"})
    serving(router)
    sims[0].ask("POST", "/pause")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(chat(router).status)) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(answers) == 2)
    assert router.ask("POST", "/sleep", at(sims[0])).status == 200
    for thread in threads:
        thread.join()
    assert answers == [200] * 4
    assert router.metric("kvway_failovers_total") == 2


def test_what_waits_at_a_sleeper_goes_elsewhere_before_its_engine_would_be_thought_dead(kvsim, kvway):
    """The engine is put to sleep without kvway, which sends requests there until it finds that. None waits until
    the engine wakes, and a worker that only sleeps is not ejected."""
    sims = kvsim(2)
    router = kvway(sims, {**ON, "upstream.stall": "6s", "health.metrics_interval": "1m"})
    serving(router)
    assert sims[0].ask("POST", "/sleep?level=1").status == 200
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(chat(router).status)) for _ in range(4)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    until(lambda: state(router, sims[0]) == "asleep")
    assert len(answers) == 2
    for thread in threads:
        thread.join()
    assert answers == [200] * 4
    assert 1.9 < time.monotonic() - begun < 5 * PATIENCE
    assert router.metric("kvway_failovers_total") == 2
    settle(1.0)
    assert router.metric("kvway_worker_ejections_total") == 0
    assert sims[0].ask("POST", "/wake_up").status == 200
    until(lambda: state(router, sims[0]) == "up")


def test_none_is_ejected_for_sleeping_however_long(kvsim, kvway):
    """Not even for a request that may go nowhere else, and waits."""
    sim, other = kvsim(2)
    router = kvway([sim, other], {**ON, "upstream.stall": "600ms", "health.metrics_interval": "1m"})
    serving(router)
    assert sim.ask("POST", "/sleep?level=1").status == 200
    answers = []
    ask_there = lambda: router.ask("POST", CHAT, at(sim), body=chat_body(), timeout=30.0).status  # noqa: E731
    thread = threading.Thread(target=lambda: answers.append(ask_there()))
    thread.start()
    until(lambda: state(router, sim) == "asleep")
    settle(2.5)
    assert sim.ask("POST", "/wake_up").status == 200
    thread.join()
    assert answers == [200]
    assert router.metric("kvway_worker_ejections_total") == 0
