"""A proxy in front of a Redis server that falsifies its replies.

It takes the replies of an honest server apart and hands them on as its present lie has them. Any
command works, since what is asked is passed on untouched; only answers change.
"""

import random
import select
import socket
import threading
import time

from rig.wait import Port


class Reply:
    """One whole reply of the server: its kind byte, its bytes, and for a bulk string where the
    payload lies."""

    def __init__(self, data, payload=None):
        self.data, self.payload = data, payload

    @property
    def kind(self):
        return self.data[:1]

    def bulk(self):
        return None if self.payload is None else self.data[self.payload[0] : self.payload[1]]

    def with_bulk(self, data):
        return b"$%d\r\n%s\r\n" % (len(data), data)


def parse(data, at=0):
    """(Reply, end) of the reply at `at`, or None while it is not whole."""
    end = data.find(b"\r\n", at)
    if end < 0:
        return None
    kind, rest, body = data[at : at + 1], data[at + 1 : end], end + 2
    if kind == b"$" and int(rest) >= 0:
        stop = body + int(rest)
        if len(data) < stop + 2:
            return None
        return Reply(bytes(data[at : stop + 2]), (body - at, stop - at)), stop + 2
    if kind in b"*~%" and int(rest) >= 0:
        here = body
        for _ in range(int(rest) * (2 if kind == b"%" else 1)):
            inner = parse(data, here)
            if inner is None:
                return None
            here = inner[1]
        return Reply(bytes(data[at:here])), here
    return Reply(bytes(data[at:body])), body


class Liar:
    """Listens on a port of its own in front of a server. lie: see LIES; None is honest."""

    def __init__(self, server_port, seed=1, parse=parse):
        self.server_port, self.parse = server_port, parse
        self.random = random.Random(seed)
        self.lie = None
        self.changed = 0  # answers falsified so far
        self.least = 64  # shorter bulk strings are handed on untouched
        self.last = b"x" * 64  # of an earlier answer
        self.listen = Port()
        self.port = self.listen.number
        self.ended = False
        self.threads, self.pairs = [], set()
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", self.port))
        self.socket.listen(64)
        self.spawn(self.accept)

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def spawn(self, run, *arguments):
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        thread.start()
        self.threads.append(thread)

    def accept(self):
        while not self.ended:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.server_port), 5)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.pairs.add((client, server))
            self.spawn(self.serve, client, server)

    def serve(self, client, server):
        held = bytearray()
        try:
            while not self.ended:
                ready, _, _ = select.select([client, server], [], [], 0.2)
                if client in ready:
                    data = client.recv(1 << 16)
                    if not data:
                        return
                    server.sendall(data)
                if server in ready:
                    data = server.recv(1 << 18)
                    if not data:
                        return
                    held += data
                    if not self.hand_on(client, held):
                        return
        except (OSError, ValueError):
            pass
        finally:
            self.pairs.discard((client, server))
            client.close()
            server.close()

    def hand_on(self, client, held):
        """Passes whole replies on; False: this connection ends."""
        while held:
            found = self.parse(held)
            if found is None:
                return True
            reply, end = found
            del held[:end]
            lie = self.lie
            told = lie(self, client, reply) if lie is not None else reply.data
            if told is not reply.data:
                self.changed += 1
            if told is None:
                return False
            bulk = reply.bulk()
            if bulk is not None and len(bulk) >= self.least:
                self.last = bulk
            if told:
                client.sendall(told)
        return True

    def cut(self):
        """Ends every connection."""
        for client, server in list(self.pairs):
            for end in (client, server):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def stop(self):
        self.ended = True
        self.cut()
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.socket.close()
        for thread in self.threads:
            thread.join(5)
        self.listen.close()


# --- lies: (liar, client, reply) -> bytes to send instead; None: hang up --------------------------


def of_values(change):
    """A lie about bulk strings that are long enough to be values."""

    def lie(liar, client, reply):
        bulk = reply.bulk()
        if bulk is None or len(bulk) < liar.least:
            return reply.data
        return change(liar, client, reply, bulk)

    return lie


def says(text):
    return of_values(lambda liar, client, reply, bulk: text)


def of_everything(text):
    return lambda liar, client, reply: text


def flip(liar, client, reply, bulk):
    out = bytearray(bulk)
    out[liar.random.randrange(len(out))] ^= 1 << liar.random.randrange(8)
    return reply.with_bulk(bytes(out))


def late(liar, client, reply, bulk):
    time.sleep(0.8)
    return flip(liar, client, reply, bulk)


def drip(liar, client, reply, bulk):
    for at in range(0, min(len(reply.data), 2000), 100):
        client.sendall(reply.data[at : at + 100])
        time.sleep(0.05)


def twice(liar, client, reply):
    return reply.data + reply.data


def swapped(liar, client, reply, bulk):
    """An earlier value, of the length that belongs here."""
    return reply.with_bulk((liar.last * (len(bulk) // max(1, len(liar.last)) + 1))[: len(bulk)])


LIES = {
    "flipped bit": of_values(flip),
    "bytes of another key": of_values(swapped),
    "late and other bytes": of_values(late),
    "a value cut short": of_values(lambda l, c, r, bulk: r.with_bulk(bulk[:-7])),
    "a value grown": of_values(lambda l, c, r, bulk: r.with_bulk(bulk + b"grown!!")),
    "an empty value": says(b"$0\r\n\r\n"),
    "zeros": of_values(lambda l, c, r, bulk: r.with_bulk(bytes(len(bulk)))),
    "length of a terabyte": says(b"$1099511627776\r\nabc"),
    "length beyond 63 bits": says(b"$9223372036854775808\r\n"),
    "length beyond 64 bits": says(b"$18446744073709551621\r\n"),
    "negative length": says(b"$-5\r\n"),
    "length that is no number": says(b"$12x\r\n"),
    "length without digits": says(b"$\r\n"),
    "no such key": says(b"$-1\r\n"),
    "an integer": says(b":7\r\n"),
    "a status": says(b"+OK\r\n"),
    "an error": says(b"-ERR unwell\r\n"),
    "loading": says(b"-LOADING Redis is loading the dataset in memory\r\n"),
    "moved nowhere": says(b"-MOVED 1 127.0.0.1:1\r\n"),
    "moved without words": says(b"-MOVED\r\n"),
    "no authority": says(b"-NOAUTH Authentication required.\r\n"),
    "read only": of_everything(b"-READONLY You can't write against a read only replica.\r\n"),
    "an array": says(b"*2\r\n$1\r\na\r\n:1\r\n"),
    "an endless array": says(b"*2147483647\r\n"),
    "nested arrays": says(b"*1\r\n" * 20000),
    "a null of RESP3": says(b"_\r\n"),
    "a push of RESP3": says(b">2\r\n+a\r\n+b\r\n"),
    "no RESP": says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "binary": says(bytes(range(256)) * 16),
    "a line without end": says(b"+" + b"x" * 4000000),
    "half a value, then nothing": of_values(lambda l, c, r, bulk: r.data[: len(r.data) // 2]),
    "half a value, then the end": of_values(lambda l, c, r, bulk: c.sendall(r.data[:-99])),
    "drops": of_values(drip),
    "silence": of_everything(b""),
    "hanging up": lambda liar, client, reply: None,
    "every answer twice": twice,
    "everything is ok": of_everything(b"+OK\r\n"),
    "everything is one": of_everything(b":1\r\n"),
    "everything is nothing": of_everything(b"$-1\r\n"),
}
