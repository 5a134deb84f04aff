"""An eviction policy."""

import cache_run

FILE = ("cache/policies/dummy.c", "dummy_policy.c")
LINES = {"cache/policies/policies.def": "KVT_POLICY(dummy)"}
TARGETS = ["cache/core/libkvtier.so.1.0.0", "cache/command/kvtier"]

CHUNKS = 24  # three times what fits into the memory
SIZE = 256 * 1024


def first_stays(policy):
    """Whether the first of many chunks is there in the end, by this policy."""
    with cache_run.opened({"l1": {"capacity": "2MiB", "policy": policy}}) as cache:
        keys = [cache_run.key_of(cache, number) for number in range(CHUNKS)]
        for key in keys:
            cache_run.put(cache, key, bytes(SIZE))
        here = [cache_run.tier_of(cache, key) == "l1" for key in keys]
        assert here[-1] and here.count(False) >= CHUNKS // 2, here
        return here[0]


def check(tree):
    assert "`dummy`" in tree.text("cache/options/REFERENCE.md"), "not in the page"
    assert first_stays("dummy") and not first_stays("fifo"), "evicts as another policy does"
