"""A routing strategy with a setting and a reason of its own."""

import json

import router_run
from rig.client import ask
from rig.wait import until

FILE = ("routing/dummy.c", "dummy_strategy.c")
LINES = {"routing/strategies.def": "KVW_STRATEGY(dummy)"}
TARGETS = ["src/router/kvway"]

REQUESTS = 5
JSON = [("content-type", "application/json")]
BODY = json.dumps({"model": "tiny", "prompt": "to the second one", "max_tokens": 1}).encode()


def explain(router):
    return ask(router.admin_port, "POST", "/explain", JSON, BODY)


def check(tree):
    page = tree.text("config/REFERENCE.md")
    assert "| `dummy` | always the worker at one position |" in page, "not in the list of strategies"
    assert "| `routing.dummy.worker` | whole number | `0` | 0 to 1023 |" in page, "its setting is not in the page"
    assert "\n  dummy:\n" in tree.text("config/examples/full.yaml"), "its setting is not in the example"
    said = router_run.refused(tree, {"routing.dummy.worker": 1024})
    assert "routing.dummy.worker: found 1024" in said.replace("`", ""), said
    said = router_run.refused(tree, {"routing.dummy.wroker": 1})
    assert "did you mean `worker`" in said or "routing.dummy.worker" in said, said

    config = {"routing.strategy": "dummy", "routing.dummy.worker": 1, "http.decision_headers": "always"}
    with router_run.serving(tree, config, workers=2) as (router, sim):
        until(lambda: explain(router).status == 200, 10, "both workers' models are known")
        for _ in range(REQUESTS):
            answer = router.ask("POST", "/v1/completions", JSON, BODY)
            assert answer.status == 200, answer.body
            headers = dict(answer.headers)
            assert headers["x-kvway-worker"] == sim.workers[1].url, "not as the dummy decides"
            assert headers["x-kvway-reason"] == "dummy_fixed", headers["x-kvway-reason"]

        def counted():
            return router.metric("kvway_decisions_total", strategy="dummy", reason="dummy_fixed")

        until(lambda: counted() >= REQUESTS, 10, "all decisions are counted")
        assert counted() == REQUESTS, f"{counted()} decisions are counted"
        said = explain(router).json()
        assert said["reason"] == "dummy_fixed" and said["why"] == "it is the configured one", said
        assert said["worker"] == sim.workers[1].url, said
