"""cache/python/kvtier/copier.py: blocks into chunks and back by libkvtier, called from Python."""

import ctypes
import pathlib
import random
import sys

import pytest

from rig.router import BUILD

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "cache" / "python"))

from kvtier import copier, library  # noqa: E402

ROOM = 1 << 16


class Paged:
    """Layers of [blocks, 2, 3, 4] numbers of two bytes, strides by an order of the axes in memory."""

    shape = (7, 2, 3, 4)

    def __init__(self, order):
        self.strides = [0] * 4
        extent = 1
        for axis in reversed(order):
            self.strides[axis] = extent
            extent *= self.shape[axis]
        self.layers = [ctypes.create_string_buffer(random.randbytes(2 * extent), 2 * extent) for _ in range(3)]

    def copier(self, device=-1):
        addresses = [ctypes.addressof(layer) for layer in self.layers]
        return copier.make(addresses, self.shape, self.strides, 2, device)

    def places(self, block):
        """Where the numbers of a block are, in logical order."""
        _, b, c, d = self.strides
        for i in range(2):
            for j in range(3):
                for k in range(4):
                    yield 2 * (block * self.strides[0] + i * b + j * c + k * d)

    def chunk(self, blocks):
        """What a chunk of these has to be."""
        return b"".join(
            layer.raw[at : at + 2] for layer in self.layers for block in blocks for at in self.places(block)
        )


@pytest.fixture(autouse=True)
def use_build(monkeypatch):
    monkeypatch.setenv("KVTIER_LIBRARY", str(BUILD / "cache" / "core" / "libkvtier.so.1"))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (1, 0, 2, 3), (3, 2, 1, 0)])
def test_a_chunk_is_in_logical_order(order):
    paged = Paged(order)
    one = paged.copier()
    ids = [5, 0, 3]
    want = paged.chunk(ids)
    room = ctypes.create_string_buffer(ROOM)
    base = ctypes.addressof(room)
    parts = [(base + 9000, 31), (base, len(want) - 31)]  # pieces lie anywhere
    assert one.gather(ids, parts)
    assert b"".join(ctypes.string_at(*part) for part in parts) == want
    assert one.scatter([1, 6], 1, 3, parts)()  # without the chunk's first block
    assert paged.chunk([1, 6]) == paged.chunk([0, 3])
    one.close()


def test_what_does_not_exist_is_refused():
    one = Paged((0, 1, 2, 3)).copier()
    room = ctypes.create_string_buffer(ROOM)
    assert not one.gather([7], [(ctypes.addressof(room), ROOM)])
    assert not one.scatter([-1], 0, 1, [(ctypes.addressof(room), ROOM)])()
    assert not one.gather([0, 1], [(ctypes.addressof(room), 8)])
    one.close()


def test_overlaps_have_no_copier():
    paged = Paged((0, 1, 2, 3))
    paged.strides[1] = 0
    assert paged.copier() is None


def test_a_library_without_it_has_no_copier(monkeypatch):
    monkeypatch.setitem(copier.FUNCTIONS, "kvt_gpu_of_later", [])
    assert Paged((0, 1, 2, 3)).copier() is None
    monkeypatch.setenv("KVTIER_LIBRARY", "/nonexistent/libkvtier.so")
    assert Paged((0, 1, 2, 3)).copier() is None


def test_no_such_device_has_no_copier():
    assert Paged((0, 1, 2, 3)).copier(4095) is None


def test_structs_are_those_of_the_header():
    config = copier.Config()
    library.load_library().kvt_gpu_config_init(ctypes.byref(config), ctypes.sizeof(config))
    assert (config.size, config.abi, config.device) == (ctypes.sizeof(config), 2, -1)
    assert (config.ops, config.streams, config.depth) == (64, 2, 8)
    assert (config.multiprocessor_share, config.staging_bytes, config.pin_bytes) == (0.125, 4 << 20, 1 << 30)
