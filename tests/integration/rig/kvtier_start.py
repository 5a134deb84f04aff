"""kvtier.vllm over stand-ins of vLLM and torch, and an engine's configuration for it: what a worker makes of that."""

import importlib
import json
import pathlib
import sys
import types

import pytest

from rig.router import BUILD

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "cache" / "python"))

BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"
OVER = ("kvtier.layout", "kvtier.loop", "kvtier.versions", "kvtier.vllm", "kvtier.vllm_metrics")  # made for one test


def _module(monkeypatch, name, **members):
    made = types.ModuleType(name)
    vars(made).update(members)
    made.__path__ = []
    monkeypatch.setitem(sys.modules, name, made)


class Attention:
    """As a class of vLLM's attention; `called` makes others."""

    @classmethod
    def get_name(cls):
        return cls.NAME


def called(name, kind, module="vllm.v1.attention.backends.some"):
    return type(kind, (Attention,), {"NAME": name, "__module__": module})


CPU_ATTENTION = called("CPU_ATTN", "CPUAttentionBackend", "vllm.v1.attention.backends.cpu_attn")


class HfConfig(types.SimpleNamespace):
    """As transformers' PretrainedConfig."""

    def to_dict(self):
        return dict(vars(self))


class Paged:
    """As layout.PagedCache."""

    copier, block_count = None, 8

    def __init__(self, tensors, device="cpu"):
        self.names, self.device = list(tensors), types.SimpleNamespace(type=device)

    def describe(self):
        return {"layers": self.names, "block": [2, 2, 64], "dtype": "torch.bfloat16", "device": self.device.type}

    def pin(self, cache):
        pass


class Engine:
    """A worker's connector, with members of the configuration that a test may change before it calls start()."""

    def __init__(self, module, cache):
        self.module, self.paged, self.kinds = module, Paged, {"l0": CPU_ATTENTION, "l1": CPU_ATTENTION}
        self.one = object.__new__(module.KVTierConnector)
        self.one.settings = module.settings.read({"cache": cache})
        self.one.groups = self.one._kv_cache_config = None
        plain = types.SimpleNamespace
        self.model = plain(
            model="org/m", revision=None, hf_config=HfConfig(), hf_text_config=plain(), max_model_len=4096, dtype="torch.bfloat16",
            quantization=None, hf_overrides={}, use_mla=False, get_total_num_kv_heads=lambda: 2, trust_remote_code=False,
        )  # fmt: skip
        self.load = plain(load_format="auto", download_dir=None)
        self.parallel = plain(rank=0, world_size=1, local_world_size=1, tensor_parallel_size=1, pipeline_parallel_size=1,
                              distributed_executor_backend="mp")  # fmt: skip
        self.one._vllm_config = self.config = plain(
            model_config=self.model, load_config=self.load, parallel_config=self.parallel, speculative_config=None,
            cache_config=plain(block_size=32, cache_dtype="auto", prefix_caching_hash_algo="sha256"),
            kv_transfer_config=plain(engine_id="e", kv_role="kv_both", kv_connector_extra_config={"cache": cache}),
        )  # fmt: skip

    def layers(self):
        """What the engine registers: a KV cache for each of its layers."""
        layers = {name: types.SimpleNamespace(attn_backend=kind) for name, kind in self.kinds.items()}
        self.config.compilation_config = types.SimpleNamespace(static_forward_context=layers)
        self.one.paged_cache = self.paged
        return dict.fromkeys(self.kinds)

    def start(self):
        """(cache, fingerprint) that the worker makes at its start."""
        made = self.one._start_rank(self.layers())
        return made.cache, bytes(made.parts.fingerprint).hex()


@pytest.fixture
def engine_of(monkeypatch):
    """engine_of(cache): an Engine with this configuration of libkvtier."""
    monkeypatch.setenv("KVTIER_LIBRARY", str(BUILD / "cache" / "core" / "libkvtier.so.1"))
    for name in OVER:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("vllm.distributed", BASE.rpartition(".")[0], "torch"):
        _module(monkeypatch, name)
    _module(monkeypatch, "vllm", __version__="0.32.0")
    base = type("Base", (), {"__init__": lambda self, config, role, caches: setattr(self, "_vllm_config", config)})
    role = types.SimpleNamespace(SCHEDULER="scheduler", WORKER="worker")
    _module(monkeypatch, BASE, KVConnectorBase_V1=base, KVConnectorMetadata=object, KVConnectorRole=role)
    _module(monkeypatch, "vllm.logger", init_logger=__import__("logging").getLogger)
    module, caches = importlib.import_module("kvtier.vllm"), []

    def rank(cache, paged, parts, *more):
        caches.append(cache)
        return types.SimpleNamespace(cache=cache, parts=parts)

    monkeypatch.setattr(module, "Rank", rank)
    yield lambda cache: Engine(module, json.loads(json.dumps(cache)))
    for cache in caches:
        cache.close()
    for name in OVER:
        sys.modules.pop(name, None)
