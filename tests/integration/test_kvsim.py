"""What kvsim does apart from answering in the right shape: connections, clients that leave, the cache,
faults on request, and the ways in which it can be started."""

import importlib
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import threading
import time

import pytest

from rig.client import CHAT, COMPLETIONS, Client, ask, chat_body
from rig.sim import PROGRAM, Sim
from rig.wait import PATIENCE, until
from rig.wire import Closed


@pytest.fixture
def sim(tmp_path):
    """sim(*options, profile=...): the first worker of a kvsim that must end with 0."""
    made = []

    def make(*options, **keys):
        made.append(Sim(tmp_path, 1, *options, name=f"kvsim{len(made)}", **keys))
        made[-1].workers[0].process = made[-1]
        return made[-1].workers[0]

    yield make
    for one in made:
        one.signal(15)
        assert one.wait() == 0, one.log()
        assert "Sanitizer" not in one.log() and "runtime error" not in one.log(), one.log()


def prompt(text, tokens=4, **more):
    return {"model": "tiny", "prompt": text, "max_tokens": tokens, **more}


# Connections


def test_a_connection_serves_many_requests_and_is_closed_when_idle(sim):
    worker = sim("--keepalive-s", f"{0.3 * PATIENCE:g}")
    with Client(worker.port) as client:
        for _ in range(5):
            assert client.ask("POST", COMPLETIONS, body=prompt("Hello")).status == 200
        assert worker.stats()["connections_accepted"] == 2  # this one and the one that asks
        assert client.closed_by_peer()


def test_a_new_connection_is_not_closed_before_its_first_request(sim):
    worker = sim("--keepalive-s", "0.2")
    with Client(worker.port) as client, Client(worker.port) as other:
        other.ask("GET", "/health")
        assert other.closed_by_peer()  # by then the idle time has passed for both
        assert client.ask("GET", "/health").status == 200


def test_pipelined_requests_are_answered_in_order(sim):
    worker = sim()
    with Client(worker.port) as client:
        for i in range(20):
            client.send_request("POST", COMPLETIONS, [("X-Request-Id", f"r{i}")], prompt("Hi", i + 1))
        for i in range(20):
            answer = client.read().json()
            assert answer["id"] == f"cmpl-r{i}"
            assert answer["usage"]["completion_tokens"] == i + 1


def test_a_request_may_come_in_single_bytes(sim):
    worker = sim()
    body = json.dumps(chat_body("byte by byte", max_tokens=3)).encode()
    head = (f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    with Client(worker.port) as client:
        for byte in head + body:
            client.send(bytes([byte]))
        assert client.read().json()["usage"]["completion_tokens"] == 3


def test_chunked_request_body(sim):
    worker = sim()
    body = json.dumps(chat_body("in pieces", max_tokens=3)).encode()
    cuts = [body[i:i + 7] for i in range(0, len(body), 7)]
    answer = ask(worker.port, "POST", CHAT, [("Content-Type", "application/json")], chunks=cuts)
    assert answer.json()["usage"]["completion_tokens"] == 3


def test_expect_100_continue_is_answered_before_the_body(sim):
    worker = sim()
    body = json.dumps(prompt("Hello")).encode()
    with Client(worker.port) as client:
        client.send_head("POST", COMPLETIONS, [("Content-Type", "application/json"),
                                               ("Content-Length", str(len(body))),
                                               ("Expect", "100-continue")])
        assert client.reader.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(body)
        assert client.read().status == 200


def test_http_1_0_is_closed_after_its_answer(sim):
    worker = sim()
    with Client(worker.port) as client:
        client.send_request("POST", COMPLETIONS, body=prompt("Hi", stream=True), version="HTTP/1.0")
        answer = client.read()
        assert answer.framing == "close" and answer.events()[-1] == "[DONE]"
        assert client.closed_by_peer()


def test_what_is_not_http_is_refused(sim):
    worker = sim()
    for junk in (b"NONSENSE\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\nbad header\r\n\r\n"):
        with Client(worker.port) as client:
            client.send(junk)
            assert client.read().status == 400
            assert client.closed_by_peer()


def test_a_body_over_the_limit_is_413(sim):
    worker = sim("--max-body", "1000")
    with Client(worker.port) as client:
        answer = client.ask("POST", COMPLETIONS, body=prompt("x" * 2000))
        assert answer.status == 413
        assert client.closed_by_peer()


# Clients that leave


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("leave", ["close", "reset", "finish_sending"])
def test_a_client_that_leaves_ends_its_request(sim, stream, leave):
    worker = sim(profile="reference")
    body = prompt("a long answer", 5000, stream=stream)
    with Client(worker.port) as client:
        client.send_request("POST", COMPLETIONS, body=body)
        until(lambda: worker.stats()["running"] == 1)
        assert worker.ask("GET", "/load").json() == {"server_load": 1}
        getattr(client, leave)()
        until(lambda: worker.ask("GET", "/load").json() == {"server_load": 0})
    stats = until(lambda: s if (s := worker.stats())["blocks_used"] == 0 else None)
    assert stats["finished"] == 0
    assert stats["generated_tokens"] < 5000


def test_many_clients_that_leave_at_random_leave_nothing_behind(sim):
    worker = sim("--speed", "20", profile="reference")
    rng = random.Random(5)
    before = worker.process.fds()
    for _ in range(100):
        client = Client(worker.port)
        client.send_request("POST", CHAT, body=chat_body("x" * rng.randrange(3000), max_tokens=200,
                                                         stream=rng.random() < 0.7))
        if rng.random() < 0.5:
            client.reader.fill()
        client.reset() if rng.random() < 0.5 else client.close()
    stats = until(lambda: s if (s := worker.stats())["load"] == 0 else None)
    assert (stats["running"], stats["waiting"], stats["blocks_used"]) == (0, 0, 0)
    until(lambda: worker.process.fds() == before)


# Cache and tokens


def test_the_next_turn_of_a_conversation_hits_the_one_before(sim):
    worker = sim()
    messages = [{"role": "system", "content": "You are kind. " * 50}]
    before = 0
    for turn in range(5):
        messages.append({"role": "user", "content": f"Question {turn}. " * 10})
        answer = worker.ask("POST", CHAT, body={"model": "tiny", "messages": messages,
                                                "max_tokens": 40}).json()
        usage = answer["usage"]
        # all of the turn before but its unfull block and its last token
        assert usage["prompt_tokens_details"]["cached_tokens"] == max(0, (before - 1) // 16 * 16)
        before = usage["total_tokens"]
        messages.append(answer["choices"][0]["message"])


def test_the_same_prompt_gives_the_same_answer_on_every_worker(sim):
    texts = {w.ask("POST", CHAT, body=chat_body("Tell me", max_tokens=30)).json()
             ["choices"][0]["message"]["content"] for w in (sim(), sim("--seed", "9"))}
    assert len(texts) == 1
    plain = sim().ask("POST", COMPLETIONS, body=prompt("Tell me", 30))
    stream = sim().ask("POST", COMPLETIONS, body=prompt("Tell me", 30, stream=True))
    told = "".join(json.loads(e)["choices"][0]["text"] for e in stream.events()[:-1])
    assert plain.json()["choices"][0]["text"] == told


def test_a_small_cache_forgets_and_a_reset_forgets_all(sim):
    worker = sim("--kv-tokens", "1600")

    def cached(text):
        usage = worker.ask("POST", COMPLETIONS, body=prompt(text)).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached("a" * 2000) == 0
    assert cached("a" * 2000) == 496
    assert worker.ask("POST", "/reset_prefix_cache").json() == {"success": True}
    assert cached("a" * 2000) == 0
    for letter in "bcd":
        cached(letter * 2000)
    assert cached("a" * 2000) < 496
    assert worker.stats()["evictions"] > 0


def test_salt_and_lora_keep_caches_apart(sim):
    worker = sim("--lora", "adapter")

    def cached(**more):
        usage = worker.ask("POST", COMPLETIONS, body={**prompt("b" * 400), **more}).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert [cached(), cached()] == [0, 96]
    assert [cached(cache_salt="t1"), cached(cache_salt="t1"), cached(cache_salt="t2")] == [0, 96, 0]
    assert [cached(model="adapter"), cached(model="adapter")] == [0, 96]
    models = worker.ask("GET", "/v1/models").json()["data"]
    assert [(m["id"], m["parent"]) for m in models] == [("tiny", None), ("adapter", "tiny")]


def test_tokenize_gives_the_ids_that_chat_uses_and_detokenize_the_text(sim):
    worker = sim()
    body = chat_body("What is it? caf\u00e9 \u65e5\u672c", max_tokens=3)
    ids = worker.ask("POST", "/tokenize", body={k: body[k] for k in ("model", "messages")}).json()
    chat = worker.ask("POST", CHAT, body={**body, "return_token_ids": True}).json()
    assert ids["tokens"] == chat["prompt_token_ids"]
    assert ids["count"] == chat["usage"]["prompt_tokens"]
    told = worker.ask("POST", "/detokenize", body={"tokens": chat["choices"][0]["token_ids"]})
    assert told.json()["prompt"] == chat["choices"][0]["message"]["content"]
    again = worker.ask("POST", COMPLETIONS, body=prompt(ids["tokens"], 3)).json()
    assert again["choices"][0]["text"] == chat["choices"][0]["message"]["content"]


def test_a_batch_counts_each_prompt_once_and_numbers_its_choices(sim):
    answer = sim().ask("POST", COMPLETIONS, body=prompt(["a" * 40, [1, 2, 3]], 5, n=2)).json()
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 13
    assert answer["usage"]["completion_tokens"] == 20
    assert len({c["text"] for c in answer["choices"]}) == 4


def test_a_forced_tool_is_called(sim):
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]
    body = chat_body("Use it", tools=tools, tool_choice="required")
    worker = sim()
    choice = worker.ask("POST", CHAT, body=body).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "look_up", "arguments": "{}"}
    events = worker.ask("POST", CHAT, body={**body, "stream": True}).events()
    deltas = [json.loads(e)["choices"][0] for e in events[:-1]]
    assert deltas[1]["delta"]["tool_calls"][0]["function"]["name"] == "look_up"
    assert deltas[-1]["finish_reason"] == "tool_calls"


def test_a_response_is_found_on_the_worker_that_made_it(sim):
    one, other = sim(), sim()
    body = {"model": "tiny", "input": "Hi", "max_output_tokens": 3}
    made = one.ask("POST", "/v1/responses", body=body).json()
    assert one.ask("GET", f"/v1/responses/{made['id']}").json() == made
    assert other.ask("GET", f"/v1/responses/{made['id']}").status == 404
    body["previous_response_id"] = made["id"]
    assert one.ask("POST", "/v1/responses", body=body).status == 200
    assert other.ask("POST", "/v1/responses", body=body).status == 404


# Time


def test_simulated_time_is_the_same_at_every_speed(sim):
    busy = set()
    for speed in ("4", "40"):
        worker = sim("--speed", speed, profile="reference")
        for i in range(5):
            worker.ask("POST", COMPLETIONS, body=prompt("x" * 4000 * i + "y", 20))
        busy.add(worker.stats()["busy_s"])
    assert len(busy) == 1
    assert busy.pop() > 5 * 20 * 0.012  # that many steps' base alone


def due_in(seconds):
    """x-sim-due of a request that is sent now."""
    lead = int(seconds * 1e9)
    return [("x-sim-due", f"{time.clock_gettime_ns(time.CLOCK_MONOTONIC) + lead} {lead}")]


def test_requests_sent_early_are_together_when_they_are_due(sim):
    """Sent apart by far more than a step in simulated time, they share their steps."""
    worker = sim("--speed", "100", profile="reference")
    due = due_in(2)
    clients = [Client(worker.port) for _ in range(4)]
    for n, client in enumerate(clients):
        client.send_request("POST", COMPLETIONS, due, body=prompt(f"number {n}", 100))
        until(lambda n=n: worker.stats()["load"] == n + 1)
        assert worker.stats()["steps"] == 0  # held
        time.sleep(0.03)
    for client in clients:
        assert client.read().json()["usage"]["completion_tokens"] == 100
        client.close()
    stats = worker.stats()
    assert stats["steps"] < 130  # one at a time they would need 400
    assert (stats["early"], stats["missed"]) == (4, 0)


def test_a_request_that_comes_after_its_first_step_is_counted(sim):
    worker = sim("--speed", "100", profile="reference")
    with Client(worker.port) as busy, Client(worker.port) as late:
        busy.send_request("POST", COMPLETIONS, body=prompt("long", 20000))
        until(lambda: worker.stats()["steps"] > 10)
        head = due_in(-0.5)[0][1].split()[0]
        late.send_request("POST", COMPLETIONS, [("x-sim-due", f"{head} 0")], body=prompt("late", 2))
        assert late.read().status == 200
        stats = worker.stats()
        assert (stats["early"], stats["missed"], stats["load"]) == (1, 1, 1)


def test_a_request_that_is_held_may_leave(sim):
    worker = sim("--speed", "100", profile="reference")
    with Client(worker.port) as client:
        client.send_request("POST", COMPLETIONS, due_in(1000), body=prompt("gone before it was due"))
        until(lambda: worker.stats()["load"] == 1)
    until(lambda: worker.stats()["load"] == 0)
    with Client(worker.port) as client:
        client.send_request("POST", COMPLETIONS, due_in(1000), body=prompt("cut by a restart"))
        until(lambda: worker.stats()["load"] == 1)
        worker.ask("GET", "/sim/restart")
        with pytest.raises((Closed, ConnectionError)):
            client.read()
    assert worker.stats()["early"] == 0  # counters start over
    assert worker.ask("POST", COMPLETIONS, body=prompt("next")).status == 200


def test_a_paused_worker_keeps_what_became_due(sim):
    worker = sim("--speed", "100", profile="reference")
    worker.ask("POST", "/pause")
    with Client(worker.port) as client:
        client.send_request("POST", COMPLETIONS, due_in(0.05), body=prompt("Hello"))
        until(lambda: worker.stats()["load"] == 1)
        time.sleep(0.1)
        assert worker.stats()["steps"] == 0
        worker.ask("POST", "/resume")
        assert client.read().status == 200


def test_requests_of_clients_that_leave_are_counted(sim):
    worker = sim()
    for after_s in (60, -0.25):
        when = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + int(after_s * 1e9)
        with Client(worker.port) as client:
            client.send_request("POST", COMPLETIONS, [("x-sim-leave", str(when))], body=prompt("Hello", 2))
            assert client.read().status == 200
    stats = worker.stats()
    assert (stats["leavers"], stats["left_before"]) == (2, 1) and stats["left_before_ms"] >= 250
    with Client(worker.port) as client:
        client.send_request("POST", COMPLETIONS, [("x-sim-leave", "soon")], body=prompt("Hello", 2))
        assert client.read().status == 599


def test_a_due_time_that_is_none_is_refused(sim):
    worker = sim()
    for value in ("", "soon", "5", "5 6 7", "-1 5"):
        with Client(worker.port) as client:
            client.send_request("POST", COMPLETIONS, [("x-sim-due", value)], body=prompt("Hello"))
            assert client.read().status == 599
    assert worker.stats()["load"] == 0


def test_a_sleeping_worker_hangs_and_wakes(sim):
    worker = sim()
    worker.ask("POST", "/sleep?level=2")
    assert worker.ask("GET", "/health").status == 200
    with Client(worker.port) as client:
        client.send_request("POST", COMPLETIONS, body=prompt("Hello"))
        until(lambda: worker.stats()["load"] == 1)
        assert worker.stats()["steps"] == 0
        worker.ask("POST", "/wake_up")
        assert client.read().status == 200


def test_a_restart_is_visible_and_cuts_what_runs(sim):
    worker = sim("--speed", "0.1", profile="reference")

    def started():
        page = worker.ask("GET", "/metrics").body.decode()
        return next(line for line in page.splitlines() if line.startswith("process_start_time"))

    before = started()
    with Client(worker.port) as client:
        client.send_request("POST", COMPLETIONS, body=prompt("Hello", 1000))
        until(lambda: worker.stats()["running"] == 1)
        assert worker.ask("GET", "/sim/restart").status == 200
        with pytest.raises(Closed):
            client.read()
    assert started() != before
    assert worker.stats()["steps"] == 0


# Faults


def faulty(worker, spec, **more):
    client = Client(worker.port)
    client.send_request("POST", COMPLETIONS, [("x-sim-fail", spec)], prompt("Hello", 8, **more))
    return client


@pytest.mark.parametrize("spec", ["reset-before-head", "close-before-head", "reset-after-head",
                                  "close-after-head", "reset-after-tokens=3",
                                  "close-after-tokens=3", "short-body=10", "malformed-chunk"])
def test_an_answer_that_is_cut(sim, spec):
    worker = sim()
    with faulty(worker, spec, stream=spec != "short-body=10") as client:
        with pytest.raises((Closed, AssertionError, ValueError)) as error:
            client.read()
    if "tokens" in spec:
        assert error.value.partial.count(b"data: {") == 3
    assert worker.stats()["load"] == 0


@pytest.mark.parametrize("spec, least", [("hang", 0), ("hang-after-head", 1),
                                         ("hang-after-tokens=2", 3)])
def test_an_answer_that_stops(sim, spec, least):
    worker = sim()
    with faulty(worker, spec, stream=True) as client:
        got = b""
        while got.count(b"HTTP/1.1 200") + got.count(b"data: ") < least:
            data = client.sock.recv(65536)
            assert data, got
            got += data
        client.sock.settimeout(0.3)
        with pytest.raises((socket.timeout, TimeoutError)):
            while data := client.sock.recv(65536):
                got += data
        assert got.count(b"HTTP/1.1 200") + got.count(b"data: ") == least
    until(lambda: worker.stats()["load"] == 0)


def test_answers_that_are_odd(sim):
    worker = sim()
    assert faulty(worker, "status=503").read().status == 503
    assert faulty(worker, "stauts=503").read().status == 599
    assert faulty(worker, "inform=103").read().interim[0][0] == 103
    assert len(faulty(worker, "big-head=9000").read().headers.get("x-sim-big")) == 9000
    assert faulty(worker, "no-length").read().framing == "close"
    assert faulty(worker, "chunk=1").read().json()["usage"]["completion_tokens"] == 8
    assert faulty(worker, "delay-ms=50").read().status == 200
    with faulty(worker, "malformed-head") as client:
        with pytest.raises(ValueError):
            client.read()
    with faulty(worker, "close-after") as client:
        assert "connection" not in client.read().headers
        assert client.closed_by_peer()
    with faulty(worker, "stale-close") as client:
        assert client.read().status == 200
        client.send_request("POST", COMPLETIONS, [("x-sim-fail", "stale-close")], prompt("Hello"))
        assert client.closed_by_peer()


def test_an_answer_before_the_body_is_read(sim):
    worker = sim()
    with Client(worker.port) as client:
        client.send_head("POST", COMPLETIONS, [("Content-Length", "100000"),
                                               ("x-sim-fail", "early-response=413")])
        assert client.read().status == 413
        client.send(b"x" * 100000)
        assert client.ask("GET", "/health").status == 200
        client.send_head("POST", COMPLETIONS, [("Content-Length", "100000"),
                                               ("x-sim-fail", "early-response=413;close-after")])
        assert client.read().status == 413
        assert client.closed_by_peer()


def test_faults_of_a_worker_last_as_many_posts_as_asked(sim):
    worker = sim()
    worker.fail("status%3D500", count=2)
    assert worker.ask("GET", "/health").status == 200
    got = [worker.ask("POST", COMPLETIONS, body=prompt("Hello")).status for _ in range(3)]
    assert got == [500, 500, 200]
    assert worker.ask("GET", "/sim/health?status=503").status == 200
    assert worker.ask("GET", "/health").status == 503


def test_mirror_and_echo_return_what_came(sim):
    worker = sim()
    data = random.Random(1).randbytes(300_000)
    assert worker.ask("POST", "/sim/mirror", body=data).body == data
    answer = worker.ask("POST", "/sim/mirror?chunk=1000", [("x-sim-fail", "chunk=777")], data)
    assert answer.body == data and len(answer.chunks) == 300
    echo = worker.ask("PUT", "/sim/echo?a=b", [("X-One", "1"), ("x-one", "2")], b"abc").json()
    assert (echo["method"], echo["query"], echo["body_bytes"]) == ("PUT", "a=b", 3)
    assert [h for h in echo["headers"] if h[0].lower() == "x-one"] == [["X-One", "1"], ["x-one", "2"]]


# Backends for measuring proxies


def test_fixed_response_has_its_size_and_costs_no_parsing(sim):
    worker = sim("--fixed-response", "5000")
    with Client(worker.port) as client:
        for _ in range(3):
            answer = client.ask("POST", CHAT, body=b"not json " * 1000)
            assert len(answer.body) == 5000 and answer.json()["id"] == "cmpl-fixed"
        assert client.ask("GET", "/health").status == 200


def test_fixed_stream_stamps_each_event_with_the_clock(sim):
    import time

    worker = sim("--fixed-stream", "20:2:200")
    before = time.monotonic_ns()
    answer = ask(worker.port, "POST", CHAT, body=b"{}")
    after = time.monotonic_ns()
    assert [len(c) for c in answer.chunks[:20]] == [200] * 20
    events = [json.loads(e) for e in answer.events()[:-1]]
    assert [e["seq"] for e in events] == list(range(20))
    stamps = [e["sim_ns"] for e in events]
    assert stamps == sorted(stamps) and before < stamps[0] and stamps[-1] < after
    assert stamps[-1] - before >= 20 * 2_000_000  # never ahead of its schedule


# The program


@pytest.mark.parametrize("arguments, says", [
    (["--workers", "0"], "--workers"), (["--port", "65535", "--workers", "2"], "no room"),
    (["--profile", "no"], "--list-profiles"), (["--speed", "-1"], "--speed"),
    (["--fixed-stream", "1:2"], "EVENTS"), (["stray"], "stray"), (["--kv-tokens", "1x"], "1x"),
    (["--host", "nowhere"], "nowhere"), (["--no-such"], "--no-such")])
def test_a_wrong_command_line_is_explained(arguments, says):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=20)
    assert done.returncode != 0 and says in done.stderr


def test_help_and_profiles_are_printed():
    told = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
    for word in ("--speed", "reset-after-tokens=N", "/sim/stats", "--fixed-stream"):
        assert word in told
    told = subprocess.run([PROGRAM, "--list-profiles"], capture_output=True, text=True, check=True)
    assert "Simulated" in told.stdout and "20480" in told.stdout


def test_quickstart_can_describe_the_simulated_gpu():
    """Its table quotes the list of profiles: a column more must not go unnoticed."""
    root = pathlib.Path(__file__).parents[2]
    sys.path.insert(0, str(root / "deploy"))
    try:
        table = importlib.import_module("quickstart_table")
    finally:
        sys.path.pop(0)
    told = subprocess.run([PROGRAM, "--list-profiles"], capture_output=True, text=True, check=True)
    used = re.search(r"^profile=(\S+)$", (root / "deploy/quickstart.sh").read_text(), re.M)[1]
    text = " ".join(table.describe_gpu(told.stdout, used, 2))
    assert "prefill 24700 tokens/s, attention 1.33 ns" in text
    assert "KV cache 400,000 tokens each, simulated 2 times" in text


def test_workers_share_a_process_but_nothing_else(tmp_path):
    sim = Sim(tmp_path, 6, "--threads", "3")
    try:
        bodies = [prompt("z" * 400, 3)] * 6
        answers = [None] * 6

        def one(i):
            answers[i] = sim.workers[i].ask("POST", COMPLETIONS, body=bodies[i]).json()

        threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers} == {0}
        assert [w.stats()["worker"] for w in sim.workers] == list(range(6))
    finally:
        sim.signal(2)
        assert sim.wait() == 0


def test_a_silent_stream_gets_comments(tmp_path):
    """As vLLM's --sse-keep-alive-interval."""
    sim = Sim(tmp_path, 1, "--prefill-rate", 1000, "--sse-keep-alive-interval", "0.05", profile="llama-8b-h100")
    try:
        worker = sim.workers[0]
        body = chat_body("a b c d " * 150, stream=True, max_tokens=3)
        got = worker.ask("POST", "/v1/chat/completions", body=body).body
        assert got.startswith(b": keep-alive\n\n") and b"[DONE]" in got
        said = {"model": "tiny", "stream": True, "max_output_tokens": 3, "input": "a b c d " * 100}
        assert b"keep-alive" not in worker.ask("POST", "/v1/responses", body=said).body
    finally:
        sim.kill()
