"""One real vLLM engine as a process of a test."""

import collections
import os
import pathlib
import signal

from rig.client import ask
from rig.router import Process, parse_metrics
from rig.wait import until, unused_port

HERE = pathlib.Path(__file__).parent
VENV = os.environ.get("KVW_ENGINE_VENV", "")
MODEL = os.environ.get("KVW_ENGINE_MODEL", "")
START_SECONDS = 240
Prefills = collections.namedtuple("Prefills", "count seconds")


class Engine(Process):
    """One `vllm serve`."""

    models = ("tiny",)
    name = "engine"
    prefix = ()  # a command that starts the rest of its arguments
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
            **self.environment(),
        }
        # A process group of its own, since the engine's workers outlive a killed server.
        argv = ["setsid", *self.prefix, HERE / "serve_vllm.sh", *self.options()]
        log = self.directory / f"{self.name}{self.number}.{self.starts}.log"
        self.starts += 1
        super().__init__(argv, log, settings)

    def environment(self):
        """Environment variables of this engine in addition to those that serve_vllm.sh gets for every engine."""
        return {}

    def options(self):
        """More of those of `vllm serve`."""
        return []

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
