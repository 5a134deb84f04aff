"""/openapi.json on the admin address: what it describes is there, and what is there it describes."""

import pathlib
import re
import subprocess

import pytest

from rig.client import ask
from rig.router import PROGRAM

ADMIN = pathlib.Path(__file__).parents[2] / "src" / "router" / "admin"
METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture
def described(pair):
    worker, router = pair(lambda ex: ex.respond(200, body=b"{}"))
    answer = ask(router.admin_port, "GET", "/openapi.json")
    assert answer.status == 200
    return worker, router, answer.json()


def refs(node):
    if isinstance(node, dict):
        yield from ([node["$ref"]] if "$ref" in node else [])
        for value in node.values():
            yield from refs(value)
    elif isinstance(node, list):
        for value in node:
            yield from refs(value)


def test_it_is_whole(described):
    _, _, doc = described
    assert doc["openapi"] == "3.1.0"
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True).stdout.split()[1]
    assert doc["info"]["version"] == version
    for ref in refs(doc):
        node = doc
        for step in ref.removeprefix("#/").split("/"):
            node = node[step]
    ids = []
    tags = {tag["name"] for tag in doc["tags"]}
    for path, item in doc["paths"].items():
        names = {p["$ref"].rsplit("/", 1)[1].lower() for p in item.get("parameters", [])}
        assert names == set(re.findall(r"{(\w+)}", path)), path
        for method, operation in item.items():
            if method == "parameters":
                continue
            assert method in METHODS
            assert operation["summary"].endswith(".") and operation["responses"], path
            assert set(operation["tags"]) <= tags
            ids.append(operation["operationId"])
    assert len(ids) == len(set(ids))


def test_each_path_and_method_is_answered_and_no_other(described):
    worker, router, doc = described
    name = worker.url.removeprefix("http://")
    for path, item in doc["paths"].items():
        if path == "/workers/{id}":
            continue  # below: it ends with DELETE
        for method in METHODS:
            answer = ask(router.admin_port, method.upper(), path.replace("{id}", name), [("X-Requested-With", "tests")])
            if method in item:
                assert answer.status not in (404, 405), (method, path, answer)
                assert str(answer.status) in item[method]["responses"], (method, path, answer)
            else:
                assert answer.status in (404, 405), (method, path, answer)
    for method in ("get", "patch", "post", "put", "delete"):
        answer = ask(router.admin_port, method.upper(), f"/workers/{name}")
        if method in doc["paths"]["/workers/{id}"]:
            assert str(answer.status) in doc["paths"]["/workers/{id}"][method]["responses"], answer
        else:
            assert answer.status == 405


def test_what_the_sources_answer_is_described(described):
    _, router, doc = described
    paths = set(doc["paths"])
    found = set()
    for name in ("admin.c", "answer.c"):
        text = (ADMIN / name).read_text()
        found |= set(re.findall(r'KVW_SLICE\("(/[^"]+)"\)', text))
        found |= set(re.findall(r'[{ ]"(/[a-z_]+)"[,}]', text))
    found |= {"/broadcast/" + n for n in re.findall(r'^\t{"(\w+)", "/', (ADMIN / "broadcast.c").read_text(), re.M)}
    assert found - paths == set()
    assert len(found) > 10
    told = ask(router.admin_port, "GET", "/nothing").json()["error"]["message"]
    for start in re.findall(r" (/\S+)", told):
        assert any(p == start or p.startswith(start + "/") for p in paths), start


def test_what_workers_look_like_is_described(described):
    _, router, doc = described
    schemas = doc["components"]["schemas"]
    (worker,) = ask(router.admin_port, "GET", "/workers").json()
    assert set(worker) == set(schemas["Worker"]["properties"])
    assert set(schemas["Worker"]["required"]) <= set(worker)
    keys = re.findall(r'^KVW_WORKER_KEY\("(\w+)"', (ADMIN.parents[2] / "config" / "keys.def").read_text(), re.M)
    assert set(schemas["WorkerSettings"]["properties"]) == set(keys)


def test_what_explain_says_of_admission_is_described(pair):
    _, router = pair(config={"admission.enabled": True})
    doc = ask(router.admin_port, "GET", "/openapi.json").json()
    schema = doc["components"]["schemas"]["Explanation"]
    got = ask(router.admin_port, "POST", "/explain", body={"prompt": "x"}).json()
    admission = schema["properties"]["admission"]
    assert set(schema["properties"]) <= set(got)
    assert set(got["admission"]) == set(admission["properties"]) == set(admission["required"])
    promise = admission["properties"]["promise"]
    assert set(got["admission"]["promise"]) == set(promise["properties"]) == set(promise["required"])
    for key in ("verdict", "reason"):
        assert got["admission"][key] in admission["properties"][key]["enum"]
