"""A configuration key of the router."""

import router_run

FILE = None
LINES = {
    "config/keys.def": 'KVW_KEY("dummy", INT, dummy, "7", "1", "99", RESTART, "A number without a use.")'
}
TARGETS = ["src/router/kvway"]


def check(tree):
    assert "| `dummy` | whole number | `7` | 1 to 99 | restart | A number" in tree.text("config/REFERENCE.md"), "not in the page"
    assert "\ndummy: 7\n" in tree.text("config/examples/full.yaml"), "not in the example"
    said = router_run.refused(tree, {"dummy": 100})
    assert ": dummy: found" in said and "from 1 to 99" in said, said
    with router_run.serving(tree, {"dummy": 99}) as (router, _):
        assert router.alive()
