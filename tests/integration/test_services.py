"""systemd's units, and what the programs say to a service manager."""

import contextlib
import pathlib
import shutil
import signal
import socket
import subprocess

import pytest

from rig.kvtierd import Kvtierd
from rig.router import BUILD, PROGRAM
from rig.wait import until

UNITS = pathlib.Path(__file__).resolve().parents[2] / "deploy/systemd"


@contextlib.contextmanager
def manager(directory):
    """A socket like systemd's, and a function that waits for a message and returns all until then."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        path = str(directory / "notify")
        ours.bind(path)
        ours.settimeout(0.2)
        heard = []

        def hear(wanted):
            def come():
                with contextlib.suppress(TimeoutError):
                    heard.append(ours.recv(4096).decode())
                return any(message.startswith(wanted) for message in heard)

            until(come, 20, wanted)
            messages = list(heard)
            heard.clear()
            return messages

        yield path, hear


def test_kvway_says_ready_alive_reloading_and_stopping(tmp_path, monkeypatch, workers, kvway):
    with manager(tmp_path) as (path, hear):
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        monkeypatch.setenv("WATCHDOG_USEC", "300000")
        (worker,) = workers()
        router = kvway([worker], up=False)
        hear("READY=1")
        hear("WATCHDOG=1")
        router.signal(signal.SIGHUP)
        hear("RELOADING=1\nMONOTONIC_USEC=")
        hear("READY=1")
        router.signal(signal.SIGTERM)
        hear("STOPPING=1")
        assert router.wait() == 0


def test_kvway_without_a_watchdog_reports_nothing_by_itself(tmp_path, monkeypatch, workers, kvway):
    with manager(tmp_path) as (path, hear):
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        monkeypatch.setenv("WATCHDOG_USEC", "300000")
        monkeypatch.setenv("WATCHDOG_PID", "1")  # another process is watched
        router = kvway(workers(), up=False)
        hear("READY=1")
        router.signal(signal.SIGTERM)
        assert not [m for m in hear("STOPPING=1") if m.startswith("WATCHDOG")]
        assert router.wait() == 0


def test_kvtierd_says_ready_and_stopping(tmp_path, monkeypatch):
    with manager(tmp_path) as (path, hear):
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        daemon = Kvtierd(tmp_path)
        try:
            hear("READY=1")
            daemon.signal(signal.SIGTERM)
            hear("STOPPING=1")
        finally:
            daemon.stop()


# --- units --------------------------------------------------------------------------------------


def analyze(*arguments):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (package systemd)")
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def units(tmp_path):
    """Copies whose programs are there."""
    programs = {"/usr/local/bin/kvway": PROGRAM, "/usr/local/bin/kvtierd": BUILD / "cache/daemon/kvtierd"}
    for unit in [*UNITS.glob("*.service"), *UNITS.glob("*.socket")]:
        text = unit.read_text()
        for installed, built in programs.items():
            text = text.replace(installed + " ", f"{built} ")
        (tmp_path / unit.name).write_text(text)
    return sorted([*tmp_path.glob("*.service"), *tmp_path.glob("*.socket")])


def test_systemd_understands_every_line_of_the_units(units):
    assert [unit.name for unit in units] == ["kvtierd.service", "kvway.service", "kvway.socket"]
    for unit in units:
        done = analyze("verify", "--man=no", "--recursive-errors=no", unit)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.stem)
def test_exposure_of_units_is_low(unit):
    done = analyze("security", "--offline=true", "--threshold=20", unit)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot rate a file")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
