"""Chunks of known bytes in a cache of libkvtier, as processes of several tests store and check them."""

import ctypes
import hashlib
import select

CHUNKS = 4  # of a prompt
SECOND = 10**9
LIMIT = 20 * SECOND  # of an operation, which a tier that answers never needs


def of_tenant(key, salt):
    """A key whose slot is that of its tenant, as kvt_key_make makes it."""
    fields = b"".join(len(field).to_bytes(8, "little") + field for field in (b"kvtier tenant 1", salt.encode()))
    return key[:26] + hashlib.sha256(fields).digest()[:2] + key[28:]


def key_of(prompt, index):
    """Of prompts whose first word is their tenant."""
    return of_tenant(hashlib.sha256(f"{prompt}/{index}".encode()).digest(), str(prompt).split()[0])


def keys_of(prompt):
    return [key_of(prompt, index) for index in range(CHUNKS)]


def data_of(key):
    size = 8192 + int.from_bytes(key[:2], "big") % 49152
    return (hashlib.sha256(key).digest() * (size // 32 + 1))[:size]


def store(library, cache, key, data, parent=None, tenant=None):
    """OK, EXISTS, or why it was refused."""
    item = library.Item(size=ctypes.sizeof(library.Item), tokens=256, bytes=len(data))
    item.key.bytes[:] = key
    if tenant is not None:
        item.tenant.bytes[:] = tenant
    if parent is not None:
        above = library.Key()
        above.bytes[:] = parent
        item.parent = ctypes.pointer(above)
    status, reservation, rooms = cache.reserve([item])
    if reservation is None:
        return status
    at = 0
    for address, size in rooms[0]:
        ctypes.memmove(address, data[at : at + size], size)
        at += size
    assert cache.commit(reservation, 1)
    return library.OK


def store_chain(library, cache, keys, before=0, tenant=None):
    """Those from number `before` on that are missing, up to one that is refused. How many were stored."""
    count = 0
    for index in range(before, len(keys)):
        status = store(library, cache, keys[index], data_of(keys[index]), keys[index - 1] if index else None, tenant)
        if status not in (library.OK, library.EXISTS):
            break
        count += status == library.OK
    return count


def chunks_of(lease):
    """(tier, bytes) of each chunk of a lease."""
    for index in range(lease.contents.count):
        view = lease.contents.views[index]
        parts = lease.contents.segments[view.first_segment : view.first_segment + view.segment_count]
        yield view.tier, b"".join(ctypes.string_at(part.base, part.bytes) for part in parts)


class Waits:
    """For operations of a cache, one at a time."""

    def __init__(self, library, cache):
        self.library, self.cache, self.poll = library, cache, select.poll()
        self.poll.register(cache.eventfd(), select.POLLIN)

    def wait(self, op):
        """(status, count) of what was begun."""
        while op is not None:
            self.poll.poll(1000)
            for found, _, _, status, count in self.cache.poll():
                if found == op:
                    return status, count
        return self.library.BUSY, 0

    def get(self, keys):
        """A lease on the first of them that are there, as an engine asks for it, or None."""
        self.wait(self.cache.find_begin(keys, LIMIT, 1))
        op = self.cache.get_begin(keys, LIMIT, 2)
        self.wait(op)
        return self.cache.take(op)
