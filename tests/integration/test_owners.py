"""What one worker alone keeps and an answer named: which worker is asked for it, and which keys may ask."""

import hashlib
import json

from rig.client import ask

WORDS = "alpha beta gamma delta"


def keeper(kind):
    """A worker's script: POST /v1/KIND makes something with an id; other workers answer 404 for it."""

    def script(ex):
        keeps = ex.worker.__dict__.setdefault("keeps", set())
        parts = ex.path.split("?")[0].split("/")
        if ex.method == "POST" and len(parts) == 3:
            previous = ex.json().get("previous_response_id")
            if previous is not None and previous not in keeps:
                ex.respond(404, body={"error": {"message": f"{previous} not found", "code": 404}})
                return
            made = f"{'resp' if kind == 'responses' else kind}_{ex.worker.name}_{len(keeps)}"
            keeps.add(made)
            ex.respond(200, body={"id": made, "object": "thing", "model": "tiny", "usage": {"total_tokens": 3}})
        elif parts[3] in keeps:
            ex.respond(200, body={"id": parts[3], "by": ex.worker.name})
        else:
            ex.respond(404, body={"error": {"message": f"{parts[3]} not found", "by": ex.worker.name}})

    return script


def make(router, kind, number, headers=(), **members):
    body = {"model": "tiny", "input": f"{WORDS} {number}", **members}
    answer = router.ask("POST", f"/v1/{kind}", headers, body)
    assert answer.status == 200, answer
    return answer.json()["id"]


def seen(fleet):
    return sum(len(worker.requests) for worker in fleet)


def test_an_id_is_asked_of_the_worker_that_gave_it_out(workers, kvway):
    for kind in ("responses", "videos"):
        fleet = workers(4, script=keeper(kind))
        router = kvway(fleet, {"routing.strategy": "roundrobin"})
        made = [make(router, kind, number) for number in range(8)]
        before = seen(fleet)
        for name in made:
            assert router.ask("GET", f"/v1/{kind}/{name}").status == 200
            assert router.ask("GET", f"/v1/{kind}/{name}/content?x=1").status == 200
            assert router.ask("POST", f"/v1/{kind}/{name}/cancel").status == 200
            assert router.ask("DELETE", f"/v1/{kind}/{name}").status == 200
        assert seen(fleet) == before + 4 * len(made)  # of that worker alone


def test_an_unknown_id_is_asked_of_one_worker_after_the_other(workers, kvway):
    """A router that has not seen the answers: it was started without its snapshot, or is another replica."""
    for kind in ("responses", "videos"):
        fleet = workers(5, script=keeper(kind))
        first, other = (kvway(fleet, {"routing.strategy": "roundrobin"}) for _ in range(2))
        made = [make(first, kind, number) for number in range(10)]
        for number, name in enumerate(made):
            method, path = [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "?stream=true")][number % 4]
            answer = other.ask(method, f"/v1/{kind}/{name}{path}")
            assert (answer.status, answer.json()["id"]) == (200, name)
        before = seen(fleet)
        for name in made:
            assert other.ask("GET", f"/v1/{kind}/{name}").status == 200
        assert seen(fleet) == before + len(made)  # now it is known
        # One that there is not: every worker is asked once, and the last one's answer is the client's.
        answer = other.ask("GET", f"/v1/{kind}/resp_none")
        assert answer.status == 404 and "not found" in answer.json()["error"]["message"]
        assert seen(fleet) == before + len(made) + len(fleet)
        for router in (first, other):
            assert router.metric("kvway_retries_total") == 0
            assert router.metric("kvway_workers", state="usable") == len(fleet)


def test_what_goes_on_with_an_unknown_response_finds_its_worker(workers, kvway):
    fleet = workers(4, script=keeper("responses"))
    first, other = (kvway(fleet, {"routing.strategy": "roundrobin"}) for _ in range(2))
    made = [make(first, "responses", number) for number in range(8)]
    for number, name in enumerate(reversed(made)):
        follow = make(other, "responses", number, previous_response_id=name)
        assert follow.split("_")[1] == name.split("_")[1]


def test_a_path_that_ends_in_a_verb_has_no_id(workers, kvway):
    """The body of POST /v1/images/generations is still read for its model."""
    one, two = workers(1, models=["tiny"])[0], workers(1, models=["big"])[0]
    router = kvway([one, two])
    for model, worker in (("tiny", one), ("big", two)):
        for _ in range(4):
            body = {"model": model, "prompt": "a cat"}
            assert router.ask("POST", "/v1/images/generations", body=body).status == 200
    assert (len(one.requests), len(two.requests)) == (4, 4)


def keys_of(tmp_path, **tenants):
    path = tmp_path / "keys.yaml"
    path.write_text(
        json.dumps(
            {
                "keys": [
                    {"name": name, "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest()}
                    | ({"tenant": tenant} if tenant else {})
                    for name, tenant in tenants.items()
                ]
            }
        )
    )
    return str(path)


def test_a_response_is_one_of_its_tenants(workers, kvway, tmp_path):
    fleet = workers(3, script=keeper("responses"))
    config = {"auth.keys_file": keys_of(tmp_path, a="A", also="A", b="B", free=None)}
    first, other = kvway(fleet, config), kvway(fleet, config)
    key = {name: [("authorization", f"Bearer key-{name}")] for name in ("a", "also", "b", "free")}
    made = make(first, "responses", 1, key["a"])
    before = seen(fleet)
    for name in ("b", "free"):
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
            answer = first.ask(method, f"/v1/responses/{made}{path}", key[name])
            assert (answer.status, answer.json()["error"]["type"]) == (404, "invalid_request_error")
        body = {"model": "tiny", "input": "go on", "previous_response_id": made}
        assert first.ask("POST", "/v1/responses", key[name], body).status == 404
    # Where the tenant is not known, there is no such response.
    for name in ("a", "b", "free"):
        assert other.ask("GET", f"/v1/responses/{made}", key[name]).status == 404
    assert seen(fleet) == before
    for name in ("a", "also"):
        assert first.ask("GET", f"/v1/responses/{made}", key[name]).status == 200
        assert make(first, "responses", 2, key[name], previous_response_id=made)
    # What the client names so itself takes no other tenant's response away.
    assert first.ask("GET", f"/v1/responses/{made}", key["a"]).status == 200
    said = [("x-kvway-tenant", "B")]
    explain = {"model": "tiny", "input": "go on", "previous_response_id": made}
    answer = ask(first.admin_port, "POST", "/explain?path=/v1/responses", said, json.dumps(explain).encode())
    assert answer.status == 404


def test_keys_without_tenants_share_their_responses(workers, kvway, tmp_path):
    fleet = workers(3, script=keeper("responses"))
    config = {"auth.keys_file": keys_of(tmp_path, a=None, b=None)}
    first, other = kvway(fleet, config), kvway(fleet, config)
    key = {name: [("authorization", f"Bearer key-{name}")] for name in ("a", "b")}
    made = make(first, "responses", 1, key["a"])
    assert first.ask("GET", f"/v1/responses/{made}", key["b"]).status == 200
    assert other.ask("GET", f"/v1/responses/{made}", key["b"]).status == 200


def test_one_model_is_answered_as_the_list_has_it(workers, kvway, tmp_path):
    fleet = workers(1, models=["org/base", "lora+x"]) + workers(1, models=["other"])
    router = kvway(fleet)
    listed = {entry["id"]: entry for entry in router.ask("GET", "/v1/models").json()["data"]}
    for _ in range(4):
        for path, name in (("org/base", "org/base"), ("org%2Fbase?a=b", "org/base"), ("lora+x", "lora+x"), ("other", "other")):
            answer = router.ask("GET", f"/v1/models/{path}")
            assert (answer.status, answer.json()) == (200, listed[name])
        for path in ("org", "base", "none", "org/base/x"):
            answer = router.ask("GET", f"/v1/models/{path}")
            assert (answer.status, answer.json()["error"]["param"]) == (404, "model")
    assert router.ask("DELETE", "/v1/models/org/base").status == 405
    assert seen(fleet) == 0
    keys = tmp_path / "keys.yaml"
    digest = hashlib.sha256(b"key").hexdigest()
    keys.write_text(json.dumps({"keys": [{"name": "k", "sha256": digest, "models": ["org/base"], "paths": ["/v1/models"]}]}))
    router = kvway(fleet, {"auth.keys_file": str(keys)})
    headers = [("authorization", "Bearer key")]
    for path, status in (("org/base", 200), ("org%2fbase", 200), ("other", 404)):
        assert router.ask("GET", f"/v1/models/{path}", headers).status == status
    assert router.ask("GET", "/v1/models/org/base").status == 401
