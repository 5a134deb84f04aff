"""What /explain says of a request is what the request then gets: worker, reason, or the refusal and its code.

Random configurations, and random requests to each. KVW_EXPLAIN_CASES: so many configurations (30 by hand).
"""

import hashlib
import json
import os
import random
from urllib.parse import quote

import pytest
from rig.client import CHAT, COMPLETIONS, ask
from rig.wait import until

CASES = int(os.environ.get("KVW_EXPLAIN_CASES", "4"))
REQUESTS = int(os.environ.get("KVW_EXPLAIN_REQUESTS", "25"))
KEYS = ("free", "narrow", "lab", "trusted")
WORDS = "sea king ship wind river morning boat story".split()


def key_of(name):
    return f"sk-{name}-0123456789"


def entry(name, **more):
    return {"name": name, "sha256": hashlib.sha256(key_of(name).encode()).hexdigest(), **more}


class Case:
    """A configuration, drawn by its number."""

    def __init__(self, number, folder, workers, kvway):
        self.rng = rng = random.Random(number)
        self.fleet = workers(2, models=["tiny", "next"]) + workers(2, models=["tiny", "big"])
        config = {
            "routing.strategy": rng.choice(["prefixaware", "session", "roundrobin"]),
            "routing.session.headers": ["x-session-id"],
            "http.decision_headers": "always",
            "http.pin": rng.random() < 0.5,
        }
        if rng.random() < 0.5:
            config["models"] = {"small": {"to": "tiny"}}
        if rng.random() < 0.5:
            config["workers"] = [{"url": w.url, "group": "one" if i < 2 else "two"} for i, w in enumerate(self.fleet)]
            config["model_groups"] = [
                {"model": "split", "group": "one", "workers": ["one"], "weight": 3, "to": "tiny"},
                {"model": "split", "group": "two", "workers": ["two"], "weight": 1, "to": "big"},
            ]
            config["groups.header"] = "x-group"
        if rng.random() < 0.5:
            config.update({"admission.enabled": True, "service_level.ttft": "10s"})
        if rng.random() < 0.3:
            config["routing.scan_limit"] = "64KiB"
        self.keys = rng.random() < 0.5
        if self.keys:
            path = folder / f"keys-{number}.yaml"
            keys = [entry("free"), entry("narrow", models=["tiny"]), entry("lab", tenant="lab"),
                    entry("trusted", trusted=True)]  # fmt: skip
            path.write_text(json.dumps({"keys": keys}))
            config["auth.keys_file"] = str(path)
        self.router = kvway(self.fleet, config, up=False)
        self.drained = rng.choice([*self.fleet, None])

    def settle(self):
        port = self.router.admin_port
        self.router.wait_up()
        until(lambda: ask(port, "GET", "/ready").status == 200, 15, "ready")
        until(lambda: all(w["models"] for w in ask(port, "GET", "/workers").json()), 15, "all models known")
        if self.drained:
            name = self.drained.url.removeprefix("http://")
            assert ask(self.router.admin_port, "POST", f"/workers/{name}/drain").status < 300

    def draw(self):
        rng = self.rng
        path = rng.choice([CHAT, CHAT, COMPLETIONS, "/v1/embeddings", "/v1/responses", "/tokenize"])
        request = {"path": path, "model": rng.choice(["tiny", "tiny", "next", "big", "small", "split", "nope", None])}
        request["text"] = " ".join(rng.choices(WORDS, k=rng.choice([5, 300, 20000])))
        if self.keys:
            request["key"] = rng.choice(KEYS)
        headers = [("X-Request-Id", f"request-{rng.randrange(1 << 30)}")]
        if rng.random() < 0.4:
            headers.append(("X-Session-Id", rng.choice("abc")))
        if rng.random() < 0.3:
            pin = rng.choice([*(w.url.removeprefix("http://") for w in self.fleet), "nowhere:1"])
            headers.append(("X-Kvway-Pin", pin))
        if rng.random() < 0.2:
            headers.append(("X-Group", rng.choice(["one", "two", "three"])))
        return {**request, "headers": headers}

    @staticmethod
    def body(request):
        text = request.get("text", "hello")
        content = {CHAT: {"messages": [{"role": "user", "content": text}]}, COMPLETIONS: {"prompt": text},
                   "/v1/embeddings": {"input": text}, "/v1/responses": {"input": text},
                   "/tokenize": {"prompt": text}}[request["path"]]  # fmt: skip
        return {**({"model": request["model"]} if request.get("model") else {}), **content}

    def explain(self, request):
        target = f"/explain?path={quote(request['path'], safe='')}"
        if "key" in request:
            target += f"&key={request['key']}"
        return ask(self.router.admin_port, "POST", target, request.get("headers", []), self.body(request))

    def send(self, request):
        headers = list(request["headers"])
        if "key" in request:
            headers.append(("Authorization", f"Bearer {key_of(request['key'])}"))
        return self.router.ask("POST", request["path"], headers, self.body(request))


def outcome(answer, worker, reason):
    return (200, worker, reason) if answer.status == 200 else (answer.status, answer.json()["error"]["code"])


def said_by(answer):
    got = answer.json()
    return outcome(answer, got.get("worker"), got.get("reason"))


def done_by(answer):
    headers = {name.lower(): value for name, value in answer.headers}
    return outcome(answer, headers.get("x-kvway-worker"), headers.get("x-kvway-reason"))


@pytest.mark.parametrize("number", range(CASES))
def test_what_is_explained_happens(workers, kvway, tmp_path, number):
    case = Case(number, tmp_path, workers, kvway)
    case.settle()
    moved = 0  # which of two idle workers is cheaper may change from one moment to the next
    for _ in range(REQUESTS):
        request = case.draw()
        case.router.wait_idle()
        said = case.explain(request)
        done = done_by(case.send(request))
        if done[2:] == said_by(said)[2:] == ("load",):
            moved += done != said_by(said)
            continue
        assert done == said_by(said), (request["path"], request["model"], request["headers"], said.json())
    assert moved <= 1 + REQUESTS // 25
