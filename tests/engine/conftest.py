"""Two real vLLM engines, started once for all tests, and a router in front of them."""

import collections
import os
import pathlib
import signal
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "integration"))

from rig.client import ask  # noqa: E402
from rig.router import Process, Router, parse_metrics  # noqa: E402
from rig.wait import until, unused_port  # noqa: E402

VENV = os.environ.get("KVW_ENGINE_VENV", "")
MODEL = os.environ.get("KVW_ENGINE_MODEL", "")
START_SECONDS = 240
Prefills = collections.namedtuple("Prefills", "count seconds")


class Engine(Process):
    """One `vllm serve`."""

    models = ("tiny",)
    blocks = int(os.environ.get("BLOCKS", "2048"))  # of 32 tokens

    def __init__(self, directory, number):
        self.port, self.events, self.replay = unused_port(), unused_port(), unused_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.directory, self.number, self.starts = directory, number, 0
        self.start()

    def start(self):
        settings = {
            "VENV": VENV,
            "MODEL": MODEL,
            "PORT": str(self.port),
            "EVENTS": str(self.events),
            "REPLAY": str(self.replay),
            "CORE": str(self.number % os.cpu_count()),
            "BLOCKS": str(self.blocks),
        }
        # A process group of its own, since the engine's workers outlive a killed server.
        argv = ["setsid", HERE / "serve_vllm.sh"]
        log = self.directory / f"engine{self.number}.{self.starts}.log"
        self.starts += 1
        super().__init__(argv, log, settings)

    def restart(self):
        """On the same port, as a service manager would."""
        self.kill()
        self.start()
        until(self.healthy, START_SECONDS, "engine up again")

    def kill(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all of them have ended
        super().kill()

    def healthy(self):
        assert self.alive(), f"the engine ended with {self.popen.poll()}:\n{self.log()[-4000:]}"
        try:
            return ask(self.port, "GET", "/health").status == 200
        except OSError:
            return False

    def forget(self):
        """Empties its prefix cache."""
        assert ask(self.port, "POST", "/reset_prefix_cache").status == 200

    def prefills(self):
        """How many prompts it has computed, and in what time."""
        samples = parse_metrics(ask(self.port, "GET", "/metrics").body.decode())
        total = collections.Counter()
        for (name, _), value in samples.items():
            total[name] += value
        name = "vllm:request_prefill_time_seconds"
        return Prefills(total[f"{name}_count"], total[f"{name}_sum"])

    def running(self):
        return ask(self.port, "GET", "/load").json()["server_load"]


@pytest.fixture(scope="session")
def engines(tmp_path_factory):
    if not VENV or not MODEL:
        pytest.fail("run tests/engine/run.sh, or set KVW_ENGINE_VENV and KVW_ENGINE_MODEL")
    directory = tmp_path_factory.mktemp("engines")
    both = [Engine(directory, number) for number in range(2)]
    try:
        for engine in both:
            until(engine.healthy, START_SECONDS, "engine up")
        yield both
    finally:
        for engine in both:
            if engine.alive():
                engine.popen.terminate()
        for engine in both:
            try:
                engine.wait(20)
            finally:
                engine.kill()


@pytest.fixture
def kvway(engines, tmp_path):
    """Starts kvway in front of engines that remember nothing, one that a test killed included."""
    started = []

    def start(config=None):
        for engine in engines:
            if not engine.alive():
                engine.restart()
            engine.forget()
        started.append(Router(tmp_path, engines, config))
        return started[-1].wait_up(engines)

    try:
        yield start
    finally:
        for process in started:
            process.stop()


@pytest.fixture
def router(kvway):
    """With what a user would write."""
    return kvway()
