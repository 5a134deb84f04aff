"""What a worker of the connector names its store by, over stand-ins of vLLM: how attention packs blocks, and what it may
open where nothing names the weights."""

import platform
import types

import pytest

from rig.kvtier_start import Paged, called, engine_of  # noqa: F401

from kvtier import fingerprint  # noqa: E402

MEMORY = {"l1": {"capacity": "1MiB"}}
# Of stores that exist. A change here makes all of them cold: say so in CHANGELOG.md.
OF_A_CPU = "644cbf9ea3901ff425005fb71990b51eda5bcc1b7c41fa0211443257d97f5770"
SHUFFLED = {"VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": "True"}


def named(engine, version="v1"):
    engine.one.settings.model_version = version
    return engine.start()[1]


def test_an_engine_on_an_x86_cpu_has_the_name_that_it_had(engine_of, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert named(engine_of(MEMORY)) == OF_A_CPU


def test_other_kinds_of_cpus_pack_otherwise(engine_of, monkeypatch):
    seen = set()
    for machine in ("x86_64", "aarch64", "s390x"):
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        seen.add(named(engine_of(MEMORY)))
    assert len(seen) == 3


def test_attention_that_packs_otherwise_has_another_name(engine_of, monkeypatch):
    """Blocks of ROCM_ATTN and of AITER's shuffled layout have one shape and two meanings."""
    rocm, aiter = called("ROCM_ATTN", "RocmAttentionBackend"), called("ROCM_AITER_FA", "AiterFlashAttentionBackend")
    switches, seen = {}, []

    def name_of(*kinds):
        engine = engine_of(MEMORY)
        monkeypatch.setattr(engine.module.versions, "packing_switches", lambda: switches)
        engine.kinds = dict(zip(("l0", "l1"), kinds, strict=True))
        engine.paged = lambda tensors: Paged(tensors, "cuda")
        seen.append(named(engine))
        return seen[-1]

    assert name_of(rocm, rocm) == name_of(rocm, rocm) and name_of(aiter, aiter) != seen[0]
    name_of(rocm, aiter)
    name_of(aiter, rocm)
    name_of(called("ROCM_ATTN", "Other", "plugin.attention"), rocm)
    switches = SHUFFLED
    name_of(aiter, aiter)
    assert len(set(seen)) == len(seen) - 1


def test_attention_without_a_name_is_refused_by_the_layers_name(engine_of):
    engine = engine_of(MEMORY)
    engine.kinds["l1"] = None
    with pytest.raises(ValueError, match="layer l1 names no attention backend"):
        named(engine)


def test_switches_of_the_layout_are_read(engine_of, monkeypatch):
    versions = engine_of(MEMORY).module.versions
    envs = types.SimpleNamespace(
        environment_variables={"VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": 0, "VLLM_PORT": 0}, VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT=True)
    platforms = types.SimpleNamespace(current_platform=types.SimpleNamespace(fp8_dtype=lambda: "e4m3fnuz"))
    modules = {"vllm.envs": envs, "vllm.platforms": platforms}
    monkeypatch.setattr(versions.importlib, "import_module", modules.get)
    assert versions.packing_switches() == {**SHUFFLED, "fp8": "e4m3fnuz"}


def test_a_plugins_attention_on_a_cpu_has_a_name_of_its_own():
    own, other = (called("CPU_ATTN", "CPU", module) for module in ("vllm.v1.attention.backends.cpu_attn", "plugin.cpu"))
    assert fingerprint.packing("cpu", [own], "x86_64", {}) == {} != fingerprint.packing("cpu", [other], "x86_64", {})


# --- weights without a name by content -----------------------------------------------------------


def test_a_worker_whose_weights_have_no_name_opens_memory_alone(engine_of, tmp_path, caplog):
    """What the user configured besides stays closed, and nobody finds what it stores in memory."""
    nvme = {"path": str(tmp_path), "capacity": "64MiB"}
    engine = engine_of({**MEMORY, "nvme": nvme})
    engine.model.model = "s3://bucket/m"
    cache, first = engine.start()
    assert "its weights come from s3://bucket/m" in caplog.text and "Set model_version" in caplog.text
    assert list(tmp_path.iterdir()) == []
    assert cache.mistakes == "" and engine.start()[1] != first
    assert named(engine) and [len(folder.name) for folder in tmp_path.iterdir()] == [64]  # the setting opens it


@pytest.mark.parametrize("how, known", [("mp", True), ("uni", True), (None, True), ("ray", False), (object, False)])
def test_executors_that_do_not_say_when_the_configuration_was_read(engine_of, how, known):
    engine = engine_of(MEMORY)
    engine.parallel.distributed_executor_backend = how
    assert (engine.module.sources.began_ns(engine.config) is not None) == known
    engine.parallel.data_parallel_backend = "ray"
    assert engine.module.sources.began_ns(engine.config) is None
