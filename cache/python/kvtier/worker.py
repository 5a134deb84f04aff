"""A worker's data between the engine's calls and its rank's thread.

One thread, the engine's. Without a rank (it could not be started) every load is reported as failed at once and every
store is forgotten, so that the engine computes.
"""

import time


class Worker:
    """Loads, stores and finished requests of one worker."""

    MOST_TIMINGS = 8  # steps that the device has not finished yet

    LEAVE_S = 15  # longer than any load may take

    def __init__(self, stages=1, grouped=False):
        """stages: number of the pipeline's stages, each of which computes its share of a prompt, one after another.
        grouped: the engine has several groups of KV caches, and gets requests whose loads failed, not blocks."""
        self.stages, self.grouped = stages, grouped
        self.rank = None  # rank.Rank, once the paged cache is known
        self.ending = set()  # ended requests whose blocks the engine keeps until no store copies from them
        self.received, self.failed = set(), set()
        self.failed_requests = set()
        self.copied = []  # tickets of stores that never reached a rank
        self.began = None  # (tokens of prompts, time, event of the device) of this step
        self.timings = []  # (tokens, event, event) of steps that the device has not finished

    def load(self, loads):
        """Takes loads, once all work of the engine that may still use the blocks has been submitted to the device. In
        spite of any failure each load is reported, as failed if need be: requests wait for it."""
        after, left = None, list(loads)
        try:
            if loads and self.rank is not None:
                after = self.rank.paged.mark()
                while left:
                    self.rank.load(left[0], after)
                    left.pop(0)
        finally:
            for load in left:
                self.received.add(load.request)
                if self.grouped:
                    self.failed_requests.add(load.request)
                else:
                    self.failed.update(block for chunk in load.chunks for block in chunk.block_ids)

    def store(self, stores):
        if not stores:
            return
        tickets = [store.ticket for store in stores if store.ticket]
        if self.rank is None:
            self.copied += tickets
            return
        try:
            after = self.rank.paged.mark()
        except BaseException:
            self.copied += tickets
            raise
        self.rank.store(stores, after)

    def give_up(self, requests):
        """Called when blocks were taken from these requests: no copy from them begins after this."""
        if self.rank is None or not requests:
            return
        try:
            self.rank.give_up(requests)
        except BaseException:
            self.rank.stores_nothing = True  # or others' blocks would be stored under these requests' names
            raise

    def leave_memory(self):
        """Called before the engine sleeps, and loses its memory."""
        if self.rank is not None and not self.rank.leave_memory(self.LEAVE_S):
            raise TimeoutError(f"copies had not ended {self.LEAVE_S} s after the engine asked for its memory")

    def begin(self, prefill_tokens):
        """Called when a step begins that computes that many tokens, nearly all of them prompts'; 0: the step is not
        measured."""
        self.began = None
        if self.rank is not None and prefill_tokens > 0:
            self.began = (prefill_tokens, time.monotonic_ns(), self.rank.paged.mark(timing=True))

    def computed(self):
        """Called when all work of the step has begun; without a device it is complete."""
        if self.began is None:
            return
        tokens, began_ns, first = self.began
        self.began = None
        if first is None:
            self.rank.report_prefill(tokens, (time.monotonic_ns() - began_ns) * self.stages)
            return
        self.timings.append((tokens, first, self.rank.paged.mark(timing=True)))
        del self.timings[: -self.MOST_TIMINGS]
        while self.timings and self.timings[0][2].query():
            tokens, first, last = self.timings.pop(0)
            self.rank.report_prefill(tokens, int(first.elapsed_time(last) * 1e6) * self.stages)

    def finished(self, ended, wait_s=0.0):
        """(ended requests from which no store copies any more; loaded requests). Call take_failed next: it returns the
        blocks that were not filled. ended: requests whose blocks the scheduler keeps until they are named here, whether
        or not their stores succeeded; the engine asserts that it waits for each named request. wait_s: longest wait for
        both; in a step that computes nothing the engine only polls, and would poll again at once."""
        self.ending |= ended
        if self.rank is not None and wait_s > 0:
            self.rank.wait_quiet(self.ending, wait_s)
        done = self.rank.stored(self.ending) if self.rank is not None else set(self.ending)
        self.ending -= done
        received, self.received = self.received, set()
        if self.rank is not None:
            more, failed = self.rank.take_received()
            received |= more
            self.failed |= failed
        return done or None, received or None

    def take_failed(self):
        failed, self.failed = self.failed, set()
        return failed

    def take_failed_requests(self):
        """Those of the requests returned by finished() as loaded that were not filled completely."""
        failed, self.failed_requests = self.failed_requests, set()
        if self.rank is not None:
            failed |= self.rank.take_failed_requests()
        return failed

    def take_copied(self):
        """Tickets of finished stores, since the last call."""
        copied, self.copied = self.copied, []
        if self.rank is not None:
            copied += self.rank.take_copied()
        return copied

    def take_counts(self):
        return self.rank.take_counters() if self.rank is not None else {}

    def close(self):
        if self.rank is not None:
            self.rank.close()
        self.rank = None
