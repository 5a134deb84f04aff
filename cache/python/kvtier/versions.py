"""All that this package takes from vLLM, and every difference between the versions of it that are supported.

A name that a version does not have is None here and listed in `missing`; then, and with a version that this was not
run with, unsupported() says so, the connector does nothing, and the engine runs as without it. Only what the connector
is made of (base class, metadata, role) must be there, or the engine itself could not make one.
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

RUN_WITH = ("0.32.", "0.33.")  # versions of vLLM that this was run with; 0.33 on the kernels of 0.32, having no CPU build of its own
VERSION = str(vllm.__version__)

OF_NO_MEDIUM = (  # members of vLLM's MultiModalConfig: limits, caches and ways, which do not change what is seen
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


# Without it the engine gives every layer of a hybrid model as much memory as full attention needs, or does not start.
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
    """What vLLM calls the attention of a group of KV caches. One that keeps a prefix and a window is full attention to
    it, and yet gives blocks away."""
    if type(group.kv_cache_spec).__name__ == "RSWASpec":
        return "rswa"
    return get_kv_cache_spec_kind(group.kv_cache_spec).value


def media(model_config):
    """What decides, besides an image itself, what a model sees of it (audio, video alike): text, or None if it takes
    text only. vLLM's hashes leave it out, since it is the same for an engine's life."""
    config = getattr(model_config, "multimodal_config", None)
    if config is None:
        return None
    told = {name: value for name, value in vars(config).items() if name not in OF_NO_MEDIUM}
    return json.dumps([importlib.metadata.version("transformers"), told], sort_keys=True, default=repr)


def attention_of(config, names):
    """The classes of attention of these layers. ValueError: one is not known, nor, then, how it packs a block."""
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
    """{name: text} of what attention on a device looks at to pack a block."""
    envs, platforms = importlib.import_module("vllm.envs"), importlib.import_module("vllm.platforms")
    known = [name for name in envs.environment_variables if "SHUFFLE" in name]
    return {
        **{name: repr(getattr(envs, name)) for name in known},
        "fp8": str(platforms.current_platform.fp8_dtype()),  # bytes of one kind of fp8 are other numbers in another
    }


def keep_media():
    """Has workers get the data of all images of a request. 0.32 leaves out those that lie within the tokens that a
    request has when it is scheduled first, loaded ones too: if it is preempted and comes back with fewer, the worker has
    nothing to compute such an image from ("Encoder cache miss"), and the engine ends. Returns what this needs and this
    version does not have, or None."""
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
    """Has this process mark the names that it makes of the content of images (media.py). Where it cannot, no image
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
    """Tokens of which one of a request's block hashes is made. Versions keep it in several places, and later ones call
    it prefix_match_unit."""
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
