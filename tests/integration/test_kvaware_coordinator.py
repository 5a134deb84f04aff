"""kvway as the coordinator of LMCache's multi-process mode: its routes, and what `kvaware` makes of what
LMCache servers report. The engines report nothing here."""

import json
import os
import pathlib
import signal

import pytest

from rig.client import ask
from rig.kvaware import SHOWN, complete, ids, wait_coverage, wait_log
from rig.lmcache_server import LMCacheServer
from rig.sim import Sim
from rig.wait import Port, until

CHUNK = 64
RECORD = pathlib.Path(__file__).parent / "data/lmcache/coordinator.jsonl"


def gauge(router, what):
    return router.metric("kvway_kvaware_coordinator", what=what)


def count(router, what):
    return router.metric("kvway_kvaware_coordinator_total", what=what)


@pytest.fixture
def stage(tmp_path, kvway):
    """stage(workers, config): two engines on this host and a router with a coordinator."""
    port = Port()
    sims = []

    class Stage:
        address = f"127.0.0.1:{port.number}"

        def __init__(self, count=2, more=None, names=()):
            sims.append(Sim(tmp_path, count))
            self.workers = sims[-1].workers
            rows = [{"url": w.url} for w in self.workers]
            for row, name in zip(rows, names):
                row["lmcache_instance"] = name
            config = {**SHOWN, "kvaware.lmcache.coordinator": self.address, "workers": rows}
            self.router = kvway(self.workers, {**config, **(more or {})})

        def server(self, *args, **more):
            server = LMCacheServer(self.address, *args, chunk=CHUNK, **more)
            server.register()
            server.config()
            return server

    yield Stage
    for sim in sims:
        sim.kill()
    port.close()


def test_recorded_servers_get_the_recorded_answers(stage):
    """What stock servers sent to the stock coordinator, kvway answers with the same bytes."""
    s = stage()
    client = LMCacheServer(s.address)
    exchanges = 0
    for line in RECORD.read_text().splitlines():
        record = json.loads(line)
        status, answer = client.ask(record["method"], record["path"], raw=record["body"].encode())
        assert status == record["status"], (record["path"], answer)
        if record["answer"]:
            assert answer == json.loads(record["answer"]), record["path"]
        exchanges += 1
    assert exchanges > 30
    assert client.ask("GET", "/healthz") == (200, {"status": "healthy"})
    status, stats = client.ask("GET", "/directory/stats")
    assert status == 200 and stats["num_keys"] == gauge_or_more(s.router, stats["num_keys"])
    assert b'lmcache_coordinator_key_directory_placements{tier="l1"}' in client.ask("GET", "/metrics")[1]


def gauge_or_more(router, wanted):
    until(lambda: gauge(router, "keys") == wanted, 5, "the metric to follow")
    return wanted


def test_a_chunk_in_a_servers_memory_is_a_hit_for_every_engine_of_its_node(stage):
    s = stage()
    server = s.server()
    prompt = ids(1, 10 * CHUNK + 7)
    wait_coverage(s.router, s.workers, "lmcache")
    assert predicted(s.router, prompt) == 0
    server.store(prompt[: 4 * CHUNK])
    seen = complete(s.router, prompt)
    assert (seen.predicted, seen.reason) == (4 * CHUNK, "kvaware")
    server.store(prompt)
    assert predicted(s.router, prompt) == 10 * CHUNK
    explained = explain(s.router, prompt)
    told = [w["cache_told_by"]["lmcache"] for w in explained["workers"]]
    assert [t["instance"] for t in told] == ["mp-one"] * 2
    assert [t["coverage"] for t in told] == ["full"] * 2
    assert [w["exact"] for w in explained["workers"]] == [True] * 2
    wait_log(s.router, "Routing request to mp-one found by kvaware router")
    server.delete(prompt[: 6 * CHUNK])
    assert predicted(s.router, prompt) == 0
    server.store(prompt[: 2 * CHUNK])
    assert predicted(s.router, prompt) == 2 * CHUNK


def explain(router, prompt, **more):
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1, **more}
    answer = ask(router.admin_port, "POST", "/explain?path=%2Fv1%2Fcompletions", body=body)
    assert answer.status == 200, answer
    return answer.json()


def predicted(router, prompt, **more):
    """What a request would find. Nothing is sent, so the router expects nothing of it either."""
    return explain(router, prompt, **more)["predicted_cached_tokens"]


def test_only_the_engines_of_the_servers_node_have_its_chunks(stage):
    s = stage(names=("mp-one", "mp-two"))
    one, two = s.server("mp-one"), s.server("mp-two")
    wait_coverage(s.router, s.workers, "lmcache")
    prompt, other = ids(2, 5 * CHUNK), ids(3, 5 * CHUNK)
    two.store(prompt)
    one.store(other)
    for _ in range(4):
        assert complete(s.router, prompt).worker == s.workers[1].url
        assert complete(s.router, other).worker == s.workers[0].url
    # A prompt ends before its last token is reused: 5 chunks, of which the last one loses one token.
    assert predicted(s.router, prompt) == 5 * CHUNK - 1


def test_all_ranks_must_hold_a_chunk(stage):
    s = stage(1)
    server = s.server(ranks=2)
    wait_coverage(s.router, s.workers, "lmcache")
    prompt = ids(4, 4 * CHUNK + 1)
    server.store(prompt, ranks=[0])
    assert predicted(s.router, prompt) == 0
    server.store(prompt[: 3 * CHUNK], ranks=[1])
    assert predicted(s.router, prompt) == 3 * CHUNK


@pytest.mark.parametrize("transfers", ["lmcache", "engine"])
def test_what_simulated_servers_report_is_what_their_engines_load(tmp_path, kvway, transfers):
    """Turns of chats on two kvsim workers whose devices forget all between turns: each prediction is
    within a chunk of the cached tokens. KVW_TURNS=500 for the long form."""
    port = Port()
    address = f"127.0.0.1:{port.number}"
    sim = Sim(
        tmp_path, 2, "--lmcache-coordinator", f"http://{address}", "--lmcache-chunk-size", CHUNK,
        "--lmcache-flush-s", 0.02, "--lmcache-transfers", transfers, "--lmcache-cpu-tokens", 40 * CHUNK,
    )  # fmt: skip
    rows = [{"url": w.url, "lmcache_instance": f"kvsim_{i}"} for i, w in enumerate(sim.workers)]
    config = {"kvaware.lmcache.coordinator": address, "kvaware.lmcache.chunk_size": str(CHUNK)}
    router = kvway(sim.workers, {**SHOWN, **config, "workers": rows})
    chats = [ids(60 + i, 2 * CHUNK) for i in range(4)]

    def heard():
        """All that was stored and dropped has been reported."""
        held = sum(w.stats()["lmcache"]["chunks"] for w in sim.workers)
        return gauge(router, "l1_placements") == held

    until(lambda: gauge(router, "instances") == 2, 10, "the servers to register")
    seen = []
    for turn in range(int(os.environ.get("KVW_TURNS", "40"))):
        chat = turn % len(chats)
        chats[chat] += ids(100 + turn, CHUNK // 2)
        if len(chats[chat]) > 12 * CHUNK:
            chats[chat] = ids(1000 + turn, 2 * CHUNK)
        seen.append(complete(router, chats[chat]))
        until(heard, 10, "the reports")
        for worker in sim.workers:
            assert worker.ask("POST", "/reset_prefix_cache").json() == {"success": True}
    known = [one for one in seen if one.knowledge == "exact/all"]
    right = [one for one in known if abs(one.predicted - one.cached) < CHUNK]
    print(f"{len(seen)} turns, {len(known)} known in full, {len(right)} right")
    assert len(known) >= 0.6 * len(seen) and any(one.cached > 2 * CHUNK for one in known)
    assert len(right) >= 0.95 * len(known)
    assert all(w.stats()["lmcache"]["lost"] == 0 for w in sim.workers)
    sim.kill()
    port.close()


def test_a_salt_keeps_tenants_apart(stage):
    s = stage(1)
    server = s.server()
    wait_coverage(s.router, s.workers, "lmcache")
    prompt = ids(5, 4 * CHUNK + 1)
    server.store(prompt, salt="tenant-a")
    assert predicted(s.router, prompt) == 0
    assert predicted(s.router, prompt, cache_salt="tenant-a") == 4 * CHUNK


def test_a_restart_a_silence_and_a_leave_empty_the_servers_memory(stage):
    s = stage(1, {"kvaware.lmcache.heartbeat_timeout": "4s"})
    server = s.server()
    wait_coverage(s.router, s.workers, "lmcache")
    prompt = ids(6, 4 * CHUNK + 1)
    server.store(prompt)
    assert predicted(s.router, prompt) == 4 * CHUNK
    server.restart()
    server.config()
    assert predicted(s.router, prompt) == 0
    server.store(prompt)
    until(lambda: gauge(s.router, "instances") == 0, 10, "the server to be forgotten")
    assert server.beat() == 404
    wait_coverage(s.router, s.workers, "lmcache", 0)
    until(lambda: count(s.router, "timeouts") == 1, 5, "the metric to follow")
    server.register()
    assert server.beat() == 200
    assert server.leave() == 204
    assert server.beat() == 404


def test_a_lost_batch_sends_a_worker_by_text_until_its_memory_was_replaced(stage):
    s = stage(1)
    server = s.server()
    server.config(capacity=8 * 4096, revision=2)
    wait_coverage(s.router, s.workers, "lmcache")
    server.batch("store", lost=True)
    assert server.store(ids(7, 2 * CHUNK)) == {"applied": 1, "duplicates": 0, "stale": 0}
    wait_coverage(s.router, s.workers, "lmcache", 1)
    wait_log(s.router, "gap instance=mp-one")
    knows(s.router, s.workers, "degraded/missed")
    server.store(ids(8, 6 * CHUNK))
    wait_coverage(s.router, s.workers, "lmcache", 2)
    knows(s.router, s.workers, "exact/all")


def knows(router, workers, name):
    """One more decision knows as much, wherever that is shown."""
    degree, reason = name.split("/")
    labels = {"degree": degree, "reason": reason}
    before = router.metric("kvway_decision_knowledge_total", **labels)
    seen = complete(router, ids(9, 3 * CHUNK))
    assert seen.knowledge == name
    explained = explain(router, ids(9, 3 * CHUNK))
    assert explained["knowledge"] == name and explained["knowledge_why"]
    assert [w["knowledge"] for w in explained["workers"]] == [name]
    assert [w["knowledge"] for w in ask(router.admin_port, "GET", "/workers").json()] == [name]
    level = {"exact": 2, "degraded": 1, "fallback": 0}[degree]
    assert router.metric("kvway_worker_knowledge", worker=workers[0].url) == level
    until(lambda: router.metric("kvway_decision_knowledge_total", **labels) == before + 1, 5, "the count")
    way = json.loads(ask(router.admin_port, "GET", "/trace?last=1").body.splitlines()[0])["way"]
    assert [note["knowledge"] for note in way if note["what"] == "attempt"] == [name]


def test_entries_of_unknown_hashes_without_tokens_are_said_once_and_routed_by_text(stage):
    s = stage(1, {"kvaware.lmcache.chunk_size": str(CHUNK)})
    server = s.server()
    for seed in range(5):
        server.store(ids(seed, 8 * CHUNK), known=False)
    wait_coverage(s.router, s.workers, "lmcache", 1)
    for seed in range(5):
        assert complete(s.router, ids(seed, 8 * CHUNK + 1)).knowledge == "degraded/missed"
    wait_log(s.router, "kvaware never matches instance=mp-one: its reports have no token ids")
    told = explain(s.router, ids(0, 100))["workers"][0]["cache_told_by"]["lmcache"]
    assert "lmcache_driven" in told["wrong"]


def test_an_entry_without_tokens_among_others_leaves_its_worker_known(stage):
    """A chunk that comes back from L2, stored before kvway began: its hash is of another algorithm than kvway's."""
    s = stage(1)
    server = s.server()
    server.store(ids(1, 8 * CHUNK))
    wait_coverage(s.router, s.workers, "lmcache")
    server.store(ids(2, CHUNK), known=False)
    knows(s.router, s.workers, "exact/all")


def recorded_prompts():
    """The prompts that a stock server stored: their tokens, and the entries as recorded."""
    for line in RECORD.read_text().splitlines():
        record = json.loads(line)
        for batch in json.loads(record["body"])["batches"] if record["path"] == "/events" else ():
            entries = batch["entries"]
            if batch["event_type"] != "store" or batch["tier"] != "l1" or not entries[0]["token_ids"]:
                continue
            if entries[0]["key"]["cache_salt"] == "":
                assert [e["token_offset"] for e in entries] == [CHUNK * i for i in range(len(entries))]
                yield [token for e in entries for token in e["token_ids"]], entries


def test_recorded_entries_are_found_by_their_hashes_alone(stage):
    """What a stock server sends where the engine drives the transfers: entries without token ids."""
    s = stage(2, {"kvaware.lmcache.chunk_size": str(CHUNK)})
    server = s.server()
    prompts = {tuple(tokens): entries for tokens, entries in recorded_prompts()}
    first, *others = prompts
    assert len(others) >= 3

    def store(prompt):
        bare = [{**e, "token_ids": [], "token_offset": -1} for e in prompts[prompt]]
        server.send(server.batch("store", bare))

    store(first)
    wait_coverage(s.router, s.workers, "lmcache", 1)
    assert predicted(s.router, [*first, 1]) == 0
    complete(s.router, [*others[0], 1])
    store(others[0])  # as the server would now: kvway knows this hash
    wait_coverage(s.router, s.workers, "lmcache")
    for prompt in others[1:]:
        store(prompt)
    for prompt in prompts:
        assert predicted(s.router, [*prompt, 1]) == len(prompt)
    assert predicted(s.router, [*first[:CHUNK], *ids(1, 2 * CHUNK)]) == CHUNK
    assert complete(s.router, [*first, 1]).knowledge == "exact/all"
    entries = [{"key": e["key"], "size_bytes": 0} for e in prompts[first][1:]]
    server.send(server.batch("delete", entries))
    assert predicted(s.router, [*first, 1]) == CHUNK


def test_two_servers_at_one_address_belong_to_no_worker_without_a_name(stage):
    s = stage(1)
    s.server("mp-one")
    wait_coverage(s.router, s.workers, "lmcache")
    s.server("mp-two")
    wait_coverage(s.router, s.workers, "lmcache", 0)
    until(lambda: gauge(s.router, "unmapped") == 2, 5, "the metric to follow")


def test_directory_answers_by_keys_and_pages(stage):
    s = stage(1)
    server = s.server()
    prompt = ids(9, 3 * CHUNK)
    server.store(prompt)
    entries = server.entries(prompt)
    server.send(server.batch("access", [{"key": entries[0]["key"]}], backend=""))
    server.send(server.batch("store", entries[:1], tier="l2", backend="fs", shared=True))
    unknown = {**entries[0]["key"], "cache_salt": "other"}
    status, found = server.ask("POST", "/directory/lookup", {"keys": [entries[0]["key"], unknown]})
    assert (status, found["chunks"]) == (200, 2)
    assert [p["tier"] for p in found["results"][0]["placements"]] == ["l1", "l2"]
    assert found["results"][0]["token_ids"] == prompt[:CHUNK]
    assert found["results"][0]["access_count"] == 1
    assert found["results"][1]["placements"] == []
    status, page = server.ask("GET", "/directory/keys?limit=1&offset=1&tier=l1&instance_id=mp-one")
    assert (page["total"], len(page["keys"])) == (3, 1)
    assert page["keys"][0]["key"] == entries[1]["key"]
    status, usage = server.ask("GET", "/instances/mp-one/usage")
    assert usage["modules"][0]["used_bytes"] == 3 * 4096
    status, fleet = server.ask("GET", "/instances/usage")
    assert fleet["instances"] == [usage]
    assert fleet["shared_modules"][0]["used_bytes"] == 4096
    assert server.ask("POST", "/directory/blend-lookup", {"tokens_b64": ""}) == (200, {"matches": []})
    assert server.ask("GET", "/instances/other/usage")[0] == 404


def test_a_lookup_by_tokens_finds_what_servers_name_by_blake3(stage):
    s = stage(1, {"kvaware.lmcache.chunk_size": str(CHUNK)})
    server = s.server(ranks=2, blake3=True)
    prompt = ids(31, 3 * CHUNK + 5)
    server.store(prompt, salt="tenant-a")
    entries = server.entries(prompt, salt="tenant-a")
    other_group = {"key": {**entries[0]["key"], "object_group_id": 7}, "size_bytes": 1,
                   "token_ids": [], "token_offset": -1}  # fmt: skip
    server.send(server.batch("store", [other_group]))
    body = {"token_ids": prompt, "model_name": server.model, "world_size": 2, "cache_salt": "tenant-a"}
    status, found = server.ask("POST", "/directory/lookup", body)
    assert (status, found["chunks"]) == (200, 3)
    keys = [entry["key"] for entry in entries]
    assert [r["key"] for r in found["results"]] == keys[:1] + [other_group["key"]] + keys[1:]
    assert all(len(r["placements"]) == 1 for r in found["results"])
    assert found["results"][0]["token_ids"] == prompt[:CHUNK]
    status, found = server.ask("POST", "/directory/lookup", {**body, "cache_salt": ""})
    assert [r["placements"] for r in found["results"]] == [[]] * 6
    status, found = server.ask("POST", "/directory/lookup", {**body, "token_ids": prompt[: CHUNK - 1]})
    assert (status, found) == (200, {"chunks": 0, "results": []})


def test_an_answer_that_would_be_too_long_is_refused(stage):
    server = stage(1).server()
    server.chunk = 8192
    (entry,) = server.entries(list(range(4_000_000_000, 4_000_008_192)))
    server.send(server.batch("store", [entry]))
    status, found = server.ask("POST", "/directory/lookup", {"keys": [entry["key"]] * 100})
    assert (status, found["chunks"]) == (200, 100)
    status, found = server.ask("POST", "/directory/lookup", {"keys": [entry["key"]] * 1000})
    assert (status, "64 MiB" in found["detail"]) == (413, True)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/", None, 404),
        ("GET", "/v2/instances", None, 404),
        ("POST", "/quota", {}, 405),
        ("POST", "/cache/pins", {}, 422),
        ("GET", "/cache/other", None, 404),
        ("DELETE", "/events", None, 405),
        ("GET", "/instances/mp-one/heartbeat", None, 405),
        ("POST", "/instances", {"http_port": 1}, 422),
        ("POST", "/instances", {"ip": "h", "http_port": 0}, 422),
        ("POST", "/instances", {"ip": "h", "http_port": "x"}, 422),
        ("POST", "/instances", {"ip": " ", "http_port": 1}, 422),
        ("POST", "/instances", {"ip": "h", "http_port": 1, "metadata": {"a": 1}}, 422),
        ("POST", "/instances", [], 422),
        ("POST", "/events", {"batches": [{"instance_id": "x"}]}, 422),
        ("POST", "/events", {"batches": [[]]}, 422),
        ("POST", "/events", 7, 422),
        ("POST", "/directory/lookup", {}, 422),
        ("POST", "/directory/lookup", {"keys": [{}]}, 422),
        ("POST", "/directory/lookup", {"keys": [{}], "token_ids": [1]}, 422),
        ("POST", "/directory/lookup", {"token_ids": [1]}, 422),
        ("POST", "/directory/lookup", {"token_ids": [-1], "model_name": "m"}, 422),
        ("POST", "/directory/lookup", {"token_ids": ["1"], "model_name": "m"}, 422),
        ("POST", "/directory/lookup", {"token_ids": [1], "model_name": "m", "world_size": 0}, 422),
        ("POST", "/directory/lookup", {"token_ids": [1], "model_name": "m@x"}, 400),
        ("POST", "/directory/lookup", {"token_ids": [1], "model_name": "m", "cache_salt": "a/b"}, 400),
        ("GET", "/directory/keys?limit=0", None, 422),
        ("GET", "/directory/keys?limit=10001", None, 422),
        ("GET", "/directory/keys?offset=-1", None, 422),
        ("GET", "/directory/keys?tier=l3", None, 422),
        ("GET", "/directory/keys?instance_id=%zz", None, 422),
    ],
)
def test_what_is_not_served_gets_a_clear_answer(stage, method, path, body, status):
    s = stage(1)
    answer = LMCacheServer(s.address).ask(method, path, body)
    assert answer[0] == status, answer
    assert answer[1]["detail"]


def test_hostile_servers_change_nothing_for_others(stage):
    s = stage(1, {"kvaware.lmcache.coordinator_memory": "1MiB"})
    server = s.server()
    wait_coverage(s.router, s.workers, "lmcache")
    prompt = ids(10, 4 * CHUNK + 1)
    server.store(prompt)
    bad = LMCacheServer(s.address, "bad", chunk=CHUNK)
    assert bad.ask("POST", "/events", raw=b'{"batches": [' * 1000)[0] == 422
    assert bad.ask("POST", "/events", raw=b"\xff\x00" * 100)[0] == 422
    assert bad.ask("POST", "/events", raw=b"x" * ((32 << 20) + 1))[0] == 413
    # One wrong entry, and nothing of the request is applied.
    good = bad.batch("store", bad.entries(ids(11, CHUNK)))
    wrong = bad.batch("store", [{"key": {}}])
    assert bad.ask("POST", "/events", {"batches": [good, wrong]})[0] == 422
    assert bad.ask("GET", "/directory/keys?instance_id=bad")[1]["total"] == 0
    # Time runs backwards: an older process of this name is not heard.
    bad.seq = 0
    bad.send(bad.batch("store", bad.entries(ids(12, CHUNK))))
    bad.incarnation, bad.seq = 1, 0
    assert bad.store(ids(13, CHUNK))["stale"] == 1
    # More than the memory holds is dropped, and the books stay bounded.
    bad.incarnation, bad.seq = 2000, 0
    for seed in range(100, 120):
        bad.store(ids(seed, 100 * CHUNK))
    until(lambda: count(s.router, "dropped") > 0, 5, "stores to be dropped")
    assert gauge(s.router, "bytes") <= 1 << 20
    assert predicted(s.router, prompt) == 4 * CHUNK
    # A second server of the same name takes its place; each restart empties it.
    twin = LMCacheServer(s.address, "mp-one", chunk=CHUNK, incarnation=5000)
    twin.config()
    assert predicted(s.router, prompt) == 0
    assert server.store(prompt)["stale"] == 1


def test_a_large_batch_is_read_while_requests_are_served(stage):
    """100,000 token ids in one batch, eight times; the parse has no part in a request's way."""
    s = stage(1)
    server = s.server()
    wait_coverage(s.router, s.workers, "lmcache")
    prompts = [ids(20 + i, 1563 * CHUNK) for i in range(8)]
    for prompt in prompts:
        server.store(prompt)
        assert predicted(s.router, prompt[: 8 * CHUNK + 1]) == 8 * CHUNK
    assert server.ask("GET", "/directory/stats")[1]["num_keys"] == 8 * 1563


def test_no_coordinator_is_there_without_its_key(stage, kvway):
    s = stage(1, {"kvaware.lmcache.coordinator": ""})
    with pytest.raises(OSError):
        LMCacheServer(s.address).ask("GET", "/healthz")
    assert not any("kvway_kvaware_coordinator" in str(name) for name in s.router.metrics())


def test_the_list_of_workers_shows_their_servers_and_what_is_lacking(stage):
    s = stage(names=("", "mp-two"))

    def told(number):
        rows = ask(s.router.admin_port, "GET", "/workers").json()
        return next(r for r in rows if r["url"] == s.workers[number].url)["cache_told_by"]["lmcache"]

    until(lambda: "has registered from this worker's address" in told(0)["wrong"], 5, "the reason")
    assert "its lmcache_instance names" in told(1)["wrong"]
    one = s.server("mp-one")
    until(lambda: told(0) == {"coverage": "full", "wrong": "", "instance": "mp-one"}, 5, "the mapping")
    s.server("mp-other")
    until(lambda: "several LMCache servers" in told(0)["wrong"], 5, "the reason")
    one.leave()
    until(lambda: told(0)["instance"] == "mp-other", 5, "the other server")
    s.server("mp-two")
    until(lambda: told(1)["instance"] == "mp-two", 5, "the named server")


def test_a_stopped_router_lets_its_servers_go(stage):
    s = stage(1)
    server = s.server()
    server.store(ids(30, 2 * CHUNK))
    s.router.signal(signal.SIGTERM)
    assert s.router.wait() == 0
