"""kvtier erase: a tenant's chunks leave every tier, by a store's owner or without one, and stay away."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest
from rig import kvtier_owner
from rig.kvtierd import Kvtierd
from rig.redis import SERVER, RedisServer
from rig.router import BUILD
from rig.wait import until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = BUILD / "cache/command/kvtier"
MODEL = "ab" * 32
CHUNKS = kvtier_owner.CHUNKS
BYTES = CHUNKS * (kvtier_owner.SIZE // 32 * 32)


def kvtier(*arguments, status=0):
    run = subprocess.run(
        [PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == status, (arguments, run.returncode, run.stdout, run.stderr)
    assert "Sanitizer" not in run.stderr and "runtime error" not in run.stderr, run.stderr
    return run


def erase(*arguments, status=0):
    (one,) = json.loads(kvtier("erase", "--json", *arguments, status=status).stdout)
    one["chunks"] = {t["tier"]: t["chunks"] for t in one["tiers"] if t["counted"] == "counted"}
    one["bytes"] = {t["tier"]: t["bytes"] for t in one["tiers"] if t["counted"] == "counted"}
    return one


def chunks_of(path):
    """Chunks of each tenant on disk, by the program's own words."""
    (one,) = json.loads(kvtier("stat", "--json", path).stdout)
    return sorted(tenant["chunks"] for tenant in one["tenants"])


class Owner:
    def __init__(self, path, *tenants, l2="", **shared):
        config = {"fingerprint": MODEL, "l1": {"capacity": "32MiB"}, "nvme": {"path": str(path), "capacity": "64MiB"},
                  "l2": {"url": l2, **shared}}  # fmt: skip
        env = {**os.environ, "KVTIER_LIBRARY": str(BUILD / "cache/core/libkvtier.so.1")}
        self.process = subprocess.Popen(
            [sys.executable, kvtier_owner.__file__, ROOT / "cache/python", json.dumps(config), *tenants],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0


@pytest.fixture
def owner(tmp_path):
    owners = []

    def start(*tenants, store="stores", **options):
        owners.append(Owner(tmp_path / store, *tenants, **options))
        return owners[-1]

    yield start
    for one in owners:
        one.kill()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "stores"


def test_a_running_owner_erases_and_a_kill_brings_nothing_back(owner, path):
    one = owner("alice", "bob")
    seen = erase("--tenant", "alice", "--dry-run", path)
    assert seen["owned"] and seen["owner_pid"] == one.process.pid and seen["dry_run"]
    assert seen["chunks"] == {"l1": CHUNKS, "nvme": CHUNKS} and one.ask("hits alice") == str(CHUNKS)
    done = erase("--tenant", "alice", path)
    one.process.send_signal(signal.SIGKILL)
    one.kill()
    assert done["done"] and done["chunks"] == {"l1": CHUNKS, "nvme": CHUNKS}
    assert done["bytes"] == {"l1": BYTES, "nvme": BYTES}
    assert chunks_of(path) == [CHUNKS]
    again = owner()
    assert (again.ask("hits alice"), again.ask("hits bob")) == ("0", str(CHUNKS))
    assert erase("--tenant", "alice", path)["chunks"]["nvme"] == 0


def test_stat_says_what_tenants_have_in_memory(owner, path):
    one = owner("alice", "bob")
    assert one.ask("lease alice") == str(CHUNKS)
    (stat,) = json.loads(kvtier("stat", "--json", path).stdout)
    assert [(t["chunks"], t["l1_chunks"]) for t in stat["tenants"]] == [(CHUNKS, CHUNKS)] * 2
    assert all(t["l1_bytes"] >= t["payload_bytes"] for t in stat["tenants"])
    assert stat["l1_others"] == {"chunks": 0, "bytes": 0}  # of tenants beyond those that are named
    text = kvtier("stat", path).stdout
    assert text.count(f"{CHUNKS} chunks      1 MiB in memory") == 2, text
    assert one.ask("check") == "right"
    one.end()
    assert "in memory" not in kvtier("stat", path).stdout
    assert "l1_others" not in json.loads(kvtier("stat", "--json", path).stdout)[0]


def test_a_key_takes_the_ends_of_its_chunk_along(owner, path):
    one = owner("alice")
    assert one.ask("put_ends alice") == str(CHUNKS)
    key = kvtier_owner.key_of("alice", 2).hex()
    assert erase("--key", key, path)["chunks"] == {"l1": 2, "nvme": 2}
    one.process.send_signal(signal.SIGKILL)
    one.kill()
    again = owner()
    assert (again.ask("hits alice"), again.ask("ends alice")) == (str(CHUNKS - 1),) * 2


def test_a_reader_keeps_its_chunks_until_it_is_done(owner, path):
    one = owner("alice")
    assert one.ask("lease alice") == str(CHUNKS)
    text = kvtier("erase", "--tenant", "alice", path).stdout
    assert f"l1              {CHUNKS} chunks" in text and "erased, also after a crash" in text
    assert one.ask("hits alice") == "0" and one.ask("check") == "right" and one.ask("hits alice") == "0"
    one.end()
    assert not list(path.glob("*/*/admin"))


def test_a_store_without_an_owner_is_erased_and_keeps_the_rest(owner, path):
    owner("alice", "bob").end()
    name = kvtier_owner.key_of("bob", 3).hex()
    assert erase("--key", name, "--tenant", "alice", path)["chunks"] == {"nvme": 0}
    assert erase("--key", name, "--tenant", "bob", path)["chunks"] == {"nvme": 1}
    assert erase("--tenant", "alice", "--model", MODEL[:12], path)["chunks"] == {"nvme": CHUNKS}
    assert chunks_of(path) == [CHUNKS - 1]
    one = owner()
    assert (one.ask("hits alice"), one.ask("hits bob")) == ("0", str(CHUNKS - 1))
    one.kill()
    hashes = [t["tenant"] for t in json.loads(kvtier("stat", "--json", path).stdout)[0]["tenants"]]
    assert erase("--tenant-hash", hashes[0], "--dry-run", path)["chunks"] == {"nvme": CHUNKS - 1}
    assert erase("--model", MODEL, path)["chunks"] == {"nvme": CHUNKS - 1}
    assert chunks_of(path) == []


def test_a_shared_tier_is_erased_for_all_of_its_readers(owner, path, redis, tmp_path):
    one = owner("alice", "bob", l2=redis.url)
    done = erase("--tenant", "alice", path)
    assert done["done"] and [t["counted"] for t in done["tiers"]] == ["counted", "counted", "unknown"]
    one.kill()
    assert erase("--model", MODEL, path)["chunks"] == {"nvme": CHUNKS}  # without --config Redis is left alone
    config = tmp_path / "kvtier.yaml"
    config.write_text(f"l2: {{url: '{redis.url}'}}\nfingerprint: {MODEL}\n")

    def of_key(tenant, *options):
        name = kvtier_owner.key_of(tenant, 2).hex()
        return erase("--config", config, "--key", name, *options)["chunks"]["l2"]

    assert (of_key("alice", "--dry-run"), of_key("bob", "--dry-run")) == (0, 1)
    assert (of_key("bob"), of_key("bob")) == (1, 0)
    assert "not counted" in kvtier("erase", "--config", config, "--tenant", "bob").stdout
    assert of_key("bob", "--tenant", "bob") == 0
    redis.kill()
    text = kvtier("erase", "--config", config, "--tenant", "bob", status=3).stdout
    assert "erased, also after a crash" not in text


@pytest.fixture(params=["kvtierd", "redis"])
def shared(request, tmp_path):
    """A shared tier's settings."""
    if request.param == "redis":
        if SERVER is None:
            pytest.skip("redis-server is not installed")
        server = RedisServer(tmp_path)
        yield {"url": server.url}
        server.stop()
        return
    daemon = Kvtierd(tmp_path)
    try:
        daemon.wait_up()
        yield {"url": daemon.url, "segment": daemon.segment_name}
        daemon.stop()
    finally:
        daemon.remove()


def test_engines_of_a_shared_tier_erase_in_themselves(owner, shared, tmp_path):
    """What they have in memory and on their own disks, though they find all there and never ask the shared tier."""

    def start(store, *tenants):
        rest = {name: value for name, value in shared.items() if name != "url"}
        return owner(*tenants, store=store, l2=shared["url"], seen_time="1s", lease_time="1s", **rest)

    def have(engine):
        return engine.ask("hits alice"), engine.ask("hits bob")

    engines = [start(store, "alice", "bob") for store in ("one", "two")]
    assert [have(engine) for engine in engines] == [(str(CHUNKS),) * 2] * 2
    assert engines[1].ask("lease alice") == str(CHUNKS)
    config = tmp_path / "kvtier.yaml"
    config.write_text(json.dumps({"l2": shared, "fingerprint": MODEL}))
    kvtier("erase", "--config", config, "--tenant", "alice")
    gone = ("0", str(CHUNKS))
    until(lambda: all(have(engine) == gone for engine in engines), 30, "erased in all engines")
    assert engines[1].ask("check") == "right"  # a reader keeps its chunks until it is done
    time.sleep(1)  # for the disk: no call of these engines waits for it
    engines[1].process.send_signal(signal.SIGKILL)
    engines[1].kill()
    again = start("two")
    assert have(again) == gone
    kvtier("erase", "--config", config, "--model", MODEL)
    until(lambda: have(engines[0]) == ("0", "0"), 30, "all is erased")


def test_what_cannot_be_done_is_said(owner, path, tmp_path):
    owner("alice")
    assert "no store of that model" in kvtier("erase", "--model", "12345678", path, status=3).stderr
    assert "nothing is erased by default" in kvtier("erase", path, status=2).stderr
    assert "does not know a model's name" in kvtier("erase", "--model", "Qwen3-8B", path, status=2).stderr
    assert "64 hex digits" in kvtier("erase", "--key", "12", path, status=2).stderr
    assert "expected a store's folder" in kvtier("erase", "--tenant", "alice", status=2).stderr
    assert "no such folder" in kvtier("erase", "--tenant", "alice", tmp_path / "none", status=3).stderr
    (admin,) = path.glob("*/*/admin")
    assert admin.stat().st_mode & 0o777 == 0o600
    admin.rename(admin.with_name("elsewhere"))
    assert "takes no requests" in kvtier("erase", "--tenant", "alice", path, status=3).stderr
    assert chunks_of(path) == [CHUNKS]


def test_an_owner_survives_what_others_send(owner, path):
    one = owner("alice")
    (admin,) = path.glob("*/*/admin")
    folder = os.open(admin.parent, os.O_PATH)
    for text in (b"", b"erase 2 0 - - 1\n", b"erase 1 0 - - 100\n", b"erase 1 0 zz - 100\n", b"x" * 40_000, b"\0\n"):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(f"/proc/self/fd/{folder}/admin")
            try:
                peer.sendall(text)
                peer.shutdown(socket.SHUT_WR)
                answer = peer.recv(4096)
            except (BrokenPipeError, ConnectionResetError):
                answer = b""
            assert not answer or answer.startswith((b"refused ", b"erased 1 5 "))  # 5: KVT_EINVAL
    os.close(folder)
    assert one.ask("hits alice") == str(CHUNKS)
    assert erase("--tenant", "alice", path)["chunks"]["l1"] == CHUNKS


def test_an_owner_that_ends_breaks_an_erase_off(owner, path, redis):
    """A shared tier that is gone makes an erase last its ten seconds; the owner's end does not wait for that."""
    one = owner("alice", l2=redis.url)
    redis.kill()
    name = kvtier_owner.key_of("alice", 3).hex()
    command = [PROGRAM, "erase", "--json", "--key", name, path]
    asker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    until(lambda: one.ask("hits alice") == str(CHUNKS - 1), 20)  # begun: unreadable already
    begun = time.monotonic()
    one.end()
    took = time.monotonic() - begun
    answer = asker.communicate(timeout=30)[0]
    assert asker.returncode == 3 and '"done": false' in answer, answer
    assert took < 4, took
    assert not list(path.glob("*/*/admin"))
