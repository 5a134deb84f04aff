"""All names that this package takes from vLLM, and every difference between the supported versions.

A name that a version lacks is None here and listed in `missing`; then, and with an untested version, unsupported()
returns a reason, the connector does nothing, and the engine runs as without it. Only the connector's base class,
metadata and role must exist, or the engine itself could not make a connector.
"""

import functools
import importlib
import importlib.metadata
import json

import vllm
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.logger import init_logger

from .media import mark

RUN_WITH = ("0.32.", "0.33.")  # tested versions of vLLM; 0.33 on the kernels of 0.32, having no CPU build of its own
VERSION = str(vllm.__version__)

OF_NO_MEDIUM = (  # members of vLLM's MultiModalConfig that do not change the model's input: limits, caches and methods
    "allow_missing_mm_embeddings", "enable_mm_embeds", "interleave_mm_strings", "language_model_only",
    "limit_per_prompt", "mm_encoder_attn_backend", "mm_encoder_only", "mm_encoder_tp_mode", "mm_hasher_algorithm",
    "mm_ipc_gpu_memory_gb", "mm_processor_cache_gb", "mm_processor_cache_type", "mm_shm_cache_max_object_size_mb",
    "mm_tensor_ipc", "skip_mm_profiling",
)  # fmt: skip

missing = []


def _take(module, name, otherwise=None):
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        missing.append(f"{module}.{name}")
        return otherwise


# Without this name the engine gives every layer of a hybrid model as much memory as full attention needs, or fails.
SupportsHMA = _take("vllm.distributed.kv_transfer.kv_connector.v1.base", "SupportsHMA", object)
get_kv_cache_spec_kind = _take("vllm.v1.kv_cache_interface", "get_kv_cache_spec_kind")
CacheHitSource = _take("vllm.v1.metrics.cache_hit_source", "CacheHitSource")
EngineCoreRequestType = _take("vllm.v1.engine", "EngineCoreRequestType")
BlockRemoved = _take("vllm.distributed.kv_events", "BlockRemoved")
BlockStored = _take("vllm.distributed.kv_events", "BlockStored")
KVConnectorPromMetrics = _take(
    "vllm.distributed.kv_transfer.kv_connector.v1.metrics", "KVConnectorPromMetrics", object)  # fmt: skip
KVConnectorStats = _take("vllm.distributed.kv_transfer.kv_connector.v1.metrics", "KVConnectorStats", object)
KVConnectorWorkerMetadata = _take(
    "vllm.distributed.kv_transfer.kv_connector.v1.base", "KVConnectorWorkerMetadata", object)  # fmt: skip
maybe_convert_block_hash = _take("vllm.v1.core.kv_cache_utils", "maybe_convert_block_hash")


def unsupported():
    """Why this version of vLLM is not served, or None."""
    if not VERSION.startswith(RUN_WITH):
        return f"this was run with vLLM {', '.join(v + 'x' for v in RUN_WITH)} and not with {VERSION}"
    if missing:
        return f"vLLM {VERSION} has no {', '.join(missing)}"
    return None


def kind_of(group):
    """vLLM's name of the attention of a group of KV caches. vLLM calls a group that keeps a prefix and a window full
    attention, although it gives blocks away."""
    if type(group.kv_cache_spec).__name__ == "RSWASpec":
        return "rswa"
    return get_kv_cache_spec_kind(group.kv_cache_spec).value


def media(model_config):
    """Settings that decide, besides an image itself, the model's input from it (audio and video alike): text, or None
    if the model takes only text. vLLM's hashes omit them, since they are constant for an engine's life."""
    config = getattr(model_config, "multimodal_config", None)
    if config is None:
        return None
    told = {name: value for name, value in vars(config).items() if name not in OF_NO_MEDIUM}
    return json.dumps([importlib.metadata.version("transformers"), told], sort_keys=True, default=repr)


def attention_of(config, names):
    """The classes of attention of these layers. ValueError: a class, and so its packing of a block, is unknown."""
    layers, found = config.compilation_config.static_forward_context, []
    for name in names:
        layer = layers.get(name)
        backend = getattr(layer, "attn_backend", None)
        if backend is None and hasattr(layer, "get_attn_backend"):
            backend = layer.get_attn_backend()
        if backend is None:
            raise ValueError(f"layer {name} names no attention backend, and how it packs a block of its KV cache is not known")
        found.append(backend)
    return found


def packing_switches():
    """{name: text} of the settings by which attention on a device packs a block."""
    envs, platforms = importlib.import_module("vllm.envs"), importlib.import_module("vllm.platforms")
    known = [name for name in envs.environment_variables if "SHUFFLE" in name]
    return {
        **{name: repr(getattr(envs, name)) for name in known},
        "fp8": str(platforms.current_platform.fp8_dtype()),  # the same bytes are other numbers in another kind of fp8
    }


def keep_media():
    """Makes workers get the data of all images of a request. 0.32 leaves out images within the tokens that a request
    has when it is first scheduled, including loaded ones: if the request is preempted and comes back with fewer tokens,
    the worker lacks the data of such an image ("Encoder cache miss"), and the engine ends. Returns a name that this
    needs and this version lacks, or None."""
    name = "vllm.v1.core.sched.output"
    try:
        output = importlib.import_module(name)
    except ImportError:
        return name
    if not hasattr(output, "strip_covered_mm_data"):
        return f"{name}.strip_covered_mm_data"
    output.strip_covered_mm_data = lambda mm_features, *_, **__: mm_features
    return None


def mark_media():
    """Makes this process mark the names that it makes from the content of images (media.py). Without marks no image
    counts as named by content."""
    try:
        inputs = importlib.import_module("vllm.multimodal.processing.inputs").ProcessorInputs
        inner = inputs.get_mm_hashes
    except (ImportError, AttributeError):
        return
    if getattr(inner, "marks", False):
        return

    @functools.wraps(inner)
    def get_mm_hashes(self, *args, **kwargs):
        uuids = self.mm_uuid_items or {}
        return {kind: mark(names, uuids.get(kind)) for kind, names in inner(self, *args, **kwargs).items()}

    get_mm_hashes.marks = True
    inputs.get_mm_hashes = get_mm_hashes


def hash_block_size(cache_config, kv_cache_config):
    """Number of tokens under one of a request's block hashes. Versions keep the number in several places, and later
    ones call it prefix_match_unit."""
    for config in (kv_cache_config, cache_config):
        for name in ("hash_block_size", "prefix_match_unit"):
            size = getattr(config, name, None)
            if size:
                return size
    return cache_config.block_size


def hit_source(tier):
    """vLLM's name for the source of a hit in the tier of this name."""
    return {"l1": CacheHitSource.HOST, "nvme": CacheHitSource.DISK}.get(tier, CacheHitSource.EXTERNAL_UNSPECIFIED)


__all__ = [
    "BlockRemoved", "BlockStored", "CacheHitSource", "EngineCoreRequestType", "KVConnectorBase_V1",
    "KVConnectorMetadata", "KVConnectorPromMetrics", "KVConnectorRole", "KVConnectorStats", "KVConnectorWorkerMetadata",
    "RUN_WITH", "SupportsHMA", "VERSION", "attention_of", "hash_block_size", "hit_source", "init_logger", "keep_media",
    "kind_of", "mark_media", "maybe_convert_block_hash", "media", "missing", "packing_switches", "unsupported",
]  # fmt: skip
