"""cache: what libkvtier costs, its memory tier against memcpy and XXH3, its NVMe tier against fio."""

import os
import subprocess

import lib_cache_lmcache
import lib_cache_nvme
from lib_procs import BenchError, wanted

MEMORY = "bench/cache/memory/memory_bench"
ROUNDS = 9


def bench_memory(options):
    """Runs the program that measures put, verify, get, lookups and memory per chunk."""
    program = os.path.join(options.build, MEMORY)
    if not os.path.exists(program):
        raise BenchError(f"{program} is not built")
    done = subprocess.run([program, "-r", str(max(options.rounds, ROUNDS))], check=False)
    if done.returncode != 0:
        raise BenchError(f"memory_bench ended with status {done.returncode}")


# {name for --only: the function that measures this part}
PARTS = {"memory": bench_memory, "nvme": lib_cache_nvme.bench_nvme}
TARGETS = [MEMORY, lib_cache_lmcache.PROGRAM, *lib_cache_nvme.TARGETS]


def bench_cache(options):
    """Runs all parts, or the one that --only names; if one cannot run, the others still do. With --peer
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
