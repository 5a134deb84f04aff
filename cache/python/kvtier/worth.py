"""Decides whether loading found chunks is faster than computing them.

The library estimates the time of its tiers and, from the engine's reports, the time of computing; this module adds the
rest: the copy into the paged cache at the speed of the copies so far, and the steps that a request waits for a load.
Until the engine's speed is known, every found chunk is loaded.
"""

LOAD_NS = 3_000_000  # a load takes two steps of the engine more than none: 2 to 4 ms measured on a CPU
FORGET_BYTES = 1 << 28  # bytes after which a copy counts 1/e


class Worth:
    """One rank's; one thread."""

    def __init__(self, fetch_when_slower):
        self.always = fetch_when_slower
        self.bytes = self.ns = 0.0

    def copied(self, count, ns):
        """Notes the time of a copy into the paged cache."""
        keep = 1 / (1 + count / FORGET_BYTES)
        self.bytes = self.bytes * keep + count
        self.ns = self.ns * keep + ns

    def is_faster(self, count, fetch_ns, compute_ns):
        """Returns whether loading `count` bytes takes less time than computing them. compute_ns: 0 if unknown."""
        if self.always or compute_ns == 0:
            return True
        copy_ns = count * self.ns / self.bytes if self.bytes else 0
        return fetch_ns + copy_ns + LOAD_NS < compute_ns
