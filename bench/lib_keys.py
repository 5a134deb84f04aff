"""keys: what 100,000 keys of clients cost: finding one, reading their file, and reading it again under load."""

import hashlib
import os
import subprocess
import threading
import time
import urllib.request

from lib_procs import BenchError
from lib_proxy import Stage
from lib_report import emit, say, table

PROGRAM = "bench/micro/keyring_bench"
TARGETS = [PROGRAM, "bench/load/kvb-load"]
KEYS, RELOADS = 100_000, 3
SHOWN = "sk-bench-0123456789"  # the key that the load sends (load/bodies.c)


def lookups(options, count):
    """Prints the figures of the program that looks keys up, a JSON line each."""
    program = os.path.join(options.build, PROGRAM)
    if not os.path.exists(program):
        raise BenchError(f"{program} is not built")
    done = subprocess.run([program, str(count)], check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        raise BenchError(f"keyring_bench ended with status {done.returncode}")
    figures = {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}
    emit("keys", "lookup", figures["find_ns"], "ns", keys=count)
    emit("keys", "hash", figures["hash_ns"], "ns", keys=count)
    emit("keys", "file_read", figures["read_s"], "s", keys=count)
    say(f"{count:,} keys: found in {figures['find_ns']:g} ns, besides {figures['hash_ns']:g} ns for the hash; "
        f"the file read in {figures['read_s']:g} s (processor time)")


class File:
    """The file of keys; each replacement has other keys but for one, which the load shows."""

    def __init__(self, path, count):
        self.path, self.turn = path, 0
        for turn in range(1 + RELOADS):  # all files are written now, since writing one takes as much of a processor as reading it
            self.write(turn, count)
        self.replace()

    def write(self, turn, count):
        names = [SHOWN, *(f"sk-{turn}-{i}" for i in range(count - 1))]
        with open(f"{self.path}.{turn}", "w", encoding="utf-8") as file:
            file.write("keys:\n")
            for i, name in enumerate(names):
                file.write(f"  - name: key{i}\n    sha256: {hashlib.sha256(name.encode()).hexdigest()}\n")

    def replace(self):
        """Replaces the file by a rename, as Kubernetes and editors do."""
        os.rename(f"{self.path}.{self.turn}", self.path)
        self.turn += 1


def reloads_done(port):
    """Returns how often kvway has taken a new file, by its metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith('kvway_auth_reloads_total{result="ok"}'):
                return int(float(line.split()[1]))
    raise BenchError("no kvway_auth_reloads_total")


def replace(file, port, seconds):
    """Replaces the file RELOADS times, each time when kvway uses the one before. Appends to `seconds` how long each took, or the error that ended it."""
    try:
        for _ in range(RELOADS):
            before, deadline = reloads_done(port), time.monotonic() + 60
            file.replace()
            start = time.monotonic()
            while reloads_done(port) == before:
                if time.monotonic() > deadline:
                    raise BenchError("the file was not taken within 60 s")
                time.sleep(0.05)
            seconds.append(time.monotonic() - start)
    except (BenchError, OSError) as error:
        seconds.append(error)


def under_load(stage, count):
    """Measures requests while the file is replaced, and for as many seconds while it is not."""
    file = File(stage.shop.path("keys.yaml"), count)
    proxy = stage.kvway("prefixaware", extra=f"auth:\n  keys_file: {file.path}\n")
    seconds = []
    rounds = {"alone": [], "reloading": []}

    def load(when):
        rounds[when].append(stage.load.attempt("requests", port=proxy.port, pid=proxy.pid, body=2048, connections=32,
                                               warmup_ms=100, duration_ms=500))

    thread = threading.Thread(target=replace, args=(file, proxy.port + 1, seconds))
    load("alone")
    thread.start()
    while thread.is_alive():
        load("reloading")
    thread.join()
    if isinstance(seconds[-1], Exception):
        raise BenchError(str(seconds[-1]))
    while len(rounds["alone"]) < len(rounds["reloading"]):
        load("alone")
    rows = []
    for when, results in rounds.items():
        lost = sum(result["errors"] for result in results)
        p99 = max(result["latency_us_p99"] for result in results)
        requests = sum(result["requests_per_second"] * 0.5 for result in results)
        rows.append([when, float(round(requests)), lost, p99])
    slowest = max(seconds)
    table(f"{count:,} keys, {RELOADS} reloads, the longest {slowest:.2f} s until in force",
          ["", "requests", "lost", "worst p99 us"], rows)
    (_, _, _, alone), (_, requests, lost, p99) = rows
    emit("keys", "requests_lost", lost, "requests", keys=count, reloads=RELOADS, requests=requests)
    emit("keys", "reload", slowest, "s", keys=count, reloads=RELOADS)
    emit("keys", "latency_p99", p99, "us", peer="without reloads", ratio=p99 / alone, peer_value=alone, keys=count)
    if lost:
        raise BenchError(f"{lost} requests were lost")


def bench_keys(options):
    """Measures with 100,000 keys; with --quick, with 2,000."""
    count = 2000 if options.quick else KEYS
    lookups(options, count)
    with Stage(options) as stage:
        under_load(stage, count)
