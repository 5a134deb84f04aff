"""A CUDA device and as much of torch as the connector asks of it, over the fake driver of tests/unit/cache/gpu:
streams and events behave as the device's, and what nothing orders runs in any order.
"""

import contextlib
import ctypes
import threading
import types
from ctypes import byref, c_uint, c_uint64, c_void_p

DELAY_STEPS = 20000
TOKENS = 16
PINNED = 3  # flags of memory that the device reads and writes by itself
POOL_BYTES = 1 << 20


class Driver:
    """Its calls, each in the context of the device."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.context = c_void_p()
        assert self.lib.cuInit(0) == 0
        assert self.lib.cuDevicePrimaryCtxRetain(byref(self.context), 0) == 0

    def call(self, name, *arguments):
        assert self.lib.cuCtxPushCurrent_v2(self.context) == 0
        try:
            error = getattr(self.lib, name)(*arguments)
        finally:
            self.lib.cuCtxPopCurrent_v2(byref(c_void_p()))
        assert error == 0, f"{name}: {error}"

    def memory(self, size):
        at = c_uint64()
        self.call("cuMemAlloc_v2", byref(at), ctypes.c_size_t(size))
        return at.value

    def pinned(self, size):
        at = c_void_p()
        self.call("cuMemHostAlloc", byref(at), ctypes.c_size_t(size), c_uint(PINNED))
        return at.value


class Stream:
    def __init__(self, driver, handle=None):
        self.driver, self.cuda_stream = driver, handle
        if handle is None:
            made = c_void_p()
            driver.call("cuStreamCreateWithPriority", byref(made), c_uint(1), 0)
            self.cuda_stream = made.value

    def __del__(self):
        if self.cuda_stream:
            self.driver.call("cuStreamDestroy_v2", c_void_p(self.cuda_stream))

    def synchronize(self):
        self.driver.call("cuStreamSynchronize", c_void_p(self.cuda_stream))


class Event:
    def __init__(self, driver):
        made = c_void_p()
        driver.call("cuEventCreate", byref(made), c_uint(2))
        self.driver, self.cuda_event = driver, made.value

    def __del__(self):
        self.driver.call("cuEventDestroy_v2", c_void_p(self.cuda_event))

    def record(self, stream):
        self.driver.call("cuEventRecord", c_void_p(self.cuda_event), c_void_p(stream.cuda_stream))


class Tensor:
    """One layer: blocks of one head, 16 tokens, keys and then values of half precision."""

    dtype = "float16"
    device = types.SimpleNamespace(type="cuda", index=0)

    def __init__(self, driver, blocks, block_bytes):
        self.shape, self.address = (blocks, 1, TOKENS, block_bytes // TOKENS // 2), driver.memory(blocks * block_bytes)

    def stride(self):
        block, row = self.shape[2] * self.shape[3], self.shape[3]
        return (block, block, row, 1)

    def element_size(self):
        return 2

    def data_ptr(self):
        return self.address


class Cuda:
    """torch.cuda."""

    def __init__(self, driver):
        self.driver, self.thread = driver, threading.local()
        self.default = Stream(driver, 0)

    def current_device(self):
        return 0

    def default_stream(self, device=None):
        return self.default

    def current_stream(self, device=None):
        return getattr(self.thread, "stream", self.default)

    @contextlib.contextmanager
    def stream(self, stream):
        before = self.current_stream()
        self.thread.stream = stream
        try:
            yield
        finally:
            self.thread.stream = before

    def Stream(self, device=None):  # noqa: N802 (torch's name)
        return Stream(self.driver)

    def Event(self, enable_timing=False):  # noqa: N802
        return Event(self.driver)


def torch_over(driver):
    """What stands in for the module torch."""
    made = types.ModuleType("torch")
    made.cuda = Cuda(driver)
    made.version = types.SimpleNamespace(cuda="13.0")
    return made


class Device:
    """What streams.py runs on."""

    def __init__(self, driver, torch, blocks, layers=2, block_bytes=256):
        self.driver, self.torch, self.block_bytes = driver, torch, block_bytes
        self.own = torch.cuda.Stream()
        self.tensors = {f"layer {i}": Tensor(driver, blocks, block_bytes) for i in range(layers)}
        self.pool, self.used = driver.pinned(POOL_BYTES), 0

    def close(self):
        for tensor in self.tensors.values():
            self.driver.call("cuMemFree_v2", c_uint64(tensor.address))
        self.driver.call("cuMemFreeHost", c_void_p(self.pool))

    def _pinned(self, size):
        at = self.used
        self.used += size
        assert self.used <= POOL_BYTES
        return self.pool + at

    def engine(self):
        return self.torch.cuda.stream(self.own)

    def _places(self, blocks):
        for tensor in self.tensors.values():
            for block in blocks:
                yield tensor.address + block * self.block_bytes

    def _stream(self):
        return c_void_p(self.torch.cuda.current_stream().cuda_stream)

    def delay(self):
        self.driver.lib.fake_cuda_delay(self._stream(), c_uint(DELAY_STEPS))

    def put(self, blocks, number):
        source = self._pinned(self.block_bytes)
        ctypes.memset(source, number, self.block_bytes)
        for place in self._places(blocks):
            size = ctypes.c_size_t(self.block_bytes)
            self.driver.call("cuMemcpyHtoDAsync_v2", c_uint64(place), c_void_p(source), size, self._stream())

    def look(self, blocks):
        places, stream = list(self._places(blocks)), self.torch.cuda.current_stream()
        copy = self._pinned(self.block_bytes * len(places))
        for i, place in enumerate(places):
            to, size = c_void_p(copy + i * self.block_bytes), ctypes.c_size_t(self.block_bytes)
            self.driver.call("cuMemcpyDtoHAsync_v2", to, c_uint64(place), size, self._stream())

        def found():
            stream.synchronize()
            return set(ctypes.string_at(copy, self.block_bytes * len(places)))

        return found
