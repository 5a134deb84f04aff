"""A configuration key of the cache."""

import cache_run

FILE = None
LINES = {
    "cache/options/settings.def": 'KVT_SETTING("dummy", COUNT, dummy, "7", "1", "99", "", "A number without a use.")',
    "include/kvtier/kvtier.h": ("\tuint32_t dummy;", "\t/* environment; NULL"),
}
SEVERAL = "struct kvt_config is the library's ABI: its members are written by hand, a new one at the end"
TARGETS = ["cache/core/libkvtier.so.1.0.0", "cache/command/kvtier"]


def check(tree):
    page = tree.text("cache/options/REFERENCE.md")
    assert "| `dummy` |" in page and "A number without a use." in page, "not in the page"
    with cache_run.opened({"l1": {"capacity": "2MiB"}, "dummy": 99}):
        pass
    with cache_run.opened({"l1": {"capacity": "2MiB"}, "dummy": 100}, mistakes=": dummy: found"):
        pass
