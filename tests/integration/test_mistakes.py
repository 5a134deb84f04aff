"""Mistakes in what a running kvway is given: each is named with its place, and none changes anything."""

import json
import signal

import pytest

from rig.client import CHAT, ask, chat_body
from rig.router import DEFAULTS, nest
from rig.wait import until

# --- the configuration file: a line of it, what stands there instead, the line that is wrong, what is said ---

FILE = [
    ('  strategy: "roundrobin"', "  strategy: roundrobbin", "strategy", "routing.strategy",
     "found `roundrobbin`, expected one of prefixaware, kvaware, session, roundrobin; did you mean `roundrobin`?"),
    ('  interval: "300ms"', "  interval: soon", "  interval", "health.interval",
     "found `soon`, expected a duration such as 250ms, 2s, 10m or 1h, from 100ms to 1h"),
    ('  interval: "300ms"', "  interval: 1ms", "  interval", "health.interval",
     "found `1ms`, expected a duration from 100ms to 1h"),
    ('  interval: "300ms"', "  intervall: 300ms", "intervall", "health.intervall",
     "found an unknown key, expected one of this section; did you mean `health.interval`?"),
    ("loops: 2", "loops: two", "loops", "loops", "found `two`, expected a whole number, from 0 to 256"),
    ("loops: 2", "loops: 2000", "loops", "loops", "found `2000`, expected a whole number from 0 to 256"),
    ("loops: 2", "loops: [2]", "loops", "loops", "found a list, expected a whole number"),
    ("loops: 2", "loops: 2\nloops: 3", "loops: 3", "loops", "found a second time, expected once: first given in line 4"),
    ("loops: 2", "lops: 2", "lops", "lops", "found an unknown key, expected one of this section; did you mean `loops`?"),
    ('  level: "info"', "  level: loud", "level", "log.level", "found `loud`, expected one of debug, info, warn, error"),
    ('  settle: "0s"', "  settle: -1s", "settle", "drain.settle", "found `-1s`, expected a duration"),
    ("log:", "log: info\nmore:", "log: info", "log", "found text, expected keys such as `level:` below it"),
    ("routing:", "routing:\n  scan_limit: 1KiB", "1KiB", "routing.scan_limit",
     "found `1KiB`, expected a size from 64KiB to 1GiB"),
    ("routing:", "routing:\n\tscan_limit: 1MiB", "1MiB", "", "found a tab, expected spaces"),
    ("routing:", "routing: {", "log:", "", "not valid YAML: did not find expected ',' or '}'"),
    ("workers:", "workers: http://a:1 #", "workers", "workers", "found text, expected a list with an entry"),
    ("workers:", 'workers: [{"url": "ftp://a:1"}] #', "workers", "workers[0].url",
     "found `ftp://a:1`, expected the scheme http or https"),
    ("workers:", 'workers: [{"url": "http://a:99999"}] #', "workers", "workers[0].url",
     "found `http://a:99999`, expected a port from 1 to 65535"),
    ("workers:", 'workers: [{"url": "http://a:1"}, {"url": "http://a:1/"}] #', "workers", "workers[1].url",
     "found `http://a:1` again, expected each worker once: it is workers[0] already"),
    ("workers:", 'workers: [{"models": ["m"]}] #', "workers", "workers[0].url",
     "found nothing, expected the worker's URL"),
    ("workers:", 'workers: [{"url": "http://a:1", "modles": ["m"]}] #', "workers", "workers[0].modles",
     "found an unknown key, expected one of url, models, api_key; did you mean `models`?"),
    ("workers:", 'workers: [{"url": "http://a:1", "models": "m"}] #', "workers", "workers[0].models",
     "found `m`, expected a list such as [one, two]; did you mean `[m]`?"),
    ("workers:", 'workers: [{"url": "http://user:secret@a:1"}] #', "workers", "workers[0].url",
     "found a URL with a user or password, expected http://HOST:PORT"),
    ("workers:", 'workers: [{"url": "http://a:1", "api_key": "a\\nb"}] #', "workers", "workers[0].api_key",
     "found a value that is not printed here, expected visible ASCII"),
    ("workers:", "workers: [http://a:1] #", "workers", "workers[0]", "found text, expected an entry such as"),
    ("workers:", "upstream:\n  tls:\n    ca: /ca.pem\nworkers:", "ca.pem", "upstream.tls.ca",
     "found an unknown key, expected one of ca_file, certificate, key, insecure"),
    ("workers:", "limits:\n  body: 9PiB\nworkers:", "9PiB", "limits.body", "found `9PiB`, expected a size such as 64MiB"),
    ("workers:", "expose:\n  lora: maybe\nworkers:", "maybe", "expose.lora", "found `maybe`, expected true or false"),
    ("workers:", "timeouts:\n  drain: 5s\nworkers:", "drain: 5s", "timeouts.drain",
     "found a key of an earlier version, expected `drain.timeout`"),
    ("workers:", "retry:\n  attempts: 1.5\nworkers:", "1.5", "retry.attempts",
     "found `1.5`, expected a whole number, from 0 to 16"),
    ("workers:", "admission:\n  classes: [chat, batch, chat]\nworkers:", "classes:", "admission.classes[2]",
     "found `chat` again, expected each class once"),
    ("workers:", "admission:\n  classes: [chat]\n  default_class: chta\nworkers:", "chta", "admission.default_class",
     "found `chta`, expected one of `admission.classes`: chat; did you mean `chat`?"),
    ("workers:", "service_levels:\n  - model: m\nworkers:", "model: m", "service_levels[0]",
     "found no duration, expected `ttft`, `ttft_per_1k_tokens` or `tpot`"),
    ("workers:", "service_levels:\n  - model: m\n    ttft: soon\nworkers:", "soon", "service_levels[0].ttft",
     "found `soon`, expected a duration such as 250ms, 2s, 10m or 1h, from 0s to 1h"),
    ("workers:", "service_levels:\n  - class: gold\n    ttft: 1s\nworkers:", "gold", "service_levels[0].class",
     "found `gold`, expected no class while `admission.classes` is empty"),
    ("workers:", "service_levels:\n  - {model: m, ttft: 1s}\n  - {model: m, tpot: 1s}\nworkers:", "tpot",
     "service_levels[1]", "found the same model and class again, expected each pair once: it is service_levels[0] already"),
    ("workers:", "service_levls:\n  - {model: m, ttft: 1s}\nworkers:", "service_levls", "service_levls",
     "found an unknown key, expected one of this section; did you mean `service_levels`?"),
    ("workers:", 'discovery:\n  dns: ["x"]\nworkers:', "dns", "discovery.dns[0]", "found `x`, expected `http://NAME:PORT`"),
]

# --- lists of workers in files, in kvway's shape and in production-stack's ---

LISTS = [
    ("", 1, "", "found nothing, expected `workers:` and a list of workers (`workers: []` for none)"),
    ("workers", 1, "", "found text, expected `workers:` and a list of workers"),
    ("- url: http://a:1", 1, "", "found a list, expected `workers:` and a list of workers"),
    ("workers: http://a:1", 1, "workers", "found text, expected a list with an entry"),
    ("wrkers: []", 1, "wrkers", "found an unknown key, expected `workers`, or keys of production-stack's"),
    ("workers:\n- url: a:1", 2, "workers[0].url", "found `a:1`, expected http://HOST:PORT"),
    ("workers:\n- {url: http://a:1}\n- {url: http://a:1}", 3, "workers[1].url", "found `http://a:1` again"),
    ("workers:\n- models: [m]", 2, "workers[0].url", "found nothing, expected the worker's URL"),
    ("workers:\n- url: http://a:1\n  modls: [m]", 3, "workers[0].modls", "found an unknown key, expected one of url"),
    ("workers:\n- url: http://a:1\n  models: {m: 1}", 3, "workers[0].models", "found a mapping, expected a list"),
    ("workers:\n- http://a:1", 2, "workers[0]", "found text, expected an entry such as"),
    ("workers:\n\t- url: x", 2, "", "found a tab, expected spaces"),
    ('{"workers": [{"url": "http://a:1",}', 2, "", "not valid YAML: did not find expected ',' or ']'"),
    ("workers: []\nworkers: []", 2, "workers", "found a second time, expected once"),
    ("workers: []\nstatic_backends: http://a:1", 2, "static_backends", "found together with `workers`, expected one"),
    ("static_models: m", 1, "static_backends", "found nothing, expected the workers' URLs"),
    ("static_backends: http://a:1\nstatic_modles: m", 2, "static_modles", "did you mean `static_models`?"),
    ('static_backends: "http://a:1,http://b:1"\nstatic_models: m', 2, "static_models",
     "found 1 model, expected one for each of the 2 backends"),
    ('static_backends: "http://a:1,nonsense"\nstatic_models: "m,m"', 1, "static_backends[1]", "found `nonsense`, expected"),
    ("static_backends: {a: b}\nstatic_models: m", 1, "static_backends", "found a mapping, expected a list, or a text"),
    ('{"static_backends": "ftp://a:1", "static_models": "m"}', 1, "static_backends[0]", "found `ftp://a:1`, expected"),
    ("static_backends: [http://a:1, http://b:1]\nstatic_models: [m, [n]]", 2, "static_models[1]",
     "found no name, expected the name of a model for each backend"),
    ("static_models:\n  m:\n    static_backend: [http://a:1]", 3, "static_models.m.static_backends",
     "found nothing, expected a list of URLs"),
]

# --- bodies for the admin address: method, path, body, status, field, what is said ---

BODIES = [
    ("POST", "/workers", b"{", 400, "", "not JSON"),
    ("POST", "/workers", b"[]", 400, "", "an empty list"),
    ("POST", "/workers", {"url": "ftp://x:1"}, 400, "url", "found `ftp://x:1`, expected the scheme http or https"),
    ("POST", "/workers", {}, 400, "url", "found nothing, expected the worker's URL"),
    ("POST", "/workers", {"url": "http://x:1", "models": "m"}, 400, "models", "found `m`, expected a list"),
    ("POST", "/workers", {"url": "http://x:1", "model": ["m"]}, 400, "model", "did you mean `models`?"),
    ("POST", "/workers", [{"url": "http://x:1"}, {"url": "x"}], 400, "[1].url", "found `x`, expected http://HOST:PORT"),
    ("POST", "/workers", [{"url": "http://x:1"}, {"url": "http://x:1"}], 400, "[1].url", "again, expected each worker once"),
    ("POST", "/workers", [{"url": "http://x:1"}, {"url": "{url}"}], 409, "{url}", "is a worker already"),
    ("PATCH", "/workers/{id}", {"url": "http://x:1"}, 400, "url", "found another one"),
    ("PATCH", "/workers/{id}", {"models": "a"}, 400, "models", "found"),
    ("PATCH", "/workers/{id}", {}, 400, "", "no key"),
    ("DELETE", "/workers/{id}?now=1", None, 400, "now", "found `1`"),
    ("DELETE", "/workers/{id}?nwo=true", None, 400, "nwo", "found the parameter `nwo`"),
    ("POST", "/workers/{id}/drain?wait=soon", None, 400, "wait", "found `soon`"),
    ("POST", "/workers/{id}/drain", {"remove": 1}, 400, "remove", ""),
    ("DELETE", "/workers/x:1", None, 404, "", "no worker `x:1`"),
]


def lines_of(flat):
    """YAML with a line for each key, so that a mistake has a line of its own."""
    for name, value in nest(flat).items():
        if not isinstance(value, dict):
            yield f"{name}: {json.dumps(value)}"
            continue
        yield f"{name}:"
        for key, inner in value.items():
            yield f"  {key}: {json.dumps(inner)}"


def line_with(text, mark):
    return next(n for n, line in enumerate(text.splitlines(), 1) if mark in line)


def base_of(router, worker, more):
    flat = {
        "listen": f"127.0.0.1:{router.port}",
        "admin.listen": f"127.0.0.1:{router.admin_port}",
        **DEFAULTS,
        "routing.strategy": "roundrobin",
        "log.level": "info",
        "workers": [{"url": worker.url}],
        **more,
    }
    return "\n".join(lines_of(flat)) + "\n"


WORKERS = "kvway_workers"


def picture(router):
    """What must not change: /ready, the workers of the metrics, their list, and a request's answer."""
    ready = ask(router.admin_port, "GET", "/ready")
    samples = {key: value for key, value in router.metrics().items() if key[0] == WORKERS}
    assert samples
    workers = [(w["url"], w["state"], w["models"], w["sources"])
               for w in ask(router.admin_port, "GET", "/workers").json()]
    answer = router.ask("POST", CHAT, body=chat_body())
    assert answer.status == 200
    return ready.status, ready.body, samples, workers, answer.body


def running(workers, kvway, tmp_path, more=None):
    (worker,) = workers(1)
    router = kvway([worker], {"routing.strategy": "roundrobin", "log.level": "info", **(more or {})})
    id_ = worker.url.removeprefix("http://")
    until(lambda: ask(router.admin_port, "GET", f"/workers/{id_}").json()["health"] == "up")
    return worker, router, id_


@pytest.mark.parametrize("old, new, mark, key, said", FILE)
def test_in_the_file(workers, kvway, tmp_path, old, new, mark, key, said):
    worker, router, _ = running(workers, kvway, tmp_path)
    text = base_of(router, worker, {})
    router.config_path.write_text(text)
    assert ask(router.admin_port, "POST", "/reload").status == 200
    before = picture(router)
    assert text.count("\n" + old) == 1, old
    text = text.replace("\n" + old, "\n" + new, 1)
    router.config_path.write_text(text)
    answer = ask(router.admin_port, "POST", "/reload")
    assert answer.status == 422
    place = f"{router.config_path}:{line_with(text, mark)}:"
    (mistake,) = [m for m in answer.json()["mistakes"] if m.startswith(place)]
    assert mistake.split(": ", 1)[1].startswith(f"{key}: {said}" if key else said), mistake
    assert router.metric("kvway_config_last_reload_successful") == 0
    assert picture(router) == before
    logged = router.log().count(mistake)
    assert logged == 1
    router.signal(signal.SIGHUP)
    until(lambda: router.log().count(mistake) == 2)
    assert picture(router) == before


@pytest.mark.parametrize("text, line, key, said", LISTS)
def test_in_a_list_of_workers(workers, kvway, tmp_path, text, line, key, said):
    path = tmp_path / "list.yaml"
    path.write_text("workers: []\n")
    worker, router, _ = running(
        workers, kvway, tmp_path, {"discovery.file": str(path), "discovery.file_interval": "100ms"})
    assert router.metric("kvway_discovery_readable", source="file") == 1
    before = picture(router)
    (tmp_path / "new").write_text(text)
    (tmp_path / "new").rename(path)
    place = f"{path}:{line}:"
    until(lambda: "has mistakes and changes nothing" in router.log())
    (mistake,) = [row.split(place, 1)[1] for row in router.log().splitlines() if place in row]
    assert mistake.split(": ", 1)[1].startswith(f"{key}: " if key else said), mistake
    assert said in mistake
    assert router.metric("kvway_discovery_readable", source="file") == 0
    assert picture(router) == before


@pytest.mark.parametrize("method, path, body, status, field, said", BODIES)
def test_in_a_body(workers, kvway, tmp_path, method, path, body, status, field, said):
    worker, router, id_ = running(workers, kvway, tmp_path)
    before = picture(router)

    def fill(text):
        return text.replace("{id}", id_).replace("{url}", worker.url)

    if isinstance(body, (dict, list)):
        body = json.loads(fill(json.dumps(body)))
    answer = ask(router.admin_port, method, fill(path), body=body)
    assert answer.status == status
    message = answer.json()["error"]["message"]
    assert fill(field) in message and said in message, message
    assert picture(router) == before


def test_a_file_that_is_gone(workers, kvway, tmp_path):
    worker, router, _ = running(workers, kvway, tmp_path)
    before = picture(router)
    router.config_path.rename(tmp_path / "elsewhere")
    answer = ask(router.admin_port, "POST", "/reload")
    assert answer.status == 422
    assert answer.json()["mistakes"] == [f"{router.config_path}: cannot be opened: No such file or directory"]
    assert picture(router) == before


def test_all_mistakes_of_a_file_are_named_at_once(workers, kvway, tmp_path):
    worker, router, _ = running(workers, kvway, tmp_path)
    text = base_of(router, worker, {}).replace("loops: 2", "loops: two").replace('level: "info"', "level: loud")
    router.config_path.write_text(text + "more: 1\n")
    mistakes = ask(router.admin_port, "POST", "/reload").json()["mistakes"]
    assert [m.split(": ")[1] for m in mistakes] == ["loops", "log.level", "more"]
