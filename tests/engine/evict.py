#!/usr/bin/env python3
"""A shared L2 of files at its cap: stock LMCache servers write, and their coordinator deletes.

    evict.py [options]                       with a Python that has LMCache (README.md)

Two `lmcache server`s mount one folder as their shared L2. To each of them LMCache's own client, that of `lmcache bench
server`, stores prompts that were never stored before, by turns of three cache salts: one has no quota and fills what
the cap leaves it, the others have an eighth and a quarter of the cap. Twelve prompts, four of each salt, are stored
first and pinned.

Each line is about the time since the line before: what was stored since the begin; the most that the folder held, and
each salt with a quota, in percent of cap and quota; how many pinned chunks were there at every look, once a second;
the longest time that a client waited for a store; the CPU of one core that servers, client and coordinator took. In the end
the pinned prompts are read back, from the other server.

Exit status 1 if the folder reached its cap, a salt more than 105 % of its quota, or a pinned chunk was missed or is other
bytes; if less than 70 % of the cap was left after an eviction, a store failed, or stores did not keep up with --rate;
or if too little was stored for the cap to matter. LMCache's own coordinator knows no cap: for it the salt without
a quota gets the half of the cap.
"""

import argparse
import collections
import dataclasses
import itertools
import json
import os
import pathlib
import random
import sys
import threading
import time

os.environ |= {"LMCACHE_TRACK_USAGE": "false", "DO_NOT_TRACK": "1", "LMCACHE_LOG_LEVEL": "WARNING", "OMP_NUM_THREADS": "1"}
HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "integration"))

from lmcache.cli.commands.bench.server_bench import helpers  # noqa: E402
from lmcache.cli.commands.bench.server_bench.client import RequestContext, ServerBenchClient  # noqa: E402
from lmcache.cli.commands.bench.server_bench.config import BenchConfig  # noqa: E402
from mp_server import MPServer, has_answered, reporting_to  # noqa: E402
from rig.client import ask  # noqa: E402
from rig.router import PROGRAM, Process, write_config  # noqa: E402
from rig.wait import until, unused_port  # noqa: E402

MIB = 1 << 20
CHUNK, BLOCK, CHUNKS = 64, 16, 8  # tokens of a chunk and of a block, chunks of a prompt
SHAPE = "(2,64,16,2,64):float16:4"  # 128 KiB for a chunk
SALTS = {"": 0.0, "tenant-a": 0.25, "tenant-b": 0.125}  # and quotas, as parts of the cap
PINNED = 4  # prompts of each salt
START_SECONDS = 300


def salted(make_key):
    """The bench's client knows no salts; here they begin its request's id."""

    def make(tokens, request_id, **more):
        return dataclasses.replace(make_key(tokens, request_id, **more), cache_salt=request_id.split("/")[0])

    return make


helpers._make_key = salted(helpers._make_key)


class Server(MPServer):
    """`lmcache server` with the folder as its L2, and a client of it."""

    def __init__(self, logs, folder, number, coordinator):
        adapter = {"type": "fs", "base_path": str(folder), "shared": True}
        super().__init__(
            pathlib.Path(sys.executable).parent / "lmcache", logs / f"server{number}.log", "--chunk-size", CHUNK,
            "--l1-size-gb", "0.125", "--no-l1-use-lazy", "--l2-adapter", json.dumps(adapter), "--disable-metrics",
            *reporting_to(coordinator, f"node-{number}"),
        )  # fmt: skip

    def connect(self):
        until(self.has_answered, START_SECONDS, "lmcache server to listen")
        config = BenchConfig(
            rpc_url=f"tcp://127.0.0.1:{self.port}", http_url=f"http://127.0.0.1:{self.http}", mode="cpu",
            transfer_mode="lmcache_driven", tp_size=1, use_mla=False, num_tokens=CHUNK * CHUNKS,
            kvcache_shape_spec=SHAPE, num_blocks=64, block_size=BLOCK,
        )  # fmt: skip
        self.client = ServerBenchClient(config, lambda _: None)
        self.client.start()
        self.tensors = list(self.client._workers[0].kv_caches.values())

    def digests(self):
        return helpers._compute_client_checksums(self.tensors, 0, CHUNKS * CHUNK // BLOCK, BLOCK, CHUNK)

    def store(self, prompt):
        self.client.lookup(prompt)  # as an engine does; begins the session
        stored = self.client.store(prompt, 0, prompt.num_full_tokens)
        self.client.end_session(prompt)
        return stored.succeeded

    def read(self, prompt):
        """What the server has of the prompt, as digests; None: not all of it."""
        helpers._zero_fill_client_blocks(self.tensors, 0, prompt.num_blocks)
        whole = self.client.lookup(prompt).is_full_hit
        whole = whole and self.client.retrieve(prompt, 0, prompt.num_full_tokens).succeeded
        self.client.end_session(prompt)
        return self.digests() if whole else None


def coordinator_of(options, logs):
    port = unused_port()
    if options.coordinator == "lmcache":
        process = Process([
            pathlib.Path(sys.executable).parent / "lmcache", "coordinator", "--host", "127.0.0.1", "--port", port,
            "--chunk-size", CHUNK,
        ], logs / "coordinator.log")  # fmt: skip
    else:
        write_config(logs / "kvway.yaml", {
            "listen": f"127.0.0.1:{unused_port()}", "admin.listen": f"127.0.0.1:{unused_port()}", "loops": 1,
            "routing.strategy": "kvaware", "kvaware.lmcache.coordinator": f"127.0.0.1:{port}",
            "kvaware.lmcache.l2_size": f"{options.cap}MiB", "kvaware.lmcache.chunk_size": CHUNK,
            "workers": [{"url": f"http://127.0.0.1:{unused_port()}"}],
        })  # fmt: skip
        process = Process([PROGRAM, "-c", logs / "kvway.yaml"], logs / "kvway.log")
    until(lambda: has_answered(process, port, "/healthz"), START_SECONDS, "the coordinator to listen")
    return process, port


def prompts(seed):
    """Prompts of all salts by turns, each of tokens that no other one begins with."""
    numbers = random.Random(seed)
    for number, salt in zip(itertools.count(), itertools.cycle(SALTS)):
        tokens = (number, *(numbers.randrange(30000) for _ in range(CHUNK * CHUNKS - 1)))
        yield RequestContext(
            sequence_id=number, request_id=f"{salt}/{number}", request_kind="cold", token_ids=tokens,
            num_full_tokens=len(tokens), total_chunks=CHUNKS, chunk_size=CHUNK, block_offset=0,
            num_blocks=len(tokens) // BLOCK,
        )  # fmt: skip


class Folder:
    def __init__(self, path):
        self.path = path

    def look(self):
        """Bytes by salt, files that are being written among them, and the names of chunks."""
        sizes, names = collections.Counter(), set()
        with os.scandir(self.path) as entries:
            for entry in entries:
                try:
                    size = entry.stat().st_size
                except FileNotFoundError:
                    continue
                parts = entry.name.removesuffix(".data").removesuffix(".tmp").split("@")
                sizes[parts[4] if len(parts) > 4 else ""] += size
                if entry.name.endswith(".data"):
                    names.add(entry.name)
        return sizes, names


class Writer(threading.Thread):
    """Stores prompts at the rate given, to one server after the other."""

    def __init__(self, servers, source, rate):
        super().__init__(daemon=True)
        self.servers, self.source, self.rate = servers, source, rate
        self.over, self.stored, self.failed, self.longest, self.late = threading.Event(), 0, 0, 0.0, 0.0
        self.bytes = CHUNKS * sum(t.nbytes for t in servers[0].tensors) // 64 * CHUNK // BLOCK

    def run(self):
        due = time.monotonic()
        for server in itertools.cycle(self.servers):
            if self.over.wait(max(0, due - time.monotonic())):
                return
            begun = time.monotonic()
            self.late = begun - due
            self.failed += not server.store(next(self.source))
            self.stored += self.bytes
            self.longest = max(self.longest, time.monotonic() - begun)
            due += self.bytes / self.rate


class Run:
    def __init__(self, options, servers, coordinator, port):
        self.options, self.servers, self.coordinator, self.port = options, servers, coordinator, port
        self.folder, self.cap = Folder(options.folder), options.cap * MIB
        self.limits = {salt: int(part * self.cap) for salt, part in SALTS.items() if part > 0}
        if options.coordinator == "lmcache":
            self.limits[""] = self.cap // 2
        self.worst, self.least, self.missed = collections.Counter(), self.cap, set()

    def tell(self, method, path, body):
        headers = [("content-type", "application/json")]
        answer = ask(self.port, method, path, headers=headers, body=json.dumps(body).encode())
        assert answer.status == 200, answer
        return answer.json()

    def pin(self, source):
        """Stores the prompts to be pinned, the others' tensors being other bytes."""
        server, self.pinned = self.servers[0], {}
        for prompt in itertools.islice(source, PINNED * len(SALTS)):
            for tensor in server.tensors:
                tensor.view(dtype=helpers.torch.int16).random_(-30000, 30000)
            self.pinned[prompt] = server.digests()
            assert server.store(prompt)
        want = len(self.pinned) * CHUNKS
        until(lambda: len(self.folder.look()[1]) == want, START_SECONDS, "pinned prompts to lie in L2")
        self.names = self.folder.look()[1]
        for prompt in self.pinned:
            body = {"model_name": helpers._MODEL_NAME, "world_size": 1, "token_ids": prompt.token_ids}
            self.tell("POST", "/cache/pins", body | {"cache_salt": prompt.request_id.split("/")[0]})
        for salt, limit in self.limits.items():
            self.tell("PUT", f"/quota/{salt or '_default'}", {"limit_gb": limit / (1 << 30)})

    def cpu(self):
        children = [*self.servers, self.coordinator]
        return time.process_time() + sum(child.cpu_seconds() for child in children)

    def watch(self, writer, seconds):
        """Prints a line for so long, and notes the worst."""
        begun, cpu, most, end = time.monotonic(), self.cpu(), collections.Counter(), time.monotonic() + seconds
        there, writer.longest = len(self.names), 0
        while time.monotonic() < end:
            time.sleep(1)
            sizes, names = self.folder.look()
            self.missed |= self.names - names
            there = min(there, len(self.names & names))
            most |= sizes
            most["all"] = max(most["all"], sizes.total())
            if self.worst["all"] > 0.8 * self.cap:
                self.least = min(self.least, sizes.total())
            self.worst |= most
        part = (self.cpu() - cpu) / (time.monotonic() - begun)
        shares = [most["all"] / self.cap, *(most[salt] / limit for salt, limit in self.limits.items())]
        print(
            f"{time.monotonic() - self.begun:7.0f} {writer.stored / MIB:10,.0f}",
            *(f"{share:10.1%}" for share in shares),
            f"{there:6d}/{len(self.names)} {writer.longest * 1000:8.0f} {part:6.0%}",
            flush=True,
        )

    def go(self, source):
        writer = Writer(self.servers, source, self.options.rate * MIB)
        print("      s    stored     folder", *(f"{salt or '(none)':>10}" for salt in self.limits), "   pinned  wait ms    CPU")
        self.begun = time.monotonic()
        writer.start()
        while time.monotonic() - self.begun < self.options.minutes * 60:
            self.watch(writer, self.options.every)
        self.died = not writer.is_alive()
        writer.over.set()
        writer.join()
        self.watch(writer, 5)
        self.writer = writer

    def mistakes(self):
        writer, worst = self.writer, self.worst
        wrong = sum(self.servers[1].read(prompt) != digests for prompt, digests in self.pinned.items())
        found = {
            f"the folder held {worst['all'] / self.cap:.1%} of its cap": worst["all"] >= self.cap,
            f"{self.least / self.cap:.1%} of the cap was left after an eviction": self.least < 0.7 * self.cap,
            f"{len(self.missed)} pinned chunks were missed": self.missed,
            f"{wrong} pinned prompts do not read back": wrong,
            "the writer died": self.died,
            f"{writer.failed} stores failed": writer.failed,
            f"stores were {writer.late:.0f} s late": writer.late > 10,
            f"only {writer.stored / MIB:.0f} MiB were stored": writer.stored < 1.5 * self.cap,
        }
        for salt, limit in self.limits.items():
            found[f"{salt or 'no salt'} held {worst[salt] / limit:.1%} of its quota"] = worst[salt] > 1.05 * limit
        return [text for text, is_wrong in found.items() if is_wrong]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=4, metavar="MIB", help="stored a second (default 4)")
    parser.add_argument("--cap", type=int, default=1024, metavar="MIB", help="of the folder (default 1024)")
    parser.add_argument("--every", type=float, default=30, metavar="SECONDS", help="a line (default 30)")
    parser.add_argument("--coordinator", choices=("kvway", "lmcache"), default="kvway")
    parser.add_argument("--dir", default="engine-logs", help="for logs, and the folder (default engine-logs)")
    options = parser.parse_args()
    logs = pathlib.Path(options.dir).absolute()
    options.folder = logs / "l2"
    options.folder.mkdir(parents=True)
    running = []
    try:
        coordinator, port = coordinator_of(options, logs)
        running.append(coordinator)
        servers = []
        for number in range(2):
            servers.append(Server(logs, options.folder, number, port))
            running.append(servers[-1])
        for server in servers:
            server.connect()
        run, source = Run(options, servers, coordinator, port), prompts(1)
        run.pin(source)
        run.go(source)
        mistakes = run.mistakes()
    finally:
        for process in running:
            process.kill()
    print("wrong: " + "; ".join(mistakes) if mistakes else "all as promised")
    sys.exit(bool(mistakes))


if __name__ == "__main__":
    main()
