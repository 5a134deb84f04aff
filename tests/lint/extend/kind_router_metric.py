"""A metric of the router."""

import router_run

FILE = None
LINES = {"src/router/admin/metrics.def": 'KVW_COUNTER("kvway_dummy_total", DUMMY, "Dummies.")'}
TARGETS = ["src/router/kvway"]


def check(tree):
    assert "kvway_dummy_total" in tree.text("src/router/admin/METRICS.md"), "not in the page"
    with router_run.serving(tree, {}) as (router, _):
        names = {name for name, _ in router.metrics()}
        assert "kvway_dummy_total" in names, "not in /metrics"
