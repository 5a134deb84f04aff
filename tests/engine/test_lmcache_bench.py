"""`kvbench engine` and the stock `lmcache bench engine` on the same simulated engine: the same
requests, and times to first token that agree.

Both run multi-round-chat with the same options, in turn, each on a fresh kvsim. Two scenes:

- `overflow`: the sessions do not fit the engine's KV cache, so every question is prefilled again, as
  with the workload's own defaults on one large GPU. Times to first token are half a second and must
  agree within 10 %.
- `cached`: every session is in the cache; a first token comes after some ten milliseconds, and what
  the measuring client itself takes is no longer small against it. A relay on the way measures how long
  each request was under way outside the client. kvbench must report that time within 10 %; how much
  the stock client adds is printed. For both programs that time must be about the same (within 20 %:
  the stock client's own work shares the machine with the engine, which is felt in milliseconds).

BENCH_ROUNDS pairs of each (3), BENCH_SECONDS each (16). `-s` prints the table.
"""

import csv
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import threading
import time

import pytest

import lmc
from rig.router import BUILD
from rig.sim import Sim

LMCACHE = pathlib.Path(lmc.PYTHON).parent / "lmcache"
KVBENCH = BUILD / "bench" / "load" / "kvbench"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
SECONDS = os.environ.get("BENCH_SECONDS", "16")
CONTENT = re.compile(rb'"content":"[^"]')
RANKS = ("p50", "p90", "p99")

# scene: tokens in the simulated engine's cache, questions a second
SCENES = {"overflow": (60000, 1), "cached": (400000, 4)}
OPTIONS = ["--workload", "multi-round-chat", "--kv-cache-volume", 1, "--tokens-per-gb-kvcache", 100000,
           "--mrc-output-length", 20, "--mrc-duration", SECONDS, "--no-interactive", "-q", "--json"]

pytestmark = [
    pytest.mark.skipif(not lmc.PYTHON or not LMCACHE.exists(),
                       reason="set KVW_LMCACHE_PYTHON, or run tests/engine/lmcache.sh"),
    pytest.mark.skipif(not KVBENCH.exists(), reason="kvbench is not built"),
]


class Relay:
    """Passes bytes on to a port, and notes when each request came and its first token went back."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.seen = []  # [first byte of the request, its last byte, first token]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client):
        server = socket.create_connection(("127.0.0.1", self.target))
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        state = {"request": None}
        threading.Thread(target=self._answers, args=[server, client, state], daemon=True).start()
        while data := self._read(client):
            now = time.time()
            if state["request"] is None or state["request"][2]:
                state["request"] = [now, now, 0.0]
            state["request"][1] = now
            server.sendall(data)
        server.close()

    def _answers(self, server, client, state):
        while data := self._read(server):
            request = state["request"]
            if request and not request[2] and CONTENT.search(data):
                request[2] = time.time()
                self.seen.append(request)
            try:
                client.sendall(data)
            except OSError:
                break
        client.close()

    @staticmethod
    def _read(one):
        try:
            return one.recv(1 << 20)
        except OSError:
            return b""


def percentile(values, p):
    values = sorted(values)
    k = (len(values) - 1) * p / 100
    low = int(k)
    return values[low] + (k - low) * (values[min(low + 1, len(values) - 1)] - values[low])


def run(folder, program, scene):
    """One run on a fresh engine: its summary's results, and what the relay saw, in ms."""
    kv_tokens, qps = SCENES[scene]
    folder.mkdir()
    sim = Sim(folder, 1, "--kv-tokens", kv_tokens, "--seed", 7, profile="llama-8b-h100", model="sim")
    relay = Relay(sim.workers[0].port)
    start = [LMCACHE, "bench", "engine"] if program == "stock" else [KVBENCH, "engine"]
    words = [*start, "--engine-url", f"http://127.0.0.1:{relay.port}", *OPTIONS, "--mrc-qps", qps, "--output-dir", folder]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300)
    relay.listener.close()
    sim.signal(15)
    sim.wait()
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((folder / "bench_summary.json").read_text())["results"]
    with open(folder / "bench_results.csv", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["submit_time"]))
    seen = sorted(relay.seen)[-len(rows):]  # the warm-up came before
    pairs = list(zip(rows, seen))
    results["wire"] = [1000 * (token - first) for first, _, token in seen]
    results["before"] = statistics.median(1000 * (s[0] - float(r["submit_time"])) for r, s in pairs)
    results["sending"] = statistics.median(1000 * (s[1] - s[0]) for s in seen)
    results["after"] = statistics.median(1000 * (float(r["first_token_time"]) - s[2]) for r, s in pairs)
    return results


def compare(tmp_path, scene):
    """Pairs of runs, each beginning with another program; prints the table."""
    pairs = []
    for number in range(ROUNDS):
        order = ["stock", "kvbench"] if number % 2 == 0 else ["kvbench", "stock"]
        pairs.append({name: run(tmp_path / f"{scene}{number}{name}", name, scene) for name in order})
    print(f"\n{scene}: TTFT ms (simulated engine)        p50      p90      p99 | on the wire p50 | client before, "
          "sending, after (medians)")
    for pair in pairs:
        for name in ("stock", "kvbench"):
            r = pair[name]
            print(f"  {name:8} {r['total_requests']:3} requests             " +
                  " ".join(f"{r[f'{p}_ttft_ms']:8.2f}" for p in RANKS) +
                  f" | {percentile(r['wire'], 50):8.2f} | {r['before']:7.2f} {r['sending']:7.2f} {r['after']:7.2f}")
    return pairs


def same_requests(pair):
    keys = ("total_requests", "successful_requests", "failed_requests", "total_input_tokens", "total_output_tokens")
    assert [pair["stock"][k] for k in keys] == [pair["kvbench"][k] for k in keys]


def test_times_to_first_token_agree_without_a_warm_cache(tmp_path):
    pairs = compare(tmp_path, "overflow")
    for pair in pairs:
        same_requests(pair)
    for rank in RANKS:
        ratios = [p["kvbench"][f"{rank}_ttft_ms"] / p["stock"][f"{rank}_ttft_ms"] for p in pairs]
        print(f"  {rank}: kvbench / stock {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
        assert 0.9 < statistics.median(ratios) < 1.1, (rank, ratios)


def test_with_warm_caches_the_difference_is_the_clients_own_time(tmp_path):
    pairs = compare(tmp_path, "cached")
    for pair in pairs:
        same_requests(pair)
        stock, ours = pair["stock"], pair["kvbench"]
        assert ours["before"] + ours["after"] < stock["before"] + stock["after"]
    wire = [percentile(p["kvbench"]["wire"], 50) / percentile(p["stock"]["wire"], 50) for p in pairs]
    reported = [p["kvbench"]["p50_ttft_ms"] / percentile(p["kvbench"]["wire"], 50) for p in pairs]
    other = [p["stock"]["p50_ttft_ms"] / percentile(p["stock"]["wire"], 50) for p in pairs]
    print(f"  reported / on the wire, p50: kvbench {statistics.median(reported):.3f}, "
          f"stock {statistics.median(other):.3f}; on the wire kvbench / stock {statistics.median(wire):.3f}")
    assert 0.9 < statistics.median(reported) < 1.1, reported
    assert 0.8 < statistics.median(wire) < 1.2, wire
