"""While requests wait, workers die, stall, drain, leave and forget, kvway stands still, and its settings change: every
request is answered or refused, none is sent twice, none is forgotten."""

import json
import signal
import threading

import pytest

from rig.client import CHAT, Client, ask, chat_body
from rig.router import settle
from rig.sim import Sim
from rig.wait import PATIENCE, until

COUNT = 50
# A prompt is thought to take a worker minutes, so that nothing goes before an answer has come.
LONG = "word " * 800
SLOW = {"admission.enabled": True, "loops": 1, "routing.prefill_tokens_per_second": 2, "admission.worker_queue": "0s",
        "admission.max_wait": "10m", "drain.worker": "30s"}  # fmt: skip
CLASSES = {"admission.classes": ["high", "mid", "low"], "admission.class_header": "x-class"}
NOT_TO_WAIT = ("x-kvway-do-not-queue", "1")


class Held:
    """A script that answers once it is let go."""

    def __init__(self):
        self.free = threading.Event()

    def __call__(self, ex):
        assert self.free.wait(60)
        ex.respond(body={"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 1}})


class Waiters:
    """Requests on a connection each, all sent and none read."""

    def __init__(self, router, names, headers=()):
        self.router, self.clients = router, {}
        for name in names:
            self.clients[name] = Client(router.port, 30.0)
            self.clients[name].send_request("POST", CHAT, headers, chat_body(f"{name} {LONG}", max_tokens=1))

    def leave(self, *names):
        for name in names:
            self.clients.pop(name).close()

    def answers(self):
        """{name: status}; refusals as they should be."""
        got = {}
        for name, client in self.clients.items():
            answer = client.read("POST")
            got[name] = answer.status
            if answer.status in (429, 503):
                assert int(answer.headers.get("retry-after")) >= 1, answer
            client.close()
        return got


def names(worker):
    """First words of the prompts that it got."""
    return [ex.json()["messages"][0]["content"].split()[0] for ex in list(worker.requests)]


def many(prefix="n", count=COUNT):
    return [f"{prefix}{number}" for number in range(count)]


def waiting(router, count):
    until(lambda: router.metric("kvway_waiting_requests") == count, what=f"{count} that wait")


def set_keys(router, change):
    """Reloads with these sections changed."""
    config = json.loads(router.config_path.read_text())
    for section, keys in change.items():
        config[section] = {**config.get(section, {}), **keys} if isinstance(keys, dict) else keys
    router.config_path.write_text(json.dumps(config))
    got = ask(router.admin_port, "POST", "/reload")
    assert got.status == 200 and not got.json()["needs_restart"], got


def id_of(worker):
    return f"127.0.0.1:{worker.port}"


def is_usable(router, worker):
    (found,) = [one for one in ask(router.admin_port, "GET", "/workers").json() if one["id"] == id_of(worker)]
    return found["usable"]


def is_at_rest(router, *held):
    """Nothing is left behind: a request that may not wait finds a worker, one after the other."""
    waiting(router, 0)
    router.wait_idle()
    assert router.metric("kvway_oldest_waiting_seconds") == 0
    for script in held:
        script.free.set()
    for number in range(4):
        (status,) = Waiters(router, [f"after{number}"], [NOT_TO_WAIT]).answers().values()
        assert status == 200
    router.wait_idle()


@pytest.fixture
def two(workers, kvway):
    """two({key: value}): two workers that hold one request each, and a router."""

    def make(config=None):
        pair = workers(2)
        for worker in pair:
            worker.script = Held()
        router = kvway(pair, {**SLOW, **(config or {})})
        first = Waiters(router, ["first0"])
        until(lambda: sum(len(worker.requests) for worker in pair) == 1)
        second = Waiters(router, ["first1"])
        until(lambda: all(len(worker.requests) == 1 for worker in pair), what="one at each")
        first.clients.update(second.clients)
        return pair, router, first

    return make


def dies(router, worker):
    worker.stop()


def drains(router, worker):
    assert ask(router.admin_port, "POST", f"/workers/{id_of(worker)}/drain").status == 200


def is_removed(router, worker):
    assert ask(router.admin_port, "DELETE", f"/workers/{id_of(worker)}").status == 200


def is_removed_now(router, worker):
    assert ask(router.admin_port, "DELETE", f"/workers/{id_of(worker)}?now=true").status == 200


def forgets_its_model(router, worker):
    worker.models = ["other"]
    until(lambda: "other" in router.models())


def is_ill(router, worker):
    worker.healthy = False
    until(lambda: not is_usable(router, worker))


@pytest.mark.parametrize("happens", [dies, drains, is_removed, is_removed_now, forgets_its_model, is_ill])
def test_another_worker_answers_all(two, happens):
    (lost, other), router, first = two()
    asked = Waiters(router, many())
    waiting(router, COUNT)
    asked.leave(*many(count=5))
    waiting(router, COUNT - 5)
    happens(router, lost)
    settle(0.3)
    # Until it is known to be dead, one or two of them are sent there, cannot connect and are sent to the other.
    assert len(names(lost)) == 1 and len(names(other)) <= 5
    other.script.free.set()
    assert set(asked.answers().values()) == {200}
    lost.script.free.set()
    assert set(first.answers().values()) == {200}
    at_lost, at_other = names(lost), names(other)
    assert len(at_lost) == 1 and sorted(set(at_other)) == sorted(at_other)
    assert set(at_other) - {"first0", "first1"} == set(many()[5:])
    is_at_rest(router)


def test_a_worker_that_stands_still_gets_none_of_them(workers, kvway, tmp_path):
    sim = Sim(tmp_path, 1, "--speed", "0.001", profile="llama-8b-h100")
    (lost,), (other,) = sim.workers, workers(1)
    other.script = Held()
    try:
        router = kvway([lost, other], {**SLOW, "health.timeout": "300ms"})
        first = Waiters(router, ["first0"])
        until(lambda: router.metric("kvway_worker_inflight") == 1)
        first.clients.update(Waiters(router, ["first1"]).clients)
        until(lambda: len(other.requests) == lost.stats()["load"] == 1)
        begun = until(lambda: lost.stats()["prompt_tokens"])
        asked = Waiters(router, many())
        waiting(router, COUNT)
        sim.signal(signal.SIGSTOP)
        until(lambda: not is_usable(router, lost), what="it is noticed")
        other.script.free.set()
        assert set(asked.answers().values()) == {200}
        sim.signal(signal.SIGCONT)
        until(lambda: is_usable(router, lost), what="it is back")
        assert lost.stats()["prompt_tokens"] == begun and lost.stats()["load"] <= 1
    finally:
        sim.signal(signal.SIGCONT)
        sim.kill()
    assert set(first.answers().values()) == {200}
    assert sorted(set(names(other)) - {"first0", "first1"}) == sorted(many())
    assert len(names(other)) == COUNT + 2
    is_at_rest(router)


@pytest.mark.parametrize("happens", [drains, is_removed, is_removed_now, forgets_its_model, is_ill])
def test_without_another_worker_they_get_what_a_new_request_gets(pair, happens):
    worker, router = pair(Held(), SLOW)
    first = Waiters(router, ["first"])
    worker.wait_requests(1)
    asked = Waiters(router, many())
    waiting(router, COUNT)
    happens(router, worker)
    got = set(asked.answers().values())
    assert got == set(Waiters(router, ["new"]).answers().values()) and got <= {404, 503}
    waiting(router, 0)
    worker.script.free.set()
    assert set(first.answers().values()) <= {200, 502, 503}
    assert names(worker) == ["first"]
    router.wait_idle()


def test_settings_change_while_requests_wait(pair):
    levels = [{"class": "high", "ttft": "10m"}, {"class": "low", "ttft": "10m"}]
    worker, router = pair(Held(), {**SLOW, **CLASSES, "service_levels": levels})
    first = Waiters(router, ["first"])
    worker.wait_requests(1)
    asked = [Waiters(router, many(label, 17), [("x-class", label)]) for label in ("high", "mid", "low")]
    waiting(router, 51)
    set_keys(router, {"service_levels": [{"class": "low", "ttft": "1ms"}, {"class": "high", "tpot": "1ms"}]})
    set_keys(router, {"service_levels": [], "service_level": {"ttft": "1ms"}})
    set_keys(router, {"admission": {"classes": [f"c{number}" for number in range(8)]}, "service_level": {"ttft": "0s"}})
    asked.append(Waiters(router, ["new0"], [("x-class", "c7")]))
    waiting(router, 52)
    set_keys(router, {"admission": {"classes": []}})
    set_keys(router, {"admission": {"max_queue": 1}})
    assert set(Waiters(router, ["over"]).answers().values()) == {429}
    set_keys(router, {"admission": {"max_queue": 1000}})
    for number in range(3):
        set_keys(router, {"admission": {"enabled": False}})
        asked.append(Waiters(router, [f"off{number}"]))
        worker.wait_requests(2 + number)
        set_keys(router, {"admission": {"enabled": True, "program_headers": [f"x-{number}"]}})
        asked.append(Waiters(router, [f"on{number}"]))
        waiting(router, 53 + number)
    assert names(worker) == ["first", "off0", "off1", "off2"]
    worker.script.free.set()
    for waiters in [first, *asked]:
        assert set(waiters.answers().values()) == {200}
    at_worker = names(worker)
    assert len(at_worker) == len(set(at_worker)) == 1 + 51 + 1 + 6 and "over" not in at_worker
    is_at_rest(router)


def test_all_waiting_is_switched_off_at_once(pair):
    """Those that waited still wait; when they end, nothing of them is left."""
    worker, router = pair(Held(), {**SLOW, **CLASSES})
    first = Waiters(router, ["first"])
    worker.wait_requests(1)
    asked = Waiters(router, many(), [("x-class", "mid")])
    waiting(router, COUNT)
    set_keys(router, {"admission": {"enabled": False, "classes": ["one"], "class_header": ""}})
    asked.leave(*many(count=10))
    waiting(router, COUNT - 10)
    worker.script.free.set()
    assert set(asked.answers().values()) == set(first.answers().values()) == {200}
    assert sorted(names(worker)) == sorted(["first", *many()[10:]])
    is_at_rest(router)


def test_kvway_stands_still_past_all_deadlines(pair):
    """Its clock leaps for all of them."""
    worker, router = pair(Held(), {**SLOW, "admission.max_wait": "30s"})
    first = Waiters(router, ["first"])
    worker.wait_requests(1)
    patient = Waiters(router, many("patient", 25))
    hasty = Waiters(router, many("hasty", 25), [("x-kvway-deadline-ms", str(int(2000 * PATIENCE)))])
    waiting(router, 50)
    router.signal(signal.SIGSTOP)
    settle(2.1 * PATIENCE)
    hasty.leave(*many("hasty", 5))
    router.signal(signal.SIGCONT)
    assert set(hasty.answers().values()) == {429}
    waiting(router, 25)
    worker.script.free.set()
    assert set(patient.answers().values()) == set(first.answers().values()) == {200}
    assert sorted(names(worker)) == sorted(["first", *many("patient", 25)])
    is_at_rest(router)
