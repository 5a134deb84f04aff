"""Opens caches of the copy's libkvtier in this process."""

import contextlib
import ctypes
import json
import time

from kvtier import library

TIERS = {name: number for number, name in enumerate(library.TIER_NAMES)}


@contextlib.contextmanager
def opened(settings, mistakes=""):
    """A cache with these settings, of which the library says `mistakes`."""
    cache = library.Cache([json.dumps(settings)], "dummy.yaml")
    try:
        assert mistakes in cache.mistakes and bool(mistakes) == bool(cache.mistakes), cache.mistakes
        yield cache
    finally:
        cache.close()


def key_of(cache, number):
    text = ctypes.create_string_buffer(number.to_bytes(32, "big"), 32)
    parts = library.KeyParts(
        size=ctypes.sizeof(library.KeyParts), chain_id=ctypes.addressof(text), chain_id_bytes=32,
        hash_recipe=b"sha256",
    )  # fmt: skip
    return cache.make_key(parts)


def put(cache, key, data):
    item = library.Item(size=ctypes.sizeof(library.Item), tokens=256, bytes=len(data))
    item.key.bytes[:] = key
    _, reservation, rooms = cache.reserve([item])
    assert reservation is not None and rooms[0] is not None, "no room for a chunk"
    at = 0
    for address, size in rooms[0]:
        ctypes.memmove(address, data[at : at + size], size)
        at += size
    assert cache.commit(reservation, 1)
    assert cache.drain(5 * 10**9), "the chunk was not stored"


def get(cache, key):
    """Bytes of a chunk; None: it is not there."""
    op = cache.get_begin([key], 5 * 10**9, 1)
    deadline = time.monotonic() + 10
    while not cache.poll():
        assert time.monotonic() < deadline, "a get does not end"
        time.sleep(0.001)
    lease = cache.take(op)
    if lease is None:
        return None
    view = lease.contents.views[0]
    segments = lease.contents.segments[view.first_segment : view.first_segment + view.segment_count]
    data = b"".join(ctypes.string_at(s.base, s.bytes) for s in segments)
    cache.release(lease)
    return data


def tier_of(cache, key):
    """Name of the fastest tier that holds the chunk; None: none does."""
    _, tiers = cache.lookup([key])
    return library.TIER_NAMES[tiers[0]] if tiers else None
