"""Messages that steps send, from the parts below them, and how those that came are shown."""

import json

from rig.play.expect import Failure
from rig.play.values import readable
from rig.wire import encode_chunks, encode_head

PATHS = {"chat": "/v1/chat/completions", "stream": "/v1/chat/completions", "completion": "/v1/completions",
         "message": "/v1/messages", "embedding": "/v1/embeddings"}  # fmt: skip


def short_body(kind, text):
    """The usual body of a path."""
    if kind == "completion":
        return {"model": "tiny", "prompt": text}
    if kind == "embedding":
        return {"model": "tiny", "input": text}
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}]}
    return {**body, **({"stream": True} if kind == "stream" else {}), **({"max_tokens": 5} if kind == "message" else {})}


class Parts:
    """The parts below a step, with variables filled in. body is None where there is none."""

    def __init__(self, below, names, short=None):
        self.headers, self.trailers, self.chunks, self.body, self.events = [], [], None, None, None
        text, members, tree = "hello", {}, None
        for what, name, value in below:
            if what in ("header", "trailer"):
                pair = (names.fill(name), value.bytes(names).decode("latin-1"))
                (self.headers if what == "header" else self.trailers).append(pair)
            elif what == "body":
                self.body = value.bytes(names)
            elif what == "text":
                text = value.bytes(names).decode()
            elif what == "json":
                tree = value.value(names)
            elif what == "member":
                members[names.fill(name)] = value.value(names)
            elif what == "chunk":
                self.chunks = [*(self.chunks or []), value.bytes(names)]
            elif what == "events":
                self.events = [names.fill(word) for word in value]
            else:
                short = name
        if short:
            tree = short_body(short, text)
        if tree is not None or members:
            self.body = json.dumps({**tree, **members} if members else tree).encode() if isinstance(tree, dict) else json.dumps(tree).encode()
            if not self.has("content-type"):
                self.headers.append(("Content-Type", "application/json"))

    def has(self, name):
        return any(key.lower() == name for key, _ in self.headers)

    def request(self, method, target, version, whole=True):
        headers, tail = list(self.headers), b""
        if not self.has("host"):
            headers.insert(0, ("Host", "test"))
        if whole and self.chunks is not None:
            headers.append(("Transfer-Encoding", "chunked"))
            tail = encode_chunks(self.chunks, self.trailers)
        elif whole and self.body is not None:
            headers.append(("Content-Length", str(len(self.body))))
            tail = self.body
        return encode_head(f"{method} {target} {version}", headers) + tail

    def answer(self, status, reason, method):
        """A whole answer, with its length or in chunks."""
        headers = list(self.headers)
        if self.events is not None:
            headers += [] if self.has("content-type") else [("content-type", "text/event-stream; charset=utf-8")]
            self.chunks = [f"data: {event}\n\n".encode() for event in self.events]
        if self.chunks is not None:
            headers.append(("transfer-encoding", "chunked"))
            tail = encode_chunks(self.chunks, self.trailers)
        else:
            tail = self.body or b""
            if status not in ("204", "304") and not self.has("content-length"):
                headers.append(("content-length", str(len(tail))))
        return encode_head(f"HTTP/1.1 {status} {reason}", headers) + (b"" if method == "HEAD" else tail)


def shown_head(first, headers):
    return first + "".join(f"\n{name}: {value}" for name, value in headers)


def shown_answer(answer):
    text = shown_head(f"{answer.version} {answer.status} {answer.reason}", answer.headers)
    return text + (f"\n\n{readable(answer.body)}" if answer.body else "")


def shown_request(ex):
    text = shown_head(f"{ex.method} {ex.target} {ex.version}", ex.headers)
    return text + (f"\n\n{readable(ex.body)}" if ex.body else "")


def same_bytes(wanted, came):
    if wanted != came:
        raise Failure(readable(wanted), readable(came) if came else "nothing")
