"""A kvway process."""

import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from rig.client import ask
from rig.wait import PATIENCE, until, unused_port
from rig.worker import MARK

BUILD = pathlib.Path(os.environ.get("KVW_BUILD", pathlib.Path(__file__).parents[3] / "build")).absolute()
PROGRAM = BUILD / "src" / "router" / "kvway"
SANITIZED = bool(os.environ.get("KVW_SANITIZED"))

# Short where a default would make tests wait; the rest as users have it.
DEFAULTS = {
    "loops": 2,
    "health.interval": "300ms",
    "health.metrics_interval": "300ms",
    "health.models_interval": "1s",
    "drain.settle": "0s",
    "drain.timeout": "1s",
}


def nest(flat):
    """{"a.b": 1} -> {"a": {"b": 1}}"""
    tree = {}
    for path, value in flat.items():
        node = tree
        *sections, last = path.split(".")
        for section in sections:
            node = node.setdefault(section, {})
        node[last] = value
    return tree


def write_config(path, flat):
    """JSON is YAML: no emitter is needed, and every quoting question is settled."""
    path.write_text(json.dumps(nest(flat), indent=2) + "\n")


def with_parent(argv):
    """The command that runs argv until the test run ends, however it ends: then the kernel kills it.

    setpriv becomes argv's program. A preexec_fn could ask the kernel for that as well, but it is Python between fork and
    exec, which is not safe in a program with threads.
    """
    return ["setpriv", "--pdeathsig", "KILL", "--", *map(str, argv)]


class Process:
    """A child process with its output in a file."""

    def __init__(self, argv, log, env=None, close_fds=True):
        self.argv = [str(a) for a in argv]
        self.log_path = log
        self.output = open(log, "wb")
        self.popen = subprocess.Popen(
            with_parent(self.argv),
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            close_fds=close_fds,
        )

    @property
    def pid(self):
        return self.popen.pid

    def log(self):
        return self.log_path.read_text(errors="replace")

    def alive(self):
        return self.popen.poll() is None

    def signal(self, number):
        self.popen.send_signal(number)

    def wait(self, seconds=10.0):
        """Exit status."""
        return self.popen.wait(seconds * PATIENCE)

    def kill(self):
        if self.alive():
            self.popen.kill()
        self.popen.wait()
        self.output.close()

    def fds(self):
        """Open descriptors."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def sockets_to(self, port):
        """Established TCP connections of this machine to a loopback port."""
        wanted = f"0100007F:{port:04X}"
        with open("/proc/net/tcp") as table:
            rows = [line.split() for line in table.readlines()[1:]]
        return sum(1 for row in rows if row[2] == wanted and row[3] == "01")

    def rss(self):
        """Resident bytes."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) * 1024

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Router(Process):
    """kvway in front of workers.

    workers   objects with a url, or urls
    config    flat keys of config/keys.def over DEFAULTS
    """

    def __init__(self, directory, workers, config=None, worker_keys=None, name="kvway"):
        self.port, self.admin_port = unused_port(), unused_port()
        self.config_path = directory / f"{name}.yaml"
        entries = [{"url": getattr(w, "url", w), **(worker_keys or {})} for w in workers]
        flat = {
            "listen": f"127.0.0.1:{self.port}",
            "admin.listen": f"127.0.0.1:{self.admin_port}",
            **DEFAULTS,
            "workers": entries,
            **(config or {}),
        }
        write_config(self.config_path, flat)
        super().__init__([PROGRAM, "-c", self.config_path], directory / f"{name}.log")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def wait_up(self, workers=()):
        """Until it answers, and knows the models of these workers. `waited` is the number of requests that this took."""
        self.waited = 0
        wanted = {name for w in workers for name in (*getattr(w, "models", ()), getattr(w, "mark", ""))}

        def up():
            assert self.alive(), f"kvway ended with {self.popen.poll()}:\n{self.log()}"
            try:
                status = ask(self.port, "GET", "/health").status
                self.waited += 1
                if status != 200:
                    return False
                listed = ask(self.admin_port, "GET", "/v1/models").json()["data"]
                return wanted <= {"", *(m["id"] for m in listed)}
            except OSError:
                return False

        try:
            until(up, 15, f"kvway up with {sorted(wanted)}")
        except AssertionError:
            print(self.log())
            raise
        return self

    def restart(self):
        """On the same addresses, as a service manager would."""
        self.stop()
        self.starts = getattr(self, "starts", 1) + 1
        super().__init__(self.argv, self.log_path.with_suffix(f".{self.starts}.log"))

    def models(self):
        listed = ask(self.admin_port, "GET", "/v1/models").json()
        return [m["id"] for m in listed["data"] if not m["id"].startswith(MARK)]

    def ask(self, method, target, headers=(), body=None, chunks=None, timeout=10.0):
        return ask(self.port, method, target, headers, body, chunks, timeout)

    def metrics(self, only=""):
        """{(name, labels): value} of all samples whose name begins so, from the admin address."""
        return parse_metrics(ask(self.admin_port, "GET", "/metrics").body.decode(), only)

    def metric(self, name, **labels):
        """Sum of a metric's samples that carry these labels; 0 when there are none."""
        total = 0.0
        for (sample, have), value in self.metrics(name).items():
            if sample == name and all((k, v) in have for k, v in labels.items()):
                total += value
        return total

    def inflight(self):
        """Everything that must be zero when no request is being served."""
        values = self.metrics()
        names = (
            "kvway_exchanges",
            "kvway_upstream_busy_connections",
            "kvway_worker_inflight",
            "kvway_body_bytes",
            "kvway_pending_bytes",
            "vllm:num_requests_running",
        )
        assert any(name in names for name, _ in values), "no gauge of this is there"
        return {
            f"{name}{sorted(labels)}": value
            for (name, labels), value in values.items()
            if name in names and value != 0
        }

    def wait_idle(self, seconds=5.0):
        until(lambda: not self.inflight(), seconds, "nothing in flight")

    def stop(self, expect=0):
        """SIGTERM, as a service manager does. A sanitizer's finding is a wrong exit status."""
        try:
            if self.alive():
                self.signal(signal.SIGTERM)
                try:
                    status = self.wait(10)
                except subprocess.TimeoutExpired:
                    print(self.log()[-8000:])
                    raise AssertionError("kvway did not end within 10 s of SIGTERM") from None
            else:
                status = self.popen.returncode
            log = self.log()
            if status != expect or "Sanitizer" in log or "internal error" in log:
                print(log[-16000:])
            assert status == expect, f"kvway ended with {status}"
            assert "Sanitizer" not in log, "a sanitizer reported an error"
            assert "internal error" not in log, "kvway noticed a bug of its own"
        finally:
            self.kill()


SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\.)*)"(?:,|$)')


@functools.lru_cache(maxsize=20000)
def sample_key(text):
    """(name, frozenset of (label, value)) of what stands before a value: pages that are asked again have the same."""
    match = SAMPLE.match(text)
    assert match, f"not a sample: {text!r}"
    name, labels = match.groups()
    rest = LABEL.sub("", labels or "")
    assert not rest, f"bad labels in {text!r}: {rest!r}"
    return name, frozenset(LABEL.findall(labels or ""))


def parse_metrics(text, only=""):
    """{(name, frozenset of (label, value)): value}; every line must be well formed, of those that begin with `only`."""
    samples = {}
    for line in text.splitlines():
        if not line or line.startswith("#") or not line.startswith(only):
            continue
        before, _, value = line.rpartition(" ")
        key = sample_key(before)
        assert key not in samples, f"sample twice: {line!r}"
        samples[key] = float(value)
    return samples


def settle(seconds):
    """A pause where nothing can be waited for: to see that something does not happen."""
    time.sleep(seconds)
