"""A collector of OTLP over HTTP that reads what it gets strictly, and can be dead, slow or lying.

Protocol Buffers are read here by the numbers of opentelemetry-proto's fields, into the shape that OTLP's JSON has, so that
a test sees the same whatever was sent. A field that the messages do not have, or one that is left over, is an error.
"""

import gzip
import http.server
import json
import struct
import threading

from rig.wait import until, unused_port

# Messages of opentelemetry-proto: {number: (name, type)}. A list holds a repeated field; a dict is a message.
ANY = {1: ("stringValue", "text"), 2: ("boolValue", "bool"), 3: ("intValue", "int64"), 4: ("doubleValue", "double")}
PAIR = {1: ("key", "text"), 2: ("value", ANY)}
EVENT = {1: ("timeUnixNano", "fixed64"), 2: ("name", "text"), 3: ("attributes", [PAIR])}
STATUS = {2: ("message", "text"), 3: ("code", "number")}
SPAN = {
    1: ("traceId", "id"),
    2: ("spanId", "id"),
    4: ("parentSpanId", "id"),
    5: ("name", "text"),
    6: ("kind", "number"),
    7: ("startTimeUnixNano", "fixed64"),
    8: ("endTimeUnixNano", "fixed64"),
    9: ("attributes", [PAIR]),
    11: ("events", [EVENT]),
    15: ("status", STATUS),
    16: ("flags", "fixed32"),
}
SCOPE_SPANS = {1: ("scope", {1: ("name", "text"), 2: ("version", "text")}), 2: ("spans", [SPAN]), 3: ("schemaUrl", "text")}
RESOURCE_SPANS = {
    1: ("resource", {1: ("attributes", [PAIR])}),
    2: ("scopeSpans", [SCOPE_SPANS]),
    3: ("schemaUrl", "text"),
}
REQUEST = {1: ("resourceSpans", [RESOURCE_SPANS])}

WIRE = {"number": 0, "int64": 0, "bool": 0, "fixed64": 1, "double": 1, "fixed32": 5}


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def scalar(kind, value):
    if kind == "text":
        return value.decode()  # strictly UTF-8
    if kind == "id":
        return value.hex()
    if kind == "bool":
        return {0: False, 1: True}[value]
    if kind == "int64":
        return str(value - (1 << 64) if value >> 63 else value)
    if kind == "fixed64":
        return str(struct.unpack("<Q", value)[0])
    if kind == "double":
        return struct.unpack("<d", value)[0]
    return struct.unpack("<I", value)[0] if kind == "fixed32" else value


def decode(data, message):
    """A message of Protocol Buffers, as OTLP's JSON would have it."""
    out, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        name, kind = message[key >> 3]
        wire = key & 7
        assert wire == (WIRE.get(kind, 2) if isinstance(kind, str) else 2), (name, wire)
        if wire == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(wire)
            if size is None:
                size, at = varint(data, at)
            value, at = data[at : at + size], at + size
            assert len(value) == size and at <= len(data), name
        if isinstance(kind, list):
            out.setdefault(name, []).append(decode(value, kind[0]))
        else:
            assert name not in out, f"{name} twice"
            out[name] = decode(value, kind) if isinstance(kind, dict) else scalar(kind, value)
    return out


def flat(attributes):
    """[{key, value}] -> {key: value}; a key may be there once."""
    out = {}
    for pair in attributes:
        ((kind, value),) = pair["value"].items()
        assert pair["key"] not in out, pair["key"]
        out[pair["key"]] = int(value) if kind == "intValue" else value
    return out


class Span:
    """One span, with attributes as a dict."""

    def __init__(self, raw, resource):
        self.raw, self.resource = raw, resource
        self.trace, self.id, self.parent = raw["traceId"], raw["spanId"], raw.get("parentSpanId")
        assert len(self.trace) == 32 and len(self.id) == 16 and (self.parent is None or len(self.parent) == 16)
        self.name, self.kind, self.flags = raw["name"], {1: "internal", 2: "server", 3: "client"}[raw["kind"]], raw["flags"]
        self.begin, self.end = int(raw["startTimeUnixNano"]), int(raw["endTimeUnixNano"])
        assert self.begin <= self.end
        self.attributes = flat(raw.get("attributes", []))
        self.events = [(e["name"], flat(e.get("attributes", []))) for e in raw.get("events", [])]
        for event in raw.get("events", []):
            assert self.begin <= int(event["timeUnixNano"]) <= self.end, (self.name, event)
        self.failed = raw.get("status", {}).get("code") == 2

    def __getitem__(self, key):
        return self.attributes.get(key)

    def happened(self, name):
        return [attributes for event, attributes in self.events if event == name]

    def __repr__(self):
        return f"<{self.kind} {self.name} {self.attributes}>"


class Collector:
    """answer: (status, headers, body), or a function of the request's number that returns these or never."""

    def __init__(self, answer=(200, (), b"")):
        self.answer = answer
        self.messages = []  # (path, headers, decoded) of each request
        self.errors = []
        self.port = unused_port()
        self.server = None
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                status, headers, answer = collector.take(self.path, self.headers, body)
                self.send_response(status)
                for name, value in (*headers, ("content-length", str(len(answer)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_):
                pass  # kvway went away, or this test did

        self.server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        """Nothing listens any more."""
        if self.server:
            self.server.shutdown()
            self.server.server_close()
        self.server = None

    def take(self, path, headers, body):
        try:
            if headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if headers["content-type"] == "application/json":
                message = json.loads(body)
            else:
                assert headers["content-type"] == "application/x-protobuf"
                message = decode(body, REQUEST)
        except Exception as error:  # a test's process must see it, not this thread
            self.errors.append(error)
            raise
        self.messages.append((path, headers, message))
        answer = self.answer
        return answer(len(self.messages)) if callable(answer) else answer

    def spans(self):
        found = []
        assert not self.errors, self.errors
        for _, _, message in list(self.messages):
            for resource_spans in message["resourceSpans"]:
                resource = flat(resource_spans["resource"]["attributes"])
                for scope_spans in resource_spans["scopeSpans"]:
                    assert scope_spans["scope"]["name"] == "kvway"
                    found += [Span(raw, resource) for raw in scope_spans["spans"]]
        return found

    def requests(self, count=1):
        """The SERVER spans, once there are so many."""
        return until(lambda: (lambda got: got if len(got) >= count else None)(
            [span for span in self.spans() if span.kind == "server"]), what=f"{count} requests at the collector")

    def tree(self, request_id):
        """The SERVER span of a request, and its children in the order of their begin."""
        def find():
            return [span for span in self.spans() if span["kvway.request_id"] == request_id]

        (server,) = until(find, what=f"spans of {request_id}")
        children = [span for span in self.spans() if span.trace == server.trace and span.parent == server.id]
        return server, sorted(children, key=lambda span: (span.begin, span.id))
