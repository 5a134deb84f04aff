"""What kvtier stands on breaks while a real engine answers: no request fails, no answer differs from
those of an engine without it, and the engine's own /metrics say what happened.

Engines have little memory of their own and little in the first tier, so that most prompts are brought
from the tier that breaks.
"""

import os
import pathlib
import random
import signal
import subprocess

import pytest
from connected import ASKED, CHUNK, answers, of_size, through
from reference import compare
from traffic import Traffic

CHUNK_BYTES = CHUNK * 1024  # of the tiny model in float32; half of it in bfloat16
BLOCKS = 192  # of the engine's own
SOON = {"breaker_open": "300ms", "breaker_open_max": "1s"}
LOADS, ERRORS = "kvtier:tier_loads_total", "kvtier:tier_io_errors_total"
TRIPS, CORRUPT = "kvtier:tier_breaker_trips_total", "kvtier:tier_corrupt_total"
STORES, EVICTIONS = "kvtier:tier_stores_total", "kvtier:tier_evictions_total"


class Shared:
    """Redis or kvtierd: how it stops, and how it is back."""

    def __init__(self, server, l2):
        self.server, self.l2 = server, l2

    def fail(self, how):
        if how == "killed":
            self.server.kill()
        else:
            self.server.signal(signal.SIGSTOP)

    def back(self, how):
        if how == "killed":
            self.server.start()
        else:
            self.server.signal(signal.SIGCONT)


@pytest.fixture(params=["redis", "daemon"])
def shared(request):
    server = request.getfixturevalue(request.param)
    if request.param == "redis":
        return Shared(server, {"url": server.url})
    # A daemon that was killed takes nothing before leases of the former one are over.
    return Shared(server, {**through(server), "lease_time": "2s"})


def show(engine, *names):
    counts = engine.counts()
    told = ("vllm:request_success_total", "kvtier:loads_total", "kvtier:failed_loads_total",
            "kvtier:failed_blocks_total", "kvtier:refused_chunks_total", *names)  # fmt: skip
    print("\n  " + ", ".join(f"{name.removesuffix('_total')} {counts[name]:g}" for name in told))
    return counts


def test_a_shared_tier_dies_stalls_and_comes_back(engine_of, right, shared):
    engine = engine_of(of_size(8, l2=shared.l2, control=SOON), blocks=BLOCKS)
    compare(answers(engine), right)
    engine.wait_stored("l2")
    with Traffic(engine, right) as traffic:
        for how in ("killed", "stalled"):
            traffic.wait_count(f"{LOADS}:l2", engine.counts()[f"{LOADS}:l2"] + 50)
            before = engine.counts()
            shared.fail(how)
            traffic.wait_count(f"{TRIPS}:l2", before[f"{TRIPS}:l2"] + 1)
            traffic.wait_more(60)
            assert engine.counts()[f"{ERRORS}:l2"] > before[f"{ERRORS}:l2"], how
            shared.back(how)
            stored = engine.counts()[f"{STORES}:l2"]
            traffic.wait_count(f"{STORES}:l2", stored + 50)
        traffic.wait_count(f"{LOADS}:l2", engine.counts()[f"{LOADS}:l2"] + 20)
    counts = show(engine, f"{LOADS}:l2", f"{ERRORS}:l2", f"{TRIPS}:l2", f"{CORRUPT}:l2")
    assert counts[f"{CORRUPT}:l2"] == 0


def small_disk(folder, size):
    """A command that gives what it starts a file system of this size, invisible to other processes. None: not
    allowed here."""
    name = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    script = f'mount -t tmpfs -o size={size} none "{folder}" && exec "$@"'
    prefix = [*name, "sh", "-c", script, "sh"]
    return prefix if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0 else None


def test_a_full_disk(engine_of, right, tmp_path):
    """A store that may have 1 GiB on a disk of 32 MiB, which another program fills under way."""
    store = tmp_path / "store"
    store.mkdir()
    prefix = small_disk(store, "32m")
    if prefix is None:
        pytest.skip("no file system may be mounted here")
    cache = of_size(8, nvme={"path": str(store), "capacity": "1GiB"}, control=SOON)
    engine = engine_of(cache, blocks=BLOCKS, prefix=prefix)
    with Traffic(engine, right) as traffic:
        traffic.wait_count(f"{LOADS}:nvme", 50)
        inside = pathlib.Path(f"/proc/{engine.pid}/root") / store.relative_to("/")
        filled = fill(inside / "others")
        print(f"\n  others took {filled >> 10} KiB")
        before = engine.counts()
        traffic.wait_more(300)
        counts = show(engine, f"{LOADS}:nvme", f"{STORES}:nvme", f"{EVICTIONS}:nvme", f"{ERRORS}:nvme")
        full = counts - before
        assert full[f"{EVICTIONS}:nvme"] + full[f"{ERRORS}:nvme"] > 0
        (inside / "others").unlink(missing_ok=True)
        traffic.wait_count(f"{LOADS}:nvme", engine.counts()[f"{LOADS}:nvme"] + 50)


def fill(path):
    """Until there is no room; bytes."""
    done, piece = 0, b"x" * 65536
    with open(path, "wb", buffering=0) as file:
        try:
            while done < 1 << 30:
                done += file.write(piece)
        except OSError:
            return done
    raise AssertionError("a disk that is not full")


def spoil_files(folder, rng):
    """Flips a byte of each second chunk, wherever the store has put them; number of flips."""
    flips = 0
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size > CHUNK_BYTES):
        with open(path, "r+b", buffering=0) as file:
            for at in range(0, path.stat().st_size, 2 * CHUNK_BYTES):
                place = at + rng.randrange(CHUNK_BYTES)
                old = os.pread(file.fileno(), 1, place)
                if old and old != b"\0":
                    os.pwrite(file.fileno(), bytes([old[0] ^ 1 << rng.randrange(8)]), place)
                    flips += 1
    return flips


def test_files_changed_from_outside(engine_of, right, tmp_path):
    """First while the engine is down, then while it answers."""
    store, rng = tmp_path / "store", random.Random(5)
    cache = of_size(8, nvme={"path": str(store), "capacity": "1GiB", "sync_time": "50ms"}, control=SOON)
    engine = engine_of(cache, blocks=BLOCKS)
    compare(answers(engine), right)
    engine.wait_stored("nvme")
    engine.kill()
    assert spoil_files(store, rng) > 50
    engine.start()
    engine.ready()
    compare(answers(engine), right)
    engine.wait_count(f"{CORRUPT}:nvme", 20)
    first = show(engine, f"{LOADS}:nvme", f"{CORRUPT}:nvme", f"{TRIPS}:nvme")
    with Traffic(engine, right) as traffic:
        traffic.wait_count(f"{LOADS}:nvme", first[f"{LOADS}:nvme"] + 50)
        spoil_files(store, rng)
        traffic.wait_count(f"{CORRUPT}:nvme", first[f"{CORRUPT}:nvme"] + 20)
        traffic.wait_more(100)
    show(engine, f"{LOADS}:nvme", f"{CORRUPT}:nvme", f"{TRIPS}:nvme")


def spoil_values(redis, rng):
    """Flips a byte of each value; number of values."""
    with redis.connect() as connection:
        keys = connection.keys()
        for key in keys:
            size = connection.cmd("STRLEN", key)
            if size < 64:
                continue
            place = rng.randrange(size)
            old = connection.cmd("GETRANGE", key, place, place)[0]
            connection.cmd("SETRANGE", key, place, bytes([old ^ 1 << rng.randrange(8)]))
    return len(keys)


def test_values_in_redis_changed_from_outside(engine_of, right, redis):
    rng = random.Random(6)
    engine = engine_of(of_size(8, l2={"url": redis.url}, control=SOON), blocks=BLOCKS)
    compare(answers(engine), right)
    engine.wait_stored("l2")
    with Traffic(engine, right) as traffic:
        for _ in range(2):
            counts = engine.counts()
            traffic.wait_count(f"{LOADS}:l2", counts[f"{LOADS}:l2"] + 50)
            assert spoil_values(redis, rng) > 50
            traffic.wait_count(f"{CORRUPT}:l2", counts[f"{CORRUPT}:l2"] + 20)
        traffic.wait_more(100)
    show(engine, f"{LOADS}:l2", f"{CORRUPT}:l2", f"{TRIPS}:l2")


@pytest.mark.parametrize("below", [False, True])
def test_memory_for_a_few_chunks(engine_of, right, tmp_path, below):
    """The first tier has room for less than one long prompt, and eight run at once."""
    nvme = {"nvme": {"path": str(tmp_path / "store"), "capacity": "1GiB"}} if below else {}
    engine = engine_of(of_size(1, **nvme), blocks=BLOCKS)
    with Traffic(engine, right, threads=8) as traffic:
        traffic.wait_more(400, 120)
        traffic.wait_count(f"{EVICTIONS}:l1", 100)
        if below:
            traffic.wait_count(f"{LOADS}:nvme", 20)
    counts = show(engine, "kvtier:stored_chunks_total", f"{EVICTIONS}:l1", f"{LOADS}:nvme", f"{STORES}:nvme")
    # Most of what was computed found no room, or pushed out what was.
    pushed = counts[f"{EVICTIONS}:l1"] + counts["kvtier:refused_chunks_total"]
    assert pushed > counts["kvtier:stored_chunks_total"] / 2
