"""ZeroMQ's wire protocol (ZMTP 3.0, no authentication): just enough to talk to a socket of libzmq, from
either side, byte by byte as it is specified and without that library."""

import socket
import struct
import threading

from rig.wait import PATIENCE

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
MORE, LONG, COMMAND = 1, 2, 4


def frame(data, more=False):
    if len(data) < 256:
        return bytes([MORE if more else 0, len(data)]) + data
    return bytes([LONG | (MORE if more else 0)]) + struct.pack(">Q", len(data)) + data


def ready(kind):
    name, value = b"Socket-Type", kind.encode()
    body = b"\x05READY" + bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    return bytes([COMMAND, len(body)]) + body


class Peer:
    """One connection, after its handshake."""

    def __init__(self, sock, kind):
        self.sock = sock
        self.buffer = b""
        sock.sendall(GREETING + ready(kind))
        greeting = self.read(64)
        assert greeting[0] == 0xFF and greeting[9] & 1 and greeting[12:16] == b"NULL"
        flags, body = self.read_frame()
        assert flags & COMMAND and body.startswith(b"\x05READY"), body

    def read(self, size):
        while len(self.buffer) < size:
            piece = self.sock.recv(65536)
            if not piece:
                raise EOFError("the other side has closed")
            self.buffer += piece
        piece, self.buffer = self.buffer[:size], self.buffer[size:]
        return piece

    def read_frame(self):
        flags = self.read(1)[0]
        size = struct.unpack(">Q", self.read(8))[0] if flags & LONG else self.read(1)[0]
        return flags, self.read(size)

    def receive(self, seconds=10.0):
        """The frames of one message."""
        self.sock.settimeout(seconds and seconds * PATIENCE)
        frames = []
        while True:
            flags, body = self.read_frame()
            if flags & COMMAND:
                continue
            frames.append(body)
            if not flags & MORE:
                return frames

    def send(self, *frames):
        last = len(frames) - 1
        self.sock.sendall(b"".join(frame(f, i < last) for i, f in enumerate(frames)))

    def ping(self, seconds=10.0):
        """Returns once libzmq's thread of this connection has done with all that was sent before.

        It answers a PING in the middle of what it reads, a moment before it hands on what came
        ahead of that: the answer to a second one shows that it has.
        """
        self.sock.settimeout(seconds * PATIENCE)
        for _ in range(2):
            body = b"\x04PING" + bytes(2)
            self.sock.sendall(bytes([COMMAND, len(body)]) + body)
            flags, body = self.read_frame()
            assert flags & COMMAND and body.startswith(b"\x04PONG"), body

    def close(self):
        self.sock.close()


def connect(port, kind, seconds=10.0):
    return Peer(socket.create_connection(("127.0.0.1", port), seconds), kind)


def subscribe(port, topic=b""):
    """A SUB that is sure to get what is sent from now on."""
    peer = connect(port, "SUB")
    peer.send(b"\x01" + topic)
    peer.ping()
    return peer


class Listener:
    """A bound socket: `handler(peer, frames)` is called for each message of each peer."""

    def __init__(self, kind, handler, port=0):
        self.kind = kind
        self.handler = handler
        self.server = socket.create_server(("127.0.0.1", port))
        self.port = self.server.getsockname()[1]
        self.peers = []
        self.failures = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        try:
            peer = Peer(sock, self.kind)
            self.peers.append(peer)
            while True:
                self.handler(peer, peer.receive(None))
        except (EOFError, OSError):
            pass
        except Exception as error:  # reported by the test that closes it
            self.failures.append(error)

    def close(self):
        self.server.close()
        for peer in self.peers:
            peer.close()
        assert not self.failures, self.failures
