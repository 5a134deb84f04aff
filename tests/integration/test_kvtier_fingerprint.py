"""What a worker of the connector names its store by, over stand-ins of vLLM: how attention packs blocks, and what it may
open where nothing names the weights."""

import hashlib
import itertools
import pathlib
import platform
import sys
import time
import types

import pytest

from rig.kvtier_start import HfConfig, Paged, called, engine_of  # noqa: F401

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
    """What the user configured besides stays closed, and no other start finds what it stores in memory."""
    nvme = {"path": str(tmp_path), "capacity": "64MiB"}
    engine = engine_of({**MEMORY, "nvme": nvme})
    engine.model.model = "s3://bucket/m"
    cache, first = engine.start()
    assert "its weights come from s3://bucket/m" in caplog.text and "Set model_version" in caplog.text
    assert list(tmp_path.iterdir()) == []
    assert cache.mistakes == "" and engine.start()[1] != first
    assert named(engine) and [len(folder.name) for folder in tmp_path.iterdir()] == [64]  # the setting opens it


# --- weights that a model's class loads besides --------------------------------------------------


def hub_of(home, model, content, ref="main"):
    """A snapshot of a model in the hub's cache, its commit by its content."""
    folder, commit = home / "hub" / ("models--" + model.replace("/", "--")), hashlib.sha1(content).hexdigest()
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / ref).write_text(commit)
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True, exist_ok=True)
    (snapshot / "model.safetensors").write_bytes(content)
    return commit


def local(folder, content):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(content)
    time.sleep(0.02)
    return folder


@pytest.fixture
def named_of(engine_of, tmp_path, monkeypatch):
    """named_of(model, **members): (fingerprint, why_not) of an engine whose model's configuration has these."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    number = itertools.count()

    def start(name="org/m", **members):
        nvme = {"path": str(tmp_path / f"nvme{next(number)}"), "capacity": "64MiB"}  # one process owns it
        engine = engine_of({**MEMORY, "nvme": nvme})
        engine.model.model = name
        engine.model.hf_config = HfConfig(_name_or_path=name, **members)
        engine.began = time.time_ns()
        monkeypatch.setattr(engine.module.weights, "started_ns", lambda: engine.began)
        found = engine.module.sources.identify(engine.config, engine.module.weights.Digests())
        return engine.start()[1], found.why_not

    return start


def test_weights_that_a_models_class_takes_from_another_id(named_of, tmp_path):
    """New ones under that id read what the old ones had stored."""
    hub_of(tmp_path, "org/m", b"audio")
    names = [named_of()[0]]
    for content in (b"one", b"two"):
        hub_of(tmp_path, "org/lm", content)
        time.sleep(0.02)
        name, why_not = named_of(text_model_id="org/lm", audio_model_id=None)
        assert why_not is None and named_of(text_model_id="org/lm", audio_model_id=None)[0] == name
        names.append(name)
    assert len(set(names)) == 3
    assert "no snapshot of org/other is in" in named_of(audio_model_id="org/other")[1]


def test_weights_in_folders_that_a_models_class_reads(named_of, tmp_path):
    own, names = local(tmp_path / "own", b"w"), []
    for content in (b"one", b"two"):
        local(own / "audio_tokenizer", content)
        name, why_not = named_of(str(own))
        assert why_not is None
        names.append(name)
    assert len(set(names)) == 2


def test_a_configuration_that_the_server_read_of_other_files(named_of, tmp_path):
    """It is part of the name, but for where it came from."""
    folders = [str(local(tmp_path / name, b"w")) for name in "ab"]
    names = [named_of(folder, rope={"theta": theta}, kinds={1, 2})[0] for folder in folders for theta in (1, 2)]
    assert names[:2] == names[2:] and names[0] != names[1]


def test_code_that_a_model_takes_from_another_id(named_of, tmp_path, monkeypatch):
    """Its commit is in no file of the model's."""
    hub_of(tmp_path, "org/m", b"one")
    time.sleep(0.02)
    mapped, names = {}, []

    def name():
        names.append(named_of(auto_map=mapped)[0])

    name()
    for content in ("one", "two"):
        module = types.ModuleType("transformers_modules.org.other.modeling")
        module.__file__ = str(tmp_path / f"{content}.py")
        pathlib.Path(module.__file__).write_text(content)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        name()
    mapped = {"AutoModel": "org/other--modeling.Model", "AutoTokenizer": ["org/other--t.T", None]}
    name()
    (tmp_path / "two.py").write_text("three")
    name()
    assert names[0] == names[1] == names[2] and len(set(names)) == 3


def test_what_the_configuration_has_an_engine_load_besides(engine_of, tmp_path):
    engine = engine_of(MEMORY)
    (tmp_path / "scales.json").write_text("{}")
    engine.model.multimodal_config = types.SimpleNamespace(mm_encoder_fp8_scale_path=str(tmp_path / "scales.json"))
    engine.config.speculative_config = types.SimpleNamespace(method="custom_class", model="x.Y", draft_model_config=engine.model)
    found = engine.module.sources.of(engine.config)
    assert [one.model for one in found] == ["org/m", "x.Y", str(tmp_path / "scales.json")]
    weights = engine.module.weights
    assert "a proposer of the user's, x.Y" in weights.identify(found[1:2], weights.Digests(), time.time_ns()).why_not
