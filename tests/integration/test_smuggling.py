"""Requests that were damaged at random. What two parsers could read differently is tests/requests/smuggling."""

import random

from rig.client import Client
from rig.wire import Closed


def drain(client):
    """Reads whatever comes until the end, however it comes."""
    try:
        client.reader.to_end()
    except Closed:
        pass


def test_random_damage_never_confuses(pair):
    """Requests with one byte changed: an answer or a close, and the router lives on."""
    worker, router = pair()
    rng = random.Random(11)
    good = b"POST /x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    for _ in range(150):
        raw = bytearray(good)
        for _ in range(rng.randrange(1, 3)):
            raw[rng.randrange(len(raw))] = rng.choice(b"\x00\r\n \t:0;,a\xff")
        with Client(router.port, timeout=5) as client:
            client.send(bytes(raw))
            client.finish_sending()
            drain(client)
    assert router.alive()
    assert router.ask("GET", "/x").status == 200
    router.wait_idle()
