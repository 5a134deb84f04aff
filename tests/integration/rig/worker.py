"""A scriptable worker.

Each connection is a thread that reads requests and calls the worker's script for each, which may
send any bytes at any pace. /health, /v1/models and /metrics are answered here from attributes,
as kvway's probes need them, and are recorded apart, so that tests count their own requests only.

    worker.script = lambda ex: ex.respond(200, body=b"hi")
"""

import json
import socket
import threading

from rig.wait import until, unused_port
from rig.wire import Closed, Headers, Reader, encode_chunks, encode_head, parse_head, reset

PROBES = ("/health", "/v1/models", "/metrics")
MARK = "mark-"  # begins a model name that one worker alone lists, so that it can be waited for


class Exchange:
    """One request as the worker received it, and the means to answer."""

    def __init__(self, worker, reader, head):
        self.worker = worker
        self.reader = reader
        self.sock = reader.sock
        self.raw_head = head
        first, self.headers = parse_head(head)
        self.method, self.target, self.version = first.split(" ")
        self.path = self.target.split("?")[0]
        self.body = None  # not read yet
        self.chunks = None  # of a chunked body
        self.trailers = Headers()
        self.keep = True

    def read_body(self):
        """Reads the rest of the request; scripts that answer early do it themselves, or never."""
        if self.body is None:
            if self.headers.get("transfer-encoding", "").lower() == "chunked":
                self.chunks, self.trailers = self.reader.chunked()
                self.body = b"".join(self.chunks)
            else:
                self.body = self.reader.exactly(int(self.headers.get("content-length", "0")))
        return self.body

    def json(self):
        return json.loads(self.read_body())

    def send(self, data):
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed(f"router went away: {error}") from error

    def head(self, status=200, headers=(), reason="OK"):
        self.send(encode_head(f"HTTP/1.1 {status} {reason}", headers))

    def respond(self, status=200, headers=(), body=b"", reason="OK"):
        """A whole answer with its length, in one write."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers = [("content-type", "application/json"), *headers]
        headers = [*headers, ("content-length", str(len(body)))]
        head = encode_head(f"HTTP/1.1 {status} {reason}", headers)
        self.send(head + (b"" if self.method == "HEAD" else body))

    def respond_chunked(self, pieces, headers=(), trailers=(), status=200):
        headers = [*headers, ("transfer-encoding", "chunked")]
        head = encode_head(f"HTTP/1.1 {status} OK", headers)
        self.send(head + encode_chunks(pieces, trailers))

    def start_stream(self):
        """Head of an event stream, as vLLM sends it: long before the first token."""
        self.head(
            200,
            [
                ("content-type", "text/event-stream; charset=utf-8"),
                ("transfer-encoding", "chunked"),
            ],
        )

    def chunk(self, data):
        self.send(b"%x\r\n" % len(data) + data + b"\r\n")

    def event(self, data):
        if not isinstance(data, str):
            data = json.dumps(data)
        self.chunk(f"data: {data}\n\n".encode())

    def end_stream(self):
        self.send(b"0\r\n\r\n")

    def close(self):
        """FIN."""
        self.keep = False
        self.sock.close()

    def reset(self):
        """RST."""
        self.keep = False
        reset(self.sock)

    def gone(self, seconds=5.0):
        """Waits for the router to close this connection. False when it does not in time."""
        self.sock.settimeout(seconds)
        try:
            while self.sock.recv(65536):
                pass
            return True
        except (socket.timeout, TimeoutError):
            return False
        except OSError:
            return True


def answer(ex):
    """The default script: a plain or streamed answer in OpenAI's shape that names the worker."""
    ex.read_body()
    try:
        asked = json.loads(ex.body) if ex.body else {}
    except ValueError:
        asked = {}
    if not isinstance(asked, dict):
        asked = {}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    if asked.get("stream"):
        ex.start_stream()
        for word in ("one", "two", "three"):
            ex.event({"choices": [{"index": 0, "delta": {"content": word}}]})
        ex.event("[DONE]")
        ex.end_stream()
    else:
        text = {"role": "assistant", "content": ex.worker.name}
        ex.respond(body={"choices": [{"index": 0, "message": text}], "usage": usage})


class Worker:
    """One mock worker. `with Worker() as w:` or start() and stop()."""

    def __init__(self, script=answer, name="w", models=("tiny",), port=0, read_body=True, address="127.0.0.1"):
        self.script = script
        self.name = name
        self.address = address
        self.models = list(models)
        self.base = None  # of `models`: the others are its adapters
        self.cards = {}  # name: what the list says of it besides
        self.any_origin = False  # all pages may read /v1/models
        self.models_status = 200  # of /v1/models
        self.hold_models = None  # an event: /v1/models is answered after it, with the models of before
        self.read_body = read_body  # before the script is called
        self.healthy = True
        self.hang_probes = None  # an event: probes of its health are answered after it
        self.metrics = ""
        self.requests = []  # Exchange, probes excluded
        self.probes = []  # paths
        self.failures = []  # exceptions of scripts
        self.accepted = 0
        self.peers = []  # their ports, in the order in which connections came
        self.lock = threading.Lock()
        self.sockets = set()
        self.listener = None
        self.port = port or unused_port(address)  # while it is stopped, too
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def url(self):
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"

    @property
    def mark(self):
        return f"{MARK}{self.port}"

    def start(self):
        """Listens, after stop() on the same port as before."""
        self.listener = socket.socket(socket.AF_INET6 if ":" in self.address else socket.AF_INET)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((self.address, self.port))
        self.listener.listen(1024)
        self.acceptor = threading.Thread(target=self._accept, args=(self.listener,), daemon=True)
        self.acceptor.start()

    def stop(self):
        """Refuses connections and cuts those that are open, as a killed process does.

        No thread begins after it: one that begins while Python itself ends crashes Python 3.11 (signal 11).
        """
        listener, self.listener = self.listener, None
        if listener is None:
            return
        try:
            listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.acceptor.join()
        listener.close()
        self.cut()

    def cut(self):
        """Resets every open connection."""
        with self.lock:
            open_now = list(self.sockets)
        for sock in open_now:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    @property
    def open_connections(self):
        with self.lock:
            return len(self.sockets)

    def paths(self):
        return [ex.path for ex in list(self.requests)]

    def wait_requests(self, count, seconds=10.0):
        what = f"{count} requests at {self.name} (there are {len(self.requests)})"
        until(lambda: len(self.requests) >= count, seconds, what)
        return self.requests[count - 1]

    def _accept(self, listener):
        while True:
            try:
                sock, peer = listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.sockets.add(sock)
                self.accepted += 1
                self.peers.append(peer[1])
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        reader = Reader(sock)
        try:
            while True:
                head = reader.until(b"\r\n\r\n")
                if head is None:
                    return
                ex = Exchange(self, reader, head)
                if ex.path in PROBES and ex.method == "GET":
                    self._probe(ex)
                    continue
                if self.read_body:
                    ex.read_body()
                with self.lock:
                    self.requests.append(ex)
                self.script(ex)
                if not ex.keep:
                    return
                ex.read_body()
        except (Closed, OSError):
            pass  # the router closed: tests look at what arrived
        except Exception as error:  # a broken script must fail its test, not vanish
            self.failures.append(error)
        finally:
            with self.lock:
                self.sockets.discard(sock)
            sock.close()

    def _probe(self, ex):
        self.probes.append(ex.path)
        if ex.path == "/health":
            if self.hang_probes is not None:
                self.hang_probes.wait(30)
            ex.respond(200 if self.healthy else 503, reason="OK" if self.healthy else "Down")
        elif ex.path == "/v1/models":
            data = [{"id": m, "object": "model", "owned_by": "vllm",
                     "parent": None if m == self.base else self.base, **self.cards.get(m, {})}
                    for m in [*self.models, self.mark]]  # fmt: skip
            if self.hold_models is not None:
                self.hold_models.wait(30)
            headers = [("access-control-allow-origin", "*")] if self.any_origin and "origin" in ex.headers else []
            ex.respond(self.models_status, headers, {"object": "list", "data": data})
        else:
            ex.respond(headers=[("content-type", "text/plain")], body=self.metrics.encode())
