"""Waiting for things to become true, and ports that no other process takes."""

import os
import random
import socket
import time

# Sanitizers and a busy machine make everything slower, never different: only limits grow.
PATIENCE = float(os.environ.get("KVW_PATIENCE", "1"))


def until(condition, seconds=10.0, what="condition"):
    """Returns the first true value of condition(); fails with `what` when time is over."""
    deadline = time.monotonic() + seconds * PATIENCE
    pause = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {seconds * PATIENCE:g} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def stays(condition, seconds, what="condition"):
    """Checks that condition() is true now and stays so for some time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert condition(), f"{what} did not stay true"
        time.sleep(0.01)


class Port:
    """A port number kept for one process until close().

    The socket stays bound here without listening, so the kernel gives its port to no other socket,
    while a server that sets SO_REUSEADDR, as servers do, may bind it and listen.
    """

    def __init__(self, address="127.0.0.1"):
        self.socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((address, 0))
        self.number = self.socket.getsockname()[1]

    def close(self):
        self.socket.close()


KEPT = []


def unused_port(address="127.0.0.1"):
    """A port number that stays this test program's own until it ends, for a server or for none.

    A number that was merely free a moment ago may be another program's Port by now, which a
    server can still bind: the second of the two then finds the address in use.
    """
    KEPT.append(Port(address))
    return KEPT[-1].number


def unused_row(count):
    """Ports in one row, kept likewise, outside the range of outgoing connections; the first of them.

    SO_REUSEADDR comes after the bind, which is refused without it where any other socket is bound.
    """
    for first in random.sample(range(10000, 18000, count), 100):
        row = [socket.socket() for _ in range(count)]
        try:
            for i, kept in enumerate(row):
                kept.bind(("127.0.0.1", first + i))
        except OSError:
            for kept in row:
                kept.close()
            continue
        for kept in row:
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        KEPT.extend(row)
        return first
    raise AssertionError(f"no {count} unused ports in a row")
