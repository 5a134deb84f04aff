"""The program kvtierd as its users meet it: command line, objects, administration, its end."""

import json
import os
import random
import signal
import subprocess

import pytest

from rig.client import ask
from rig.kvtierd import PROGRAM, SHM, Kvtierd, lease_of, take
from rig.wait import until

MIB = 1 << 20


@pytest.fixture
def kvtierd(tmp_path):
    """kvtierd({key: value}): a daemon that must end with 0 after the test."""
    made = []

    def make(config=None, up=True):
        daemon = Kvtierd(tmp_path, config, name=f"kvtierd{len(made)}")
        made.append(daemon)
        return daemon.wait_up() if up else daemon

    yield make
    try:
        for daemon in made:
            if daemon.popen.returncode is None:
                daemon.stop()
    finally:
        for daemon in made:
            daemon.remove()


def admin(daemon, method, target):
    return ask(daemon.admin_port, method, target)


def data(size, seed):
    return random.Random(seed).randbytes(size)


# --- command line -------------------------------------------------------------------------------


def run(*arguments, text=None, status=0):
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, (arguments, done)
    assert "Sanitizer" not in done.stderr, done.stderr
    return done


def test_help_teaches_and_mistakes_point_to_it():
    text = run("--help").stdout
    assert text == run("help").stdout
    for part in ["usage: kvtierd", "check FILE", "127.0.0.1:9200", "sagemaker-hyperpod://", "curl -X PUT", "engines keep what is in their own memory"]:
        assert part in text
    assert run("--version").stdout.startswith("kvtierd ")
    for wrong in [["serve"], ["-c"], ["check"], ["-c", "a", "b"], ["reference", "--all"]]:
        assert "try `kvtierd --help`" in run(*wrong, status=2).stderr


def test_check_sees_what_the_machine_cannot_hold(kvtierd, tmp_path):
    daemon = kvtierd({"segment.size": "16MiB"})
    name = daemon.segment_name
    path = tmp_path / "check.yaml"

    def lines(text, status=1):
        path.write_text(text)
        return run("check", path, status=status).stderr.splitlines()

    assert lines(f"segment: {{name: {name}, size: 16MiB}}", status=0) == []
    (said,) = lines(f"segment: {{name: {name}, size: 32MiB}}")
    assert "the segment that is there has 16777216: to remove it, rm" in said
    (said,) = lines("segment: {name: kvtierd_check, size: 60TiB}")
    assert said.startswith("segment.size: found 60 TiB, but ")
    (said,) = lines("segment: {name: kvtierd_check, size: 1048577}")
    assert "expected whole pages" in said
    store = f"nvme: {{path: {tmp_path}/store, capacity: 1000TiB}}"
    (said,) = lines(f"segment: {{name: kvtierd_check, size: 1MiB}}\ncache: {{{store}}}")
    assert said.startswith("cache.nvme.capacity: found 1000 TiB, more than the ")
    (said,) = lines("segment: {name: kvtierd_check, size: 1MiB}\ncache: {nvme: {path: /proc/version/x}}")
    assert said == "cache.nvme.path: /proc/version/x cannot be used: Not a directory"


@pytest.mark.parametrize("arguments", [["check", "-"], ["reference", "--metrics"], ["--help"]])
def test_a_result_that_is_lost_is_no_success(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, *arguments], input="", stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 3, done
    assert "kvtierd: what was printed is not whole: No space left on device" in done.stderr


def test_check_reports_every_mistake_with_its_place(tmp_path):
    good = run("check", "-", text="segment: {name: no-such, size: 4MiB}\ncache: {l1: {policy: lru}}\n")
    assert good.stderr == "" and "segment.size: 4MiB\n" in good.stdout
    assert "cache.l1.policy: lru\n" in good.stdout and "cache.l1.capacity" not in good.stdout
    assert not (SHM / "no-such").exists()  # nothing is made
    bad = tmp_path / "bad.yaml"
    bad.write_text("segment: {sise: 1GiB}\nadmin: 0.0.0.0:1\ncache:\n  l1: {capacity: 1GiB}\n")
    lines = run("check", bad, status=1).stderr.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"{bad}:1:11: segment.sise:") and "`segment.size`" in lines[0]
    assert lines[1].startswith(f"{bad}:4:18: cache.l1.capacity:") and "segment.size" in lines[1]
    assert lines[2].startswith(f"{bad}:2:8: admin:") and "127.0.0.0/8" in lines[2]
    started = run("-c", bad, status=1).stderr
    assert "not started" in started and f"{bad}:1:11:" in started
    assert "cannot be opened" in run("-c", tmp_path / "none", status=3).stderr


def test_what_keeps_it_from_starting(kvtierd, tmp_path):
    first = kvtierd()
    second = kvtierd({"listen": f"127.0.0.1:{first.port}"}, up=False)
    assert second.wait() == 3
    assert "cannot listen on" in second.log() and "in use" in second.log()
    third = kvtierd({"segment.name": first.segment_name}, up=False)
    assert third.wait() == 3
    assert str(first.pid) in third.log()  # the process that owns it
    assert first.ask("GET", "/health").status == 200


# --- objects --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 28, 2076, 65536, 300001, 5 * MIB + 3])
def test_what_was_put_is_read(kvtierd, size):
    daemon = kvtierd()
    segment = daemon.segment()
    path, first, second = "/v1/kv/lmcache/a%2Fb@1@0@ff@bfloat16", data(size, 1), data(size, 2)
    with daemon.client() as client:
        assert take(client, segment, path) is None
        for bytes_, status in [(first, 200), (first, 409), (second, 200), (second, 409)]:
            answer = client.ask("PUT", path, body=bytes_)
            assert answer.status == status and answer.body == b""
            assert take(client, segment, path) == bytes_
    segment.close()


def test_answers_are_what_stock_clients_need(kvtierd):
    daemon = kvtierd()
    daemon.ask("PUT", "/v1/kv/lmcache/k", body=b"x" * 100)
    answer = daemon.ask("POST", "/v1/kv/lmcache/k/leases?timeout_ms=5000&ttl_s=30.0", body=b"")
    assert [name for name, _ in answer.headers] == ["Server", "Content-Type", "Content-Length"]
    assert answer.headers.get("Content-Type") == "application/json"
    lease = json.loads(answer.body)
    assert list(lease) == ["id", "offsets"] and list(lease["offsets"][0]) == ["offset", "len"]
    assert daemon.ask("POST", f"/v1/leases/{lease['id']}/release", body=b"").status == 200
    missed = daemon.ask("POST", "/v1/kv/lmcache/none/leases?timeout_ms=5000", body=b"")
    assert missed.status == 404 and missed.json() == {"error": "not found"}


def test_a_full_segment_evicts_but_never_what_is_leased(kvtierd):
    daemon = kvtierd()  # 16 MiB
    segment = daemon.segment()
    with daemon.client() as client:
        held = {}
        for i in range(3):
            assert client.ask("PUT", f"/v1/kv/b/held{i}", body=data(3 * MIB, i)).status == 200
            held[i] = lease_of(client.ask("POST", f"/v1/kv/b/held{i}/leases?ttl_s=60"))
        for i in range(20):
            client.ask("PUT", f"/v1/kv/b/more{i}", body=data(2 * MIB, 100 + i))
        for i, (name, fragments) in held.items():
            assert segment.read(fragments) == data(3 * MIB, i)
            assert client.ask("POST", f"/v1/leases/{name}/release").status == 200
        big = client.ask("PUT", "/v1/kv/b/big", body=data(15 * MIB, 9))
        assert big.status in (200, 507)
        too_big = client.ask("PUT", "/v1/kv/b/big2", body=data(17 * MIB, 9))
        assert too_big.status == 507 and "no room" in too_big.json()["error"]
        assert client.ask("GET", "/health").status == 200
    segment.close()


def test_the_name_of_the_segment_comes_back(kvtierd):
    daemon = kvtierd()
    segment = daemon.segment()
    daemon.ask("PUT", "/v1/kv/b/k", body=b"hello")
    for _ in range(3):
        os.unlink(segment.path)
        until(segment.present, 10, "the same inode under its name")
    with daemon.client() as client:
        assert take(client, segment, "/v1/kv/b/k") == b"hello"
    assert daemon.metric("kvtierd_segment_relinked_total") >= 1
    segment.close()


# --- administration -------------------------------------------------------------------------------


def test_lists_pages_and_erasing(kvtierd):
    daemon = kvtierd()
    keys = sorted(f"key/{i:03}\u00e4\"" for i in range(25))
    for i, key in enumerate(keys):
        quoted = key.replace("/", "%2F").replace("\u00e4", "%C3%A4").replace('"', "%22")
        assert daemon.ask("PUT", f"/v1/kv/team-a/{quoted}", body=data(1000 + i, i)).status == 200
    daemon.ask("PUT", "/v1/kv/team-b/other", body=b"x")
    buckets = {b["bucket"]: b for b in admin(daemon, "GET", "/v1/buckets").json()["buckets"]}
    assert buckets["team-a"]["objects"] == 25 and buckets["team-b"]["objects"] == 1
    assert buckets["team-a"]["bytes"] == sum(1000 + i for i in range(25))

    listed, after = [], ""
    while True:
        page = admin(daemon, "GET", f"/v1/kv/team-a?limit=10&after={after}").json()
        listed += [o["key"] for o in page["objects"]]
        assert all(o["tier"] == "memory" and o["leases"] == 0 for o in page["objects"])
        if not page["more"]:
            break
        after = "".join(f"%{b:02x}" for b in listed[-1].encode())
    assert listed == keys

    assert admin(daemon, "DELETE", "/v1/kv/team-b/other").json() == {"erased": 1}
    assert admin(daemon, "DELETE", "/v1/kv/team-b/other").status == 404
    assert admin(daemon, "DELETE", "/v1/kv/team-a").json() == {"erased": 25}
    assert admin(daemon, "GET", "/v1/kv/team-a").json()["objects"] == []
    assert daemon.ask("POST", "/v1/kv/team-b/other/leases", body=b"").status == 404


def test_clients_erase_only_where_they_may(kvtierd):
    daemon = kvtierd()
    daemon.ask("PUT", "/v1/kv/b/k", body=b"x")
    refused = daemon.ask("DELETE", "/v1/kv/b/k")
    assert refused.status == 403 and "client_erase" in refused.json()["error"]
    assert daemon.ask("PUT", "/v1/kv/b/k", body=b"x").status == 409
    willing = kvtierd({"client_erase": True})
    willing.ask("PUT", "/v1/kv/b/k", body=b"x")
    assert willing.ask("DELETE", "/v1/kv/b/k").json() == {"erased": 1}


def test_an_erase_holds_after_a_kill(kvtierd, tmp_path):
    store = {"cache.nvme.path": str(tmp_path / "store"), "cache.nvme.capacity": "64MiB"}
    daemon = kvtierd({**store, "lease.ttl_max": "500ms", "lease.grace": "0s"})
    for name in ("kept", "erased"):
        assert daemon.ask("PUT", f"/v1/kv/b/{name}", body=data(MIB, 1)).status == 200
    until(lambda: daemon.metric("kvtier_tier_chunks", tier="nvme") == 2, 20, "both stored below")
    daemon.restart() # both are durable
    assert admin(daemon, "DELETE", "/v1/kv/b/erased").status == 200
    daemon.restart(kill=True)
    segment = daemon.segment()
    with daemon.client() as client:
        until(lambda: take(client, segment, "/v1/kv/b/kept", 2000), 20, "the store is warm")
        assert take(client, segment, "/v1/kv/b/kept") == data(MIB, 1)
        assert take(client, segment, "/v1/kv/b/erased", 100) is None
    segment.close()


def test_a_bucket_stays_within_its_limit(kvtierd):
    daemon = kvtierd({"buckets": [{"name": "small", "memory": "4MiB"}]})
    for i in range(10):
        daemon.ask("PUT", f"/v1/kv/other/k{i}", body=data(MIB, i))
    for i in range(30):
        daemon.ask("PUT", f"/v1/kv/small/k{i}", body=data(MIB, i))
    segment = daemon.segment()
    with daemon.client() as client:
        left = sum(take(client, segment, f"/v1/kv/small/k{i}") is not None for i in range(30))
        others = sum(take(client, segment, f"/v1/kv/other/k{i}") is not None for i in range(10))
    assert 1 <= left <= 4 and others == 10
    segment.close()


# --- metrics --------------------------------------------------------------------------------------


def test_metrics_health_readiness(kvtierd):
    daemon = kvtierd()
    daemon.ask("PUT", "/v1/kv/b/k", body=b"x" * 1000)
    daemon.ask("POST", "/v1/kv/b/k/leases?ttl_s=60", body=b"")
    daemon.ask("GET", "/nowhere")
    assert daemon.metric("kvtierd_requests_total", route="put", code="200") == 1
    assert daemon.metric("kvtierd_requests_total", route="other", code="404") == 1
    assert daemon.metric("kvtierd_request_seconds_count", route="lease") == 1
    assert daemon.metric("kvtierd_received_bytes_total") == 1000
    assert daemon.metric("kvtierd_leases") == 1 and daemon.metric("kvtierd_objects") == 1
    assert daemon.metric("kvtierd_segment_bytes") == 16 * MIB
    assert daemon.metric("kvtier_tier_chunks", tier="l1") == 1  # the library's own page follows
    for port in (daemon.port, daemon.admin_port):
        assert ask(port, "GET", "/health").json() == {"status": "ok", "stuck_loops": 0}
        assert ask(port, "GET", "/ready").json() == {"status": "ready", "quiet_seconds": 0.0}
    assert daemon.ask("GET", "/metrics").status == 200


def test_after_a_restart_writes_wait_for_leases(kvtierd):
    daemon = kvtierd({"lease.ttl_max": "3s"})
    daemon.ask("PUT", "/v1/kv/b/k", body=b"x" * 1000)
    assert daemon.ask("POST", "/v1/kv/b/k/leases?ttl_s=3", body=b"").status == 200
    daemon.restart(kill=True)
    refused = daemon.ask("PUT", "/v1/kv/b/new", body=b"y" * 1000)
    assert refused.status == 503 and "before its restart" in refused.json()["error"]
    assert 1 <= int(refused.headers.get("Retry-After")) <= 5
    assert ask(daemon.port, "GET", "/ready").json()["quiet_seconds"] > 0
    assert daemon.metric("kvtierd_refused_total", reason="quiet") == 1
    until(lambda: daemon.ask("PUT", "/v1/kv/b/new", body=b"y" * 1000).status == 200, 15, "writes")
    assert daemon.metric("kvtierd_quiet_seconds") == 0


# --- the end --------------------------------------------------------------------------------------


def test_a_request_under_way_ends_before_the_daemon(kvtierd):
    daemon = kvtierd({"limits.drain_time": "10s"})
    body = data(MIB, 3)
    with daemon.client() as client, daemon.client() as idle:
        assert idle.ask("GET", "/health").status == 200
        client.send_head("PUT", "/v1/kv/b/k", [("Content-Length", str(len(body)))])
        client.send(body[:1000])
        until(lambda: daemon.metric("kvtierd_puts") == 1, 10, "the put is under way")
        daemon.signal(signal.SIGTERM)
        assert idle.closed_by_peer()
        client.send(body[1000:])
        assert client.read().status == 200
        assert client.closed_by_peer()  # said in the answer where its loop knew of the end by then
    assert daemon.wait() == 0
    assert (SHM / daemon.segment_name).exists()  # for the next one
    assert list(SHM.glob(f".{daemon.segment_name}*"))


def test_which_users_may_open_the_segment(kvtierd):
    for access, mode in (("owner", 0o600), ("group", 0o660), ("all", 0o666)):
        daemon = kvtierd({"segment.access": access})
        assert (SHM / daemon.segment_name).stat().st_mode & 0o777 == mode


def test_the_daemon_checks_the_bytes(kvtierd):
    """A client writes over an object: the daemon answers a usual get with 404."""
    daemon = kvtierd()
    daemon.ask("PUT", "/v1/kv/b/k", body=b"right" * 1000)
    _, fragments = lease_of(daemon.ask("POST", "/v1/kv/b/k/leases?ttl_s=5"))
    with (SHM / daemon.segment_name).open("r+b") as segment:
        segment.seek(fragments[0]["offset"])
        segment.write(b"wrong")
    assert daemon.ask("POST", "/v1/kv/b/k/leases?timeout_ms=0&check=0").status == 200
    assert daemon.ask("POST", "/v1/kv/b/k/leases?timeout_ms=0").status == 404
    assert daemon.ask("POST", "/v1/kv/b/k/leases?timeout_ms=0&check=0").status == 404


def test_check_looks_at_the_shared_tier():
    text = "segment: {name: no-such, size: 4MiB}\ncache: {l2: {url: 'redis://u:secret@h', tls_ca: /none}}\n"
    told = run("check", "-", text=text, status=1)
    assert "cache.l2.tls_ca: /none cannot be read" in told.stderr
    assert "# l2: redis://h:6379, with a login" in told.stdout
    assert "secret" not in told.stdout + told.stderr
