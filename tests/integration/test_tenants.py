"""Tenants and aliases: what kvway changes in a body, what it leaves, and that no tenant finds what another has asked."""

import base64
import hashlib
import hmac
import json
import threading

import pytest
from rig.client import CHAT, COMPLETIONS, Client, ask, chat_body
from rig.kvaware import SHOWN, ids, wait_coverage, wait_heard
from rig.wait import until
from rig.wire import encode_chunks, encode_head
from rig.worker import MARK

SECRET = b"0123456789abcdef0123456789abcdef"
JSON = ("content-type", "application/json")
SALTED = [CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/rerank", "/score", "/pooling",
          "/invocations"]  # fmt: skip
HELLO = '"messages": [{"role": "user", "content": "hello"}]'
LONG = "All that was said before, in many words. " * 100


def entry(name, **more):
    return {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), **more}


ENTRIES = [
    entry("alice", tenant="red", trusted=True),
    entry("anna", tenant="red"),
    entry("bob", tenant="blue", trusted=True),
    entry("carol", trusted=True),
    entry("dave", models=["gpt-4o", "b"]),
]
NOTES = "x" * 70_000


def salt_of(tenant, own=None):
    """As src/router/auth/tenants.h says it."""
    key = hashlib.sha256(SECRET).digest()
    name = tenant.encode()
    text = bytes([1, own is not None]) + len(name).to_bytes(2, "big") + name + (own or "").encode()
    digest = hmac.new(key, text, "sha256").digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


class Stage:
    def __init__(self, directory, kvway, fleet, config, entries=None):
        (directory / "keys.yaml").write_text(json.dumps({"keys": ENTRIES if entries is None else entries}))
        (directory / "secret").write_bytes(SECRET + b"\n")
        self.fleet = fleet
        self.router = kvway(fleet, {
            "auth.keys_file": str(directory / "keys.yaml"),
            "auth.tenant_secret_file": str(directory / "secret"),
            "http.decision_headers": "on_request",
            **config,
        })  # fmt: skip

    def ask(self, key, body, target=CHAT, headers=(), method="POST"):
        body = body.encode() if isinstance(body, str) else body
        return self.router.ask(method, target, [("x-api-key", key), JSON, *headers], body)

    def received(self):
        """The last body that the worker has got."""
        ex = self.fleet[0].requests[-1]
        assert ex.headers.get("transfer-encoding") is None and int(ex.headers.get("content-length")) == len(ex.body)
        return ex.body.decode()


@pytest.fixture
def stage(tmp_path, workers, kvway):
    def make(config=None, fleet=None, **options):
        return Stage(tmp_path, kvway, fleet or workers(1, models=["a", "b"]), config or {}, **options)

    return make


# --- the salt ---


def test_a_tenants_bodies_get_its_salt_and_change_in_nothing_else(stage):
    s = stage()
    red, blue = salt_of("red"), salt_of("blue")
    own = salt_of("red", "mine")
    cases = [
        ("alice", f'{{ "model": "a",\n {HELLO}}}', f'{{"cache_salt":"{red}", "model": "a",\n {HELLO}}}'),
        ("anna", f"{{{HELLO}}}", f'{{"cache_salt":"{red}",{HELLO}}}'),
        ("bob", f"{{{HELLO}}}", f'{{"cache_salt":"{blue}",{HELLO}}}'),
        ("alice", f'{{{HELLO}, "cache_salt": "mine"}}', f'{{{HELLO}, "cache_salt": "{own}"}}'),
        ("alice", f'{{"cache_salt":null,{HELLO}}}', f'{{"cache_salt":"{red}",{HELLO}}}'),
        ("alice", f'{{"cache_salt": "mine", {HELLO}, "cache\\u005fsalt": "mine"}}',
         f'{{"cache_salt": "{own}", {HELLO}, "cache\\u005fsalt": "{own}"}}'),
        ("alice", f'\ufeff{{{HELLO}, "x": NaN}}', f'\ufeff{{"cache_salt":"{red}",{HELLO}, "x": NaN}}'),
        ("carol", f'{{"cache_salt": "{red}", {HELLO}}}', f'{{"cache_salt": "{red}", {HELLO}}}'),
    ]  # fmt: skip
    for key, body, expected in cases:
        assert s.ask(key, body).status == 200, body
        assert s.received() == expected
    assert len({red, blue, own, salt_of("blue", "mine"), salt_of("red", "")}) == 5
    for salt in (red, own):  # what vLLM takes
        assert len(salt) <= 128 and not set(salt) & set("@/\\")
    assert s.router.metric("kvway_bodies_changed_total", reason="cache_salt") == len(cases) - 1
    for target in SALTED:
        assert s.ask("bob", '{"model": "a"}', target=target).status == 200
        assert s.received() == f'{{"cache_salt":"{blue}","model": "a"}}', target
    for target in ("/tokenize", "/v1/messages/count_tokens", "/v1/chat/completions/render"):
        assert s.ask("bob", f'{{"model": "a", {HELLO}}}', target=target).status == 200
        assert s.received() == f'{{"model": "a", {HELLO}}}', target


def test_bodies_in_pieces_and_chunks(stage):
    s = stage({"routing.scan_limit": "1MiB"})
    red = salt_of("red")
    texts = [f'{{"model": "a", {HELLO}, "user": "{"é" * n}"}}' for n in (0, 1500, 4000, 40_000, 200_000)]
    for number, text in enumerate(texts):
        body, expected = text.encode(), f'{{"cache_salt":"{red}",' + text[1:]
        for size in (7, 1000, 65536):
            pieces = [body[i : i + size] for i in range(0, len(body), size)]
            if size == 7 and len(pieces) > 3000:
                continue
            with Client(s.router.port, timeout=20) as client:
                head = [("Host", "x"), ("x-api-key", "alice"), JSON]
                if number % 2 == 0 or size == 7:  # chunked, with trailers, and the next request behind it
                    client.send(encode_head(f"POST {CHAT} HTTP/1.1", [*head, ("transfer-encoding", "chunked")])
                                + encode_chunks(pieces, [("x-t", "1")])
                                + encode_head("GET /v1/models HTTP/1.1", head))  # fmt: skip
                else:
                    client.send(encode_head(f"POST {CHAT} HTTP/1.1", [*head, ("content-length", str(len(body)))]))
                    for piece in pieces:
                        client.send(piece)
                assert client.read("POST").status == 200
                assert s.received() == expected, (number, size)
                if number % 2 == 0 or size == 7:
                    assert client.read("GET").status == 200


def test_a_repeat_has_the_same_body(stage, workers):
    fleet = workers(2)
    broken = threading.Event()

    def once(ex):
        ex.read_body()
        if not broken.is_set():
            broken.set()
            ex.respond(500, body={"error": "x"})
        else:
            ex.respond(200, body={"choices": [], "usage": {"prompt_tokens": 1}})

    for worker in fleet:
        worker.script = once
    s = stage({"rate_limits": [{"tenant": "red", "requests_per_minute": 60, "burst": "1m"}]}, fleet=fleet)
    pieces = [f'{{"model": "tiny", {HELLO}, "x": "'.encode(), NOTES.encode(), b'"}']
    with Client(s.router.port, timeout=20) as client:
        head = [("Host", "x"), ("x-api-key", "anna"), JSON, ("transfer-encoding", "chunked")]
        client.send(encode_head(f"POST {CHAT} HTTP/1.1", head) + encode_chunks(pieces))
        answer = client.read("POST")
    assert answer.status == 200 and answer.headers.get("x-ratelimit-remaining-requests") == "59"
    assert s.router.metric("kvway_bodies_changed_total", reason="cache_salt") == 1
    bodies = [ex.body for worker in fleet for ex in worker.requests]
    assert len(bodies) == 2 and bodies[0] == bodies[1]
    assert bodies[0] == f'{{"cache_salt":"{salt_of("red")}",'.encode() + b"".join(pieces)[1:]


REFUSED = [
    (400, CHAT, "[]", []),
    (400, CHAT, f'{{{HELLO}, "cache_salt": 7}}', []),
    (400, CHAT, f'{{{HELLO}, "cache_salt": {{}}}}', []),
    (400, CHAT, f'{{{HELLO}, "x": nan}}', []),
    (400, CHAT, f"{{{HELLO}}} ", [("content-type", "text/plain")]),
    (400, CHAT, f"{{{HELLO}}}".encode("utf-16"), []),
    (400, CHAT, "{" + ", ".join(['"cache_salt": "x"'] * 17) + "}", []),
    (400, "/v1/messages", '{"messages": 1}', []),
    (413, CHAT, f'{{{HELLO}, "x": "{NOTES}"}}', []),
    (403, "/v2/embed", '{"model": "a"}', []),
    (403, "/v1/audio/transcriptions", "--b\r\n", [("content-type", "multipart/form-data; boundary=b")]),
    (403, "/v1/unknown", '{"model": "a"}', []),
]


def test_what_cannot_be_kept_apart_is_refused(stage):
    s = stage({"routing.scan_limit": "64KiB", "expose.paths": ["/v1/*", "/v2/*"]})
    for number, (status, target, body, headers) in enumerate(REFUSED):
        body = body.encode() if isinstance(body, str) else body
        headers = [("x-api-key", "bob"), *(headers or [JSON])]
        answer = s.router.ask("POST", target, headers, body)
        assert answer.status == status, (number, answer.body)
        error = answer.json()["error"]
        if target == "/v1/messages":
            assert error["type"] == "invalid_request_error"
        else:
            assert error["code"] == "tenant_not_isolated"
    assert not list(s.fleet[0].requests)
    assert s.router.metric("kvway_auth_refused_total", reason="tenant") == len(REFUSED)
    for target in ("/v1/completions", "/v1/messages/count_tokens"):  # what a worker makes of a PUT is not known
        answer = s.router.ask("PUT", target, [("x-api-key", "bob"), JSON], b'{"model": "a", "prompt": "hi"}')
        assert answer.status == 403 and "by this method" in answer.body.decode()
    s.fleet[0].script = lambda ex: ex.respond(200, body={"id": "resp_1"})
    assert s.router.ask("POST", "/v1/responses", [("x-api-key", "bob"), JSON], b'{"input": "hi"}').status == 200
    assert s.router.ask("POST", "/v1/responses/resp_1/cancel", [("x-api-key", "bob"), JSON], b"{}").status == 200
    assert s.router.ask("GET", "/v1/responses/resp_1", [("x-api-key", "bob")]).status == 200


def test_without_isolation_bodies_pass_as_they_are(stage):
    s = stage({"auth.isolate_tenants": False})
    assert s.ask("alice", f"{{{HELLO}}}").status == 200
    assert s.received() == f"{{{HELLO}}}"


# --- predictions, sessions, explanations ---


def predicted(answer):
    """Tokens that kvway expects to be cached."""
    assert answer.status == 200, answer.body
    return int(answer.headers.get("x-kvway-predicted-cached-tokens"))


def test_no_tenant_finds_anothers_prefix_by_predictions(stage, kvsim):
    s = stage(fleet=kvsim(2))
    explain = [("x-kvway-explain", "1")]
    body = chat_body(LONG, max_tokens=1)

    def hit(key, **more):
        return predicted(s.ask(key, json.dumps({**body, **more}), headers=explain))

    assert hit("alice") == 0
    assert hit("alice") > 100
    assert hit("bob") == 0
    assert hit("carol") == 0
    assert hit("carol", cache_salt="x") == 0
    assert hit("bob", cache_salt=salt_of("red")) == 0
    assert hit("bob") > 100

    def explained(tenant=None):
        headers = [("x-kvway-tenant", tenant)] if tenant else []
        answer = ask(s.router.admin_port, "POST", "/explain?path=" + CHAT, headers, body)
        assert answer.status == 200
        return max(w["hit_tokens"] for w in answer.json()["workers"])

    assert explained("red") > 100 and explained("blue") > 100 and explained() > 100
    assert explained("green") == 0


def test_the_engine_finds_a_prefix_for_its_tenant_only(stage, kvsim):
    s = stage(fleet=kvsim(1))
    body = json.dumps(chat_body(LONG, max_tokens=1))

    def cached(key):
        answer = s.ask(key, body)
        assert answer.status == 200, answer.body
        return (answer.json()["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0), answer.json()["choices"]

    first, text = cached("alice")
    assert first == 0
    assert cached("bob") == (0, text)
    assert cached("carol") == (0, text)
    again, text_again = cached("anna")
    assert again > 100 and text_again == text


def test_blocks_that_workers_report_are_of_one_tenant(stage, kvsim):
    """As another replica of kvway would have them computed: this one knows them by the worker's events alone."""
    events = {"enable_kv_cache_events": True, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"}
    (worker,) = fleet = kvsim(1, "--port", "0", "--kv-events-config", json.dumps(events))
    s = stage(SHOWN, fleet)
    wait_coverage(s.router, fleet, "engine")
    prompt = {"model": "tiny", "prompt": ids(28, 400), "max_tokens": 1}
    elsewhere = worker.ask("POST", COMPLETIONS, body={**prompt, "cache_salt": salt_of("red")})
    assert elsewhere.status == 200
    wait_heard(s.router, fleet)
    for key, expected in (("bob", False), ("carol", False), ("anna", True)):
        answer = s.ask(key, json.dumps(prompt), COMPLETIONS)
        assert (predicted(answer) > 300) == expected, key
        assert (answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 300) == expected
        assert predicted(answer) in (0, answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_sessions_are_apart(stage, workers):
    fleet = workers(8)
    s = stage({"routing.strategy": "session", "routing.session.headers": ["x-session-id"]}, fleet,
              entries=[entry(f"k{i}", tenant=f"t{i}") for i in range(16)])  # fmt: skip
    homes = set()
    for i in range(16):
        for _ in range(2):
            before = [len(w.requests) for w in fleet]
            assert s.ask(f"k{i}", f"{{{HELLO}}}", headers=[("x-session-id", "one")]).status == 200
            home = [len(w.requests) for w in fleet]
            seen = next(j for j in range(8) if home[j] > before[j])
        homes.add(seen)
    assert len(homes) > 2


# --- aliases ---

MODELS = {"gpt-4o": {"to": "a"}, "fast": {"to": "gpt-4o"}, "nowhere": {"to": "gone"}}


def test_an_alias_reaches_the_worker_as_its_model(stage):
    s = stage({"models": MODELS, "routing.scan_limit": "64KiB"})
    for name in ("gpt-4o", "fast"):
        answer = s.ask("carol", f'{{{HELLO}, "model": "{name}"}}')
        assert answer.status == 200
        assert s.received() == f'{{{HELLO}, "model": "a"}}'
    assert s.ask("alice", f'{{"model": "gpt-4o", {HELLO}}}').status == 200
    assert s.received() == f'{{"cache_salt":"{salt_of("red")}","model": "a", {HELLO}}}'
    assert s.ask("carol", f'{{"model": "gpt-4o", {HELLO}}}', target="/tokenize").status == 200
    assert s.received() == f'{{"model": "a", {HELLO}}}'
    assert s.router.metric("kvway_bodies_changed_total", reason="model") == 4
    assert s.router.metric("vllm:num_incoming_requests_total", model="a") >= 3
    form = '--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n%s\r\n--b--\r\n'
    answer = s.router.ask("POST", "/v1/audio/transcriptions",
                          [("x-api-key", "carol"), ("content-type", "multipart/form-data; boundary=b")],
                          (form % "fast").encode())  # fmt: skip
    assert answer.status == 200
    assert s.received() == form % "a"
    assert s.ask("carol", f'{{"model": "nowhere", {HELLO}}}').status == 404
    answer = s.ask("carol", f'{{"model": "gpt-4o", {HELLO}, "x": "{NOTES}"}}')
    assert (answer.status, answer.json()["error"]["code"]) == (413, "model_alias")
    answer = s.ask("carol", f'{{"model": "gpt-4o", {HELLO}, oops')
    assert (answer.status, answer.json()["error"]["code"]) == (400, "model_alias")


def test_an_alias_on_a_path_that_is_not_known_is_told(stage):
    """Where a body is not changed no worker gets a name that it does not know."""
    s = stage({"models": MODELS, "expose.paths": ["/v1/else"]})
    for body in (f'{{"model": "fast", {HELLO}}}', f'{{{HELLO}, "model": "gpt-4o"}}'):
        answer = s.ask("carol", body, "/v1/else")
        assert (answer.status, answer.json()["error"]["code"]) == (400, "model_alias")
    for body in (f'{{"model": "a", {HELLO}}}', f'{{"model": "something-else", {HELLO}}}'):
        assert s.ask("carol", body, "/v1/else").status == 200
        assert s.received() == body


def test_limits_are_of_the_model_that_an_alias_stands_for(stage):
    s = stage({"models": MODELS, "rate_limits": [{"model": "a", "requests_per_minute": 3, "burst": "1m"}]})
    for name in ("gpt-4o", "a", "fast"):
        assert s.ask("carol", f'{{"model": "{name}", {HELLO}}}').status == 200
    for key, name in (("carol", "gpt-4o"), ("dave", "gpt-4o"), ("alice", "fast"), ("carol", "a")):
        answer = s.ask(key, f'{{"model": "{name}", {HELLO}}}')
        assert (answer.status, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded"), (key, name)
    assert s.ask("carol", f'{{"model": "b", {HELLO}}}').status == 200
    # What is refused for its alias is not counted, nor what a key may not ask for.
    assert s.ask("dave", f'{{"model": "fast", {HELLO}}}').status == 403
    assert s.ask("carol", f'{{"model": "gpt-4o", {HELLO}, oops').status == 400
    assert s.router.metric("kvway_rate_limited_total", limit="requests") == 4


def test_what_a_body_gets_is_not_charged(stage):
    limits = {"rate_limits": [{"model": "a", "tokens_per_day": 1000000}]}
    s = stage({**limits, "routing.strategy": "roundrobin", "models": {"a-name-of-some-length" * 8: {"to": "a"}}})
    predicted = []
    for key, name in (("carol", "a"), ("alice", "a"), ("carol", "a-name-of-some-length" * 8)):
        before = s.router.metric("kvway_rate_tokens_predicted_total")
        text = f'{{"model": "{name}", {HELLO}, "max_tokens": 1, "x": "'
        assert s.ask(key, text + "x" * (400 - len(text)) + '"}').status == 200
        predicted.append(s.router.metric("kvway_rate_tokens_predicted_total") - before)
    assert predicted[0] > 50 and predicted == predicted[:1] * 3


def test_lists_of_models_are_of_the_names_that_clients_use(stage):
    s = stage({"models": MODELS})
    assert s.ask("dave", f'{{"model": "gpt-4o", {HELLO}}}').status == 200
    for name in ("a", "fast"):
        assert s.ask("dave", f'{{"model": "{name}", {HELLO}}}').status == 403
    listed = s.ask("dave", None, "/v1/models", method="GET").json()["data"]
    assert {m["id"]: m["root"] for m in listed} == {"gpt-4o": "a", "b": "b"}
    listed = s.ask("carol", None, "/v1/models", method="GET").json()["data"]
    assert [m["id"] for m in listed if not m["id"].startswith(MARK)] == ["a", "b", "gpt-4o", "fast"]


def test_aliases_change_with_a_reload(stage):
    s = stage({"models": {"gpt-4o": {"to": "a"}}})
    assert s.ask("carol", f'{{"model": "gpt-4o", {HELLO}}}').status == 200
    text = s.router.config_path.read_text()
    s.router.config_path.write_text(text.replace('"to": "a"', '"to": "b"'))
    assert ask(s.router.admin_port, "POST", "/reload").status == 200
    until(lambda: s.ask("carol", f'{{"model": "gpt-4o", {HELLO}}}').status == 200 and '"b"' in s.received())
