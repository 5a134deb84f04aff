"""kvway_fleet_predicted_over_promised: how late answers will be, for autoscalers."""

import threading

import pytest

from rig.client import CHAT, Client, chat_body
from rig.pd import LONG as SPLIT
from rig.pd import body_for, engines, parted  # noqa: F401
from rig.wait import until

# Predicted to take a worker minutes.
LONG = "word " * 800
SLOW = {"loops": 1, "routing.prefill_tokens_per_second": 2, "admission.worker_queue": "0s"}
RATIO = "kvway_fleet_predicted_over_promised"
COUNT = "kvway_predicted_over_promised_count"
SECONDS = "kvway_predicted_seconds_total"


def ratio(router, quantile="0.9", **labels):
    found = [v for (name, have), v in router.metrics(RATIO).items() if {("quantile", quantile), *labels.items()} <= set(have)]
    assert len(found) == 1, found
    return found[0]


def parts(router):
    return {part: router.metric(SECONDS, part=part) for part in ("wait", "queue", "prefill", "promised")}


def test_a_figure_from_the_start_and_after_the_first_request(pair):
    _, router = pair(config=SLOW)
    assert ratio(router, model="tiny", role="both") == ratio(router, "0.5", model="tiny") == 0
    assert router.ask("POST", CHAT, body=chat_body(LONG)).status == 200
    assert ratio(router, model="tiny", role="both") == 50  # the highest bound: minutes, of 2 s and a little
    assert router.metric(COUNT, model="tiny", role="both") == 1
    found = parts(router)
    assert found["wait"] == found["queue"] == 0 and found["prefill"] > 100 and 2 < found["promised"] < 2.5


def test_requests_that_wait_and_those_that_are_refused_count_when_they_come(pair):
    over = threading.Event()

    def hold(ex):
        over.wait(60)
        ex.respond(body={"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 1}})

    _, router = pair(hold, SLOW)
    try:
        with Client(router.port) as first, Client(router.port) as second, Client(router.port) as third:
            first.send_request("POST", CHAT, body=chat_body(f"first {LONG}"))
            until(lambda: router.metric(COUNT) == 1, what="the first is sent")
            second.send_request("POST", CHAT, body=chat_body(f"second {LONG}"))
            until(lambda: router.metric("kvway_waiting_requests") == 1, what="the second waits")
            assert router.metric(COUNT) == 2 and parts(router)["wait"] > 0
            third.send_request("POST", CHAT, [("x-kvway-do-not-queue", "1")], chat_body(f"third {LONG}"))
            assert third.read("POST").status == 429
            assert router.metric(COUNT) == 3
            over.set()
            assert first.read("POST").status == second.read("POST").status == 200
    finally:
        over.set()
    assert router.metric(COUNT) == 3


@pytest.mark.parametrize(
    "config, promised",
    [
        ({"service_level.ttft": "10s"}, 10),
        ({"scale.ttft": "5s", "scale.ttft_per_1k_tokens": "0s"}, 5),
        ({"scale.ttft": "5s", "scale.ttft_per_1k_tokens": "0s", "admission.enabled": False}, 5),
        ({"scale.ttft": "0s", "scale.ttft_per_1k_tokens": "0s"}, None),
    ],
)
def test_by_what_it_is_divided(pair, config, promised):
    _, router = pair(config={"loops": 1, **config})
    assert router.ask("POST", CHAT, body=chat_body("hello")).status == 200
    assert router.metric(COUNT) == (0 if promised is None else 1)
    assert parts(router)["promised"] == (promised or 0)


def test_each_role_has_its_part(parted):  # noqa: F811
    router, _, _ = parted()
    assert ratio(router, role="prefill") == ratio(router, role="decode") == 0
    assert router.ask("POST", CHAT, body=body_for(CHAT, SPLIT)).status == 200
    assert router.metric(COUNT, role="prefill") == router.metric(COUNT, role="decode") == 1
    assert ratio(router, role="prefill") > 0
