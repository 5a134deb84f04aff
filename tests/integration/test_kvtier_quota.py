"""One tenant floods the shared tier: it loses its own chunks, never another's; kvtierd and Redis, over restarts."""

import json
import signal
import subprocess

import pytest
from rig.client import Client
from rig.kvtier_share import CHUNKS
from rig.kvtierd import Kvtierd
from rig.redis import SERVER
from rig.router import BUILD
from rig.sharing import Engine
from rig.wait import until

KVTIER = BUILD / "cache/command/kvtier"
MODEL = "cd" * 32
QUIET = [f"quiet {n}" for n in range(4)]
FLOOD = [f"flood {n}" for n in range(40)]  # 160 chunks of 33 KiB on average
QUOTA = 2 << 20
PAGES = 64 << 10  # a chunk's room on disk comes in these


@pytest.fixture
def engine(tmp_path):
    """engine(**sections): a process over a memory of its own that is too small for anything to be found there."""
    made = []

    def make(**sections):
        shared = {"missing_time": "0s", "seen_time": "10ms", "deadline": "20s", "lease_time": "1s"}
        shared |= sections.pop("l2")
        made.append(Engine(tmp_path, f"engine{len(made)}", {"l1": {"capacity": "1MiB"}, "l2": shared, **sections}))
        return made[-1].ready()

    yield make
    for one in made:
        one.kill()


def put(engine, salt, prompts, daemon=None):
    """One at a time: what waits for the daemon's disk cannot make room for its tenant."""
    engine.ask("owner", salt)
    for prompt in prompts:
        assert engine.ask("put", prompt)["drained"]
        if daemon is not None:
            until(lambda: daemon.metric("kvtier_tier_leased_chunks", tier="l1") == 0, 20, "all on disk")


def has_all(engine, prompts, what):
    """An engine that stands still for longer than its lease on a chunk, on a busy machine, has a miss: it asks again."""
    until(lambda: engine.get(*prompts) == CHUNKS * len(prompts), 20, what)


def check(engine):
    """Another engine finds all that the quiet one has, and of the flood the latest."""
    has_all(engine, QUIET, "all of the quiet one")
    has_all(engine, FLOOD[-4:], "the latest of the flood")
    assert engine.get(*FLOOD) < CHUNKS * len(FLOOD) / 2


def kvtier(*arguments):
    run = subprocess.run([KVTIER, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def tenants_of(path):
    """What each tenant has, of a store that the daemon owns."""
    (one,) = json.loads(kvtier("stat", "--json", path))
    return {tenant["tenant"]: tenant for tenant in one["tenants"]}


@pytest.fixture
def daemon(tmp_path, request):
    daemon = Kvtierd(tmp_path, {
        "segment.size": "16MiB", "lease.ttl_max": "1s",
        "cache.nvme.path": str(tmp_path / "shared"), "cache.nvme.capacity": "64MiB", "cache.nvme.sync_time": "20ms",
        "cache.protect.tenant_l1_bytes": QUOTA, "cache.protect.tenant_nvme_bytes": 2 * QUOTA,
        "cache.protect.tenant_metrics": 8, **getattr(request, "param", {}),
    })  # fmt: skip
    try:
        yield daemon.wait_up()
        daemon.stop()
    finally:
        daemon.remove()


def test_a_flood_in_kvtierd(daemon, engine, tmp_path):
    shared = {"l2": {"url": daemon.url, "segment": daemon.segment_name}}
    one = engine(**shared)
    put(one, "quiet", QUIET, daemon)
    put(one, "flood", FLOOD, daemon)
    check(engine(**shared))
    assert daemon.metric("kvtier_tenant_evictions_total", tier="l1") > 0
    until(lambda: len(tenants_of(tmp_path / "shared")) >= 2, 10, "both on disk")
    hash_of = {salt: one.ask("hash", salt)["hash"] for salt in ("quiet", "flood")}
    for how in (signal.SIGTERM, signal.SIGKILL):
        found = tenants_of(tmp_path / "shared")
        assert found[hash_of["flood"]]["disk_bytes"] <= 2 * QUOTA, found
        assert found[hash_of["quiet"]]["chunks"] == CHUNKS * len(QUIET), found
        daemon.popen.send_signal(how)
        daemon.popen.wait()
        daemon.start()
        daemon.wait_up()
        other = engine(**shared)
        has_all(other, QUIET, "the quiet one's chunks from disk")
    put(other, "flood", FLOOD, daemon)
    check(engine(**shared))
    kvtier("erase", "--tenant", "flood", "--yes", tmp_path / "shared")
    # A chunk in memory that an engine read a moment ago goes when its lease ends.
    until(lambda: hash_of["flood"] not in tenants_of(tmp_path / "shared"), 20, "nothing of the flood in the account")
    other = engine(**shared)
    assert other.get(*FLOOD) == 0
    has_all(other, QUIET, "all of the quiet one")


def account(daemon, tenant):
    """Chunks that count for a tenant, by tier."""
    return {
        dict(labels)["tier"]: int(value)
        for (name, labels), value in daemon.metrics().items()
        if name == "kvtier_tenant_chunks" and dict(labels)["tenant"] == tenant
    }


def test_what_an_engine_erases_leaves_the_account(daemon, engine, tmp_path):
    """Also over a kill, of all models; other tenants keep what they have."""
    shared = {"l2": {"url": daemon.url, "segment": daemon.segment_name}}
    one, other_model = engine(**shared), engine(**shared, fingerprint="ef" * 32)
    flood, quiet = (one.ask("hash", salt)["hash"] for salt in ("flood", "quiet"))
    put(one, "quiet", QUIET, daemon)
    put(one, "flood", FLOOD[:12], daemon)
    put(other_model, "flood", FLOOD[-1:], daemon)
    assert min(account(daemon, flood).values()) > 2 * CHUNKS
    config = tmp_path / "cache.yaml"
    config.write_text(json.dumps({"fingerprint": MODEL, **shared}))
    kvtier("erase", "--config", config, "--tenant", "flood", "--yes")
    until(lambda: account(daemon, flood) == {}, 10, "all of it gone")
    assert account(daemon, quiet) == {"l1": CHUNKS * len(QUIET), "nvme": CHUNKS * len(QUIET)}
    daemon.restart(kill=True)
    other = engine(**shared)
    has_all(other, QUIET, "the quiet one's chunks from disk")
    assert other.get(*FLOOD[:12]) == 0
    until(lambda: other_model.get(FLOOD[-1]) == 0, 20, "the other model's engine knows")
    before = daemon.metric("kvtier_tenant_evictions_total")
    put(other, "flood", FLOOD[:4], daemon)  # all of its room is free again
    assert daemon.metric("kvtier_tenant_evictions_total") == before
    has_all(engine(**shared), FLOOD[:4], "what was put again")


@pytest.mark.parametrize("daemon", [{"lease.ttl_max": "60s"}], indirect=True)
def test_a_tenant_at_its_quota_is_no_fault_of_the_tier(daemon, engine):
    """All that it has is leased, so what it puts is refused: its matter alone."""
    one = engine(l2={"url": daemon.url, "segment": daemon.segment_name})
    put(one, "flood", FLOOD[:20], daemon)
    admin = Client(daemon.admin_port, 10)
    (bucket,) = json.loads(admin.ask("GET", "/v1/buckets").body)["buckets"]
    path = f"/v1/kv/{bucket['bucket']}"
    names = [one["key"] for one in json.loads(admin.ask("GET", path).body)["objects"] if one["tier"] == "memory"]
    client = daemon.client()
    leased = [client.ask("POST", f"{path}/{name}/leases?timeout_ms=0&ttl_s=60").status for name in names]
    assert leased.count(200) > 8
    for prompt in FLOOD[20:]:
        one.ask("put", prompt)
    assert daemon.metric("kvtierd_refused_total", reason="quota") > 10
    assert daemon.metric("kvtierd_refused_total", reason="room") == 0
    assert one.ask("metric", "kvtier_tenant_refusals_total") > 10
    assert one.state("l2") == [1, ""]
    assert one.ask("metric", "kvtier_tier_breaker_trips_total") == 0
    assert one.ask("metric", "lmcache:lmcache_is_healthy") == 1
    put(one, "quiet", QUIET)
    has_all(engine(l2={"url": daemon.url, "segment": daemon.segment_name}), QUIET, "all of the quiet one")


@pytest.mark.skipif(SERVER is None, reason="no redis-server")
def test_a_flood_in_redis(redis, engine, tmp_path):
    shared = {"l2": {"url": redis.url}, "protect": {"tenant_l2_bytes": QUOTA, "tenant_metrics": 2}}
    one = engine(**shared)
    seen = engine(**shared, nvme={"path": str(tmp_path / "own"), "capacity": "16MiB"})
    put(one, "quiet", QUIET)
    put(one, "flood", FLOOD[:-1])
    put(seen, "flood", FLOOD[-1:])
    of = tenants_of(tmp_path / "own")[one.ask("hash", "flood")["hash"]]
    assert QUOTA / 2 < of["l2_bytes"] <= QUOTA and of["l2_chunks"] > CHUNKS == of["l1_chunks"]
    check(engine(**shared))
    assert one.ask("metric", "kvtier_tenant_evictions_total") > 0
    assert QUOTA / 2 < one.ask("metric", f'kvtier_tenant_used_bytes{{tier="l2",tenant="{one.ask("hash", "flood")["hash"]}"}}') <= QUOTA  # fmt: skip
    with redis.connect() as connection:
        values = [key for key in connection.keys() if b"{" in key]
        flood = sum(connection.cmd("STRLEN", key) for key in values)
    assert flood <= QUOTA + CHUNKS * len(QUIET) * PAGES
    config = tmp_path / "cache.yaml"
    config.write_text(json.dumps({"fingerprint": MODEL, **shared}))
    kvtier("erase", "--config", config, "--tenant", "flood", "--yes")
    other = engine(**shared)
    assert other.get(*FLOOD) == 0
    has_all(other, QUIET, "all of the quiet one")
    put(other, "flood", FLOOD[:8])  # in place of what was erased
    has_all(other, FLOOD[:8], "what was put in place of what was erased")


@pytest.mark.parametrize(
    "key, value, says",
    [
        ("tenant_l2_bytes", "much", "cache.yaml:1:{at}: protect.tenant_l2_bytes: found"),
        ("tenant_l2_bytes", "9999TiB", "protect.tenant_l2_bytes: found"),
        ("tenant_l2_bytes", "1GiB", "in the configuration of kvtierd"),
    ],
)
def test_bad_values_are_refused(tmp_path, key, value, says):
    config = tmp_path / "cache.yaml"
    text = f"{{l2: {{url: 'kvtierd://127.0.0.1:9200'}}, protect: {{{key}: {value}}}}}\n"
    config.write_text(text)
    run = subprocess.run([KVTIER, "check", config], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert says.format(at=text.index(value) + 1) in run.stderr + run.stdout, run.stderr + run.stdout
