"""Clients of the benchmark `fleet-change`, a program of its own: lib_fleet_clients.py PORT CLIENTS PERIOD_MS.

Each client keeps one connection and asks for a stream once per period. On standard output, when standard input ends:
a line with the number of requests that were begun, and one for each that ended: start in ns (CLOCK_MONOTONIC),
microseconds to the first event (-1: none came), and what came of it: `ok`, a status, `cut` (after the first event),
`lost` (before it, or it could not be sent), `refused` (no connection) or `late` (not over 30 s after the end).
"""

import json
import select
import socket
import sys
import time

GROUPS = 64
LATE_S = 30


class Client:
    """One client with its connection."""

    def __init__(self, crowd, number):
        self.crowd, self.number = crowd, number
        self.due_ns = 0
        self.sock = None
        self.started_ns = self.first_us = 0
        self.seen = b""
        self.busy = False
        self.sent = 0

    def connect(self):
        """Makes a new connection; loopback accepts it at once."""
        self.sock = socket.create_connection(("127.0.0.1", self.crowd.port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.crowd.join(self)

    def ask(self, now_ns):
        """Sends the next request, whose prompt has a beginning that many share and an end of its own."""
        self.sent += 1
        text = f"group {(self.number + self.sent) % GROUPS} " * 150 + f"{self.number}-{self.sent}"
        body = json.dumps({"model": "bench", "stream": True,
                           "messages": [{"role": "user", "content": text}]}).encode()
        self.started_ns, self.first_us, self.seen, self.busy = now_ns, -1, b"", True
        try:
            if self.sock is None:
                self.connect()
        except OSError:
            self.finish("refused")
            return
        try:
            self.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n" % len(body) + body)
        except OSError:
            self.finish("lost")

    def send(self, request):
        """Sends all of a request; a socket without room for so few bytes has a peer that does not read, which is an error."""
        if self.sock.send(request) != len(request):
            raise OSError("sent in part")

    def finish(self, what):
        """Records how the request has ended, and plans the next one."""
        self.crowd.done.append((self.started_ns, self.first_us, what))
        self.busy = False
        if what != "ok" or b"connection: close" in self.seen[:600].lower():
            self.leave()
        self.due_ns += self.crowd.period_ns
        now_ns = time.monotonic_ns()
        if self.due_ns < now_ns:
            self.due_ns = now_ns
        self.crowd.waiting.append(self)

    def leave(self):
        """Closes the connection."""
        if self.sock is not None:
            self.crowd.part(self)
            self.sock.close()
            self.sock = None

    def read(self):
        """Reads what has come."""
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not self.busy:
            if not data:
                self.leave()
            return
        if not data:
            self.finish("cut" if self.first_us >= 0 else "lost")
            return
        if self.first_us < 0 and b"data: " in data:
            self.first_us = (time.monotonic_ns() - self.started_ns) // 1000
        self.seen += data
        if self.seen.endswith(b"0\r\n\r\n"):
            self.finish("ok" if b"[DONE]" in self.seen else "cut")
        elif self.seen[9:12] not in (b"200", b"") and b"\r\n\r\n" in self.seen:
            self.finish(self.seen[9:12].decode())


class Crowd:
    """All clients, on one epoll set."""

    def __init__(self, port, count, period_ms):
        self.port, self.period_ns = port, int(period_ms * 1e6)
        self.done, self.by_fd = [], {}
        self.epoll = select.epoll()
        start = time.monotonic_ns() + 10_000_000
        self.clients = [Client(self, i) for i in range(count)]
        self.waiting = list(self.clients)
        for i, client in enumerate(self.waiting):
            client.due_ns = start + i * self.period_ns // count

    def join(self, client):
        """Begins to watch a client's socket."""
        self.by_fd[client.sock.fileno()] = client
        self.epoll.register(client.sock.fileno(), select.EPOLLIN)

    def part(self, client):
        """Ends watching a client's socket."""
        self.epoll.unregister(client.sock.fileno())
        del self.by_fd[client.sock.fileno()]

    def turn(self, stopping):
        """Sends the requests that are due and reads what has come."""
        now_ns = time.monotonic_ns()
        if not stopping:
            due = [client for client in self.waiting if client.due_ns <= now_ns]
            self.waiting = [client for client in self.waiting if client.due_ns > now_ns]
            for client in due:
                client.ask(time.monotonic_ns())
        for fd, _ in self.epoll.poll(0.001):
            if fd in self.by_fd:
                self.by_fd[fd].read()

    def run(self):
        """Runs until standard input and all requests have ended."""
        stdin = select.poll()
        stdin.register(0, select.POLLIN | select.POLLHUP)
        while not stdin.poll(0):
            self.turn(False)
        end = time.monotonic() + LATE_S
        while any(client.busy for client in self.by_fd.values()) and time.monotonic() < end:
            self.turn(True)
        for client in list(self.by_fd.values()):
            if client.busy:
                client.finish("late")
        print(sum(client.sent for client in self.clients))
        for started_ns, first_us, what in self.done:
            print(started_ns, first_us, what)


if __name__ == "__main__":
    Crowd(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).run()
