"""What kvway has learned outlives it: snapshots, `kill -9`, restarted workers, damaged files."""

import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess

import pytest
from rig.client import CHAT, Client, ask, chat_body
from rig.router import PROGRAM, Router
from rig.wait import until

WORDS = "sea king ship island wind river morning boat story keys cache token".split()
CONVERSATIONS = 60


def prose(seed, length):
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) + str(rng.randrange(1000)) for _ in range(length // 8))


@pytest.fixture
def routers(tmp_path):
    """routers(workers, config): routers that share a snapshot, one after the other, killed in the end."""
    made = []

    def make(workers, config=None):
        flat = {
            "state.file": str(tmp_path / "state"),
            "state.interval": "1s",
            "http.decision_headers": "always",
            "drain.timeout": "5s",
            **(config or {}),
        }
        router = Router(tmp_path, workers, flat, name=f"kvway{len(made)}")
        made.append(router)
        return router.wait_up(workers)

    yield make
    for router in made:
        router.kill()
        assert "Sanitizer" not in router.log(), router.log()[-8000:]


def body_of(number):
    return chat_body(prose(f"conversation {number}", 4000))


def ask_all(router, headers=()):
    """Predicted tokens of each conversation, and the worker of each."""
    predicted, homes = [], []
    with Client(router.port) as client:
        for number in range(CONVERSATIONS):
            got = client.ask("POST", CHAT, headers, body_of(number))
            assert got.status == 200, got
            predicted.append(int(got.headers.get("x-kvway-predicted-cached-tokens", "0")))
            homes.append(got.headers.get("x-kvway-worker"))
    return predicted, homes


def wait_snapshot(router, more=2):
    """Until a snapshot was begun and ended after this call."""
    count = router.metric("kvway_state_snapshots_total", result="ok")
    until(lambda: router.metric("kvway_state_snapshots_total", result="ok") >= count + more, 20, "a snapshot")


def show(path):
    return subprocess.run([PROGRAM, "state", path], capture_output=True, text=True)


def test_killed_and_started_it_predicts_what_it_did(kvsim, routers, tmp_path):
    fleet = kvsim(4)
    first = routers(fleet)
    ask_all(first)
    before, homes = ask_all(first)
    assert min(before) > 500
    wait_snapshot(first)
    first.kill()
    size = os.stat(tmp_path / "state").st_size
    second = routers(fleet)
    after, now = ask_all(second)
    assert sum(after) >= 0.95 * sum(before)
    # One may go elsewhere for the load that a slow answer before it has left.
    assert sum(a == b for a, b in zip(now, homes, strict=True)) >= 0.95 * CONVERSATIONS, (now, homes)
    assert second.metric("kvway_state_recalled", result="ok") == 1
    assert second.metric("kvway_state_recalled_workers") == 4
    assert f"snapshot read file={tmp_path / 'state'} bytes={size} " in second.log()
    shown = show(tmp_path / "state")
    assert shown.returncode == 0, shown
    assert "prefix tree: nodes" in shown.stdout and shown.stdout.endswith("whole\n")
    assert oct(os.stat(tmp_path / "state").st_mode & 0o777) == "0o600"


def test_without_a_snapshot_it_would_not(kvsim, routers):
    """The test above can fail."""
    fleet = kvsim(2)
    first = routers(fleet)
    ask_all(first)
    before, _ = ask_all(first)
    wait_snapshot(first)
    first.kill()
    after, _ = ask_all(routers(fleet, {"state.file": ""}))
    assert sum(after) < 0.2 * sum(before)


def test_a_worker_that_was_restarted_meanwhile_is_forgotten(workers, routers):
    fleet = workers(3)
    for worker in fleet:
        worker.metrics = "process_start_time_seconds 1000\n"
    first = routers(fleet)
    until(lambda: "worker is up" in first.log() or first.metric("kvway_workers", state="usable") == 3, 10, "probes")
    ask_all(first)
    before, homes = ask_all(first)
    wait_snapshot(first)
    first.kill()
    lost = homes[0]
    (restarted,) = [w for w in fleet if w.url.endswith(lost) or w.url == lost]
    restarted.metrics = "process_start_time_seconds 2000\n"
    second = routers(fleet)
    until(lambda: second.metric("kvway_worker_cache_losses_total") == 1, 10, "the restart is noticed")
    after, now = ask_all(second)
    for number in range(CONVERSATIONS):
        if homes[number] == lost:
            assert after[number] < 300, (number, after[number])
        else:
            assert after[number] >= 0.95 * before[number]


def test_sigterm_writes_a_last_one(kvsim, routers, tmp_path):
    fleet = kvsim(2)
    first = routers(fleet, {"state.interval": "1h"})
    until(lambda: first.metric("kvway_workers", state="usable") == 2, 10, "probes")
    ask_all(first)
    before, _ = ask_all(first)
    assert not (tmp_path / "state").exists()
    first.signal(signal.SIGTERM)
    assert first.wait(20) == 0
    assert "last snapshot" in first.log()
    after, _ = ask_all(routers(fleet))
    assert sum(after) >= 0.95 * sum(before)


def test_sessions_stay_with_their_workers(kvsim, routers):
    fleet = kvsim(5)
    config = {"routing.strategy": "session"}

    def homes(router):
        return [
            router.ask("POST", CHAT, [("x-session-id", f"user {n}")], chat_body("hi")).headers.get("x-kvway-worker")
            for n in range(40)
        ]

    first = routers(fleet[:3], config)
    until(lambda: first.metric("kvway_workers", state="usable") == 3, 10, "probes")
    placed = homes(first)
    wait_snapshot(first)
    first.kill()
    # More workers, so that places by hash would be others.
    second = routers(fleet, config)
    until(lambda: second.metric("kvway_workers", state="usable") == 5, 10, "probes")
    assert homes(second) == placed
    second.wait_idle()  # a request is counted when it ends
    assert second.metric("kvway_decisions_total", reason="session") == 40


def test_owners_of_responses_and_counts_of_limits_are_known(workers, routers, tmp_path):
    fleet = workers(4)
    for worker in fleet:
        worker.metrics = "process_start_time_seconds 1000\n"
        worker.script = lambda ex: (
            ex.read_body(),
            ex.respond(body={"id": f"resp_{ex.worker.port}", "usage": {"prompt_tokens": 40, "total_tokens": 50}}),
        )
    keys = tmp_path / "keys.yaml"
    digest = hashlib.sha256(b"sk-team").hexdigest()
    keys.write_text(json.dumps({"keys": [{"name": "team", "sha256": digest, "tokens_per_day": 1000}]}))
    config = {"auth.keys_file": str(keys), "routing.strategy": "roundrobin"}
    headers = [("authorization", "Bearer sk-team")]

    first = routers(fleet, config)
    made, left = {}, []
    for _ in range(4):
        got = first.ask("POST", "/v1/responses", headers, {"model": fleet[0].models[0], "input": "hello"})
        assert got.status == 200, got
        made[got.json()["id"]] = got.headers.get("x-kvway-worker")
        left.append(int(got.headers.get("x-ratelimit-remaining-tokens")))
    assert len(made) == 4
    wait_snapshot(first)
    first.kill()
    second = routers(fleet, config)
    for name, worker in made.items():
        for _ in range(3):
            got = second.ask("GET", f"/v1/responses/{name}", headers)
            assert got.headers.get("x-kvway-worker") == worker
    got = second.ask("POST", "/v1/responses", headers, {"model": fleet[0].models[0], "input": "hello"})
    # The first answer says what a kvway without a past has left. The tokens of an answer may be counted a moment after it.
    assert int(got.headers.get("x-ratelimit-remaining-tokens")) <= left[0] - 4 * 40


@pytest.mark.parametrize("damage", ["flip", "cut", "longer", "version"])
def test_a_damaged_snapshot_costs_warmth_alone(damage, kvsim, routers, tmp_path):
    path = tmp_path / "state"
    fleet = kvsim(2)
    first = routers(fleet)
    ask_all(first)
    wait_snapshot(first)
    first.kill()
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 16
    elif damage == "cut":
        del data[-1:]
    elif damage == "longer":
        data += b"\0"
    else:
        data[8] = 99
    path.write_bytes(data)
    shown = show(path)
    assert shown.returncode == 1 and "not whole" in shown.stderr
    second = routers(fleet)
    assert second.metric("kvway_state_recalled", result="refused") == 1
    assert "starts cold" in second.log()
    health = ask(second.admin_port, "GET", "/health")
    assert health.status == 200 and health.json()["state_refused"]
    ask_all(second)
    wait_snapshot(second)
    assert show(path).returncode == 0


def test_what_is_not_kvways_is_left_alone(kvsim, routers, tmp_path):
    (tmp_path / "state").write_text("keys:\n  - name: precious\n")
    router = routers(kvsim(1))
    ask_all(router)
    until(lambda: router.metric("kvway_state_snapshots_total", result="failed") >= 1, 10, "a try")
    assert (tmp_path / "state").read_text() == "keys:\n  - name: precious\n"
    assert ask(router.admin_port, "GET", "/health").json()["last_snapshot"] == "failed"
    assert "not kvway's" in router.log()


def test_a_folder_that_is_missing_is_said_and_clients_are_served(kvsim, routers, tmp_path):
    lost = tmp_path / "nowhere" / "state"
    router = routers(kvsim(1), {"state.file": str(lost)})
    ask_all(router)
    assert "no snapshot can be written there" in router.log()
    until(lambda: router.metric("kvway_state_snapshots_total", result="failed") >= 1, 10, "a try")
    assert router.metric("kvway_state_snapshots_total", result="ok") == 0
    checked = subprocess.run([PROGRAM, "check", "-c", router.config_path], capture_output=True, text=True)
    assert checked.returncode == 1
    assert f"no snapshot can be written to {lost}: its folder: No such file or directory" in checked.stderr
    pathlib.Path(lost.parent).mkdir()
    wait_snapshot(router)
    checked = subprocess.run([PROGRAM, "check", "-c", router.config_path], capture_output=True, text=True)
    assert checked.returncode == 0, checked


def test_no_prompt_and_no_key_is_in_it(kvsim, routers, tmp_path):
    router = routers(kvsim(2))
    secret = "the password is swordfish"
    for _ in range(2):
        router.ask("POST", CHAT, [("authorization", "Bearer sk-very-secret")], chat_body(secret * 40))
    wait_snapshot(router)
    data = (tmp_path / "state").read_bytes()
    assert b"swordfish" not in data and b"very-secret" not in data


def test_a_shorter_interval_holds_at_once(workers, routers, tmp_path):
    """It was waited for after the next snapshot, which was to come in an hour."""
    router = routers(workers(1), {"state.interval": "1h"})
    config = tmp_path / "kvway0.yaml"
    text = config.read_text()
    assert "1h" in text
    config.write_text(text.replace("1h", "1s"))
    assert ask(router.admin_port, "POST", "/reload").status == 200
    wait_snapshot(router)
