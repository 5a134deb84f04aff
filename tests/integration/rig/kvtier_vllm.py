"""vLLM 0.32's scheduler as a connector meets it, imitated with what it asserts: requests that wait, load, run, are preempted
and aborted, over blocks that are given to others at once, and workers of several ranks, which end loads and stores when a
test says so.

As in vllm/v1/core/sched/scheduler.py: schedule, finish_requests, _update_from_kv_xfer_finished, _handle_invalid_blocks,
_update_waiting_for_remote_kv, reset_prefix_cache; and in kv_connector/utils.py: KVOutputAggregator, which counts ranks.
"""

import collections
import hashlib
import types

from rig.kvtier_plan import BLOCK, output_of
from rig.kvtier_slow import Asker, SlowRank

from kvtier import settings
from kvtier.scheduler import Plan
from kvtier.worker import Worker

WAITING, LOADING, RUNNING, PREEMPTED, FINISHED = "waiting", "loading", "running", "preempted", "finished"
PER_CHUNK = 2


class Aggregator:
    """Of what workers of a step say."""

    def __init__(self, ranks):
        self.ranks, self.counts = ranks, {"recving": {}, "sending": {}}

    def add(self, outputs):
        ended = {kind: set() for kind in self.counts}
        for output in outputs:
            for kind, left in self.counts.items():
                for request in output[kind] or ():
                    left[request] = left.get(request, self.ranks) - 1
                    if left[request] == 0:
                        ended[kind].add(request)
                        del left[request]
        return ended["recving"], ended["sending"], set().union(*(output["failed"] for output in outputs))


class Pool:
    """Blocks with counts of their users; what was freed keeps its hash until another takes it."""

    def __init__(self, count):
        self.users, self.free = [0] * count, collections.deque(range(count))
        self.hashes, self.cached = {}, {}

    def prefix(self, hashes):
        found = []
        for one in hashes:
            if one not in self.cached:
                break
            found.append(self.cached[one])
        return found

    def touch(self, blocks):
        for block in blocks:
            if self.users[block] == 0:
                self.free.remove(block)
            self.users[block] += 1

    def new(self):
        block = self.free.popleft()
        self.users[block] = 1
        if self.cached.get(self.hashes.get(block)) == block:
            del self.cached[self.hashes[block]]
        self.hashes.pop(block, None)
        return block

    def cache(self, block, digest):
        if self.hashes.get(block) != digest:
            self.hashes[block] = digest
            self.cached.setdefault(digest, block)

    def give_back(self, blocks):
        """Blocks that no request has any more."""
        for block in blocks:
            self.users[block] -= 1
            assert self.users[block] >= 0
        gone = [block for block in blocks if self.users[block] == 0]
        self.free.extend(gone)
        return gone

    def lose(self):
        """What no request has, as if others had taken it."""
        for block in self.free:
            if self.cached.get(self.hashes.pop(block, b"")) == block:
                self.cached = {digest: other for digest, other in self.cached.items() if other != block}

    def forget(self):
        if any(self.users):
            return False
        self.lose()
        return True


class Vllm:
    """late: steps whose output is looked at only after the next ones were scheduled."""

    def __init__(self, rng, ranks=2, blocks=24, late=0, fails=0.1):
        self.rng, self.late, self.pool = rng, late, Pool(blocks)
        self.workers = []
        for _ in range(ranks):
            worker = Worker()
            worker.rank = SlowRank(rng, fails)
            self.workers.append(worker)
        self.ranks = [worker.rank for worker in self.workers]
        own = settings.Settings(chunk_tokens=PER_CHUNK * BLOCK, step_wait_s=0.0)
        self.plan = Plan(Asker(self.ranks, rng), own, BLOCK, True)
        self.requests, self.waiting, self.running = {}, [], []
        self.recved, self.failed = set(), set()
        self.finished_ids, self.preempted_ids = set(), set()
        self.outputs, self.aggregator = collections.deque(), Aggregator(ranks)
        self.seen = collections.Counter()  # what came to pass

    # --- from outside ---

    def add(self, request_id, tokens):
        """A request of one made-up token a block, and one more."""
        assert request_id not in self.requests, "duplicate request id"
        hashes, last = [], b""
        for token in tokens:
            last = hashlib.sha256(last + str(token).encode()).digest()
            hashes.append(last)
        count = len(tokens) * BLOCK + 1
        request = types.SimpleNamespace(
            request_id=request_id, num_tokens=count, num_prompt_tokens=count, block_hashes=hashes,
            all_token_ids=[0] * count, status=WAITING, computed=0, blocks=[], preemptions=0)  # fmt: skip
        self.requests[request_id] = request
        self.waiting.append(request)
        self.plan.arrived(request)
        return request

    def abort(self, ids):
        """finish_requests()"""
        for request in [self.requests.get(one) for one in ids]:
            if request is None or request.status == FINISHED:
                continue
            (self.running if request.status == RUNNING else self.waiting).remove(request)
            delay = False
            if request.status == LOADING:
                delay = request.request_id not in self.recved
                self.recved.discard(request.request_id)
                self.failed.discard(request.request_id)
                self.seen["aborted while loading"] += delay
                self.seen["aborted while loading again"] += delay and request.preemptions > 0
            self._free_request(request, delay)

    def reset(self, running=True):
        if running:
            while self.running:
                self._preempt(self.running[-1])
        return self.pool.forget()

    # --- blocks ---

    def _free_request(self, request, delay=False):
        request.status = FINISHED
        keeps = self.plan.finished(request)
        self.seen["kept for stores"] += keeps
        self.finished_ids.add(request.request_id)
        if not (delay or keeps):
            self._free_blocks(request)

    def _free_blocks(self, request):
        assert request.status == FINISHED
        self._release(request)
        del self.requests[request.request_id]

    def _release(self, request, preempted=False):
        blocks, request.blocks = request.blocks, []
        gone = set(self.pool.give_back(blocks[::-1]))
        for rank in self.ranks:
            assert not gone & rank.written(), f"blocks of {request.request_id} are freed, and a rank writes them"
            # a store of a request that is preempted may become a chunk until workers hear of it, in the next step
            assert preempted or not gone & rank.read(), f"blocks of {request.request_id} are freed, and a rank reads them"

    def _preempt(self, request):
        assert request.status == RUNNING
        self.running.remove(request)
        self._release(request, True)
        request.status, request.computed = PREEMPTED, 0
        request.preemptions += 1
        self.waiting.insert(0, request)
        self.preempted_ids.add(request.request_id)
        self.seen["preempted"] += 1

    def _cache(self, request):
        for at in range(request.computed):
            self.pool.cache(request.blocks[at], request.block_hashes[at])

    # --- a step ---

    def step(self):
        self.outputs.append(self._execute(*self._schedule()))
        if len(self.outputs) > self.late:
            self.update()

    def _grown(self, request, count):
        """Has it room for so many more blocks?"""
        while len(self.pool.free) < request.computed + count - len(request.blocks):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _schedule(self):
        scheduled, new, cached, resumed = {}, [], [], []
        before = len(self.preempted_ids)
        for request in list(self.running):
            if request.status != RUNNING:
                continue
            count = min(self.rng.randint(1, 3), len(request.block_hashes) - request.computed)
            if self._grown(request, count):
                cached.append((request, self._run(request, count, scheduled)))
        if len(self.preempted_ids) == before or not self.running:
            for request in list(self.waiting):
                if not self._admit(request):
                    continue
                again = request.status == PREEMPTED
                self.waiting.remove(request)
                self.running.append(request)
                request.status = RUNNING
                done = request.computed
                self._run(request, min(self.rng.randint(1, 3), len(request.block_hashes) - done), scheduled)
                (resumed if again else new).append((request, list(request.blocks), done))
        output = output_of(
            [(r.request_id, ids, done * BLOCK) for r, ids, done in new],
            [(r.request_id, fresh, done * BLOCK) for r, (fresh, done) in cached] +
            [(r.request_id, ids, done * BLOCK) for r, ids, done in resumed],
            {r.request_id: tokens for r, _, tokens in scheduled.values()}, [r.request_id for r, _, _ in resumed],
        )  # fmt: skip
        meta = types.SimpleNamespace(preempted=self.preempted_ids)  # as KVTierConnector.build_connector_meta
        meta.ended, taken = self.plan.take_ended()
        meta.preempted |= taken
        meta.loads, meta.stores = self.plan.step(output)
        assert meta.ended <= self.finished_ids
        self.finished_ids, self.preempted_ids = set(), set()
        return scheduled, meta

    def _run(self, request, count, scheduled):
        """The next `count` blocks of it are computed in this step; (new blocks, blocks done before)."""
        done = request.computed
        request.computed += count
        fresh = [self.pool.new() for _ in range(request.computed - len(request.blocks))]
        request.blocks += fresh
        self._cache(request)
        # its last token has no block here
        scheduled[request.request_id] = request, list(request.blocks[: request.computed]), count * BLOCK or 1
        return fresh or None, done

    def _admit(self, request):
        """May it run now? Where something can be loaded it begins to wait for that."""
        if request.status == LOADING:
            if request.request_id not in self.recved:
                return False
            if request.request_id in self.failed and not request.computed:
                self._release(request)
            self._cache(request)
            self.failed.discard(request.request_id)
            self.recved.remove(request.request_id)
            request.status = PREEMPTED if request.preemptions else WAITING
        count = len(request.block_hashes)
        kept = sum(len(r.block_hashes) - len(r.blocks) for r in self.waiting if r.blocks and r is not request)
        if request.computed > 0:
            return len(self.pool.free) >= count - len(request.blocks)
        local = self.pool.prefix(request.block_hashes)
        tokens, loads = self.plan.matched(request, len(local) * BLOCK)
        if tokens is None:
            return False
        if len(self.pool.free) - kept < count:
            return False
        self.pool.touch(local)
        request.blocks, request.computed = list(local), len(local) + tokens // BLOCK
        request.blocks += [self.pool.new() for _ in range(tokens // BLOCK)]
        self.plan.allocated(request, list(request.blocks), tokens)
        if loads:
            request.status = LOADING
            self.seen["loads"] += 1
        return not loads

    def _execute(self, scheduled, meta):
        outputs = []
        for worker in self.workers:
            worker.give_up(meta.preempted)
            for request, blocks, _ in scheduled.values():
                done = len(blocks) - (scheduled[request.request_id][2] // BLOCK)
                for at in range(done, len(blocks)):
                    worker.rank.memory[blocks[at]] = request.block_hashes[at]
            for request, blocks, _ in scheduled.values():
                found = [worker.rank.memory[block] for block in blocks]
                assert found == request.block_hashes[: len(blocks)], f"{request.request_id} reads another's bytes"
            worker.load(meta.loads)
            worker.store(meta.stores)
            sending, recving = worker.finished(meta.ended)
            outputs.append({"sending": sending, "recving": recving, "failed": worker.take_failed()})
        return list(scheduled), self.aggregator.add(outputs)

    def update(self):
        """update_from_output() of the oldest step."""
        scheduled, (recving, sending, invalid) = self.outputs.popleft()
        for request in self.waiting:
            first = next((n for n in range(request.computed) if request.blocks[n] in invalid), None)
            if request.status == LOADING and first is not None:
                request.computed = first
                self.failed.add(request.request_id)
                self.seen["failed loads"] += 1
        for request in [self.requests.get(one) for one in scheduled]:
            done = request is not None and request.status == RUNNING and request.computed == len(request.block_hashes)
            if done and self.rng.random() < 0.3:
                self.running.remove(request)
                self._free_request(request)
        self.plan.failed(invalid)  # as KVTierConnector.update_connector_output
        self.plan.loaded(recving)
        for one in sorted(recving):
            assert one in self.requests
            request = self.requests[one]
            if request.status == LOADING:
                self.recved.add(one)
            else:
                assert request.status == FINISHED
                self._free_blocks(request)
        for one in sorted(sending):
            assert one in self.requests
            self._free_blocks(self.requests[one])
