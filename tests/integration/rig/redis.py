"""A real redis-server, and the few commands that tests need of it."""

import shutil
import socket

from rig.router import Process
from rig.wait import Port, until

SERVER = shutil.which("redis-server") or shutil.which("valkey-server")


class RedisError(Exception):
    """What the server answered with `-`."""


class Redis:
    """One connection. cmd("GET", key) -> bytes, int, list or None."""

    def __init__(self, port, timeout=10.0):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout)
        self.file = self.sock.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.sock.close()

    def cmd(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        head = b"*%d\r\n" % len(words)
        self.sock.sendall(head + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self.read()

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError(f"cut reply {line!r}")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            raise RedisError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self.file.read(size + 2)[:-2]
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        raise ConnectionError(f"unknown reply {line!r}")

    def keys(self):
        return sorted(self.cmd("KEYS", "*"))


class RedisServer(Process):
    """redis-server on loopback, in memory, without persistence unless options say so."""

    def __init__(self, directory, *options, port=None, name="redis"):
        self.directory, self.options, self.name, self.starts = directory, options, name, 0
        self.listen = None if port else Port()
        self.port = port or self.listen.number
        self.start()

    def start(self):
        self.starts += 1
        argv = [SERVER, "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        argv += ["--dir", self.directory, "--enable-debug-command", "yes", *self.options]
        super().__init__(argv, self.directory / f"{self.name}.{self.starts}.log")
        until(self.up, 10, "redis-server up")

    def up(self):
        assert self.alive(), f"redis-server ended:\n{self.log()}"
        try:
            with self.connect() as redis:
                return redis.cmd("PING") == b"PONG"
        except (OSError, RedisError):
            return False

    def connect(self):
        return Redis(self.port)

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def restart(self):
        self.kill()
        self.start()

    def stop(self):
        self.kill()
        if self.listen:
            self.listen.close()
