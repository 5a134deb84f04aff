"""Upgrades: kvways one after another on the same addresses, load on them, and peers of takeover.socket."""

import array
import os
import socket
import threading
import time

from rig.client import CHAT, Client, ask, chat_body
from rig.router import DEFAULTS, PROGRAM, Process, parse_metrics, write_config
from rig.wait import PATIENCE, Port, unused_port, until
from rig.wire import Closed

# Kept connections of a process that ends get one more answer during this time, with Connection: close.
SETTLE = {"drain.settle": "2s"}


class Line:
    """Kvways that take over from each other."""

    def __init__(self, directory, workers, config=None, address="127.0.0.1"):
        self.directory = directory
        self.listen = Port()
        self.port = self.listen.number
        self.admin_port = unused_port()
        self.socket = str(directory / "takeover.sock")
        self.flat = {
            "listen": f"{address}:{self.port}",
            "admin.listen": f"127.0.0.1:{self.admin_port}",
            **DEFAULTS,
            "drain.timeout": "60s",
            "takeover.socket": self.socket,
            "workers": [{"url": w.url} for w in workers],
            **(config or {}),
        }
        self.made = []
        self.current = None

    def start(self, more=None, takeover=True, argv=(), before=(), **options):
        """A process, which is perhaps not ready yet."""
        name = f"kvway{len(self.made)}"
        path = self.directory / f"{name}.yaml"
        write_config(path, {k: v for k, v in {**self.flat, **(more or {})}.items() if v is not None})
        argv = [*before, PROGRAM, "-c", path, *argv]
        if takeover and self.current is not None:
            argv += ["--takeover", self.socket]
        self.made.append(Process(argv, self.directory / f"{name}.log", **options))
        return self.made[-1]

    def first(self, more=None, wait=True, **options):
        self.current = self.start(more, **options)
        until(lambda: self.said(self.current, "listens on"), 20, "listening")
        if wait:
            until(lambda: ask(self.admin_port, "GET", "/ready").status == 200, 20, "ready")
        return self.current

    def upgrade(self, more=None, wait=True, **options):
        """Returns the process before, which finishes what runs."""
        before, after = self.current, self.start(more, **options)
        until(lambda: self.said(after, "listens on"), 30, "taken over")
        self.current = after
        if wait:
            until(lambda: "accepting no more" in before.log(), 10, "the one before to stop accepting")
        return before

    def said(self, process, text):
        assert process.alive(), f"ended with {process.popen.poll()}:\n{process.log()}"
        return text in process.log()

    def ask(self, method, target, headers=(), body=None, timeout=10.0):
        return ask(self.port, method, target, headers, body, timeout=timeout)

    def metric(self, name, **labels):
        text = ask(self.admin_port, "GET", "/metrics").body.decode()
        return sum(
            value
            for (sample, have), value in parse_metrics(text, name).items()
            if sample == name and set(labels.items()) <= have
        )

    def log(self):
        return self.current.log()

    def stop(self):
        try:
            for process in self.made:
                if process.alive():
                    process.signal(15)
            assert self.current.wait(20) == 0
            for process in self.made:
                log = process.log()
                assert "Sanitizer" not in log and "internal error" not in log, log[-8000:]
        finally:
            for process in self.made:
                process.kill()
            self.listen.close()


def drops():
    """Connections that this machine's listening sockets have lost."""
    with open("/proc/net/netstat") as file:
        rows = [line.split() for line in file if line.startswith("TcpExt:")]
    table = dict(zip(rows[0][1:], map(int, rows[1][1:]), strict=True))
    return table["ListenDrops"] + table["ListenOverflows"]


def stream_of(events, pause):
    """A worker's script: so many events with pauses, or a plain answer."""

    def script(ex):
        body = ex.json()
        if not body or not body.get("stream"):
            ex.respond(body=b'{"ok":true}')
            return
        ex.start_stream()
        for i in range(events):
            ex.event(f"event {i}")
            time.sleep(pause)
        ex.event("[DONE]")
        ex.end_stream()

    return script


class Load:
    """Streams and requests until it is stopped; whatever goes wrong is in `wrong`."""

    def __init__(self, port, streams, requesters, pause, events, connect=None):
        self.port = port
        self.events = events
        self.pause = pause
        self.connect = connect or (lambda: Client(port, timeout=30))
        self.over = threading.Event()
        self.wrong = []
        self.streams = self.requests = 0
        self.lock = threading.Lock()
        targets = [self.stream] * streams + [self.request, self.keep] * requesters
        self.threads = [threading.Thread(target=self.until_over, args=(t,)) for t in targets]
        for thread in self.threads:
            thread.start()

    def until_over(self, target):
        held = [None]
        while not self.over.is_set():
            try:
                target(held)
            except (OSError, Closed, AssertionError, ValueError) as error:
                self.wrong.append((target.__name__, time.monotonic(), repr(error)))
                held[0] = None
        if held[0]:
            held[0].close()

    def stream(self, _):
        with self.connect() as client:
            got = client.ask("POST", CHAT, body=chat_body(stream=True))
            assert got.status == 200, got
            assert got.events() == [*(f"event {i}" for i in range(self.events)), "[DONE]"], got
        with self.lock:
            self.streams += 1

    def request(self, _):
        with self.connect() as client:
            got = client.ask("POST", CHAT, body=chat_body())
            assert got.status == 200, got
        self.count()

    def keep(self, held):
        """Keeps its connection as long as the answers allow it."""
        held[0] = held[0] or self.connect()
        got = held[0].ask("POST", CHAT, body=chat_body())
        assert got.status == 200, got
        if got.headers.get("connection") == "close":
            held[0].close()
            held[0] = None
        self.count()

    def count(self):
        with self.lock:
            self.requests += 1
        time.sleep(self.pause)

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join(60 * PATIENCE)


class Peer:
    """A process at takeover.socket that is no kvway."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(path)
        self.sock.settimeout(10 * PATIENCE)
        self.fds = []

    def say(self, kind, *lines, fds=()):
        self.send("\n".join([f"kvway-takeover 1 {kind}", *lines, ""]).encode(), fds)

    def send(self, data, fds=()):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.sock.sendmsg([data], rights)

    def hear(self):
        """(kind, {name: value}) of the next message; ("", {}): it has closed."""
        data, rights, _, _ = self.sock.recvmsg(4096, socket.CMSG_SPACE(64 * 4))
        for _, _, raw in rights:
            numbers = array.array("i")
            numbers.frombytes(raw)
            self.fds += numbers
        first, *lines = data.decode().splitlines() or [""]
        return first.rpartition(" ")[2], dict(line.split(" ", 1) for line in lines)

    def take(self):
        """Says hello and takes all sockets; returns their addresses."""
        self.say("hello", "version test", f"pid {os.getpid()}")
        heard = [self.hear()]
        while heard[-1][0] in ("welcome", "socket"):
            heard.append(self.hear())
        assert heard[0][0] == "welcome" and heard[-1][0] == "end", heard
        assert int(heard[-1][1]["count"]) == len(self.fds), heard
        return [fields["address"] for kind, fields in heard if kind == "socket"]

    def close(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = []
        self.sock.close()
