"""Two engines and kvway in front of them, for the commands of this folder that measure."""

import collections
import os
import pathlib
import signal
import sys
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "integration"))

from rig.client import ask  # noqa: E402
from rig.router import PROGRAM, Process, parse_metrics  # noqa: E402
from rig.wait import until, unused_port  # noqa: E402
from server import Engine  # noqa: E402

START_SECONDS = 400  # of engines that share two cores with what measures them


def add_options(parser):
    parser.add_argument(
        "--engines", nargs=2, metavar="URL",
        help="engines that run already: what kills or stops them is not possible then",
    )  # fmt: skip
    parser.add_argument(
        "--start", metavar="COMMAND",
        help="starts one engine on 127.0.0.1:$PORT in the foreground; $NUMBER is 0 or 1 "
        "(default: serve_vllm.sh, with KVW_ENGINE_VENV and KVW_ENGINE_MODEL as run.sh has them)",
    )  # fmt: skip
    parser.add_argument("--kvway", default=PROGRAM, metavar="PROGRAM", help="(default: that of KVW_BUILD)")
    parser.add_argument("--dir", default="engine-logs", help="for logs (default engine-logs)")


class Known:
    """An engine that runs already."""

    def __init__(self, url):
        self.url, self.port = url, urllib.parse.urlsplit(url).port

    def healthy(self):
        return ask(self.port, "GET", "/health").status == 200

    def kill(self):
        pass


class Started(Engine):
    """One of a command given; without one as the tests start it."""

    def __init__(self, directory, number, command):
        self.command = command
        super().__init__(directory, number)

    def start(self):
        if self.command is None:
            super().start()
            return
        log = self.directory / f"{self.name}{self.number}.{self.starts}.log"
        self.starts += 1
        environment = {"PORT": str(self.port), "NUMBER": str(self.number)}
        Process.__init__(self, ["setsid", "bash", "-c", self.command], log, environment)

    def family(self):
        """Ids and names of its processes: its group."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getpgid(int(entry.name)) == self.pid:
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                pass  # it has just ended
        return found

    def core(self):
        """Its processes but the API server."""
        return [pid for pid, name in self.family().items() if name.startswith("VLLM::")]

    def signal_to(self, pids, number):
        for pid in pids:
            os.kill(pid, number)


class Pair:
    """with Pair(options) as pair: two engines that answer. pair.router(config text) starts kvway."""

    def __init__(self, options):
        self.options = options
        self.directory = pathlib.Path(options.dir)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.engines = []

    def __enter__(self):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # or engines would go on
        try:
            if self.options.engines:
                self.engines = [Known(url) for url in self.options.engines]
            else:
                for number in range(2):
                    self.engines.append(Started(self.directory, number, self.options.start))
            for engine in self.engines:
                until(engine.healthy, START_SECONDS, f"{engine.url} up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for engine in self.engines:
            engine.kill()

    def router(self, text="", name="kvway"):
        return Router(self.directory, self.engines, self.options.kvway, text, name)


class Router(Process):
    """kvway with its own defaults and, if given, the text of a configuration file that names neither
    addresses nor workers."""

    def __init__(self, directory, engines, program, text, name):
        self.port, self.admin_port = unused_port(), unused_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.engines = engines
        path = directory / f"{name}.yaml"
        path.write_text(
            f"{text}\nlisten: 127.0.0.1:{self.port}\nadmin:\n  listen: 127.0.0.1:{self.admin_port}\n"
            + "workers:\n"
            + "".join(f"  - url: {engine.url}\n" for engine in engines)
        )
        super().__init__([program, "-c", path], directory / f"{name}.log")
        until(self.ready, 30, "kvway up")

    def ready(self):
        assert self.alive(), f"kvway ended with {self.popen.poll()}:\n{self.log()}"
        try:
            listed = ask(self.admin_port, "GET", "/v1/models").json()["data"]
        except OSError:
            return False
        return bool(listed) and all(self.usable(engine) for engine in self.engines)

    def sum(self, name, **labels):
        """Of a metric's samples with these labels."""
        samples = parse_metrics(ask(self.admin_port, "GET", "/metrics").body.decode())
        wanted = set(labels.items())
        return sum(v for (sample, have), v in samples.items() if sample == name and wanted <= set(have))

    def by(self, name, label):
        """The same, by the value of a label."""
        samples = parse_metrics(ask(self.admin_port, "GET", "/metrics").body.decode())
        found = collections.Counter()
        for (sample, have), value in samples.items():
            if sample == name:
                found[dict(have)[label]] += int(value)
        return found

    def usable(self, engine):
        return self.sum("kvway_worker_usable", worker=engine.url) == 1
