"""vLLM's TieringOffloadingSpec with copies by the CPU, which the stock spec refuses ("only supported on CUDA-alike and
XPU GPUs"); `spec_module_path` of an engine names this module. All that the scheduler does is vLLM's own."""

import collections
import contextlib
import ctypes
import types

import torch
from vllm.v1.kv_offload.cpu import gpu_worker
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class Event:
    """Of a copy, which has ended when it was asked for."""

    def record(self, *_):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass

    def elapsed_time(self, _):
        return 0.001


class Stream:
    def wait_stream(self, *_):
        pass

    def wait_event(self, *_):
        pass


class Pool:
    """Has always one more."""

    def __init__(self, make):
        self.pop = make

    def append(self, _):
        pass


def swap(sources, targets, sizes, **_):
    for source, target, size in zip(sources.tolist(), targets.tolist(), sizes.tolist(), strict=True):
        ctypes.memmove(target, source, size)


no = lambda: False  # noqa: E731
gpu_worker.current_platform = types.SimpleNamespace(
    current_stream=lambda: None, stream=lambda _: contextlib.nullcontext(), is_xpu=no, is_rocm=no, is_cuda_alike=no
)


class Handler(gpu_worker.SingleDirectionOffloadingHandler):
    def __init__(self, device, host, blocks_per_chunk, refs, stores):
        self.src_tensors, self.dst_tensors = (device, host) if stores else (host, device)
        self.gpu_to_cpu, self.layer_refs_per_group, self._swap_blocks_batch = stores, refs, swap
        self.src_blocks_per_chunk = 1 if stores else blocks_per_chunk
        self.dst_blocks_per_chunk = blocks_per_chunk if stores else 1
        self._canonical_copy_plans, self._fill_group_ops = None, self._fill_direct_ops
        self._transfer_events, self._transfers = {}, collections.deque()
        self._stream_pool, self._event_pool, self._buffer_pool = Pool(Stream), Pool(Event), []


class Worker(gpu_worker.CPUOffloadingWorker):
    def __init__(self, caches, blocks_per_chunk, region):
        self._mmap_region, device, host = region, [], []
        for cache in caches.tensors:
            size = cache.page_size_bytes
            device.append(cache.tensor.view(torch.int8).view((-1, size)))
            host.append(region.create_next_worker_view(size * blocks_per_chunk))
        self._store_handler = Handler(device, host, blocks_per_chunk, caches.group_data_refs, True)
        self._load_handler = Handler(device, host, blocks_per_chunk, caches.group_data_refs, False)


class CPUTieringSpec(TieringOffloadingSpec):
    def get_worker(self, caches):
        if not self._worker:
            region = SharedOffloadRegion(
                engine_id=self._engine_id, num_chunks=self.num_chunks,
                rank=0 if self.replicated_layout else self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk, cpu_page_size=self.cpu_page_size_per_worker,
            )  # fmt: skip
            self._worker = Worker(caches, self.blocks_per_chunk, region)
        return self._worker
