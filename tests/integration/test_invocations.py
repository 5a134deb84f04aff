"""SageMaker's paths: a body on /invocations is what it would be on the path that it stands for, and /ping."""

import hashlib
import json

import pytest

from rig.client import CHAT, COMPLETIONS, chat_body
from rig.wait import until
from rig.worker import answer

INVOCATIONS = "/invocations"
ADAPTER = "X-Amzn-SageMaker-Adapter-Identifier"
SESSION = "X-Amzn-SageMaker-Session-Id"
LONG = "All that was said before, in many words. " * 100
SHOWN = {"http.decision_headers": "always"}


def said(router, path, body, headers=()):
    got = router.ask("POST", path, headers, body)
    assert got.status == 200, got
    return got.headers.get("x-kvway-worker"), int(got.headers.get("x-kvway-predicted-cached-tokens"))


# --- what its body is ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "there, body",
    [
        (CHAT, {"model": "tiny", "messages": [{"role": "user", "content": LONG}]}),
        (COMPLETIONS, {"max_tokens": 3, "prompt": LONG, "model": "tiny"}),
    ],
)
def test_a_prompt_goes_where_the_path_it_stands_for_sends_it(workers, kvway, there, body):
    fleet = workers(3)
    router = kvway(fleet, {**SHOWN, "loops": 1})
    home, nothing = said(router, there, body)
    assert nothing == 0
    for _ in range(3):
        worker, predicted = said(router, INVOCATIONS, body)
        assert worker == home and predicted > 500
    route = "chat" if there == CHAT else "completions"
    until(lambda: router.metric("kvway_requests_total", route=route, status="200") == 4, 5, "all are counted")
    assert router.metric("kvway_completion_tokens_total") == 4 * 3  # as the answers say


def test_lmi_s_own_form_is_a_prompt(workers, kvway):
    router = kvway(workers(3), {**SHOWN, "loops": 1})
    body = {"inputs": LONG, "parameters": {"max_new_tokens": 3}}
    home, _ = said(router, INVOCATIONS, body)
    again, predicted = said(router, INVOCATIONS, body)
    assert again == home and predicted > 500


def test_bodies_without_a_prompt_are_sent_by_their_model(workers, kvway):
    one, two = workers(1) + workers(1, models=["other"])
    router = kvway([one, two])
    assert router.ask("POST", INVOCATIONS, body={"query": "q", "documents": ["a"], "model": "other"}).status == 200
    assert len(two.requests) == 1
    unknown = router.ask("POST", INVOCATIONS, body=chat_body(model="no-such"))
    assert unknown.status == 404 and unknown.json()["error"]["param"] == "model"
    assert router.ask("GET", INVOCATIONS).status == 200  # a worker's answer, not one of ours
    assert router.ask("POST", INVOCATIONS, body={"input": ["a"], "model": "tiny"}).status == 200
    until(lambda: router.metric("kvway_requests_total", route="embeddings") == 1, 5, "it is counted")
    assert router.metric("kvway_requests_total", route="rerank") == 1


def test_it_is_tried_elsewhere_before_its_first_token(workers, kvway):
    fleet = workers(2)
    router = kvway(fleet, {"routing.strategy": "roundrobin"})
    fleet[0].script = fleet[1].script = lambda ex: ex.close() if sum(len(w.requests) for w in fleet) == 1 else answer(ex)
    assert router.ask("POST", INVOCATIONS, body=chat_body()).status == 200
    assert [len(w.requests) for w in fleet] == [1, 1]


# --- keys ---------------------------------------------------------------------------------------


@pytest.fixture
def keyed(tmp_path, workers, kvway):
    def make(entries, config=None, fleet=None):
        path = tmp_path / "keys.yaml"
        keys = [{"sha256": hashlib.sha256(e["name"].encode()).hexdigest(), **e} for e in entries]
        path.write_text(json.dumps({"keys": keys}))
        fleet = fleet or workers(1, models=["a", "b"])
        return fleet, kvway(fleet, {"auth.keys_file": str(path), **(config or {})})

    return make


def test_keys_limits_and_tenants_hold_there(keyed):
    (worker,), router = keyed(
        [{"name": "all"}, {"name": "some", "models": ["a"]}, {"name": "slow", "requests_per_minute": 1},
         {"name": "red", "tenant": "red"}]
    )  # fmt: skip

    def ask(key, body, headers=()):
        return router.ask("POST", INVOCATIONS, [("x-api-key", key), *headers], body)

    assert ask("none", chat_body(model="a")).status == 401
    assert ask("all", chat_body(model="b")).status == 200
    assert ask("some", chat_body(model="a")).status == 200
    assert ask("some", chat_body(model="b")).status == 403
    assert ask("some", chat_body(model="a"), [(ADAPTER, "b")]).status == 403  # a worker would read `b`
    assert ask("slow", chat_body(model="a")).status == 200
    assert ask("slow", chat_body(model="a")).status == 429
    assert ask("red", chat_body(model="a")).status == 200
    assert len(worker.requests[-1].json()["cache_salt"]) == 43


def test_ping_needs_no_key_and_says_whether_requests_can_be_served(keyed, workers):
    fleet, router = keyed([{"name": "all"}], fleet=workers(1))
    for method in ("GET", "HEAD", "POST"):
        assert router.ask(method, "/ping").status == 200
    assert router.ask("POST", "/ping", body={}).status == 200
    assert router.ask("PUT", "/ping").status == 405
    assert not fleet[0].requests
    fleet[0].healthy = False
    until(lambda: router.ask("GET", "/ping").status == 503, 10, "no worker is up")
    assert router.ask("GET", "/health").status == 200


# --- what SageMaker says in the head ------------------------------------------------------------


def test_the_head_names_the_model(workers, kvway):
    one, two = workers(1, models=["base", "lora"]) + workers(1, models=["other"])
    one.base = "base"
    router = kvway([one, two], {"models": {"short": {"to": "lora"}}})
    until(lambda: "lora" in router.models(), 5, "adapters are known")

    def asked(worker, body, headers=()):
        before = len(worker.requests)
        assert router.ask("POST", INVOCATIONS, headers, body).status == 200
        (ex,) = worker.requests[before:]
        return ex.headers.all(ADAPTER.lower()), ex.json().get("model")

    assert asked(two, {"prompt": "x"}, [(ADAPTER, "other")]) == (["other"], None)
    assert asked(two, {"prompt": "x", "model": "base"}, [(ADAPTER, "other")]) == (["other"], "base")
    assert asked(one, {"prompt": "x"}, [(ADAPTER, "short")]) == (["lora"], None)
    # vLLM reads no `model` here: without the field an adapter's clients would get its base.
    assert asked(one, {"prompt": "x", "model": "lora"}) == (["lora"], "lora")
    assert asked(one, {"prompt": "x", "model": "short"}) == (["lora"], "lora")
    assert asked(one, {"prompt": "x", "model": "base"}) == ([], "base")
    assert router.ask("POST", INVOCATIONS, [(ADAPTER, "none")], {"prompt": "x", "model": "base"}).status == 404
    assert router.ask("POST", CHAT, [(ADAPTER, "none")], chat_body(model="base")).status == 200


def stateful(ex):
    """As model-hosting-container-standards, with which vLLM serves this path: sessions live on one worker."""
    asked, session = ex.json(), ex.headers.get(SESSION.lower())
    if asked.get("requestType") == "NEW_SESSION":
        made = f"{ex.worker.name}-{len(ex.worker.requests)}"
        ex.worker.sessions.append(made)
        ex.respond(headers=[("X-Amzn-SageMaker-New-Session-Id", f"{made}; Expires=2030-01-01T00:00:00Z")], body=b"ok")
    elif session is not None and session not in ex.worker.sessions:
        ex.respond(400, body={"detail": f"Bad request: session not found: {session}"})
    else:
        answer(ex)


@pytest.mark.parametrize("strategy", ["session", "prefixaware", "roundrobin"])
def test_a_session_stays_with_the_worker_that_made_it(workers, kvway, strategy):
    fleet = workers(3, script=stateful)
    for worker in fleet:
        worker.sessions = []
    router = kvway(fleet, {"routing.strategy": strategy})
    made = []
    for _ in range(6):
        got = router.ask("POST", INVOCATIONS, [(SESSION, "NEW_SESSION")], {"requestType": "NEW_SESSION"})
        made.append(got.headers.get("x-amzn-sagemaker-new-session-id").split(";")[0])
    if strategy == "session":
        assert sum(bool(worker.sessions) for worker in fleet) > 1  # NEW_SESSION is no session that all share
    for turn in range(3):
        for session in made:
            body = chat_body(f"{turn} {session}")
            assert router.ask("POST", INVOCATIONS, [(SESSION, session)], body).status == 200, (turn, session)
    strange = router.ask("POST", INVOCATIONS, [(SESSION, "strange")], chat_body())
    assert strange.status == 400 and "strange" in strange.json()["detail"]  # its worker's word


def test_users_of_hyperpod_have_their_sessions_by_default(workers, kvway):
    fleet = workers(4)
    router = kvway(fleet, {"routing.strategy": "session"})
    homes = set()
    for user in range(12):
        before = [len(w.requests) for w in fleet]
        for turn in range(3):
            body = {**chat_body(f"{turn}"), "user_id": f"user-{user}"}
            assert router.ask("POST", (CHAT, INVOCATIONS)[turn % 2], body=body).status == 200
        grown = [i for i, w in enumerate(fleet) if len(w.requests) > before[i]]
        assert len(grown) == 1
        homes.update(grown)
    assert len(homes) > 1
    before = [len(w.requests) for w in fleet]
    for turn in range(3):
        assert router.ask("POST", CHAT, [(SESSION, "s")], chat_body(f"{turn}")).status == 200
    assert sorted(len(w.requests) - n for w, n in zip(fleet, before)) == [0, 0, 0, 3]
