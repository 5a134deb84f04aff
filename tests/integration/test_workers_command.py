"""`kvway workers`: the workers of a running router on the command line."""

import json
import subprocess
import threading

import pytest

from rig.client import CHAT, chat_body
from rig.router import PROGRAM
from rig.wait import until, unused_port


def id_of(worker):
    return worker.url.removeprefix("http://")


def run(router, *words, stdin="", admin=None):
    admin = admin or f"127.0.0.1:{router.admin_port}"
    return subprocess.run([PROGRAM, "workers", *words, "--admin", admin], input=stdin, text=True,
                          capture_output=True, timeout=60)


def rows(done):
    assert done.returncode == 0, done.stderr
    return {line.split()[0]: line for line in done.stdout.splitlines()[1:]}


def test_list_add_drain_and_remove(workers, kvway):
    first, second = workers(2)
    router = kvway([first])
    until(lambda: " up " in rows(run(router))[first.url])
    assert "config" in rows(run(router, "list"))[first.url]
    assert set(rows(run(router, "add", second.url, "--model", "tiny"))) == {second.url}
    assert "admin" in rows(run(router))[second.url]
    assert "draining" in rows(run(router, "drain", id_of(second), "--wait", "10s"))[second.url]
    assert "draining" in rows(run(router, "drain", second.url))[second.url]
    assert "draining" not in rows(run(router, "undrain", second.url))[second.url]
    assert "leaves" in rows(run(router, "remove", id_of(second)))[second.url]
    until(lambda: set(rows(run(router))) == {first.url})
    (shown,) = json.loads(run(router, "--json").stdout)
    assert shown["url"] == first.url


def test_add_takes_json(pair, workers):
    worker, router = pair()
    (other,) = workers(1)
    done = run(router, "add", "-", stdin=json.dumps({"url": other.url, "api_key": "k", "models": ["m"]}))
    assert set(rows(done)) == {other.url}
    done = run(router, "add", "-", stdin="nonsense")
    assert done.returncode == 1 and "the body is not JSON" in done.stderr


def test_a_weight(pair):
    worker, router = pair()
    assert set(rows(run(router, "weight", id_of(worker), "0.25"))) == {worker.url}
    (shown,) = json.loads(run(router, "--json").stdout)
    assert shown["weight"] == 0.25 and shown["state"] == "up"
    done = run(router, "weight", id_of(worker), "2")
    assert done.returncode == 1 and "weight: found `2`, expected" in done.stderr


def test_the_router_in_a_file(pair):
    worker, router = pair()
    done = subprocess.run([PROGRAM, "workers", "-c", router.config_path], text=True, capture_output=True,
                          timeout=60)
    assert worker.url in rows(done)


def test_what_is_refused(pair):
    worker, router = pair()
    done = run(router, "drain", "x:1")
    assert done.returncode == 1 and done.stderr == "kvway workers: no worker `x:1`; GET /workers lists them\n"
    done = run(router, "add", worker.url)
    assert done.returncode == 1 and "is a worker already" in done.stderr
    done = run(router, "add", "nonsense")
    assert done.returncode == 1 and "url: found `nonsense`, expected" in done.stderr


def test_a_drain_that_takes_too_long(pair):
    go = threading.Event()
    worker, router = pair()

    def script(ex):
        go.wait(30)
        ex.respond(200, body=b"{}")

    worker.script = script
    thread = threading.Thread(target=lambda: router.ask("POST", CHAT, body=chat_body()))
    thread.start()
    until(lambda: worker.requests)
    done = run(router, "drain", id_of(worker), "--wait", "200ms")
    go.set()
    thread.join()
    assert done.returncode == 1
    assert done.stderr == f"kvway workers: {id_of(worker)} still has requests after 200ms\n"


def test_no_router():
    done = run(None, admin=f"127.0.0.1:{unused_port()}")
    assert done.returncode == 3
    assert "no kvway answers on" in done.stderr and "Is it running?" in done.stderr


@pytest.mark.parametrize("words", (["dran"], ["drain"], ["add"], ["--wait", "1s"]))
def test_wrong_usage(words):
    assert run(None, *words, admin="127.0.0.1:1").returncode == 2
