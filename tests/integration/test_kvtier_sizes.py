"""Automatic sizes of several caches on one machine, each in a process of its own: together no more than was free."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from rig.router import BUILD, with_parent
from rig.wait import until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = BUILD / "cache/command/kvtier"
SLACK = 0.1  # other programs take and give back memory meanwhile

# Opens a cache, and prints what its tiers hold at most for each line that it reads.
CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
from kvtier import library
cache = library.Cache([sys.argv[2]])
assert not cache.mistakes, cache.mistakes
print("open", flush=True)
for line in sys.stdin:
    rooms = [line for line in cache.metrics().splitlines() if line.startswith("kvtier_tier_capacity_bytes{")]
    print(json.dumps({r.split('"')[1]: int(r.split()[1]) for r in rooms}), flush=True)
cache.close()
"""


class Rank:
    def __init__(self, path, rank=0, engine=1, **config):
        config = {"fingerprint": f"{engine:064x}", "rank": rank, "nvme": {"path": str(path)}, **config}
        env = {**os.environ, "KVTIER_LIBRARY": str(BUILD / "cache/core/libkvtier.so.1")}
        self.process = subprocess.Popen(
            with_parent([sys.executable, "-c", CHILD, ROOT / "cache/python", json.dumps(config)]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True,
        )  # fmt: skip

    def rooms(self):
        print("look", file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def ready(self):
        assert self.process.stdout.readline() == "open\n"
        return self

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0


@pytest.fixture
def start(tmp_path):
    """Ranks that are started at once."""
    ranks = []

    def start(*configs):
        made = [Rank(tmp_path / "store", **config) for config in configs]
        ranks.extend(made)
        return [rank.ready() for rank in made]

    yield start
    for rank in ranks:
        rank.process.kill()
        rank.process.wait()


def available():
    """Bytes of memory."""
    with open("/proc/meminfo", encoding="utf-8") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


def test_four_ranks_take_what_one_would(start, tmp_path):
    """6.2 GiB of memory and 53 GiB of disk each, where 12.5 and 66.8 were free in all."""
    for _ in range(5):  # another test's cache may open meanwhile, and those after it find less
        memory, disk = available(), shutil.disk_usage(tmp_path).free
        ranks = start(*({"rank": rank, "node": {"ranks": 4}} for rank in range(4)))
        rooms = [rank.rooms() for rank in ranks]
        l1 = [room["l1"] for room in rooms]
        memory, disk = max(memory, available()), max(disk, shutil.disk_usage(tmp_path).free)  # other tests end as well
        if sum(l1) <= memory / 2 * (1 + SLACK) and max(l1) <= min(l1) * (1 + SLACK):
            break
        for rank in ranks:
            rank.end()
    else:
        raise AssertionError(rooms)
    nvme = [room["nvme"] for room in rooms]
    assert sum(nvme) <= disk * 0.8 * (1 + SLACK) and max(nvme) <= min(nvme) * (1 + SLACK), rooms
    ranks[2].end()

    def again():
        """Whether rank 2, started again, gets the memory that it had: not while another program holds gigabytes."""
        (rank,) = start({"rank": 2, "node": {"ranks": 4}})
        room = rank.rooms()["l1"]
        rank.end()
        return abs(room / l1[2] - 1) <= 2 * SLACK

    until(again, 60, "the memory that rank 2 had")


def test_engines_that_know_nothing_of_each_other(start, tmp_path):
    memory, disk = available(), shutil.disk_usage(tmp_path).free
    (first,) = start({"engine": 1})
    alone = first.rooms()
    others = start(*({"engine": engine} for engine in (2, 3, 4)))
    engines = [first, *others]
    memory, disk = max(memory, available()), max(disk, shutil.disk_usage(tmp_path).free)  # other tests end meanwhile
    assert sum(engine.rooms()["l1"] for engine in engines) <= memory * (1 + SLACK)
    assert first.rooms()["l1"] == alone["l1"]
    room = disk * (1 + SLACK)

    def divided():
        rooms = [engine.rooms()["nvme"] for engine in engines]
        return sum(rooms) <= room and rooms[0] < alone["nvme"] / 2

    until(divided, 20, "a second look at the disk")
    for engine in others:
        engine.end()
    until(lambda: first.rooms()["nvme"] == alone["nvme"], 20, "the whole disk again")


def test_check_says_what_all_ranks_take(tmp_path):
    path = tmp_path / "kvtier.yaml"
    path.write_text(f"nvme: {{path: {tmp_path}/store}}\nnode: {{ranks: 4}}\n", encoding="utf-8")

    def check(*more):
        text = subprocess.run([PROGRAM, "check", *more, path], capture_output=True, text=True, check=True).stdout
        return [line for line in text.splitlines() if line.startswith(("# l1", "# nvme"))]

    l1, nvme = check()
    assert "for 4 ranks" in l1 and "of each of 4 ranks" in l1 and "together" in l1
    assert "for 4 stores" in nvme and "of each of 4 ranks" in nvme
    assert "for 2 ranks" in check("--ranks", "2")[0]
