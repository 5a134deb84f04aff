"""Values in Redis that were changed from outside: a miss, never data.

Native mode: every bit position class of a value's beginning, many places of its payload, cuts,
growth, and whole values put under another's name. In compatible mode what libkvtier wrote itself is
checked just as well.
"""

import os
import random

import pytest

from rig.drive import Drive
from rig.kvbytes import kv_bytes
from rig.redis import SERVER
from rig.wait import until

pytestmark = pytest.mark.skipif(SERVER is None, reason="no redis-server")

SEED = int(os.environ.get("KVW_SEED", "1"))
PLACES = int(os.environ.get("KVW_ROUNDS", "200"))
LIMIT_MS = 20000  # never met: a read that is late is a miss as well, and its value is not looked at
LAYOUT = "dtype=bfloat16 format=KV_2LTD shape=2,2,*,16"


@pytest.fixture
def drives(tmp_path, redis):
    made = []

    def make(**more):
        # Each get asks Redis: nothing is remembered, and no breaker spares it.
        config = {
            "l2.url": redis.url,
            "l2.seen_time": "1ms",
            "l2.deadline": f"{LIMIT_MS}ms",
            "l2.connect_timeout": f"{LIMIT_MS}ms",
            "control.breaker_failures": 1000,
            **more,
        }
        made.append(Drive(tmp_path, config, name=f"drive{len(made)}"))
        return made[-1].wait_open()

    yield make
    for drive in made:
        drive.finish()


def values(redis, least=0):
    with redis.connect() as connection:
        found = {key: connection.cmd("GET", key) for key in connection.keys()}
    return {key: value for key, value in found.items() if value is not None and len(value) > least}


def put_back(connection, held):
    """As it was: what libkvtier finds wrong it may remove, with all that belongs to it."""
    for key, value in held.items():
        connection.cmd("SET", key, value)


def fresh_get(drive, n=1, size=3000):
    """From Redis, through a cache that has nothing in memory."""
    drive.ask("reopen")
    drive.ask("find", SEED, n, LIMIT_MS)
    return drive.ask("get", SEED, n, size, LIMIT_MS)


def test_every_change_of_a_native_value_is_a_miss(drives, redis):
    drive, rng = drives(), random.Random(SEED)
    size = 3000
    assert drive.ask("put", SEED, 1, size)["put"] == 1
    assert drive.ask("drain", 5000)["drained"]
    assert fresh_get(drive, 1, size)["got"] == 1
    held = values(redis, least=size // 2)
    assert len(held) == 1, list(held)
    ((key, value),) = held.items()
    header = len(value) - size
    assert header > 64, "a native value has a header with its full key"
    places = [*range(header + 64), *rng.sample(range(header + 64, len(value)), PLACES), len(value) - 1]
    with redis.connect() as connection:
        for at in places:
            bit = rng.randrange(8)
            changed = bytearray(value)
            changed[at] ^= 1 << bit
            connection.cmd("SET", key, bytes(changed))
            got = fresh_get(drive, 1, size)
            assert got["got"] == 0, f"byte {at} of {len(value)}, bit {bit}: {got}"
        for other in (b"", value[:1], value[:header], value[:-1], value + b"\0", value * 2, value[1:]):
            connection.cmd("SET", key, other)
            got = fresh_get(drive, 1, size)
            assert got["got"] == 0, f"{len(other)} bytes: {got}"

        def right_again():
            """What was wrong may still be on its way to be removed."""
            connection.cmd("SET", key, value)
            return fresh_get(drive, 1, size)["got"] == 1

        until(right_again, 20, "the right value to be right again")


def test_a_value_under_the_name_of_another_is_a_miss(drives, redis):
    drive, size = drives(), 3000
    assert drive.ask("put", SEED, 2, size)["put"] == 2
    assert drive.ask("drain", 5000)["drained"]
    held = values(redis, least=size // 2)
    assert len(held) == 2
    (one, two) = held
    with redis.connect() as connection:
        connection.cmd("SET", one, held[two])
        connection.cmd("SET", two, held[one])
    got = fresh_get(drive, 2, size)
    assert got["got"] == 0, got


def test_parts_of_a_long_value(drives, redis):
    """A chunk longer than a part: each part is checked, and none may be missing or of another's."""
    drive, rng, size = drives(**{"l2.part_size": "64KiB"}), random.Random(SEED), 300000
    assert drive.ask("put", SEED, 2, size)["put"] == 2
    assert drive.ask("drain", 5000)["drained"]
    assert fresh_get(drive, 2, size)["got"] == 2
    held, everything = values(redis, least=1000), values(redis)
    assert len(held) >= 8, "not split"
    with redis.connect() as connection:
        for key, value in held.items():
            changed = bytearray(value)
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            for wrong in (bytes(changed), None, value[:-1], rng.choice(list(held.values()))):
                if wrong == value:
                    continue
                if wrong is None:
                    connection.cmd("DEL", key)
                else:
                    connection.cmd("SET", key, wrong)
                got = fresh_get(drive, 2, size)
                assert got["wrong"] == 0 and got["got"] < 2, (key, got)
                put_back(connection, everything)

        def right_again():
            put_back(connection, everything)
            return fresh_get(drive, 2, size)["got"] == 2

        until(right_again, 20, "the right values to be right again")


def test_a_fingerprint_of_another_model_is_a_miss(drives, redis):
    drive, other = drives(), drives(fingerprint="ab" * 32)
    assert drive.ask("put", SEED, 3, 3000)["put"] == 3
    assert drive.ask("drain", 5000)["drained"]
    assert fresh_get(drive, 3)["got"] == 3
    assert fresh_get(other, 3)["got"] == 0


def named(drive, name, path):
    drive.ask("reopen")
    path.unlink(missing_ok=True)
    got = drive.ask("getas", name, LIMIT_MS, path)
    return path.read_bytes() if got["got"] else None


def test_a_compatible_value_of_our_own_is_checked(drives, redis, tmp_path):
    drive, rng = drives(**{"l2.format": "lmcache", "l2.layout": LAYOUT}), random.Random(SEED)
    data, name = kv_bytes(1000, 0, 16), "drive/tiny@1@0@1d0318be153aea15@bfloat16"
    (tmp_path / "in").write_bytes(data)
    assert drive.ask("putas", name, 16, tmp_path / "in")["put"] == 1
    assert drive.ask("drain", 5000)["drained"]
    out = tmp_path / "out"
    assert named(drive, name, out) == data
    held = values(redis)
    assert f"{name}kv_bytes".encode() in held and f"{name}metadata".encode() in held
    assert held[f"{name}kv_bytes".encode()] == data, "stock software reads the bare bytes"
    key = f"{name}kv_bytes"
    with redis.connect() as connection:

        def refused(value):
            """A miss; the value goes with its mark, without which it would look like stock
            software's."""
            def gone():
                """Asked again: on a busy machine a miss may be one that came too late to see the value."""
                assert named(drive, name, out) is None
                return not connection.cmd("EXISTS", key)

            connection.cmd("SET", key, value)
            until(gone, 5, "the value that is wrong gone")
            until(
                lambda: not [k for k in connection.keys() if k.startswith(name.encode())],
                5,
                "what belongs to it gone",
            )
            put_back(connection, held)

        for at in rng.sample(range(len(data)), 50):
            changed = bytearray(data)
            changed[at] ^= 1 << rng.randrange(8)
            refused(bytes(changed))
        for other in (data[:-1], data + b"\0", b""):
            connection.cmd("SET", key, other)
            assert named(drive, name, out) is None, len(other)

            def whole_again():
                """What is not of its length may go or stay, and may go late."""
                put_back(connection, held)
                return named(drive, name, out) == data

            until(whole_again, 10, "the value back")
        meta = held[f"{name}metadata".encode()]
        for at in range(len(meta)):
            changed = bytearray(meta)
            changed[at] ^= 1 << rng.randrange(8)
            connection.cmd("SET", f"{name}metadata", bytes(changed))
            assert named(drive, name, out) in (None, data), at
        for other in (meta[:-1], meta + b"\0", b"", meta * 2):
            connection.cmd("SET", f"{name}metadata", other)
            assert named(drive, name, out) is None
