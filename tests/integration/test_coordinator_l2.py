"""What a coordinator owes the shared L2 of LMCache's servers: quotas, pins, deletions, and eviction."""

import json
import os
import random
import select
import socket
import time

import pytest

from rig.client import ask
from rig.kvaware import SHOWN, complete, ids, wait_coverage, wait_log
from rig.lmcache_node import LMCacheNode, SharedL2
from rig.lmcache_server import LMCacheServer
from rig.sim import Sim
from rig.wait import Port, until, unused_port

CHUNK = 16
GIB = 1 << 30
# Nodes send no heartbeats.
PATIENT = {"kvaware.lmcache.l2_size": "10000", "kvaware.lmcache.heartbeat_timeout": "10m"}
LONG_SECONDS = float(os.environ.get("KVW_L2_SECONDS", "0"))


@pytest.fixture
def stage(tmp_path, kvway, request):
    """stage(config): a router; its node() is a server that mounts the shared L2."""
    port, opened = Port(), []

    class Stage:
        address = f"127.0.0.1:{port.number}"

        def __init__(self, config=None):
            sim = Sim(tmp_path, 1)
            opened.append(sim.kill)
            self.workers, self.l2 = sim.workers, SharedL2()
            self.config = {
                **SHOWN, "kvaware.lmcache.coordinator": self.address,
                "kvaware.lmcache.chunk_size": str(CHUNK), **(config or {}),
            }  # fmt: skip
            self.start()

        def start(self):
            self.router = kvway(self.workers, self.config)

        def kill(self):
            self.router.kill()
            request.node.routers.remove(self.router)

        def node(self, name="mp-one", **more):
            node = LMCacheNode(self.address, name, chunk=CHUNK, blake3=True, l2=self.l2, **more)
            opened.append(node.close)
            node.register()
            return node

        def count(self, what):
            return self.router.metric("kvway_kvaware_coordinator_total", what=what)

        def gauge(self, what):
            return self.router.metric("kvway_kvaware_coordinator", what=what)

    yield Stage
    for close in reversed(opened):
        close()
    port.close()


def tokens_body(node, prompt, **more):
    return {"model_name": node.model, "world_size": node.ranks, "token_ids": prompt, **more}


def bodies(node, method, path):
    """What the server was asked so."""
    return [body for asked, at, body in node.asked if (asked, at) == (method, path)]


def test_quotas_are_set_and_read_as_lmcache_answers(stage):
    node = stage().node()
    assert node.ask("GET", "/quota/config") == (200, {"default_limit_gb": None})
    assert node.ask("PUT", "/quota/config", {"default_limit_gb": 1.5}) == (200, {"default_limit_gb": 1.5})
    assert node.ask("PUT", "/quota/config", {}) == (200, {"default_limit_gb": None})
    assert node.ask("PUT", "/quota/t-a", {"limit_gb": 0.5}) == (
        200, {"cache_salt": "t-a", "limit_gb": 0.5, "status": "ok"})  # fmt: skip
    node.write(ids(1, 2 * CHUNK), salt="t-a", size=1 << 20)
    node.write(ids(1, CHUNK), size=1 << 20)
    usage = {"cache_salt": "t-a", "quota_limit_gb": 0.5, "quota_exists": True, "usage_gb": 2 / 1024}
    bare = {"cache_salt": "", "quota_limit_gb": 0.0, "quota_exists": False, "usage_gb": 1 / 1024}
    assert node.ask("GET", "/quota/t-a") == (200, usage)
    assert node.ask("GET", "/quota/_default") == (200, bare)
    assert node.ask("GET", "/quota") == (200, {"total_gb": 3 / 1024, "by_cache_salt": [bare, usage]})
    assert node.ask("GET", "/quota?tier=l1") == (200, {"total_gb": 0.0, "by_cache_salt": []})
    assert node.ask("GET", "/quota?tier=all")[0] == 400
    assert node.ask("GET", "/quota?tier=x")[0] == 422
    assert node.ask("PUT", "/quota/t-a", {"limit_gb": 1, "tier": "l1"})[0] == 400
    assert node.ask("PUT", "/quota/t-a", {"limit_gb": -1})[0] == 422
    assert node.ask("PUT", "/quota/t-a", {})[0] == 422
    assert node.ask("POST", "/quota/t-a", {})[0] == 405
    for status in ("removed", "not_found"):
        assert node.ask("DELETE", "/quota/t-a") == (
            200, {"cache_salt": "t-a", "limit_gb": 0.0, "status": status})  # fmt: skip


def test_pins_count_and_hold_every_rank(stage):
    node = stage().node(ranks=2)
    body = tokens_body(node, ids(2, 3 * CHUNK + 3), cache_salt="t-a")
    for status in ("pinned", "pinned"):
        assert node.ask("POST", "/cache/pins", body) == (200, {"requested": 3, "affected": 6, "status": status})
    status, page = node.ask("GET", "/cache/pins?limit=2&offset=1&cache_salt=t-a")
    assert page["total"] == 6
    assert [(p["key"]["kv_rank"] >> 16 & 255, p["pin_count"]) for p in page["pins"]] == [(1, 2), (0, 2)]
    assert node.ask("GET", "/cache/pins?model_name=other") == (200, {"total": 0, "pins": []})
    for left in (6, 0):
        assert node.ask("DELETE", "/cache/pins", body)[1] == {"requested": 3, "affected": 6, "status": "unpinned"}
        assert node.ask("GET", "/cache/pins")[1]["total"] == left
    for salt, answer in (("a/b", 400), ("\u5bc6" * 128, 200), ("\u5bc6" * 129, 400)):
        assert node.ask("POST", "/cache/pins", {**body, "cache_salt": salt})[0] == answer
    many = {**body, "token_ids": [1] * 1029 * CHUNK, "world_size": 255}
    assert [node.ask(method, "/cache/pins", many)[0] for method in ("POST", "DELETE")] == [400, 400]
    assert node.ask("POST", "/cache/pins", {"model_name": "m", "token_ids": []})[0] == 422


def test_a_deletion_goes_to_the_named_server_and_spares_pins(stage):
    s = stage()
    node = s.node()
    prompt = ids(3, 4 * CHUNK)
    node.write(prompt)
    body = tokens_body(node, prompt, instance_id=node.instance)
    node.ask("POST", "/cache/pins", tokens_body(node, prompt[: 2 * CHUNK]))
    answer = {"instance_id": "mp-one", "requested": 4, "affected": 2, "skipped": 2, "status": "deleted"}
    assert node.ask("POST", "/cache/delete", body) == (200, answer)
    (sent,) = bodies(node, "DELETE", "/cache/objects")
    assert (sent["tier"], sent["force"], len(sent["keys"])) == ("all", False, 2)
    assert len(s.l2.sizes) == 2
    answer = {**answer, "affected": 4, "skipped": 0}
    assert node.ask("POST", "/cache/delete", {**body, "force": True}) == (200, answer)
    assert node.ask("GET", "/cache/pins")[1]["total"] == 0
    assert node.ask("POST", "/cache/delete", {**body, "token_ids": [1]})[1]["status"] == "noop"
    assert node.ask("POST", "/cache/delete", {**body, "instance_id": "other"})[0] == 404
    for node.fault in ("refuse", "garbage", "flood"):
        assert node.ask("POST", "/cache/delete", body)[0] == 502


def test_a_prefetch_is_passed_on_and_its_status_back(stage):
    node = stage().node()
    body = tokens_body(node, ids(4, 3 * CHUNK), instance_id=node.instance, cache_salt="t-a")
    assert node.ask("POST", "/cache/prefetches", body) == (
        200, {"instance_id": "mp-one", "request_id": "r-1", "chunks": 3, "status": "submitted"})  # fmt: skip
    del body["instance_id"]
    assert bodies(node, "POST", "/cache/prefetches") == [body]
    assert node.ask("GET", "/cache/prefetches/mp-one/r-1")[1]["status"] == "completed"
    assert node.ask("GET", "/cache/prefetches/mp-one/r-2") == (404, {"detail": "unknown request_id"})
    assert node.ask("GET", "/cache/prefetches/other/r-1")[0] == 404
    assert node.ask("POST", "/cache/prefetches", {**body, "instance_id": "other"})[0] == 404
    LMCacheServer.register(node, port=unused_port())
    assert node.ask("GET", "/cache/prefetches/mp-one/r-1")[0] == 502


def test_what_was_used_last_stays_and_a_prompts_beginning_outlives_its_end(stage):
    s = stage()
    node = s.node()
    prompts = [ids(seed, 4 * CHUNK) for seed in range(10, 15)]
    for prompt in prompts:
        node.write(prompt)
    first = node.entries(prompts[0])
    node.report("access", [{"key": e["key"]} for e in first], tier="l2", backend="")
    assert node.ask("PUT", "/quota/_default", {"limit_gb": 20000 / GIB})[0] == 200
    until(lambda: s.l2.used() == 16000, 10, "a fifth of the quota to be free")
    second = node.entries(prompts[1])
    assert [s.l2.has(e["key"]) for e in first] == [True] * 4
    assert [s.l2.has(e["key"]) for e in second] == [False] * 4
    node.write(ids(16, 5 * CHUNK))
    until(lambda: s.l2.used() <= 16000, 10, "the quota to be kept")
    third = [s.l2.has(e["key"]) for e in node.entries(prompts[2])]
    assert third == sorted(third, reverse=True)
    until(lambda: s.count("evicted") == s.count("evicted_bytes") / 1000 > 0, 5, "the metrics to follow")
    assert node.ask("GET", "/directory/stats")[1]["l2_size_bytes"] == s.l2.used()


def test_a_quota_of_nothing_empties_a_salt_and_no_other(stage):
    s = stage()
    node = s.node()
    node.write(ids(20, 4 * CHUNK), salt="t-a")
    node.write(ids(20, 4 * CHUNK), salt="t-b")
    assert node.ask("PUT", "/quota/t-a", {"limit_gb": 0})[0] == 200
    until(lambda: s.l2.used("t-a") == 0, 10, "the salt to be emptied")
    assert s.l2.used("t-b") == 4000
    assert node.ask("PUT", "/quota/config", {"default_limit_gb": 0})[0] == 200
    until(lambda: s.l2.used() == 0, 10, "salts without a quota to be emptied")


@pytest.mark.parametrize("fault", ["refuse", "garbage", "flood", "deny"])
def test_another_server_deletes_when_one_fails(stage, fault):
    s = stage({"kvaware.lmcache.l2_size": "10000"})
    bad, good = s.node("mp-bad"), s.node("mp-good")
    bad.fault = fault
    bad.write(ids(30, 10 * CHUNK))
    until(lambda: s.l2.used() <= 8000, 20, "the shared L2 to shrink")
    until(lambda: s.count("eviction_failures") >= 1, 5, "the metric to follow")
    assert any(method == "DELETE" for method, _, _ in good.asked)
    bad.fault = None
    good.leave()
    bad.write(ids(31, 5 * CHUNK))
    until(lambda: s.l2.used() <= 9000, 20, "the first server to be asked again")


def test_requests_at_a_server_that_hangs_do_not_stop_eviction(stage):
    s = stage({"kvaware.lmcache.l2_size": "10000"})
    bad, good = s.node("mp-bad"), s.node("mp-good")
    bad.fault = "hang"
    body = json.dumps(tokens_body(bad, ids(32, CHUNK), instance_id="mp-bad")).encode()
    head = f"POST /cache/prefetches HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    clients = [socket.create_connection(s.address.split(":"), timeout=10) for _ in range(80)]
    for client in clients:
        client.sendall(head.encode() + body)
    until(lambda: len(select.select(clients, [], [], 0)[0]) >= 16, 10, "the last ones to be refused")
    assert all(b" 503 " in client.recv(100) for client in select.select(clients, [], [], 0)[0])
    good.write(ids(33, 10 * CHUNK))
    until(lambda: s.l2.used() <= 8000, 10, "the shared L2 to shrink")
    assert s.count("eviction_failures") == 0
    for client in clients:
        client.close()


def test_nothing_is_evicted_without_a_limit_or_when_switched_off(stage):
    s = stage({"kvaware.lmcache.l2_size": "1000", "kvaware.lmcache.l2_evict": "false"})
    node = s.node()
    node.write(ids(40, 10 * CHUNK))
    assert node.ask("PUT", "/quota/config", {"default_limit_gb": 0})[0] == 200
    node.write(ids(41, CHUNK))
    until(lambda: s.gauge("l2_shared_bytes") == 11000, 5, "the metric to follow")
    assert (s.gauge("l2_cap_bytes"), s.count("evictions"), s.l2.used()) == (1000, 0, 11000)


def test_the_declared_capacity_of_a_shared_pool_is_its_cap(stage):
    s = stage()
    node = s.node()
    node.send(
        node.batch("config", tier="l2", backend="fs", shared=True, capacity_bytes=10000, capacity_revision=1)
    )
    node.write(ids(50, 20 * CHUNK))
    until(lambda: s.l2.used() <= 8000, 10, "the shared L2 to shrink")
    until(lambda: s.gauge("l2_cap_bytes") == 10000, 5, "the metric to follow")


def test_one_replica_evicts_and_the_other_one_says_where_servers_report(stage, kvway, redis):
    port = Port()
    s = stage({**PATIENT, "replicas.redis": redis.url})
    second = f"127.0.0.1:{port.number}"
    other = kvway(s.workers, {**s.config, "kvaware.lmcache.coordinator": second})
    node = s.node()
    wait_coverage(s.router, s.workers, "lmcache", 1)  # it has reported nothing yet

    def told():
        (row,) = ask(other.admin_port, "GET", "/workers").json()
        return row["knowledge"], row["cache_told_by"]["lmcache"]["wrong"]

    until(lambda: told() == ("degraded/missed", told()[1]) and "another replica" in told()[1], 10, "the reason")
    astray = LMCacheNode(second, "mp-astray", chunk=CHUNK, blake3=True, l2=s.l2)
    astray.register()
    astray.write(ids(46, 12 * CHUNK))
    until(lambda: other.metric("kvway_kvaware_coordinator", what="l2_shared_bytes") == 12000, 5, "the metric")
    node.write(ids(47, 10 * CHUNK))
    until(lambda: s.count("evicted") >= 2, 10, "the first replica to evict")
    wait_log(other, "LMCache servers report to several replicas", seconds=40)
    assert other.metric("kvway_kvaware_coordinator_total", what="evictions") == 0
    s.kill()
    until(lambda: bodies(astray, "DELETE", "/cache/objects"), 20, "the second replica to evict")
    astray.close()
    port.close()


def test_a_process_that_was_killed_is_no_other_replica(stage, redis):
    """The next process waits for the duty of the one before, and the log has no mistake of the operator's."""
    s = stage({**PATIENT, "replicas.redis": redis.url})
    node = s.node()
    with redis.connect() as client:
        until(lambda: client.cmd("KEYS", "*:coordinator"), 10, "the duty")
    s.kill()
    s.start()
    node.register()
    node.write(ids(49, 12 * CHUNK))
    until(lambda: s.count("evictions") >= 1, 40, "the new process to evict")
    assert "several replicas" not in s.router.log()


def test_what_l2_held_before_is_listed_and_evicted(stage):
    """S3 can be listed: a kvway that knows nothing of it, and one that lost reports, still keeps its cap."""
    s = stage({"kvaware.lmcache.l2_size": "30000"})
    node = s.node()
    node.lists = True
    old = [entry["key"] for entry in node.entries(ids(90, 20 * CHUNK))]
    for key in old:
        s.l2.put(key, 1000)
    node.write(ids(91, 5 * CHUNK))

    def tokens():
        return [path.partition("page_token=")[2] for method, path, _ in node.asked if method == "GET"]

    until(lambda: tokens() == ["", "p%2F7", "p%2F14", "p%2F21"], 10, "the listing")
    until(lambda: (s.gauge("l2_shared_bytes"), s.count("listed")) == (25000, 20), 10, "the metrics to follow")
    node.write(ids(92, 2 * CHUNK))
    until(lambda: s.l2.used() == 24000, 10, "the oldest to be evicted")
    assert all(s.l2.has(e["key"]) for e in node.entries(ids(91, 5 * CHUNK)))
    assert sum(s.l2.has(key) for key in old) == 17
    other = s.node("mp-two")  # mounts the same pool, which was listed just now
    other.lists = True
    other.write(ids(93, CHUNK))
    until(lambda: len(other.asked) == 1, 10, "the other one to be asked")
    lost = node.entries(ids(94, CHUNK))[0]["key"]
    s.l2.put(lost, 1000)
    node.batch("store", lost=True)
    node.write(ids(95, CHUNK))  # a gap
    until(lambda: s.count("listed") == 21, 10, "the second listing")
    until(lambda: s.gauge("l2_shared_bytes") == s.l2.used(), 10, "the metric to follow")


def test_a_server_that_fails_to_list_its_l2_does_not_keep_others_from_it(stage):
    s = stage({"kvaware.lmcache.l2_size": "1000000"})
    bad, good = s.node("mp-bad"), s.node("mp-good")
    bad.fault, good.lists = "refuse", True
    keys = [entry["key"] for entry in good.entries(ids(96, 3 * CHUNK))]
    for key in [*keys, {**keys[0], "model_name": "a@b"}]:  # with this one a whole deletion would be refused
        s.l2.put(key, 1000)
    bad.write(ids(97, CHUNK))
    until(lambda: bad.asked, 10, "the first server to be asked")
    good.write(ids(98, CHUNK))
    until(lambda: s.count("listed") == 3, 10, "the second server's L2 to be known")


def test_what_l2_alone_has_is_loaded_for_the_chosen_worker(stage):
    s = stage({"kvaware.lmcache.prefetch": "true"})
    node = s.node(ranks=2)
    node.config()
    node.store(ids(80, CHUNK))
    wait_coverage(s.router, s.workers, "lmcache")
    prompt = ids(81, 4 * CHUNK + 5)
    node.store(prompt[:CHUNK], salt="t-a")
    node.write(prompt[: 3 * CHUNK], salt="t-a")
    for _ in range(3):  # once for all of them
        complete(s.router, prompt, cache_salt="t-a")
    until(lambda: s.count("prefetched") == 1, 10, "the prefetch to be over")
    assert bodies(node, "POST", "/cache/prefetches") == [tokens_body(node, prompt[: 3 * CHUNK], cache_salt="t-a")]
    complete(s.router, prompt)  # another tenant's
    complete(s.router, ids(82, 4 * CHUNK))  # unknown
    complete(s.router, ids(80, CHUNK))  # in L1
    node.fault = "refuse"
    other = ids(83, 4 * CHUNK)
    node.write(other)
    complete(s.router, other)
    until(lambda: s.count("prefetch_failures") == 1, 10, "the failure to be counted")
    assert (len(bodies(node, "POST", "/cache/prefetches")), s.count("prefetches"), s.count("prefetch_skipped")) == (2, 2, 0)


def prefetching(stage):
    """A router that prefetches, and the server of its worker."""
    s = stage({"kvaware.lmcache.prefetch": "true"})
    node = s.node()
    node.config()
    node.store(ids(100, CHUNK))
    wait_coverage(s.router, s.workers, "lmcache")
    return s, node


def test_a_server_at_which_prefetches_are_in_vain_is_left_alone(stage):
    s, node = prefetching(stage)
    node.fault = "empty"
    for seed in range(101, 117):
        node.write(ids(seed, 2 * CHUNK))
        complete(s.router, ids(seed, 2 * CHUNK))
    until(lambda: s.count("prefetch_rests") == 1, 10, "the server to rest")
    node.fault = None
    for seed in range(117, 120):
        node.write(ids(seed, 2 * CHUNK))
        complete(s.router, ids(seed, 2 * CHUNK))
    node.write(ids(120, CHUNK))
    assert (s.count("prefetches"), s.count("prefetch_vain"), s.count("prefetched")) == (16, 16, 0)
    assert len(bodies(node, "POST", "/cache/prefetches")) == 16


def test_a_prefetch_that_runs_at_the_first_token_was_in_vain(stage):
    s, node = prefetching(stage)
    polls = lambda: len([1 for method, path, _ in node.asked if method == "GET" and "prefetches" in path])
    node.write(ids(121, 2 * CHUNK))
    node.fault = "loading"
    complete(s.router, ids(121, 2 * CHUNK))
    until(lambda: polls() >= 2, 10, "the server to be asked after the first token")
    node.fault = None
    until(lambda: s.count("prefetch_vain") == 1, 10, "the prefetch to be in vain")
    node.write(ids(122, 2 * CHUNK))
    complete(s.router, ids(122, 2 * CHUNK))
    until(lambda: s.count("prefetched") == 2, 10, "the next one to be over")
    assert (s.count("prefetch_vain"), s.count("prefetch_rests")) == (1, 0)


def test_nothing_is_prefetched_unless_it_is_switched_on(stage):
    s = stage()
    node = s.node()
    node.config()
    node.store(ids(84, CHUNK))
    wait_coverage(s.router, s.workers, "lmcache")
    node.write(ids(85, 4 * CHUNK))
    complete(s.router, ids(85, 4 * CHUNK))
    node.write(ids(86, CHUNK))
    assert bodies(node, "POST", "/cache/prefetches") == []


def know(s, node):
    """Quotas, pins, and chunks in both tiers."""
    prompt = ids(70, 4 * CHUNK)
    node.config()
    node.store(ids(71, 3 * CHUNK))
    for _ in range(2):
        node.write(prompt, salt="t-a")
        assert node.ask("POST", "/cache/pins", tokens_body(node, prompt[:CHUNK], cache_salt="t-a"))[0] == 200
    node.write(ids(72, 4 * CHUNK), salt="t-a")
    assert node.ask("PUT", "/quota/t-a", {"limit_gb": 1})[0] == 200
    wait_coverage(s.router, s.workers, "lmcache")
    paths = ("/quota", "/cache/pins", "/directory/stats", "/instances", "/instances/usage")
    return {path: node.ask("GET", path) for path in paths}


def test_a_kvway_that_starts_again_knows_what_it_knew(stage, tmp_path):
    s = stage({"state.file": str(tmp_path / "state")})
    node = s.node()
    before = know(s, node)
    s.router.stop()
    s.start()
    assert {path: node.ask("GET", path) for path in before} == before
    assert node.beat() == 200
    wait_coverage(s.router, s.workers, "lmcache")
    node.store(ids(73, CHUNK))
    assert node.ask("PUT", "/quota/t-a", {"limit_gb": 5000 / GIB})[0] == 200
    until(lambda: s.l2.used() == 4000, 10, "the quota to be kept")
    assert s.l2.has(node.entries(ids(70, CHUNK), salt="t-a")[0]["key"])
    wait_coverage(s.router, s.workers, "lmcache")
    assert s.count("gaps") == 0
    s.router.stop()
    s.start()
    node.batch("store", lost=True)  # while none was there
    node.store(ids(74, CHUNK))
    wait_coverage(s.router, s.workers, "lmcache", 1)


def test_a_reload_changes_how_often_a_snapshot_is_written(stage, tmp_path):
    s = stage({"state.file": str(tmp_path / "state"), "state.interval": "24h"})
    file = s.router.config_path
    file.write_text(file.read_text().replace("24h", "1s"))
    assert ask(s.router.admin_port, "POST", "/reload").status == 200
    until(lambda: s.count("snapshots") >= 1, 10, "a snapshot")


def test_a_killed_kvway_finds_its_last_snapshot(stage, tmp_path):
    s = stage({"state.file": str(tmp_path / "state"), "state.interval": "1s"})
    before = know(s, s.node())
    written = s.count("snapshots")
    until(lambda: s.count("snapshots") >= written + 2, 10, "a snapshot")
    s.kill()
    s.start()
    client = LMCacheServer(s.address)
    assert {path: client.ask("GET", path) for path in before} == before


def test_a_damaged_snapshot_is_no_fault(stage, tmp_path):
    path = tmp_path / "state.lmcache"
    s = stage({"state.file": str(tmp_path / "state")})
    node = s.node()
    know(s, node)
    s.router.stop()
    whole = path.read_bytes()
    path.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    s.start()
    assert "the directory starts empty" in s.router.log()
    assert node.ask("GET", "/instances") == (200, {"instances": []})


def test_a_shared_l2_under_writes_stays_below_its_cap(stage):
    """Three tenants, one with a quota, write from two nodes for a while; KVW_L2_SECONDS: that long.

    They write half of the cap in a second and more, so they wait when eviction has to catch up: it must, each time.
    """
    cap, quota = 8_000_000, 2_000_000
    s = stage({"kvaware.lmcache.l2_size": str(cap)})
    nodes = [s.node("mp-one"), s.node("mp-two")]
    chance = random.Random(5)
    pinned = ids(60, 20 * CHUNK)
    nodes[0].write(pinned, salt="t-a")
    assert nodes[0].ask("POST", "/cache/pins", tokens_body(nodes[0], pinned, cache_salt="t-a"))[0] == 200
    assert nodes[0].ask("PUT", "/quota/t-b", {"limit_gb": quota / GIB})[0] == 200
    kept = [entry["key"] for entry in nodes[0].entries(pinned, salt="t-a")]
    end, rounds, most = time.monotonic() + LONG_SECONDS, 0, 0
    while rounds < 400 or time.monotonic() < end:
        rounds += 1
        node, salt = chance.choice(nodes), chance.choice(["t-a", "t-b", "t-c"])
        node.fault = "refuse" if rounds % 97 == 0 else None
        node.write(chance.choices(range(1 << 31), k=10 * CHUNK), salt=salt, size=chance.randrange(500, 4000))
        most = max(most, s.l2.used("t-b"))
        assert s.l2.most < cap
        until(lambda: s.l2.used() < 0.95 * cap and s.l2.used("t-b") <= quota, 20, "eviction to catch up")
        if rounds % 10 == 0:
            assert [node.beat() for node in nodes] == [200, 200]
    assert most <= 1.05 * quota
    assert all(s.l2.has(key) for key in kept)
    assert s.l2.used() > cap / 2
    until(lambda: s.gauge("l2_shared_bytes") == s.l2.used(), 10, "deletions to be reported")
    assert (s.gauge("l2_deleting_bytes"), s.count("forgotten")) == (0, 0)
    assert s.count("evicted") > 100
