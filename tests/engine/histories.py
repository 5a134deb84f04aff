"""histories.py - random histories of vLLM's own scheduler with the connector in it and in its workers, without a model.

    PYTHONPATH=cache/python:tests/integration ~/vllm/bin/python tests/engine/histories.py MODEL [HISTORIES [SEED]]

Of every third the model has windows, too. Requests are added, stored, preempted, loaded and aborted in any order, caches are reset, loads fail; one rank or two, with
steps one by one or overlapping. Ranks copy when a history says so (rig/kvtier_slow.py). A history fails by an assertion of
vLLM's, by a block that is freed while a rank uses it, by wrong bytes, and by blocks that are never freed.
"""

import collections
import logging
import random
import sys

import torch
from kvtier.vllm import KVTierConnector
from rig.kvtier_slow import GARBAGE, Asker, SlowRank
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

BLOCK, TICKS, WINDOW = 32, 250, 80


def config_of(model):
    config = EngineArgs(
        model=model, max_model_len=20 * BLOCK, block_size=BLOCK, max_num_batched_tokens=4 * BLOCK, max_num_seqs=6,
        enable_prefix_caching=True, num_gpu_blocks_override=24, enforce_eager=True,
        kv_transfer_config=KVTransferConfig(
            kv_connector="KVTierConnector", kv_connector_module_path="kvtier.vllm", kv_role="kv_both",
            kv_connector_extra_config={"chunk_size": 2 * BLOCK, "save_decode_cache": False}),
    ).create_engine_config()  # fmt: skip
    config.cache_config.num_gpu_blocks = 24
    return config


class Engine:
    """An engine core's step, with workers that keep blocks' hashes instead of keys and values."""

    def __init__(self, config, rng, ranks, late, blocks, windows):
        self.config, self.rng, self.late, self.windows = config, rng, late, windows
        sizes = {"block_size": BLOCK, "num_kv_heads": 2, "head_size": 32, "dtype": torch.float32}
        specs = [FullAttentionSpec(**sizes)] + [SlidingWindowSpec(**sizes, sliding_window=WINDOW)] * windows
        groups = [KVCacheGroupSpec([str(number)], spec) for number, spec in enumerate(specs)]
        caches = KVCacheConfig(num_blocks=blocks * len(groups), kv_cache_tensors=[], kv_cache_groups=groups)
        config.scheduler_config.async_scheduling = late > 0
        made = AsyncScheduler if late else Scheduler
        self.scheduler = made(
            vllm_config=config, kv_cache_config=caches, structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK, hash_block_size=BLOCK)  # fmt: skip
        self.workers = [KVTierConnector(config, KVConnectorRole.WORKER, caches) for _ in range(ranks)]
        self.ranks = [SlowRank(rng, 0.1, windows) for _ in range(ranks)]
        for worker, rank in zip(self.workers, self.ranks, strict=True):
            worker.worker.rank = rank
        connector = self.scheduler.connector
        assert connector.why_not is None, connector.why_not
        connector.asker = connector.plan.asker = Asker(self.ranks, rng)
        connector.settings.step_wait_s = 0.0
        if windows:
            connector.plan.groups.ranks = ranks
        self.aggregator = KVOutputAggregator(ranks)
        self.tables, self.outputs, self.seen = {}, collections.deque(), collections.Counter()
        self._watch_blocks()

    def _watch_blocks(self):
        pool, preempt = self.scheduler.kv_cache_manager.block_pool, self.scheduler._preempt_request
        free, self.preempting = pool.free_blocks, False

        def preempted(*args, **kwargs):
            self.preempting = True
            self.seen["preempted"] += 1
            preempt(*args, **kwargs)
            self.preempting = False

        def freed(blocks):
            blocks = list(blocks)
            free(blocks)
            gone = {block.block_id for block in blocks if block.ref_cnt == 0}
            for rank in self.ranks:
                assert not gone & rank.written(), "blocks are freed, and a rank writes them"
                # a store of a request that is preempted may become a chunk until workers hear of it, in the next step
                assert self.preempting or not gone & rank.read(), "blocks are freed, and a rank reads them"

        pool.free_blocks, self.scheduler._preempt_request = freed, preempted

    def add(self, request_id, tokens):
        params = SamplingParams(max_tokens=self.rng.randint(1, 40), ignore_eos=True)
        params.update_from_generation_config({}, None)
        self.scheduler.add_request(Request(
            request_id, tokens, params, None, block_hasher=get_request_block_hasher(BLOCK, sha256)))  # fmt: skip

    def abort(self, ids):
        for one in ids:
            request = self.scheduler.requests[one]
            loading = request.status == RequestStatus.WAITING_FOR_REMOTE_KVS
            self.seen["aborted while loading"] += loading
            self.seen["aborted while loading again"] += loading and request.num_preemptions > 0
        self.scheduler.finish_requests(ids, RequestStatus.FINISHED_ABORTED)

    def reset(self):
        try:
            self.scheduler.reset_prefix_cache(reset_running_requests=True)
            self.seen["reset"] += 1
        except RuntimeError:  # something loads, or is copied
            pass

    def step(self):
        if not self.scheduler.has_requests() and not self.outputs:
            return
        output = self.scheduler.schedule()
        self.outputs.append((output, self._execute(output)))
        if len(self.outputs) > self.late:
            self.update()

    def update(self):
        self.scheduler.update_from_output(*self.outputs.popleft())

    def _execute(self, output):
        written, known, sampled = [], [], []
        for new in output.scheduled_new_reqs:
            self.tables[new.req_id] = [list(ids) for ids in new.block_ids]
            known.append((new.req_id, new.num_computed_tokens))
        cached = output.scheduled_cached_reqs
        for one, fresh, done in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True):
            if one in cached.resumed_req_ids:
                self.tables[one] = [[] for _ in fresh]
            for table, ids in zip(self.tables[one], fresh or (), strict=False):
                table += ids
            known.append((one, done))
        for one, done in known:
            request, end = self.scheduler.requests[one], done + output.num_scheduled_tokens[one]
            whole = min(end, request.num_prompt_tokens) // BLOCK
            for group, table in enumerate(self.tables[one]):
                hashes = [digest if group == 0 else (group, digest) for digest in request.block_hashes[:whole]]
                seen = max(0, done - WINDOW + 1) // BLOCK if group else 0
                rest = table[whole : -(-end // BLOCK)]
                written.append((one, table[:whole], hashes, done // BLOCK, rest, seen))
            sampled.append([] if request.is_prefill_chunk else [self.rng.randrange(1000, 2000)])
        outputs = []
        for worker, rank in zip(self.workers, self.ranks, strict=True):
            meta = output.kv_connector_metadata
            self.seen["loads of windows" if self.windows else "loads"] += len(meta.loads)
            worker.handle_preemptions(meta)
            worker.bind_connector_metadata(meta)
            for _, blocks, hashes, first, rest, _ in written:
                rank.memory.update(zip(blocks[first:], hashes[first:], strict=True))
                rank.memory.update((block, GARBAGE) for block in rest)
            for one, blocks, hashes, _, _, seen in written:
                assert [rank.memory.get(b) for b in blocks[seen:]] == hashes[seen:], f"{one} reads another's bytes"
            worker.start_load_kv(None)
            worker.wait_for_save()
            results = worker.get_transfer_results(output.finished_req_ids)
            ended = KVConnectorOutput(
                finished_sending=results.finished_sending, finished_recving=results.finished_recving,
                failed_recving=results.failed_recving, invalid_block_ids=worker.get_block_ids_with_load_errors(),
                kv_connector_worker_meta=worker.build_connector_worker_meta())  # fmt: skip
            self.seen["loads that failed"] += bool(ended.invalid_block_ids) + len(ended.failed_recving)
            self.seen["ends of stores"] += len(ended.finished_sending)
            worker.clear_connector_metadata()
            ids = [one for one, _ in known]
            outputs.append(ModelRunnerOutput(
                req_ids=ids, req_id_to_index={one: n for n, one in enumerate(ids)}, sampled_token_ids=sampled,
                kv_connector_output=ended))  # fmt: skip
        return self.aggregator.aggregate(outputs)

    def settle(self):
        """Takes steps until nothing is left to do; nothing may stay."""
        pool = self.scheduler.kv_cache_manager.block_pool
        for _ in range(5000):
            if not self.scheduler.has_requests() and not self.outputs:
                break
            self.step()
            if self.outputs and not self.scheduler.has_requests():
                self.update()
            for rank in self.ranks:
                rank.turn()
        assert not self.scheduler.requests, "requests that never end"
        assert all(block.ref_cnt == 0 for block in pool.blocks if not block.is_null), "blocks that are never freed"
        plan = self.scheduler.connector.plan
        assert plan.usable and not plan.tracks and not (plan.groups and plan.groups.held)
        assert not any(worker.worker.ending for worker in self.workers)


def history(config, seed):
    rng = random.Random(seed)
    engine = Engine(config, rng, rng.randint(1, 2), rng.randint(0, 1), rng.randint(16, 32), seed % 3 == 2)
    requests = engine.scheduler.requests
    for _ in range(TICKS):
        under_way = {one for output, _ in engine.outputs for one in output.num_scheduled_tokens}
        free = [one for one in (f"r{n}" for n in range(8)) if one not in requests and one not in under_way]
        if free and rng.random() < 0.3:
            base, length = rng.randrange(3), rng.randrange(10, 12 * BLOCK)
            common = rng.randrange(length)
            engine.add(rng.choice(free), [base if n < common else 10 + rng.randrange(500) for n in range(length)])
        alive = [one for one, request in requests.items() if not request.is_finished()]
        if alive and rng.random() < 0.1:
            loading = [one for one in alive if requests[one].status == RequestStatus.WAITING_FOR_REMOTE_KVS]
            engine.abort([rng.choice(loading if loading and rng.random() < 0.6 else alive)])
        elif rng.random() < 0.01:
            engine.abort(alive)
        elif rng.random() < 0.08:
            engine.reset()
        elif rng.random() < 0.01:
            engine.scheduler.reset_connector_cache()
        if rng.random() < 0.7:
            engine.step()
        for rank in engine.ranks:
            for _ in range(rng.choice((0, 0, 1, 2))):
                rank.turn()
    engine.settle()
    return engine.seen


def main():
    model, count, first = (sys.argv[1:] + ["30", "0"][len(sys.argv) - 2 :])[:3]
    count, first = int(count), int(first)
    init_none_hash(sha256)
    config, seen = config_of(model), collections.Counter()
    logging.disable(logging.WARNING)
    for seed in range(first, first + count):
        try:
            seen += history(config, seed)
        except BaseException:
            print(f"history {seed}", flush=True)
            raise
    print(f"{count} histories: " + ", ".join(f"{what} {n}" for what, n in sorted(seen.items())))
    assert seen["aborted while loading again"] > count // 4 and seen["ends of stores"] > count, seen


if __name__ == "__main__":
    main()
