"""An engine that is full is not broken: its requests go elsewhere or wait, and it is never ejected for saying so."""

import collections
import itertools
import threading
import time

import pytest

from rig.client import CHAT, MESSAGES, chat_body
from rig.wait import PATIENCE, until
from rig.worker import answer

# As vLLM 0.32 answered with --max-num-queued-reqs and --max-num-queued-tokens, SGLang and TGI with their limits.
BUSY = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
BACKLOG = "The engine has reached its prefill token backlog limit. Please try again later or on a different instance."
VLLM = {"error": {"message": BUSY, "type": "Service Unavailable", "param": None, "code": 503}}
MISREAD = (
    b'event: error\ndata: {"type":"error","error":{"type":"internal_error","message":"2 validation errors for '
    b"ChatCompletionStreamResponse\\nmodel\\n  Field required [type=missing, input_value={'error': "
    b"{'message': 'Th...am': None, 'code': 503}}, input_type=dict]\"}}\n\n"
)


def busy(ex):
    ex.respond(503, body=VLLM)


def backlog(ex):
    ex.respond(503, body={"error": {**VLLM["error"], "message": BACKLOG}})


def later(ex):
    ex.respond(503, [("retry-after", "1")], body=b"no")


def too_many(ex):
    ex.respond(429, body={"error": "Model is overloaded", "error_type": "overloaded"})


def queue_is_full(ex):
    ex.respond(503, body={"object": "error", "message": "The request queue is full.", "code": 503})


def in_pieces(ex):
    text = b'{"error":{"message":"' + BUSY.encode() + b'","type":"Service Unavailable","param":null,"code":503}}'
    ex.head(503, [("content-length", str(len(text)))])
    for i in range(0, len(text), 100):
        ex.send(text[i : i + 100])
        time.sleep(0.01)


def first_event(ex):
    ex.start_stream()
    ex.event(VLLM)
    ex.event("[DONE]")
    ex.end_stream()


def misread(ex):
    ex.start_stream()
    ex.chunk(MISREAD)
    ex.end_stream()


# vLLM 0.32 again, of many that came at once: the server had begun the stream when its engine refused the request.
OPENING = b"".join(
    b'event: response.%s\ndata: {"response":{"status":"in_progress"},"type":"response.%s"}\n\n' % (name, name)
    for name in (b"created", b"in_progress")
)


def broken_off(end):
    """Every fourth is refused in words, as those are that come later."""
    turns = itertools.count()

    def refuse(ex):
        if next(turns) % 4 == 0:
            busy(ex)
            return
        ex.start_stream()
        ex.chunk(OPENING)
        time.sleep(0.01)
        end(ex)

    return refuse


class Limited:
    """A script of an engine that takes `most` requests at once, 0.1 s each, and refuses more by `refuse`."""

    def __init__(self, refuse, most=2):
        self.refuse, self.most = refuse, most
        self.lock, self.now, self.refused = threading.Lock(), 0, 0

    def __call__(self, ex):
        ex.read_body()
        with self.lock:
            full = self.now >= self.most
            self.now += not full
            self.refused += full
        if full:
            self.refuse(ex)
            return
        time.sleep(0.1)
        with self.lock:
            self.now -= 1
        answer(ex)


def limited_fleet(workers, refuse, count=3):
    fleet = workers(count)
    for worker in fleet:
        worker.script = Limited(refuse)
    return fleet


def talk(router, users=10, turns=4, path=CHAT, stream=False, body=None):
    """Each user's turns at the same time. Answers by status, and those with an error in their stream as 0."""
    got, lock = collections.Counter(), threading.Lock()
    answers = []

    def user(number):
        for turn in range(turns):
            asked = body or chat_body(f"user {number} turn {turn} " * 50, stream=stream, max_tokens=1)
            one = router.ask("POST", path, body=asked)
            with lock:
                got[0 if one.status == 200 and b"error" in one.body else one.status] += 1
                answers.append(one)

    threads = [threading.Thread(target=user, args=(i,)) for i in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60 * PATIENCE)
    return got, answers


def not_at_fault(router, fleet):
    for worker in fleet:
        assert router.metric("kvway_worker_bad_answers_total", worker=worker.url) == 0
        assert router.metric("kvway_worker_ejections_total", worker=worker.url) == 0


@pytest.mark.parametrize(
    "refuse,path,stream",
    [
        (busy, CHAT, False),
        (backlog, CHAT, True),
        (later, CHAT, False),
        (too_many, CHAT, False),
        (queue_is_full, CHAT, False),
        (in_pieces, CHAT, False),
        (first_event, CHAT, True),
        (misread, MESSAGES, True),
    ],
)
def test_what_full_engines_refuse_waits_at_kvway(workers, kvway, refuse, path, stream):
    """More come than the engines take: all are answered, none is refused, and no engine is ejected."""
    fleet = limited_fleet(workers, refuse)
    router = kvway(fleet, {"routing.strategy": "roundrobin"})
    got, _ = talk(router, path=path, stream=stream)
    assert got == {200: 40}
    assert sum(w.script.refused for w in fleet) == router.metric("kvway_full_answers_total") > 0
    not_at_fault(router, fleet)
    router.wait_idle()


RESPONSE = {"model": "tiny", "input": "hello " * 50, "stream": True}
ENDS = {"close": lambda ex: ex.close(), "end": lambda ex: ex.end_stream(), "reset": lambda ex: ex.reset()}


@pytest.mark.parametrize("end", sorted(ENDS))
def test_a_full_engine_breaks_streams_off_behind_their_opening(workers, kvway, end):
    fleet = limited_fleet(workers, broken_off(ENDS[end]))
    router = kvway(fleet, {"routing.strategy": "roundrobin"})
    # Two more than the engines take: a stream that is broken off for the fifth time counts as a fault.
    got, _ = talk(router, users=8, path="/v1/responses", body=RESPONSE)
    assert got == {200: 32}
    assert sum(w.script.refused for w in fleet) == router.metric("kvway_full_answers_total") > 0
    not_at_fault(router, fleet)
    router.wait_idle()


def test_streams_that_break_off_are_a_fault_of_an_engine_that_was_not_full(workers, kvway):
    def breaks_off(ex):
        ex.start_stream()
        ex.chunk(OPENING)
        ex.close()

    fleet = workers(2)
    fleet[0].script = breaks_off
    router = kvway(fleet, {"routing.strategy": "roundrobin", "health.passive_failures": 1000, "ejection.max_share": 0})
    for _ in range(6):
        assert router.ask("POST", "/v1/responses", body=RESPONSE).status == 200
    assert router.metric("kvway_worker_bad_answers_total", worker=fleet[0].url) > 0
    assert router.metric("kvway_full_answers_total") == 0


@pytest.mark.parametrize("refuse,stream", [(busy, False), (too_many, False), (first_event, True)])
def test_without_admission_clients_hear_when_to_come_again(workers, kvway, refuse, stream):
    fleet = limited_fleet(workers, refuse, 2)
    router = kvway(fleet, {"routing.strategy": "roundrobin", "admission.enabled": False})
    got, answers = talk(router, stream=stream)
    assert set(got) <= {200, 429, 503} and got[200] > 0 and got[429] + got[503] > 0, got
    assert all(a.headers.get("retry-after") == "1" for a in answers if a.status != 200)
    not_at_fault(router, fleet)
    router.wait_idle()


def test_a_limit_is_learned_and_not_asked_for_with_each_request(workers, kvway):
    """The other worker gets them; a refusal by each request would cost each one a way there and back."""
    fleet = workers(2)
    fleet[0].script = Limited(busy, most=0)
    router = kvway(fleet, {"routing.strategy": "roundrobin"})
    started = time.monotonic()
    for i in range(60):
        assert router.ask("POST", CHAT, body=chat_body(str(i))).status == 200
    assert 1 <= fleet[0].script.refused <= 1 + (time.monotonic() - started)
    not_at_fault(router, fleet)


def test_a_503_that_does_not_say_so_is_a_fault(workers, kvway):
    fleet = workers(2)
    fleet[0].script = lambda ex: ex.respond(503, body=b"upstream connect error")
    router = kvway(fleet, {"routing.strategy": "roundrobin", "health.passive_failures": 1000, "ejection.max_share": 0})
    for i in range(6):
        assert router.ask("POST", CHAT, body=chat_body(str(i))).status == 200
    assert router.metric("kvway_worker_bad_answers_total", worker=fleet[0].url) > 0
    assert router.metric("kvway_full_answers_total") == 0


def test_an_engine_without_work_of_ours_that_refuses_is_not_waited_for(workers, kvway):
    """Others may fill it, or a limit of another kind: only the engine knows when to come again."""
    fleet = workers(1, script=busy)
    router = kvway(fleet)
    started = time.monotonic()
    for i in range(5):
        got = router.ask("POST", CHAT, body=chat_body(str(i)))
        assert (got.status, got.headers.get("retry-after")) == (503, "1"), got
    assert time.monotonic() - started < 5 * PATIENCE
    not_at_fault(router, fleet)


def test_one_that_refuses_without_work_of_ours_is_asked_once_by_a_request_that_waits(workers, kvway):
    """The other engine will have room; this one, which others fill, is not asked again and again meanwhile."""
    fleet = workers(2)
    fleet[0].script, fleet[1].script = Limited(busy, most=1), busy
    router = kvway(fleet, {"routing.strategy": "roundrobin"})
    got, _ = talk(router, users=4, turns=3)
    assert got[200] > 0 and set(got) <= {200, 429, 503}
    # Once by each of the twelve requests; each client may have one on its way when the limit grows, after a second.
    assert len(fleet[1].requests) <= 16
    router.wait_idle()


def test_a_request_that_breaks_engines_behind_its_opening_goes_no_further(workers, kvway):
    """However many others say that they are full."""
    def breaks_off(ex):
        ex.start_stream()
        ex.chunk(OPENING)
        ex.close()

    fleet = workers(8, script=busy)
    router = kvway(fleet, {"routing.strategy": "roundrobin", "health.passive_failures": 1000, "ejection.max_share": 0})
    assert router.ask("POST", CHAT, body=chat_body()).status == 503
    for worker in fleet:
        worker.script = breaks_off
    before = sum(len(worker.requests) for worker in fleet)
    assert router.ask("POST", "/v1/responses", body=RESPONSE).status >= 429
    assert sum(len(worker.requests) for worker in fleet) - before <= 6


@pytest.mark.parametrize("kind,stream", [("503", False), ("event", True), ("429", False)])
def test_the_queue_of_simulated_engines_is_never_asked_for_more_for_long(kvsim, kvway, kind, stream):
    """The limit is learned: of many requests only a few are refused, and none is lost."""
    fleet = kvsim(2, "--max-seqs", "2", "--max-queued", "4", "--full-as", kind, "--speed", "5", profile="reference")
    router = kvway(fleet)
    got, lock = collections.Counter(), threading.Lock()

    def user(number):
        for turn in range(6):
            text = f"user {number} turn {turn} "
            one = router.ask("POST", CHAT, body=chat_body(text, stream=stream, max_tokens=20))
            with lock:
                got[0 if b"error" in one.body else one.status] += 1

    threads = [threading.Thread(target=user, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60 * PATIENCE)
    assert got == {200: 120}
    assert router.metric("kvway_full_answers_total") > 0
    not_at_fault(router, fleet)


# --- what else is known of workers ---


def test_long_prompts_go_where_they_fit(kvsim, kvway):
    """By max_model_len of each worker's own list: the same model may be served with different ones."""
    (short,) = kvsim(1, "--max-model-len", "1000")
    (long,) = kvsim(1, "--max-model-len", "8000")
    router = kvway([short, long])
    statuses = collections.Counter()
    for i in range(8):
        body = chat_body(f"{i} " + "word " * 2500, max_tokens=4)
        statuses[router.ask("POST", CHAT, body=body).status] += 1
        body = chat_body(f"{i} hello", max_tokens=4)
        statuses[router.ask("POST", CHAT, body=body).status] += 1
        body = chat_body(f"{i} hello", max_tokens=2000)
        statuses[router.ask("POST", CHAT, body=body).status] += 1
    assert statuses == {200: 24}
    assert router.metric("kvway_requests_total", worker=long.url) >= 16
    body = chat_body("word " * 20000, max_tokens=4)
    answer_of_the_longest = router.ask("POST", CHAT, body=body)
    assert answer_of_the_longest.status == 400 and b"8000" in answer_of_the_longest.body


TOO_LONG = {  # by path, as vLLM words it
    CHAT: "This model's maximum context length is 1000 tokens. However, your prompt contains at least 1001 input tokens",
    "/v1/completions": "The decoder prompt (length 1200) is longer than the maximum model length of 1000. Make sure",
    "/v1/responses": "The engine prompt length 1200 exceeds the max_model_len 1000. Please reduce prompt.",
}
ASKED = {CHAT: chat_body(), "/v1/completions": {"prompt": "a"}, "/v1/responses": {"input": "a"}}


def refuses(text):
    def script(ex):
        ex.read_body()
        ex.respond(400, body={"error": {"message": text, "type": "BadRequestError", "param": None, "code": 400}})

    return script


def of_lengths(workers, *lengths):
    fleet = workers(len(lengths))
    for worker, length in zip(fleet, lengths):
        worker.cards = {"tiny": {"max_model_len": length}}
    return fleet


@pytest.mark.parametrize("path", sorted(TOO_LONG))
def test_a_prompt_that_turns_out_too_long_goes_where_it_fits(workers, kvway, path):
    """Its tokens are estimated: the worker that takes less counts them, and says so."""
    short, long = of_lengths(workers, 1000, 8000)
    short.script = refuses(TOO_LONG[path])
    router = kvway([short, long], {"routing.strategy": "roundrobin"})
    for _ in range(6):
        assert router.ask("POST", path, body={"model": "tiny", **ASKED[path]}).status == 200
    assert len(short.requests) >= 2 and len(long.requests) == 6
    not_at_fault(router, [short])
    router.wait_idle()


def test_a_prompt_that_is_too_long_for_all_is_refused_in_the_last_one_s_words(workers, kvway):
    fleet = of_lengths(workers, 1000, 2000, 8000)
    for worker in fleet:
        worker.script = refuses(TOO_LONG[CHAT] + worker.name)
    router = kvway(fleet, {"routing.strategy": "roundrobin"})
    for _ in range(6):
        before = sum(len(w.requests) for w in fleet)
        got = router.ask("POST", CHAT, body=chat_body())
        assert got.status == 400 and TOO_LONG[CHAT].encode() in got.body
        assert sum(len(w.requests) for w in fleet) - before <= 2, "it is repeated once"
    router.wait_idle()


@pytest.mark.parametrize("text,lengths", [("no such tool", (1000, 8000)), (TOO_LONG[CHAT], (1000, 1000))])
def test_other_refusals_pass_unchanged(workers, kvway, text, lengths):
    fleet = of_lengths(workers, *lengths)
    for worker in fleet:
        worker.script = refuses(text)
    router = kvway(fleet, {"routing.strategy": "roundrobin"})
    for turn in range(1, 5):
        got = router.ask("POST", CHAT, body=chat_body())
        assert got.status == 400 and text.encode() in got.body
        assert sum(len(w.requests) for w in fleet) == turn
    router.wait_idle()


def test_a_fleet_that_is_late_with_its_probes_is_asked_all_the_same(workers, kvway):
    """Its API server may be busy with the very requests that it answers: to refuse all helps no client."""
    release, begun, go_on = threading.Event(), threading.Event(), threading.Event()

    def slow(ex):
        ex.read_body()
        begun.set()
        go_on.wait(30)
        answer(ex)

    fleet = workers(1, script=slow)
    router = kvway(fleet, {"health.interval": "100ms", "health.timeout": "200ms", "health.fall": 1})
    got = []
    first = threading.Thread(target=lambda: got.append(router.ask("POST", CHAT, body=chat_body("first"))))
    first.start()
    assert begun.wait(10)
    fleet[0].hang_probes = release
    until(lambda: router.metric("kvway_worker_health", worker=fleet[0].url) == 2, what="worker is down")
    fleet[0].script = answer
    assert router.ask("POST", CHAT, body=chat_body("second")).status == 200
    assert router.metric("kvway_panic_requests_total") == 1
    time.sleep(0.5)
    go_on.set()
    first.join(10)
    assert got[0].status == 200, "it was not taken from the worker, for there is none other"
    release.set()


def test_a_fleet_that_is_down_otherwise_is_not_asked(workers, kvway):
    fleet = workers(1)
    router = kvway(fleet, {"health.interval": "100ms", "health.fall": 1})
    fleet[0].healthy = False
    until(lambda: router.metric("kvway_worker_health", worker=fleet[0].url) == 2, what="worker is down")
    assert router.ask("POST", CHAT, body=chat_body()).status == 503
    assert fleet[0].requests == [] and router.metric("kvway_panic_requests_total") == 0
