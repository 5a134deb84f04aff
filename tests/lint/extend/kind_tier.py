"""A tier of the cache with a URL scheme of its own."""

import cache_run

FILE = ("cache/tiers/dummy.c", "dummy_tier.c")
LINES = {"cache/tiers/tiers.def": 'KVT_URL_TIER(dummy, "dummy", 4711)'}
TARGETS = ["cache/core/libkvtier.so.1.0.0", "cache/command/kvtier"]

CHUNKS = 24  # three times what fits into the memory below
SIZE = 256 * 1024


def data_of(number):
    return bytes([number]) * SIZE


def check(tree):
    path = tree.scratch / "tier.yaml"
    path.write_text('{"l1": {"capacity": "2MiB"}, "l2": {"url": "dummy://here"}}')
    said = tree.run([tree.build / "cache/command/kvtier", "check", path])
    assert "dummy://here:4711" in said, said
    path.write_text('{"l2": {"url": "dumy://here"}}')
    assert "dummy://" in tree.fails([tree.build / "cache/command/kvtier", "check", path])

    with cache_run.opened({"l1": {"capacity": "2MiB"}, "l2": {"url": "dummy://here"}}) as cache:
        keys = [cache_run.key_of(cache, number) for number in range(CHUNKS)]
        for number, key in enumerate(keys):
            cache_run.put(cache, key, data_of(number))
        below = [n for n, key in enumerate(keys) if cache_run.tier_of(cache, key) == "l2"]
        assert len(below) >= CHUNKS // 2, f"{len(below)} chunks of {CHUNKS} are in the tier alone"
        for number in below:
            assert cache_run.get(cache, keys[number]) == data_of(number), f"chunk {number} is another"
        metrics = cache.metrics()
        assert 'kvtier_tier_info{tier="l2",mode="dummy"' in metrics
        assert f'kvtier_tier_loads_total{{tier="l2"}} {len(below)}\n' in metrics
