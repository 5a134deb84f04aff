"""A benchmark that is killed leaves no process behind, and what it does itself on SIGTERM leaves no file either."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest
from rig.router import BUILD
from rig.wait import until

BENCH = pathlib.Path(__file__).parents[2] / "bench"


def names_of(session):
    """What runs in that session: the programs' names."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().partition(" (")[2].rpartition(")")
        except OSError:
            continue  # it has ended
        state, _, _, its_session = rest.split()[:4]
        if int(its_session) == session and state != "Z":
            found.append(name)
    return sorted(found)


STREAMS = ("fleet-change", "--only", "reload", "--rounds", "1", "--seconds", "3600"), 3  # kvsim, kvway and clients
TABLES = ("tables", "--table", "documents-cpu", "--speed", "0.1", "--plots", "plots"), 6  # two of each, with kvbench


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="benchmarks need two cores")
# kvbench is not for the kernel to end: without its servers it ends by itself.
@pytest.mark.parametrize("of, number", [(STREAMS, signal.SIGTERM), (STREAMS, signal.SIGINT), (STREAMS, signal.SIGKILL),
                                        (TABLES, signal.SIGTERM), (TABLES, signal.SIGINT)])  # fmt: skip
def test_what_a_killed_benchmark_started_ends(tmp_path, of, number):
    options, parts = of
    argv = [sys.executable, BENCH / "lib_main.py", *options, "--build", BUILD]
    with open(tmp_path / "bench.log", "wb") as log:
        bench = subprocess.Popen(argv, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 start_new_session=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    try:
        until(lambda: bench.poll() is not None or len(names_of(bench.pid)) > parts, 60, "all parts of the benchmark")
        assert {"kvsim", "kvway"} < set(names_of(bench.pid)), (tmp_path / "bench.log").read_text()
        bench.send_signal(number)
        assert bench.wait(60) == (-number if number == signal.SIGKILL else 128 + number)
        until(lambda: not names_of(bench.pid), 20, "the end of what it had started")
    finally:
        if names_of(bench.pid):
            os.killpg(bench.pid, signal.SIGKILL)
        bench.wait()
    if number != signal.SIGKILL:
        assert not list(tmp_path.glob("kvway-bench-*"))
