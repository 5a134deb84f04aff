"""Is it worth loading what was found, or is the engine done sooner by computing it?

The library estimates how long its tiers take and, from what the engine reports, how long computing takes; what it
cannot know is added here: the copy into the paged cache at the speed of the copies so far, and the steps that a
request waits for a load. Where the engine's speed is not known yet, everything is loaded.
"""

LOAD_NS = 3_000_000  # a load takes two steps of the engine more than none: 2 to 4 ms measured on a CPU
FORGET_BYTES = 1 << 28  # what was copied so long ago counts 1/e


class Worth:
    """One rank's; one thread."""

    def __init__(self, fetch_when_slower):
        self.always = fetch_when_slower
        self.bytes = self.ns = 0.0

    def copied(self, count, ns):
        """A copy into the paged cache took so long."""
        keep = 1 / (1 + count / FORGET_BYTES)
        self.bytes = self.bytes * keep + count
        self.ns = self.ns * keep + ns

    def is_faster(self, count, fetch_ns, compute_ns):
        """Are `count` bytes loaded sooner than computed? compute_ns: 0 if not known."""
        if self.always or compute_ns == 0:
            return True
        copy_ns = count * self.ns / self.bytes if self.bytes else 0
        return fetch_ns + copy_ns + LOAD_NS < compute_ns
