"""`kvway trace` and GET /trace: what happened to a request, as users ask for it: by id, by worker, for slow ones."""

import json
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from rig.client import CHAT, Client, ask, chat_body
from rig.router import PROGRAM
from rig.wait import until, unused_port

# A prompt of LONG is thought to take a worker minutes, so that nothing goes before an answer has come.
LONG = "word " * 800
QUEUES = {
    "admission.enabled": True,
    "loops": 1,
    "routing.prefill_tokens_per_second": 2,
    "admission.worker_queue": "0s",
    "admission.max_wait": "20s",
}
ID = [("x-request-id", "the-one")]


def run(router, *words, admin=None):
    admin = admin or f"127.0.0.1:{router.admin_port}"
    return subprocess.run([PROGRAM, "trace", *words, "--admin", admin], text=True, capture_output=True, timeout=60)


def story(router, *words):
    done = run(router, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines(router, query=""):
    """Requests of GET /trace, and its last line."""
    with urllib.request.urlopen(f"http://127.0.0.1:{router.admin_port}/trace{query}", timeout=10) as got:
        *requests, end = [json.loads(line) for line in got.read().decode().splitlines()]
    return requests, end


def one(router, query):
    (request,), _ = lines(router, query)
    return request


def ended(router, query):
    """Its client may have the answer a moment earlier."""
    until(lambda: "end" in one(router, query))
    return one(router, query)


def words(request):
    """What happened, without times: "attempt", "failed", names of states."""
    return [note.get("name") if note["what"] in ("request", "response") else note["what"] for note in request["way"]]


def close_unanswered(ex):
    ex.close()


def test_the_way_of_a_request(pair):
    worker, router = pair()
    assert router.ask("POST", CHAT, ID, chat_body()).status == 200
    got = ended(router, "?id=the-one")
    assert (got["route"], got["model"], got["status"], got["end"]) == ("chat", "tiny", 200, "complete")
    (attempt,) = [note for note in got["way"] if note["what"] == "attempt"]
    assert attempt["worker"] == worker.url and attempt["reason"] == "only"
    seen = words(got)
    for word in ("routing", "attempt", "sent", "held", "first_token", "grade", "done", "attempt_end", "end"):
        assert word in seen, (word, seen)
    assert seen.index("routing") < seen.index("attempt") < seen.index("sent") < seen.index("first_token")
    assert seen[-1] == "end"
    times = [note["ms"] for note in got["way"]]
    assert times == sorted(times)
    shown = story(router, "--id", "the-one")
    assert f"{worker.url}: only, " in shown and "status 200, complete, after " in shown


def test_a_request_that_fails(pair):
    worker, router = pair(close_unanswered)
    assert router.ask("POST", CHAT, ID, chat_body()).status == 502
    assert ended(router, "?id=the-one")["status"] == 502
    got = one(router, "?id=the-one&status=5xx")
    (failed,) = [note for note in got["way"] if note["what"] == "failed"]
    assert failed["why"] == "it closed the connection without an answer" and failed["then"] == "another worker"
    (said,) = [note for note in got["way"] if note["what"] == "answer"]
    assert said["status"] == 502 and said["message"].startswith("no worker could answer; tried")
    shown = story(router, "--id", "the-one")
    assert "failed       it closed the connection without an answer; then: another worker" in shown
    assert "grade        bad" in shown and "502 by kvway: no worker could answer" in shown


def test_a_request_that_is_retried(workers, kvway):
    fleet = workers(2)
    router = kvway(fleet)
    fleet[0].script = close_unanswered
    for turn in range(20):
        name = f"turn-{turn}"
        assert router.ask("POST", CHAT, [("x-request-id", name)], chat_body(f"{turn} {LONG}")).status == 200
        got = ended(router, f"?id={name}")
        asked = [note["worker"] for note in got["way"] if note["what"] == "attempt"]
        if len(asked) == 2:
            break
    assert asked == [fleet[0].url, fleet[1].url] and got["status"] == 200
    shown = story(router, "--id", name)
    assert f"attempt 1    {fleet[0].url}: " in shown and f"attempt 2    {fleet[1].url}: " in shown
    assert "then: another worker" in shown
    host = fleet[1].url.removeprefix("http://")
    assert [r["request_id"] for r in lines(router, f"?worker={host}&id={name}")[0]] == [name]


def test_a_request_that_waits(pair):
    """Under way it says for what, and for how long at most; when it has ended, where its time went."""
    go = threading.Event()

    def script(ex):
        go.wait(30)
        ex.respond(body={"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 1}})

    worker, router = pair(script, QUEUES)
    threads = []
    for name in ("first", "second"):
        args = (router.port, "POST", CHAT, [("x-request-id", name)], chat_body(f"{name} {LONG}", max_tokens=1))
        threads.append(threading.Thread(target=ask, args=args, kwargs={"timeout": 60}, daemon=True))
        threads[-1].start()
        until(lambda: lines(router, f"?id={name}")[0])
    until(lambda: "wait" in words(one(router, "?id=second")))
    waiting = one(router, "?id=second")
    (wait,) = [note for note in waiting["way"] if note["what"] == "wait"]
    assert "status" not in waiting and wait["name"] == "room" and 0 < wait["at_most_ms"] <= 20000
    assert "wait         for room at a worker, at most 20.00 s" in story(router, "--id", "second")
    until(lambda: lines(router, "?slow=200&id=second")[0])
    go.set()
    for thread in threads:
        thread.join(30)
    ended(router, "?id=second")
    shown = story(router, "--slow", "200", "--id", "second")
    assert "status 200, complete" in shown and "in `wait` for room" in shown
    assert lines(router, "?slow=3600000")[0] == []


def test_a_model_that_no_worker_has(pair):
    """While newer lists are asked for it waits; in the second after them it need not."""
    worker, router = pair(None, {"health.models_interval": "1h"})

    def waits():
        assert router.ask("POST", CHAT, ID, chat_body(model="huge")).status == 404
        return [note for request in lines(router, "?id=the-one&model=huge&status=4xx")[0] for note in request["way"]
                if note["what"] == "wait"]

    until(waits)
    assert waits()[0]["name"] == "models" and waits()[0]["at_most_ms"] == 1000
    seen = words(one(router, "?id=the-one&model=huge&status=4xx&last=1"))
    last_step = max(at for at, word in enumerate(seen) if word == "step")
    assert last_step < seen.index("answer"), seen
    assert "wait         for newer lists of the workers' models, at most 1.00 s" in story(router)


def test_a_timer(pair):
    worker, router = pair(lambda ex: ex.gone(20), {"timeouts.first_token": "300ms"})
    assert router.ask("POST", CHAT, ID, chat_body()).status == 504
    assert ended(router, "?id=the-one")["end"] == "timeout"
    shown = story(router, "--id", "the-one")
    assert "timeouts.first_token has passed" in shown and "status 504, timeout" in shown


def test_failed_requests_are_remembered_longer(pair):
    worker, router = pair(config={"loops": 1, "trace.requests": 8, "trace.failed": 2})
    worker.script = close_unanswered
    assert router.ask("POST", CHAT, ID, chat_body()).status == 502
    worker.script = lambda ex: ex.respond(body={})
    for _ in range(50):
        router.ask("GET", "/health")
    assert one(router, "?id=the-one")["status"] == 502
    assert len(lines(router)[0]) <= 10


def test_more_at_once_than_there_are_records(pair):
    worker, router = pair(lambda ex: ex.gone(20), {"loops": 1, "trace.requests": 2, "trace.failed": 0})
    clients = [Client(router.port) for _ in range(4)]
    for client in clients:
        client.send_request("POST", CHAT, body=chat_body())
    worker.wait_requests(4)
    assert router.metric("kvway_requests_untraced_total") >= 2
    assert len(lines(router)[0]) == 2
    for client in clients:
        client.close()
    until(lambda: all("end" in request for request in lines(router)[0]))


def test_since(pair):
    worker, router = pair(config={"trace.requests": 4, "trace.failed": 0, "loops": 1})
    router.ask("POST", CHAT, ID, chat_body())
    ended(router, "?id=the-one")
    before, end = lines(router)
    assert before and end["lost"] == 0
    assert lines(router, f"?since={end['cursor']}")[0] == []
    router.ask("POST", CHAT, [("x-request-id", "later")], chat_body())
    ended(router, "?id=later")
    (later,), end = lines(router, f"?since={end['cursor']}")
    assert later["request_id"] == "later" and end["lost"] == 0
    for turn in range(10):
        router.ask("POST", CHAT, [("x-request-id", f"turn-{turn}")], chat_body())
    ended(router, "?id=turn-9")
    got, end = lines(router, f"?since={end['cursor']}")
    assert len(got) == 4 and end["lost"] == 6
    # Of another process: all is new, and nothing counts as lost that this one has not had.
    assert len(lines(router, "?since=1-5-7")[0]) == 4


def test_follow(pair):
    worker, router = pair()
    follow = subprocess.Popen(
        [PROGRAM, "trace", "--follow", "--json", "--model", "tiny", "--admin", f"127.0.0.1:{router.admin_port}"],
        text=True, stdout=subprocess.PIPE)
    try:
        for name in ("one", "two"):
            router.ask("POST", CHAT, [("x-request-id", name)], chat_body())
            assert json.loads(follow.stdout.readline())["request_id"] == name
            router.ask("GET", "/health")  # has no model
    finally:
        follow.kill()
        follow.wait()


def test_off(pair):
    worker, router = pair(config={"trace.requests": 0})
    assert router.ask("POST", CHAT, body=chat_body()).status == 200
    done = run(router)
    assert done.returncode == 1 and done.stderr == "kvway trace: requests are not traced: trace.requests is 0\n"


@pytest.mark.parametrize("words, said", (
    (["--slow", "3s"], "--slow: found `3s`, expected a number up to 86400000"),
    (["--status", "9xx"], "--status: found `9xx`, expected one such as 503, or 5xx"),
    (["the-one"], "found `the-one`, expected flags only; a request's id goes behind --id"),
    (["--folow"], "unknown flag --folow; did you mean `--follow`?"),
))
def test_wrong_usage(words, said):
    done = run(None, *words, admin="127.0.0.1:1")
    assert done.returncode == 2 and done.stderr == f"kvway trace: {said}\nTry `kvway trace --help`.\n"


def test_no_router():
    done = run(None, admin=f"127.0.0.1:{unused_port()}")
    assert done.returncode == 3 and "no kvway answers on" in done.stderr


def test_while_the_loops_write(pair):
    """Whatever is read under load is one request's, whole."""
    worker, router = pair(config={"trace.requests": 4, "loops": 1})
    over = threading.Event()

    def load():
        with Client(router.port) as client:
            for turn in range(100000):
                if over.is_set():
                    return
                client.ask("POST", CHAT, [("x-request-id", f"{turn}" * 5)], chat_body())

    thread = threading.Thread(target=load)
    thread.start()
    try:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            for request in lines(router)[0]:
                name = request["request_id"]
                assert name[: len(name) // 5] * 5 == name or request["route"] != "chat"
                assert "end" not in request or words(request)[-1] == "end"
    finally:
        over.set()
        thread.join()
