"""Fixtures: every process that a test starts ends with it, and a wrong exit fails the test."""

import pytest

from rig.router import PROGRAM, Router
from rig.sim import PROGRAM as SIM_PROGRAM
from rig.sim import Sim
from rig.worker import Worker


@pytest.fixture
def workers():
    """workers(n, **options): mock workers that stop with the test."""
    made = []

    def make(count=1, **options):
        new = [Worker(name=f"w{len(made) + i}", **options) for i in range(count)]
        made.extend(new)
        return new

    yield make
    for worker in made:
        worker.stop()
    failures = [f for worker in made for f in worker.failures]
    assert not failures, f"a worker's script failed: {failures!r}"


@pytest.fixture
def kvway(tmp_path):
    """kvway(workers, {key: value}, up=True): a router that must end with 0 after the test."""
    if not PROGRAM.exists():
        pytest.fail(f"{PROGRAM} is missing: build first, and set KVW_BUILD to the build directory")
    made = []

    def make(workers, config=None, up=True, worker_keys=None):
        router = Router(tmp_path, workers, config, worker_keys, name=f"kvway{len(made)}")
        made.append(router)
        if up:
            router.wait_up(() if worker_keys else workers)
        return router

    yield make
    failed = None
    for router in made:
        try:
            router.stop()
        except AssertionError as error:
            failed = failed or error
    if failed:
        raise failed


@pytest.fixture
def pair(workers, kvway):
    """pair(script, {key: value}): one worker and a router in front of it."""

    def make(script=None, config=None, **options):
        (worker,) = workers(1, **options)
        if script is not None:
            worker.script = script
        return worker, kvway([worker], config)

    return make


@pytest.fixture
def kvsim(tmp_path):
    """kvsim(count, *options): workers of a simulated engine."""
    if not SIM_PROGRAM.exists():
        pytest.fail(f"{SIM_PROGRAM} is missing: build with -Dbench=true")
    made = []

    def make(count=1, *options, **settings):
        sim = Sim(tmp_path, count, *options, name=f"kvsim{len(made)}", **settings)
        made.append(sim)
        return sim.workers

    yield make
    for sim in made:
        sim.kill()
