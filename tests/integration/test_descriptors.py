"""Descriptors that run out: said, counted, survived, and no worker's fault."""

import os
import resource
import stat

import pytest

from rig import router as rig_router
from rig.client import CHAT, Client, chat_body, crowd
from rig.router import settle
from rig.wait import PATIENCE, until
from rig.wire import Closed

OUT = "no descriptor is left for a client"
RARELY = {"health.interval": "1h", "health.metrics_interval": "1h", "health.models_interval": "1h"}


def limit(router, number):
    """The process may have descriptors below this number; returns the limits before."""
    return resource.prlimit(router.pid, resource.RLIMIT_NOFILE, (number, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def highest(router):
    return max(int(name) for name in os.listdir(f"/proc/{router.pid}/fd"))


def asked(client):
    """Status of GET /health, or None where the connection ends without an answer."""
    try:
        return client.ask("GET", "/health").status
    except (Closed, OSError):
        return None


@pytest.fixture
def few(tmp_path, monkeypatch):
    """few(n): routers that are started from now on may have n descriptors, hard."""

    def make(number):
        script = tmp_path / "few"
        script.write_text(f'#!/bin/sh\nulimit -n {number}\nexec "{rig_router.PROGRAM}" "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(rig_router, "PROGRAM", script)

    return make


def test_clients_get_half_of_few_descriptors(few, workers, kvway):
    """Each client that is let in can have its connection to a worker at the same time."""
    few(256)
    worker, other = workers(2)
    router = kvway([worker, other])
    assert "at most 96 clients at once, not limits.connections=65536" in router.log()
    with crowd(router.port, 150) as clients:
        for client in clients:
            client.send_request("POST", CHAT, body=chat_body())
        statuses = []
        for client in clients:
            try:
                statuses.append(client.read().status)
            except (Closed, OSError):
                statuses.append(503)  # refused with the request unread, which may reset the answer
    assert set(statuses) == {200, 503}
    assert 80 <= statuses.count(200) <= 96, statuses
    assert OUT not in router.log()
    assert router.metric("kvway_out_of_descriptors_total") == 0
    assert router.metric("kvway_connections_refused_total") == statuses.count(503)
    assert router.metric("kvway_worker_ejected") == 0
    for _ in range(4):
        assert router.ask("POST", CHAT, body=chat_body()).status == 200


def test_no_descriptor_for_clients_is_said_once_and_survived(workers, kvway):
    (worker,) = workers(1)
    router = kvway([worker], RARELY)
    settle(0.3)
    before = limit(router, highest(router) + 20)
    for _ in range(3):  # the reserve is there each time
        with crowd(router.port, 60) as clients:
            statuses = [asked(client) for client in clients]
        assert 200 in statuses and statuses.count(200) < 40, statuses
        until(lambda: router.sockets_to(router.port) == 0, 5, "all have gone")
        until(lambda: asked_once(router) == 200, 5, "it answers again")
    assert router.log().count(OUT) == 1
    assert router.metric("kvway_out_of_descriptors_total") >= 60
    resource.prlimit(router.pid, resource.RLIMIT_NOFILE, before)
    assert router.ask("POST", CHAT, body=chat_body()).status == 200


def asked_once(router):
    try:
        with Client(router.port) as client:
            return asked(client)
    except OSError:
        return None


def test_the_reserve_itself_is_lost_and_found_again(workers, kvway):
    """Not even a client to refuse can be accepted: clients wait, and no loop turns for nothing."""
    (worker,) = workers(1)
    router = kvway([worker], RARELY)
    settle(0.3)
    before = limit(router, 3)
    with crowd(router.port, 8) as clients:
        for client in clients:
            client.send_request("POST", CHAT, body=chat_body())
        until(lambda: OUT in router.log(), 5, "it is said")
        used = router.cpu_seconds()
        settle(1)
        assert router.cpu_seconds() - used < 0.5 * PATIENCE
        resource.prlimit(router.pid, resource.RLIMIT_NOFILE, before)
        assert [client.read().status for client in clients] == [200] * 8
    assert router.log().count(OUT) == 1
    limit(router, highest(router) + 5)
    with crowd(router.port, 30) as clients:  # both loops have their reserve again
        statuses = [asked(client) for client in clients]
    assert statuses.count(503) >= 10, statuses
    resource.prlimit(router.pid, resource.RLIMIT_NOFILE, before)


def test_idle_connections_to_workers_give_way(workers, kvway):
    """Those to a worker that nothing is asked of now are closed before a request is refused."""
    fleet = workers(2, models=[])
    for worker, model in zip(fleet, ("one", "two")):
        worker.models = [model]
    router = kvway(fleet, {**RARELY, "loops": 1, "timeouts.upstream_idle": "1m"})
    settle(0.3)
    with crowd(router.port, 10) as clients:
        for client in clients:
            client.send_request("POST", CHAT, body=chat_body(model="one"))
        assert [client.read().status for client in clients] == [200] * 10
        before = limit(router, highest(router) + 1)
        for client in clients[:3]:
            client.send_request("POST", CHAT, body=chat_body(model="two"))
        assert [client.read().status for client in clients[:3]] == [200] * 3
        resource.prlimit(router.pid, resource.RLIMIT_NOFILE, before)
    assert router.metric("kvway_out_of_descriptors_total") == 0


def test_probes_without_a_descriptor_take_no_worker_out(workers, kvway):
    (worker,) = workers(1)
    config = {"health.interval": "100ms", "health.metrics_interval": "100ms", "health.fall": 1}
    router = kvway([worker], config)
    settle(0.5)
    before = limit(router, 3)
    settle(0.3)  # probes under way
    asked_before = len(worker.probes)
    settle(0.7)
    assert len(worker.probes) <= asked_before + 1, "there was a descriptor"
    assert router_ready(router, before)
    assert "is down" not in router.log() and "worker down" not in router.log()
    until(lambda: len(worker.probes) > asked_before + 2, 5, "probes go on")


def router_ready(router, before):
    resource.prlimit(router.pid, resource.RLIMIT_NOFILE, before)
    return router.ask("POST", CHAT, body=chat_body()).status == 200
