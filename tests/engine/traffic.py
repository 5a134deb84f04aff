"""Requests that go on while something breaks."""

import random
import threading

from connected import ASKED
from rig.wait import until


class Traffic:
    """Asks an engine for all prompts again and again, in any order, until it is left.

    with Traffic(engine, right) as traffic:
        traffic.wait_more(50)
    # no request failed, no answer differs
    """

    def __init__(self, engine, right, threads=6, seed=1):
        self.engine, self.right, self.over = engine, right, threading.Event()
        self.lock = threading.Lock()
        self.found, self.failed = [], []
        self.threads = [
            threading.Thread(target=self._run, args=(random.Random(seed * 100 + n),)) for n in range(threads)
        ]

    def _run(self, rng):
        while not self.over.is_set():
            index = rng.randrange(len(ASKED))
            try:
                text, _ = self.engine.complete(ASKED[index])
            except Exception as error:  # a request that failed, for whatever reason, is what we look for
                with self.lock:
                    self.failed.append((len(ASKED[index]), repr(error)))
                return
            with self.lock:
                self.found.append((index, text))

    def wait_more(self, count, seconds=60):
        """Until so many more are answered."""
        wanted = len(self.found) + count
        until(lambda: self.failed or len(self.found) >= wanted, seconds, f"{count} more answers")
        assert not self.failed, self.failed

    def wait_count(self, name, least, seconds=60):
        """Until the engine has counted so many."""
        until(lambda: self.failed or self.engine.counts()[name] >= least, seconds, f"{name} of {least}")
        assert not self.failed, self.failed

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
        if kind is not None:
            return
        assert not self.failed, self.failed
        wrong = [len(ASKED[i]) for i, text in self.found if text != self.right.short[i]]
        assert not wrong, f"{len(wrong)} of {len(self.found)} answers differ: prompts of {wrong[:10]}"
