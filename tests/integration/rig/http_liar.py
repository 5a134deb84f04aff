"""A proxy in front of a tiered-storage daemon that falsifies its answers: rig/liar.py for HTTP.

It falsifies only answers that grant a lease, unless a lie says otherwise.
"""

import json
import time

from rig.liar import Liar


class Answer:
    """One whole answer with a Content-Length."""

    def __init__(self, data, body_at):
        self.data, self.body_at = data, body_at

    def bulk(self):
        return None

    @property
    def body(self):
        return self.data[self.body_at :]

    @property
    def grants(self):
        return self.data.startswith(b"HTTP/1.1 200") and b'"offsets"' in self.body

    def with_body(self, body, head=b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def parse_http(data, at=0):
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    length = 0
    for line in bytes(data[:end]).split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    whole = end + 4 + length
    return (Answer(bytes(data[:whole]), end + 4), whole) if len(data) >= whole else None


def http_liar(port, seed=1):
    return Liar(port, seed, parse=parse_http)


# --- lies: (liar, client, answer) -> bytes to send instead; None: hang up -------------------------


def of_grants(change):
    def lie(liar, client, answer):
        if not answer.grants:
            return answer.data
        return change(liar, client, answer)

    return lie


def of_fragments(change):
    """A lie about where the object lies: change(liar, [{offset, len}, ...]) -> another list."""

    def lie(liar, client, answer):
        told = json.loads(answer.body)
        return answer.with_body({**told, "offsets": change(liar, told["offsets"])})

    return of_grants(lie)


def moved(by):
    return of_fragments(lambda liar, all_: [{**f, "offset": f["offset"] + by} for f in all_])


def says(body):
    return of_grants(lambda liar, client, answer: answer.with_body(body))


def raw(data):
    return of_grants(lambda liar, client, answer: data)


def late(liar, client, answer):
    time.sleep(1)
    return bytes(bytearray(answer.data))  # the same, and yet a lie


def elsewhere(liar, fragments):
    """Of the right length, within the segment, another object's bytes."""
    return [{**f, "offset": liar.random.randrange(0, 1 << 20) // 4096 * 4096} for f in fragments]


def many(liar, fragments):
    """The right bytes, one at a time, as many as a hundred thousand fragments."""
    first = fragments[0]
    count = min(first["len"], 100000)
    return [{"offset": first["offset"] + i, "len": 1} for i in range(count)]


TOLD_ID = {"id": "x", "offsets": [{"offset": 0, "len": 10}]}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

LIES = {
    "moved by one byte": moved(1),
    "moved by a page": moved(4096),
    "beyond the segment": moved(1 << 40),
    "beyond 63 bits": moved(1 << 63),
    "beyond 64 bits": moved(1 << 64),
    "negative offsets": moved(-(1 << 30)),
    "elsewhere": of_fragments(elsewhere),
    "the first fragment twice": of_fragments(lambda liar, all_: all_ + all_[:1]),
    "too short": of_fragments(lambda liar, all_: [*all_[:-1], {**all_[-1], "len": all_[-1]["len"] - 1}]),
    "too long": of_fragments(lambda liar, all_: [*all_[:-1], {**all_[-1], "len": all_[-1]["len"] + 1}]),
    "nothing": of_fragments(lambda liar, all_: []),
    "empty fragments": of_fragments(lambda liar, all_: [*all_, {"offset": 0, "len": 0}] * 100),
    "huge lengths": of_fragments(lambda liar, all_: [{**f, "len": (1 << 64) - 1} for f in all_]),
    "lengths that wrap": of_fragments(
        lambda liar, all_: [{"offset": 4096, "len": 1 << 63}, {"offset": 4096, "len": 1 << 63}, *all_]
    ),
    "negative lengths": of_fragments(lambda liar, all_: [{**f, "len": -f["len"]} for f in all_]),
    "text for numbers": of_fragments(lambda liar, all_: [{k: str(v) for k, v in f.items()} for f in all_]),
    "fractions": of_fragments(lambda liar, all_: [{k: v + 0.5 for k, v in f.items()} for f in all_]),
    "a hundred thousand fragments": of_fragments(many),
    "no offsets": says({"id": "x"}),
    "no id": says({"offsets": [{"offset": 0, "len": 10}]}),
    "an id with a path": says({**TOLD_ID, "id": "../../v1/kv/a b?c#d\r\nX: y"}),
    "a long id": says({**TOLD_ID, "id": "x" * 100000}),
    "an id that is a list": says({**TOLD_ID, "id": [1]}),
    "a list": says([1, 2, 3]),
    "no JSON": says(b"{nope"),
    "an empty body": says(b""),
    "nested JSON": says(b"[" * 200000),
    "NUL bytes": says(b'{"id":"x\\u0000y","offsets":[{"offset":0,"len":10}]}\0\0'),
    "another type": raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"),
    "created": raw(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"),
    "an error": raw(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"),
    "a redirection": raw(b"HTTP/1.1 302 Found\r\nLocation: /v1/x\r\nContent-Length: 0\r\n\r\n"),
    "continue for ever": raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
    "no HTTP": raw(b"+OK\r\n" * 20),
    "two lengths": raw(HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"),
    "a terabyte": raw(HEAD + b"Content-Length: 1099511627776\r\n\r\n{"),
    "a negative length": raw(HEAD + b"Content-Length: -1\r\n\r\n{}"),
    "bad chunks": raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}"),
    "a head without end": raw(HEAD + b"X: " + b"y" * 3000000),
    "late": of_grants(late),
    "silence": lambda liar, client, answer: b"",
    "hanging up": lambda liar, client, answer: None,
    "half an answer": of_grants(lambda liar, client, answer: client.sendall(answer.data[:-5])),
    "every answer twice": lambda liar, client, answer: answer.data + answer.data,
    "everything is stored": lambda liar, client, answer: b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "everything is the same": lambda liar, client, answer: b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n",
    "nothing is there": lambda liar, client, answer: b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
}
