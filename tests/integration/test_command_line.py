"""What the command line does beyond starting a router: comparing files, understanding others' flags."""

import signal
import subprocess

import pytest

from rig.client import CHAT, ask, chat_body
from rig.router import PROGRAM, Process
from rig.wait import PATIENCE, Port, until
from rig.wire import Closed


def run(*argv):
    return subprocess.run(
        [str(PROGRAM), *map(str, argv)], capture_output=True, text=True, timeout=20 * PATIENCE
    )


WORKERS = "workers:\n  - url: http://127.0.0.1:8001\n    api_key: hunter2\n"


def test_check_shows_what_a_reload_would_change(tmp_path):
    running, new = tmp_path / "running.yaml", tmp_path / "new.yaml"
    running.write_text("routing:\n  strategy: roundrobin\n" + WORKERS)
    new.write_text(
        "routing:\n  strategy: session\n  session:\n    ttl: 5m\n"
        + WORKERS.replace("hunter2", "hunter3")
        + "  - url: http://127.0.0.1:8002\n"
    )
    done = run("check", "-c", new, "--diff", running)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["routing.strategy", "roundrobin", "session", "at", "reload"] in lines
    assert any(line[:1] == ["routing.session.ttl"] and "5m" in line for line in lines)
    assert ["worker", "http://127.0.0.1:8002", "-", "added", "at", "reload"] in lines
    assert ["worker", "http://127.0.0.1:8001", "api_key", "(secret)", "(secret)", "at", "reload"] in lines
    assert "hunter" not in done.stdout + done.stderr


def test_a_result_that_is_lost_is_no_success(tmp_path):
    path = tmp_path / "kvway.yaml"
    path.write_text(WORKERS)
    for argv in (["check", "-c", path, "--diff", path], ["render", "-c", path], ["--help"], ["state", "--help"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(PROGRAM), *map(str, argv)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20 * PATIENCE)
        assert done.returncode == 1, (argv, done)
        assert "what was printed is not whole: No space left on device" in done.stderr


def test_check_says_by_its_status_that_a_restart_is_needed(tmp_path):
    running, new = tmp_path / "running.yaml", tmp_path / "new.yaml"
    running.write_text(WORKERS)
    new.write_text("listen: 0.0.0.0:8081\n" + WORKERS)
    done = run("check", "-c", new, "--diff", running)
    assert done.returncode == 3
    assert "needs a restart" in done.stdout
    done = run("check", "-c", running, "--diff", running)
    assert done.returncode == 0
    assert "no difference" in done.stdout


def test_check_of_a_broken_file_is_no_difference(tmp_path):
    running, new = tmp_path / "running.yaml", tmp_path / "new.yaml"
    running.write_text("lisen: 0.0.0.0:1\n" + WORKERS)
    new.write_text(WORKERS)
    for pair in ((new, running), (running, new)):
        done = run("check", "-c", pair[0], "--diff", pair[1])
        assert done.returncode == 1
        assert f"{running}:1:1: lisen: " in done.stderr


def stack_flags(fleet, *more):
    return [
        *("--service-discovery", "static"),
        *("--static-backends", ",".join(worker.url for worker in fleet)),
        *("--static-models", ",".join("tiny" for _ in fleet)),
        *("--static-model-types", ",".join("chat" for _ in fleet)),
        *("--routing-logic", "session", "--session-key", "x-user-id"),
        *("--engine-stats-interval", "10", "--request-stats-window", "10"),
        *("--log-level", "warning", "--log-stats", "--log-stats-interval", "10"),
        *more,
    ]


def ready(process, port):
    assert process.alive(), process.log()
    try:
        return ask(port, "GET", "/ready").status == 200
    except (OSError, Closed):
        return False


def test_a_command_line_of_production_stack_starts_kvway(workers, tmp_path):
    """Sessions stick by the header that the command line names."""
    fleet = workers(3)
    listen, admin = Port(), Port()
    flags = stack_flags(fleet, "--host", "127.0.0.1", "--port", str(listen.number))
    process = Process([PROGRAM, *flags, "--admin", f"127.0.0.1:{admin.number}"], tmp_path / "log")
    try:
        until(lambda: ready(process, listen.number), 10, "ready")
        headers = [("x-user-id", "alice")]
        for i in range(6):
            answer = ask(listen.number, "POST", CHAT, headers=headers, body=chat_body(f"{i}"))
            assert answer.status == 200
        assert sorted(len(worker.requests) for worker in fleet) == [0, 0, 6]
        assert "--log-stats has no effect: " in process.log()
        process.signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        listen.close()
        admin.close()


def test_render_writes_the_file_that_flags_amount_to(workers, tmp_path):
    flags = stack_flags(workers(2), "--port", "8000")
    done = run("render", *flags)
    assert done.returncode == 0, done.stderr
    path = tmp_path / "kvway.yaml"
    path.write_text(done.stdout)
    assert "strategy: session" in done.stdout
    done = run("check", *flags, "--diff", path)
    assert done.returncode == 0
    assert "no difference" in done.stdout
    assert run("render", "-c", path).stdout == path.read_text()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--callbacks", "a.b"], "--callbacks: found a flag that kvway has no use for, expected "),
        (["--service-discovery", "k8s"], "--service-discovery: found `k8s`, expected `static`"),
        (["--session-kye", "x"], "unknown flag --session-kye; did you mean `--session-key`?"),
        (["--routing-logic", "kvawre"], "did you mean `kvaware`?"),
    ],
)
def test_flags_that_cannot_be_taken_are_named(flags, says):
    done = run("--static-backends", "http://127.0.0.1:1", *flags)
    assert done.returncode == 2
    assert says in done.stderr


def test_routing_spec_of_a_manifest_is_understood(tmp_path):
    path = tmp_path / "kvway.yaml"
    path.write_text("intelligentRoutingSpec:\n  enabled: true\n  routingStrategy: session\n" + WORKERS)
    done = run("check", "-c", path)
    assert (done.returncode, done.stdout) == (0, f"{path}: ok, 1 worker, strategy session\n")
    path.write_text(path.read_text() + "routing:\n  strategy: roundrobin\n")
    done = run("check", "-c", path)
    assert done.returncode == 1
    assert f"{path}:8:13: routing.strategy: found `roundrobin`, expected `session`" in done.stderr
    assert "in line 1" in done.stderr


def test_addresses_that_an_upgrade_cannot_hand_on_are_named(tmp_path):
    path = tmp_path / "kvway.yaml"
    kvaware = "routing: {strategy: kvaware}\nkvaware: {events: {bind: 'tcp://HOST:5557'}, lmcache: {pull: 'HOST:9000', reply: 'HOST:9001'}}\n"
    path.write_text(kvaware.replace("HOST", "lo") + WORKERS)
    done = run("check", "-c", path)
    assert done.returncode == 0 and ": ok," in done.stdout
    for key in ("events.bind", "lmcache.pull", "lmcache.reply"):
        assert f"warning: kvaware.{key}: lo is the name of an interface: an upgrade cannot take this address over" in done.stderr
    path.write_text(kvaware.replace("HOST", "127.0.0.1") + WORKERS)
    assert run("check", "-c", path).stderr == ""
