"""Requests wait at kvway and not in a worker's own queue; one that may not wait, or waits in vain, gets 429."""

import json
import signal
import subprocess
import threading
import time

import pytest

from rig.client import CHAT, MESSAGES, Client, ask, chat_body
from rig.router import PROGRAM, settle
from rig.sim import Sim
from rig.wait import PATIENCE, until
from rig.wire import Closed

# A prompt of LONG is thought to take a worker minutes, so that nothing goes before an answer has come.
LONG = "word " * 800
SLOW = {"admission.enabled": True, "loops": 1, "routing.prefill_tokens_per_second": 2, "admission.worker_queue": "0s"}
CLASSES = {"admission.classes": ["high", "low"], "admission.class_header": "x-class"}
IMPATIENT = ("x-kvway-do-not-queue", "1")
SOON_S = 10.0  # far below admission.max_wait
SIM_CLIENTS = 60
SIM_SECONDS = 4.0


class Holding:
    """A script that answers a chat when it may: each step() lets one more answer go, finish() all."""

    def __init__(self):
        self.steps = threading.Semaphore(0)
        self.over = threading.Event()

    def __call__(self, ex):
        while not self.over.is_set() and not self.steps.acquire(timeout=0.02):
            pass
        ex.respond(body={"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 1}})

    def step(self):
        self.steps.release()

    def finish(self):
        self.over.set()


@pytest.fixture
def hold():
    script = Holding()
    yield script
    script.finish()


class Asked(threading.Thread):
    """One request of a thread of its own."""

    def __init__(self, router, name="x", headers=(), path=CHAT, text=LONG, **more):
        super().__init__(daemon=True)
        self.port, self.named, self.headers, self.path = router.port, name, list(headers), path
        self.text, self.more = text, more
        self.answer = None
        self.start()

    def run(self):
        body = chat_body(f"{self.named} {self.text}", **{"max_tokens": 1, **self.more})
        try:
            self.answer = ask(self.port, "POST", self.path, self.headers, body, timeout=60.0)
        except (Closed, OSError) as error:
            self.answer = error

    def end(self, seconds=SOON_S):
        self.join(seconds * PATIENCE)
        assert not self.is_alive(), f"{self.named} is stuck"
        assert not isinstance(self.answer, Exception), (self.named, self.answer)
        return self.answer


def first_word(ex):
    """First word of a prompt."""
    return ex.json()["messages"][0]["content"].split()[0]


def names(worker):
    """Those of the prompts that it got."""
    return [first_word(ex) for ex in list(worker.requests)]


def waiting(router, count):
    until(lambda: router.metric("kvway_waiting_requests") == count, what=f"{count} that wait")


def busy(router, worker):
    """The first request is at the worker, and so further ones wait."""
    first = Asked(router, "first")
    worker.wait_requests(1)
    return first


def queued(router, *wanted):
    """(name, headers) each, one after the other: all wait."""
    made = []
    for name, *headers in wanted:
        made.append(Asked(router, name, headers))
        waiting(router, len(made))
    return made


def refused(answer, code):
    assert answer.status == 429, answer
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("overloaded", code), answer
    assert int(answer.headers.get("retry-after")) >= 1, answer


def test_what_waits_reaches_no_worker_before_an_answer_and_goes_by_class(pair, hold):
    worker, router = pair(hold, {**SLOW, **CLASSES})
    first = busy(router, worker)
    asked = queued(router, ("low1", ("x-class", "low")), ("none",), ("high", ("x-class", "HIGH")))
    settle(0.5)
    assert names(worker) == ["first"]
    hold.step()
    worker.wait_requests(2)
    settle(0.3)
    assert names(worker) == ["first", "high"]
    hold.step()
    worker.wait_requests(3)
    hold.finish()
    for thread in [first, *asked]:
        assert thread.end().status == 200
    assert sorted(names(worker)) == ["first", "high", "low1", "none"]
    waiting(router, 0)
    assert router.metric("kvway_waited_total") == 3
    assert router.metric("kvway_wait_seconds_count") == 3
    router.wait_idle()


@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_client_that_leaves_while_it_waits_reaches_no_worker(pair, hold, way):
    worker, router = pair(hold, SLOW)
    first = busy(router, worker)
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body(f"gone {LONG}"))
        waiting(router, 1)
        getattr(client, way)()
        waiting(router, 0)
    hold.finish()
    assert first.end().status == 200
    assert Asked(router, "next").end().status == 200
    assert names(worker) == ["first", "next"]
    router.wait_idle()


def test_one_that_may_not_wait_is_refused_at_once(pair, hold):
    worker, router = pair(hold, SLOW)
    first = busy(router, worker)
    refused(Asked(router, "hasty", [IMPATIENT]).end(), "queue_full")
    assert router.metric("kvway_refused_queue_full_total") == 1
    assert router.metric("kvway_waiting_requests") == 0
    hold.finish()
    assert first.end().status == 200
    assert Asked(router, "idle", [IMPATIENT]).end().status == 200
    assert names(worker) == ["first", "idle"]


def test_a_deadline_ends_waiting(pair, hold):
    worker, router = pair(hold, SLOW)
    first = busy(router, worker)
    refused(Asked(router, "late", [("x-kvway-deadline-ms", "300")]).end(), "deadline")
    bad = Asked(router, "nonsense", [("x-kvway-deadline-ms", "soon")])  # is none
    waiting(router, 1)
    assert router.metric("kvway_refused_deadline_total") == 1
    hold.finish()
    assert first.end().status == bad.end().status == 200
    assert names(worker) == ["first", "nonsense"]


def test_what_was_promised_nothing_is_sent_after_the_longest_wait(pair, hold):
    """The engine queues it, as it would without kvway."""
    worker, router = pair(hold, {**SLOW, "admission.max_wait": "500ms"})
    first = busy(router, worker)
    late = Asked(router, "late")
    worker.wait_requests(2)
    waiting(router, 0)
    hold.finish()
    assert first.end().status == late.end().status == 200
    assert names(worker) == ["first", "late"]
    assert router.metric("kvway_refused_deadline_total") == 0


def test_what_was_promised_something_is_refused_after_the_longest_wait(pair, hold):
    levels = {"service_level.ttft": "10m", "admission.max_wait": "500ms"}
    worker, router = pair(hold, {**SLOW, **levels})
    first = busy(router, worker)
    refused(Asked(router, "late").end(), "deadline")
    waiting(router, 0)
    hold.finish()
    assert first.end().status == 200
    assert names(worker) == ["first"]


def test_no_more_wait_than_may(pair, hold):
    worker, router = pair(hold, {**SLOW, "admission.max_queue": 2})
    first = busy(router, worker)
    asked = queued(router, ("one",), ("two",))
    refused(Asked(router, "three").end(), "queue_full")
    hold.finish()
    for thread in [first, *asked]:
        assert thread.end().status == 200
    assert sorted(names(worker)) == ["first", "one", "two"]


def test_messages_are_refused_in_their_own_shape(pair, hold):
    worker, router = pair(hold, SLOW)
    first = busy(router, worker)
    answer = Asked(router, "hasty", [IMPATIENT], MESSAGES).end()
    assert answer.status == 429 and int(answer.headers.get("retry-after")) >= 1
    told = answer.json()
    assert told["type"] == "error" and told["error"]["type"] and told["error"]["message"], told
    hold.finish()
    assert first.end().status == 200


def test_those_that_wait_are_answered_soon_when_the_only_worker_dies(kvway, tmp_path):
    sim = Sim(tmp_path, 1, "--speed", "0.001", profile="llama-8b-h100")
    try:
        (worker,) = sim.workers
        router = kvway([worker], {**SLOW, "admission.max_wait": "10m"})
        first = Asked(router, "first")
        until(lambda: router.metric("kvway_worker_inflight") == 1)
        asked = queued(router, ("one",), ("two",), ("three",))
    finally:
        sim.kill()
    for thread in [first, *asked]:
        assert thread.end(20.0).status in (502, 503), thread.answer
    waiting(router, 0)
    router.wait_idle()


def test_a_worker_that_joins_takes_those_that_wait(workers, kvway, hold):
    one, two = workers(2)
    one.script = hold
    router = kvway([one], SLOW)
    first = busy(router, one)
    (asked,) = queued(router, ("one",))
    assert ask(router.admin_port, "POST", "/workers", body={"url": two.url}).status == 201
    assert asked.end().status == 200
    assert names(two) == ["one"] and names(one) == ["first"]
    hold.finish()
    assert first.end().status == 200


def test_nothing_is_lost_when_waiting_is_switched_off(pair, hold):
    worker, router = pair(hold, SLOW)
    first = busy(router, worker)
    asked = queued(router, ("one",), ("two",))
    config = json.loads(router.config_path.read_text())
    config["admission"]["enabled"] = False
    router.config_path.write_text(json.dumps(config))
    assert ask(router.admin_port, "POST", "/reload").status == 200
    later = Asked(router, "later")
    until(lambda: "later" in names(worker))
    hold.finish()
    for thread in [first, *asked, later]:
        assert thread.end().status == 200
    assert sorted(names(worker)) == ["first", "later", "one", "two"]
    waiting(router, 0)


def test_those_that_wait_are_answered_before_it_ends(pair, hold):
    worker, router = pair(hold, {**SLOW, "drain.timeout": "30s"})
    first = busy(router, worker)
    asked = queued(router, ("one",), ("two",))
    router.signal(signal.SIGTERM)
    settle(0.3)
    assert router.alive() and names(worker) == ["first"]
    hold.finish()
    for thread in [first, *asked]:
        assert thread.end().status == 200
    assert router.wait(SOON_S) == 0


def test_those_that_wait_get_503_when_the_end_may_wait_no_longer(pair, hold):
    worker, router = pair(hold, {**SLOW, "drain.timeout": "300ms"})
    first = busy(router, worker)
    asked = queued(router, ("one",), ("two",))
    router.signal(signal.SIGTERM)
    for thread in [first, *asked]:
        assert thread.end().status == 503
    assert names(worker) == ["first"] and router.wait(SOON_S) == 0


def test_without_admission_each_is_sent_at_once(pair, hold):
    worker, router = pair(hold, {**SLOW, "admission.enabled": False})
    asked = [Asked(router, f"n{n}", [IMPATIENT]) for n in range(5)]
    worker.wait_requests(5)
    assert router.metric("kvway_waiting_requests") == router.metric("kvway_waited_total") == 0
    hold.finish()
    for thread in asked:
        assert thread.end().status == 200


# A prompt of LONG is thought to take a second here, that of `fill` a minute. What is late in the second class is refused.
LEVELS = {
    "admission.enabled": True, "loops": 1, "routing.prefill_tokens_per_second": 1500, **CLASSES,
}  # fmt: skip
HIGH, LOW = [("x-class", "high")], [("x-class", "low")]


def fill(router, worker, **more):
    first = Asked(router, "first", text="word " * 60000, **more)
    worker.wait_requests(1)
    return first


def reload_levels(router, levels):
    config = json.loads(router.config_path.read_text())
    config["service_levels"] = levels
    router.config_path.write_text(json.dumps(config))
    assert ask(router.admin_port, "POST", "/reload").status == 200


def test_each_class_has_its_own_service_level(pair, hold):
    levels = [{"class": "high", "ttft": "1m"}, {"class": "low", "ttft": "300ms"}]
    worker, router = pair(hold, {**LEVELS, "service_levels": levels})
    first = fill(router, worker)
    high = Asked(router, "high", HIGH)
    waiting(router, 1)
    refused(Asked(router, "low", LOW).end(), "service_level")
    refused(Asked(router, "none").end(), "service_level")
    assert high.is_alive() and router.metric("kvway_waiting_requests") == 1
    hold.finish()
    assert first.end().status == high.end().status == 200
    assert names(worker) == ["first", "high"]


def test_the_default_class_is_that_of_requests_without_one(pair, hold):
    levels = [{"class": "high", "ttft": "1m"}, {"class": "low", "ttft": "300ms"}]
    worker, router = pair(hold, {**LEVELS, "admission.default_class": "high", "service_levels": levels})
    first = fill(router, worker)
    asked = [Asked(router, "none"), Asked(router, "unknown", [("x-class", "mid")])]
    waiting(router, 2)
    refused(Asked(router, "low", LOW).end(), "service_level")
    hold.finish()
    for thread in [first, *asked]:
        assert thread.end().status == 200


def test_each_model_has_its_own_service_level(pair, hold):
    levels = [
        {"model": "fast", "ttft": "300ms"},
        {"class": "low", "ttft": "1m"},
        {"model": "fast", "class": "high", "ttft": "2m"},
    ]
    worker, router = pair(hold, {**LEVELS, "service_levels": levels}, models=["fast", "slow"])
    first = fill(router, worker, model="slow")
    slow = Asked(router, "slow", LOW, model="slow")
    waiting(router, 1)
    refused(Asked(router, "fast", LOW, model="fast").end(), "service_level")
    high = Asked(router, "high", HIGH, model="fast")
    waiting(router, 2)
    hold.finish()
    for thread in [first, slow, high]:
        assert thread.end().status == 200
    assert sorted(names(worker)) == ["first", "high", "slow"]


def test_a_reload_changes_levels_for_those_that_come_later(pair, hold):
    worker, router = pair(hold, {**LEVELS, "service_levels": [{"class": "low", "ttft": "1m"}]})
    first = fill(router, worker)
    before = Asked(router, "before", LOW)
    waiting(router, 1)
    reload_levels(router, [{"class": "low", "ttft": "300ms"}])
    refused(Asked(router, "strict", LOW).end(), "service_level")
    reload_levels(router, [])
    after = Asked(router, "after", LOW)
    waiting(router, 2)
    settle(0.5)
    assert before.is_alive() and after.is_alive() and names(worker) == ["first"]
    hold.finish()
    for thread in [first, before, after]:
        assert thread.end().status == 200
    waiting(router, 0)


def as_its_prompt_says(ex):
    """kept, late, slow, failed and so on: what the first word of the prompt asks for."""
    word = first_word(ex)
    if word in ("late", "unseen"):
        time.sleep(2.5)
    if word in ("failed", "wrong"):
        ex.respond(500 if word == "failed" else 400, body={"error": {"message": word}})
    elif not ex.json().get("stream"):
        ex.respond(body={"choices": []})
    else:
        ex.start_stream()
        for token in range(3):
            if word == "slow" and token > 0:
                time.sleep(1.0)
            ex.event(json.dumps({"choices": [{"index": 0, "delta": {"content": "x"}}]}))
        ex.event("[DONE]")
        ex.end_stream()


def results(router, label):
    """{result: count} of a class, zeros left out."""
    got = {}
    for (name, labels), value in router.metrics().items():
        labels = dict(labels)
        if name == "kvway_service_level_total" and labels["class"] == label and value:
            got[labels["result"]] = value
    return got


def test_promises_that_were_kept_and_not_are_counted_by_class(pair):
    levels = {**LEVELS, "service_level.ttft": "2s", "service_level.tpot": "300ms", "retry.attempts": 0}
    worker, router = pair(as_its_prompt_says, levels)
    asked = [("kept", HIGH, True), ("late", LOW, True), ("failed", LOW, True), ("wrong", LOW, True)]
    asked += [("kept", [], False), ("unseen", LOW, False), ("slow", HIGH, True)]
    for name, headers, stream in asked:
        answer = Asked(router, name, headers, text="x", stream=stream, max_tokens=3).end()
        assert answer.status == {"failed": 500, "wrong": 400}.get(name, 200), answer
    router.wait_idle()
    assert results(router, "high") == {"kept": 1, "slow": 1}
    assert results(router, "low") == {"kept": 1, "late": 1, "failed": 1, "unseen": 1}
    assert router.metric("kvway_first_token_predictions_total") == 3
    assert 2.5 < router.metric("kvway_first_token_actual_seconds_total") < 2.5 + SOON_S * PATIENCE
    assert router.metric("kvway_first_token_error_seconds_total") > 2


def test_promises_of_those_that_name_their_worker_are_counted(pair):
    def script(ex):
        answer = {"id": "resp_1", "object": "response", "status": "completed", "output": []}
        ex.respond(body=answer if "input" in ex.json() else {"choices": []})

    worker, router = pair(script, {**LEVELS, "service_level.ttft": "1m", "http.pin": True})
    pin = ("x-kvway-pin", worker.url.removeprefix("http://"))
    assert Asked(router, "pinned", [pin, *HIGH], text="x").end().status == 200
    assert ask(router.port, "POST", "/v1/responses", LOW, {"model": "tiny", "input": "x"}).status == 200
    follow = {"model": "tiny", "input": "y", "previous_response_id": "resp_1"}
    assert ask(router.port, "POST", "/v1/responses", LOW, follow).status == 200
    router.wait_idle()
    assert router.metric("kvway_decisions_total", reason="pinned") == 1
    assert router.metric("kvway_decisions_total", reason="owner") == 1
    assert results(router, "high") == {"kept": 1} and results(router, "low") == {"kept": 2}


def test_promises_of_those_that_try_an_ejected_worker_are_counted(workers, kvway):
    both = workers(2)
    failing = threading.Event()
    failing.set()

    def script(ex):
        ex.respond(500 if failing.is_set() else 200, body={"choices": []})

    both[0].script = script
    router = kvway(both, {
        **LEVELS, "service_level.ttft": "1m", "routing.strategy": "roundrobin", "retry.budget": 1,
        "ejection.time": "100ms", "ejection.min_answers": 1,
    })  # fmt: skip
    asked = 0

    def until_it(reached):
        nonlocal asked
        while not reached():
            asked += 1
            assert asked < 1000 and Asked(router, "x", text="x").end().status == 200

    until_it(lambda: router.metric("kvway_worker_ejections_total") > 0)
    failing.clear()
    until_it(lambda: router.metric("kvway_decisions_total", reason="trial") > 0)
    router.wait_idle()
    assert results(router, "low") == {"kept": asked}


def test_without_a_promise_none_is_counted(pair):
    worker, router = pair(as_its_prompt_says, SLOW)
    assert Asked(router, "kept", text="x", stream=True).end().status == 200
    router.wait_idle()
    assert results(router, "default") == {} and router.metric("kvway_service_level_total") == 0


def test_refusals_and_the_oldest_that_waits_are_shown(pair, hold):
    levels = [{"class": "high", "ttft": "1m"}, {"class": "low", "ttft": "300ms"}]
    worker, router = pair(hold, {**LEVELS, "service_levels": levels})
    assert router.metric("kvway_oldest_waiting_seconds") == 0
    first = fill(router, worker)
    high = Asked(router, "high", HIGH)
    waiting(router, 1)
    refused(Asked(router, "low", LOW).end(), "service_level")
    refused(Asked(router, "hasty", [*HIGH, IMPATIENT]).end(), "queue_full")
    assert router.metric("kvway_refused_total", **{"class": "low", "reason": "service_level"}) == 1
    assert router.metric("kvway_refused_total", **{"class": "high", "reason": "queue_full"}) == 1
    assert router.metric("kvway_refused_total") == 2
    assert results(router, "low") == results(router, "high") == {"refused": 1}
    until(lambda: router.metric("kvway_oldest_waiting_seconds") > 1, what="it waits for a second")
    hold.finish()
    assert first.end().status == high.end().status == 200
    router.wait_idle()
    assert router.metric("kvway_oldest_waiting_seconds") == 0
    assert results(router, "high") == {"kept": 1, "refused": 1}


def explained(router, text, headers=(), **more):
    answer = ask(router.admin_port, "POST", "/explain", headers, chat_body(text, **more))
    assert answer.status == 200, answer
    return answer.json().get("admission")


def test_explain_estimates_and_changes_nothing(pair, hold):
    levels = [{"class": "high", "ttft": "2m", "tpot": "50ms"}, {"class": "low", "ttft": "300ms"}]
    worker, router = pair(hold, {**LEVELS, "service_levels": levels, "admission.max_wait": "5m"})
    low = {"ttft_ms": 300, "ttft_per_1k_tokens_ms": 0, "tpot_ms": 0}
    free = {"verdict": "admitted", "wait_ms": 0, "reason": "free", "waiting": 0, "class": "low", "promise": low}
    assert explained(router, LONG) == free
    first = fill(router, worker)
    got = explained(router, LONG, HIGH)
    assert (got["verdict"], got["reason"], got["class"]) == ("would wait", "busy", "high"), got
    assert 10_000 < got["wait_ms"] < 90_000 and got["promise"]["tpot_ms"] == 50, got
    high = Asked(router, "high", HIGH)
    waiting(router, 1)
    got = explained(router, LONG, HIGH)
    assert (got["verdict"], got["reason"], got["waiting"]) == ("would wait", "behind_others", 1), got
    got = explained(router, LONG, LOW)
    assert (got["verdict"], got["reason"], got["promise"]) == ("refused", "service_level", low), got
    assert explained(router, LONG, [*HIGH, IMPATIENT])["reason"] == "queue_full"
    assert router.metric("kvway_waiting_requests") == 1 and router.metric("kvway_waited_total") == 1
    assert router.metric("kvway_refused_total") == 0 and names(worker) == ["first"]
    hold.finish()
    assert first.end().status == high.end().status == 200
    router.wait_idle()
    assert explained(router, LONG) == free


def test_explain_says_what_then_happens(pair, hold):
    worker, router = pair(hold, {**LEVELS, "admission.max_queue": 1, "admission.max_wait": "5m"})
    first = fill(router, worker)
    soon = ("x-kvway-deadline-ms", "300")
    assert explained(router, LONG)["verdict"] == "would wait"
    assert explained(router, LONG, [("x-kvway-deadline-ms", "soon")])["verdict"] == "would wait"
    got = explained(router, LONG, [soon])
    assert (got["verdict"], got["reason"]) == ("refused", "deadline"), got
    refused(Asked(router, "late", [soon]).end(), "deadline")
    waits = Asked(router, "waits")
    waiting(router, 1)
    got = explained(router, LONG)
    assert (got["verdict"], got["reason"]) == ("refused", "queue_full"), got
    refused(Asked(router, "one too many").end(), "queue_full")
    hold.finish()
    assert first.end().status == waits.end().status == 200


def test_explain_says_nothing_of_admission_while_it_is_off(pair):
    _, router = pair(config={**LEVELS, "admission.enabled": False})
    assert explained(router, LONG) is None


def test_the_command_explains_in_words(pair, hold):
    worker, router = pair(hold, {**LEVELS, "service_levels": [{"class": "low", "ttft": "300ms"}]})
    here = [str(PROGRAM), "explain", "--admin", f"127.0.0.1:{router.admin_port}"]
    cold = [str(PROGRAM), "explain", "--cold", "-c", str(router.config_path), "-H", "x-class: high"]

    def run(argv):
        body = json.dumps(chat_body(LONG)).encode()
        done = subprocess.run(argv, input=body, capture_output=True, timeout=60)
        assert done.returncode == 0 and not done.stderr, done
        return next(row for row in done.stdout.decode().splitlines() if row.startswith("Admission"))

    promised = "; class low, promised 300 ms to the first token."
    assert run(here) == "Admission, estimated: admitted: a worker can take it" + promised
    assert run(cold) == "Admission, estimated: admitted: a worker can take it; class high."
    first = fill(router, worker)
    row = run(here)
    assert row.startswith("Admission, estimated: refused, ") and "its service level could not be kept" in row
    hold.finish()
    assert first.end().status == 200


def test_a_service_level_under_overload(kvsim, kvway):
    """The first prompts alone are more work than a worker does in the minute that prices look at."""
    (worker,) = kvsim(1, "--speed", "4", profile="llama-8b-h100")
    router = kvway([worker], {
        "admission.enabled": True,
        "service_level.ttft": "3s",
        "routing.prefill_tokens_per_second": 90000,  # that of the profile
        "routing.attention_ns_per_pair": 0.33,
    })
    until_s = time.monotonic() + SIM_SECONDS
    answers, faults = [], []

    def user(number):
        turn = 0
        try:
            with Client(router.port, 60.0) as client:
                while time.monotonic() < until_s:
                    text = f"{number} {turn} " + "word " * 60000
                    turn += 1
                    body = chat_body(text, max_tokens=4, stream=True)
                    answers.append(client.ask("POST", CHAT, body=body))
        except Exception as error:
            faults.append(repr(error))

    threads = [threading.Thread(target=user, args=(n,), daemon=True) for n in range(SIM_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60 * PATIENCE)
    assert not any(t.is_alive() for t in threads) and not faults, faults
    good = [a for a in answers if a.status == 200]
    for answer in answers:
        if answer.status != 200:
            refused(answer, "service_level")
        else:
            assert answer.events()[-1] == "[DONE]"
    assert good and len(good) < len(answers), (len(good), len(answers))
    waiting(router, 0)
    router.wait_idle()
    assert router.metric("kvway_refused_service_level_total") == len(answers) - len(good)
    stats = worker.stats()
    assert stats["finished"] == len(good), stats
