"""Values in Redis that were changed from outside: a miss, never data.

Every bit position class of a value's beginning, many places of its payload, cuts, growth, and whole
values put under another's name.
"""

import os
import random

import pytest

from rig.drive import Drive
from rig.redis import SERVER
from rig.wait import until

pytestmark = pytest.mark.skipif(SERVER is None, reason="no redis-server")

SEED = int(os.environ.get("KVW_SEED", "1"))
PLACES = int(os.environ.get("KVW_ROUNDS", "200"))
LIMIT_MS = 20000  # never met: a read that is late is a miss as well, and its value is not looked at


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
        found = {key: connection.cmd("GET", key) for key in connection.keys() if b"{" in key}
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
