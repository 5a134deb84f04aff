"""LMCache's configuration files inside a real engine: only the connector's name is another one.

The connector's name and module are all that the engine's configuration says of kvtier. What the engine
answers before its own cache is emptied was computed, what it answers afterwards was loaded; both must be the same.
"""

import json
import random

import pytest
from connected import BLOCK, ConnectedEngine
from rig.lmcache_files import CPU, NVME
from rig.wait import until

CHUNK = 256  # as the files say
WRONG = """\
chunk_size: 256
max_local_cpu_sise: 1
remote_url: "s3://bucket"
remote_serde: cachegen
local_disk: "file:///proc/none"
max_local_disk_size: 5.0
"""
HOPELESS = """\
chunk_size: 256
max_local_cpu_size: 60000.0
"""
READY = "LMCacheManager initialized successfully"
FAILED = "System will operate in degraded mode (recompute)."


def make_prompts():
    rng = random.Random(3)
    return [[rng.randrange(10, 600) for _ in range(rng.randrange(CHUNK + 1, 4 * CHUNK))] for _ in range(12)]


ASKED = make_prompts()


class LmcacheEngine(ConnectedEngine):
    """One `vllm serve` in a folder of its own, with LMCache's file in LMCACHE_CONFIG_FILE."""

    name = "lmcache_config"

    def __init__(self, directory, content):
        (directory / "lmcache_config.yaml").write_text(content)
        super().__init__(directory, 0, None, prefix=("env", "-C", directory))

    def environment(self):
        return {
            **super().environment(),
            "MAXLEN": str(4 * CHUNK + 2 * BLOCK),
            "LMCACHE_CONFIG_FILE": "lmcache_config.yaml",
        }

    def options(self):
        return ["--kv-transfer-config", json.dumps({
            "kv_connector": "KVTierConnector", "kv_connector_module_path": "kvtier.vllm", "kv_role": "kv_both",
        })]  # fmt: skip


@pytest.fixture
def lmcache_engine(tmp_path):
    started = []

    def start(content):
        started.append(LmcacheEngine(tmp_path, content))
        return started[-1].ready()

    yield start
    for engine in started:
        engine.kill()


def ask_all(engine):
    found = [engine.complete(prompt) for prompt in ASKED]
    return [text for text, _ in found], sum(tokens for _, tokens in found)


def loadable():
    return sum((len(prompt) - 1) // CHUNK * CHUNK for prompt in ASKED)


def hits_after_a_reset(engine):
    """Asks, empties the engine's own cache and asks again."""
    computed, cached = ask_all(engine)
    assert cached == 0
    engine.forget()
    loaded, cached = ask_all(engine)
    assert loaded == computed
    assert cached >= loadable()
    return computed


def stored_bytes(folder):
    return sum(path.stat().st_blocks for path in folder.rglob("*") if path.is_file())


def test_a_file_for_memory(lmcache_engine):
    engine = lmcache_engine(CPU)
    hits_after_a_reset(engine)
    assert READY in engine.log() and FAILED not in engine.log()
    assert engine.counts()["lmcache:num_lookup_hits_total"] > 0


def test_a_file_for_a_disk(lmcache_engine, tmp_path):
    engine = lmcache_engine(NVME)
    computed = hits_after_a_reset(engine)
    assert READY in engine.log() and FAILED not in engine.log()
    engine.wait_stored("nvme")
    until(lambda: stored_bytes(tmp_path / "tmp/cache/kvtier") > 0, 60, "chunks in the working directory")
    engine.popen.terminate()
    engine.wait(60)
    engine.kill()
    engine.start()
    engine.ready()
    loaded, cached = ask_all(engine)
    assert loaded == computed
    assert cached >= loadable()


def test_wrong_backends_are_reported_and_the_rest_works(lmcache_engine):
    engine = lmcache_engine(WRONG)
    hits_after_a_reset(engine)
    log = engine.log()
    assert READY in log
    for says in (
        "lmcache_config.yaml:2:1: max_local_cpu_sise: found a key that LMCache does not have",
        "lmcache_config.yaml:3:13: remote_url: found `s3://bucket`, expected",
        "lmcache_config.yaml:4:15: remote_serde: found `cachegen`, which cannot be had",
        "/proc/none",
    ):
        assert says in log, says


def test_down_to_plain_recompute(lmcache_engine):
    engine = lmcache_engine(HOPELESS)
    computed, cached = ask_all(engine)
    engine.forget()
    assert ask_all(engine) == (computed, 0) and cached == 0
    assert "Failed to initialize kvtier" in engine.log() and FAILED in engine.log()
    assert READY not in engine.log()
