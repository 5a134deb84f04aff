"""Clients and workers whose machine or network is lost without a word."""

import threading
import time

import pytest

from rig.cable import Cable
from rig.client import CHAT, Client, chat_body
from rig.wait import until
from rig.worker import Worker

GONE = "3s"
SOON = 3 + 3  # the time, a look per second, and a busy machine


@pytest.fixture
def cable():
    made = Cable()
    why = made.make()
    if why:
        pytest.skip(why)
    yield made
    made.remove()


def client_there(cable, router):
    return cable.call(lambda: Client(router.port, host=cable.here))


class Dialog:
    """A script that sends an event every `pause` seconds, or nothing, until its router closes."""

    def __init__(self, pause):
        self.pause = pause
        self.ended = threading.Event()

    def __call__(self, ex):
        try:
            if self.pause is None:
                ex.gone(60)
                return
            ex.start_stream()
            while not ex.gone(self.pause):
                ex.event("word " * 10)
        finally:
            self.ended.set()


def listening_everywhere(kvway, fleet, config):
    """A router that the other end of the cable can reach."""
    router = kvway(fleet, {**config, "listen": "0.0.0.0:0"}, up=False)
    until(lambda: "listens on 0.0.0.0:" in router.log(), 10, "started")
    router.port = int(router.log().split("listens on 0.0.0.0:")[1].split()[0])
    return router.wait_up(fleet)


@pytest.mark.parametrize("pause", [0.05, None], ids=["streaming", "waiting"])
def test_a_client_that_vanishes_frees_its_worker(cable, workers, kvway, pause):
    """While it streams, data is under way, and no keepalive is sent; while it waits, nothing is."""
    script = Dialog(pause)
    (worker,) = workers(1, script=script)
    router = listening_everywhere(kvway, [worker], {"timeouts.peer_gone": GONE})
    with client_there(cable, router) as client:
        client.send_request("POST", CHAT, body=chat_body(stream=True))
        if pause is not None:
            client.read_head()
        worker.wait_requests(1)
        time.sleep(0.3)
        begin = time.monotonic()
        cable.pull()
        assert script.ended.wait(SOON * 2)
        took = time.monotonic() - begin
        print(f"after {took:.1f} s")
        assert 1 < took < SOON, took
        assert router.metric("kvway_client_gone_total") == 1
        router.wait_idle()


def test_a_client_that_reads_nothing_has_not_vanished(cable, workers, kvway):
    """Its kernel answers: how long it may rest is for timeouts.client_write to say."""
    script = Dialog(0.001)
    (worker,) = workers(1, script=script)
    router = listening_everywhere(kvway, [worker], {"timeouts.peer_gone": "2s"})
    with client_there(cable, router) as client:
        client.send_request("POST", CHAT, body=chat_body(stream=True))
        client.read_head()
        assert not script.ended.wait(6)


@pytest.mark.parametrize("probed", [True, False])
def test_requests_leave_a_worker_that_vanishes(cable, workers, kvway, probed):
    """Its probes find that out, or the connection's own end where probes are rare."""
    go = threading.Event()
    there = cable.call(lambda: Worker(lambda ex: go.wait(30), name="there", address=cable.there))
    (near,) = workers(1)
    try:
        config = {"timeouts.peer_gone": "0s" if probed else GONE, "routing.strategy": "roundrobin"}
        if not probed:
            config["health.interval"] = config["health.metrics_interval"] = "1h"
        router = kvway([there, near], config)
        got = []
        asking = [
            threading.Thread(target=lambda: got.append(router.ask("POST", CHAT, body=chat_body(), timeout=30)))
            for _ in range(4)
        ]
        for thread in asking:
            thread.start()
        until(lambda: len(got) + len(there.requests) == 4, 10, "all are answered or wait")
        assert there.requests
        begin = time.monotonic()
        cable.pull()
        for thread in asking:
            thread.join()
        took = time.monotonic() - begin
        print(f"after {took:.1f} s")
        assert [answer.status for answer in got] == [200] * 4
        assert took < 10, took
    finally:
        go.set()
        there.stop()
