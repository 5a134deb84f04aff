"""Fixtures: every process that a test starts ends with it, and a wrong exit fails the test."""

import os
import subprocess

import pytest

from rig import tls
from rig.redis import SERVER, RedisServer
from rig.redis_cluster import Cluster, Drive, Watched
from rig.router import PROGRAM, Router
from rig.sim import PROGRAM as SIM_PROGRAM
from rig.sim import Sim
from rig.worker import Worker


def pytest_collection_modifyitems(items):
    """KVW_PART=2/3: every third test from the second on, as pytest.sh asks for long files."""
    part = os.environ.get("KVW_PART")
    if part:
        number, parts = map(int, part.split("/"))
        items[:] = items[number - 1 :: parts]


LOG_LINES = 60  # of each process of a test that failed
REQUESTS = 10  # of each kvway


def ways(router):
    """The latest requests of a running kvway: `kvway trace`."""
    argv = [PROGRAM, "trace", "--last", str(REQUESTS), "--admin", f"127.0.0.1:{router.admin_port}"]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=10)
    except subprocess.TimeoutExpired:
        return "kvway trace: no answer within 10 s"
    return done.stdout


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """The report of a test that failed has the end of each process's log, and the latest requests of each kvway."""
    report = (yield).get_result()
    if call.when != "call" or not report.failed:
        return
    folder = item.funcargs.get("tmp_path")
    for log in sorted(folder.glob("*.log")) if folder else ():
        last = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        report.sections.append((f"last lines of {log}", "\n".join(last)))
    for router in getattr(item, "routers", ()):
        if router.alive():
            report.sections.append((f"latest requests of {router.config_path.stem}", ways(router)))


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Signs certificates."""
    return tls.Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def local(authority):
    """A certificate for this machine."""
    return authority.issue("local", "IP:127.0.0.1,DNS:localhost")


@pytest.fixture(scope="module")
def trust(authority):
    """What a client believes."""
    return tls.client_context(authority)


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
def kvway(tmp_path, request):
    """kvway(workers, {key: value}, up=True): a router that must end with 0 after the test."""
    if not PROGRAM.exists():
        pytest.fail(f"{PROGRAM} is missing: build first, and set KVW_BUILD to the build directory")
    made = request.node.routers = []

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


def ended_with_the_test(make):
    """A fixture that makes things with stop(), which are stopped in the end."""
    made = []

    def one(*args, **options):
        made.append(make(*args, **options))
        return made[-1]

    yield one
    for thing in made:
        thing.stop()


@pytest.fixture
def redis(tmp_path):
    """A redis-server of the test's own."""
    if SERVER is None:
        pytest.skip("redis-server is not installed")
    server = RedisServer(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def cluster(tmp_path):
    """cluster(masters, replicas=0, ...): redis-servers in cluster mode."""
    yield from ended_with_the_test(lambda *args, **options: Cluster(tmp_path, *args, **options))


@pytest.fixture
def watched(tmp_path):
    """watched(sentinels=3, ...): a Redis master, its replica, and Sentinels."""
    yield from ended_with_the_test(lambda **options: Watched(tmp_path, **options))


@pytest.fixture
def drive(tmp_path):
    """drive(url, ...): checked load on Redis; its end is checked by its own stop()."""
    made = []

    def make(url, **options):
        made.append(Drive(url, tmp_path / f"drive{len(made)}.log", **options))
        return made[-1]

    yield make
    for one in made:
        one.kill()
