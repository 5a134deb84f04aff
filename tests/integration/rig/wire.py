"""HTTP/1.1 messages read from a socket without forgetting how they were framed.

Shared by client and worker. Strict where a proxy could cheat: a chunk size must be hexadecimal,
lines must end in CRLF, and what arrives after the message stays in the buffer.
"""

import socket
import struct


class Closed(Exception):
    """The peer closed or reset while more was expected."""

    def __init__(self, why, partial=b""):
        super().__init__(f"{why}, after {len(partial)} bytes: {partial[-200:]!r}")
        self.partial = partial


class Headers(list):
    """(name, value) pairs in the order in which they came."""

    def get(self, name, default=None):
        for key, value in self:
            if key.lower() == name.lower():
                return value
        return default

    def all(self, name):
        return [value for key, value in self if key.lower() == name.lower()]

    def __contains__(self, name):
        return self.get(name) is not None


def parse_head(head):
    """First line and Headers of a head that ends in an empty line."""
    lines = head.decode("latin-1").split("\r\n")
    assert lines[-2:] == ["", ""], f"head does not end in an empty line: {head!r}"
    headers = Headers()
    for line in lines[1:-2]:
        name, colon, value = line.partition(":")
        assert colon and name and name == name.strip(), f"bad header line {line!r}"
        headers.append((name, value.strip(" \t")))
    return lines[0], headers


def reset(sock):
    """Closes with RST instead of FIN."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    sock.close()


class Reader:
    """Buffered reading of one connection."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = bytearray()

    def fill(self):
        """Receives once. False at the end of the stream."""
        try:
            data = self.sock.recv(262144)
        except (ConnectionResetError, BrokenPipeError) as error:
            raise Closed(f"connection reset ({error})", bytes(self.buffer)) from error
        self.buffer += data
        return bool(data)

    def take(self, count):
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        return data

    def until(self, mark):
        """Bytes up to and with mark. None if the peer closed before the first byte."""
        searched = 0
        while True:
            at = self.buffer.find(mark, max(0, searched - len(mark)))
            if at >= 0:
                return self.take(at + len(mark))
            searched = len(self.buffer)
            if not self.fill():
                if not self.buffer:
                    return None
                raise Closed(f"closed before {mark!r}", bytes(self.buffer))

    def exactly(self, count):
        while len(self.buffer) < count:
            if not self.fill():
                raise Closed(f"closed, {count} bytes expected", bytes(self.buffer))
        return self.take(count)

    def some(self, limit=65536):
        """What is there, at least one byte; b"" at the end of the stream."""
        if not self.buffer and not self.fill():
            return b""
        return self.take(limit)

    def to_end(self):
        while self.fill():
            pass
        return self.take(len(self.buffer))

    def chunk(self):
        """Payload of the next chunk; b"" for the last one, whose trailers are still unread."""
        line = self.until(b"\r\n")
        if line is None:
            raise Closed("closed between chunks")
        size = line[:-2].split(b";")[0]
        assert size and all(c in b"0123456789abcdefABCDEF" for c in size), f"chunk size {line!r}"
        data = self.exactly(int(size, 16))
        if data:
            end = self.exactly(2)
            assert end == b"\r\n", f"chunk does not end in CRLF but {end!r}"
        return data

    def trailers(self):
        lines = Headers()
        while True:
            line = self.until(b"\r\n")
            if line is None:
                raise Closed("closed in trailers")
            if line == b"\r\n":
                return lines
            name, _, value = line[:-2].decode("latin-1").partition(":")
            lines.append((name, value.strip(" \t")))

    def chunked(self):
        """(chunks, trailers) of a whole chunked body."""
        chunks = []
        while True:
            try:
                data = self.chunk()
            except Closed as error:
                raise Closed(str(error), b"".join(chunks)) from error
            if not data:
                return chunks, self.trailers()
            chunks.append(data)


def encode_chunks(pieces, trailers=()):
    """A chunked body."""
    out = bytearray()
    for piece in pieces:
        if piece:
            out += b"%x\r\n" % len(piece) + piece + b"\r\n"
    out += b"0\r\n"
    for name, value in trailers:
        out += f"{name}: {value}\r\n".encode("latin-1")
    return bytes(out + b"\r\n")


def encode_head(first, headers):
    text = first + "\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
    return text.encode("latin-1")
