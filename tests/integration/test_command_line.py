"""What the command line does beyond starting a router: comparing files, understanding others' flags."""

import subprocess

from rig.router import PROGRAM
from rig.wait import PATIENCE


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
