"""An HTTP client on a raw socket: sends exactly what it is given, shows exactly what came."""

import json
import re
import socket
from contextlib import contextmanager

from rig.wait import PATIENCE
from rig.wire import Closed, Reader, encode_chunks, encode_head, parse_head, reset

# Paths of kvway's admin address that are POSTed to.
ADMIN = re.compile("/(reload|workers|broadcast|groups|explain|lookup|clear|pin|query_|move|compress|decompress|check_f)")


class Response:
    """One answer. framing: none, length, chunked or close."""

    def __init__(self):
        self.interim = []  # (status, headers) of 1xx answers that came before
        self.version = self.reason = self.framing = ""
        self.status = 0
        self.headers = None
        self.body = b""
        self.chunks = []
        self.trailers = []

    def json(self):
        return json.loads(self.body)

    def events(self):
        """Payloads of the `data:` lines of an event stream."""
        return [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]

    def __repr__(self):
        return f"<{self.status} {self.reason} {self.headers} {self.body[:300]!r}>"


class Client:
    """One connection. Usable as a context manager, which closes it."""

    def __init__(self, port, timeout=10.0, receive_buffer=None, host="127.0.0.1"):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(timeout * PATIENCE)
        self.sock.connect((host, port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = Reader(self.sock)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def reset(self):
        reset(self.sock)

    def accepted(self):
        """Has the server taken the connection out of its queue? Until then the kernel shows it without an inode."""
        mine = f"0100007F:{self.sock.getsockname()[1]:04X}"
        with open("/proc/net/tcp") as table:
            rows = [line.split() for line in table]
        return any(row[2] == mine and row[9] != "0" for row in rows)

    def finish_sending(self):
        """FIN: no more from us, but answers are still read."""
        self.sock.shutdown(socket.SHUT_WR)

    def send(self, data):
        self.sock.sendall(data)

    def send_head(self, method, target, headers=(), version="HTTP/1.1"):
        names = {name.lower() for name, _ in headers}
        host = [] if "host" in names else [("Host", "test")]
        self.send(encode_head(f"{method} {target} {version}", host + list(headers)))

    def send_request(self, method, target, headers=(), body=None, chunks=None, version="HTTP/1.1"):
        """body: sent with its length. chunks: pieces of a chunked body. A dict body is JSON."""
        headers = list(headers)
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers.append(("Content-Type", "application/json"))
        elif method == "POST" and ADMIN.match(target) and "content-type" not in {name.lower() for name, _ in headers}:
            headers.append(("X-Requested-With", "tests"))  # the admin address refuses what a web page could send
        if chunks is not None:
            headers.append(("Transfer-Encoding", "chunked"))
            tail = encode_chunks(chunks)
        else:
            tail = body or b""
            if body is not None:
                headers.append(("Content-Length", str(len(body))))
        names = {name.lower() for name, _ in headers}
        host = [] if "host" in names else [("Host", "test")]
        self.send(encode_head(f"{method} {target} {version}", host + headers) + tail)

    def read_head(self):
        """Status line and headers of the final answer; its body stays unread."""
        answer = Response()
        while True:
            head = self.reader.until(b"\r\n\r\n")
            if head is None:
                raise Closed("closed without an answer")
            first, headers = parse_head(head)
            version, status, reason = (first.split(" ", 2) + [""])[:3]
            if 100 <= int(status) < 200 and int(status) != 101:
                answer.interim.append((int(status), headers))
                continue
            answer.version, answer.status, answer.reason = version, int(status), reason
            answer.headers = headers
            return answer

    def read(self, method="GET"):
        """One whole answer to a request with that method."""
        answer = self.read_head()
        return self.read_body(answer, method)

    def read_body(self, answer, method="GET"):
        length = answer.headers.get("content-length")
        if method == "HEAD" or answer.status in (204, 304):
            answer.framing = "none"
        elif answer.headers.get("transfer-encoding", "").lower() == "chunked":
            answer.framing = "chunked"
            answer.chunks, answer.trailers = self.reader.chunked()
            answer.body = b"".join(answer.chunks)
        elif length is not None:
            answer.framing = "length"
            answer.body = self.reader.exactly(int(length))
        else:
            answer.framing = "close"
            answer.body = self.reader.to_end()
        return answer

    def ask(self, method, target, headers=(), body=None, chunks=None, version="HTTP/1.1"):
        self.send_request(method, target, headers, body, chunks, version)
        return self.read(method)

    def closed_by_peer(self, seconds=5.0):
        """True when the peer closes, cleanly or not, without sending another byte."""
        self.sock.settimeout(seconds * PATIENCE)
        try:
            return not self.reader.buffer and self.sock.recv(1) == b""
        except ConnectionResetError:
            return True
        except (socket.timeout, TimeoutError):
            return False


def ask(port, method, target, headers=(), body=None, chunks=None, timeout=10.0):
    """One request on a connection of its own."""
    with Client(port, timeout) as client:
        return client.ask(method, target, headers, body, chunks)


@contextmanager
def crowd(port, count):
    """Many connections at once."""
    clients = []
    try:
        for _ in range(count):
            clients.append(Client(port))
        yield clients
    finally:
        for client in clients:
            client.close()


def chat_body(text="hello", model="tiny", **more):
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = "/v1/messages"
