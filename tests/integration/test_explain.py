"""What kvway reports of its decisions: answer headers, /explain on the admin address, `kvway
explain`."""

import json
import os
import random
import re
import subprocess
import threading
from urllib.parse import quote

import pytest

from rig.client import CHAT, COMPLETIONS, Client, ask, chat_body
from rig.router import PROGRAM, settle, write_config
from rig.wait import until, unused_port

WISH = [("X-Kvway-Explain", "1")]


def told(answer):
    """The x-kvway-* headers of an answer."""
    return {name.lower(): value for name, value in answer.headers if name.lower().startswith("x-kvway")}


# --- headers ------------------------------------------------------------------------------------


def test_headers_are_off_by_default_and_the_wish_passes_through(pair):
    worker, router = pair()
    assert not told(router.ask("POST", CHAT, body=chat_body()))
    assert not told(router.ask("POST", CHAT, WISH, body=chat_body()))
    assert worker.requests[-1].headers.get("x-kvway-explain") == "1"


def test_headers_for_clients_that_ask(pair):
    worker, router = pair(config={"http.decision_headers": "on_request"})
    for headers in ([], [("X-Kvway-Explain", "0")], [("X-Kvway-Explain", "")]):
        assert not told(router.ask("POST", CHAT, headers, body=chat_body()))
        assert "x-kvway-explain" not in worker.requests[-1].headers
    headers = told(router.ask("POST", CHAT, WISH, body=chat_body()))
    assert set(headers) == {"x-kvway-worker", "x-kvway-reason", "x-kvway-predicted-cached-tokens"}
    assert headers["x-kvway-worker"] == worker.url
    assert headers["x-kvway-reason"] == "only"
    assert headers["x-kvway-predicted-cached-tokens"].isdigit()
    assert "x-kvway-explain" not in worker.requests[-1].headers
    assert not told(router.ask("POST", CHAT, body=chat_body()))


def test_headers_for_all(pair):
    worker, router = pair(config={"http.decision_headers": "always"})
    assert told(router.ask("POST", CHAT, body=chat_body()))["x-kvway-worker"] == worker.url
    assert told(router.ask("POST", CHAT, WISH, body=chat_body()))
    assert "x-kvway-explain" not in worker.requests[-1].headers


def test_headers_name_the_worker_that_answered_after_a_retry(workers, kvway):
    bad, good = workers(2)
    bad.script = lambda ex: ex.respond(503, body=b"later")
    router = kvway([bad, good], {"http.decision_headers": "on_request", "routing.strategy": "roundrobin"})
    for _ in range(4):
        headers = told(router.ask("POST", CHAT, WISH, body=chat_body()))
        assert headers["x-kvway-worker"] == good.url
        assert "x-kvway-explain" not in good.requests[-1].headers


# --- POST /explain ------------------------------------------------------------------------------

STRATEGIES = ("prefixaware", "session", "roundrobin")
MODES = {"http.decision_headers": "on_request"}


def explain(router, body, path=None, headers=()):
    target = "/explain" if path is None else f"/explain?path={quote(path, safe='')}"
    return ask(router.admin_port, "POST", target, headers, body)


def explained(router, *args, **more):
    answer = explain(router, *args, **more)
    assert answer.status == 200, answer
    assert answer.headers.get("content-type") == "application/json"
    got = answer.json()
    chosen = [w["worker"] for w in got["workers"] if w["verdict"] == "chosen"]
    assert chosen == [got["worker"]], got
    return got


def refused(router, status, *args, **more):
    answer = explain(router, *args, **more)
    assert answer.status == status, answer
    error = answer.json()["error"]
    assert error["code"] == status
    assert error["type"].endswith("Error")
    return error


def words(seed, count):
    return " ".join(random.Random(seed).choices("sea king ship wind river morning boat story".split(), k=count))


def mixed_bodies(count):
    """Conversations that share some of their beginnings."""
    rng = random.Random(7)
    for i in range(count):
        system = words(rng.randrange(3), 300)
        turns = [{"role": "system", "content": system}]
        turns.append({"role": "user", "content": words(100 + rng.randrange(6), 200)})
        if rng.random() < 0.5:
            yield CHAT, {"model": "tiny", "messages": turns, "max_tokens": 4, "user": f"user-{i % 5}"}
        else:
            yield COMPLETIONS, {"model": "tiny", "prompt": system + words(i % 4, 150), "max_tokens": 4}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_request_does_what_was_explained(kvsim, kvway, strategy):
    router = kvway(kvsim(4), {**MODES, "routing.strategy": strategy})
    others = lambda: {w["verdict"] for w in explained(router, chat_body())["workers"]}  # noqa: E731
    until(lambda: "other_model" not in others(), 5, "the model of all known")
    hits = []
    for path, body in mixed_bodies(60):
        router.wait_idle()
        said = explained(router, body)
        assert said["strategy"] == strategy and said["path"] == path and said["model"] == "tiny"
        did = told(router.ask("POST", path, WISH, body=body))
        assert did["x-kvway-worker"] == said["worker"]
        assert did["x-kvway-reason"] == said["reason"]
        assert int(did["x-kvway-predicted-cached-tokens"]) == said["predicted_cached_tokens"]
        hits.append(said["predicted_cached_tokens"])
    if strategy == "prefixaware":
        assert sum(hit > 100 for hit in hits) > 30


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_explaining_changes_nothing(kvsim, kvway, strategy):
    clocks = ("health.interval", "health.models_interval", "health.metrics_interval", "timeouts.upstream_idle")
    sims = kvsim(3)
    router = kvway(sims, {**{key: "1h" for key in clocks}, "routing.strategy": strategy})
    (path, body), *others = list(mixed_bodies(9))
    assert router.ask("POST", path, body=body).status == 200
    router.wait_idle()
    until(lambda: router.metric("kvway_upstream_idle_connections") == 1, 5, "its connection idle")
    until(lambda: router.metric("kvway_usage_requests_total") == 1, 5, "its usage counted")

    def state():
        moving = ("process_", "router_", "kvway_loop", "vllm:current_qps")
        samples = router.metrics()
        still = {key: value for key, value in samples.items() if not key[0].startswith(moving)}
        return still | {sim.url: sim.stats()["finished"] for sim in sims}

    before = state()
    assert ("kvway_tree_nodes", frozenset()) in before
    first = explained(router, body)
    for _, other in others:
        explained(router, other)
    refused(router, 400, b"[")
    assert explained(router, body) == first
    after = state()
    assert {key: after[key] for key in after if after[key] != before[key]} == {}


def test_every_worker_is_there_with_its_cost(workers, kvway):
    fleet = workers(3)
    router = kvway(fleet, {"routing.strategy": "prefixaware"})
    body = chat_body(words(1, 2000))
    cold = explained(router, body)
    assert cold["predicted_cached_tokens"] == 0 and cold["content_known"]
    assert cold["prompt_tokens"] > 1000
    router.ask("POST", CHAT, body=body)
    router.wait_idle()
    got = explained(router, body)
    assert got["reason"] == "prefix" and "cache" in got["why"]
    assert [w["id"] for w in got["workers"]] == [0, 1, 2]
    assert {w["worker"] for w in got["workers"]} == {w.url for w in fleet}
    for worker in got["workers"]:
        assert worker["usable"] and worker["health"] == "up"
        parts = worker["queue_ms"] + worker["prefill_ms"] + worker["others_ms"]
        parts += worker["context_ms"] + worker["evict_ms"]
        assert abs(parts - worker["total_ms"]) < 0.001 * parts + 1e-5
        assert worker["in_flight"] == 0
        assert sum(worker["hit_tokens_by_tier"].values()) == worker["hit_tokens"]
        if worker["verdict"] == "chosen":
            assert worker["hit_tokens"] == got["predicted_cached_tokens"] > 1000
        else:
            assert worker["verdict"] == "costs_more" and worker["hit_tokens"] == 0
            assert worker["total_ms"] > 0


def test_work_in_progress_shows(workers, kvway):
    fleet = workers(2)
    held, free = threading.Event(), threading.Event()

    def hold(ex):
        ex.read_body()
        held.set()
        free.wait(20)
        ex.respond(200, body=b"{}")

    for worker in fleet:
        worker.script = hold
    router = kvway(fleet, MODES)
    body = chat_body(words(3, 4000))
    with Client(router.port) as client, Client(router.port) as second:
        client.send_request("POST", CHAT, body=body)
        assert held.wait(10)
        held.clear()
        other = explained(router, chat_body(words(4, 4000)))
        by_flight = {w["in_flight"]: w for w in other["workers"]}
        assert set(by_flight) == {0, 1}
        assert by_flight[0]["verdict"] == "chosen"
        assert by_flight[1]["others_ms"] > 0
        assert by_flight[1]["queue_ms"] >= 0 == by_flight[0]["queue_ms"]
        second.send_request("POST", CHAT, WISH, body=chat_body(words(4, 4000)))
        assert held.wait(10)
        free.set()
        assert client.read("POST").status == 200
        assert told(second.read("POST"))["x-kvway-worker"] == by_flight[0]["worker"]
    router.wait_idle()


def test_session_keys_count_as_in_a_request(workers, kvway):
    fleet = workers(5)
    keys = {"headers": ["x-session-id"], "cookies": ["sid"], "body_fields": ["user"]}
    config = {f"routing.session.{name}": value for name, value in keys.items()}
    router = kvway(fleet, {**MODES, **config, "routing.strategy": "session"})
    body = chat_body()
    assert explained(router, body)["reason"] == "no_session"
    for headers, more in (
        ([("X-Session-Id", "anna")], {}),
        ([("Cookie", "a=1; sid=boris ;b=2")], {}),
        ([("Cookie", "a=1"), ("Cookie", "sid=boris")], {}),
        ([("X-Session-Id", ""), ("Cookie", "sid=boris")], {}),
        ([], {"user": "carla"}),
        ([("X-Session-Id", "anna"), ("Cookie", "sid=boris")], {"user": "carla"}),
    ):
        request = {**body, **more}
        router.wait_idle()  # a worker that has not let go of the last request passes a session on
        said = explained(router, request, headers=headers)
        assert said["session_known"]
        did = told(router.ask("POST", CHAT, [*WISH, *headers], body=request))
        assert (did["x-kvway-worker"], did["x-kvway-reason"]) == (said["worker"], said["reason"])
    assert explained(router, body, headers=[("X-Session-Id", "anna")])["reason"] == "session"


def test_the_owner_of_a_response_gets_what_names_it(workers, kvway):
    fleet = workers(3)
    for n, worker in enumerate(fleet):
        worker.script = lambda ex, n=n: ex.respond(200, body={"id": f"resp_{n}{ex.json()['user']}"})
    router = kvway(fleet)
    body = {"model": "tiny", "input": words(5, 500), "user": "a"}
    first = router.ask("POST", "/v1/responses", body=body).json()["id"]
    owner = fleet[int(first[5])]
    follow = {**body, "previous_response_id": first}
    got = explained(router, follow, path="/v1/responses")
    assert got["worker"] == owner.url and got["reason"] == "owner"
    assert {w["verdict"] for w in got["workers"]} == {"chosen", "not_its_turn"}
    got = explained(router, follow | {"previous_response_id": "resp_nobody"}, path="/v1/responses")
    assert got["reason"] != "owner"


def test_models_decide_which_workers_are_weighed(workers, kvway):
    fleet = workers(2, models=["tiny"]) + workers(1, models=["other"])
    router = kvway(fleet)
    got = explained(router, chat_body(model="other"))
    assert got["worker"] == fleet[2].url and got["reason"] == "only"
    verdicts = [w["verdict"] for w in got["workers"]]
    assert verdicts == ["other_model", "other_model", "chosen"]
    assert "total_ms" not in got["workers"][0]
    error = refused(router, 404, chat_body(model="no-such-model"))
    assert error["param"] == "model" and "no-such-model" in error["message"]


def test_dead_workers_are_not_chosen(workers, kvway):
    fleet = workers(2)
    router = kvway(fleet, {"health.fall": 1, "health.interval": "200ms"})
    fleet[0].healthy = False
    until(lambda: explained(router, chat_body())["workers"][0]["verdict"] == "unusable", 5, "one out")
    got = explained(router, chat_body())
    assert got["worker"] == fleet[1].url
    assert got["workers"][0]["health"] == "down" and not got["workers"][0]["usable"]
    fleet[1].healthy = False
    until(lambda: explain(router, chat_body()).status == 503, 5, "both out")
    error = refused(router, 503, chat_body())
    assert fleet[0].url in error["message"] and "down" in error["message"]


def test_paths(pair):
    worker, router = pair()
    assert explained(router, {"prompt": "x"})["path"] == COMPLETIONS
    assert explained(router, {"messages": [{"role": "user", "content": "x"}]})["path"] == CHAT
    assert explained(router, {"input": "x"}, path="/v1/embeddings")["path"] == "/v1/embeddings"
    unread = explained(router, b"whatever", path="/some/where?x=1")
    assert unread["path"] == "/some/where?x=1" and not unread["body_read"]
    assert refused(router, 400, {"prompt": "x"}, path="v1")["param"] == "path"
    assert refused(router, 400, {"prompt": "x"}, path="/v1/models")["param"] == "path"
    # What could not stand in a request line becomes none.
    assert refused(router, 400, {"prompt": "x"}, path="/ping HTTP/1.1\r\na:b")["param"] == "path"
    assert refused(router, 400, {"prompt": "x"}, path="/ping")["param"] == "path"
    assert "exposed" in refused(router, 403, {"prompt": "x"}, path="/sleep")["message"]
    assert worker.requests == []


def test_bad_requests_to_explain(pair):
    _, router = pair(config={"limits.body": "64KiB"})
    for body in (b"", b"[", b'{"messages": 1}', b"\x00\xff", b'{"prompt": "x"} x'):
        refused(router, 400, body)
    big = refused(router, 413, {"prompt": "x" * 70_000})
    assert "limits.body" in big["message"]
    assert ask(router.admin_port, "POST", "/explain?path=%zz", body=b"{}").status == 400
    for method in ("GET", "HEAD", "PUT"):
        got = ask(router.admin_port, method, "/explain")
        assert got.status == 405 and got.headers.get("allow") == "POST"
    assert ask(router.admin_port, "POST", "/explain/x", body=b"{}").status == 405
    # The clients' address does not explain: the path goes to a worker like any other.
    assert b"strategy" not in router.ask("POST", "/explain", body={"prompt": "x"}).body


def test_bodies_above_the_scan_limit_go_by_load_unread(workers, kvway):
    fleet = workers(3)
    router = kvway(fleet, {**MODES, "routing.scan_limit": "64KiB"})
    body = chat_body("y" * 100_000)
    said = explained(router, body)
    assert not said["body_read"] and not said["content_known"]
    did = told(router.ask("POST", CHAT, WISH, body=body))
    assert (did["x-kvway-worker"], did["x-kvway-reason"]) == (said["worker"], said["reason"])


def test_explaining_while_requests_and_models_change(workers, kvway):
    """Views are replaced and bodies scanned while it runs."""
    fleet = workers(3)
    router = kvway(fleet, {"health.models_interval": "1s"})
    stop = threading.Event()
    errors = []

    def user(seed):
        with Client(router.port) as client:
            while not stop.is_set():
                if client.ask("POST", CHAT, body=chat_body(words(seed, 500))).status != 200:
                    errors.append(seed)

    threads = [threading.Thread(target=user, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for n in range(150):
        fleet[n % 3].models = ["tiny", f"lora-{n}"]
        explained(router, chat_body(words(n % 5, 500)))
        explain(router, chat_body(model=f"lora-{n - 40}"))
        if n % 30 == 0:
            settle(0.5)
    stop.set()
    for thread in threads:
        thread.join(20)
    assert not errors
    router.wait_idle()


# --- kvway explain ------------------------------------------------------------------------------


def run(*argv, request=None, env=None):
    """(status, stdout, stderr) of `kvway explain ...`."""
    data = request if isinstance(request, (bytes, type(None))) else json.dumps(request).encode()
    done = subprocess.run(
        [str(PROGRAM), "explain", *map(str, argv)], input=data or b"", capture_output=True, timeout=60,
        env={**os.environ, **(env or {})},
    )  # fmt: skip
    assert b"Sanitizer" not in done.stderr, done.stderr
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def table_of(text):
    """{worker: {column: text}} of the printed table, and the line below it."""
    rows = [line for line in text.splitlines() if line]
    head = next(n for n, row in enumerate(rows) if row.startswith("worker "))
    columns = re.split(r" {2,}", rows[head].strip())
    table = [re.split(r" {2,}", row.strip()) for row in rows[head + 1 : -1]]
    assert all(len(row) == len(columns) for row in table), text
    return {row[0]: dict(zip(columns, row)) for row in table}, rows[-1]


def test_command_prints_what_the_router_would_do(workers, kvway):
    fleet = workers(3)
    router = kvway(fleet, MODES)
    body = chat_body(words(8, 2000))
    router.ask("POST", CHAT, body=body)
    router.wait_idle()
    status, text, error = run("--admin", f"127.0.0.1:{router.admin_port}", request=body)
    assert (status, error) == (0, "")
    assert "model tiny" in text and "prefixaware" in text and CHAT in text
    table, last = table_of(text)
    did = told(router.ask("POST", CHAT, WISH, body=body))
    assert set(table) == {w.url for w in fleet}
    assert table[did["x-kvway-worker"]]["verdict"] == "chosen"
    assert table[did["x-kvway-worker"]]["hit"] == did["x-kvway-predicted-cached-tokens"]
    assert [row["verdict"] for row in table.values()].count("costs_more") == 2
    assert last.startswith(did["x-kvway-worker"] + " would serve it (prefix): ")
    assert did["x-kvway-predicted-cached-tokens"] in last


def test_command_finds_the_admin_address_in_the_file(pair):
    worker, router = pair()
    body = {"prompt": "hello", "model": "tiny"}
    status, text, error = run("-c", router.config_path, "--json", request=body)
    assert (status, error) == (0, "")
    got = json.loads(text)
    assert got["worker"] == worker.url and got["path"] == COMPLETIONS and not got["cold"]
    status, text, _ = run("-c", router.config_path, "--path", "/v1/embeddings?a=b&c", request={"input": "x"})
    assert status == 0 and "/v1/embeddings?a=b&c" in text


def test_command_passes_headers(workers, kvway):
    router = kvway(workers(4), {"routing.strategy": "session"})
    here = ("--admin", f"127.0.0.1:{router.admin_port}", "--json", "--header", "X-Session-Id: dora")
    got = json.loads(run(*here, request=chat_body())[1])
    router.ask("POST", CHAT, [("X-Session-Id", "dora")], body=chat_body())
    then = json.loads(run(*here, request=chat_body())[1])
    assert (got["reason"], then["reason"]) == ("session_new", "session")
    assert got["worker"] == then["worker"]


def test_command_without_a_router(tmp_path):
    port = unused_port()
    status, text, error = run("--admin", f"127.0.0.1:{port}", request=chat_body())
    assert (status, text) == (3, "")
    assert f"no kvway answers on 127.0.0.1:{port}" in error and "--cold" in error
    # A proxy in the environment is for other addresses.
    env = {"http_proxy": "http://127.0.0.1:9", "all_proxy": "http://127.0.0.1:9"}
    assert run("--admin", f"127.0.0.1:{port}", request=chat_body(), env=env)[0] == 3


def test_command_reports_errors_of_the_router(pair):
    _, router = pair()
    here = ("--admin", f"127.0.0.1:{router.admin_port}")
    status, text, error = run(*here, request=chat_body(model="no-such-model"))
    assert (status, text) == (1, "") and "no-such-model" in error
    status, text, error = run(*here, "--json", request=b"[")
    assert status == 1 and json.loads(text)["error"]["code"] == 400 and error


def test_command_at_a_server_that_is_no_kvway(workers):
    (worker,) = workers(1)
    worker.script = lambda ex: ex.respond(200, body=b"<html>\x1b[2J")
    status, text, error = run("--admin", f"127.0.0.1:{worker.port}", request=chat_body())
    assert (status, text) == (1, "")
    assert "no kvway" in error and "\x1b" not in error


@pytest.mark.parametrize(
    "argv",
    [
        ["--cold"],
        ["--cold", "-c", "x", "--admin", "a:1"],
        ["-c", "x", "--admin", "a:1"],
        ["--admin", "nowhere"],
        ["--path", "v1"],
        ["--header", "no colon"],
        ["--clod"],
        ["request.json"],
        ["--json=yes"],
        ["-c"],
        [],  # no request on standard input
    ],
    ids=" ".join,
)
def test_command_used_wrongly(argv):
    status, text, error = run(*argv)
    assert (status, text) == (2, "")
    assert error.startswith("kvway explain: ") and "kvway explain --help" in error


def test_command_help():
    status, text, error = run("--help")
    assert (status, error) == (0, "")
    for word in ("--admin", "-c", "--path", "--header", "--json", "--cold", "Exit status", "request.json"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 100
    done = subprocess.run([str(PROGRAM), "--help"], capture_output=True, timeout=60)
    assert b"kvway explain" in done.stdout


def test_cold_asks_no_worker(tmp_path):
    """No worker of the file can be reached, nor its name be looked up."""
    path = tmp_path / "cold.yaml"
    entries = [
        {"url": "http://no-such-host.invalid:8001"},
        {"url": "https://127.0.0.1:1", "models": ["tiny"]},
        {"url": "http://127.0.0.1:2", "models": ["other"]},
    ]
    write_config(path, {"workers": entries, "listen": "127.0.0.1:1", "admin.listen": "127.0.0.1:2"})
    status, text, error = run("--cold", "-c", path, request=chat_body(words(1, 500)))
    assert (status, error) == (0, "")
    assert text.startswith("Cold: ")
    table, last = table_of(text)
    assert [row["hit"] for row in table.values()] == ["0", "0", "-"]
    assert table["http://127.0.0.1:2"]["verdict"] == "other_model"
    assert "would serve it" in last
    again = run("--cold", "-c", path, request=chat_body(words(1, 500)))
    assert again[1] == text
    got = json.loads(run("--cold", "--json", "-c", path, request=chat_body(model="unheard of"))[1])
    assert got["cold"] and got["reason"] == "only" and got["workers"][0]["verdict"] == "chosen"
    assert {w["health"] for w in got["workers"]} == {"presumed"}


def test_cold_agrees_with_a_fresh_router(kvsim, kvway):
    router = kvway(kvsim(4), {**MODES, "routing.strategy": "session"})
    for name in "abcdef":
        body = chat_body(user=name)
        cold = json.loads(run("--cold", "--json", "-c", router.config_path, request=body)[1])
        assert told(router.ask("POST", CHAT, WISH, body=body))["x-kvway-worker"] == cold["worker"]


def test_cold_with_mistakes_in_the_file(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("workers: [{url: 'http://a:1', models: [tiny]}]\nlops: 1\n")
    status, text, error = run("--cold", "-c", path, request=chat_body())
    assert (status, text) == (1, "") and "lops" in error
    path.write_text("workers: [{url: 'http://a:1', models: [tiny]}]\n")
    status, _, error = run("--cold", "-c", path, request=chat_body(model="large"))
    assert status == 1 and "large" in error
    assert run("--cold", "-c", tmp_path / "none.yaml", request=chat_body())[0] == 1
