"""Starting, checking, stopping."""

import contextlib
import json
import pathlib
import signal
import socket
import subprocess
import threading
import time

import pytest

from rig.client import CHAT, Client, ask, chat_body
from rig.router import PROGRAM, Process, write_config
from rig.wait import PATIENCE, Port, until, unused_port
from rig.wire import Closed

ROOT = pathlib.Path(__file__).parents[2]


def run(*argv, **options):
    return subprocess.run(
        [str(PROGRAM), *map(str, argv)],
        capture_output=True,
        text=True,
        timeout=20 * PATIENCE,
        **options,
    )


def streaming(go):
    """A script that sends one event, waits, then ends properly."""

    def script(ex):
        ex.start_stream()
        ex.event("first")
        assert go.wait(10)
        ex.event("[DONE]")
        ex.end_stream()

    return script


def test_sigterm_lets_running_requests_finish(pair):
    go = threading.Event()
    _, router = pair(streaming(go), {"drain.timeout": "20s"})
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body(stream=True))
        answer = client.read_head()
        assert client.reader.chunk()
        router.signal(signal.SIGTERM)
        until(lambda: refused(router.port), 5, "no new connections")
        assert router.alive()
        go.set()
        client.read_body(answer)
        assert b"[DONE]" in answer.body
    assert router.wait(5) == 0


def test_draining_clients_are_served_until_load_balancers_have_noticed(pair):
    """Endpoints lag behind /ready: new clients are served meanwhile, and every answer says `close`."""
    _, router = pair(config={"drain.settle": "5s"})
    with Client(router.port) as kept, Client(router.port) as idle:
        assert kept.ask("GET", "/x").headers.get("connection") != "close"
        begin = time.monotonic()
        router.signal(signal.SIGTERM)
        for port in (router.port, router.admin_port):
            until(lambda p=port: ask(p, "GET", "/ready").status == 503, 1, "not ready")
            assert ask(port, "GET", "/health").status == 200
        with Client(router.port) as new:
            got = new.ask("POST", CHAT, body=chat_body())
            assert (got.status, got.headers.get("connection")) == (200, "close")
            assert new.closed_by_peer()
        got = kept.ask("POST", CHAT, body=chat_body())
        assert (got.status, got.headers.get("connection")) == (200, "close")
        assert kept.closed_by_peer()
        assert not idle.closed_by_peer(0.2)
        assert router.wait(15) == 0
        assert time.monotonic() - begin >= 4.9
        assert idle.closed_by_peer()


def test_an_answer_that_began_before_the_drain_keeps_its_connection(pair):
    """It did not say `close`: its client may send the next request, whose answer does."""
    go = threading.Event()
    worker, router = pair(streaming(go), {"drain.settle": "5s"})
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body(stream=True))
        answer = client.read_head()
        assert client.reader.chunk()
        router.signal(signal.SIGTERM)
        until(lambda: ask(router.port, "GET", "/ready").status == 503, 1, "not ready")
        go.set()
        client.read_body(answer)
        assert not client.closed_by_peer(0.2)
        got = client.ask("POST", CHAT, body=chat_body(stream=True))
        assert (got.status, got.headers.get("connection")) == (200, "close")
    assert router.wait(15) == 0


def test_second_signal_ends_the_settling_too(pair):
    _, router = pair(config={"drain.settle": "1h"})
    router.signal(signal.SIGTERM)
    until(lambda: ask(router.port, "GET", "/ready").status == 503, 1, "not ready")
    router.signal(signal.SIGTERM)
    assert router.wait(3) == 1
    router.popen.returncode = 0


@pytest.mark.parametrize(
    ("version", "framing", "end"),
    [("HTTP/1.1", "chunked", "fin"), ("HTTP/1.0", "close", "reset"), ("HTTP/1.1", "length", "fin")],
)
def test_what_the_drain_cuts_does_not_look_whole(pair, version, framing, end):
    def script(ex):
        if framing == "length":
            ex.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nfirst")
        else:
            ex.start_stream()
            ex.event("first")
        ex.gone(30)

    _, router = pair(script, {"drain.timeout": "200ms"})
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body(stream=framing != "length"), version=version)
        assert client.read_head().framing in (framing, "")
        router.signal(signal.SIGTERM)
        assert b"first" in bytes(client.reader.buffer) + read_to(client.sock, end)
    assert router.wait(5) == 0


def read_to(sock, end):
    """All bytes until the connection ends in that way."""
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except ConnectionResetError:
        assert end == "reset", data
        return data
    assert end == "fin", data
    return data


def test_what_waits_when_the_drain_is_over_gets_503(pair):
    _, router = pair(lambda ex: ex.gone(30), {"drain.timeout": "300ms"})
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body())
        until(lambda: router.inflight())
        router.signal(signal.SIGTERM)
        got = client.read()
        assert (got.status, got.headers.get("retry-after")) == (503, "1"), got
        assert "shutting down" in got.json()["error"]["message"]
    assert router.wait(5) == 0


def refused(port):
    try:
        with Client(port, timeout=1) as client:
            return client.closed_by_peer(0.3)
    except OSError:
        return True


def test_not_ready_while_draining(pair):
    go = threading.Event()
    _, router = pair(streaming(go), {"drain.timeout": "20s"})
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body(stream=True))
        client.read_head()
        router.signal(signal.SIGTERM)
        until(lambda: ask(router.admin_port, "GET", "/ready").status == 503, 5, "not ready")
        go.set()
        assert router.wait(5) == 0


def test_flood_of_the_admin_address_does_not_keep_its_thread(pair):
    """A client that always had more to ask was all that the control thread saw: no probes, no end."""
    worker, router = pair(config={"health.interval": "100ms"})
    flood = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 2000
    sock = socket.create_connection(("127.0.0.1", router.admin_port))

    def ask_on():
        with contextlib.suppress(OSError):
            while True:
                sock.sendall(flood)

    def read_on():
        with contextlib.suppress(OSError):
            while sock.recv(1 << 20):
                pass

    threads = [threading.Thread(target=f) for f in (ask_on, read_on)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    before = len(worker.probes)
    until(lambda: len(worker.probes) > before + 2, 5, "probes during the flood")
    router.signal(signal.SIGTERM)
    assert router.wait(5) == 0
    for thread in threads:
        thread.join()
    sock.close()


def test_idle_connections_do_not_hold_the_drain_up(pair):
    _, router = pair(config={"drain.timeout": "20s"})
    with Client(router.port) as idle, Client(router.port) as kept:
        assert kept.ask("GET", "/x").status == 200
        router.signal(signal.SIGTERM)
        assert router.wait(5) == 0
        assert idle.closed_by_peer()


def test_answers_during_the_drain_close_their_connection(pair):
    go = threading.Event()

    def script(ex):
        assert go.wait(10)
        ex.respond(body=b"late")

    worker, router = pair(script, {"drain.timeout": "20s"})
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body())
        worker.wait_requests(1)
        router.signal(signal.SIGTERM)
        until(lambda: refused(router.port), 5, "no new connections")
        go.set()
        assert client.read().body == b"late"
        assert client.closed_by_peer()
    assert router.wait(5) == 0


def test_drain_ends_after_its_time(pair):
    _, router = pair(lambda ex: ex.gone(30), {"drain.timeout": "500ms"})
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body())
        until(lambda: router.inflight())
        router.signal(signal.SIGTERM)
        assert router.wait(8) == 0


def test_second_signal_exits_at_once(pair):
    _, router = pair(lambda ex: ex.gone(30), {"drain.timeout": "60s"})
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat_body())
        until(lambda: router.inflight())
        router.signal(signal.SIGTERM)
        until(lambda: refused(router.port), 5, "no new connections")
        assert router.alive()
        router.signal(signal.SIGTERM)
        status = router.wait(3)
    assert status is not None
    router.popen.returncode = 0  # whichever status: that it ended at once is what counts


def test_sigint_ends_it_too(pair):
    _, router = pair()
    router.signal(signal.SIGINT)
    assert router.wait(5) == 0


def test_runs_without_a_file(workers, tmp_path):
    fleet = workers(2)
    port, admin = Port(), unused_port()
    argv = [PROGRAM, "--listen", f"127.0.0.1:{port.number}", "--admin", f"127.0.0.1:{admin}"]
    for worker in fleet:
        argv += ["--worker", worker.url]
    process = Process([*argv, "--strategy", "roundrobin"], tmp_path / "log")
    try:
        until(lambda: up(process, port.number, fleet), 10, "up")
        for i in range(4):
            assert ask(port.number, "POST", CHAT, body=chat_body(str(i))).status == 200
        assert [len(w.requests) for w in fleet] == [2, 2]
        process.signal(signal.SIGTERM)
        assert process.wait(10) == 0  # drain.settle is 5 s
    finally:
        process.kill()
        port.close()


def up(process, port, fleet):
    assert process.alive(), process.log()
    try:
        listed = ask(port, "GET", "/v1/models").body.decode()
        return all(worker.mark in listed for worker in fleet)
    except (OSError, Closed):
        return False


def test_check_accepts_a_good_file(tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text(
        "listen: 0.0.0.0:8080\n"
        "workers:\n"
        "  - url: http://127.0.0.1:8001\n"
        "  - url: http://127.0.0.1:8002\n"
        "routing:\n"
        "  strategy: prefixaware\n"
    )
    done = run("check", "-c", path)
    assert done.returncode == 0, done.stderr


def test_check_names_every_mistake_at_once(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(
        "listen: 0.0.0.0:99999\n"
        "routing:\n"
        "  stratgy: prefixaware\n"
        "timeouts:\n"
        "  connect: soon\n"
        "workers:\n"
        "  - url: ftp://example\n"
    )
    done = run("check", "-c", path)
    assert done.returncode != 0
    for wanted in (f"{path}:1:", f"{path}:3:", f"{path}:5:", f"{path}:7:"):
        assert wanted in done.stderr, done.stderr
    assert "strategy" in done.stderr, "a misspelt key gets a suggestion"


def test_start_refuses_what_check_refuses(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("workers: []\n")
    assert run("check", "-c", path).returncode != 0
    done = run("-c", path)
    assert done.returncode != 0 and "workers" in done.stderr


def test_check_starts_nothing(workers, tmp_path):
    (worker,) = workers(1)
    path = tmp_path / "c.yaml"
    write_config(path, {"workers": [{"url": worker.url}], "listen": "127.0.0.1:1"})
    assert run("check", "-c", path).returncode == 0
    assert worker.accepted == 0


@pytest.mark.parametrize(
    "argv",
    [
        ["-c", "/nonexistent.yaml"],
        [],
        ["--nonsense"],
        ["--worker"],
        ["--worker", "not a url"],
        ["--worker", "http://127.0.0.1:1", "--strategy", "nosuch"],
        ["-c", "x.yaml", "--worker", "http://127.0.0.1:1"],
    ],
)
def test_wrong_command_lines_say_what_is_wrong(argv):
    done = run(*argv)
    assert done.returncode not in (0, None) and done.returncode > 0
    assert done.stderr.strip(), "a message on standard error"
    assert "Sanitizer" not in done.stderr


def test_help_and_version():
    done = run("--help")
    assert done.returncode == 0
    for word in ("--worker", "--listen", "--strategy", "check", "prefixaware", "roundrobin", "session"):
        assert word in done.stdout
    assert run("--version").stdout.startswith("kvway ")


def test_port_in_use_is_said(workers, tmp_path):
    (worker,) = workers(1)
    path = tmp_path / "c.yaml"
    write_config(path, {
        "workers": [{"url": worker.url}],
        "listen": f"127.0.0.1:{worker.port}",  # the worker listens there
        "admin.listen": f"127.0.0.1:{unused_port()}",
    })  # fmt: skip
    done = run("-c", path)
    assert done.returncode > 0
    assert str(worker.port) in done.stderr


def test_admin_port_in_use_is_said(workers, tmp_path):
    (worker,) = workers(1)
    port = Port()
    path = tmp_path / "c.yaml"
    write_config(path, {
        "workers": [{"url": worker.url}],
        "listen": f"127.0.0.1:{port.number}",
        "admin.listen": f"127.0.0.1:{worker.port}",
    })  # fmt: skip
    done = run("-c", path)
    port.close()
    assert done.returncode > 0
    assert str(worker.port) in done.stderr


def test_workers_that_start_later_are_found(workers, kvway):
    (worker,) = workers(1)
    worker.stop()
    router = kvway([worker], up=False)
    router.wait_up()
    assert router.ask("POST", CHAT, body=chat_body()).status in (502, 503)
    worker.start()
    until(lambda: router.ask("POST", CHAT, body=chat_body()).status == 200, 8, "served")


def test_shipped_examples_are_valid():
    examples = sorted((ROOT / "config" / "examples").glob("*.yaml"))
    assert examples
    for path in examples:
        done = run("check", "-c", path)
        assert done.returncode == 0, (path, done.stderr)


def test_configuration_is_json_too(workers, tmp_path):
    """The rig relies on it: YAML contains JSON."""
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"workers": [{"url": "http://127.0.0.1:1"}]}))
    assert run("check", "-c", path).returncode == 0


def test_many_loops(workers, kvway):
    (worker,) = workers(1)
    router = kvway([worker], {"loops": 8})
    for _ in range(40):
        assert router.ask("GET", "/x").status == 200
