"""A paged KV cache that is plain memory: what a rank of the connector needs of layout.PagedCache."""

import contextlib
import ctypes
import types


class PlainCache:
    """Blocks of block_bytes in a ctypes buffer, numbered from its beginning."""

    device = types.SimpleNamespace(type="cpu")

    def __init__(self, memory, block_bytes):
        self.memory, self.block_bytes = memory, block_bytes

    def at(self, block):
        return ctypes.addressof(self.memory) + block * self.block_bytes

    def read(self, block):
        return ctypes.string_at(self.at(block), self.block_bytes)

    def chunk_bytes(self, blocks):
        return blocks * self.block_bytes

    def new_stream(self):
        return None

    def on_stream(self, stream):
        return contextlib.nullcontext()

    def mark(self, timing=False):
        return None

    def gather(self, block_ids, room, after):
        data, at = b"".join(self.read(block) for block in block_ids), 0
        assert sum(size for _, size in room) == len(data)
        for address, size in room:
            ctypes.memmove(address, data[at : at + size], size)
            at += size
        return True

    def scatter(self, block_ids, skip, count, room, after):
        data = b"".join(ctypes.string_at(address, size) for address, size in room)
        assert len(data) == count * self.block_bytes and skip + len(block_ids) <= count
        for index, block in enumerate(block_ids):
            begin = (skip + index) * self.block_bytes
            ctypes.memmove(self.at(block), data[begin : begin + self.block_bytes], self.block_bytes)
        return lambda: True

    def close(self):
        pass
