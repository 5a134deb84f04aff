"""A metric of the cache."""

import cache_run

FILE = None
LINES = {"cache/core/metrics.def": 'KVT_METRIC("kvtier_dummy_total", counter, "", value, IN_STATS(gets), "Dummies.")'}
TARGETS = ["cache/core/libkvtier.so.1.0.0"]


def check(tree):
    assert "kvtier_dummy_total" in tree.text("cache/METRICS.md"), "not in the page"
    with cache_run.opened({"l1": {"capacity": "2MiB"}}) as cache:
        assert "\nkvtier_dummy_total 0\n" in cache.metrics(), "not in the exposition"
