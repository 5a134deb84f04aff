"""LMCache's configuration files and variables, as they are: by `kvtier check` and as the connector reads them.

Every broken file must give a message that names file, line and key in both, and what is right must apply.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import types

import pytest

from rig.kvtier_start import engine_of  # noqa: F401
from rig.lmcache_files import CPU, NVME
from rig.lmcache_keys import EXTRA, KEYS, OLDER, VLLM
from rig.router import BUILD

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "cache" / "python"))

from kvtier import library, lmcache, settings  # noqa: E402

LIBRARY = BUILD / "cache" / "core" / "libkvtier.so.1"
KVTIER = BUILD / "cache" / "command" / "kvtier"
GIB = 1 << 30


@pytest.fixture(autouse=True)
def of_this_build(monkeypatch):
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    for name in os.environ:
        if name.startswith("LMCACHE_"):
            monkeypatch.delenv(name)


def written(tmp_path, content):
    path = tmp_path / "lmcache_config.yaml"
    if isinstance(content, dict):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def connector(path, variables=None, extra=None, **ranks):
    """What the connector makes of it."""
    environ = {"LMCACHE_CONFIG_FILE": str(path)} if path else {}
    return settings.read(extra, {**environ, **(variables or {})}, **ranks)


def check(*arguments, variables=None, cwd=None):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LMCACHE_")}
    return subprocess.run(
        [KVTIER, "check", *map(str, arguments)], cwd=cwd, timeout=60,
        env={**environ, **(variables or {})}, capture_output=True, text=True, errors="replace",
    )  # fmt: skip


def key_of(run, key):
    """A setting's value as `kvtier check` prints it."""
    return next(line for line in run.stdout.splitlines() if line.startswith(f"{key}: ")).split(": ", 1)[1]


# --- files as they are ----------------------------------------------------------------------------


def test_a_file_for_memory(tmp_path):
    path = written(tmp_path, CPU)
    read = connector(path)
    assert read.mistakes == []
    assert read.chunk_tokens == 256
    assert json.loads(read.yaml) == {"l1": {"capacity": str(5 * GIB)}}
    run = check(path)
    assert (run.returncode, run.stderr) == (0, "")
    assert "chunk_size: `256`, line 3; honoured: chunk_size" in run.stdout
    assert "max_local_cpu_size: `5.0`, line 5; mapped: l1.capacity" in run.stdout
    assert "# l1: 5 GiB, as configured\n# nvme: none" in run.stdout
    assert key_of(run, "l1.capacity") == "5GiB"


def test_a_file_for_a_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, NVME)
    read = connector(path)
    assert json.loads(read.yaml) == {
        "l1": {"capacity": str(5 * GIB)},
        "nvme": {"path": f"{tmp_path}/tmp/cache/kvtier", "capacity": str(5 * GIB), "direct": True},
    }
    assert len(read.mistakes) == 1 and "relative to the working directory" in read.mistakes[0]
    run = check(path.name, cwd=tmp_path)
    assert run.returncode == 0
    assert f"{path.name}:5:13: local_disk: found a path relative to the working directory" in run.stderr
    assert key_of(run, "nvme.capacity") == "5GiB" and key_of(run, "nvme.direct") == "true"
    assert not (tmp_path / "tmp").exists()


def test_keys_become_ours(tmp_path):
    path = written(tmp_path, {
        "chunk_size": 128, "max_local_cpu_size": 0.0625, "cache_policy": "lru", "save_decode_cache": True,
        "local_disk": f"file://{tmp_path}/disk/", "max_local_disk_size": 0.5,
        "remote_url": "redis://127.0.0.1:7777", "lookup_timeout_ms": 40, "blocking_timeout_secs": 2,
        "extra_config": {"use_odirect": False}, "min_retrieve_tokens": 512,
    })  # fmt: skip
    read = connector(path)
    assert read.mistakes == []
    assert (read.chunk_tokens, read.min_retrieve_tokens) == (128, 512)
    assert (read.lookup_timeout_s, read.load_timeout_s) == (0.04, 2)
    assert json.loads(read.yaml) == {
        "l1": {"capacity": str(1 << 26), "policy": "lru"},
        "nvme": {"path": f"{tmp_path}/disk/kvtier", "capacity": str(1 << 29), "policy": "lru", "direct": False},
        "l2": {"url": "redis://127.0.0.1:7777"},
    }  # fmt: skip
    cache = library.Cache([read.yaml])
    assert cache.mistakes == ""
    cache.close()


def test_variables_go_over_the_file_and_vllms_own_over_both(tmp_path):
    path = written(tmp_path, {"chunk_size": 128, "max_local_cpu_size": 1, "min_retrieve_tokens": 7})
    variables = {"LMCACHE_CHUNK_SIZE": "64", "LMCACHE_REMOTE_URL": "kvtierd://h:1", "LMCACHE_LOCAL_CPU": ""}
    read = connector(path, variables, {
        "cache": {"l1": {"capacity": "3MiB"}}, "lmcache.min_retrieve_tokens": 9, "lmcache.extra_config": {"use_odirect": True},
    })  # fmt: skip
    assert read.mistakes == []
    assert (read.chunk_tokens, read.min_retrieve_tokens) == (64, 9)
    assert json.loads(read.yaml) == {
        "l1": {"capacity": "3MiB"}, "l2": {"url": "kvtierd://h:1"}, "nvme": {"direct": True}}  # fmt: skip


def test_extra_config_as_text(tmp_path):
    path = written(tmp_path, "chunk_size: 64\nextra_config: '{\"use_odirect\": true, \"use_cufile\": 1}'\n")
    read = connector(path)
    assert json.loads(read.yaml)["nvme"] == {"direct": True}
    assert [m for m in read.mistakes if m.startswith(f"{path}:2:15: extra_config.use_cufile: ignored")] == read.mistakes
    assert "extra_config.use_odirect: `true`, line 2; honoured: nvme.direct" in check(path).stdout
    for text, says in (("[1]", "found a list, expected a mapping"), ("{a", "not valid YAML")):
        wrong = connector(written(tmp_path, f"extra_config: '{text}'\nchunk_size: 32\n"))
        assert wrong.chunk_tokens == 32 and len(wrong.mistakes) == 1
        assert wrong.mistakes[0].startswith(f"{path}:1:15: extra_config") and says in wrong.mistakes[0]
    for nothing in ("''", "'null'", "null"):
        assert connector(written(tmp_path, f"extra_config: {nothing}\n")).mistakes == []


def test_variables_alone(tmp_path):
    read = connector(None, {"LMCACHE_MAX_LOCAL_CPU_SIZE": "'0.5'", "LMCACHE_EXTRA_CONFIG": '{"use_odirect": true}'})
    assert read.mistakes == [] and json.loads(read.yaml)["l1"] == {"capacity": str(GIB // 2)}
    run = check(variables={"LMCACHE_CONFIG_FILE": str(written(tmp_path, CPU)), "LMCACHE_CHUNK_SIZE": "128"})
    assert run.returncode == 0
    assert "chunk_size: `128`, LMCACHE_CHUNK_SIZE; honoured" in run.stdout and "# l1: 5 GiB" in run.stdout
    assert connector(None, {"LMCACHE_LOG_LEVEL": "INFO"}).yaml == "{}"
    assert check().returncode == 2


def test_a_file_that_says_little_has_lmcaches_sizes(tmp_path):
    assert json.loads(connector(written(tmp_path, "chunk_size: 64\n")).yaml) == {"l1": {"capacity": str(5 * GIB)}}
    empty = connector(written(tmp_path, "# nothing\n"))
    assert empty.mistakes == [] and json.loads(empty.yaml) == {"l1": {"capacity": str(5 * GIB)}}


# --- several ranks --------------------------------------------------------------------------------


def test_sizes_are_those_of_each_rank(tmp_path):
    path = written(tmp_path, {"max_local_cpu_size": 2.5, "local_disk": "/d", "max_local_disk_size": 8})
    for rank in range(2):
        read = connector(path, rank=rank, ranks=4)
        assert json.loads(read.yaml)["l1"] == {"capacity": str(5 * GIB // 2)}
        assert any("max_local_cpu_size: 2.5 GiB of each of 4 ranks, 10 GiB together" in m for m in read.mistakes)
    run = check("--ranks", 4, path)
    assert "# l1: 2.5 GiB, as configured; of each of 4 ranks, 10 GiB together" in run.stdout
    assert key_of(run, "l1.capacity") == "2560MiB"


def test_more_together_than_the_machine_has(tmp_path):
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    path = written(tmp_path, {"max_local_cpu_size": memory * 1024 / GIB / 2})
    assert check(path).returncode == 0
    run = check("--ranks", 3, path)
    assert run.returncode == 1 and "l1.capacity: found" in run.stderr and "together, but " in run.stderr


def test_a_consumer_and_force_skip_save_store_nothing(engine_of):  # noqa: F811
    assert connector(None, {"LMCACHE_FORCE_SKIP_SAVE": "1"}).read_only
    assert not connector(None, {"LMCACHE_FORCE_SKIP_SAVE": "false"}).read_only
    assert not connector(None, {"LMCACHE_CHUNK_SIZE": "32"}).read_only
    run = check(variables={"LMCACHE_FORCE_SKIP_SAVE": "1"})
    assert run.returncode == 0 and '"read_only": true' in run.stdout
    engine = engine_of({})
    for role, reads_only in (("kv_both", False), ("kv_producer", False), ("kv_consumer", True)):
        engine.config.kv_transfer_config.kv_role = role
        assert engine.module.KVTierConnector(engine.config, "worker", None).settings.read_only is reads_only


def test_ranks_share_out_folders(tmp_path):
    path = written(tmp_path, {"local_disk": "file:///a/, /b", "max_local_disk_size": 1})
    found = [json.loads(connector(path, rank=rank).yaml)["nvme"]["path"] for rank in range(3)]
    assert found == ["/a/kvtier", "/b/kvtier", "/a/kvtier"]


def test_ranks_on_their_numa_nodes(tmp_path):
    path = written(tmp_path, "numa_mode: manual\nextra_config: {gpu_to_numa_mapping: {0: 0, 1: 1}}\n")
    found = [json.loads(connector(path, rank=rank).yaml)["l1"].get("numa_node") for rank in range(3)]
    assert found == [0, 1, None]


# --- shared tiers and the controller --------------------------------------------------------------

URLS = [
    ("redis://h:1", {}, "redis://h:1"),
    ("resp://h:1", {"username": "u", "password": "p@/"}, "redis://u:p%40%2F@h:1"),
    ("resp://h:1", {}, "redis://r:s@h:1"),
    ("valkey://h:1", {"tls_enable": True, "valkey_mode": "cluster"}, "valkeys-cluster://h:1"),
    ("valkey://h:1", {"valkey_database": 3, "valkey_password": "x"}, "valkey://:x@h:1/3"),
    ("redis-sentinel://a:1,redis-sentinel://b:2", {}, "redis-sentinel://a:1,b:2"),
    ("sagemaker-hyperpod://http://${NODE}:9200", {}, "sagemaker-hyperpod://10.0.0.9:9200"),
    ("redis://u:p@h:1", {"username": "other"}, "redis://u:p@h:1"),
    ("redis://h:1?db=1", {}, "redis://h:1?db=1"),
    ("redis://h/1?db=2", {}, "redis://h/1?db=2"),
    ("rediss://h/1?ssl_cert_reqs=required", {}, "rediss://h/1"),
    ("unix:///run/redis.sock", {}, "unix:///run/redis.sock"),
    ("unix://@/run/redis.sock?db=3&password=p%40&username=u", {}, "unix://u:p%40@/run/redis.sock?db=3"),
]  # fmt: skip


@pytest.mark.parametrize("url, extra, ours", URLS)
def test_a_remote_url(tmp_path, url, extra, ours):
    path = written(tmp_path, {"remote_url": url, "extra_config": extra})
    read = connector(path, {"NODE": "10.0.0.9", "LMCACHE_RESP_USERNAME": "r", "LMCACHE_RESP_PASSWORD": "s"})
    assert read.mistakes == [] and json.loads(read.yaml)["l2"]["url"] == ours


def test_options_of_a_remote_url(tmp_path):
    def read(url):
        found = connector(written(tmp_path, {"remote_url": url}))
        return json.loads(found.yaml)["l2"], found.mistakes

    plain, notes = read("redis://h/1?ssl_cert_reqs=none&health_check_interval=3")
    assert plain == {"url": "redis://h/1"} and len(notes) == 2
    assert "`ssl_cert_reqs` is ignored: there is no TLS" in notes[0] and "`health_check_interval` is ignored" in notes[1]
    sealed, mistakes = read("rediss://h/1?ssl_cert_reqs=none&ssl_ca_certs=%2Fetc%2Fca.pem&db=2")
    assert sealed == {"url": "rediss://h/1?db=2", "tls_ca": "/etc/ca.pem"}
    assert len(mistakes) == 1 and "`ssl_cert_reqs` cannot be had: the server's certificate" in mistakes[0]
    assert "expected ?db=NUMBER" in connector(written(tmp_path, {"remote_url": "redis://h?db=x"})).mistakes[0]
    for login, rest in (("", "?password=geheim&x=1"), ("u:ge?heim@", "?x=1"), ("", "?password=ge@heim&x=1")):
        hidden = check(written(tmp_path, {"remote_url": f"redis://{login}h{rest}"}))
        assert not any(part in hidden.stdout + hidden.stderr for part in ("geheim", "u:ge", "heim")), hidden
        assert "option `x` is ignored" in hidden.stderr or "heim&x" in rest
    late = connector(written(tmp_path, {"remote_url": "redis-sentinel://h"}), {"REDIS_TIMEOUT": "0.5"})
    assert json.loads(late.yaml)["l2"]["deadline"] == "500ms"


def test_a_password_is_not_shown(tmp_path):
    path = written(tmp_path, {"remote_url": "redis://u:geheim@h:x", "extra_config": {"password": ["geheim"]}})
    run = check(path)
    assert run.returncode == 1 and "geheim" not in run.stdout + run.stderr
    good = check(written(tmp_path, {"remote_url": "redis://h:1", "extra_config": {"password": "geheim"}}))
    assert good.returncode == 0 and "geheim" not in good.stdout + good.stderr
    assert key_of(good, "l2.url") == '"redis://***@h:1"'


def test_tiered_storage(tmp_path):
    read = connector(written(tmp_path, {"remote_url": "sagemaker-hyperpod://127.0.0.1:9200", "extra_config": {
        "sagemaker_hyperpod_bucket": "b", "sagemaker_hyperpod_shared_memory_name": "s",
        "sagemaker_hyperpod_lease_ttl_s": 12.5, "sagemaker_hyperpod_timeout_ms": 700,
        "sagemaker_hyperpod_max_connections_per_host": 100, "sagemaker_hyperpod_max_lease_size_mb": 4,
    }}))  # fmt: skip
    assert json.loads(read.yaml)["l2"] == {
        "url": "sagemaker-hyperpod://127.0.0.1:9200", "bucket": "b", "segment": "s", "lease_time": "12500ms",
        "deadline": "700ms", "connections": 64,
    }  # fmt: skip
    assert len(read.mistakes) == 1 and "extra_config.sagemaker_hyperpod_max_lease_size_mb" in read.mistakes[0]


def test_the_controller(tmp_path):
    path = written(tmp_path, {
        "enable_controller": True, "controller_pull_url": "10.0.0.1:8300", "controller_reply_url": "10.0.0.1:8400",
        "lmcache_instance_id": "i0", "lmcache_worker_ports": [9500, 9501], "lmcache_worker_ids": [0, 1],
        "lmcache_worker_heartbeat_time": 5, "chunk_size": 128, "pre_caching_hash_algorithm": "sha256_cbor",
    })  # fmt: skip
    read = connector(path, {"PYTHONHASHSEED": "7"}, rank=1)
    assert read.mistakes == []
    assert json.loads(read.yaml)["controller"] == {
        "pull": "tcp://10.0.0.1:8300", "reply": "tcp://10.0.0.1:8400", "instance": "i0", "ports": "9500,9501",
        "heartbeat_time": "5s", "chunk_size": 128, "hash": "sha256_cbor", "hash_seed": "7",
    }  # fmt: skip
    other = connector(path, {"PYTHONHASHSEED": "7"}, rank=2)
    assert "controller" not in json.loads(other.yaml) and "rank 2 is not listed" in other.mistakes[0]
    cache = library.Cache([json.dumps({"l1": {"capacity": "16MiB"}}), read.yaml.replace("10.0.0.1", "127.0.0.1")])
    assert cache.mistakes == ""
    cache.close()


# --- every key of LMCache's own -------------------------------------------------------------------

# With it every key has something to act on.
AROUND = {
    "enable_controller": True, "controller_pull_url": "10.0.0.1:8300", "enable_blending": True, "local_disk": "/a",
    "max_local_disk_size": 1, "remote_url": "valkey://h:1", "numa_mode": "manual",
}  # fmt: skip
AROUND_EXTRA = {"gpu_to_numa_mapping": {"0": 0}, "valkey_enable_ttl": True, "valkey_ttl_sec": 60}


def becomes(read):
    """All that a configuration sets, without what is said about it."""
    return {**vars(read), "mistakes": None}


def named(lines, name):
    """Whether the key is named by a sentence, and not as one that does not exist."""
    found = [line for line in lines if re.search(rf"(^|[ .]){re.escape(name)}: \S+ \S", line)]
    assert not any("does not have" in line or "no such key" in line or "unknown" in line for line in found), found
    return bool(found)


def test_every_key_of_lmcache_is_honoured_mapped_or_named(tmp_path):
    def read(keys=(), extra=()):
        extra = {**AROUND_EXTRA, **dict(extra)}
        return connector(written(tmp_path, {**AROUND, "extra_config": extra, **dict(keys)}))

    plain, silent = read(), []
    for name, value in KEYS.items():
        one = read(keys={name: value})
        if not named(one.mistakes, name) and becomes(one) == becomes(plain):
            silent.append(name)
    for name, value in EXTRA.items():
        one = read(extra={name: value})
        if not named(one.mistakes, f"extra_config.{name}") and becomes(one) == becomes(plain):
            silent.append(f"extra_config.{name}")
    assert silent == []


def test_every_older_name_and_every_key_of_vllms_is_known(tmp_path):
    page = (pathlib.Path(__file__).parents[2] / "cache/python/LMCACHE.md").read_text()
    newer = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|$", page.partition("Older names")[2], re.M))
    assert sorted(newer) == sorted(OLDER) and set(newer.values()) <= KEYS.keys()
    for name in OLDER:
        old, new = (
            becomes(connector(written(tmp_path, {**AROUND, key: KEYS[newer[name]]}))) for key in (name, newer[name])
        )
        assert old == new, name
    for name in VLLM:
        read = connector(None, extra={name: 1})
        assert named(read.mistakes, name) and len(read.mistakes) == 1, (name, read.mistakes)


# --- broken files ---------------------------------------------------------------------------------

# What the file holds; line and column; key ("": none can be named); words of the message.
BROKEN = {
    "wrong type": ("chunk_size: big\n", "1:13", "chunk_size", "expected a whole number of tokens from 1 to"),
    "truth value as a number": ("a_b: 1\nchunk_size: true\n", "2:13", "chunk_size", "found `true`, expected a whole"),
    "list for a text": ("local_disk: [/a]\n", "1:13", "local_disk", "found a list, expected text"),
    "unknown key": ("chunk_size: 64\nmax_local_cpu_sise: 5\n", "2:1", "max_local_cpu_sise",
                    "did you mean `max_local_cpu_size`?"),
    "duplicate key": ("chunk_size: 64\nchunk_size: 128\n", "2:1", "chunk_size", "a second time, expected once: first given in line 1"),
    "bad YAML": ("chunk_size: 256\n  local_cpu: true: x\n", "2:", "", "not valid YAML"),
    "tab": ("extra_config:\n\tuse_odirect: true\n", "2:1", "", "found a tab, expected spaces"),
    "not a mapping": ("- chunk_size\n", "1:1", "", "found a list, expected keys such as `chunk_size: 256`"),
    "zero tokens": ("chunk_size: 0\n", "1:13", "chunk_size", "found `0`, expected a whole number of tokens from 1"),
    "negative size": ("max_local_cpu_size: -1\n", "1:21", "max_local_cpu_size", "expected a number of GiB from 0 to"),
    "absurd size": ("max_local_cpu_size: 1e9\n", "1:21", "max_local_cpu_size", "a number of GiB from 0 to 65536"),
    "wrong unit": ("max_local_cpu_size: 512MB\n", "1:21", "max_local_cpu_size", "without a unit; did you mean `0.5`?"),
    "no size of the disk": ("local_disk: /a\n", "1:13", "local_disk", "without `max_local_disk_size`, expected its size"),
    "bad URL": ("remote_url: localhost:6379\n", "1:13", "remote_url", "expected a URL such as redis://HOST:6379"),
    "bad port": ("remote_url: redis://h:port\n", "1:13", "remote_url", "expected HOST:PORT"),
    "unsupported remote": ("remote_url: s3://bucket\n", "1:13", "remote_url", "there is no shared tier"),
    "cachegen": ("remote_serde: cachegen\n", "1:15", "remote_serde", "found `cachegen`, which cannot be had"),
    "layerwise": ("use_layerwise: True\n", "1:16", "use_layerwise", "ignored: chunks are copied whole"),
    "P2P": ("enable_p2p: true\np2p_host: h\n", "1:13", "enable_p2p", "which cannot be had: share chunks by `remote_url`"),
    "PD": ("enable_pd: true\npd_role: sender\n", "1:12", "enable_pd", "which cannot be had: nothing is sent"),
    "blending": ("enable_blending: true\nblend_recompute_ratios: [0.4]\n", "2:25", "blend_recompute_ratios",
                 "found a list, expected"),
    "tags": ("lmcache.tag.user: alice\n", "1:1", "lmcache.tag.user", "tags are of requests, and ignored here"),
    "word for a truth value": ("save_decode_cache: 'yes'\n", "1:20", "save_decode_cache", "expected true or false"),
    "unknown policy": ("cache_policy: LUR\n", "1:15", "cache_policy", "expected one of LRU, LFU, FIFO, MRU"),
    "extra config": ("extra_config: [1]\n", "1:15", "extra_config", "found a list, expected a mapping of keys"),
    "unknown extra": ("extra_config: {use_cufile: true}\n", "1:28", "extra_config.use_cufile", "ignored"),
    "wrong extra": ("extra_config: {use_odirect: 5}\n", "1:29", "extra_config.use_odirect", "expected true or false"),
    "controller without a URL": ("enable_controller: true\n", "1:20", "enable_controller", "expected `controller_pull_url`"),
    "alias": ("chunk_size: &a 64\nmin_retrieve_tokens: *a\n", "2:22", "min_retrieve_tokens", "found the alias"),
    "binary": (bytes(range(256)), "1:1", "", "expected UTF-8 text"),
    "a control character": ('local_disk: "/a\\u0007"\nmax_local_disk_size: 1\n', "1:13", "local_disk",
                            "a path without control characters"),
}  # fmt: skip
TOLD = {"layerwise", "unknown extra"}  # nothing is wrong with them


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_gives_a_clear_message_and_the_rest_applies(tmp_path, name):
    content, place, key, says = BROKEN[name]
    path = written(tmp_path, content)
    read = connector(path, {"LMCACHE_LOOKUP_TIMEOUT_MS": "77"})
    start = f"{path}:{place}"
    lines = [line for line in read.mistakes if line.startswith(start) and says in line]
    assert len(lines) == 1, read.mistakes
    assert f" {key}: " in lines[0] or not key
    assert read.lookup_timeout_s == 0.077
    cache = library.Cache([read.yaml, '{"l1": {"capacity": "16MiB"}}'])  # the library takes what comes out
    assert cache.mistakes == ""
    cache.close()
    run = check(path, variables={"LMCACHE_LOOKUP_TIMEOUT_MS": "77"})
    assert lines[0] in run.stderr.splitlines()
    assert run.returncode == (0 if name in TOLD else 1)
    assert '"lookup_timeout_ms": 77' in run.stdout


UNREADABLE = [
    ("/none.yaml", "No such file or directory"),
    ("/proc/self/mem", "cannot be read"),
    ("/tmp", "Is a directory"),
]


@pytest.mark.parametrize("path, says", UNREADABLE)
def test_a_file_that_cannot_be_read(path, says):
    read = connector(path, {"LMCACHE_CHUNK_SIZE": "32"})
    assert len(read.mistakes) == 1 and read.mistakes[0].startswith(f"LMCACHE_CONFIG_FILE: `{path}` ")
    assert says in read.mistakes[0] and read.chunk_tokens == 32
    run = check(variables={"LMCACHE_CONFIG_FILE": path, "LMCACHE_CHUNK_SIZE": "32"})
    assert run.returncode == 1 and read.mistakes[0] in run.stderr.splitlines()
    assert check(path).returncode == 3


VARIABLES = [
    ("LMCACHE_CHUNK_SIZE", "x", "found `x`, expected a whole number"),
    ("LMCACHE_MAX_LOCAL_CPU_SISE", "5", "did you mean `max_local_cpu_size`?"),
    ("LMCACHE_LOCAL_CPU", "yes", "expected true or false"),
    ("LMCACHE_EXTRA_CONFIG", "{use_odirect", "not valid YAML"),
    ("LMCACHE_EXTRA_CONFIG", "[1]", "expected a mapping"),
    ("LMCACHE_REMOTE_URL", "redis://\udcff", "found bytes that are not UTF-8"),
]


@pytest.mark.parametrize("name, value, says", VARIABLES)
def test_a_wrong_variable(name, value, says):
    read = connector(None, {name: value, "LMCACHE_LOOKUP_TIMEOUT_MS": "77"})
    assert any(line.startswith(name) and says in line for line in read.mistakes), read.mistakes
    assert read.lookup_timeout_s == 0.077
    run = check(variables={name: value, "LMCACHE_LOOKUP_TIMEOUT_MS": "77"})
    assert run.returncode == 1 and says in run.stderr


def test_vllms_own_configuration_has_keys_of_other_modes_and_wrong_ones():
    read = connector(None, extra={"lmcache.mp.host": "tcp://h", "lmcache.chunk_sise": 5, "lmcache.x": 1, "chunk_size": 32})
    assert len(read.mistakes) == 3 and read.chunk_tokens == 32
    for says in ("lmcache.mp.host: ignored", "did you mean `chunk_size`?", "lmcache.x: found a key that LMCache"):
        assert any(says in line for line in read.mistakes), (says, read.mistakes)


def test_a_library_that_is_not_there(monkeypatch):
    monkeypatch.setenv("KVTIER_LIBRARY", "/none/libkvtier.so")
    read = connector(None, {"LMCACHE_CHUNK_SIZE": "32"})
    assert "LMCache's configuration is not read" in read.mistakes[0]
    assert settings.read({}, {}).mistakes == []


def test_what_requests_say_to_lmcache_is_logged_once():
    told = []
    look = lmcache.Requests(types.SimpleNamespace(warning=lambda form, *args: told.append(form % args))).look
    for params in (None, {}, {"do_remote_decode": True}, {"lmcache.tag.user": "a"}, {"lmcache.skip_save": True}):
        look(types.SimpleNamespace(kv_transfer_params=params))
    look(types.SimpleNamespace())
    assert len(told) == 1 and "'lmcache.tag.user'" in told[0] and "cache_salt" in told[0]


# --- whose file it is -----------------------------------------------------------------------------


def test_check_knows_whose_file_it_is(tmp_path):
    ours = tmp_path / "lmcache_like.yaml"
    ours.write_text("l1: {capacity: 64MiB}\n")
    assert "LMCache" not in check(ours).stdout
    named = tmp_path / "any.yaml"
    named.write_text("remote_serde: naive\n")
    assert "# LMCache's configuration of" in check(named).stdout
    named.write_text("max_local_cpu_sise: 1\n")
    assert "did you mean `max_local_cpu_size`?" in check(named).stderr
    named.write_text("qwertz: 1\n")
    assert "expected one of fingerprint" in check(named).stderr
    assert "that LMCache does not have" in check("--lmcache", named).stderr
    assert check("--ranks", "0", named).returncode == 2


def test_the_log_says_in_lmcaches_words_whether_the_cache_works(engine_of, caplog):  # noqa: F811
    """HyperPod's page has its readers grep for "LMCache" and shows these two lines."""
    caplog.set_level("INFO")

    def said():
        (line,) = (record.getMessage() for record in caplog.records if "kvtier" in record.getMessage())
        caplog.clear()
        return line

    def registered(capacity):
        engine = engine_of({"l1": {"capacity": capacity}})
        engine.one.why_not, engine.one.worker = None, types.SimpleNamespace()
        caplog.clear()
        engine.one.register_kv_caches(engine.layers())
        return said()

    begins, ends = "Failed to initialize LMCacheManager components: ", ". System will operate in degraded mode (recompute)."
    assert registered("1MiB").startswith("LMCacheManager initialized successfully (kvtier ")
    for failed in (registered("60TiB"), unfit(engine_of({}), said)):
        assert failed.startswith(begins) and failed.endswith(ends) and len(failed) > len(begins + ends) + 30
    engine = engine_of({})
    engine.one.plan = None
    engine.one.give_up(ValueError("a surprise"))
    later = said()
    assert "LMCache" in later and "a surprise" in later and later.endswith(ends)


def unfit(engine, said):
    """What a connector says of a vLLM that lacks what it needs, as these stand-ins do."""
    engine.module.KVTierConnector(engine.config, "worker", None)
    return said()
