"""A Redis master, its replica and three Sentinels on loopback, whose master can be killed."""

import contextlib
import time

from lib_l2_redis import ask_redis, start_redis
from lib_procs import BenchError

NAME = "redismaster"  # libkvtier's default (l2.service)


class Watched:
    """The master, replica and Sentinels, as a SharedTier for kvsim."""

    segment = ""

    def __init__(self, shop):
        self.shop = shop
        self.master, port = start_redis(shop, None)
        self.replica, other = start_redis(shop, None)
        ask_redis(other, "REPLICAOF", "127.0.0.1", str(port))
        self.ports = self.shop.ports(3)
        self.sentinels = [self._sentinel(number, port) for number in self.ports]
        self.url = "redis-sentinel://" + ",".join(f"127.0.0.1:{p}" for p in self.ports)
        self._wait(other)

    def _sentinel(self, number, port):
        path = self.shop.path(f"sentinel-{number}.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"port {number}\nbind 127.0.0.1\ndir {self.shop.folder}\n"
                       f"sentinel monitor {NAME} 127.0.0.1 {port} 2\n"
                       f"sentinel down-after-milliseconds {NAME} 500\n"
                       f"sentinel failover-timeout {NAME} 3000\n")
        return self.shop.start(["redis-server", path, "--sentinel"], log=f"sentinel-{number}.log")

    def _wait(self, replica):
        """Waits until the Sentinels know each other and the replica."""
        for _ in range(200):
            with contextlib.suppress(OSError):
                answers = b"".join(ask_redis(p, "SENTINEL", "MASTER", NAME) for p in self.ports)
                if (answers.count(b"num-slaves\r\n$1\r\n1") == 3
                        and answers.count(b"num-other-sentinels\r\n$1\r\n2") == 3
                        and b"master_link_status:up" in ask_redis(replica, "INFO", "replication")):
                    return
            time.sleep(0.1)
        raise BenchError("Sentinels did not find each other")

    def kill_master(self):
        """Kills the master at once."""
        self.master.kill()
        self.master.wait()
        self.shop.processes.remove(self.master)


@contextlib.contextmanager
def sentinels(shop):
    """Starts a Watched, whose processes end with the workshop."""
    yield Watched(shop)
