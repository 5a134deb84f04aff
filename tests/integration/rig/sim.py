"""A kvsim process: simulated vLLM workers."""

from rig.client import ask
from rig.router import BUILD, Process
from rig.wait import until

PROGRAM = BUILD / "bench" / "sim" / "kvsim"


class SimWorker:
    """One of its workers."""

    def __init__(self, url, model):
        self.url = url
        self.port = int(url.rsplit(":", 1)[1])
        self.models = (model,)

    def ask(self, method, target, headers=(), body=None):
        return ask(self.port, method, target, headers, body)

    def stats(self):
        return self.ask("GET", "/sim/stats").json()

    def fail(self, spec, count=None):
        """The next POSTs have this fault."""
        tail = f"&count={count}" if count else ""
        assert self.ask("GET", f"/sim/fail?spec={spec}{tail}").status == 200


class Sim(Process):
    """kvsim on free ports. Without simulated time unless a profile is given."""

    def __init__(self, directory, count=1, *options, model="tiny", profile="instant", name="kvsim"):
        ports = directory / f"{name}.ports"
        argv = [PROGRAM, "--workers", count, "--port", 0, "--ports-file", ports]
        argv += ["--model", model, "--profile", profile, *options]
        super().__init__(argv, directory / f"{name}.log")

        def listening():
            assert self.alive(), f"kvsim ended with {self.popen.poll()}:\n{self.log()}"
            return ports.exists()

        until(listening, 10, "kvsim listening")
        rows = [line.split() for line in ports.read_text().splitlines()]
        self.workers = [SimWorker(row[2], model) for row in rows]
