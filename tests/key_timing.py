#!/usr/bin/python3
"""key_timing.py - does the time of an answer say how near a wrong key is to a right one?

Asks a kvway with 1,000 keys with wrong keys of three kinds, mixed at random on one connection:

  random    nothing in common with any key
  last      a right key but for its last character
  hash      its SHA-256 begins as a right key's does (two bytes), so that the table compares more

and compares the times of the kinds with Welch's t-test, without the slowest tenth of each, which other work of
the machine makes. A kind is said to differ where |t| is above 4.5, the bound of the dudect method, in two
runs one after the other. Run it on a machine with nothing else to do. Exit status: 0 no difference, 1 a difference.

    KVW_BUILD=build tests/key_timing.py [--requests N]
"""

import argparse
import hashlib
import json
import pathlib
import random
import secrets
import socket
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "integration"))
sys.dont_write_bytecode = True

from rig.router import Router  # noqa: E402 (the path comes first)
from rig.wait import until  # noqa: E402

KEYS = 1000
BOUND = 4.5
KINDS = ("random", "last", "hash")


def digest(key):
    return hashlib.sha256(key.encode()).digest()


def near(keys):
    """A wrong key whose hash begins as that of one of these."""
    starts = {digest(key)[:2] for key in keys}
    while True:
        key = "sk-" + secrets.token_hex(16)
        if digest(key)[:2] in starts:
            return key


def wrong_keys(right, kind, count):
    if kind == "random":
        return ["sk-" + secrets.token_hex(16) for _ in range(count)]
    if kind == "last":
        return [key[:-1] + ("x" if key[-1] != "x" else "y") for key in random.sample(right, count)]
    return [near(right) for _ in range(count)]


def ask(sock, request):
    begun = time.perf_counter_ns()
    sock.sendall(request)
    answer = sock.recv(4096)
    took = time.perf_counter_ns() - begun
    assert answer.startswith(b"HTTP/1.1 401 ") and answer.endswith(b"}"), answer
    return took


def measure(port, right, requests):
    """{kind: times without the slowest tenth}"""
    pools = {kind: wrong_keys(right, kind, 50) for kind in KINDS}
    order = [kind for kind in KINDS for _ in range(requests)]
    random.shuffle(order)
    times = {kind: [] for kind in KINDS}
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place, kind in enumerate(order):
            key = random.choice(pools[kind])
            request = f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
            took = ask(sock, request)
            if place > len(order) // 20:  # it is warm
                times[kind].append(took)
    return {kind: sorted(some)[: len(some) * 9 // 10] for kind, some in times.items()}


def welch(a, b):
    spread = statistics.variance(a) / len(a) + statistics.variance(b) / len(b)
    return (statistics.fmean(a) - statistics.fmean(b)) / spread**0.5


def run(port, right, requests):
    """Kinds that differ from `random`."""
    times = measure(port, right, requests)
    differ = set()
    for kind in KINDS:
        t = welch(times[kind], times["random"])
        print(f"{kind:7} median {statistics.median(times[kind]) / 1000:7.2f} us  mean {statistics.fmean(times[kind]) / 1000:7.2f} us  "
              f"t {t:+.2f}")  # fmt: skip
        if abs(t) > BOUND:
            differ.add(kind)
    return differ


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=20000, help="of each kind in a run")
    options = parser.parse_args()
    right = ["sk-" + secrets.token_hex(16) for _ in range(KEYS)]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        entries = [{"name": f"key{i}", "sha256": digest(key).hex()} for i, key in enumerate(right)]
        (folder / "keys.yaml").write_text(json.dumps({"keys": entries}))
        router = Router(folder, ["http://127.0.0.1:9"], {"auth.keys_file": str(folder / "keys.yaml"), "loops": 1})
        try:
            until(lambda: "listens on" in router.log(), 20, "kvway up")
            differ = run(router.port, right, options.requests)
            print()
            differ &= run(router.port, right, options.requests)
        finally:
            router.stop()
    print(f"\n{'these differ: ' + ', '.join(sorted(differ)) if differ else 'no difference'}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
