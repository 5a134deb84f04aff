"""The engine's paged KV cache, and copies of a chunk's bytes from it and into it.

The engine passes one tensor per layer whose first axis is the block; only the engine knows the meaning of the other
axes and their order in memory. A chunk is [layer][block][a block's numbers in logical order], layers as the engine
lists them, so that two engines of the same fingerprint agree whatever their strides are. Strides are the tensor's.
libkvtier copies (copier.py), or torch where libkvtier cannot.

A device's copies run concurrently with the engine's work, on streams of their own. They wait for an event that the
engine's thread recorded on its computing stream (mark()): the default stream does not show the progress of that one.
"""

import contextlib
import ctypes

import torch

from . import copier


class PagedCache:
    """All layers' tensors of one KV cache group."""

    def __init__(self, tensors):
        """tensors: {layer name: tensor}, in the engine's order of layers."""
        if not tensors:
            raise ValueError("the engine registered no KV cache tensors")
        first = next(iter(tensors.values()))
        for name, tensor in tensors.items():
            if tensor.shape != first.shape or tensor.dtype != first.dtype:
                raise ValueError(
                    f"layer {name} has {tuple(tensor.shape)} {tensor.dtype}, others "
                    f"{tuple(first.shape)} {first.dtype}: layers of different kinds are not supported"
                )
        self.names = list(tensors)
        self.tensors = list(tensors.values())
        self.device = first.device
        self.dtype = first.dtype
        self.shape = tuple(first.shape[1:])
        self.block_count = first.shape[0]
        self.numbers = 1
        for size in self.shape:
            self.numbers *= size
        self.block_bytes = self.numbers * first.element_size()
        self.copier = self._make_copier(first)

    def _make_copier(self, first):
        """None: torch copies."""
        if any(tensor.stride() != first.stride() for tensor in self.tensors):
            return None
        if self.device.type == "cpu":
            number = -1
        elif self.device.type == "cuda" and torch.version.cuda:
            number = torch.cuda.current_device() if self.device.index is None else self.device.index
        else:
            return None
        addresses = [tensor.data_ptr() for tensor in self.tensors]
        return copier.make(addresses, first.shape, first.stride(), first.element_size(), number)

    def pin(self, cache):
        """Lets a device copy from and to the memory of this library.Cache by itself, from some time on."""
        if self.copier is not None and self.device.type == "cuda":
            self.copier.pin(cache)

    def close(self):
        """Closes the copier, before the cache; no copy runs any more."""
        if self.copier is not None:
            self.copier.close()
            self.copier = None

    def chunk_bytes(self, blocks):
        """Bytes of a chunk of that many blocks."""
        return len(self.tensors) * blocks * self.block_bytes

    def describe(self):
        """Everything that decides the meaning of a chunk's bytes, for the fingerprint."""
        return {
            "layers": self.names,
            "block": list(self.shape),
            "dtype": str(self.dtype),
            "device": self.device.type,
        }

    def new_stream(self):
        """A device stream for copies that run concurrently with the engine; None: copies are finished when they
        return."""
        return torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

    def on_stream(self, stream):
        """Sends copies within the context to this stream."""
        return torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext()

    def mark(self, timing=False):
        """Records an event after all work that the engine has begun so far; None: all work is finished. In the engine's
        thread: each thread has its own current stream."""
        if self.device.type != "cuda":
            return None
        event = torch.cuda.Event(enable_timing=timing)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _view(self, address, blocks):
        """`blocks` blocks of one layer as a tensor over memory at an address."""
        size = blocks * self.block_bytes
        memory = (ctypes.c_char * size).from_address(address)
        flat = torch.frombuffer(memory, dtype=self.dtype, count=blocks * self.numbers)
        return flat.view(blocks, *self.shape)

    def _wait(self, after):
        """Makes torch's further copies wait for this event."""
        if after is not None:
            torch.cuda.current_stream(self.device).wait_event(after)

    def gather(self, block_ids, room, after):
        """Copies blocks, as they are behind the event `after` (mark()), into `room`: [(address, bytes)], together a
        chunk's bytes. False: a failure, and the bytes must not be used."""
        if self.copier is not None:
            return self.copier.gather(block_ids, room, after and after.cuda_event)
        self._wait(after)
        ids = torch.tensor(block_ids, dtype=torch.int64, device=self.device)
        for tensor, run in zip(self.tensors, self._runs(len(block_ids), room), strict=True):
            if len(run) == 1 and self.device.type == "cpu":
                torch.index_select(tensor, 0, ids, out=self._view(run[0][0], len(block_ids)))
                continue
            bounce = torch.index_select(tensor, 0, ids).cpu().contiguous()
            at = bounce.data_ptr()
            for address, size in run:
                ctypes.memmove(address, at, size)
                at += size
        return True

    def scatter(self, block_ids, skip, count, room, after):
        """Begins to copy blocks of a chunk of `count`, from number `skip` on, from `room` into the cache, behind the
        event `after`: until then the engine may read and write the former contents of these blocks. Returns a function
        to be called once: it waits until `room` is no longer read. False: a failure, and the blocks must be
        computed."""
        if self.copier is not None:
            return self.copier.scatter(block_ids, skip, count, room, after and after.cuda_event)
        self._wait(after)
        ids = torch.tensor(block_ids, dtype=torch.int64, device=self.device)
        for tensor, run in zip(self.tensors, self._runs(count, room), strict=True):
            if len(run) == 1:
                blocks = self._view(run[0][0], count)
            else:
                bounce = bytearray(b"".join(ctypes.string_at(a, size) for a, size in run))
                blocks = torch.frombuffer(bounce, dtype=self.dtype).view(count, *self.shape)
            tensor.index_copy_(0, ids, blocks[skip : skip + len(block_ids)].to(self.device))
        return lambda: True

    def _runs(self, blocks, room):
        """For each layer, the pieces of `room` that hold it."""
        pieces = iter(room)
        address, left = next(pieces)
        for _ in self.tensors:
            want, run = blocks * self.block_bytes, []
            while want > 0:
                if left == 0:
                    address, left = next(pieces)
                take = min(want, left)
                run.append((address, take))
                address, left, want = address + take, left - take, want - take
            yield run


def cpu_kernels():
    """Name of vLLM's packing of a block for CPU attention; it differs between machines."""
    try:
        amx = torch.cpu._is_amx_tile_supported()
    except AttributeError:
        amx = False
    return "amx" if amx else "vec"
