"""Shared tiers for simulated fleets: a kvtierd with its segment, or a redis-server, gone with the run."""

import contextlib
import glob
import os
import re
import urllib.request
from dataclasses import dataclass

from lib_l2_redis import start_redis
from lib_procs import BenchError, wait_ready

DAEMON = "cache/daemon/kvtierd"
OBJECT = 64 << 10  # bytes of the segment that a shrunk chunk takes
EVICTIONS = re.compile(r'^kvtier_tier_evictions_total\{tier="l1"\} (\d+)$', re.M)


@dataclass
class SharedTier:
    """A shared tier, as the address by which kvsim reaches it."""

    url: str
    segment: str = ""
    admin: str = ""  # admin address of a kvtierd; Redis has none

    def check(self):
        """Raises BenchError if the tier evicted an object: it was made to hold all of them."""
        if not self.admin:
            return
        with urllib.request.urlopen(f"{self.admin}/metrics", timeout=10) as answer:
            found = EVICTIONS.search(answer.read().decode())
        if found and int(found[1]):
            raise BenchError(f"the shared tier was too small: {found[1]} chunks were evicted from it")


@contextlib.contextmanager
def kvtierd(shop, options, chunks):
    """Starts a kvtierd with room for so many chunks; gives it as a SharedTier."""
    port, admin = shop.ports(2)
    name = f"kvb-tables-{os.getpid()}-{port}"
    path = shop.path("kvtierd.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin}\n"
                   f"segment:\n  name: {name}\n  size: {chunks * OBJECT}\n"
                   f"cache:\n  l1:\n    max_chunks: {2 * chunks}\n")
    process = shop.start([os.path.join(options.build, DAEMON), "-c", path], log="kvtierd.log")
    try:
        wait_ready(f"http://127.0.0.1:{admin}/health", process, 60)
        yield SharedTier(f"sagemaker-hyperpod://127.0.0.1:{port}", name, f"http://127.0.0.1:{admin}")
    except BenchError as error:
        raise BenchError(f"{error}: {shop.log_tail('kvtierd.log')}") from error
    finally:
        shop.stop(process)
        for left in (f"/dev/shm/{name}", *glob.glob(f"/dev/shm/.{name}.*")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(left)


@contextlib.contextmanager
def redis(shop):
    """Starts a redis-server; gives it as a SharedTier."""
    process, port = start_redis(shop, None)
    try:
        yield SharedTier(f"redis://127.0.0.1:{port}")
    finally:
        shop.stop(process)
