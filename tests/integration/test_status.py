"""/status of the admin address, `kvway top`, and the problems that both name, as `kvway explain` does."""

import json
import os
import pathlib
import pty
import random
import re
import select
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from rig import tls
from rig.client import CHAT, COMPLETIONS, ask, chat_body
from rig.router import PROGRAM
from rig.sim import Sim
from rig.status import WORKERS, command, of_worker, status, told, totals, wait_problem
from rig.wait import until, unused_port

CHATS = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


def chats(router, count=6, **more):
    body = {**CHATS, "stream": True, "stream_options": {"include_usage": True}, **more}
    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(lambda _: router.ask("POST", CHAT, body=body, timeout=60), range(count)))
    assert all(answer.status == 200 for answer in answers), answers
    return answers


# --- the document -------------------------------------------------------------------------------


def test_its_figures_are_those_of_metrics(kvsim, kvway):
    workers = kvsim(2)
    router = kvway(workers, {"service_level.ttft": "30s"})
    chats(router)
    router.ask("POST", CHAT, body={**CHATS, "model": "nowhere"})
    router.wait_idle()

    def equal():
        samples, now = router.metrics(), status(router)
        assert {worker["url"] for worker in now["workers"]} == {worker.url for worker in workers}
        rows = all(of_worker(samples, w["url"]) == {name: w[name] or 0 for name in WORKERS} for w in now["workers"])
        return rows and now["totals"] == totals(samples) and now["totals"]["ok"] == 6

    until(equal, 10, "equal figures")
    now = status(router)
    assert now["totals"]["promises_kept"] == 6 and now["totals"]["client_error"] == 1
    assert now["totals"]["completion_tokens"] == 48 and now["minute"]["ttft_p50_ms"] > 0
    assert sum(now["hour"]["requests"]) == 7 and len(now["hour"]["requests"]) <= 121
    assert now["kvway"]["keys"] is False and now["waiting"][0]["requests"] == 0


def test_a_document_is_made_at_most_twice_a_second(kvsim, kvway):
    router = kvway(kvsim(1))
    began = time.monotonic()
    made = {status(router)["kvway"]["time"] for _ in range(200)}
    # One of before it began, one at once, and one for each half second since.
    assert len(made) <= 2 + (time.monotonic() - began) / 0.5, sorted(made)


def test_hot_prefixes_are_counted_with_their_workers(kvsim, kvway):
    (worker,) = kvsim(1)
    router = kvway([worker], {"loops": 1})
    system = "You are a helpful assistant. " * 80
    for i in range(12):
        body = {**CHATS, "messages": [{"role": "system", "content": system}, {"role": "user", "content": f"{i} " * 300}]}
        assert router.ask("POST", CHAT, body=body, timeout=30).status == 200

    def hot():
        items = status(router)["prefixes"]["items"]
        return items and items[0]["hits"] >= 8 and items

    items = until(hot, 10, "a hot prefix")
    assert items[0]["workers"] == [worker.url] and items[0]["tokens"] > 200
    assert re.fullmatch("[0-9a-f]{16}", items[0]["prefix"])
    now = status(router)["prefixes"]
    assert now["seen"] == now["ended"] >= 12
    # The same hash stands in a request's story.
    lines = ask(router.admin_port, "GET", "/trace?last=5").body.decode().splitlines()
    ways = [note for line in lines for note in json.loads(line).get("way", [])]
    assert items[0]["prefix"] in [note.get("prefix") for note in ways if note["what"] == "attempt"]


def test_other_methods_are_refused(kvsim, kvway):
    router = kvway(kvsim(1))
    for path in ("/status", "/ui"):
        assert ask(router.admin_port, "POST", path, [("X-Requested-With", "tests")]).status == 405


# --- kvway top ----------------------------------------------------------------------------------


def test_top_names_workers_and_figures(kvsim, kvway):
    workers = kvsim(2)
    router = kvway(workers)
    chats(router)
    router.wait_idle()
    done = command(router, "top", "--once")
    assert done.returncode == 0 and done.stderr == "" and "\033" not in done.stdout
    for worker in workers:
        row = next(line for line in done.stdout.splitlines() if line.startswith(worker.url.removeprefix("http://")))
        assert row.split()[1] == "up"
    assert "0 problems" in done.stdout and "from cache" in done.stdout
    assert json.loads(command(router, "top", "--once", "--json").stdout)["totals"]["ok"] == 6


def test_top_draws_again_and_again_in_a_terminal(kvsim, kvway):
    router = kvway(kvsim(1))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(PROGRAM, ["kvway", "top", "--admin", f"127.0.0.1:{router.admin_port}"])
    seen = b""

    def drawn():
        nonlocal seen
        while select.select([terminal], [], [], 0)[0]:
            seen += os.read(terminal, 65536)
        return seen.count(b"\033[H") >= 3

    until(drawn, 20, "three screens")
    os.kill(pid, signal.SIGTERM)  # a test run in the background ignores SIGINT, and so would the child
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    os.close(terminal)
    assert seen.count(b"\033[2J") == 1 and b"kvway " in seen


def test_top_says_what_it_cannot_show(kvway, workers, tmp_path):
    port = unused_port()
    dead = command(type("R", (), {"admin_port": port}), "top", "--once")
    assert dead.returncode == 3 and f"127.0.0.1:{port}" in dead.stderr
    (worker,) = workers(1)
    other = command(type("R", (), {"admin_port": int(worker.url.rsplit(":", 1)[1])}), "top", "--once")
    assert other.returncode == 1 and "no kvway with /status" in other.stderr


def test_top_prints_no_control_characters(workers):
    evil = "a\x1b[2J\x9b2Jb\x07"
    (worker,) = workers(1)
    router = type("R", (), {"admin_port": int(worker.url.rsplit(":", 1)[1])})
    document = {
        "kvway": {"version": evil, "strategy": evil},
        "problems": [{"severity": evil, "what": evil, "why": evil, "do": evil}],
        "workers": [{"id": evil, "state": evil, "usable": True}],
        "prefixes": {"items": [{"prefix": evil}]},
    }
    for code, body, returned in ((200, document, 0), (503, {"error": {"message": evil}}, 1)):
        worker.script = lambda ex: ex.respond(code, body=body)  # noqa: B023
        done = command(router, "top", "--once")
        assert done.returncode == returned, done
        assert "a?[2J?2Jb?" in done.stdout + done.stderr
        assert not set(done.stdout + done.stderr) & set("\x1b\x9b\x07")


# --- problems -----------------------------------------------------------------------------------


def test_keys_that_problems_name_exist():
    root = pathlib.Path(__file__).resolve().parents[2]
    keys = set(re.findall(r'^KVW_(?:WORKER_)?(?:KEY|SECTION)\((?:\w+, )?"([^"]+)"', (root / "config/keys.def").read_text(), re.M))
    found = set()
    for path in (root / "src/router/status").glob("problems_*.c"):
        text = " ".join(re.findall(r'"((?:[^"\\]|\\.)*)"', path.read_text()))
        found |= set(re.findall(r"workers\[\]\.(\w+)", text)) | set(re.findall(r"(?<![\w/.\]])[a-z_]+(?:\.[a-z_0-9]+)+", text))
    assert len(found) > 15 and found <= keys, found - keys


def test_a_fleet_without_faults_has_no_problem(kvsim, kvway):
    router = kvway(kvsim(2))
    chats(router)
    until(lambda: status(router)["totals"]["ok"] == 6)
    until(lambda: status(router)["problems"] == [], 30, "no problem")


def test_a_wrong_model_name(kvsim, kvway):
    router = kvway(kvsim(1))
    wrong = {**CHATS, "model": "tiny-v2"}
    assert router.ask("POST", CHAT, body=wrong).status == 404
    problem, top, explained = told(router, "unknown_model", wrong)
    assert "`tiny-v2`" in problem["what"] and "Workers have: `tiny`." in problem["why"]
    assert "`models`" in problem["do"] and "`tiny-v2`" in top
    assert "The model `tiny-v2` does not exist." in explained and "workers have: tiny" in explained


def test_a_model_that_came_later(workers, kvway):
    (worker,) = workers(1)
    worker.models = ("tiny",)
    router = kvway([worker])
    assert router.ask("POST", CHAT, body={**CHATS, "model": "late"}).status == 404
    wait_problem(router, "unknown_model")
    worker.models = ("tiny", "late")
    until(lambda: router.ask("POST", CHAT, body={**CHATS, "model": "late"}).status == 200, 30, "the model")
    until(lambda: all(p["code"] != "unknown_model" for p in status(router)["problems"]), 30, "no problem any more")


def test_a_worker_asleep(kvsim, kvway):
    (worker,) = kvsim(1)
    router = kvway([worker])
    answer = ask(router.admin_port, "POST", "/broadcast/sleep?level=1", [("X-Requested-With", "tests")])
    assert answer.status == 200, answer
    problem, top, explained = told(router, "worker_asleep", CHATS)
    assert problem["worker"] == worker.url and "sleep mode" in problem["why"]
    assert "/broadcast/wake_up?workers=" in problem["do"]
    assert "No worker can be used" in top and f"{worker.url} is asleep" in top
    # What it says to do, does it.
    words = re.search(r"curl (.*)\.$", problem["do"]).group(1)
    url = re.search(r"'(http://[^']*)'", words).group(1)
    target = url.split(str(router.admin_port), 1)[1]
    assert ask(router.admin_port, "POST", target, [("X-Requested-With", "curl")]).status == 200
    until(lambda: status(router)["problems"] == [], 20, "no problem any more")


def test_a_worker_asleep_is_woken_by_tls_where_the_admin_address_speaks_it(kvsim, kvway, authority):
    (worker,) = kvsim(1)
    cert, key = authority.issue("admin", "IP:127.0.0.1")
    router = kvway([worker], {"admin.tls.certificate": str(cert), "admin.tls.key": str(key)}, up=False)
    until(lambda: router.alive() and listens(router.admin_port), 15, "the admin address")
    assert ask(worker.port, "POST", "/sleep?level=1").status == 200

    def problems():
        argv = [PROGRAM, "top", "--once", "--json", "-c", router.config_path]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert done.returncode in (0, 4), done.stderr
        return [p["do"] for p in json.loads(done.stdout)["problems"] if p["code"] == "worker_asleep"]

    assert f"'https://127.0.0.1:{router.admin_port}/broadcast/wake_up?workers=" in until(problems, 30, "the problem")[0]


def test_a_certificate_that_expires_while_it_is_used(authority, workers, kvway):
    (worker,) = workers(1)
    end = time.time() + 20
    dated = authority.issue_expired("dated", "IP:127.0.0.1", time.strftime("%y%m%d%H%M%SZ", time.gmtime(end)))
    router = kvway([worker], {"tls.certificate": str(dated[0]), "tls.key": str(dated[1])}, up=False)
    until(lambda: router.alive() and listens(router.admin_port), 15, "the admin address")
    assert wait_problem(router, "certificate_expires")["severity"] == "warning"
    problem, _, _ = told(router, "certificate_expired", chat_body(), 60)
    assert time.time() >= end - 1 and problem["severity"] == "error"
    assert str(dated[0]) in problem["what"] and time.strftime("%Y-%m-%d %H:%M", time.gmtime(end)) in problem["why"]
    assert command(router, "top", "--once").returncode == 4


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def test_a_worker_whose_certificate_has_expired(authority, kvway):
    worker = tls.TlsWorker(authority.issue_expired("worker-old", "IP:127.0.0.1"))
    try:
        router = kvway([worker], {"upstream.tls.ca_file": str(authority.cert)}, up=False)
        until(lambda: router.alive() and listens(router.admin_port), 15, "the admin address")
        problem, top, explained = told(router, "worker_certificate", chat_body())
        assert "certificate" in problem["why"] and "expired" in problem["why"]
        assert "Renew the worker's certificate" in explained and "down" in top
    finally:
        worker.stop()


def test_overload(kvsim, kvway):
    router = kvway(kvsim(1, profile="reference"), {"service_level.ttft": "500ms"})
    stop = threading.Event()
    statuses = []

    def client(number):
        turn = 0
        while not stop.is_set():
            turn += 1
            prompt = random.Random(f"{number} {turn}").choices(range(50000), k=8000)  # 0.5 s of prefill
            body = {"model": "tiny", "prompt": prompt, "max_tokens": 1, "stream": True}
            statuses.append(router.ask("POST", COMPLETIONS, body=body, timeout=120).status)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    try:
        problem, top, explained = told(router, "refused_service_level", CHATS, 60)
        assert problem["why"].startswith("Overload: ") and "service_level.ttft" in problem["do"]
        assert "refused with 429" in top and "refused with 429" in explained
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert 429 in statuses


def test_a_slow_worker_is_named_with_its_peers(tmp_path, kvway):
    fast = Sim(tmp_path, 2, profile="llama-8b-h100", name="fast")
    sims = [fast, Sim(tmp_path, 1, profile="qwen2.5-72b-4xa100", name="slow")]
    try:
        workers = [w for sim in sims for w in sim.workers]
        router = kvway(workers, {"routing.strategy": "roundrobin"})

        def slow():
            chats(router, 6, max_tokens=40)
            return [p for p in status(router)["problems"] if p["code"] == "worker_slow"]

        problem = until(slow, 60, "a slow worker")[0]
        assert problem["worker"] == workers[2].url, problem
        assert "ms a token, its 2 peers of model tiny" in problem["what"]
        assert "the machine or the engine's settings" in problem["why"]
        assert f"kvway workers drain {workers[2].url.removeprefix('http://')}" in problem["do"]
        row = next(r for r in command(router, "top", "--once").stdout.splitlines() if r.startswith(f"127.0.0.1:{workers[2].port}"))
        assert row.split()[1] == "slow"
    finally:
        for sim in sims:
            sim.kill()


def test_a_dead_worker(tmp_path, kvway):
    sims = [Sim(tmp_path, 1, name=f"sim{i}") for i in range(2)]
    try:
        router = kvway([sim.workers[0] for sim in sims])
        sims[1].kill()
        problem = wait_problem(router, "worker_down")
        assert problem["worker"] == sims[1].workers[0].url and "/health" in problem["why"]
        assert command(router, "top", "--once").returncode == 4
    finally:
        for sim in sims:
            sim.kill()


def test_a_reload_that_was_refused(kvsim, kvway):
    router = kvway(kvsim(1))
    before = router.config_path.read_text()
    router.config_path.write_text(before.replace('"loops": 2', '"loops": "many"'))
    assert ask(router.admin_port, "POST", "/reload", [("X-Requested-With", "tests")]).status == 422
    problem = wait_problem(router, "reload_refused")
    assert str(router.config_path) in problem["do"]
    router.config_path.write_text(before)
    assert ask(router.admin_port, "POST", "/reload", [("X-Requested-With", "tests")]).status == 200
    until(lambda: status(router)["problems"] == [], 10, "no problem any more")


def test_a_snapshot_that_cannot_be_written(kvsim, kvway, tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    router = kvway(kvsim(1), {"state.file": str(folder / "snapshot"), "state.interval": "1s"})
    until(lambda: (folder / "snapshot").exists(), 20, "a snapshot")
    for name in folder.iterdir():
        name.unlink()
    folder.rmdir()
    problem = wait_problem(router, "state_not_written")
    assert str(folder / "snapshot") in problem["why"]
    folder.mkdir()


def test_redis_that_is_lost(kvsim, kvway, redis):
    router = kvway(kvsim(1), {"replicas.redis": redis.url, "replicas.life": "1s"})
    redis.stop()
    problem = wait_problem(router, "redis_lost")
    assert "replicas.redis" in problem["why"]
