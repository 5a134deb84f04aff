"""KVTierConnector: libkvtier as vLLM's KV connector.

	vllm serve MODEL --kv-transfer-config '{"kv_connector": "KVTierConnector",
		"kv_connector_module_path": "kvtier.vllm", "kv_role": "kv_both",
		"kv_connector_extra_config": {"cache": {"l1": {"capacity": "20GiB"}}}}'

vLLM makes one connector in its scheduler and one in each worker, in one process or in several. Each worker's connector
owns a cache (rank.py); the scheduler's asks all of them (ask.py, scheduler.py). If any part of the cache fails, at the
start or later, the engine computes: a connector that cannot work answers "nothing found" and logs the reason once.
"""

import functools
import json
import platform
import secrets
from dataclasses import dataclass, field

from . import adapters, ask, blending, changes, chunks, controller, events, fingerprint, groups, library, lmcache, loop
from . import settings, sources, versions, weights
from .vllm_metrics import KVTierPromMetrics, KVTierStats, kv_event
from .layout import PagedCache, cpu_kernels
from .parts import GroupedCache
from .rank import Rank
from .scheduler import Plan
from .versions import (
    KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole, KVConnectorWorkerMetadata, SupportsHMA, init_logger,
)  # fmt: skip
from .worker import Worker

logger = init_logger("vllm.kvtier")

# Types whose numbers fill the whole block; others may keep scales elsewhere.
WHOLE_IN_BLOCKS = ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla")
# Members of vLLM's ModelConfig that are rarely set and that affect the computation.
DECIDING = ("quantization_config", "model_class_overrides", "code_revision")
# Attention whose blocks keep all tokens until their request ends; others give blocks away while it runs.
KEPT_WHOLE = ("full_attention", "mla_attention", "sink_full_attention")
BLENDED = KEPT_WHOLE[:2]  # types for which fragments are moved
# Log lines that begin and end like LMCache's own: readers and alerts look for its name, and for these words.
STARTED = "LMCacheManager initialized successfully (kvtier %s, in LMCache's place)"
STOPPED = "kvtier, in LMCache's place: %s. System will operate in degraded mode (recompute)."
FAILED = "Failed to initialize LMCacheManager components: " + STOPPED


@dataclass
class KVTierMetadata(KVConnectorMetadata):
    """From the scheduler to the workers, each step."""

    loads: list = field(default_factory=list)
    stores: list = field(default_factory=list)
    preempted: set = field(default_factory=set)
    ended: set = field(default_factory=set)  # requests whose blocks are kept until no store copies from them
    prefill_tokens: int = 0  # prompt tokens of a step that computes little else
    wait_s: float = 0.0  # longest wait for loads in a step that computes nothing


@dataclass
class KVTierCopied(KVConnectorWorkerMetadata):
    """From the workers to the scheduler: tickets of finished stores, once for each rank."""

    tickets: list = field(default_factory=list)

    def aggregate(self, other):
        return KVTierCopied(self.tickets + other.tickets)


def guarded(otherwise):
    """Makes a method of the connector that never fails: on an error it logs the error, stops using the cache from then
    on and returns `otherwise()`."""

    def decorate(method):
        @functools.wraps(method)
        def guard(self, *args, **kwargs):
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                self.give_up(error)
                return otherwise()

        return guard

    return decorate


class KVTierConnector(KVConnectorBase_V1, SupportsHMA):
    """Both roles; the constructor's argument decides which one an instance has."""

    paged_cache = PagedCache

    @property
    def requires_kv_delivery(self):
        return False  # a lost store only becomes a miss later

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        parallel = vllm_config.parallel_config
        self.settings = settings.read(
            transfer.kv_connector_extra_config,
            rank=parallel.rank,
            ranks=parallel.local_world_size,
            role=transfer.kv_role,
        )
        self.lmcache_requests = lmcache.Requests(logger)
        self.plan = self.subscriber = None
        self.seen_unnamed = False  # an image that has no name by content
        self.groups = None  # groups.Groups, if the engine has several groups of KV caches
        many = kv_cache_config is not None and len(kv_cache_config.kv_cache_groups) > 1
        self.worker = Worker(parallel.pipeline_parallel_size, many)
        try:
            ask.own_folder()
            self.why_not = self._unfit(kv_cache_config)
        except ask.Foreign as error:
            self.why_not = f"its ranks cannot be asked: {error}"
        except Exception as error:  # an unknown configuration
            self.why_not = f"this engine's configuration cannot be read: {error!r}"
        if role == KVConnectorRole.SCHEDULER:
            self._start_scheduler(transfer)
        if self.why_not:
            logger.error(FAILED, self.why_not)

    def _unfit(self, kv_cache_config):
        """Why this engine cannot be served, or None."""
        if versions.unsupported():
            return versions.unsupported()
        config = self._vllm_config
        cache, parallel = config.cache_config, config.parallel_config
        if not cache.enable_prefix_caching:
            return "prefix caching is off, and with it the hashes that name blocks"
        count = len(kv_cache_config.kv_cache_groups) if kv_cache_config is not None else 1
        if count == 0:
            return "the model keeps no KV cache"
        if count > 1:
            kinds = [versions.kind_of(group) for group in kv_cache_config.kv_cache_groups]
            self.groups, why_not = groups.find(kv_cache_config, kinds, cache.block_size)
            if why_not is not None:
                return why_not
            if parallel.pipeline_parallel_size > 1:
                return f"the model has {count} groups of KV caches, and pipeline stages have different ones"
        kind = self._group_kind(kv_cache_config)
        if kind not in KEPT_WHOLE:
            return f"the KV cache is of kind {kind}; supported are {', '.join(KEPT_WHOLE)}"
        if cache.cache_dtype not in WHOLE_IN_BLOCKS:
            return f"kv_cache_dtype is {cache.cache_dtype}; supported are {', '.join(WHOLE_IN_BLOCKS)}"
        context = max(parallel.decode_context_parallel_size, parallel.prefill_context_parallel_size)
        if context > 1:
            return f"context parallel size is {context}; supported is 1, since blocks are split over ranks above it"
        if parallel.nnodes > 1:
            return f"the engine runs on {parallel.nnodes} nodes; its scheduler asks ranks of its own node only"
        hashed = versions.hash_block_size(cache, kv_cache_config)
        if hashed != cache.block_size:
            return f"hash_block_size is {hashed}; supported is that of blocks, {cache.block_size}"
        algorithm = str(cache.prefix_caching_hash_algo)
        if not algorithm.startswith("sha256"):
            return (
                f"prefix_caching_hash_algo is {algorithm}; expected sha256 or sha256_cbor, since names of "
                "chunks must not collide"
            )
        return None

    # --- scheduler ---

    def _start_scheduler(self, transfer):
        if getattr(transfer, "kv_load_failure_policy", "recompute") != "recompute":
            logger.info("kvtier: kv_load_failure_policy set to recompute, so that no failed load fails a request")
            transfer.kv_load_failure_policy = "recompute"
        for mistake in self.settings.mistakes:
            logger.warning("kvtier: %s", mistake)
        cache = self._vllm_config.cache_config
        if self.why_not is not None:  # nothing is asked, stored or watched
            self.asker = ask.Asker([], self.settings.lookup_timeout_s)
            self.groups = None
            self.plan = Plan(self.asker, self.settings, 1, False)
            return
        lacking = versions.keep_media()
        if lacking is not None:
            logger.warning(
                "kvtier: vLLM %s has no %s: prompts with images are computed from their first image on, since it may "
                "drop the data of images within what was loaded", versions.VERSION, lacking)  # fmt: skip
        ranks = self._vllm_config.parallel_config.world_size
        paths = [ask.socket_path(transfer.engine_id, rank) for rank in range(ranks)]
        self.asker = ask.Asker(paths, self.settings.lookup_timeout_s)
        publish = self._vllm_config.kv_events_config
        listens = publish is not None and publish.enable_kv_cache_events
        namer = self._namer(cache.block_size)
        core = changes.find_core()
        self.loop = loop.Loop(core)
        loaded = adapters.Adapters(logger, sees_loads=core is not None)
        tables = None
        if self.groups is not None:
            per_chunk = chunks.blocks_per_chunk(cache.block_size, self.settings.chunk_tokens)
            tables = groups.Tables(
                self.groups, per_chunk, self.settings.save_unfull_chunk, lambda: self._kv_cache_manager, ranks
            )
        self.plan = Plan(
            self.asker, self.settings, cache.block_size, True, listens, self._local_blocks, namer, loaded, tables,
            self._blender(), lacking is None, self._unnamed_image,
        )  # fmt: skip
        self._watch(core, loaded)
        if listens:
            self.subscriber = events.Subscriber(paths, ask.LISTEN, logger, self._wake_engine)

    def _watch(self, core, loaded):
        if core is not None:
            changes.watch(core, self._weights_changed, self._engine_forgot, loaded)
        else:
            logger.warning(
                "kvtier: no engine core is among the callers, so that weights that are updated in place are not noticed: "
                "call /reset_prefix_cache?reset_external=true afterwards")  # fmt: skip

    @guarded(lambda: None)
    def _engine_forgot(self):
        self.plan.engine_forgot()

    @guarded(lambda: None)
    def _weights_changed(self, what):
        """Called when other weights may compute from here on: their chunks must not have the former names."""
        self.plan.weights_changed()
        logger.info(
            "kvtier: %s may have changed weights: nothing that was cached before is used any more%s", what,
            ", nor anything cached until /reset_prefix_cache" if self.plan.stale else "")  # fmt: skip

    def _unnamed_image(self):
        if not self.seen_unnamed:
            self.seen_unnamed = True
            logger.info(
                "kvtier: a prompt has an image that a client named (uuid), or that was hashed by a process without this "
                "connector: what follows such images is cached for this engine alone, until it ends")  # fmt: skip

    def _chunk_tokens(self):
        """Tokens of a whole chunk."""
        block = self._vllm_config.cache_config.block_size
        return chunks.blocks_per_chunk(block, self.settings.chunk_tokens) * block

    def _namer(self, block_size):
        """The object that names chunks for LMCache's controller, or None."""
        namer = controller.namer(self.settings.yaml, self._chunk_tokens(), block_size, logger)
        if namer is not None and self._chunk_tokens() != self.settings.chunk_tokens:
            logger.warning(
                "kvtier: chunks reported to the controller have %d tokens, since chunk_size is no multiple of the "
                "block size %d: routers that expect %d find none of them; set chunk_size to a multiple",
                self._chunk_tokens(), block_size, self.settings.chunk_tokens)  # fmt: skip
        return namer

    def _blender(self):
        """The object that blends fragments into requests that ask for it, or None."""
        how = blending.settings(self.settings.yaml)
        if not how.enabled:
            return None
        try:
            if self.groups is not None:
                raise ValueError("the model has several groups of KV caches")
            if self._group_kind(self._kv_cache_config) not in BLENDED:
                raise ValueError("the model's attention is of another kind than full attention")
            separator = self._separator(how) if how.by == blending.fragments.BY_SEPARATOR else None
            made = blending.Blender(
                how, separator, self.settings.chunk_tokens, self._vllm_config.cache_config.block_size, logger)
        except Exception as error:
            logger.warning("kvtier: fragments are off, every request is exact: %s", error)
            return None
        logger.info(
            "kvtier: requests with %s in their kv_transfer_params are blended: their answers are not exact", blending.ASKS)
        return made

    def _separator(self, how):
        from transformers import AutoTokenizer

        model = self._vllm_config.model_config
        tokenizer = AutoTokenizer.from_pretrained(
            model.tokenizer, revision=model.tokenizer_revision, trust_remote_code=model.trust_remote_code)  # fmt: skip
        found = tokenizer.encode(how.separator, add_special_tokens=False)
        if not 0 < len(found) <= 64:
            raise ValueError(f"fragments.separator is {len(found)} tokens, expected 1 to 64")
        return found

    def give_up(self, error):
        """Called on an unexpected failure: no lookup and no store happens any more."""
        logger.exception(STOPPED, error)
        if self.plan is not None:
            self.plan.usable = False

    def _local_blocks(self, request):
        """Blocks from the first on that the engine has itself, chunk by chunk; a guess, since the engine may lose them
        before it schedules."""
        if self._kv_cache_manager is None:
            return 0
        if self.plan.groups is not None:
            return self.plan.groups.local_blocks(request)
        pool, step = self._kv_cache_manager.block_pool, self.plan.per_chunk
        for last in range(step - 1, len(request.block_hashes), step):
            if pool.get_cached_block(request.block_hashes[last], [0]) is None:
                return last + 1 - step
        return len(request.block_hashes) // step * step

    @guarded(lambda: None)
    def on_new_request(self, request):
        self.plan.adapters.keep_apart(request)
        if not request.skip_reading_prefix_cache:
            self.plan.arrived(request)

    @guarded(lambda: (0, False))
    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        self.lmcache_requests.look(request)
        return self.plan.matched(request, num_computed_tokens)

    @guarded(dict)
    def get_external_cache_hit_sources(self, request, num_external_tokens):
        if num_external_tokens == 0:
            return {}
        track = self.plan.tracks.get(request.request_id)
        tier = library.TIER_NAMES[track.source] if track and track.source < 3 else ""
        return {versions.hit_source(tier): num_external_tokens}

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        """Plans a load in spite of any failure: the request waits for one."""
        if num_external_tokens <= 0:
            return
        ids = blocks.get_block_ids()
        ids = ids if self.plan.groups is not None else ids[0]
        try:
            self.plan.allocated(request, ids, num_external_tokens)
        except Exception as error:
            self.give_up(error)
            self.plan.load_nothing(request, ids)

    def build_connector_meta(self, scheduler_output):
        """In spite of any failure, workers learn of blocks that were taken away, of loads that requests wait for, and
        of blocks that the engine keeps until they report."""
        preempted = set(getattr(scheduler_output, "preempted_req_ids", None) or ())
        ended, taken = self.plan.take_ended()
        meta = KVTierMetadata(preempted=preempted | taken, ended=ended)
        try:
            meta.loads, meta.stores = self.plan.step(scheduler_output)
            meta.prefill_tokens = self.plan.prefill_tokens
            meta.wait_s = self.settings.step_wait_s if self.plan.idle else 0.0
        except Exception as error:
            self.give_up(error)
            meta.loads, meta.stores = self.plan.take_loads(), []
        return meta

    @guarded(lambda: None)
    def update_connector_output(self, connector_output):
        if self.plan.groups is not None:
            copied = connector_output.kv_connector_worker_meta
            self.plan.groups.copied(copied.tickets if copied is not None else [])
            self.plan.failed_requests(connector_output.failed_recving)
        failed = getattr(connector_output, "invalid_block_ids", None)
        if failed:
            self.plan.failed(failed)
        self.plan.loaded(connector_output.finished_recving or ())

    def request_finished(self, request, block_ids):
        try:
            return self.plan.finished(request), None
        except Exception as error:
            self.give_up(error)
            self.plan.ended.discard(request.request_id)
            self.plan.taken.add(request.request_id)  # the engine does not wait for stores of its blocks
            return False, None

    def request_finished_all_groups(self, request, block_ids):
        """Like request_finished, for engines that keep several groups of KV caches."""
        return self.request_finished(request, block_ids[0] if block_ids else [])

    def reset_cache(self):
        self.plan.reset()
        return True

    @guarded(list)
    def take_events(self):
        if self.subscriber is None:
            return []
        kind, lead = self._group_kind(self._kv_cache_config), self._lead()
        return [made for event in self.subscriber.take() if (made := kv_event(event, kind, lead)) is not None]

    def _lead(self):
        """The group that events are about: the first of full attention."""
        return self.groups.lead if self.groups is not None else 0

    def _group_kind(self, kv_cache_config):
        if kv_cache_config is None:
            return KEPT_WHOLE[0]
        return versions.kind_of(kv_cache_config.kv_cache_groups[self._lead()])

    def has_pending_block_frees(self):
        """Blocks of windows that are held while ranks copy them: no request need be preempted for them."""
        return self.plan.groups is not None and self.plan.groups.wait()

    def has_pending_push_work(self):
        """Called when the engine is idle, just before it waits: True makes it take a step, which also takes events. So
        it takes steps while ranks copy blocks of windows: the blocks stay held until the ranks report the end in a
        step, and no reset of the engine's own cache succeeds before."""
        if self.plan.groups is not None and self.plan.groups.wait():
            return True
        if self.subscriber is None:
            return False
        return self.subscriber.has_some() and not self.loop.rests()

    def _wake_engine(self):
        self.loop.wake()

    # --- worker ---

    def register_kv_caches(self, kv_caches):
        if self.why_not:
            return
        try:
            self.worker.rank = self._start_rank(kv_caches)
            logger.info(STARTED, self.worker.rank.cache.version())
        except Exception as error:
            logger.exception(FAILED, error)

    def _start_rank(self, kv_caches):
        parallel = self._vllm_config.parallel_config
        paged = self._paged(kv_caches)
        content = self._content()
        print_of = self._fingerprint(paged, content, list(kv_caches))
        control = {"tokens_per_chunk": self._chunk_tokens()}
        if self.settings.fetch_when_slower:
            control["fetch_when_slower"] = True
        replica = getattr(parallel, "data_parallel_index", 0)
        own = {"fingerprint": print_of, "control": control}
        own |= fingerprint.numbers(parallel.rank, parallel.world_size, replica)
        engine = self._vllm_config.kv_transfer_config.engine_id
        texts = controller.texts(self.settings.yaml, self._chunk_tokens(), engine)
        if content is None:
            own |= settings.MEMORY_ONLY
        shared = json.dumps({"node": {"ranks": fingerprint.node_ranks(parallel)}})  # a user's own setting overrides it
        cache = library.Cache([shared, *texts, json.dumps(own)], "kv_connector_extra_config.cache")
        for line in cache.mistakes.splitlines():
            logger.warning("kvtier: %s", line)
        paged.pin(cache)
        model = self._vllm_config.model_config
        config = getattr(model, "hf_text_config", None)
        heads = 1 if model.use_mla else fingerprint.most_heads(model.get_total_num_kv_heads(), config)
        parts = library.KeyParts(
            size=library.ctypes.sizeof(library.KeyParts),
            rank=fingerprint.key_rank(parallel.rank, parallel.tensor_parallel_size, heads),
            hash_recipe=str(self._vllm_config.cache_config.prefix_caching_hash_algo).encode(),
        )
        parts.fingerprint[:] = bytes.fromhex(print_of)
        path = ask.socket_path(self._vllm_config.kv_transfer_config.engine_id, parallel.rank)
        return Rank(
            cache, paged, parts, path, self.settings.load_timeout_s, logger, self.settings.fetch_when_slower,
            self._copies(cache, paged, print_of, parts.rank)
        )  # fmt: skip

    def _copies(self, cache, paged, print_of, rank):
        """The copier of fragments, or None."""
        model = self._vllm_config.model_config
        if self.groups is not None or not blending.settings(self.settings.yaml).enabled:
            return None
        try:
            head = model.get_head_size()
            on_device = paged.device.type != "cpu"
            named = self._attention(paged) if on_device or model.use_mla else None
            found = blending.place_of(paged, head, named, model.use_mla)
            return blending.Copies(
                cache, found.place, found.heads, len(paged.tensors), blending.config_json(model.hf_text_config),
                str(paged.dtype).removeprefix("torch."), head, self.settings.chunk_tokens, bytes.fromhex(print_of), rank,
                paged.copier if on_device else None, found.value_head,
            )  # fmt: skip
        except Exception as error:
            logger.warning("kvtier: fragments are off, every request is exact: %s", error)
            return None

    def _attention(self, paged):
        """Names of the attention backends of these layers."""
        layers = self._vllm_config.compilation_config.static_forward_context
        return {layers[name].attn_backend.get_name() for name in paged.names}

    def _paged(self, kv_caches):
        if self.groups is None:
            paged = self.paged_cache(kv_caches)
        else:
            names = [group.layer_names for group in self._kv_cache_config.kv_cache_groups]
            paged = GroupedCache(self.paged_cache, kv_caches, names, self.groups)
        blocks = getattr(self._kv_cache_config, "num_blocks", paged.block_count)
        if paged.block_count != blocks:  # kernels that split blocks count them differently
            raise ValueError(f"the engine counts {blocks} blocks, its KV cache tensors have {paged.block_count}")
        return paged

    def _content(self):
        """The name of the weights by content; None: there is none, and no tier that outlives this process may be
        used."""
        if self.settings.model_version:
            return self.settings.model_version
        if not settings.outlives(self.settings.yaml):
            return None
        digests = weights.Digests(weights.cache_folder(), logger)
        found = sources.identify(self._vllm_config, digests)
        if found.why_not is not None:
            logger.warning(
                "kvtier: NVMe and the shared tier stay closed, memory is used: the weights have no name by content "
                "(%s). Set model_version to a text that changes with the weights to open them.", found.why_not)  # fmt: skip
        return found.parts

    def _fingerprint(self, paged, content, layers):
        config = self._vllm_config
        model, parallel = config.model_config, config.parallel_config
        more = fingerprint.by_length(model.max_model_len, getattr(model, "hf_text_config", None))
        more |= {name: repr(value) for name in DECIDING if (value := getattr(model, name, None))}
        if media := versions.media(model):
            more["media"] = media
        device = paged.device.type
        switches = versions.packing_switches() if device != "cpu" else {}
        more |= fingerprint.packing(device, versions.attention_of(config, layers), platform.machine(), switches)
        return fingerprint.make({
            **more,
            "engine": versions.VERSION,
            "model": content if content is not None else secrets.token_hex(),
            "numbers": [
                str(model.dtype), str(model.quantization), repr(model.hf_overrides),
                str(config.cache_config.cache_dtype),
            ],
            "cache": paged.describe(),
            "block_size": config.cache_config.block_size,
            "chunk": self.settings.chunk_tokens,
            "tensor_parallel": parallel.tensor_parallel_size,
            "pipeline_parallel": parallel.pipeline_parallel_size,
            "kernels": cpu_kernels() if device == "cpu" else "",
        })  # fmt: skip

    def bind_connector_metadata(self, connector_metadata):
        super().bind_connector_metadata(connector_metadata)
        self._begin_step(connector_metadata.prefill_tokens)

    @guarded(lambda: None)
    def _begin_step(self, prefill_tokens):
        self.worker.begin(prefill_tokens)

    @guarded(lambda: None)
    def start_load_kv(self, forward_context, **kwargs):
        self.worker.load(self._get_connector_metadata().loads)

    def wait_for_layer_load(self, layer_name):
        pass  # loads happen between steps

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass  # chunks are copied once all layers are there

    @guarded(lambda: None)
    def wait_for_save(self):
        try:
            self.worker.computed()
        finally:  # the scheduler holds blocks until these are over
            self.worker.store(self._get_connector_metadata().stores)

    @guarded(lambda: None)
    def handle_preemptions(self, kv_connector_metadata):
        self.worker.give_up(kv_connector_metadata.preempted)

    def get_finished(self, finished_req_ids):
        """Not guarded, like the methods called together with it: requests would wait without end for an unreported
        load. The scheduler waits only for those finished requests that the metadata names."""
        if not self.has_connector_metadata():
            return self.worker.finished(set())
        meta = self._get_connector_metadata()
        return self.worker.finished(meta.ended, meta.wait_s)

    def get_transfer_results(self, finished_req_ids):
        results = super().get_transfer_results(finished_req_ids)
        results.failed_recving |= self.worker.take_failed_requests()
        return results

    def get_block_ids_with_load_errors(self):
        return self.worker.take_failed()

    def build_connector_worker_meta(self):
        tickets = self.worker.take_copied()
        return KVTierCopied(tickets) if tickets else None

    @guarded(lambda: None)
    def get_kv_connector_stats(self):
        counts = self.plan.take_counts() if self.plan is not None else self.worker.take_counts()
        return KVTierStats(data=counts) if counts else None

    def unregister_kv_caches(self):
        """vLLM 0.33 calls this before it sleeps; the memory comes back at its former addresses. An error keeps vLLM
        awake: a copy that went on would read memory that is gone."""
        self.worker.leave_memory()

    def shutdown(self):
        if self.subscriber is not None:
            self.subscriber.close()
        if self.plan is not None:
            self.asker.close()
        self.worker.close()

    @classmethod
    def build_kv_connector_stats(cls, data=None):
        return KVTierStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        return KVTierPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


if versions.unsupported() is None:
    versions.mark_media()  # the engine's server imports this module for its metrics, before the first request
