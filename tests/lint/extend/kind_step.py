"""A step of a request's way, which only some settings need."""

import json

import router_run
from rig.wait import until

FILE = ("src/router/proxy/steps/dummy.c", "dummy_step.c")
LINES = {"src/router/proxy/steps.def": "KVW_STEP(dummy)"}
TARGETS = ["src/router/kvway"]

JSON = [("content-type", "application/json")]


def status(router, model):
    body = json.dumps({"model": model, "prompt": "hello", "max_tokens": 1}).encode()
    answer = router.ask("POST", "/v1/completions", JSON, body)
    return answer.status, answer.body


def check(tree):
    for pin, refused in ((True, 403), (False, 404)):
        with router_run.serving(tree, {"http.pin": pin}) as (router, _):
            until(lambda: status(router, "tiny")[0] == 200, 10, "a request passes the step")
            got, body = status(router, "dummy")
            assert got == refused, body
            assert (b"the dummy refuses" in body) == (refused == 403), body
