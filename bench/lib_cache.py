"""cache: what libkvtier costs, its memory tier against memcpy and XXH3, its NVMe tier against fio."""

import os
import subprocess

import lib_cache_lmcache
import lib_cache_nvme
from lib_procs import BenchError, wanted

MEMORY = "bench/cache/memory/memory_bench"
ROUNDS = 9


def bench_memory(options):
    """Put, verify, get, lookups, memory per chunk: one program."""
    program = os.path.join(options.build, MEMORY)
    if not os.path.exists(program):
        raise BenchError(f"{program} is not built")
    done = subprocess.run([program, "-r", str(max(options.rounds, ROUNDS))], check=False)
    if done.returncode != 0:
        raise BenchError(f"memory_bench ended with status {done.returncode}")


# --only NAME: one of these. Each tier's part is a function and what it needs.
PARTS = {"memory": bench_memory, "nvme": lib_cache_nvme.bench_nvme}
TARGETS = [MEMORY, lib_cache_lmcache.PROGRAM, *lib_cache_nvme.TARGETS]


def bench_cache(options):
    """All parts, or the one that was asked for; the others still run if one cannot. With --peer
    that comparison alone."""
    if options.peer == "lmcache":
        lib_cache_lmcache.bench_lmcache(options)
        return
    faults = []
    for name, part in PARTS.items():
        if wanted(options, name):
            try:
                part(options)
            except BenchError as error:
                faults.append(f"{name}: {error}")
    if faults:
        raise BenchError("; ".join(faults))
