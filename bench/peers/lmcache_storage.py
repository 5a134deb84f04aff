#!/usr/bin/env python3
"""lmcache_storage.py - what LMCache's own storage costs: CPU time per GB and the slow chunks.

Run by the Python of an environment with `lmcache` in it:

    python lmcache_storage.py --disk FOLDER [--chunks 256] [--bytes 4194304] [--rounds 3]

The stock StorageManager with its LocalCPUBackend and LocalDiskBackend (O_DIRECT), without an engine.
Buffers are allocated and filled before anything is measured, so that what is counted is the storage
alone. One JSON object per operation on stdout:

    {"op": "cpu_put" | "cpu_get" | "disk_put" | "disk_get", "cpu_seconds_per_gb": ..., "p50_us": ..., "p99_us": ...}

cpu_put: batched_put of one filled buffer, into memory alone. cpu_get: get of what is in memory, and
giving it back. disk_put: batched_put of one filled buffer with the disk behind it, until its file is
written (no sync: LMCache does none). disk_get: get of what is on disk only. CPU time is the whole
process's, kernel included, over all chunks of a round; a chunk's time is by the clock. Medians over rounds.
"""
import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import threading
import time

os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
os.environ["LMCACHE_TRACK_USAGE"] = "false"
os.environ["DO_NOT_TRACK"] = "1"
os.environ.setdefault("PYTHONHASHSEED", "0")

OUT = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # LMCache logs to stdout

import torch  # noqa: E402
from lmcache.utils import CacheEngineKey  # noqa: E402
from lmcache.v1.config import LMCacheEngineConfig  # noqa: E402
from lmcache.v1.event_manager import EventManager  # noqa: E402
from lmcache.v1.memory_management import MemoryFormat  # noqa: E402
from lmcache.v1.metadata import LMCacheMetadata  # noqa: E402
from lmcache.v1.storage_backend.storage_manager import StorageManager  # noqa: E402

TOKENS, LAYERS = 256, 8


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def manager(options, disk):
    gib = options.chunks * options.bytes / 2**30
    hidden = options.bytes // (2 * LAYERS * TOKENS * 2)
    values = {"chunk_size": TOKENS, "local_cpu": not disk, "max_local_cpu_size": 2 * gib + 0.5}
    if disk:
        values |= {"local_disk": disk, "max_local_disk_size": 2 * gib + 1, "extra_config": {"use_odirect": True}}
    config = LMCacheEngineConfig.from_defaults(**values)
    meta = LMCacheMetadata(
        model_name="m", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
        kv_dtype=torch.bfloat16, kv_shape=(LAYERS, 2, TOKENS, hidden // 64, 64), use_mla=False,
        role="worker", chunk_size=TOKENS)  # fmt: skip
    shape = torch.Size([2, LAYERS, TOKENS, hidden])
    return StorageManager(config, meta, EventManager()), shape


def key_of(number):
    return CacheEngineKey("m", 1, 0, number, torch.bfloat16)


def filled(storage, shape, count):
    objects = [storage.allocate(shape, torch.bfloat16, MemoryFormat.KV_2LTD) for _ in range(count)]
    for number, chunk in enumerate(objects):
        chunk.tensor.view(torch.uint8).fill_(number & 255)
    return objects


def measured(times, cpu, options):
    times = sorted(times)
    return {
        "cpu_seconds_per_gb": cpu / (len(times) * options.bytes / 1e9),
        "p50_us": times[len(times) // 2] * 1e6,
        "p99_us": times[min(len(times) - 1, len(times) * 99 // 100)] * 1e6,
    }


def run(options, work):
    """Calls work(n) for each chunk and measures each call."""
    times, before = [], cpu_seconds()
    for number in range(options.chunks):
        begin = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - begin)
    return measured(times, cpu_seconds() - before, options)


def cpu_round(options, rows):
    storage, shape = manager(options, None)
    objects = filled(storage, shape, options.chunks)
    rows["cpu_put"].append(run(options, lambda n: storage.batched_put([key_of(n)], [objects[n]])))

    def get(number):
        chunk = storage.get(key_of(number))
        assert chunk is not None
        chunk.ref_count_down()

    rows["cpu_get"].append(run(options, get))
    storage.close()


def disk_round(options, rows, folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    storage, shape = manager(options, folder)
    disk = storage.storage_backends["LocalDiskBackend"]
    objects = filled(storage, shape, options.chunks)

    written = threading.Event()
    insert_key = disk.insert_key  # LMCache's disk backend calls this when a file is complete

    def insert_and_tell(*args, **more):
        insert_key(*args, **more)
        written.set()

    disk.insert_key = insert_and_tell

    def put(number):
        written.clear()
        storage.batched_put([key_of(number)], [objects[number]])
        assert written.wait(60)

    rows["disk_put"].append(run(options, put))

    def get(number):
        chunk = storage.get(key_of(number))
        assert chunk is not None and int(chunk.tensor.view(torch.uint8).flatten()[0]) == number & 255
        chunk.ref_count_down()

    rows["disk_get"].append(run(options, get))
    storage.close()
    shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--disk", required=True)
    parser.add_argument("--chunks", type=int, default=256)
    parser.add_argument("--bytes", type=int, default=4 << 20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = {op: [] for op in ("cpu_put", "cpu_get", "disk_put", "disk_get")}
    for _ in range(options.rounds):
        cpu_round(options, rows)
        disk_round(options, rows, os.path.join(options.disk, "lmcache"))
    for op, figures in rows.items():
        row = {name: statistics.median(f[name] for f in figures) for name in figures[0]}
        print(json.dumps({"op": op, **row}), file=OUT)
    OUT.flush()
    os._exit(0)  # LMCache's threads do not end by themselves


if __name__ == "__main__":
    sys.exit(main())
