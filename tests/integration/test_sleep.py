"""vLLM's sleep mode: a worker that sleeps gets nothing, and is back as soon as it wakes."""

import threading
import time

import pytest

from rig.client import CHAT, COMPLETIONS, MESSAGES, ask, chat_body
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


@pytest.mark.parametrize("way", ["clients", "admin", "itself"])
def test_one_that_is_woken_in_parts_stays_out_until_all_is_awake(workers, kvway, way):
    """vLLM's metrics say that it is awake after the first part, /is_sleeping does not."""
    one, two = workers(2)
    one.metrics = two.metrics = AWAKE
    asleep = {"weights", "kv_cache"}

    def script(ex):
        if ex.path == "/wake_up":
            asleep.difference_update(ex.target.partition("tags=")[2].split("&tags="))
            one.metrics = AWAKE
        if ex.path == CHAT:
            ex.respond(200, body={})
        else:
            ex.respond(200, body={"is_sleeping": bool(asleep)})

    one.script = script
    router = kvway([one, two], {**ON, "health.metrics_interval": "300ms"})
    one.metrics = ASLEEP
    until(lambda: state(router, one) == "asleep")

    def wake(tag):
        if way == "clients":
            assert router.ask("POST", f"/wake_up?tags={tag}", at(one)).status == 200
        elif way == "admin":
            query = f"tags={tag}&workers={id_of(one)}"
            assert ask(router.admin_port, "POST", f"/broadcast/wake_up?{query}").status == 200
        else:
            assert ask(one.port, "POST", f"/wake_up?tags={tag}").status == 200

    wake("weights")
    settle(0.8)  # metrics are read meanwhile
    assert state(router, one) == "asleep"
    for _ in range(4):
        assert chat(router).status == 200
    assert chats(one) == 0 and chats(two) == 4
    wake("kv_cache")
    until(lambda: state(router, one) == "up")
    for _ in range(4):
        assert chat(router).status == 200
    assert chats(one) == 2


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


def sleep_while_two_wait(router, sim):
    """One of two engines stands still, has two of four requests, and is put to sleep. Statuses that came, threads."""
    serving(router)
    sim.ask("POST", "/pause")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(chat(router).status)) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(answers) == 2)
    assert router.ask("POST", "/sleep", at(sim)).status == 200
    return answers, threads


def test_what_waits_there_is_answered_when_it_wakes(kvsim, kvway):
    """vLLM keeps what it has not computed while it sleeps: so kvway leaves it there."""
    sims = kvsim(2)
    router = kvway(sims, {**ON, "upstream.stall": "1m"})
    answers, threads = sleep_while_two_wait(router, sims[0])
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
    answers, threads = sleep_while_two_wait(router, sims[0])
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


USAGE = '"usage":{"prompt_tokens":36,"total_tokens":36,"completion_tokens":0}'
ROLE = (
    'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tiny","choices":[{"index":0,'
    '"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null}\n\n'
)
ONLY_USAGE = 'data: {"id":"1","object":"text_completion","created":1,"model":"tiny","choices":[],%s}\n\n' % USAGE
DONE = "data: [DONE]\n\n"
ONE_TOKEN = (
    'data: {"id":"1","choices":[{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":"abort"}]}\n\n'
)
START = (
    'event: message_start\ndata: {"type":"message_start","message":{"id":"1","type":"message","role":"assistant",'
    '"content":[],"model":"tiny","stop_reason":null,"usage":{"input_tokens":19,"output_tokens":0}}}\n\n'
)
DELTA = (
    'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":'
    '{"input_tokens":19,"output_tokens":0}}\n\n'
)
STOP = 'event: message_stop\ndata: {"type":"message_stop"}\n\n'
ABORTED_STREAMS = {  # what vLLM 0.32 ends its streams with when it falls asleep before the first token
    "completion": (COMPLETIONS, [DONE]),
    "completion with usage": (COMPLETIONS, [ONLY_USAGE, DONE]),
    "chat": (CHAT, [ROLE, DONE]),
    "chat with usage": (CHAT, [ROLE, ONLY_USAGE, DONE]),
    "chat with its first token": (CHAT, [ROLE, ONE_TOKEN, DONE]),
    "messages": (MESSAGES, [START, DELTA, STOP]),
}
ABORTED = {
    CHAT: b'{"id":"1","choices":[{"index":0,"message":{"role":"assistant","content":"and so"},"finish_reason":"abort"}]}',
    MESSAGES: b'{"id":"1","type":"message","role":"assistant","content":[{"type":"text","text":""}],"model":"tiny",'
    b'"usage":{"input_tokens":19,"output_tokens":0,"cache_read_input_tokens":0}}',
}


def streams(events, pause=0.0):
    def script(ex):
        ex.read_body()
        ex.start_stream()
        for event in events:
            ex.chunk(event.encode())
            settle(pause)
        ex.end_stream()

    return script


def aborting_pair(workers, kvway, script):
    one, two = workers(2)
    one.script = script
    return one, two, kvway([one, two], {"routing.strategy": "roundrobin"})


@pytest.mark.parametrize("case", ABORTED_STREAMS)
@pytest.mark.parametrize("pause", [0.0, 0.03])
def test_a_stream_that_falling_asleep_ended_before_its_first_token_goes_elsewhere(workers, kvway, case, pause):
    path, events = ABORTED_STREAMS[case]
    one, two, router = aborting_pair(workers, kvway, streams(events, pause))
    for _ in range(4):
        answer = router.ask("POST", path, body={**chat_body(stream=True), "prompt": "hello"})
        assert answer.status == 200 and "three" in answer.body.decode(), answer.body
        assert "chatcmpl-1" not in answer.body.decode()
    assert one.requests and len(two.requests) == 4
    assert router.metric("kvway_worker_bad_answers_total") == 0  # it did nothing wrong


@pytest.mark.parametrize("path", ABORTED)
def test_a_plain_answer_that_falling_asleep_cut_goes_elsewhere(workers, kvway, path):
    """However many tokens it had: its client has seen none."""
    json = [("content-type", "application/json")]
    one, two, router = aborting_pair(workers, kvway, lambda ex: ex.respond(200, json, ABORTED[path]))
    for _ in range(4):
        answer = router.ask("POST", path, body=chat_body())
        assert answer.status == 200 and two.name in answer.body.decode()
    assert one.requests and len(two.requests) == 4


def test_an_aborted_answer_passes_where_no_other_worker_is(pair):
    worker, router = pair(streams([ROLE, DONE], 0.03))
    answer = router.ask("POST", CHAT, body=chat_body(stream=True))
    assert answer.status == 200 and answer.body.decode() == ROLE + DONE
    assert router.metric("kvway_worker_bad_answers_total") == 0


def test_a_stream_is_passed_on_from_its_first_token(pair):
    """And not before: what only names the role waits for it, and is not lost."""
    token = 'data: {"id":"1","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
    worker, router = pair(streams([ROLE, token, token, ONLY_USAGE, DONE], 0.03))
    answer = router.ask("POST", CHAT, body=chat_body(stream=True))
    assert answer.body.decode() == ROLE + token + token + ONLY_USAGE + DONE
    assert len(worker.requests) == 1
