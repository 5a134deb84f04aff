"""Pages of other origins that a worker's list of models names; what needs no change of it is tests/requests/cors."""

from rig.wait import until

ORIGIN = [("Origin", "https://chat.example")]
ALLOW = "access-control-allow-origin"


def test_own_answers_are_for_them_before_a_page_has_asked_a_worker(pair):
    """A page's first request is GET /v1/models, which needs no preflight."""
    worker, router = pair(config={"health.models_interval": "1s"})
    assert ALLOW not in router.ask("GET", "/v1/models", ORIGIN).headers
    worker.any_origin = True
    until(lambda: router.ask("GET", "/v1/models", ORIGIN).headers.get(ALLOW) == "*", 10, "heard from its list")
    worker.any_origin = False
    until(lambda: ALLOW not in router.ask("GET", "/v1/models", ORIGIN).headers, 10, "heard from its list")
