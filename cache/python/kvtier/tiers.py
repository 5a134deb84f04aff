"""Counts of each tier of the library since the last time, for vLLM's own /metrics.

The library prints its counters as Prometheus text. Names here are `hits:l1`, without its prefix and "_total".
"""

import re

# the library's counter of each tier -> help
METRICS = {
    "hits": "Chunks that gets found in the tier.",
    "misses": "Chunks that gets did not find in the tier.",
    "loads": "Chunks read from the tier.",
    "load_bytes": "Bytes of chunks read from the tier.",
    "stores": "Chunks stored in the tier.",
    "store_bytes": "Bytes of chunks stored in the tier.",
    "evictions": "Chunks evicted to make room for others.",
    "expired": "Chunks removed because their TTL had passed.",
    "corrupt": "Chunks that failed their check and were dropped.",
    "io_errors": "Operations that failed with an error of the operating system.",
    "breaker_trips": "Times that the tier was paused after failures in a row.",
}
SAMPLE = re.compile(r'^kvtier_tier_(\w+)_total\{tier="(\w+)"\} (\d+)', re.M)


class TierCounts:
    """Differences between two readings. One thread."""

    def __init__(self):
        self.before = {}

    def changes(self, text):
        """{name: increase} of the counters that grew, by the library's present text."""
        now = {f"{name}:{tier}": int(count) for name, tier, count in SAMPLE.findall(text) if name in METRICS}
        grown = {name: count - self.before.get(name, 0) for name, count in now.items()}
        self.before = now
        return {name: by for name, by in grown.items() if by > 0}
