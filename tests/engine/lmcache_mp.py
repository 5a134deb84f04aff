#!/usr/bin/env python3
"""Drives the client of LMCache's multi-process mode for tiered storage, stock and unchanged.

    lmcache_mp.py URL SEGMENT [BUCKET]

Commands on standard input, one JSON object each on standard output:
put KEY BYTES | get KEY BYTES | take KEY | copy BYTES | release | status | quit
The bytes of a key are a function of it, so `get` and `copy` say whether they are right.
"""

import asyncio
import hashlib
import json
import os
import sys

os.environ.setdefault("LMCACHE_LOG_LEVEL", "WARNING")
os.environ["LMCACHE_TRACK_USAGE"] = "false"
os.environ["DO_NOT_TRACK"] = "1"
OUT = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

from lmcache.v1.distributed.l2_adapters.sagemaker_hyperpod_client import (  # noqa: E402
    SageMakerHyperPodClient,
)


def bytes_of(key, count):
    return hashlib.shake_256(key.encode()).digest(count)


class Driver:
    def __init__(self, client):
        self.client, self.lease, self.key = client, None, None

    async def put(self, key, count):
        return {"stored": await self.client.put(key, memoryview(bytes_of(key, int(count))))}

    async def get(self, key, count):
        lease = await self.client.acquire_lease(key)
        if lease is None:
            return {"hit": False, "equal": None}
        out = bytearray(int(count))
        copied = self.client.copy_from_lease(lease, memoryview(out))
        released = await self.client.release_lease(lease)
        right = bytes(out) == bytes_of(key, int(count)) if copied else None
        return {"hit": True, "copied": copied, "released": released, "equal": right}

    async def take(self, key):
        self.key, self.lease = key, await self.client.acquire_lease(key)
        return {"hit": self.lease is not None}

    async def copy(self, count):
        out = bytearray(int(count))
        copied = self.client.copy_from_lease(self.lease, memoryview(out))
        right = bytes(out) == bytes_of(self.key, int(count)) if copied else None
        return {"copied": copied, "equal": right}

    async def release(self):
        return {"released": await self.client.release_lease(self.lease)}

    async def status(self):
        told = self.client.report_status()
        return {"healthy": told["is_healthy"], "current": told["shared_memory_current"]}


async def main():
    url, segment, *bucket = sys.argv[1:]
    client = SageMakerHyperPodClient(
        url,
        bucket=bucket[0] if bucket else "lmcache",
        shared_memory_name=segment,
        lease_wait_timeout_ms=300,
        lease_ttl_ms=int(os.environ.get("LEASE_TTL_MS", "30000")),
    )
    driver = Driver(client)
    print(json.dumps({"cmd": "start", "ok": True}), file=OUT)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        words = line.split()
        if words[0] == "quit":
            break
        answer = await getattr(driver, words[0])(*words[1:])
        print(json.dumps({"cmd": line.strip(), "ok": True, **answer}), file=OUT)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
