"""cache --peer lmcache: CPU seconds per GB and the slow chunks, against LMCache's own storage.

Opt-in: LMCACHE_PYTHON names the Python of an environment with `lmcache` in it. Both store 4 MiB chunks in
memory and on the same disk with O_DIRECT, from buffers that were filled before (peers/lmcache_storage.py
and cache/peer/storage_bench.c say what is counted). LMCache neither checks what it reads nor syncs
what it writes; ours does both: `disk_put` waits until a chunk and its record are durable. `raw_get` reads
the same disk by pread alone, for comparison.
"""

import json
import os
import shutil
import subprocess
import tempfile

import lib_report as report
from lib_procs import BenchError

PROGRAM = "bench/cache/peer/kvt-storage-bench"
HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS = 5
OPS = ("cpu_put", "cpu_get", "disk_put", "disk_get")
# Further figures: a commit that has to compute the checksum, and the disk alone by pread.
MORE = {"cpu_put_unsummed": "cpu_put", "raw_get": "disk_get"}


def rows(command):
    """Runs a program that prints a JSON object per operation; returns {op: figures}."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise BenchError(f"{os.path.basename(command[0])}: {words[-1] if words else 'failed'}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row.pop("op"): row for row in rows}


def peer_of(op, theirs):
    """Returns LMCache's figures for the operation that does the same as ours."""
    return theirs[MORE.get(op, op)]


def bench_lmcache(options, chunks=256):
    """Measures both storages and prints one line per operation and figure; `raw_get` reads the disk without a storage."""
    python = os.environ.get("LMCACHE_PYTHON", "")
    if not os.access(python, os.X_OK):
        raise BenchError("LMCACHE_PYTHON: found "
                         f"{python or 'nothing'}, expected the Python of an environment with lmcache")
    disk = tempfile.mkdtemp(prefix="kvtier-peer-", dir=options.folder or options.build)
    rounds = max(options.rounds, ROUNDS)
    size = ["--chunks", str(chunks), "--rounds", str(rounds)]
    try:
        theirs = rows([python, os.path.join(HERE, "peers/lmcache_storage.py"), "--disk", disk, *size])
        ours = rows([os.path.join(options.build, PROGRAM), "-d", os.path.join(disk, "kvtier"), "-c", str(chunks),
                     "-r", str(rounds)])
    finally:
        shutil.rmtree(disk, ignore_errors=True)
    lines = []
    for op in (*OPS, *MORE):
        peer = peer_of(op, theirs)
        lines.append([op, *(f"{side[name]:.4g}" for name in ("cpu_seconds_per_gb", "p50_us", "p99_us")
                            for side in (ours[op], peer))])
    report.table("4 MiB chunks, against LMCache",
                 ["operation", "CPU s/GB", "LMCache", "p50 us", "LMCache", "p99 us", "LMCache"], lines)
    for op in (*OPS, *MORE):
        peer = peer_of(op, theirs)
        for name, unit in (("cpu_seconds_per_gb", "s/GB"), ("p99_us", "us")):
            report.emit("cache", f"{op}_{name}", ours[op][name], unit, peer="lmcache",
                        ratio=ours[op][name] / peer[name])
