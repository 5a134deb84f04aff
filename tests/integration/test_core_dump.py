"""kvway makes no core dump, which would hold keys and prompts, even where its limit and the kernel's pattern ask for one."""

import os
import resource
import signal
import subprocess

import pytest
from rig.router import PROGRAM, write_config
from rig.wait import until, unused_port


def dumps(command, cwd, ready):
    """Whether the kernel writes a core dump when this process aborts."""
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    with open(cwd / "said", "wb") as said:
        process = subprocess.Popen(command, cwd=cwd, stdout=said, stderr=said)
    try:
        resource.prlimit(process.pid, resource.RLIMIT_CORE, unlimited)
        until(lambda: ready in (cwd / "said").read_text(), 20, "it runs")
    finally:
        os.kill(process.pid, signal.SIGABRT)
        _, status = os.waitpid(process.pid, 0)
        process.returncode = status
    assert os.WTERMSIG(status) == signal.SIGABRT
    return os.WCOREDUMP(status)


def test_a_crash_leaves_no_core(tmp_path):
    try:
        if not dumps(["sh", "-c", "echo here; exec sleep 60"], tmp_path, "here"):
            pytest.skip("this machine makes no core dumps")
    except PermissionError:
        pytest.skip("the limit of core dumps may not be raised")
    config = tmp_path / "kvway.yaml"
    write_config(config, {"listen": f"127.0.0.1:{unused_port()}", "admin.listen": "127.0.0.1:0",
                          "workers": [{"url": "http://127.0.0.1:1"}]})  # fmt: skip
    assert not dumps([PROGRAM, "-c", config], tmp_path, "listens on")
