"""A model that is known is obeyed: only workers that serve it get the request, however it says so."""

import gzip
import hashlib
import json
import subprocess
import threading

import pytest

from rig.client import CHAT, COMPLETIONS, Client, ask, chat_body
from rig.router import PROGRAM, settle
from rig.wait import until
from rig.worker import MARK, answer

ACME = {"created": 1788974814, "owned_by": "acme", "root": "/models/base", "max_model_len": 262144}
SQL = {"created": 1788974815, "owned_by": "acme", "root": "/lora/sql", "parent": "base"}
AUDIO = "/v1/audio/transcriptions"
JSON = ("Content-Type", "application/json")
FORM = ("Content-Type", "multipart/form-data; boundary=XbX")
SMALL = {"routing.scan_limit": "64KiB", "routing.strategy": "roundrobin"}
LONG = b"a" * 200_000


def pair_of(workers, kvway, config=None):
    one, two = workers(1, models=["one"])[0], workers(1, models=["two"])[0]
    return one, two, kvway([one, two], {**SMALL, **(config or {})})


def field(name, value):
    return b'--XbX\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name, value)


def json_first(model):
    return b'{"model": "%s", "prompt": "%s"}' % (model, LONG)


def json_later(model):
    """As the OpenAI SDK writes it: the model behind the prompt, here still within the limit."""
    return b'{"prompt": "%s", "model": "%s", "user": "%s"}' % (LONG[:40_000], model, LONG)


def json_last(model):
    return b'{"prompt": "%s", "model": "%s"}' % (LONG, model)


def broken_json(model):
    return b'{"model": "%s", "prompt": oops}' % model


def cut_json(model):
    return b'{"model": "%s", "prompt": "and then' % model


def deep_json(model):
    return b'{"model": "%s", "prompt": "x", "more": %s1%s}' % (model, b"[" * 200, b"]" * 200)


def form_first(model):
    return field(b"model", model) + field(b"file", LONG) + b"--XbX--\r\n"


def form_last(model):
    return field(b"file", LONG) + field(b"model", model) + b"--XbX--\r\n"


def small_form(model):
    return field(b"file", b"RIFF") + field(b"model", model) + b"--XbX--\r\n"


def cut_form(model):
    return field(b"model", model) + field(b"file", b"RIFF")


# name: path, content type, body of a model, may it go in chunks
SHAPES = {
    "above the limit": (COMPLETIONS, JSON, json_first),
    "above the limit, the model behind the prompt": (COMPLETIONS, JSON, json_later),
    "above the limit, the model behind it": (COMPLETIONS, JSON, json_last),
    "broken behind the model": (COMPLETIONS, JSON, broken_json),
    "cut behind the model": (COMPLETIONS, JSON, cut_json),
    "deeper than is followed": (COMPLETIONS, JSON, deep_json),
    "a small form": (AUDIO, FORM, small_form),
    "a form above the limit": (AUDIO, FORM, form_first),
    "a form above the limit, the model behind the file": (AUDIO, FORM, form_last),
    "a form without its end": (AUDIO, FORM, cut_form),
    "the query of a path that is unknown": ("/v1/else?a=b&model={}", JSON, lambda model: b"{}"),
    "the query where the body has none": (COMPLETIONS + "?model={}", JSON, lambda model: b'{"prompt": "x"}'),
}


def send(router, shape, model, chunked):
    path, kind, make = SHAPES[shape]
    body = make(model.encode())
    pieces = [body[i : i + 20_000] for i in range(0, len(body), 20_000)]
    with Client(router.port) as client:
        if chunked:
            return client.ask("POST", path.format(model), [kind], chunks=pieces), body
        return client.ask("POST", path.format(model), [kind], body), body


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_only_its_workers_get_it(workers, kvway, shape, chunked):
    one, two, router = pair_of(workers, kvway)
    for _ in range(6):
        answer, body = send(router, shape, "two", chunked)
        assert answer.status == 200
        assert two.requests[-1].body == body
    assert not one.requests
    router.wait_idle()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_unknown_one_is_told(workers, kvway, shape, chunked):
    one, two, router = pair_of(workers, kvway)
    answer, _ = send(router, shape, "three", chunked)
    assert answer.status == 404
    assert "`three` does not exist" in answer.json()["error"]["message"]
    assert not one.requests and not two.requests
    router.wait_idle()


@pytest.mark.parametrize("shape", SHAPES)
def test_no_other_worker_gets_it_when_its_own_fail(workers, kvway, shape):
    one, two, router = pair_of(workers, kvway)
    two.stop()
    answer, _ = send(router, shape, "two", False)
    assert answer.status in (502, 503)
    assert not one.requests
    id_ = two.url.removeprefix("http://")
    until(lambda: ask(router.admin_port, "GET", f"/workers/{id_}").json()["state"] == "down")
    answer, _ = send(router, shape, "two", False)
    assert answer.status == 503 and answer.headers.get("retry-after")
    assert not one.requests


def test_an_unknown_one_waits_for_the_lists(workers, kvway):
    """As elsewhere: a model that has just been loaded is asked for, not refused."""
    one, two, router = pair_of(workers, kvway, {"health.models_interval": "1h"})
    settle(1.1)  # lists younger than that are not read again
    two.models.append("new")
    answer, _ = send(router, "above the limit", "new", False)
    assert answer.status == 200 and two.requests and not one.requests


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("kind, body", [
    ("application/json", b'{"prompt": oops'), ("application/json", '{"model": "two"}'.encode("utf-16")),
    ("text/plain", b'{"model": "two"}'), ("application/json", b'["two"]'), ("application/json", b'{"model": 2}'),
], ids=["broken", "UTF-16", "plain text", "a list", "a number"])  # fmt: skip
def test_a_body_that_cannot_be_read_goes_to_no_worker_by_chance(workers, kvway, kind, body, chunked):
    one, two, router = pair_of(workers, kvway)
    how = {"chunks": [body]} if chunked else {"body": body}
    for target, type_ in ((COMPLETIONS, "BadRequestError"), ("/v1/messages", "invalid_request_error")):
        with Client(router.port) as client:
            answer = client.ask("POST", target, [("Content-Type", kind)], **how)
        error = answer.json()["error"]
        assert (answer.status, error["type"]) == (400, type_)
        assert "does not show" in error["message"]
    assert not one.requests and not two.requests
    assert router.metric("kvway_models_unread_total") == 2
    assert router.log().count("does not show its model: answered 400") + router.log().count("not what its path takes") == 1


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "deflate, br", "x-unknown"])
def test_an_encoded_request_is_answered_415(workers, kvway, encoding):
    one, two, router = pair_of(workers, kvway)
    body, field = gzip.compress(b'{"model": "two", "prompt": "hi"}'), ("Content-Encoding", encoding)
    for target, type_ in ((COMPLETIONS, None), ("/v1/messages", "invalid_request_error"), ("/v1/else", None)):
        answer = router.ask("POST", target, [JSON, field], body)
        error = answer.json()["error"]
        assert answer.status == 415 and encoding in error["message"]
        assert answer.headers.get("accept-encoding") == "identity"
        assert type_ in (None, error["type"])
    assert not one.requests and not two.requests
    assert router.metric("kvway_encoded_requests_total") == 3
    plain = [JSON, ("Content-Encoding", "identity")]
    assert router.ask("POST", COMPLETIONS, plain, b'{"model": "two", "prompt": "hi"}').status == 200
    assert len(two.requests) == 1


def test_answers_to_prompts_are_asked_for_plain(workers, kvway):
    """Else what stands before an engine compresses them if a client would take that, and nothing sees their usage."""
    one, two, router = pair_of(workers, kvway)
    field = ("Accept-Encoding", "gzip, deflate")
    assert router.ask("POST", COMPLETIONS, [JSON, field], {"model": "one", "prompt": "hi"}).status == 200
    assert one.requests[-1].headers.all("accept-encoding") == ["identity"]
    assert router.ask("POST", COMPLETIONS, [JSON], {"model": "one", "prompt": "hi"}).status == 200
    assert one.requests[-1].headers.get("accept-encoding") is None
    assert router.ask("GET", "/v1/else?model=one", [field]).status == 200
    assert one.requests[-1].headers.all("accept-encoding") == ["gzip, deflate"]
    assert router.metric("kvway_encoded_answers_total") == 0
    one.script = lambda ex: ex.respond(headers=[("content-encoding", "gzip")], body=gzip.compress(b"{}"))
    assert router.ask("POST", COMPLETIONS, [JSON, field], {"model": "one", "prompt": "hi"}).status == 200
    until(lambda: router.metric("kvway_encoded_answers_total") == 1)


def test_a_name_behind_the_limit_is_not_looked_for_where_all_serve_one(workers, kvway):
    fleet = workers(2, read_body=False)
    router = kvway(fleet, SMALL)
    with Client(router.port) as client:
        client.send_head("POST", COMPLETIONS, [JSON, ("Content-Length", str(len(LONG) + 200))])
        client.send(b'{"prompt": "%s' % LONG)
        until(lambda: sum(len(w.requests) for w in fleet) == 1)




def test_a_long_body_goes_on_as_soon_as_its_model_is_known(workers, kvway):
    one, two, router = pair_of(workers, kvway)
    two.read_body = False
    started = []
    two.script = lambda ex: (started.append(ex), ex.read_body(), ex.respond(200, body=b"{}"))
    body = json_first(b"two")
    with Client(router.port) as client:
        client.send_head("POST", COMPLETIONS, [JSON, ("Content-Length", str(len(body)))])
        client.send(body[:1000])
        until(lambda: started)
        client.send(body[1000:])
        assert client.read("POST").status == 200
    assert two.requests[-1].body == body and not one.requests


def test_one_that_waits_for_its_model_holds_its_memory_and_no_more(workers, kvway):
    one, two, router = pair_of(workers, kvway, {"limits.body_memory": "1MiB", "routing.scan_limit": "512KiB"})
    with Client(router.port) as first, Client(router.port) as second:
        for client in (first, second):
            client.send_head("POST", COMPLETIONS, [JSON, ("Content-Length", str(4 << 20))])
            client.send(b'{"prompt": "' + b"x" * 399_988)
        until(lambda: 800_000 <= router.metric("kvway_body_bytes") < 1 << 20)  # and what they are read into
        # a third finds no room
        body = b'{"prompt": "%s", "model": "two"}' % (b"x" * 600_000)
        answer = router.ask("POST", COMPLETIONS, [JSON], body)
        assert (answer.status, answer.headers.get("retry-after")) == (503, "1")
    until(lambda: router.metric("kvway_body_bytes") == 0)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("length", [1, 40_000])
def test_json_of_a_path_that_is_unknown(workers, kvway, chunked, length):
    """Its member `model` is obeyed if a worker serves that; else it may mean anything."""
    one, two, router = pair_of(workers, kvway)
    body = b'{"text": "%s", "model": "two"}' % LONG[:length]
    pieces = [body[i : i + 20_000] for i in range(0, len(body), 20_000)]
    with Client(router.port) as client:
        for _ in range(4):
            how = {"chunks": pieces} if chunked else {"body": body}
            assert client.ask("POST", "/v1/else", [JSON], **how).status == 200
            assert two.requests[-1].body == body
        assert not one.requests
        for _ in range(4):
            answer = client.ask("POST", "/v1/else", [JSON], body=b'{"model": "three"}')
            assert answer.status == 200
        assert len(one.requests) == 2 and len(two.requests) == 6
    router.wait_idle()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("make", [small_form, form_first], ids=["behind the file", "before a large file"])
def test_a_form_of_a_path_that_is_unknown(workers, kvway, make, chunked):
    """As engines for images take them."""
    one, two, router = pair_of(workers, kvway)
    body = make(b"two")
    with Client(router.port) as client:
        for _ in range(4):
            how = {"chunks": [body[i : i + 20_000] for i in range(0, len(body), 20_000)]} if chunked else {"body": body}
            assert client.ask("POST", "/v1/images/edits", [FORM], **how).status == 200
            assert two.requests[-1].body == body
    assert not one.requests
    router.wait_idle()


@pytest.mark.parametrize("body", [b"", b"{}", b'{"a": 1}', b'[{"model": "two"}]', b"oops", b'{"a": oops, "model": "two"}',
                                  b'{"model": 2}', b'{"inner": {"model": "two"}}'], ids=range(8))
@pytest.mark.parametrize("chunked", [False, True])
def test_json_without_a_model_of_an_unknown_path(workers, kvway, body, chunked):
    one, two, router = pair_of(workers, kvway)
    with Client(router.port) as client:
        for _ in range(4):
            how = {"chunks": [body] if body else []} if chunked else {"body": body}
            assert client.ask("POST", "/v1/else", [JSON], **how).status == 200
    assert len(one.requests) == len(two.requests) == 2
    assert all(ex.body == body for ex in one.requests + two.requests)
    router.wait_idle()


def test_the_query_of_an_unknown_path_holds_unless_the_body_names_a_known_model(workers, kvway):
    one, two, router = pair_of(workers, kvway)
    for _ in range(3):
        assert router.ask("POST", "/v1/else?model=two", [JSON], b'{"model": "three"}').status == 200
    assert len(two.requests) == 3 and not one.requests
    assert router.ask("POST", "/v1/else?model=three", [JSON], b'{"model": "four"}').status == 404
    for _ in range(3):
        assert router.ask("POST", "/v1/else?model=two", [JSON], b'{"model": "one"}').status == 200
    assert len(one.requests) == 3


@pytest.mark.parametrize("piece", [b'{"model": "two", "rest": "', b'{"rest": "%s' % LONG, b"oops"],
                         ids=["named", "too long", "broken"])
def test_an_upload_to_an_unknown_path_goes_on_before_its_end(workers, kvway, piece):
    """As soon as the name is found, or cannot be found any more."""
    one, two = (workers(1, models=[name], read_body=False)[0] for name in ("one", "two"))
    router = kvway([one, two], SMALL)
    with Client(router.port) as client:
        client.send_head("POST", "/v1/else", [JSON, ("Content-Length", str(len(piece) + 2))])
        client.send(piece)
        until(lambda: len(one.requests) + len(two.requests) == 1)
        client.send(b"\"}")
        assert client.read("POST").status == 200
        assert len(two.requests) == 1 or b"model" not in piece
        assert client.ask("GET", "/v1/else").status == 200
    router.wait_idle()


def test_a_query_does_not_outvote_the_body(workers, kvway):
    one, two, router = pair_of(workers, kvway)
    for _ in range(4):
        assert router.ask("POST", CHAT + "?model=one", body=chat_body(model="two")).status == 200
    assert len(two.requests) == 4 and not one.requests


@pytest.mark.parametrize("query", ["?model=", "?model", "?models=one", "?xmodel=one"])
def test_queries_that_name_no_model(workers, kvway, query):
    one, two, router = pair_of(workers, kvway)
    for _ in range(2):
        assert router.ask("GET", "/v1/else" + query).status == 200
    assert one.requests and two.requests


def test_a_query_is_decoded(workers, kvway):
    spaced = workers(1, models=["org/a b"])[0]
    other = workers(1, models=["c"])[0]
    router = kvway([spaced, other], SMALL)
    for query in ("?model=org%2Fa+b", "?model=org/a%20b", "?x=1&model=org%2fa%20b&model=c"):
        for _ in range(2):
            assert router.ask("GET", "/v1/else" + query).status == 200
    assert not other.requests
    for rest in ("", "x" * 5000):
        assert router.ask("GET", "/v1/else?model=org/a%20b%00" + rest).status == 404


def test_a_name_may_hold_nul(workers, kvway):
    """Nothing behind the end of a model's own name is looked at, where models have limits and where they are served."""
    limits = [{"model": "one", "requests_per_minute": 60}]
    router = kvway(workers(1, models=["one"]), {**SMALL, "rate_limits": limits})
    for rest, status in (("\0", 404), ("\0" + "x" * 5000, 404), ("", 200)):
        body = json.dumps({"model": "one" + rest, "prompt": "x"}).encode()
        assert router.ask("POST", COMPLETIONS, [JSON], body).status == status


def test_explain_says_the_same(workers, kvway):
    one, two, router = pair_of(workers, kvway)
    for body in (json_first(b"two"), json_later(b"two")):
        said = ask(router.admin_port, "POST", f"/explain?path={COMPLETIONS}", [JSON], body)
        assert said.status == 200
        assert said.json()["worker"] == two.url, said.body
    assert json.loads(ask(router.admin_port, "POST", f"/explain?path={COMPLETIONS}", [JSON],
                          json_first(b"three")).body)["error"]


def listed(router):
    data = router.ask("GET", "/v1/models").json()["data"]
    return {m["id"]: m for m in data if not m["id"].startswith(MARK)}


def test_the_list_says_of_a_model_what_its_worker_says(workers, kvway):
    one, two = workers(1, models=["base", "sql"])[0], workers(1, models=["plain"])[0]
    one.cards = {"base": ACME, "sql": SQL}
    found = listed(kvway([one, two]))
    one_says = {"object": "model", "parent": None, "max_model_len": None}
    assert found["base"] == {"id": "base", **one_says, **ACME}
    assert found["sql"] == {"id": "sql", **one_says, **SQL}
    assert (found["plain"]["root"], found["plain"]["owned_by"], found["plain"]["max_model_len"]) == ("plain", "vllm", None)


def test_of_several_lengths_the_list_has_the_smallest(workers, kvway):
    fleet = workers(3, models=["base"])
    for worker, most in zip(fleet, (8192, 4096, None)):
        worker.cards = {"base": {**ACME, "max_model_len": most}}
    router = kvway(fleet, {"health.models_interval": "1s", "models": {"gpt": {"to": "base"}}})
    assert {name: m["max_model_len"] for name, m in listed(router).items()} == {"base": 4096, "gpt": 4096}
    fleet[1].cards = {"base": {**ACME, "max_model_len": 16384}}
    until(lambda: listed(router)["base"]["max_model_len"] == 8192, 8, "the new length is listed")


def test_a_time_of_creation_that_changes_with_each_reading_is_kept(workers, kvway):
    """vLLM's is the time of the request."""
    (worker,) = workers(1, models=["base"])
    worker.cards = {"base": ACME}
    router = kvway([worker], {"health.models_interval": "1s"})
    worker.cards = {"base": {**ACME, "created": 1799999999}}
    read = worker.probes.count("/v1/models")
    until(lambda: worker.probes.count("/v1/models") > read + 1, 10, "the list is read again")
    assert listed(router)["base"]["created"] == ACME["created"]


def serving(worker):
    """A script as vLLM's API server: 404 for what it does not have, adapters come and go."""

    def script(ex):
        asked = ex.json()
        if ex.path == "/v1/load_lora_adapter":
            worker.models.append(asked["lora_name"])
            ex.respond(200, body=b"Success")
        elif asked["model"] in worker.models:
            ex.respond(body={"choices": [], "worker": worker.name})
        else:
            message = {"message": "The model `x` does not exist.", "type": "NotFoundError", "param": "model", "code": 404}
            ex.respond(404, body={"error": message}, reason="Not Found")

    return script


def fleet_of(workers, count, models):
    fleet = workers(count, models=models)
    for worker in fleet:
        worker.script = serving(worker)
    return fleet


def complete(router, model):
    return router.ask("POST", COMPLETIONS, body={"model": model, "prompt": "x"})


def test_an_adapter_that_a_broadcast_loaded_is_there_for_the_next_request(workers, kvway):
    router = kvway(fleet_of(workers, 2, ["base"]))
    for n in range(6):  # lists were read a moment ago each time
        body = {"lora_name": f"l{n}", "lora_path": "/x"}
        assert ask(router.admin_port, "POST", "/broadcast/load_lora_adapter", body=body).status == 200
        assert complete(router, f"l{n}").status == 200


def test_a_list_that_was_asked_for_before_the_adapter_came_does_not_count(workers, kvway):
    (worker,) = fleet_of(workers, 1, ["base"])
    router = kvway([worker], {"health.models_interval": "1s"})
    worker.hold_models = threading.Event()
    asked = worker.probes.count("/v1/models")
    until(lambda: worker.probes.count("/v1/models") > asked, 10, "a list is on its way")
    body = {"lora_name": "late", "lora_path": "/x"}
    assert ask(router.admin_port, "POST", "/broadcast/load_lora_adapter", body=body).status == 200
    with Client(router.port) as client:
        client.send_request("POST", COMPLETIONS, body={"model": "late", "prompt": "x"})
        worker.hold_models, held = None, worker.hold_models
        held.set()
        assert client.read().status == 200


def test_while_a_changed_list_cannot_be_read_no_model_is_said_not_to_exist(workers, kvway):
    (worker,) = fleet_of(workers, 1, ["base"])
    router = kvway([worker])
    worker.models_status = 500
    body = {"lora_name": "late", "lora_path": "/x"}
    assert ask(router.admin_port, "POST", "/broadcast/load_lora_adapter", body=body).status == 200
    answer = complete(router, "late")
    assert (answer.status, answer.headers.get("retry-after")) == (503, "1")
    assert "/v1/models of 1 (status 500)" in answer.json()["error"]["message"]
    assert complete(router, "base").status == 200


def test_an_adapter_that_a_client_loaded_is_there_for_the_next_request(workers, kvway):
    router = kvway(fleet_of(workers, 2, ["base"]), {"expose.lora": "true"})
    for n in range(3):
        body = {"lora_name": f"l{n}", "lora_path": "/x"}
        assert router.ask("POST", "/v1/load_lora_adapter", body=body).status == 200
        assert complete(router, f"l{n}").status == 200


def test_a_404_for_a_model_that_is_listed_is_heard_at_once(workers, kvway):
    """One worker has lost its adapter without kvway's knowing: its requests go to the other one from then on."""
    one, two = fleet_of(workers, 2, ["base", "lora"])
    router = kvway([one, two], {"health.models_interval": "1h", "routing.strategy": "roundrobin"})
    one.models.remove("lora")
    assert [complete(router, "lora").status for _ in range(6)] == [200] * 6
    id_ = one.url.removeprefix("http://")
    until(lambda: "lora" not in ask(router.admin_port, "GET", f"/workers/{id_}").json()["models"], 10, "its list is read")
    asked = len(one.requests)
    assert [complete(router, "lora").status for _ in range(4)] == [200] * 4
    assert len(one.requests) == asked
    two.models.remove("lora")
    assert [complete(router, "lora").status for _ in range(2)] == [404, 404]
    assert router.metric("kvway_worker_ejections_total") == 0


def test_a_404_that_comes_after_the_list_was_read_is_no_answer_either(workers, kvway):
    one, two = fleet_of(workers, 2, ["base", "lora"])
    router = kvway([one, two], {"health.models_interval": "1h", "routing.strategy": "roundrobin"})
    serve, answer, asked = one.script, threading.Event(), []

    def first_is_late(ex):
        asked.append(ex)
        if len(asked) == 1:
            answer.wait(30)
        serve(ex)

    one.script = first_is_late
    one.models.remove("lora")
    with Client(router.port) as late, Client(router.port) as other:
        for client in late, other:  # one of them gets the first worker
            client.send_request("POST", COMPLETIONS, body={"model": "lora", "prompt": "x"})
        until(lambda: asked, what="a request that waits for its 404")
        assert [complete(router, "lora").status for _ in range(2)] == [200, 200]
        id_ = one.url.removeprefix("http://")
        until(lambda: "lora" not in ask(router.admin_port, "GET", f"/workers/{id_}").json()["models"], 10)
        answer.set()
        assert [client.read().status for client in (late, other)] == [200, 200]


@pytest.mark.parametrize("status", [401, 404])
def test_a_refused_list_is_said(workers, kvway, status):
    (worker,) = workers(1, models=["base"])
    worker.models_status = status
    router = kvway([worker], {"http.decision_headers": "on_request"}, up=False)
    router.wait_up()
    id_ = worker.url.removeprefix("http://")
    what = f"status {status}"
    until(lambda: ask(router.admin_port, "GET", f"/workers/{id_}").json()["models_error"] == what)
    answer = complete(router, "base")
    assert answer.status == 503
    assert f"/v1/models of {worker.url} ({what})" in answer.json()["error"]["message"]
    warned = [line for line in router.log().splitlines() if "cannot read /v1/models" in line]
    assert len(warned) == 1 and " warn " in warned[0]
    assert f"url={worker.url}" in warned[0] and what in warned[0]
    table = subprocess.run([PROGRAM, "workers", "--admin", f"127.0.0.1:{router.admin_port}"], capture_output=True,
                           text=True, check=True).stdout  # fmt: skip
    assert f"up, /v1/models: {what}" in table
    worker.models_status = 200
    until(lambda: complete(router, "base").status == 200)
    assert ask(router.admin_port, "GET", f"/workers/{id_}").json()["models_error"] is None


def test_names_of_adapters_that_come_and_go(workers, kvway):
    """30,000 names in all: a request keeps its own for as long as it lasts, and metrics stay small."""
    (worker,) = workers(1, models=["tiny"])
    router = kvway([worker], {"health.models_interval": "1s"})
    go_on = threading.Event()

    def slow(ex):
        ex.read_body()
        ex.start_stream()
        ex.event({"choices": [{"index": 0, "delta": {"content": "one"}}]})
        go_on.wait(60)
        ex.event("[DONE]")
        ex.end_stream()

    def ask_for(name):
        return router.ask("POST", CHAT, body={**chat_body(), "model": name})

    got, held = [], None
    for turn in range(10):
        worker.models = ["tiny", *(f"adapter-{turn}-{i}" for i in range(3000))]
        last = worker.models[-1]
        until(lambda name=last: ask_for(name).status == 200, 20, what="the list is read")
        if turn == 0:
            worker.script = slow
            body = {**chat_body(stream=True), "model": last}
            held = threading.Thread(target=lambda: got.append(router.ask("POST", CHAT, body=body, timeout=60)))
            held.start()
            until(lambda: router.metric("kvway_worker_inflight") == 1)
            worker.script = answer
    assert ask_for("adapter-0-2999").status == 404
    assert len(router.ask("GET", "/metrics").body) < 1 << 20
    go_on.set()
    held.join(10)
    assert got[0].status == 200 and b"[DONE]" in got[0].body
    router.wait_idle()


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
    assert not fleet[0].requests and not fleet[1].requests
    keys = tmp_path / "keys.yaml"
    digest = hashlib.sha256(b"key").hexdigest()
    keys.write_text(json.dumps({"keys": [{"name": "k", "sha256": digest, "models": ["org/base"], "paths": ["/v1/models"]}]}))
    router = kvway(fleet, {"auth.keys_file": str(keys)})
    headers = [("authorization", "Bearer key")]
    for path, status in (("org/base", 200), ("org%2fbase", 200), ("other", 404)):
        assert router.ask("GET", f"/v1/models/{path}", headers).status == status
    assert router.ask("GET", "/v1/models/org/base").status == 401
