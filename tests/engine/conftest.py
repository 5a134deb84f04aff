"""Two real vLLM engines, started once for all tests, and a router in front of them; engines with
kvtier inside, and what they share."""

import pathlib
import signal
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "integration"))

from connected import ASKED, LONG, ConnectedEngine  # noqa: E402
from reference import Right  # noqa: E402
from rig.kvtierd import Kvtierd  # noqa: E402
from rig.redis import RedisServer  # noqa: E402
from rig.router import Router  # noqa: E402
from rig.wait import until  # noqa: E402
from server import HERE, MODEL, START_SECONDS, VENV, Engine  # noqa: E402, F401

# A run that is ended ends its engines, too, whose workers would outlive it.
signal.signal(signal.SIGTERM, signal.default_int_handler)

NOT_SET = "run tests/engine/run.sh, or set KVW_ENGINE_VENV and KVW_ENGINE_MODEL"


@pytest.fixture(scope="session")
def engines(tmp_path_factory):
    if not VENV or not MODEL:
        pytest.fail(NOT_SET)
    directory = tmp_path_factory.mktemp("engines")
    both = [Engine(directory, number) for number in range(2)]
    try:
        for engine in both:
            until(engine.healthy, START_SECONDS, "engine up")
        yield both
    finally:
        for engine in both:
            if engine.alive():
                engine.popen.terminate()
        for engine in both:
            try:
                engine.wait(20)
            finally:
                engine.kill()


@pytest.fixture
def kvway(engines, tmp_path):
    """Starts kvway in front of engines that remember nothing, one that a test killed included."""
    started = []

    def start(config=None):
        for engine in engines:
            if not engine.alive():
                engine.restart()
            engine.forget()
        started.append(Router(tmp_path, engines, config))
        return started[-1].wait_up(engines)

    try:
        yield start
    finally:
        for process in started:
            process.stop()


@pytest.fixture
def router(kvway):
    """With what a user would write."""
    return kvway()


@pytest.fixture(scope="session")
def directory(tmp_path_factory):
    """Of engines with kvtier, and their logs."""
    return tmp_path_factory.mktemp("kvtier")


@pytest.fixture(scope="session")
def right(directory):
    """The answers of an engine without kvtier, asked one at a time."""
    if not VENV or not MODEL:
        pytest.fail(NOT_SET)
    return Right(ASKED, LONG).find(lambda: ConnectedEngine(directory, 99, None).ready())


@pytest.fixture
def engine_of(directory):
    """Starts engines that end with the test. Several at once: engine_of(cache, cache)."""
    started = []

    def start(*caches, **more):
        fresh = [ConnectedEngine(directory, len(started) + i, c, **more) for i, c in enumerate(caches)]
        started.extend(fresh)
        for engine in fresh:
            engine.ready()
        return fresh if len(fresh) > 1 else fresh[0]

    yield start
    for engine in started:
        engine.kill()


@pytest.fixture
def redis(tmp_path):
    server = RedisServer(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def daemon(tmp_path):
    server = Kvtierd(tmp_path, {"segment.size": "512MiB"})
    server.wait_up()
    yield server
    server.kill()
    server.remove()
