"""Workers with names: both kinds of addresses, and names that do not resolve yet."""

import shutil
import socket
import subprocess

import pytest

from rig import router as rig_router
from rig.client import CHAT, ask, chat_body
from rig.wait import until

UNKNOWN = "no-such-host.invalid"


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
        return True
    except OSError:
        return False


def listed(router, url):
    (worker,) = [w for w in ask(router.admin_port, "GET", "/workers").json() if w["url"] == url]
    return worker


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_localhost_on_one_address_only(workers, kvway, address):
    if address == "::1" and not has_ipv6():
        pytest.skip("this machine has no ::1")
    (worker,) = workers(1, address=address)
    url = f"http://localhost:{worker.port}"
    router = kvway([url], {"routing.strategy": "roundrobin"})
    until(lambda: listed(router, url)["health"] == "up" and "tiny" in listed(router, url)["models"])
    until(lambda: {"/health", "/v1/models", "/metrics"} <= set(worker.probes))
    for _ in range(5):
        assert router.ask("POST", CHAT, body=chat_body()).status == 200
    (first,) = worker.requests[:1]
    assert first.headers.get("host") == f"localhost:{worker.port}"
    assert len(worker.requests) == 5


def test_a_final_dot_is_for_the_dns_alone(workers, kvway):
    (worker,) = workers(1)
    url = f"http://localhost.:{worker.port}"
    router = kvway([url], {"routing.strategy": "roundrobin"})
    until(lambda: listed(router, url)["health"] == "up" and "tiny" in listed(router, url)["models"])
    until(lambda: {"/health", "/v1/models", "/metrics"} <= set(worker.probes))
    assert router.ask("POST", CHAT, body=chat_body()).status == 200
    assert worker.requests[0].headers.get("host") == f"localhost:{worker.port}"


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    """A hosts file of kvway's own, and a name server that does not answer: a mount namespace has both."""
    unshare = shutil.which("unshare")
    inside = [unshare, "-Urm", "--", "sh", "-c"]
    file, servers, program = tmp_path / "hosts", tmp_path / "resolv.conf", tmp_path / "kvway-inside"
    file.write_text("127.0.0.1 localhost\n")
    servers.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    mounts = f"mount --bind {file} /etc/hosts && mount --bind {servers} /etc/resolv.conf"
    if unshare is None or subprocess.run([*inside, mounts], capture_output=True).returncode != 0:
        pytest.skip("no mount namespace can be made here")
    program.write_text(f'#!/bin/sh\nexec {unshare} -Urm -- sh -c \'{mounts} && exec {rig_router.PROGRAM} "$@"\' sh "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(rig_router, "PROGRAM", program)
    return file


def test_a_name_that_does_not_resolve_yet(workers, kvway, hosts):
    one, late = workers(2)
    url = f"http://{UNKNOWN}:{late.port}"
    router = kvway([one.url, url], {"routing.strategy": "roundrobin", "routing.slow_start": "0s"})
    until(lambda: listed(router, one.url)["health"] == "up")
    assert listed(router, url)["state"] == "without an address"
    until(lambda: "does not resolve, and is asked for again" in router.log(), 20)
    for _ in range(4):
        assert router.ask("POST", CHAT, body=chat_body()).status == 200
    assert len(one.requests) == 4
    ready = ask(router.admin_port, "GET", "/ready")
    assert ready.status == 200 and (ready.json()["workers"], ready.json()["usable"]) == (2, 1)
    assert router.metric("kvway_worker_usable", worker=url) == 0
    assert router.metric("kvway_worker_usable", worker=one.url) == 1
    with hosts.open("a") as file:
        file.write(f"127.0.0.1 {UNKNOWN}\n")
    until(lambda: listed(router, url)["state"] == "up" and "tiny" in listed(router, url)["models"], 30)
    assert router.log().count("does not resolve, and is asked for again") == 1
    for _ in range(4):
        assert router.ask("POST", CHAT, body=chat_body()).status == 200
    assert len(late.requests) == 2
    assert late.requests[-1].headers.get("host") == f"{UNKNOWN}:{late.port}"
    assert router.metric("kvway_worker_usable", worker=url) == 1
