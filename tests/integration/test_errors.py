"""Errors that the router itself answers, in the words and shapes that clients understand."""

import pytest

from rig.client import CHAT, COMPLETIONS, MESSAGES, Client, chat_body
from rig.wait import until

OPENAI_PATHS = [CHAT, COMPLETIONS, "/v1/responses", "/v1/embeddings", "/tokenize"]
GUARDED = [
    "/sleep",
    "/wake_up",
    "/pause",
    "/resume",
    "/reset_prefix_cache",
    "/collective_rpc",
    "/scale_elastic_ep",
    "/update_weights",
]
LORA = ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"]
DISGUISES = [
    "/sleep?level=2",
    "/sleep/",
    "//sleep",
    "/./sleep",
    "/x/../sleep",
    "/%73leep",
    "/%2Fsleep",
    "/sleep%2F",
    "/v1/%6Coad_lora_adapter",
    "http://test/sleep",
]


def request_of(path):
    return {**chat_body(), "prompt": "x", "input": "x", "max_tokens": 1}


@pytest.mark.parametrize("path", OPENAI_PATHS)
def test_unknown_model_is_404_in_vllm_shape(pair, path):
    worker, router = pair()
    got = router.ask("POST", path, body={**request_of(path), "model": "no-such"})
    assert got.status == 404
    assert got.headers.get("content-type") == "application/json"
    error = got.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["message"].startswith("The model `no-such` does not exist.")
    assert (error["type"], error["param"], error["code"]) == ("NotFoundError", "model", 404)
    assert worker.requests == []


def test_unknown_model_is_404_in_anthropic_shape(pair):
    worker, router = pair()
    got = router.ask("POST", MESSAGES, body={**request_of(MESSAGES), "model": "no-such"})
    assert got.status == 404
    assert got.json()["type"] == "error"
    assert got.json()["error"]["type"] == "not_found_error"
    assert "no-such" in got.json()["error"]["message"]
    assert worker.requests == []


def test_model_that_appears_later_is_found(pair):
    """An unknown model makes the router ask again: LoRA adapters are loaded at run time."""
    worker, router = pair(config={"health.models_interval": "24h"})
    assert router.ask("POST", CHAT, body=chat_body(model="late")).status == 404
    worker.models.append("late")

    def found():
        return router.ask("POST", CHAT, body=chat_body(model="late")).status == 200

    until(found, 5, "the new model is known")


def test_request_without_a_model_goes_to_any_worker(pair):
    worker, router = pair()
    assert router.ask("POST", CHAT, body={"messages": []}).status == 200
    assert len(worker.requests) == 1


def test_model_reaches_only_workers_that_serve_it(workers, kvway):
    one, two = workers(1, models=["alpha"])[0], workers(1, models=["beta", "shared"])[0]
    router = kvway([one, two])
    for i in range(6):
        assert router.ask("POST", CHAT, body=chat_body(str(i), model="alpha")).status == 200
        assert router.ask("POST", CHAT, body=chat_body(str(i), model="beta")).status == 200
    assert {ex.json()["model"] for ex in one.requests} == {"alpha"}
    assert {ex.json()["model"] for ex in two.requests} == {"beta"}


def test_no_usable_worker_is_503_and_says_what_was_tried(workers, kvway):
    fleet = workers(2)
    config = {"health.fall": 1, "health.interval": "200ms", "http.decision_headers": "on_request"}
    router = kvway(fleet, config)
    for worker in fleet:
        worker.stop()
    until(lambda: router.ask("GET", "/ready").status == 503, 8, "not ready")
    got = router.ask("POST", CHAT, body=chat_body())
    assert got.status == 503
    assert int(got.headers.get("retry-after", "1")) >= 1
    message = got.json()["error"]["message"]
    for worker in fleet:
        assert str(worker.port) in message, "the message must name each worker"
    got = router.ask("POST", MESSAGES, body=chat_body(max_tokens=1))
    assert got.status == 503 and got.json()["type"] == "error"


@pytest.mark.parametrize("path", [CHAT, "/opaque"])
def test_502_is_openai_json(pair, path):
    def script(ex):
        ex.reset()

    _, router = pair(script, {"health.passive_failures": 1000})
    got = router.ask("POST", path, body=chat_body())
    assert got.status == 502
    assert got.headers.get("content-type") == "application/json"
    error = got.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["code"] == 502 and error["message"]


def test_client_connection_survives_a_502(pair):
    calls = []

    def script(ex):
        calls.append(1)
        if len(calls) <= 3:
            ex.reset()
        else:
            ex.respond(body=b"good")

    _, router = pair(script, {"health.passive_failures": 1000, "retry.attempts": 0})
    with Client(router.port) as client:
        statuses = [client.ask("POST", "/opaque", body=b"x").status for _ in range(4)]
    assert statuses[-1] == 200 and set(statuses[:-1]) <= {502, 200}


@pytest.mark.parametrize("path", GUARDED + LORA)
def test_guarded_paths_are_403(pair, path):
    worker, router = pair()
    got = router.ask("POST", path, body={})
    assert got.status == 403
    assert "expose." in got.json()["error"]["message"], "it must say which key allows it"
    assert worker.requests == []


@pytest.mark.parametrize("path", DISGUISES)
def test_guards_cannot_be_slipped_past(pair, path):
    worker, router = pair()
    got = router.ask("POST", path, body={})
    assert got.status in (400, 403), got
    assert worker.requests == []


def test_guarded_paths_pass_when_allowed(workers, kvway):
    (worker,) = workers(1)
    control = kvway([worker], {"expose.engine_control": True})
    assert control.ask("POST", "/sleep?level=1", body={}).status == 200
    assert control.ask("POST", LORA[0], body={}).status == 403
    lora = kvway([worker], {"expose.lora": True})
    assert lora.ask("POST", LORA[0], body={}).status == 200
    assert lora.ask("POST", "/sleep", body={}).status == 403


def test_similar_paths_are_not_guarded(pair):
    worker, router = pair()
    for path in ("/is_sleeping", "/sleeping", "/v1/sleep_data", "/is_paused"):
        assert router.ask("GET", path).status == 200
    assert len(worker.requests) == 4


def test_websocket_upgrade_is_501(pair):
    worker, router = pair()
    headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ]
    got = router.ask("GET", "/v1/realtime", headers)
    assert got.status == 501
    assert "websocket" in got.json()["error"]["message"].lower()
    assert worker.requests == []


def test_other_upgrades_are_ignored(pair):
    """A server may ignore Upgrade (RFC 9110 7.8): h2c of curl and Java clients."""
    worker, router = pair()
    headers = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AA")]
    got = router.ask("GET", "/x", headers)
    assert got.status == 200
    seen = worker.requests[-1].headers
    assert "upgrade" not in seen and "http2-settings" not in seen


def test_errors_carry_the_request_id(pair):
    _, router = pair()
    got = router.ask("POST", CHAT, [("X-Request-Id", "find-me")], chat_body(model="no-such"))
    assert got.headers.get("x-request-id") == "find-me"


@pytest.mark.parametrize("shown", ["off", "on_request"])
def test_errors_name_workers_only_where_clients_may_know_them(workers, kvway, shown):
    """Addresses of workers stay inside unless the configuration says otherwise."""
    fleet = workers(2, script=lambda ex: ex.reset())
    router = kvway(fleet, {"http.decision_headers": shown})
    message = router.ask("POST", CHAT, body=chat_body()).json()["error"]["message"]
    assert "tried" in message
    assert [w.url in message for w in fleet] == [shown != "off"] * 2, message
    if shown == "off":
        assert "127.0.0.1" not in message and "one: " in message and "; another: " in message


@pytest.mark.parametrize("shown", ["off", "on_request"])
def test_errors_without_a_usable_worker_count_them(workers, kvway, shown):
    fleet = workers(3)
    config = {"http.decision_headers": shown, "health.fall": 1, "health.interval": "100ms"}
    router = kvway(fleet, config)
    for worker in fleet:
        worker.stop()
    until(lambda: router.ask("GET", "/ready").status == 503, 5, "not ready")

    def message():
        return router.ask("POST", CHAT, body=chat_body()).json()["error"]["message"]

    if shown == "off":
        until(lambda: message() == "no usable worker: 3 down", 5, "all are found down")
    else:
        until(lambda: message() == "no usable worker: " + ", ".join(f"{w.url} is down" for w in fleet), 5, "all")
