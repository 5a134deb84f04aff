"""Keys of clients: which get in, to which paths and models, and that nothing of a key is left anywhere."""

import contextlib
import hashlib
import json
import os
import subprocess
import threading

import pytest
from rig import tls
from rig.client import CHAT, Client, ask, chat_body
from rig.router import PROGRAM, SANITIZED
from rig.wait import until, unused_port

MESSAGES = "/v1/messages"
CANARY = "sk-canary-"
KEY = CANARY + "alice-0123456789"
OTHER = CANARY + "bob-0123456789"
OLD = CANARY + "old-0123456789"
OPERATOR = CANARY + "operator-0123456789"


def entry(name, key, **more):
    return {"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest(), **more}


ENTRIES = [
    entry("alice", KEY, tenant="lab"),
    entry("bob", OTHER, models=["tiny", "llama-*"], paths=["/v1/models", CHAT, "/v1/responses/*", MESSAGES]),
    entry("old", OLD, expires="2020-01-01"),
    entry("operator", OPERATOR, trusted=True, paths=["/sleep", "/v1/*"]),
]


class Keys:
    """A router that asks for keys."""

    def __init__(self, directory, kvway, fleet, config=None, entries=None, **options):
        self.path = directory / "keys.yaml"
        self.access = directory / "access.log"
        self.write(ENTRIES if entries is None else entries)
        config = {"auth.keys_file": str(self.path), "log.access": str(self.access), **(config or {})}
        self.router = kvway(fleet, config, **options)
        if options:
            until(lambda: ask(self.router.admin_port, "GET", "/ready").status == 200)

    def write(self, entries):
        """As Kubernetes and editors do."""
        new = self.path.with_suffix(".new")
        new.write_text(entries if isinstance(entries, str) else json.dumps({"keys": entries}))
        new.rename(self.path)

    def ask(self, key=KEY, target=CHAT, body=None, headers=(), method="POST"):
        headers = [*headers, *([("Authorization", f"Bearer {key}")] if key else [])]
        return self.router.ask(method, target, headers, chat_body() if body is None and method == "POST" else body)

    def refused(self, reason):
        return self.router.metric("kvway_auth_refused_total", reason=reason)


@pytest.fixture
def keys(tmp_path, workers, kvway):
    """keys({key: value}, fleet): by default in front of one worker, which is keys.worker."""

    def make(config=None, fleet=None, **options):
        fleet = fleet or workers(1)
        made = Keys(tmp_path, kvway, fleet, config, **options)
        made.worker = fleet[0]
        return made

    return make


def asked(worker):
    return list(worker.requests)


# --- the key ---


def test_a_key_of_the_file_gets_in_and_stays_here(keys):
    stage = keys()
    assert stage.ask().status == 200
    assert stage.ask(None, headers=[("X-Api-Key", KEY)]).status == 200
    assert stage.ask(KEY, headers=[("x-api-key", KEY)]).status == 200
    assert len(asked(stage.worker)) == 3
    for ex in asked(stage.worker):
        assert "authorization" not in ex.headers and "x-api-key" not in ex.headers
        assert CANARY.encode() not in ex.raw_head
    stage.router.stop()
    lines = [json.loads(line) for line in stage.access.read_text().splitlines()]
    lines = [line for line in lines if line["path"] == CHAT]
    assert [(line["key"], line["tenant"]) for line in lines] == [("alice", "lab")] * 3


# --- paths ---


def test_paths_that_are_not_exposed(keys):
    stage = keys({"expose.engine_control": True})
    for target in ("/server_info", "/v1/unknown", "/version", "/v1/responses/../../server_info", "/docs"):
        answer = stage.ask(target=target, method="GET")
        assert answer.status == 404 and answer.json()["error"]["code"] == "path_not_found", target
    for target in (CHAT, "/v1//chat/completions/", "/tokenize"):
        assert stage.ask(target=target).status == 200, target
    # This path there is; no such response, since keys have tenants and it is not known to be one of this key's.
    assert stage.ask(target="/v1/responses/resp_1/cancel").json()["error"]["param"] == "response_id"
    # What controls an engine is for keys that name it.
    assert stage.ask(target="/sleep").status == 403
    assert stage.ask(OPERATOR, target="/sleep").status == 200
    assert stage.ask(OPERATOR, target="/wake_up").status == 403
    assert stage.ask(OPERATOR, target="/tokenize").status == 403
    assert stage.router.metric("kvway_paths_refused_total") == 5


def test_paths_that_can_be_read_in_two_ways(keys, pair):
    """What is forwarded is the path as it came, and vLLM mounts /metrics/... without resolving anything."""
    targets = ["/metrics/../v1/responses/x", "/metrics/%2e%2e/v1/responses/x", "/v1/responses/a%2fb",
               "/metrics/../sleep", "/metrics/.%2E/v1/models", "/./v1/load_lora_adapter"]  # fmt: skip
    exposed = {"expose.engine_control": True, "expose.lora": True}
    stage = keys(exposed, entries=[entry("alice", KEY), entry("operator", OPERATOR, paths=["/sleep", "/*"])])
    worker, router = pair(config={"expose.paths": ["/v1/*"], **exposed})
    for target in targets:
        assert stage.ask(target=target).status == 404, target
        assert stage.ask(OPERATOR, target=target).status == 404, target
        assert router.ask("POST", target, body=chat_body()).status == 404, target
    assert not asked(stage.worker) and not asked(worker)
    assert router.ask("POST", "/sleep").status == 200


def test_what_is_guarded_must_be_named_in_full(keys):
    named = OTHER
    stage = keys({"expose.engine_control": True, "expose.lora": True}, entries=[
        entry("operator", OPERATOR, paths=["/v1/*", "/*"]),
        entry("named", named, paths=["/v1/load_lora_adapter", "/v1/*"]),
    ])  # fmt: skip
    for target in ("/v1/load_lora_adapter", "/v1//load_lora_adapter/", "/v1/unload_lora_adapter", "/sleep"):
        assert stage.ask(OPERATOR, target=target).status == 403, target
    assert stage.ask(OPERATOR, target="/tokenize").status == 200
    assert stage.ask(named, target="/v1/load_lora_adapter").status == 200
    assert stage.ask(named, target="/v1/unload_lora_adapter").status == 403


# --- models ---


def body_of(text):
    return text.encode() if isinstance(text, str) else text


HELLO = '"messages": [{"role": "user", "content": "hello"}]'
MODEL_TRICKS = [
    f'{{"model": "secret", {HELLO}}}',
    f'{{"model": "tiny", {HELLO}, "model": "secret"}}',
    f'{{"model": "tiny", {HELLO}, "mod\\u0065l": "secret"}}',
    f'{{"model": "\\u0073ecret", {HELLO}}}',
    f'{{{HELLO}}}',
    f'{{"model": null, {HELLO}}}',
    f'{{"model": ["tiny"], {HELLO}, "model": "secret"}}',
    f'{{"model": "tiny", "messages": 1, "model": "secret"}}',
    f'{{"model": "secret", {HELLO}}}'.encode("utf-16"),
    f'{{"model": "tiny", {HELLO}, "x": NaN, "model": "secret"}}',
    '{"model": "tiny", ' + HELLO + ', "pad": "' + "x" * 70000 + '", "model": "secret"}',
]


def test_only_the_models_that_a_key_may_use(keys, workers):
    one, two = workers(1, models=["tiny", "llama-70b"])[0], workers(1, models=["secret"])[0]
    stage = keys({"routing.scan_limit": "64KiB"}, [one, two])
    json_type = [("content-type", "application/json")]
    listed = stage.ask(OTHER, "/v1/models", method="GET").json()["data"]
    assert [m["id"] for m in listed] == ["llama-70b", "tiny"]
    assert "secret" in [m["id"] for m in stage.ask(KEY, "/v1/models", method="GET").json()["data"]]
    for model in ("tiny", "llama-70b"):
        assert stage.ask(OTHER, body=chat_body(model=model)).status == 200
    assert stage.ask(KEY, body=chat_body(model="secret")).status == 200
    before = len(asked(one)) + len(asked(two))
    for text in MODEL_TRICKS:
        answer = stage.ask(OTHER, body=body_of(text), headers=json_type)
        assert answer.status == 403, text[:100]
        assert answer.json()["error"]["code"] == "model_not_allowed"
    for headers in ([("content-type", "text/plain")], [("content-type", "application/octet-stream")]):
        assert stage.ask(OTHER, body=body_of(MODEL_TRICKS[0]), headers=headers).status == 403
    assert stage.ask(OTHER, target=f"{CHAT}?model=tiny", body=body_of(MODEL_TRICKS[0]), headers=json_type).status == 403
    assert stage.ask(OTHER, target=f"{CHAT}?model=tiny", body=body_of(MODEL_TRICKS[4]), headers=json_type).status == 403
    answer = stage.ask(OTHER, target=MESSAGES, body=chat_body(model="secret"))
    assert answer.status == 403 and answer.json()["error"]["type"] == "permission_error"
    assert len(asked(one)) + len(asked(two)) == before
    answer = stage.ask(OTHER, target="/v1/responses/resp_1", method="GET")
    assert answer.json()["error"]["param"] == "response_id"  # not refused for its model


def test_who_names_no_model_may_use_the_one_there_is(keys, workers):
    """A worker takes such a body for its own model."""
    entries = [entry("bob", OTHER, models=["tiny", "llama-*"]), entry("carol", KEY, models=["secret"])]
    stage = keys({}, workers(1), entries=entries, worker_keys={"models": ["tiny"]})
    body, kind = f"{{{HELLO}}}".encode(), [("content-type", "application/json")]
    assert stage.ask(OTHER, body=body, headers=kind).status == 200
    answer = stage.ask(KEY, body=body, headers=kind)
    assert (answer.status, answer.json()["error"]["code"]) == (403, "model_not_allowed")
    assert "`tiny`" in answer.json()["error"]["message"]
    assert stage.ask(OTHER, body=b"{", headers=kind).status == 403


# --- what bodies may say to the engine ---

ENGINE = {"priority": -9, "kv_transfer_params": {"remote_host": "h"}, "vllm_xargs": {"kv_transfer_params": 1}}


def test_a_key_directs_no_engine_unless_it_may(keys, workers):
    """Whose turn is next, and whose KV is fetched from where, is not every client's to say."""
    entries = [entry("alice", KEY), entry("bob", OTHER, engine_fields=["priority"]), entry("op", OPERATOR, trusted=True)]
    (worker,) = fleet = workers(1)
    stage = keys({}, fleet, entries=entries)
    nothing = {"priority": 0, "kv_transfer_params": None, "vllm_xargs": None}
    for key, seen in ((KEY, nothing), (OTHER, {**nothing, "priority": -9}), (OPERATOR, ENGINE)):
        for target in (CHAT, MESSAGES):
            assert stage.ask(key, target, chat_body(**ENGINE)).status == 200
            assert worker.requests[-1].json() == chat_body(**seen)
    assert stage.router.metric("kvway_bodies_changed_total", reason="engine_fields") == 4
    count, kind = len(worker.requests), [("content-type", "application/json")]
    for body in (b'{"priority": -9, "stream": "yes"}', b'{"priority": -9'):  # what was not read goes nowhere
        answer = stage.ask(KEY, body=body, headers=kind)
        assert (answer.status, answer.json()["error"]["code"]) == (400, "body_not_read")
    assert len(worker.requests) == count
    assert stage.ask(OPERATOR, body=b'{"priority": -9, "stream": "yes"}', headers=kind).status == 200


def test_a_body_too_large_to_be_read_is_none_of_a_keys(keys, workers):
    (worker,) = fleet = workers(1)
    entries = [entry("alice", KEY), entry("op", OPERATOR, trusted=True)]
    stage = keys({"routing.scan_limit": "64KiB"}, fleet, entries=entries)
    body = chat_body("x" * 100_000)
    answer = stage.ask(KEY, body=body)
    assert (answer.status, answer.json()["error"]["code"]) == (413, "body_not_read")
    assert stage.ask(OPERATOR, body=body).status == 200
    assert len(worker.requests) == 1


# --- what headers may say ---


def test_the_field_of_the_key_is_a_session_by_the_keys_name(keys, workers):
    """Its bytes are overwritten: keys of one length must not be one session."""
    names = [f"client{i:02}" for i in range(24)]
    config = {"routing.strategy": "session", "routing.session.headers": ["authorization", "x-api-key"]}
    stage = keys(config, workers(3), entries=[entry(name, CANARY + name) for name in names])
    homes = set()
    for name in names:
        seen = set()
        for turn in range(3):
            answer = stage.ask(CANARY + name) if turn < 2 else stage.ask(None, headers=[("x-api-key", CANARY + name)])
            seen.add(answer.json()["choices"][0]["message"]["content"])
        assert len(seen) == 1
        homes |= seen
    assert len(homes) > 1


def test_headers_choose_for_trusted_keys_only(keys, workers):
    fleet = workers(2)
    config = {
        "http.pin": True,
        "http.decision_headers": "on_request",
        "routing.strategy": "roundrobin",
        "admission.classes": ["high", "mid", "low"],
        "admission.class_header": "x-class",
        "service_level.ttft": "60s",
    }
    entries = [entry("alice", KEY, **{"class": "mid"}), entry("operator", OPERATOR, trusted=True, **{"class": "mid"})]
    stage = keys(config, fleet, entries=entries)
    name = fleet[0].url.removeprefix("http://")
    wishes = [("x-kvway-pin", name), ("x-kvway-explain", "1"), ("x-class", "high")]
    body = chat_body(stream=True)

    def counted(which):
        return stage.router.metric("kvway_service_level_total", **{"class": which})

    for _ in range(4):
        answer = stage.ask(body=body, headers=wishes)
        assert answer.status == 200
        assert "x-kvway-worker" not in answer.headers
    assert len(asked(fleet[0])) == len(asked(fleet[1])) == 2
    until(lambda: counted("mid") == 4)  # a stream counts when it has ended, here and a moment later at kvway
    assert (counted("high"), counted("mid"), counted("low")) == (0, 4, 0)
    for _ in range(2):
        answer = stage.ask(OPERATOR, body=body, headers=wishes)
        assert answer.headers.get("x-kvway-worker") == fleet[0].url
    assert stage.ask(OPERATOR, body=body).status == 200
    until(lambda: (counted("high"), counted("mid")) == (2, 5))


def test_an_explanation_as_of_a_client(keys, workers):
    fleet = workers(2)
    config = {"http.pin": True, "admission.classes": ["high", "mid", "low"], "admission.class_header": "x-class"}
    entries = [entry("alice", KEY, paths=[CHAT], **{"class": "mid"}), entry("operator", OPERATOR, trusted=True),
               entry("old", OLD, expires="2020-01-01")]  # fmt: skip
    stage = keys(config, fleet, entries=entries)
    name = fleet[0].url.removeprefix("http://")

    def explained(query, headers=()):
        return ask(stage.router.admin_port, "POST", f"/explain{query}", headers, chat_body())

    wishes = [("x-kvway-pin", name), ("x-class", "high")]
    for query, headers, wanted, pinned in (("", [], "low", False), ("", wishes, "high", True), ("?key=alice", [], "mid", False),
                                           ("?key=alice", wishes, "mid", False), ("?key=operator", wishes, "high", True),
                                           ("?key=operator", [], "low", False)):  # fmt: skip
        answer = explained(query, headers)
        assert answer.status == 200, answer
        assert answer.json()["admission"]["class"] == wanted, (query, headers)
        assert (answer.json()["reason"] == "pinned") == pinned, (query, headers)
    assert explained(f"?key=alice&path={CHAT}").status == 200
    assert explained("?key=alice&path=/v1/completions").status == 403
    assert explained("?key=old").status == 403 and explained("?key=unknown").status == 400


# --- the file changes ---


def test_new_keys_come_into_force_and_running_requests_keep_theirs(keys):
    stage = keys()
    go = threading.Event()

    def slow(ex):
        ex.start_stream()
        ex.event({"choices": [{"delta": {"content": "a"}}]})
        go.wait(30)
        ex.event({"choices": [{"delta": {"content": "b"}}]})
        ex.event("[DONE]")
        ex.end_stream()

    stage.worker.script = slow
    with Client(stage.router.port, timeout=40) as client:
        client.send_request("POST", CHAT, [("x-api-key", KEY)], chat_body(stream=True))
        head = client.read_head()
        assert head.status == 200
        stage.write([entry("carol", OTHER)])
        until(lambda: stage.router.metric("kvway_auth_reloads_total", result="ok") == 1)
        assert stage.router.metric("kvway_auth_keys") == 1
        assert stage.ask(KEY, "/v1/models", method="GET").status == 401
        assert stage.ask(OTHER, "/v1/models", method="GET").status == 200
        go.set()
        client.read_body(head, "POST")
        assert b"[DONE]" in head.body
    stage.router.stop()
    names = {json.loads(line).get("key") for line in stage.access.read_text().splitlines()}
    assert {"alice", "carol"} <= names


def test_a_bad_file_changes_nothing(keys):
    stage = keys()
    stage.write('keys:\n  - name: carol\n    sha256: sk-canary-carol\n')
    until(lambda: stage.router.metric("kvway_auth_reloads_total", result="refused") == 1)
    assert stage.router.metric("kvway_auth_last_reload_successful") == 0
    assert stage.ask().status == 200
    log = stage.router.log()
    assert f"{stage.path}:3:13: keys[0].sha256: found a value that is not printed here" in log
    assert CANARY not in log
    # A reload reads it again, too.
    assert ask(stage.router.admin_port, "POST", "/reload").status == 200
    until(lambda: stage.router.metric("kvway_auth_reloads_total", result="refused") == 2)
    stage.write(ENTRIES)
    until(lambda: stage.router.metric("kvway_auth_last_reload_successful") == 1)


@contextlib.contextmanager
def load_of(stage):
    """Four clients that ask without a pause; what was not answered with 200 fails the test at the end."""
    failures, served, stop = [], [0] * 4, threading.Event()

    def client(number):
        with Client(stage.router.port, timeout=20) as connection:
            while not stop.is_set():
                answer = connection.ask("POST", CHAT, [("x-api-key", KEY)], chat_body(f"hello {number}"))
                served[number] += 1
                if answer.status != 200:
                    failures.append(answer)

    threads = [tls.in_background(client, i) for i in range(len(served))]
    try:
        yield served
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures and min(served) > 0
    assert stage.router.metric("kvway_auth_reloads_total", result="refused") == 0


def test_reloads_under_load_lose_nothing(keys):
    stage = keys()
    with load_of(stage):
        for step in range(12):
            stage.write(ENTRIES + [entry(f"more{i}", f"more-{step}-{i}") for i in range(step * 30)])
            until(lambda: stage.router.metric("kvway_auth_keys") == len(ENTRIES) + step * 30)


def test_many_keys_are_replaced_under_load(keys):
    """100,000 of them, three times; the last of the file gets in, and one that was replaced does not."""
    count = 5_000 if SANITIZED else 100_000
    stage = keys()
    with load_of(stage) as served:
        for turn in range(3):
            before = list(served)
            stage.write(ENTRIES + [entry(f"many{i}", f"many-{turn}-{i}") for i in range(count + turn)])
            until(lambda: stage.router.metric("kvway_auth_keys") == len(ENTRIES) + count + turn, 30, "they are in force")
            assert all(now > then for now, then in zip(served, before)), "requests waited for the file"
    assert stage.ask(f"many-2-{count + 1}").status == 200
    assert stage.ask(f"many-1-{count}").status == 401


def test_check_and_start_name_the_mistake(tmp_path, workers):
    keys = tmp_path / "keys.yaml"
    keys.write_text("keys:\n  - nane: x\n")
    config = tmp_path / "kvway.yaml"
    flat = {"listen": "127.0.0.1:0", "admin": {"listen": "127.0.0.1:0"}, "auth": {"keys_file": str(keys)},
            "workers": [{"url": "http://127.0.0.1:1"}]}  # fmt: skip
    config.write_text(json.dumps(flat))
    for words in (["check", "-c", config], ["-c", config]):
        got = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=30)
        assert got.returncode == 1
        assert f"{keys}:2:5: keys[0].nane: found an unknown key" in got.stderr
    keys.write_text("keys: []\n")
    got = subprocess.run([PROGRAM, "check", "-c", config], capture_output=True, text=True, timeout=30)
    assert got.returncode == 0 and "keys.yaml: ok, 0 keys" in got.stdout


# --- nothing leaks ---


def test_nothing_that_a_run_writes_contains_a_key(keys, tmp_path):
    """Keys in every place where a client may put one, right ones and wrong ones, refused and not."""
    stage = keys({"log.level": "debug", "expose.engine_control": True, "expose.lora": True})
    answers = []
    heads = [("Authorization", "Bearer {}"), ("x-api-key", "{}"), ("Authorization", "Basic {}"), ("Authorization", "{}")]
    targets = [CHAT, MESSAGES, "/v1/models", "/sleep", "/server_info", "/metrics", CHAT + "?key={}", "/v1/x?a=1&api_key={}"]
    for key in (KEY, OTHER, OLD, OPERATOR, CANARY + "stranger"):
        for target in targets:
            for name, value in heads:
                for method in ("POST", "GET"):
                    headers = [(name, value.format(key)), ("content-type", "application/json")]
                    body = json.dumps(chat_body()) if method == "POST" else None
                    answers.append(stage.router.ask(method, target.format(key), headers, body and body.encode()))
        answers.append(stage.router.ask("POST", CHAT, [("x-api-key", key), ("x-api-key", key)], chat_body()))
        answers.append(stage.router.ask("POST", CHAT, [("x-api-key", key)], b'{"model": '))
        with Client(stage.router.port) as client:  # a head that cannot be read
            client.send(f"POST {CHAT} HTTP/1.1\r\nx-api-key: {key}\r\nbad field\r\n\r\n".encode())
            answers.append(client.read("POST"))
        question = json.dumps({"model": "tiny", "messages": []}).encode()
        answers.append(ask(stage.router.admin_port, "POST", f"/explain?path={CHAT}", [("x-api-key", key)], question))
    for target in ("/metrics", "/workers", "/health", "/v1/models"):
        answers.append(ask(stage.router.admin_port, "GET", target))
    seen = {answer.status for answer in answers}
    assert {200, 400, 401, 403, 404} <= seen, seen
    for answer in answers:
        assert CANARY.encode() not in answer.body, answer
        assert not any(CANARY in value for _, value in answer.headers)
    for ex in asked(stage.worker):
        assert CANARY.encode() not in ex.raw_head and CANARY.encode() not in ex.body
    stage.router.stop()
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert stage.access in written and stage.access.stat().st_size > 0
    for path in written:
        assert CANARY.encode() not in path.read_bytes(), path


def writable_memory(pid):
    """(address, bytes) of what the process can write to."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            span, mode = line.split()[:2]
            begin, end = (int(part, 16) for part in span.split("-"))
            if mode.startswith("rw") and "[v" not in line:
                try:
                    memory.seek(begin)
                    yield begin, memory.read(end - begin)
                except OSError:
                    pass


def is_sanitized(pid):
    """A sanitizer keeps what was freed, and has terabytes to look through."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmSize:")) > 1 << 30


def test_no_key_stays_in_memory(keys):
    """Not of requests that were answered or refused, nor of heads that cannot be read or did not come whole."""
    stage = keys()
    if is_sanitized(stage.router.pid):
        pytest.skip("a sanitizer's memory")
    marks = [f"sk-mark-{i}-0123456789" for i in range(5)]
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nAuthorization: Bearer "
    assert stage.ask(marks[0]).status == 401
    assert stage.ask(KEY).status == 200 and stage.ask(KEY).status == 200
    assert stage.ask(target=f"{CHAT}?key={marks[1]}").status == 400
    with Client(stage.router.port) as client:  # it cannot be read
        client.send(f"{head}{marks[2]}\r\nbad field\r\n\r\n".encode())
        assert client.read("POST").status == 400
    with Client(stage.router.port) as client:  # it comes in pieces, which are joined
        client.send(f"{head}{marks[3]}\r\nX-Long: {'x' * 9000}".encode())
        until(lambda: stage.router.metric("kvway_client_connections") > 0, 10, "it has come")
        client.send(b"\r\n\r\n{}")
        assert client.read("POST").status == 401
    with Client(stage.router.port) as client:  # it never comes whole
        client.send(f"{head}{marks[4]}\r\n".encode())
        until(lambda: stage.router.metric("kvway_client_connections") > 0, 10, "it has come")
    until(lambda: stage.router.metric("kvway_client_connections") == 0, 10, "they have gone")
    found = [(mark, hex(begin)) for begin, memory in writable_memory(stage.router.pid) for mark in [*marks, KEY]
             if mark.encode() in memory]  # fmt: skip
    assert not found


def test_an_explanation_shows_no_worker_a_key(kvsim, workers, keys):
    """It asks a worker for the prompt's tokens, here through workers that write down what they are asked."""
    fleet, rows = workers(2), []
    for worker in fleet:
        port = unused_port()
        events = {"enable_kv_cache_events": True, "endpoint": f"tcp://*:{port}"}
        (sim,) = kvsim(1, "--kv-events-config", json.dumps(events))

        def relay(ex, sim=sim):
            answer = sim.ask(ex.method, ex.path, [("content-type", "application/json")], ex.body or None)
            ex.respond(answer.status, [("content-type", "application/json")], answer.body)

        worker.script = relay
        rows.append({"url": worker.url, "events_endpoint": f"tcp://127.0.0.1:{port}"})
    config = {"routing.strategy": "kvaware", "kvaware.events.discover": False, "kvaware.tokens.timeout": "20s"}
    stage = keys({**config, "workers": rows}, fleet)
    wish = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "sea king ship " * 40}]}).encode()
    turns = iter(range(1000))

    def explained():
        assert stage.ask(body=chat_body(f"hello {next(turns)} " * 20)).status == 200
        answer = ask(stage.router.admin_port, "POST", f"/explain?path={CHAT}", [("Authorization", f"Bearer {KEY}")], wish)
        return answer.json().get("tokens_from") == "a worker's /tokenize"

    until(explained, 20, "a worker is asked for tokens")
    heads = [ex.raw_head for worker in fleet for ex in asked(worker) if ex.path == "/tokenize"]
    assert heads and not any(CANARY.encode() in head for head in heads)


def test_the_command_line_and_environment_hold_no_key(keys):
    stage = keys()
    assert stage.ask().status == 200
    for name in ("cmdline", "environ"):
        with open(f"/proc/{stage.router.pid}/{name}", "rb") as file:
            assert CANARY.encode() not in file.read()
    assert os.path.getsize(stage.path) > 0
