"""interface.py - the connector against the classes of the vLLM that is installed, without running an engine.

Prints a line for each thing that was looked at; a failed assertion ends it.
"""

import dataclasses
import inspect
import json
import os
import pathlib
import queue
import tempfile
import time
import types

import torch
from kvtier import apart, changes, events, fingerprint, loop, media, settings, sources, versions, weights
from kvtier.groups import Groups
from kvtier.vllm_metrics import kv_event
from kvtier.scheduler import Plan
from kvtier.vllm import KVTierConnector, KVTierMetadata
from kvtier.work import Load, LoadChunk, Store
from vllm.config import KVTransferConfig, LoadConfig, ModelConfig
from vllm.config.multimodal import MultiModalConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole, SupportsHMA
from vllm.lora.request import LoRARequest
from vllm.model_executor import models
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.multimodal.parse import MultiModalDataParser
from vllm.multimodal.processing.inputs import ProcessorInputs
from vllm.sampling_params import SamplingParams
from vllm.transformers_utils.configs.ultravox import UltravoxConfig
from vllm.utils.hashing import sha256
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
from vllm.v1.attention.backends.mla.cpu_mla import CPUMLABackend
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash, maybe_convert_block_hash
from vllm.v1.core.sched import output
from vllm.v1.core.sched.output import NewRequestData, SchedulerOutput
from vllm.v1.engine.core import EngineCore
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheGroupSpec, MambaSpec, RSWASpec, SlidingWindowSpec
from vllm.v1.request import Request, RequestStatus
from vllm.v1.worker.gpu_worker import Worker

BLOCK = 16
# What the interface has that this connector leaves as it is, and why that is right.
LEFT = {
    "bind_gpu_block_pool": "the pool is reached through the manager",
    "bind_kv_cache_manager": "kept by the base class",
    "clear_connector_metadata": "kept by the base class",
    "finish_forward": "stores read blocks behind an event of the device",
    "get_finished_count": "all ranks load and store",
    "get_handshake_metadata": "ranks do not talk to ranks",
    "get_kv_connector_kv_cache_events": "events go past the steps, so that they leave while there are none",
    "get_loaded_kv_cache_group_ids": "all groups are loaded",
    "get_mem_pool_context": "any memory will do",
    "get_required_kvcache_layout": "any layout will do, strides are read",
    "has_connector_metadata": "kept by the base class",
    "register_finished_partial_tail": "whole blocks only",
    "requires_piecewise_for_cudagraph": "no hook inside a layer does anything",
    "reset_capture_state": "nothing is kept while graphs are captured",
    "role": "kept by the base class",
    "set_host_xfer_buffer_ops": "copies are the connector's own",
    "set_xfer_handshake_metadata": "ranks do not talk to ranks",
    "set_xfer_handshake_metadata_pp_aware": "ranks do not talk to ranks",
    "supports_divergent_local_hybrid_hits": "state-space layers are declined",
}
LATER = {  # of 0.33
    "restore_kv_caches": "memory comes back at the addresses that it had",
    "supports_sleep_mode": "any",
}


def names_of(thing):
    return {name for name in vars(thing) if not name.startswith("_")}


def look_at_the_interface():
    """Every method is either ours or left alone for a reason."""
    unknown = names_of(KVConnectorBase_V1) - names_of(KVTierConnector) - LEFT.keys() - LATER.keys()
    assert not unknown, f"new in this version: {sorted(unknown)}"
    assert not LEFT.keys() - names_of(KVConnectorBase_V1), "gone in this version"
    assert not KVTierConnector.__abstractmethods__


def request_of(number, lora=None, salt=None, images=()):
    features = [
        MultiModalFeatureSpec(None, "image", digest, PlaceholderRange(offset=at, length=8)) for at, digest in images
    ]  # fmt: skip
    return Request(
        f"r{number}", list(range(100, 100 + 8 * BLOCK + 1)), SamplingParams(max_tokens=1), None, lora_request=lora,
        cache_salt=salt, mm_features=features, block_hasher=get_request_block_hasher(BLOCK, sha256),
    )  # fmt: skip


class Asker:
    epoch = 0

    def ask(self, names, tenant):
        self.names = names
        return 1


def look_at_names():
    """Prompts that differ in anything but their tokens share no chunk behind the difference."""
    init_none_hash(sha256)
    folder = tempfile.mkdtemp()
    pathlib.Path(folder, "adapter_model.safetensors").write_bytes(b"weights")
    time.sleep(0.02)  # they are loaded later
    loras = [LoRARequest("a", 1, folder), LoRARequest("b", 2, folder), LoRARequest("a", 3, folder + "/.")]
    requests = [
        request_of(0), request_of(1, salt="one"), request_of(2, salt="two"), *(request_of(3 + n, lora) for n, lora in
        enumerate(loras)), request_of(6, images=[(3, "x")]), request_of(7, images=[(3, "y")]),
        request_of(8, images=[(5, "x")]), request_of(9, loras[0], "one", [(3, "x")]),
    ]  # fmt: skip
    plan = Plan(Asker(), settings.Settings(chunk_tokens=4 * BLOCK), BLOCK, True)
    seen = []
    for request in requests:
        if request.lora_request is not None:
            plan.adapters.loaded(request.lora_request)
        while not plan.adapters.quiet():
            time.sleep(0.001)
        plan.arrived(request)
        seen += plan.asker.names
    assert len(seen) == 2 * len(requests) == len(set(seen))
    late = [request_of(20 + n, images=[(5 * BLOCK, digest)]) for n, digest in enumerate("xy")]
    first, second = [plan.arrived(request) or plan.asker.names for request in late]
    assert first[0] == second[0] == seen[0] and first[1] != second[1]  # equal up to the image
    again = request_of(30, salt="one")
    plan.arrived(again)
    assert plan.asker.names == seen[2:4]


def spec(kind=FullAttentionSpec, **more):
    return kind(block_size=BLOCK, num_kv_heads=2, head_size=32, dtype=torch.float32, **more)


def config_of(**changed):
    """What a connector looks at of an engine's configuration."""
    cache = {
        "enable_prefix_caching": True, "hash_block_size": BLOCK, "block_size": BLOCK, "cache_dtype": "auto",
        "prefix_caching_hash_algo": "sha256",
    }  # fmt: skip
    parallel = {
        "decode_context_parallel_size": 1, "prefill_context_parallel_size": 1, "nnodes": 1, "rank": 0,
        "local_world_size": 1, "world_size": 1, "pipeline_parallel_size": 1,
    }  # fmt: skip
    for name, value in changed.items():
        (cache if name in cache else parallel)[name] = value
    return types.SimpleNamespace(
        cache_config=types.SimpleNamespace(**cache), parallel_config=types.SimpleNamespace(**parallel),
        kv_transfer_config=KVTransferConfig(
            kv_connector="KVTierConnector", kv_connector_module_path="kvtier.vllm", kv_role="kv_both"),
        kv_events_config=None,
    )  # fmt: skip


def caches_of(groups=1, kv=None):
    return types.SimpleNamespace(kv_cache_groups=[KVCacheGroupSpec(["l"], kv or spec()) for _ in range(groups)])


def scheduler_of(config, caches):
    return KVTierConnector(config, KVConnectorRole.SCHEDULER, caches)


def unfit(groups=1, kv=None, **changed):
    """What the connector says of an engine with this configuration."""
    return scheduler_of(config_of(**changed), caches_of(groups, kv)).why_not


def look_at_what_is_declined():
    assert unfit() is None
    for said, answer in (
        ("3 groups of KV caches of kind full_attention", unfit(groups=3)),
        ("kind sliding_window", unfit(kv=spec(SlidingWindowSpec, sliding_window=64))),
        ("prefix caching is off", unfit(enable_prefix_caching=False)),
        ("context parallel size is 2", unfit(decode_context_parallel_size=2)),
        ("context parallel size is 4", unfit(prefill_context_parallel_size=4)),
        ("runs on 2 nodes", unfit(nnodes=2)),
        ("kv_cache_dtype is fp8_per_token_head", unfit(cache_dtype="fp8_per_token_head")),
        ("hash_block_size is 8", unfit(hash_block_size=8)),
        ("prefix_caching_hash_algo is xxhash", unfit(prefix_caching_hash_algo="xxhash")),
    ):
        assert said in (answer or ""), (said, answer)


def look_at_a_start_without_ranks():
    """The policy is set, and whatever is missing costs the cache only."""
    for caches in (caches_of(), caches_of(groups=3)):
        config = config_of()
        assert config.kv_transfer_config.kv_load_failure_policy == "fail"
        one = scheduler_of(config, caches)
        assert config.kv_transfer_config.kv_load_failure_policy == "recompute" and not one.requires_kv_delivery
        request = request_of(50)
        one.on_new_request(request)
        assert one.get_num_new_matched_tokens(request, 0) == (0, False)
        assert one.reset_cache() is True and one.request_finished(request, []) == (False, None)
        assert list(one.take_events()) == [] and not one.has_pending_push_work()
        worker = KVTierConnector(config, KVConnectorRole.WORKER, caches)
        worker.register_kv_caches({})  # nothing that could be served
        worker.bind_connector_metadata(KVTierMetadata([Load("r", [LoadChunk(bytes(32), 1, 0, [7])])], []))
        worker.start_load_kv(None)
        worker.wait_for_save()
        results, failed = worker.get_transfer_results(set()), worker.get_block_ids_with_load_errors()
        assert results.finished_recving == {"r"} and worker.build_connector_worker_meta() is None
        one_group = len(caches.kv_cache_groups) == 1  # otherwise vLLM takes no blocks
        assert (results.failed_recving, failed) == ((set(), {7}) if one_group else ({"r"}, set()))
        worker.shutdown()
        one.shutdown()


def look_at_events():
    hashes = (b"\1" * 32, b"\2" * 32)
    one = events.Event(events.STORED, 1, hashes, b"\3" * 32, torch.arange(32, dtype=torch.int32).numpy().tobytes(), 16)
    told = kv_event(one, "full_attention")
    assert told.block_hashes == [maybe_convert_block_hash(h) for h in hashes]
    assert (told.medium, told.locality, told.token_ids) == ("STORAGE", "LOCAL", list(range(32)))
    gone = kv_event(events.Event(events.REMOVED, 0, hashes), "full_attention")
    assert (gone.block_hashes, gone.medium, gone.locality) == (told.block_hashes, "CPU", None)
    far = kv_event(events.Event(events.STORED, 2, hashes), None)
    assert (far.medium, far.locality, far.token_ids, far.parent_block_hash) == ("STORAGE", "REMOTE", [], None)
    assert kv_event(events.Event(events.CLEARED, 0, ()), None) is None


class Core:
    """As vLLM's engine core."""

    def __init__(self):
        self.input_queue, self.paused = queue.Queue(), False

    def is_scheduler_paused(self):
        return self.paused


def look_at_waking():
    assert hasattr(EngineCore, "is_scheduler_paused")
    core = Core()
    found = loop.Loop(core)
    found.wake()
    assert core.input_queue.get_nowait()[0].name == "WAKEUP"
    core.paused = True
    found.wake()
    assert core.input_queue.empty() and found.rests()
    unwatched = loop.Loop(None)
    unwatched.wake()
    assert not unwatched.rests()


def look_at_changes():
    """What weights and adapters go through is where changes.py looks for it, and on an engine core alone."""
    assert all(callable(getattr(EngineCore, name)) for name in changes.NEEDED)
    assert not all(hasattr(LLMEngine, name) for name in changes.NEEDED)
    for name in ("update_weights", "reload_weights", "start_weight_update", "finish_weight_update", "reset_weights"):
        assert callable(getattr(Worker, name)) and name not in changes.HARMLESS
    assert changes.find_core() is None


def look_at_a_replaced_adapter():
    """No later request finds blocks of a request of the old one, which keeps them; nor those that it fills from then on."""
    lora, pool = LoRARequest("a", 1, "/a"), BlockPool(20, True, BLOCK)
    running, later = request_of(70, lora), request_of(71, lora)
    assert running.block_hashes == later.block_hashes

    def fill(request, blocks, first, end):
        pool.cache_full_blocks(request, blocks, first, end, BLOCK, 0)

    def found():
        return [n for n, one in enumerate(later.block_hashes) if pool.get_cached_block(one, [0]) is not None]

    blocks = pool.get_new_blocks(8)
    fill(running, blocks, 0, 4)
    assert found() == [0, 1, 2, 3]
    manager = types.SimpleNamespace(block_pool=pool)
    ended = request_of(72, lora)
    ended.status = RequestStatus.FINISHED_ABORTED
    scheduler = types.SimpleNamespace(requests={"r": running, "ended": ended}, kv_cache_manager=manager)
    engine = changes.Engine(types.SimpleNamespace(scheduler=scheduler))
    assert engine.requests() == [running]
    apart.mark_outdated(running)
    engine.drop_blocks()
    assert found() == [] and {block.ref_cnt for block in blocks} == {1}
    fill(running, blocks, 4, 8)
    running.append_output_token_ids(list(range(BLOCK)))
    assert found() == [] and len(running.block_hashes) == 9
    assert apart.is_outdated(running) and not apart.is_outdated(later)


def look_at_weights():
    """Weights of a real configuration have a name by content."""
    folder = os.environ.get("KVW_ENGINE_MODEL")
    if not folder:
        return
    config = types.SimpleNamespace(
        model_config=ModelConfig(model=folder), load_config=LoadConfig(), speculative_config=None)  # fmt: skip
    source = sources.of(config)[0]
    assert (source.model, source.load_format, source.stored_at) == (folder, "auto", "")
    assert source.config[0]["architectures"] and folder not in json.dumps(source.config)
    found = weights.identify([source], weights.Digests(), time.time_ns())
    assert found.why_not is None and "model.safetensors" in found.parts[0][1]


def look_at_weights_besides():
    """Classes of models that load more than the model's own files are known: from ids that their configuration has
    (sources.BESIDES), or out of folders in the model's (weights.READ_BELOW) or files that count anyway."""
    files = pathlib.Path(models.__file__).parent.rglob("*.py")
    assert {one.stem for one in files if "self.secondary_weights" in one.read_text()} <= {
        "clef_omni", "kimi_audio", "roberta", "ultravox"}  # fmt: skip
    assert set(sources.BESIDES) < inspect.signature(UltravoxConfig).parameters.keys()


def look_at_packing():
    """CPU attention is known to pack as layout.cpu_kernels() says; what decides on devices has its place."""
    own = [CPUAttentionBackend, CPUMLABackend]
    assert fingerprint.packing("cpu", own, "x86_64", {}) == {}
    switches = versions.packing_switches()
    assert {"VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "fp8"} <= switches.keys()
    told = fingerprint.packing("cuda", own, "x86_64", switches)["packing"]
    assert told[0][0][:2] == ["CPU_ATTN", "vllm.v1.attention.backends.cpu_attn.CPUAttentionBackend"] and told[1] == switches


def look_at_media():
    """How images are processed has a name, limits and caches have none; members that are new count."""
    assert names_of_members(MultiModalConfig) >= set(versions.OF_NO_MEDIUM)

    def told(**changed):
        return versions.media(types.SimpleNamespace(multimodal_config=MultiModalConfig(**changed)))

    assert told() == told(mm_processor_cache_gb=1, limit_per_prompt={"image": 2})
    plain, kwargs = told(), {"do_normalize": False}
    assert len({plain, told(mm_processor_kwargs=kwargs), told(media_io_kwargs={"video": {"num_frames": 4}})}) == 3
    assert versions.media(types.SimpleNamespace(multimodal_config=None)) is None
    members = names_of_members(ModelConfig)
    assert members >= {"max_model_len", "multimodal_config", "quantization_config", "code_revision"}


def look_at_media_of_requests_that_come_back():
    """Workers get the data of images within what is loaded: a request that is preempted may come back with less."""
    request = request_of(51, images=[(3, "x")])
    request.mm_features[0].data, request.num_computed_tokens = {}, 8 * BLOCK
    strip = output.strip_covered_mm_data
    try:
        del output.strip_covered_mm_data
        assert not scheduler_of(config_of(), caches_of()).plan.images
        assert "strip_covered_mm_data" in versions.keep_media()
    finally:
        output.strip_covered_mm_data = strip
    assert scheduler_of(config_of(), caches_of()).plan.images
    assert NewRequestData.from_request(request, ([0],)).mm_features[0].data == {}


def look_at_names_of_media():
    """Names that are hashes of the content have the mark, those that a client gives do not."""
    images, name = [torch.zeros(3, 2, 2), torch.ones(3, 2, 2)], media.mark(["5f"], None)[0]

    def names(uuids=None, kwargs=None):
        items = MultiModalDataParser().parse_mm_data({"image": images})
        inputs = ProcessorInputs([], items, uuids and {"image": uuids}, hf_processor_mm_kwargs=kwargs or {})
        found = inputs.get_mm_hashes("model", "sha256")["image"]
        features = [MultiModalFeatureSpec(None, "image", n, PlaceholderRange(offset=0, length=1)) for n in found]
        return [media.is_named(feature) for feature in features]

    versions.mark_media()  # once more is not twice
    assert names() == names([None, None]) == names(kwargs={"size": 3}) == [True, True]
    assert names(["a", None]) == names(["a", None], {"size": 3}) == names([name, None]) == [False, True]


def names_of_members(kind):
    return {member.name for member in dataclasses.fields(kind)}


def call_all(one, request):
    """What an engine calls in a step of its scheduler; nothing is found, stored or kept."""
    one.on_new_request(request)
    assert one.get_num_new_matched_tokens(request, 0) == (0, False)
    step = SchedulerOutput.make_empty()
    step.scheduled_new_reqs = [types.SimpleNamespace(
        req_id=request.request_id, block_ids=([1], [2], [3]), num_computed_tokens=0)]  # fmt: skip
    step.num_scheduled_tokens, step.preempted_req_ids = {request.request_id: 8 * BLOCK}, {"taken"}
    meta = one.build_connector_meta(step)
    assert (meta.loads, meta.stores, meta.preempted) == ([], [], {"taken"})
    assert one.request_finished_all_groups(request, ([1], [2], [3])) == (False, None)
    assert one.reset_cache() is True and list(one.take_events()) == [] and not one.has_pending_push_work()


def look_at_hybrid_models():
    """The engine keeps its manager of several groups of KV caches, and the connector serves windows and full attention;
    of other kinds it says why it does nothing."""
    transfer = config_of().kv_transfer_config
    assert KVConnectorFactory.supports_hma_config(transfer)
    mamba = MambaSpec(block_size=BLOCK, shapes=((4, 4),), dtypes=(torch.float32,))
    kinds = [spec(), spec(SlidingWindowSpec, sliding_window=64), mamba]
    caches = types.SimpleNamespace(kv_cache_groups=[KVCacheGroupSpec([str(n)], kind) for n, kind in enumerate(kinds)])
    config = config_of()
    config.scheduler_config = types.SimpleNamespace(disable_hybrid_kv_cache_manager=False)
    one = KVConnectorFactory.create_connector(config, KVConnectorRole.SCHEDULER, caches)
    assert isinstance(one, SupportsHMA) and "one of kind mamba (MambaSpec)" in one.why_not
    call_all(one, request_of(60))
    worker = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, caches)
    worker.register_kv_caches({"0": torch.zeros(2)})
    assert worker.worker.rank is None
    served = scheduler_of(config, types.SimpleNamespace(kv_cache_groups=caches.kv_cache_groups[1::-1]))
    assert served.why_not is None and served.groups == Groups((1,), ((0, 4),)) and not served.has_pending_block_frees()
    stages = config_of(pipeline_parallel_size=2)
    assert "pipeline" in scheduler_of(stages, types.SimpleNamespace(kv_cache_groups=caches.kv_cache_groups[:2])).why_not
    none = scheduler_of(config, types.SimpleNamespace(kv_cache_groups=[]))
    assert none.why_not == "the model keeps no KV cache"


def look_at_blocks_that_kernels_split():
    """A block's number has to be that of its place in the tensors."""
    caches = caches_of()
    caches.num_blocks = 8
    one = KVTierConnector(config_of(), KVConnectorRole.WORKER, caches)
    assert one._paged({"l": torch.zeros(8, 2, BLOCK)}).block_count == 8
    for count in (4, 16):
        try:
            one._paged({"l": torch.zeros(count, 2, BLOCK)})
        except ValueError as error:
            assert f"have {count}" in str(error)
        else:
            raise AssertionError(f"{count} blocks of 8")
    assert "kind rswa" in unfit(kv=object.__new__(RSWASpec))


def look_at_other_versions():
    """An engine of a version that is not supported runs without the cache, and hears why."""
    version = versions.VERSION
    assert versions.unsupported() is None and versions.missing == []
    try:
        versions.VERSION = "9.9.0"
        one = scheduler_of(config_of(), caches_of())
        assert "and not with 9.9.0" in one.why_not
        call_all(one, request_of(61))
        assert unfit(hash_block_size=8) == one.why_not
    finally:
        versions.VERSION = version
    assert versions._take("vllm.v1.engine", "NoSuchName") is None and "NoSuchName" in versions.unsupported()
    versions.missing.clear()
    later = types.SimpleNamespace(block_size=32, prefix_match_unit=16)  # the name in later versions
    assert versions.hash_block_size(later, types.SimpleNamespace()) == 16
    assert versions.hash_block_size(types.SimpleNamespace(block_size=32), None) == 32


def look_at_a_step_that_fails():
    """Blocks that were taken away are reported, and no block is held for a store that never went out."""
    one = scheduler_of(config_of(), caches_of())
    request = request_of(62)
    one.plan._track(request)
    one.plan._measure = None
    step = SchedulerOutput.make_empty()
    step.scheduled_new_reqs = [types.SimpleNamespace(
        req_id=request.request_id, block_ids=(list(range(8)),), num_computed_tokens=0)]  # fmt: skip
    step.num_scheduled_tokens, step.preempted_req_ids = {request.request_id: 8 * BLOCK}, {"taken"}
    meta = one.build_connector_meta(step)
    assert (meta.preempted, meta.stores) == ({"taken"}, [])
    assert one.request_finished(request, []) == (False, None)


class Fails:
    """Anything that is asked of it."""

    def __getattr__(self, name):
        raise MemoryError(name)


def look_at_calls_that_fail():
    """Requests wait for loads and for the end of stores: whatever fails, these are reported, and the engine computes."""
    one, worker = [KVTierConnector(config_of(), role, caches_of()) for role in (
        KVConnectorRole.SCHEDULER, KVConnectorRole.WORKER)]  # fmt: skip
    request, blocks = request_of(63), types.SimpleNamespace(get_block_ids=lambda: (list(range(8)),))
    one.plan._track(request).computed = 2 * BLOCK
    one.plan._pieces, one.plan.tracks[request.request_id].answer = None, (2, 0)
    one.update_state_after_alloc(request, blocks, 6 * BLOCK)
    other = request_of(64)
    one.plan._track(other).question, one.plan.asker = 1, Fails()
    assert one.request_finished(other, []) == (False, None)
    one.plan.asker = Asker()
    meta = one.build_connector_meta(SchedulerOutput.make_empty())
    assert [load.chunks[0].block_ids for load in meta.loads] == [list(range(2, 8))] and meta.preempted == {"r64"}

    worker.worker.rank = Fails()
    worker.handle_preemptions(KVTierMetadata(preempted={"x"}))
    meta.stores, meta.prefill_tokens = [Store("x", bytes(32), None, [[9]], BLOCK, ticket=5)], 100
    worker.bind_connector_metadata(meta)
    worker.start_load_kv(None)
    worker.worker.began = (100, 0, None)
    worker.wait_for_save()
    worker.worker.rank = None
    meta.ended = {"x"}
    results = worker.get_transfer_results({"x", "r64"})
    assert (results.finished_recving, results.finished_sending) == ({"r63"}, {"x"})
    assert worker.get_block_ids_with_load_errors() == set(range(2, 8))
    assert worker.build_connector_worker_meta().tickets == [5]
    one.shutdown(), worker.shutdown()


for look in (
    look_at_the_interface, look_at_names, look_at_what_is_declined, look_at_a_start_without_ranks, look_at_events,
    look_at_waking, look_at_changes, look_at_a_replaced_adapter, look_at_weights, look_at_weights_besides,
    look_at_packing, look_at_media, look_at_media_of_requests_that_come_back, look_at_names_of_media,
    look_at_hybrid_models, look_at_blocks_that_kernels_split, look_at_other_versions, look_at_a_step_that_fails,
    look_at_calls_that_fail,
):  # fmt: skip
    look()
    print(look.__name__)
