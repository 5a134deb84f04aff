"""Pages of other origins: a browser's preflight needs no key, and kvway's own answers are for the pages that a worker's are
for, or that http.allowed_origins names."""

import json

import pytest

from rig.client import CHAT, chat_body
from rig.wait import until
from rig.worker import answer as plain

PAGE = "https://chat.example"
ORIGIN = [("Origin", PAGE)]
ASKS = [*ORIGIN, ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,content-type")]  # fmt: skip
ALLOW = "access-control-allow-origin"
UNKNOWN_MODEL = {"model": "nosuch", "messages": []}


def any_page(ex):
    """vllm --allowed-origins '["*"]'"""
    if ex.method == "OPTIONS":
        ex.respond(headers=[(ALLOW, "*"), ("access-control-allow-headers", "authorization,content-type")], body=b"OK")
    elif "origin" in ex.headers:
        ex.respond(headers=[(ALLOW, "*")], body={"choices": []})
    else:
        plain(ex)


def no_page(ex):
    """vllm as it is started by default"""
    if ex.method == "OPTIONS":
        ex.respond(400, body=b"Disallowed CORS origin", reason="Bad Request")
    else:
        plain(ex)


@pytest.fixture(params=["no keys", "keys"])
def stage(request, pair, tmp_path):
    def make(script, config=None):
        keys = tmp_path / "keys.yaml"
        keys.write_text("keys: []\n")
        more = {"health.models_interval": "1h"}  # which says by itself that no page may read
        if request.param == "keys":
            more["auth.keys_file"] = str(keys)
        worker, router = pair(script, {**more, **(config or {})})
        return worker, router, request.param == "keys"

    return make


def test_a_preflight_reaches_a_worker_without_a_key(stage):
    worker, router, _ = stage(any_page)
    answer = router.ask("OPTIONS", CHAT, ASKS)
    assert (answer.status, answer.headers.get(ALLOW), answer.body) == (200, "*", b"OK")
    assert worker.requests[-1].method == "OPTIONS" and not worker.requests[-1].headers.get("authorization")
    router.wait_idle()


def test_own_answers_are_for_the_pages_that_those_of_workers_are_for(stage):
    worker, router, keys = stage(any_page)
    assert router.ask("OPTIONS", CHAT, ASKS).headers.get(ALLOW) == "*"
    answer = router.ask("OPTIONS", "/v1/models", ASKS)
    assert (answer.status, answer.headers.get(ALLOW)) == (200, "*")
    assert answer.headers.get("access-control-allow-headers") == "authorization,content-type"
    assert "POST" in answer.headers.get("access-control-allow-methods")
    for method, path, body in (("GET", "/v1/models", None), ("GET", "/health", None), ("POST", CHAT, UNKNOWN_MODEL)):
        answer = router.ask(method, path, ORIGIN, body=body)
        assert answer.headers.get(ALLOW) == "*", answer
        assert (answer.status == 401) == (keys and path != "/health")
        assert ALLOW not in router.ask(method, path, body=body).headers  # no page sends it
    assert len(worker.requests) == 1


def test_own_answers_are_for_them_before_a_page_has_asked_a_worker(pair):
    """A page's first request is GET /v1/models, which needs no preflight."""
    worker, router = pair(config={"health.models_interval": "1s"})
    assert ALLOW not in router.ask("GET", "/v1/models", ORIGIN).headers
    worker.any_origin = True
    until(lambda: router.ask("GET", "/v1/models", ORIGIN).headers.get(ALLOW) == "*", 10, "heard from its list")
    worker.any_origin = False
    until(lambda: ALLOW not in router.ask("GET", "/v1/models", ORIGIN).headers, 10, "heard from its list")


def test_workers_that_allow_none_close_own_answers_too(stage):
    worker, router, _ = stage(any_page)
    router.ask("OPTIONS", CHAT, ASKS)
    worker.script = no_page
    assert router.ask("OPTIONS", CHAT, ASKS).status == 400
    assert ALLOW not in router.ask("GET", "/v1/models", ORIGIN).headers
    answer = router.ask("OPTIONS", "/v1/models", ASKS)
    assert answer.status == 400 and ALLOW not in answer.headers


def test_a_stranger_asks_workers_by_nothing_but_a_preflight(stage):
    worker, router, keys = stage(any_page)
    if not keys:
        return
    for headers in (ORIGIN, ASKS[1:], [*ASKS, ("Authorization", "Bearer wrong")]):
        assert router.ask("OPTIONS", CHAT, headers).status == 401
    assert router.ask("OPTIONS", CHAT, ASKS, body=b"x").status == 401
    for path in ("/sleep", "/v1/load_lora_adapter", "/nowhere", "/v1/../sleep"):
        assert router.ask("OPTIONS", path, ASKS).status in (401, 404)
    assert not worker.requests


def test_a_preflight_shows_no_stranger_which_worker_answered(stage):
    _, router, _ = stage(any_page, {"http.decision_headers": "always"})
    answer = router.ask("OPTIONS", CHAT, ASKS)
    assert answer.status == 200 and "x-kvway-worker" not in answer.headers


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/sleep", "/nowhere"])
def test_allowed_origins_are_answered_by_kvway_alike_on_every_path(stage, path):
    worker, router, _ = stage(no_page, {"http.allowed_origins": [PAGE]})
    answer = router.ask("OPTIONS", path, ASKS)
    assert (answer.status, answer.headers.get(ALLOW), answer.headers.get("vary")) == (200, PAGE, "Origin")
    refused = router.ask("OPTIONS", path, [("Origin", "https://evil.example"), *ASKS[1:]])
    assert refused.status == 400 and ALLOW not in refused.headers
    assert not worker.requests


@pytest.mark.parametrize("origins,expected", [([PAGE], PAGE), (["https://a.example", "*"], "*")])
def test_allowed_origins_count_for_answers_of_workers_that_say_nothing(pair, origins, expected):
    worker, router = pair(no_page, {"http.allowed_origins": origins})
    answer = router.ask("POST", CHAT, ORIGIN, body=chat_body())
    assert answer.status == 200 and answer.headers.get(ALLOW) == expected
    assert ALLOW not in router.ask("POST", CHAT, body=chat_body()).headers
    worker.script = any_page
    answer = router.ask("POST", CHAT, ORIGIN, body=chat_body())
    assert answer.headers.all(ALLOW) == ["*"]


def test_long_fields_of_a_page_are_not_mirrored(pair):
    _, router = pair(no_page, {"http.allowed_origins": ["*"]})
    long = [*ASKS[:2], ("Access-Control-Request-Headers", "x" * 4000)]
    assert router.ask("OPTIONS", CHAT, long).status == 400
    answer = router.ask("GET", "/v1/models", [("Origin", "https://" + "x" * 4000)])
    assert answer.status == 200 and ALLOW not in answer.headers and json.loads(answer.body)
