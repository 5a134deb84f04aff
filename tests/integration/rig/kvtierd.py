"""A kvtierd process, the segment that its clients read, and a client that believes nothing."""

import json
import mmap
import os
import pathlib
import signal
import subprocess
import uuid

from rig.client import Client, ask
from rig.router import BUILD, Process, parse_metrics, write_config
from rig.wait import Port, until, unused_port

PROGRAM = BUILD / "cache/daemon/kvtierd"
SHM = pathlib.Path("/dev/shm")

# Short where a default would make tests wait.
DEFAULTS = {
    "segment.size": "16MiB",
    "lease.ttl": "500ms", # a request that names none
    "lease.ttl_max": "60s",
    "lease.grace": "200ms",
    "limits.memory_object": "0", # tests of tiers have small objects
    "limits.drain_time": "1s",
}


def mistakes_of(path):
    """Lines of `kvtierd check` about the file itself; what this machine cannot hold of it is left out."""
    done = subprocess.run([PROGRAM, "check", path], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith(f"{path}:")]


class Segment:
    """The daemon's shared memory as a client that never attaches twice maps it."""

    def __init__(self, name):
        self.path = SHM / name
        fd = os.open(self.path, os.O_RDONLY)
        try:
            stat = os.fstat(fd)
            self.inode, self.size = (stat.st_dev, stat.st_ino), stat.st_size
            self.map = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        finally:
            os.close(fd)

    def read(self, fragments):
        """Bytes of a lease; every fragment must lie within the segment."""
        out = b""
        for fragment in fragments:
            at, count = fragment["offset"], fragment["len"]
            assert isinstance(at, int) and isinstance(count, int), fragment
            assert at >= 0 and count > 0 and at + count <= self.size, (fragment, self.size)
            out += self.map[at : at + count]
        return out

    def present(self):
        """Is the name there, and does it mean this inode?"""
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (stat.st_dev, stat.st_ino) == self.inode

    def close(self):
        self.map.close()


class Kvtierd(Process):
    """kvtierd on loopback with a segment of its own name."""

    def __init__(self, directory, config=None, name="kvtierd", env=None):
        self.directory, self.name, self.env = directory, name, env
        self.listen, self.admin = Port(), Port()
        self.port, self.admin_port = self.listen.number, self.admin.number
        self.segment_name = f"kvtierd-test-{uuid.uuid4().hex[:12]}"
        self.config = {
            "listen": f"127.0.0.1:{self.port}",
            "admin": f"127.0.0.1:{self.admin_port}",
            "segment.name": self.segment_name,
            **DEFAULTS,
            **(config or {}),
        }
        self.config_path = directory / f"{name}.yaml"
        self.starts = 0
        self.start()

    def start(self):
        self.starts += 1
        write_config(self.config_path, self.config)
        log = self.directory / f"{self.name}.{self.starts}.log"
        super().__init__([PROGRAM, "-c", self.config_path], log, self.env)

    def wait_up(self, seconds=20):
        def up():
            assert self.alive(), f"kvtierd ended with {self.popen.poll()}:\n{self.log()}"
            try:
                return ask(self.admin_port, "GET", "/health").status == 200
            except OSError:
                return False

        until(up, seconds, "kvtierd up")
        return self

    def wait_writable(self, seconds=60):
        """Until puts are taken, which they are not while leases of a former daemon may last."""
        name = "/v1/kv/probe/probe"
        until(lambda: self.ask("PUT", name, body=b"x").status in (200, 409), seconds, "writable")
        return self

    @property
    def url(self):
        return f"sagemaker-hyperpod://127.0.0.1:{self.port}"

    def segment(self):
        return Segment(self.segment_name)

    def ask(self, method, target, headers=(), body=None, timeout=10.0):
        return ask(self.port, method, target, headers, body, timeout=timeout)

    def client(self, timeout=10.0):
        return Client(self.port, timeout)

    def metrics(self, only=""):
        return parse_metrics(ask(self.admin_port, "GET", "/metrics").body.decode(), only)

    def metric(self, name, **labels):
        """Sum of a metric's samples that carry these labels; the name must exist."""
        found = [
            value
            for (sample, have), value in self.metrics(name).items()
            if sample == name and all((k, v) in have for k, v in labels.items())
        ]
        assert found, f"no metric {name}{labels}"
        return sum(found)

    def stop(self, expect=0):
        """SIGTERM, as a service manager does; a sanitizer's finding is a wrong exit status."""
        try:
            if self.alive():
                self.signal(signal.SIGCONT)
                self.signal(signal.SIGTERM)
                try:
                    status = self.wait(20)
                except subprocess.TimeoutExpired:
                    raise AssertionError(f"kvtierd did not end:\n{self.log()[-4000:]}") from None
            else:
                status = self.popen.returncode
            log = self.log()
            assert status == expect, f"kvtierd ended with {status}:\n{log[-4000:]}"
            assert "Sanitizer" not in log and "runtime error" not in log, log[-8000:]
        finally:
            self.kill()

    def restart(self, kill=False):
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()
        return self.wait_up()

    def remove(self):
        """Everything that a daemon leaves for the next one."""
        self.kill()
        self.listen.close()
        self.admin.close()
        for path in [*SHM.glob(f"*{self.segment_name}*"), *SHM.glob(f"kvtier-*/{self.segment_name}*")]:
            path.unlink(missing_ok=True)


def lease_of(answer):
    """Id and fragments of an answer, or None; strict about what stock clients need."""
    if answer.status != 200:
        return None
    kind = answer.headers.get("content-type", "")
    assert kind.split(";")[0] == "application/json", answer
    told = json.loads(answer.body)
    name = told["id"]
    assert isinstance(name, str) and name and all(c.isalnum() or c in "-_." for c in name), told
    assert told["offsets"], told
    return name, told["offsets"]


def take(client, segment, path, timeout_ms=0, ttl_s=30.0, release=True):
    """What stock software does to read: lease, copy, release. None: a miss."""
    answer = client.ask(
        "POST",
        f"{path}/leases?timeout_ms={timeout_ms}&ttl_s={ttl_s}",
        [("Content-Length", "0"), ("Content-Type", "application/octet-stream")],
    )
    lease = lease_of(answer)
    if lease is None:
        assert answer.status in (404, 503, 504), answer
        return None
    name, fragments = lease
    data = segment.read(fragments)
    if release:
        assert client.ask("POST", f"/v1/leases/{name}/release").status == 200
    return data
