"""Stock LMCache and libkvtier on one redis-server: each reads what the other wrote."""

import pathlib

import pytest

import lmc
from rig.drive import Drive
from rig.kvbytes import kv_bytes, metadata
from rig.redis import SERVER

pytestmark = [
    pytest.mark.skipif(not lmc.PYTHON, reason="set KVW_LMCACHE_PYTHON, or run tests/engine/lmcache.sh"),
    pytest.mark.skipif(SERVER is None, reason="no redis-server"),
]

TOKENS = 40  # two whole chunks and one of eight tokens


@pytest.fixture
def engines(tmp_path, redis):
    """engines(): another LMCache over redis."""
    made = []

    def make():
        made.append(lmc.LMCache(tmp_path, lmc.environment(redis.url), name=f"lmcache{len(made)}"))
        return made[-1]

    yield make
    for engine in made:
        engine.kill()


@pytest.fixture
def drive(tmp_path, redis):
    config = {"l2.url": redis.url, "l2.format": "lmcache", "l2.layout": lmc.LAYOUT}
    drive = Drive(tmp_path, config).wait_open()
    yield drive
    drive.finish()


def chunks(engine, seed, tokens=TOKENS):
    """[(start, count, name)] as LMCache cuts and names them."""
    rows = engine.ask("hashes", seed, tokens)["chunks"]
    return [(start, end - start, name) for start, end, _, name in rows]


def get_as(drive, name, path):
    pathlib.Path(path).unlink(missing_ok=True)
    drive.ask("reopen")
    got = drive.ask("getas", name, 2000, path)
    return path.read_bytes() if got["got"] else None


def test_libkvtier_reads_what_lmcache_wrote(engines, drive, redis, tmp_path):
    engine = engines()
    assert engine.store(1000, TOKENS)["stored"] == TOKENS
    for start, count, name in chunks(engine, 1000):
        assert get_as(drive, name, tmp_path / "out") == kv_bytes(1000, start, count), name
    assert get_as(drive, "drive/tiny@1@0@1234567812345678@bfloat16", tmp_path / "out") is None
    with redis.connect() as connection:  # nothing of LMCache's was changed by reading
        name = chunks(engine, 1000)[0][2]
        assert connection.cmd("GET", f"{name}metadata") == metadata(2048, 16)
        assert connection.cmd("GET", f"{name}kv_bytes") == kv_bytes(1000, 0, 16)
    engine.finish()


def test_lmcache_reads_what_libkvtier_wrote(engines, drive, redis, tmp_path):
    engine = engines()
    for start, count, name in chunks(engine, 2000):
        (tmp_path / "in").write_bytes(kv_bytes(2000, start, count))
        assert drive.ask("putas", name, count, tmp_path / "in")["put"] == 1
    assert drive.ask("drain", 5000)["drained"]
    assert engine.ask("lookup", 2000, TOKENS)["hit"] == TOKENS
    got = engine.ask("retrieve", 2000, TOKENS)
    assert got["hit"] == TOKENS and got["equal"] is True, got
    other = engines()  # and in another process
    assert other.ask("retrieve", 2000, TOKENS)["hit"] == TOKENS
    other.finish()
    engine.finish()


def test_both_write_the_same_chunks(engines, drive, redis, tmp_path):
    """Whichever of the two wrote last: it is the same bytes, and both go on reading them."""
    engine = engines()
    names = chunks(engine, 3000)
    for start, count, name in names:
        (tmp_path / "in").write_bytes(kv_bytes(3000, start, count))
        assert drive.ask("putas", name, count, tmp_path / "in")["put"] == 1
    assert drive.ask("drain", 5000)["drained"]
    assert engine.store(3000, TOKENS)["stored"] == TOKENS
    for start, count, name in names:
        assert get_as(drive, name, tmp_path / "out") == kv_bytes(3000, start, count), name
    engine.ask("clear", "LocalCPUBackend")
    got = engine.ask("retrieve", 3000, TOKENS)
    assert got["hit"] == TOKENS and got["equal"] is True, got
    engine.finish()


def test_what_does_not_fit_the_layout_is_a_miss(engines, drive, redis, tmp_path):
    """Other dtypes, shapes and lengths, lost halves: a miss for libkvtier, whichever of the two wrote it."""
    engine = engines()
    engine.store(4000, 16)
    ((_, _, name),) = chunks(engine, 4000, 16)
    data, out = kv_bytes(4000, 0, 16), tmp_path / "out"
    assert get_as(drive, name, out) == data
    right = metadata(2048, 16)
    with redis.connect() as connection:
        wrong = [
            right[:4] + b"\2\0\0\0" + right[8:],  # another format
            right[:8] + b"\1\0\0\0" + right[12:],  # another dtype
            metadata(2048, 8),  # another number of tokens than bytes
            metadata(2048, 16, layers=4),
            metadata(2048, 16, row_bytes=64),
            metadata(2047, 16),
            metadata(-1, 16),
            right[:27],
            b"",
        ]
        for bad in wrong:
            connection.cmd("SET", f"{name}metadata", bad)
            assert get_as(drive, name, out) is None, bad.hex()
        connection.cmd("SET", f"{name}metadata", right)
        for bad in (data[:-1], data + b"\0", b""):
            connection.cmd("SET", f"{name}kv_bytes", bad)
            assert get_as(drive, name, out) is None, len(bad)
        connection.cmd("DEL", f"{name}kv_bytes")
        assert get_as(drive, name, out) is None
        connection.cmd("SET", f"{name}kv_bytes", data)
        assert get_as(drive, name, out) == data
    engine.finish()
