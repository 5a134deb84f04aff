"""Copies blocks of a paged KV cache into chunks and back by libkvtier (include/kvtier/kvtier_cuda.h), by ctypes.

On a CPU the library copies on the calling thread, without the GIL; on a CUDA device through libkvtier_cuda.so. If the
library, the device's part of it or the layout does not allow that, make() returns None and the caller copies by other
means (layout.py: by torch).

A device operation that has begun cannot be cancelled, so the caller must wait for the end of every copy. Results are
True or False; False: the driver failed, and none of the bytes may be used.
"""

import ctypes
import threading
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int32, c_int64, c_size_t
from ctypes import c_uint32, c_uint64, c_void_p

from . import library

AXES = 6
AFTER_EVENT = 1
SLICE_NS = 10**9


class Axis(Structure):
    _fields_ = [("count", c_uint64), ("stride", c_int64)]


class Layout(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("element_bytes", c_uint32),
        ("axis_count", c_uint32),
        ("layer_count", c_uint32),
        ("axes", Axis * AXES),
        ("block_count", c_uint64),
        ("block_stride", c_int64),
        ("layers", POINTER(c_void_p)),
    ]


class Config(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("abi", c_uint32),
        ("device", c_int32),
        ("method", c_uint32),
        ("ops", c_uint32),
        ("streams", c_uint32),
        ("depth", c_uint32),
        ("reserved", c_uint32),
        ("multiprocessor_share", c_double),
        ("staging_bytes", c_uint64),
        ("pin_bytes", c_uint64),
        ("library", c_char_p),
        ("driver", c_char_p),
        ("memo", c_char_p),
        ("clock", c_void_p),
        ("log", c_void_p),
        ("log_self", c_void_p),
    ]


class Job(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("order", c_uint32),
        ("after", c_void_p),
        ("blocks", POINTER(c_int64)),
        ("block_count", c_size_t),
        ("first", c_size_t),
        ("count", c_size_t),
        ("segments", POINTER(library.Segment)),
        ("segment_count", c_size_t),
    ]


FUNCTIONS = {
    "kvt_gpu_config_init": [POINTER(Config), c_size_t],
    "kvt_gpu_create": [POINTER(Config), POINTER(Layout), POINTER(c_void_p)],
    "kvt_gpu_destroy": [c_void_p],
    "kvt_gpu_chunk_bytes": [c_void_p, c_size_t],
    "kvt_gpu_pin_cache": [c_void_p, c_void_p],
    "kvt_gpu_gather_begin": [c_void_p, POINTER(Job), POINTER(c_uint64)],
    "kvt_gpu_scatter_begin": [c_void_p, POINTER(Job), POINTER(c_uint64)],
    "kvt_gpu_wait": [c_void_p, c_uint64, c_uint64],
    "kvt_gpu_describe": [c_void_p, c_char_p, c_size_t],
}
RESULTS = {
    "kvt_gpu_config_init": None, "kvt_gpu_destroy": None, "kvt_gpu_chunk_bytes": c_uint64,
    "kvt_gpu_describe": c_size_t,
}  # fmt: skip


def make(addresses, shape, strides, element_bytes, device, **members):
    """A Copier, or None. addresses: of the layers; shape and strides (elements): of a layer's tensor, whose
    first axis is the block; device: -1 or a CUDA device's number; members: others of Config. The memory has to
    stay until close()."""
    if not 2 <= len(shape) <= AXES + 1:
        return None
    try:
        lib = library.load_library()
        for name, arguments in FUNCTIONS.items():
            function = getattr(lib, name)
            function.argtypes = arguments
            function.restype = RESULTS.get(name, ctypes.c_int)
    except (library.KvtierError, AttributeError):
        return None  # without a library, or with one that lacks these functions
    layers = (c_void_p * len(addresses))(*addresses)
    layout = Layout(
        size=ctypes.sizeof(Layout),
        element_bytes=element_bytes,
        axis_count=len(shape) - 1,
        layer_count=len(addresses),
        block_count=shape[0],
        block_stride=strides[0] * element_bytes,
        layers=layers,
    )
    for axis, (count, stride) in enumerate(zip(shape[1:], strides[1:], strict=True)):
        layout.axes[axis] = Axis(count, stride * element_bytes)
    config, handle = Config(), c_void_p()
    lib.kvt_gpu_config_init(byref(config), ctypes.sizeof(Config))
    config.device = device
    for name, value in members.items():
        setattr(config, name, value)
    if lib.kvt_gpu_create(byref(config), byref(layout), byref(handle)) != library.OK:
        return None
    return Copier(lib, handle)


class Copier:
    """One paged cache. gather and scatter: one thread at a time."""

    def __init__(self, lib, handle):
        self.lib = lib
        self.handle = handle
        self.pinning = None

    def pin(self, cache):
        """Pins the memory of a library.Cache, in a thread of its own: a tenth of a second for a GB."""
        self.pinning = threading.Thread(
            target=self.lib.kvt_gpu_pin_cache, args=(self.handle, cache.handle), name="kvtier-pin",
            daemon=True,
        )  # fmt: skip
        self.pinning.start()

    def close(self):
        """Closes the copier, before the cache whose memory was pinned."""
        if self.pinning is not None:
            self.pinning.join()
        self.lib.kvt_gpu_destroy(self.handle)
        self.handle = c_void_p()

    def describe(self):
        text = ctypes.create_string_buffer(2048)
        self.lib.kvt_gpu_describe(self.handle, text, len(text))
        return text.value.decode()

    def gather(self, block_ids, room, after=None):
        """Copies blocks into room: [(address, bytes)]. after: handle of a recorded CUDA event that the copy waits
        for."""
        return self._begin(self.lib.kvt_gpu_gather_begin, block_ids, 0, len(block_ids), room, after)()

    def scatter(self, block_ids, skip, count, room, after=None):
        """Begins to copy blocks of a chunk of `count`, from number `skip` on, into the paged cache. Returns a function
        that waits for the copy, to be called once."""
        return self._begin(self.lib.kvt_gpu_scatter_begin, block_ids, skip, count, room, after)

    def _begin(self, begin, block_ids, first, count, room, after):
        segments = (library.Segment * len(room))(*((base, size, 0) for base, size in room))
        ids = (c_int64 * len(block_ids))(*block_ids)
        job = Job(
            size=ctypes.sizeof(Job),
            order=0 if after is None else AFTER_EVENT,
            after=after,
            blocks=ids,
            block_count=len(ids),
            first=first,
            count=count,
            segments=segments,
            segment_count=len(segments),
        )
        op = c_uint64()
        if begin(self.handle, byref(job), byref(op)) != library.OK:
            return lambda: False
        return self.waiting_for(op)

    def waiting_for(self, op):
        """A function that waits for this operation, to be called once."""

        def wait():
            while True:
                status = self.lib.kvt_gpu_wait(self.handle, op, SLICE_NS)
                if status != library.BUSY:
                    return status == library.OK

        return wait
