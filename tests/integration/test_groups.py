"""A model whose requests are divided among groups of workers: shares, sessions, names, testers, missing workers."""

import hashlib
import json
import os
import subprocess
import threading
import time

import pytest
from rig.client import CHAT, COMPLETIONS, Client, ask, chat_body
from rig.router import PROGRAM
from rig.wait import until
from rig.worker import answer
from test_admission import SLOW, Asked, Holding, refused, waiting
from test_reload import File

HEADER = "x-kvway-group"
JSON = ("content-type", "application/json")


def groups(stable=90, canary=10, **more):
    return [
        {"model": "tiny", "group": "stable", "weight": stable, "workers": ["stable"]},
        {"model": "tiny", "group": "canary", "weight": canary, "workers": ["canary"], **more},
    ]


def start(kvway, one, other, config=None, entries=None, **more):
    """A router in front of two lists of workers; more: of groups()."""
    listed = [{"url": w.url, "group": name} for name, ws in (("stable", one), ("canary", other)) for w in ws]
    router = kvway(
        [*one, *other],
        {"workers": listed, "model_groups": groups(**more) if entries is None else entries, **(config or {})},
        up=False,
    )
    router.wait_up()
    until(lambda: ask(router.admin_port, "GET", "/ready").status == 200, 15, "ready")
    until(lambda: all(w["models"] for w in ask(router.admin_port, "GET", "/workers").json()), 15, "models known")
    return router


def served(ws):
    return sum(len(w.requests) for w in ws)


def chosen(router, group, by):
    return router.metric("kvway_group_chosen_total", model="tiny", group=group, by=by)


def test_shares_are_those_of_the_weights(workers, kvway):
    stable, canary = workers(2), workers(1)
    router = start(kvway, stable, canary, {"groups.sticky": "request"})
    with Client(router.port) as client:
        for i in range(1500):
            answer = client.ask("POST", CHAT, [("x-request-id", f"r{i}")], json.dumps(chat_body("hi")).encode())
            assert answer.status == 200
    assert abs(served(canary) / 1500 - 0.10) < 0.02
    assert served(stable) + served(canary) == 1500
    assert chosen(router, "canary", "request") == served(canary)
    router.wait_idle()
    assert router.metric("kvway_group_requests_total", group="canary", result="ok") == served(canary)
    assert router.metric("kvway_group_tokens_total", group="canary", kind="completion") == 3 * served(canary)


def test_a_query_is_not_the_model_of_a_key(tmp_path, workers, kvway):
    """An engine does not read it: a body without a name is for the engine's own model."""
    one, other = workers(1, models=("big", "small")), workers(1, models=("other",))
    one[0].base = "big"
    keys = tmp_path / "keys.yaml"
    key = {"name": "bob", "sha256": hashlib.sha256(b"sk-bob").hexdigest(), "models": ["small"]}
    keys.write_text(json.dumps({"keys": [key]}))
    divided = [{"model": "small", "group": "a", "weight": 1}]
    router = start(kvway, one, other, {"auth.keys_file": str(keys)}, entries=divided)
    bearer = ("Authorization", "Bearer sk-bob")
    for target, body in ((CHAT, {}), (COMPLETIONS, {"prompt": "hi"})):
        body = {"messages": [], **body}
        answer = router.ask("POST", target + "?model=small", [bearer], body)
        assert (answer.status, answer.json()["error"]["code"]) == (403, "model_not_allowed")
        assert router.ask("POST", target, [bearer], {**body, "model": "small"}).status == 200
    assert served(one) == 2


def test_shares_and_sessions_of_many(kvsim, kvway):
    """100,000 requests with KVW_LONG; each session has four, and stays."""
    count, threads = (100_000 if os.environ.get("KVW_LONG") else 1000), 4
    sims = kvsim(3)
    router = start(kvway, sims[:2], sims[2:])
    failed, body = [], json.dumps(chat_body("hi", max_tokens=1)).encode()

    def ask_all(part):
        with Client(router.port) as client:
            for i in range(part, count // 4, threads):
                for _ in range(4):
                    if client.ask("POST", CHAT, [("x-session-id", f"s{i}"), JSON], body).status != 200:
                        failed.append(i)

    running = [threading.Thread(target=ask_all, args=(part,)) for part in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failed
    got = {group: chosen(router, group, "session") for group in ("stable", "canary")}
    assert sum(got.values()) == count
    assert all(n % 4 == 0 for n in got.values()), "a session was divided"
    assert abs(got["canary"] / count - 0.10) < (0.005 if count >= 100_000 else 0.06), got


def chosen_any(router, model, group):
    return router.metric("kvway_group_chosen_total", model=model, group=group)


def side(stable, canary, before):
    """Which group got the one request since then."""
    now = served(stable), served(canary)
    assert sum(now) == sum(before) + 1
    return "stable" if now[0] > before[0] else "canary"


def send(router, stable, canary, body, headers=()):
    before = served(stable), served(canary)
    assert router.ask("POST", CHAT, headers, json.dumps(body).encode()).status == 200
    return side(stable, canary, before)


def test_sessions_stay_in_every_replica_and_loop(workers, kvway):
    stable, canary = workers(1), workers(1)
    replicas = [start(kvway, stable, canary, {"loops": n}, stable=1, canary=1) for n in (1, 3)]
    sides = set()
    for number in range(20):
        session = [("x-session-id", f"s{number}")]
        got = {
            send(router, stable, canary, chat_body(f"turn {turn}"), session)
            for router in replicas
            for turn in range(3)
        }
        assert len(got) == 1
        sides |= got
    assert sides == {"stable", "canary"}
    assert chosen(replicas[0], "stable", "session") + chosen(replicas[0], "canary", "session") == 60


def test_a_chat_without_a_session_stays(workers, kvway):
    stable, canary = workers(1), workers(1)
    router = start(kvway, stable, canary, {"routing.strategy": "roundrobin"}, stable=1, canary=1)
    system, sides = {"role": "system", "content": "You are of help. " * 200}, set()
    for number in range(20):
        turns = [system, {"role": "user", "content": f"question {number}"}]
        got = set()
        for turn in range(3):
            got.add(send(router, stable, canary, {"model": "tiny", "messages": turns}))
            turns = [*turns, {"role": "assistant", "content": "so"}, {"role": "user", "content": f"and {turn}?"}]
        assert len(got) == 1
        sides |= got
    assert sides == {"stable", "canary"}
    assert chosen(router, "stable", "conversation") + chosen(router, "canary", "conversation") == 60


def test_a_group_has_another_name_for_the_model(workers, kvway):
    stable, canary = workers(1), workers(1, models=["tiny-next"])
    router = start(kvway, stable, canary, {"models": {"alias": {"to": "tiny"}}}, stable=0, canary=1, to="tiny-next")
    for name in ("tiny", "alias"):
        body = json.dumps({"stop": ["x"], "model": name, "messages": [{"role": "user", "content": "hi \u00e9"}]})
        assert router.ask("POST", CHAT, body=body.encode()).status == 200
        assert canary[0].requests[-1].body == body.replace(f'"{name}"', '"tiny-next"').encode()
    assert router.metric("kvway_bodies_changed_total", reason="model") == 2
    assert router.models() == ["tiny", "alias"]
    assert router.metric("kvway_group_weight", group="canary") == 1


def test_the_name_that_clients_use_may_be_no_workers_own(workers, kvway):
    stable, canary = workers(1, models=["tiny-old"]), workers(1, models=["tiny-next"])
    entries = [
        {"model": "tiny", "group": "stable", "to": "tiny-old"},
        {"model": "tiny", "group": "canary", "to": "tiny-next"},
    ]
    router = start(kvway, stable, canary, entries=entries)
    assert router.models() == ["tiny"]
    got = {send(router, stable, canary, chat_body(f"hi {i}")) for i in range(20)}
    assert got == {"stable", "canary"}
    assert {r.json()["model"] for r in stable[0].requests} == {"tiny-old"}
    assert {r.json()["model"] for r in canary[0].requests} == {"tiny-next"}
    # A body that is not read goes nowhere: the name cannot be written into it.
    answer = router.ask("POST", COMPLETIONS, body=b'{"model": "tiny", "prompt": oops}')
    assert answer.status == 400 and answer.json()["error"]["code"] == "model_group"


def test_a_body_that_is_not_read_goes_to_a_group_without_another_name(workers, kvway):
    stable, canary = workers(1), workers(1, models=["tiny-next"])
    router = start(kvway, stable, canary, {"routing.scan_limit": "64KiB"}, stable=1, canary=1000, to="tiny-next")
    body = json.dumps({"model": "tiny", "prompt": "a" * 200_000}).encode()
    for _ in range(5):
        assert router.ask("POST", COMPLETIONS, body=body).status == 200
    assert served(stable) == 5 and not canary[0].requests


def test_testers_name_the_group(workers, kvway):
    stable, canary = workers(1), workers(1)
    router = start(kvway, stable, canary, {"groups.header": HEADER}, stable=1, canary=0)
    assert send(router, stable, canary, chat_body("a")) == "stable"
    assert send(router, stable, canary, chat_body("a"), [(HEADER, "canary")]) == "canary"
    assert HEADER not in str(canary[0].requests[-1].headers).lower()
    answer = router.ask("POST", CHAT, [(HEADER, "nosuch")], json.dumps(chat_body("a")).encode())
    assert answer.status == 400 and "has no group `nosuch`" in answer.json()["error"]["message"]
    assert chosen(router, "canary", "header") == 1
    # One that is named and has no worker is not replaced by another.
    canary[0].stop()
    answer = router.ask("POST", CHAT, [(HEADER, "canary")], json.dumps(chat_body("a")).encode())
    assert answer.status in (502, 503) and served(stable) == 1


def test_the_header_counts_where_it_is_configured_and_of_trusted_keys(workers, kvway, tmp_path):
    stable, canary = workers(1), workers(1)
    router = start(kvway, stable, canary, stable=1, canary=0)
    assert send(router, stable, canary, chat_body("a"), [(HEADER, "canary")]) == "stable"
    keys = tmp_path / "keys.yaml"
    names = {"tester": True, "other": False}
    keys.write_text(
        json.dumps(
            {
                "keys": [
                    {"name": n, "sha256": hashlib.sha256(f"sk-{n}-0123456789".encode()).hexdigest(), "trusted": t}
                    for n, t in names.items()
                ]
            }
        )
    )
    router = start(
        kvway, stable, canary, {"groups.header": HEADER, "auth.keys_file": str(keys)}, stable=1, canary=0
    )
    for name, trusted in names.items():
        headers = [(HEADER, "canary"), ("authorization", f"Bearer sk-{name}-0123456789")]
        assert send(router, stable, canary, chat_body("a"), headers) == ("canary" if trusted else "stable")


def test_a_group_without_a_worker(workers, kvway):
    stable, canary = workers(1), workers(1, models=["tiny-next"])
    router = start(kvway, stable, canary, stable=1, canary=1000, to="tiny-next")
    assert send(router, stable, canary, chat_body("a")) == "canary"
    id = canary[0].url.removeprefix("http://")
    assert ask(router.admin_port, "POST", f"/workers/{id}/drain").status == 200
    assert send(router, stable, canary, chat_body("a")) == "stable"
    assert stable[0].requests[-1].json()["model"] == "tiny"
    assert chosen(router, "stable", "fallback") == 1
    assert File(router).take({"groups.no_worker": "refuse"})["result"] == "ok"
    answer = router.ask("POST", CHAT, body=json.dumps(chat_body("a")).encode())
    assert answer.status == 503 and "no usable worker in group canary" in answer.json()["error"]["message"]


def test_a_repeat_stays_in_the_group_while_it_has_another_worker(workers, kvway):
    stable, canary = workers(1), workers(2, models=["tiny-next"])
    router = start(kvway, stable, canary, {"retry.attempts": 3}, stable=1, canary=1000, to="tiny-next")

    def breaks(ex):
        ex.reset()

    canary[0].script = breaks
    for i in range(6):
        assert router.ask("POST", CHAT, body=json.dumps(chat_body(f"a{i}")).encode()).status == 200
    assert served(stable) == 0
    for worker in canary:
        worker.stop()
    body = json.dumps(chat_body("one more")).encode()
    assert router.ask("POST", CHAT, body=body).status == 200
    # Another group has another name for the model: the body is written once more.
    assert stable[0].requests[-1].body == body
    router.wait_idle()


def test_weights_change_by_a_reload(workers, kvway):
    stable, canary = workers(1), workers(1)
    router = start(kvway, stable, canary, stable=1, canary=0)
    sessions = [[("x-session-id", f"s{n}")] for n in range(40)]
    assert {send(router, stable, canary, chat_body("a"), s) for s in sessions} == {"stable"}
    file = File(router)
    assert file.take({"model_groups": groups(1, 1)})["changed"]
    first = [send(router, stable, canary, chat_body("a"), s) for s in sessions]
    assert set(first) == {"stable", "canary"}
    file.take({"model_groups": groups(1, 3)})
    second = [send(router, stable, canary, chat_body("a"), s) for s in sessions]
    assert all(b == "canary" for a, b in zip(first, second) if a == "canary"), "only the difference moves"
    file.refuse({"model_groups": groups(0, 0)})


def test_limits_of_the_model_hold_under_its_groups_own_name(workers, kvway):
    stable, canary = workers(1), workers(1, models=["tiny-next"])
    limits = [{"model": "tiny", "requests_per_minute": 3, "burst": "1m"}]
    router = start(kvway, stable, canary, {"rate_limits": limits}, to="tiny-next")
    names = ["tiny-next", "tiny", "tiny-next", "tiny-next", "tiny"]
    bodies = [json.dumps({**chat_body("hi"), "model": name}).encode() for name in names]
    assert [router.ask("POST", CHAT, body=body).status for body in bodies] == [200, 200, 200, 429, 429]


def test_explain_shows_the_limits_that_hold_under_a_groups_own_name(workers, kvway):
    stable, canary = workers(1), workers(1, models=["tiny-next"])
    limits = [{"model": "tiny", "requests_per_minute": 5, "burst": "1m"}]
    router = start(kvway, stable, canary, {"rate_limits": limits, "groups.header": HEADER}, to="tiny-next")
    file = File(router)

    def left(name, group):
        answer = ask(router.admin_port, "POST", "/explain", [(HEADER, group)], {**chat_body("hi"), "model": name})
        (limit,) = answer.json()["limits"]
        return limit["name"], limit.get("served_as"), limit["requests_per_minute"]["remaining"]

    assert left("tiny", "stable") == ("tiny", None, 5)
    # The worker is sent another name; the limits are those of the one that clients use.
    assert left("tiny", "canary") == ("tiny", "tiny-next", 5)
    assert left("tiny-next", "") == ("tiny", "tiny-next", 5)
    for count, name in enumerate(["tiny", "tiny-next"]):
        assert router.ask("POST", CHAT, [(HEADER, "canary")], {**chat_body("hi"), "model": name}).status == 200
        assert {left("tiny", "stable")[2], left("tiny", "canary")[2], left("tiny-next", "")[2]} == {4 - count}
    text = explained(router, {**chat_body("hi"), "model": "tiny-next"})
    assert "Left of model tiny (served as tiny-next); 3 of 5 requests a minute, all in " in text
    # A name that has limits of its own has no others.
    file.take({"rate_limits": [*limits, {"model": "tiny-next", "requests_per_minute": 7, "burst": "1m"}]})
    assert left("tiny-next", "") == ("tiny-next", None, 7)
    assert left("tiny", "canary") == ("tiny", "tiny-next", 3)
    text = explained(router, {**chat_body("hi"), "model": "tiny-next"})
    assert "Left of model tiny-next; 7 of 7 requests a minute.\n" in text


def test_a_group_whose_workers_are_busy_holds_up_no_other_one(workers, kvway):
    """Requests wait with their group, by its name, whatever a reload does to the list."""
    stable, canary, early = workers(1), workers(1), workers(1)
    hold = Holding()
    canary[0].script = hold
    config = {**SLOW, "admission.max_queue": 1, "groups.header": HEADER}
    router = start(kvway, stable, [*canary, *early], config, stable=1, canary=0)
    file, listed = File(router), [{"url": w.url, "group": name} for w, name in
        ((stable[0], "stable"), (canary[0], "canary"), (early[0], "early"))]
    file.take(workers=listed)
    asked = [Asked(router, "first", [(HEADER, "canary")])]
    canary[0].wait_requests(1)
    asked.append(Asked(router, "second", [(HEADER, "canary")]))
    waiting(router, 1)
    refused(Asked(router, "third", [(HEADER, "canary")]).end(), "queue_full")
    assert Asked(router, "x").end().status == 200
    # The list gets a group in front: canary has another place, and those that wait for it are still its own.
    entry = {"model": "tiny", "group": "a", "weight": 0, "workers": ["early"]}
    file.take({"model_groups": [entry, *groups(1, 0)]})
    assert Asked(router, "y", [(HEADER, "a")]).end().status == 200
    assert Asked(router, "z").end().status == 200
    refused(Asked(router, "fourth", [(HEADER, "canary")]).end(), "queue_full")
    hold.finish()
    assert [thread.end().status for thread in asked] == [200, 200]
    assert (served(stable), served(canary), served(early)) == (2, 2, 1)


def cached_of_talks(router, model):
    """Of three turns of eight talks each: which share of the prompt its worker had."""
    talks = []
    for number in range(8):
        turns = [{"role": "user", "content": f"{number} " + "once upon a time " * 400}]
        cached = []
        for turn in range(3):
            body = json.dumps({"model": model, "messages": turns, "max_tokens": 4}).encode()
            answer = router.ask("POST", CHAT, [("content-type", "application/json")], body, timeout=60.0)
            assert answer.status == 200, answer
            usage = answer.json()["usage"]
            cached.append((usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) / usage["prompt_tokens"])
            turns = [*turns, answer.json()["choices"][0]["message"], {"role": "user", "content": f"go on {turn}"}]
        talks.append(cached)
    return talks


def test_prefixes_are_found_within_a_group_as_in_a_fleet_that_is_not_divided(kvsim, kvway):
    sims, whole = kvsim(4, profile="llama-8b-h100"), kvsim(4, profile="llama-8b-h100")
    model = sims[0].models[0]
    router = start(kvway, sims[:2], sims[2:], entries=[{**g, "model": model} for g in groups(1, 1)])
    divided = cached_of_talks(router, model)
    assert chosen_any(router, model, "stable") and chosen_any(router, model, "canary")
    for cached, other in zip(divided, cached_of_talks(kvway(whole), model)):
        assert cached[0] < 0.1 and min(cached[1:]) > 0.8, cached
        assert all(abs(a - b) < 0.02 for a, b in zip(cached, other)), (cached, other)


@pytest.mark.parametrize("stream", [False, True])
def test_metrics_of_a_group(workers, kvway, stream):
    stable, canary = workers(1), workers(1)
    router = start(kvway, stable, canary, stable=0, canary=1)
    assert send(router, stable, canary, chat_body("a", stream=stream)) == "canary"
    router.wait_idle()
    count = "kvway_group_time_to_first_token_seconds_count"
    assert router.metric(count, model="tiny", group="canary") == stream
    assert router.metric("kvway_group_requests_total", model="tiny", group="canary", result="ok") == 1
    assert router.metric("kvway_group_requests_total", group="stable") == 0


def groups_of(router, method="GET", body=None):
    answer = ask(router.admin_port, method, "/groups", body=None if body is None else json.dumps(body).encode())
    return answer


def test_weights_change_by_the_admin_address(workers, kvway):
    stable, canary = workers(1), workers(1)
    router = start(kvway, stable, canary, stable=1, canary=0)
    file = File(router)
    assert send(router, stable, canary, chat_body("a")) == "stable"
    answer = groups_of(router, "PATCH", {"model": "tiny", "weights": {"stable": 0, "canary": 2.5}})
    assert answer.status == 200
    assert {g["group"]: g["weight"] for g in answer.json()} == {"stable": 0, "canary": 2.5}
    assert send(router, stable, canary, chat_body("a")) == "canary"
    assert router.metric("kvway_group_weight", model="tiny", group="canary") == 2.5
    # It outlives a reload that has nothing to say of it, and no other.
    file.take({"retry.attempts": 1})
    assert send(router, stable, canary, chat_body("a")) == "canary"
    file.take({"model_groups": groups(3, 0)})
    assert send(router, stable, canary, chat_body("a")) == "stable"
    got = {g["group"]: g for g in groups_of(router).json()}
    assert got["stable"]["weight"] == 3 and got["canary"]["weight"] == 0
    assert got["canary"]["usable_workers"] == 1 and got["canary"]["workers"] == ["canary"]


@pytest.mark.parametrize(
    "body, status, said",
    [
        ({"model": "tiny", "weights": {"stable": 0, "canary": 0}}, 400, "0 for every group"),
        ({"model": "tiny", "weights": {"stable": -1}}, 400, "weights.stable: expected a number"),
        ({"model": "tiny", "weights": {"stable": "1"}}, 400, "weights.stable: expected a number"),
        ({"model": "tiny", "weights": {"other": 1}}, 400, "a group that the model does not have"),
        ({"model": "tiny", "weights": {}}, 400, "weights: expected a mapping"),
        ({"model": "large", "weights": {"stable": 1}}, 404, "has no groups"),
        ({"model": "tiny"}, 400, "expected {"),
        ([], 400, "expected {"),
    ],
)
def test_bad_weights_change_nothing(workers, kvway, body, status, said):
    stable, canary = workers(1), workers(1)
    router = start(kvway, stable, canary)
    answer = groups_of(router, "PATCH", body)
    assert answer.status == status and said in answer.json()["error"]["message"]
    assert [g["weight"] for g in groups_of(router).json()] == [10, 90]
    assert groups_of(router, "POST", body).status == 405


def test_explain_says_the_group_and_why(workers, kvway):
    stable, canary = workers(1), workers(1, models=["tiny-next"])
    router = start(kvway, stable, canary, {"groups.header": HEADER}, stable=1, canary=1, to="tiny-next")

    def explain(headers=(), body=None):
        asked = json.dumps(body or chat_body("a")).encode()
        return ask(router.admin_port, "POST", "/explain", headers, asked)

    for number in range(6):
        session = [("x-session-id", f"s{number}")]
        said = explain(session).json()
        assert said["group_by"] == "session"
        assert said["group"] == send(router, stable, canary, chat_body("a"), session)
        verdicts = {w["worker"]: w["verdict"] for w in said["workers"]}
        assert sorted(verdicts.values()) == ["chosen", "other_group"]
        said = explain(body=chat_body(f"chat {number}")).json()
        assert said["group_by"] == "conversation"
        assert said["group"] == send(router, stable, canary, chat_body(f"chat {number}"))
    said = explain([(HEADER, "canary")]).json()
    assert (said["group"], said["group_by"], said["model"]) == ("canary", "header", "tiny-next")
    assert explain([(HEADER, "nosuch")]).status == 400
    assert "group" not in explain(body=chat_body("a", model=stable[0].mark)).json()


def test_what_goes_on_with_a_response_goes_to_the_group_that_keeps_it(workers, kvway):
    """The response is known to the worker that made it alone, whatever the group that the request would draw."""

    def makes(ex):
        body = ex.json()
        ex.respond(200, body={"id": f"resp_{ex.worker.name}_{body['user']}", "model": body["model"]})

    stable, canary = workers(2, script=makes), workers(2, models=["tiny-next"], script=makes)
    router = start(kvway, stable, canary, {"groups.sticky": "request"}, stable=1, canary=1, to="tiny-next")
    made = {}
    for number in range(16):
        body = {"model": "tiny", "input": f"say {number}", "user": str(number)}
        answer = router.ask("POST", "/v1/responses", [("x-request-id", f"r{number}")], body)
        assert answer.status == 200
        made[answer.json()["id"]] = answer.json()["model"]
    assert set(made.values()) == {"tiny", "tiny-next"}
    assert groups_of(router, "PATCH", {"model": "tiny", "weights": {"stable": 1, "canary": 0}}).status == 200
    for number, (name, model) in enumerate(made.items()):
        body = {"model": "tiny", "input": "go on", "user": f"again{number}", "previous_response_id": name}
        answer = router.ask("POST", "/v1/responses", [("x-request-id", f"s{number}")], body)
        assert answer.status == 200 and answer.json()["model"] == model
        assert answer.json()["id"].split("_")[1] == name.split("_")[1]
        said = ask(router.admin_port, "POST", "/explain?path=/v1/responses", body=json.dumps(body).encode()).json()
        assert (said["group"], said["group_by"]) == ({"tiny": "stable"}.get(model, "canary"), "worker")
    assert chosen(router, "stable", "worker") + chosen(router, "canary", "worker") == 16


def test_the_only_worker_of_a_group_rests_and_goes_on_with_its_responses(workers, kvway):
    def makes(ex):
        ex.respond(200, body={"id": "resp_1", "model": ex.json()["model"]})

    stable, canary = workers(1), workers(1, models=["tiny-next"], script=makes)
    router = start(kvway, stable, canary, {"groups.header": HEADER}, stable=1, canary=0, to="tiny-next")
    body = {"model": "tiny", "input": "say"}
    assert router.ask("POST", "/v1/responses", [(HEADER, "canary")], body).status == 200
    id = canary[0].url.removeprefix("http://")
    assert ask(router.admin_port, "POST", f"/workers/{id}/drain").status == 200
    body = {"model": "tiny", "input": "go on", "previous_response_id": "resp_1"}
    said = ask(router.admin_port, "POST", "/explain?path=/v1/responses", body=body).json()
    assert router.ask("POST", "/v1/responses", (), body).status == 200
    assert (served(canary), served(stable)) == (2, 0)
    assert (said["group"], said["group_by"], said["worker"]) == ("canary", "worker", canary[0].url)


def test_a_pinned_worker_is_found_in_any_group(workers, kvway):
    stable, canary = workers(1), workers(1, models=["tiny-next"])
    config = {"http.pin": True}
    router = start(kvway, stable, canary, config, stable=1, canary=0, to="tiny-next")
    pin = [("x-kvway-pin", canary[0].url)]
    assert send(router, stable, canary, chat_body("a"), pin) == "canary"
    assert canary[0].requests[-1].json()["model"] == "tiny-next"
    assert send(router, stable, canary, chat_body("a")) == "stable"


def test_a_body_without_a_model_goes_to_no_group_with_another_name(workers, kvway):
    """There is no place for the name: the workers would take their own model for it."""
    worker = workers(1, models=["tiny", "tiny-next"])
    worker[0].base = "tiny"
    entries = [
        {"model": "tiny", "group": "stable", "weight": 1},
        {"model": "tiny", "group": "canary", "weight": 1000, "to": "tiny-next", "shadow": 1},
    ]
    router = start(kvway, worker, [], entries=entries)
    body = chat_body("a")
    del body["model"]
    for _ in range(5):
        assert router.ask("POST", CHAT, body=json.dumps(body).encode()).status == 200
    router.wait_idle()
    assert router.metric("kvway_group_requests_total", group="canary") == 0
    assert router.metric("kvway_group_requests_total", group="stable") == 5
    assert router.metric("kvway_bodies_changed_total", reason="model") == 0
    until(lambda: router.metric("kvway_group_shadow_total", group="canary", result="dropped") == 5)
    assert len(worker[0].requests) == 5


def test_a_name_that_no_worker_has_goes_nowhere_on_a_path_that_is_not_known(workers, kvway):
    stable, canary = workers(1, models=["tiny-old"]), workers(1, models=["tiny-next"])
    entries = [
        {"model": "tiny", "group": "stable", "to": "tiny-old"},
        {"model": "tiny", "group": "canary", "to": "tiny-next"},
    ]
    router = start(kvway, stable, canary, entries=entries)
    answer = router.ask("POST", "/v1/else", [("content-type", "application/json")], b'{"model": "tiny", "a": 1}')
    assert (answer.status, answer.json()["error"]["code"]) == (400, "model_group")
    assert not stable[0].requests and not canary[0].requests
    assert router.ask("POST", "/v1/else", [("content-type", "application/json")], b'{"model": "x"}').status == 200


def explained(router, body):
    words = [PROGRAM, "explain", "--admin", f"127.0.0.1:{router.admin_port}"]
    return subprocess.run(words, input=json.dumps(body).encode(), capture_output=True, check=True).stdout.decode()


def command(router, *words, status=0):
    done = subprocess.run(
        [PROGRAM, *words, "--admin", f"127.0.0.1:{router.admin_port}"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_the_command_shows_and_changes_weights(workers, kvway):
    stable, canary = workers(1), workers(1)
    router = start(kvway, stable, canary)
    assert "tiny  canary  weight 10  usable workers 1" in command(router, "groups")
    assert "weight 20 (in the file 10)" in command(router, "groups", "weight", "tiny", "stable=80", "canary=20")
    assert [g["weight"] for g in json.loads(command(router, "groups", "--json"))] == [20, 80]
    assert "0 for every group" in command(router, "groups", "weight", "tiny", "stable=0", "canary=0", status=1)
    assert "has no groups" in command(router, "groups", "weight", "nosuch", "stable=0", status=1)


def test_groups_are_compared(workers, kvway):
    stable, canary = workers(1), workers(1)
    router = start(kvway, stable, canary, {"groups.header": HEADER, "ejection.max_share": 0})
    count = [0]

    def worse(ex):
        count[0] += 1
        if count[0] % 3 == 0:
            ex.respond(500, body={"error": {"message": "no"}})
            return
        time.sleep(0.06)
        answer(ex)

    canary[0].script = worse
    body = json.dumps(chat_body("a", stream=True)).encode()
    for group in ("stable", "canary"):
        for _ in range(60):
            router.ask("POST", CHAT, [(HEADER, group)], body)
    router.wait_idle()
    said = json.loads(command(router, "compare", "stable", "canary", "--json"))
    assert said["model"] == "tiny" and said["groups"] == ["stable", "canary"] and said["seconds"] is None
    rows = said["rows"]
    first, second = rows["first_token_seconds"]["values"]
    assert second["low"] <= second["value"] <= second["high"] and second["value"] > 0.06
    assert rows["first_token_seconds"]["beyond_noise"] is True
    assert [v["value"] for v in rows["requests"]["values"]] == [60, 60]
    assert rows["error_share"]["values"][0]["value"] == 0
    assert rows["error_share"]["values"][1]["value"] == pytest.approx(1 / 3)
    assert rows["error_share"]["beyond_noise"] is True
    table = command(router, "compare", "stable", "canary", "--model", "tiny")
    assert "time to first token, ms" in table and "yes" in table
    # Nothing came within a moment: there is nothing to judge.
    later = json.loads(command(router, "compare", "stable", "canary", "--interval", "100ms", "--json"))
    assert later["seconds"] == 0.1 and [v["value"] for v in later["rows"]["requests"]["values"]] == [0, 0]
    assert later["rows"]["first_token_seconds"] == {"values": [None, None], "beyond_noise": None}
    assert "0 models have groups" in command(router, "compare", "stable", "nosuch", status=1)
