"""Data-parallel ranks: each rank of a server is a worker of its own, found from metrics or the configuration."""

import json
import random
import subprocess

import pytest

from rig.client import COMPLETIONS, ask
from rig.kvaware import SHOWN, Outcome, ids
from rig.router import PROGRAM, write_config
from rig.sim import Sim
from rig.takeover import Line
from rig.wait import until

RANKS = 4
EVENTS = {"enable_kv_cache_events": True, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0", "topic": "kv@tiny"}
QUICK = {"health.metrics_interval": "1s", "health.interval": "1s"}


@pytest.fixture
def servers(tmp_path):
    """servers(count, *options): kvsim's servers of RANKS ranks each."""
    made = []

    def make(count=2, *options, events=True, ranks=RANKS):
        argv = ["--data-parallel-size", ranks, *options]
        if events:
            argv += ["--kv-events-config", json.dumps(EVENTS)]
        made.append(Sim(tmp_path, count, *argv, name=f"sim{len(made)}"))
        return made[-1].workers

    yield make
    for sim in made:
        sim.kill()


def names(servers, ranks=RANKS):
    return [f"{server.url}@{rank}" for server in servers for rank in range(ranks)]


def pages(router):
    """Workers that stay."""
    listed = ask(router.admin_port, "GET", "/workers").json()
    return {p["url"]: p for p in listed if not p["leaves"] and p["state"] != "removed"}


def wait_ranks(router, servers, ranks=RANKS):
    """Until each rank is a worker that serves."""

    def there():
        have = pages(router)
        return sorted(have) == sorted(names(servers, ranks)) and all(
            p["health"] == "up" and p["models"] == ["tiny"] and p["global_rank"] is not None for p in have.values()
        )

    try:
        until(there, 15, "all ranks as workers")
    except AssertionError:
        print(router.log()[-6000:], list(pages(router).values()))
        raise


def wait_seen(router, servers, ranks=RANKS, seconds=15):
    """Until all that each rank holds is known by its events."""

    def seen():
        levels = [
            router.metric("kvway_worker_cache_coverage", worker=name, reporter="engine")
            for name in names(servers, ranks)
        ]
        return set(levels) == {2}

    try:
        until(seen, seconds, "coverage of all ranks")
    except AssertionError:
        print(router.log()[-6000:])
        raise


def complete(router, prompt, headers=(), **more):
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1, **more}
    return Outcome(router.ask("POST", COMPLETIONS, headers, body=body, timeout=30))


def stats(server, rank):
    return server.ask("GET", f"/sim/stats?rank={rank}").json()


def served(servers):
    """Finished answers by rank."""
    return {
        f"{server.url}@{rank}": stats(server, rank)["finished"] for server in servers for rank in range(RANKS)
    }


def wait_heard(router, servers):
    """Until the router has applied what each rank has published."""

    def heard():
        for server in servers:
            for rank in range(RANKS):
                batches = stats(server, rank)["kv_batches"]
                name = f"{server.url}@{rank}"
                told = router.metric("kvway_worker_cache_sequence", worker=name, reporter="engine")
                if batches > 0 and told != batches - 1:
                    return False
        return True

    until(heard, 10, "all events to be applied")


def test_ranks_are_found_and_a_session_returns_to_its_rank(servers, kvway):
    two = servers()
    router = kvway(two, {**SHOWN, **QUICK})
    wait_ranks(router, two)
    wait_seen(router, two)
    homes = {}
    for turn in range(4):
        for session in range(24):
            prompt = ids(session, 64 * (turn + 1))
            outcome = complete(router, prompt)
            if turn == 0:
                homes[session] = outcome.worker
            else:
                assert outcome.worker == homes[session], (turn, session, outcome)
                assert abs(outcome.predicted - outcome.cached) <= 16, outcome
                assert outcome.cached >= 64 * turn - 16, outcome
        wait_heard(router, two)
    assert len(set(homes.values())) > RANKS, homes
    # the engines that computed are those that the answers name
    want = {name: 4 * list(homes.values()).count(name) for name in homes.values()}
    assert {name: count for name, count in served(two).items() if count > 0} == want
    assert router.metric("kvway_rank_refusals_total") == 0


def test_one_probe_for_all_ranks_of_a_server(servers, kvway):
    two = servers()
    router = kvway(two, {"health.interval": "1s", "health.metrics_interval": "60s", "health.models_interval": "60s"})
    wait_ranks(router, two)
    before = [server.stats()["connections_accepted"] for server in two]
    failed = sum(p["health"] != "up" for p in pages(router).values())
    assert failed == 0
    until(lambda: all(s.stats()["connections_accepted"] > b for s, b in zip(two, before, strict=True)), 10)
    # each look at the statistics is a connection, too: of N-fold probes there would be more than twice as many
    log = router.log()
    assert sum("worker is in" in line and "@" in line for line in log.splitlines()) == 2 * RANKS
    idle = {(n, l): v for (n, l), v in router.metrics("kvway_upstream").items() if "idle" in n}
    for _ in range(40):
        complete_plain(router)
    after = {(n, l): v for (n, l), v in router.metrics("kvway_upstream").items() if "idle" in n}
    assert sum(after.values()) - sum(idle.values()) <= 2 * 8, (idle, after)


def complete_plain(router):
    answer = router.ask("POST", COMPLETIONS, body={"model": "tiny", "prompt": "a b c", "max_tokens": 1})
    assert answer.status == 200, answer


def test_a_reset_of_one_rank_moves_only_its_view(servers, kvway):
    one = servers(1)
    router = kvway(one, {**SHOWN, **QUICK})
    wait_ranks(router, one)
    wait_seen(router, one)
    first = {session: complete(router, ids(session, 128)).worker for session in range(64)}
    wait_heard(router, one)
    assert len(set(first.values())) == RANKS
    emptied = first[0]
    rank = emptied.rpartition("@")[2]
    assert one[0].ask("GET", f"/sim/reset?rank={rank}").status == 200
    # as by vLLM, the event leaves with the next step of that rank
    answer = one[0].ask(
        "POST", COMPLETIONS, [("X-data-parallel-rank", rank)], {"model": "tiny", "prompt": ids(99, 32), "max_tokens": 1}
    )
    assert answer.status == 200
    wait_heard(router, one)
    for session, worker in first.items():
        outcome = complete(router, ids(session, 128) + [7])
        assert abs(outcome.predicted - outcome.cached) <= 16, outcome
        if worker == emptied:
            assert outcome.predicted == 0, outcome
        else:
            assert outcome.worker == worker and outcome.predicted == 128, outcome


@pytest.mark.parametrize("strategy", ["kvaware", "prefixaware"])
def test_a_frontend_that_counts_ranks_of_all_servers_is_learned(servers, kvway, strategy):
    """vLLM's Rust frontend takes the global rank: the second server's indices are refused, and no request is lost."""
    two = servers(2, "--data-parallel-hybrid-lb", "--data-parallel-rank-index", "global")
    router = kvway(two, {**SHOWN, **QUICK, "routing.strategy": strategy})
    wait_ranks(router, two)
    assert [pages(router)[name]["global_rank"] for name in names(two)] == list(range(2 * RANKS))
    if strategy == "kvaware":
        wait_seen(router, two)
    for session in range(1000, 1100):  # one of them comes to the second server, and is repeated
        complete(router, ids(session, 64))
    assert router.metric("kvway_rank_refusals_total") == 1
    for session in range(160):
        outcome = complete(router, ids(session, 64))
        again = complete(router, ids(session, 64) + [1])
        assert again.worker == outcome.worker and again.cached == 64, (outcome, again)
    # the first server's numbers are equal; one refusal teaches the second's
    assert router.metric("kvway_rank_refusals_total") == 1
    assert "gets global ranks from now on" in router.log()
    assert all(count > 0 for count in served(two).values())


def test_a_server_with_fewer_ranks_than_configured_loses_no_request(servers, kvway):
    one = servers(1, events=False, ranks=2)
    router = kvway(one, {**SHOWN, "routing.strategy": "roundrobin"}, worker_keys={"ranks": 4})
    until(lambda: all(p["health"] == "up" for p in pages(router).values()), 10)
    assert sorted(pages(router)) == names(one, 4)
    for session in range(20):
        complete(router, ids(session, 32))
    # one index and no other number: the rest of a minute goes without a rank
    assert router.metric("kvway_rank_refusals_total") == 1
    assert "predictions of its cache are guesses" in router.log()
    until(lambda: "its `ranks` are others" in router.log(), 10)


def test_a_body_that_is_not_kept_has_a_rank_once_the_server_took_one(servers, kvway):
    two = servers(2, "--data-parallel-hybrid-lb", "--data-parallel-rank-index", "global", events=False)
    router = kvway(two, {**SHOWN, **QUICK, "routing.strategy": "roundrobin", "routing.scan_limit": "64KiB"})
    wait_ranks(router, two)
    text = "".join(random.Random(1).choices("abcd ", k=200_000))
    for _ in range(12):
        body = {"model": "tiny", "prompt": text, "max_tokens": 1}
        answer = router.ask("POST", COMPLETIONS, body=body, timeout=30)
        assert answer.status == 200, answer
    assert router.metric("kvway_rank_refusals_total") == 0


def test_a_client_s_own_rank_is_replaced(servers, kvway):
    one = servers(1, events=False)
    router = kvway(one, {**SHOWN, **QUICK, "http.pin": True})
    wait_ranks(router, one)
    name = f"{one[0].url.removeprefix('http://')}@2"
    before = stats(one[0], 2)["finished"]
    for number in ("0", "63", "x"):
        headers = [("X-Data-Parallel-Rank", number), ("X-Kvway-Pin", name)]
        assert complete(router, ids(int(number) if number != "x" else 5, 32), headers).worker == f"http://{name}"
    assert stats(one[0], 2)["finished"] == before + 3


def test_a_plain_worker_s_client_chooses_its_rank(servers, kvway):
    one = servers(1, events=False)
    router = kvway(one, {**SHOWN, **QUICK}, worker_keys={"ranks": 1})
    until(lambda: pages(router)[one[0].url]["health"] == "up", 10)
    for rank in range(RANKS):
        complete(router, ids(rank, 32), [("X-Data-Parallel-Rank", str(rank))])
    assert [stats(one[0], rank)["finished"] for rank in range(RANKS)] == [1] * RANKS
    assert list(pages(router)) == [one[0].url]


def test_pins_and_drains_by_rank_and_by_server(servers, kvway):
    two = servers(2, events=False)
    router = kvway(two, {**SHOWN, **QUICK, "http.pin": True})
    wait_ranks(router, two)
    host = two[0].url.removeprefix("http://")
    for _ in range(4):
        assert complete(router, ids(1, 32), [("X-Kvway-Pin", f"{host}@3")]).worker == f"{two[0].url}@3"
        assert complete(router, ids(2, 32), [("X-Kvway-Pin", host)]).worker.startswith(two[0].url)
    rested = ask(router.admin_port, "POST", f"/workers/{host}@1/drain?wait=5s").json()
    assert rested["rests"] and rested["rank"] == 1 and rested["drained"]
    assert [p["url"] for p in pages(router).values() if p["rests"]] == [f"{two[0].url}@1"]
    seen = {complete(router, ids(session, 32)).worker for session in range(160)}
    assert seen == set(names(two)) - {f"{two[0].url}@1"}
    whole = ask(router.admin_port, "POST", f"/workers/{host}/drain?wait=5s").json()
    assert [p["url"] for p in whole] == names(two[:1]) and all(p["rests"] and p["drained"] for p in whole)
    seen = {complete(router, ids(session, 48)).worker for session in range(80)}
    assert seen == set(names(two[1:]))
    assert len(ask(router.admin_port, "POST", f"/workers/{host}/undrain").json()) == RANKS
    assert not any(p["rests"] for p in pages(router).values())
    for method, target, body in (
        ("DELETE", f"/workers/{host}@1", None),
        ("PATCH", f"/workers/{host}@1", {"weight": 0.5}),
    ):
        answer = ask(router.admin_port, method, target, body=body)
        assert answer.status == 409 and "expected its server" in answer.json()["error"]["message"], answer
    changed = ask(router.admin_port, "PATCH", f"/workers/{host}", body={"weight": 0.5}).json()
    assert [p["weight"] for p in changed] == [0.5] * RANKS
    assert ask(router.admin_port, "DELETE", f"/workers/{host}").status == 200
    until(lambda: sorted(pages(router)) == names(two[1:]), 10)
    reset = ask(router.admin_port, "POST", "/broadcast/reset_prefix_cache").json()
    assert [w["status"] for w in reset["workers"]] == [200], reset
    losses = {n: router.metric("kvway_worker_cache_losses_total", worker=n) for n in names(two[1:])}
    assert set(losses.values()) == {1}, losses


def test_the_command_shows_and_drains_ranks(servers, kvway):
    one = servers(1, events=False)
    router = kvway(one, {**SHOWN, **QUICK})
    wait_ranks(router, one)
    host = one[0].url.removeprefix("http://")

    def run(*words):
        argv = [PROGRAM, "workers", *words, "--admin", f"127.0.0.1:{router.admin_port}"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done
        return done.stdout

    assert all(name in run() for name in names(one))
    assert run("drain", f"{host}@1", "--wait", "10s").count("draining") == 1
    assert run("drain", host, "--wait", "10s").count("draining") == RANKS
    assert run("undrain", host).count("draining") == 0


def test_a_reload_changes_ranks(servers, kvway):
    one = servers(1, ranks=4, events=False)
    router = kvway(one, {**SHOWN, **QUICK}, worker_keys={"ranks": 2})
    until(lambda: sorted(pages(router)) == names(one, 2), 10)
    first = complete(router, ids(1, 64))
    for ranks, want in ((4, names(one, 4)), (0, names(one, 4)), (1, [one[0].url]), (3, names(one, 3))):
        text = router.config_path.read_text()
        flat = json.loads(text) if text.startswith("{") else None
        assert flat is not None or "ranks: " in text
        lines = [f"{l.split('ranks:')[0]}ranks: {ranks}" if "ranks:" in l else l for l in text.splitlines()]
        if flat is None:
            router.config_path.write_text("\n".join(lines) + "\n")
        else:
            flat["workers"][0]["ranks"] = ranks
            write_config(router.config_path, flat)
        assert ask(router.admin_port, "POST", "/reload").status == 200
        until(lambda w=want: sorted(pages(router)) == sorted(w), 15, f"ranks {ranks}")
        again = complete(router, ids(1, 64))
        if ranks in (4, 0):
            assert again.worker == first.worker and again.predicted > 0, again
    assert router.metric("kvway_rank_refusals_total") == 0


def test_state_and_takeover_know_ranks(servers, tmp_path):
    two = servers(2, events=False)
    config = {**QUICK, "http.decision_headers": "always", "state.file": str(tmp_path / "state"), "loops": 1}
    line = Line(tmp_path, two, config)
    try:
        line.first()
        line.admin = line
        wait_ranks(line, two)
        homes = {}
        for session in range(16):
            outcome = complete(line, ids(session, 64))
            homes[session] = outcome.worker
        before = line.upgrade()
        before.wait(20)
        wait_ranks(line, two)
        for session, worker in homes.items():
            outcome = complete(line, ids(session, 64) + [1])
            assert outcome.worker == worker and outcome.predicted == outcome.cached == 64, outcome
        line.current.signal(15)
        line.current.wait(20)
        line.current = None
        line.first()
        wait_ranks(line, two)
        for session, worker in homes.items():
            outcome = complete(line, ids(session, 64) + [2])
            assert outcome.worker == worker and outcome.predicted == outcome.cached == 64, outcome
    finally:
        line.stop()


def test_a_server_that_is_down_takes_all_its_ranks_along(servers, kvway):
    two = servers(events=False)
    router = kvway(two, {**SHOWN, **QUICK})
    wait_ranks(router, two)
    two[0].ask("GET", "/sim/health?status=503")
    until(lambda: sum(p["health"] == "down" for p in pages(router).values()) == RANKS, 20)
    for session in range(20):
        assert complete(router, ids(session, 32)).worker.startswith(two[1].url)
    two[0].ask("GET", "/sim/health?status=200")
    until(lambda: all(p["health"] == "up" for p in pages(router).values()), 20)


def test_explain_and_trace_show_ranks(servers, kvway):
    one = servers(1, events=False)
    router = kvway(one, {**SHOWN, **QUICK})
    wait_ranks(router, one)
    # the worker that the server was before its metrics were read
    until(lambda: len(ask(router.admin_port, "GET", "/workers").json()) == RANKS, 10, "it to be gone")
    outcome = complete(router, ids(3, 64))
    body = {"model": "tiny", "prompt": ids(3, 64), "max_tokens": 1}
    said = ask(router.admin_port, "POST", f"/explain?path={COMPLETIONS}", body=body).json()
    assert sorted(w["worker"] for w in said["workers"]) == names(one)
    trace = ask(router.admin_port, "GET", "/trace").body.decode()
    assert outcome.worker in trace


def some_json(dice, depth=0):
    """A body's text: members in any order, repeated, spelled in many ways."""
    space = lambda: dice.choice(["", "", " ", "\n\t", "  "])
    kind = dice.randrange(7 if depth < 3 else 5)
    if kind == 0:
        return dice.choice(["null", "true", "-0", "1e400", "123456789012345678901234567890", "0.10"])
    if kind < 5:
        text = dice.choice(["a", "\u00fc\u20ac", '"\\/', "\x01{[", "routed_dp_rank"])
        return json.dumps(text, ensure_ascii=dice.random() < 0.5)
    items = [some_json(dice, depth + 1) for _ in range(dice.randrange(4))]
    if kind == 5:
        return "[" + ",".join(space() + item + space() for item in items) + "]"
    names = [json.dumps(dice.choice(["text", "a", "", "routed_dp_rank", "\u00fc"])) for _ in items]
    members = [f"{space()}{name}{space()}:{item}{space()}" for name, item in zip(names, items, strict=True)]
    return "{" + ",".join(members) + "}"


def test_a_body_with_a_rank_is_the_client_s_but_for_that(workers, kvway):
    dice = random.Random(51)
    (worker,) = workers(1)
    router = kvway([worker], {"http.pin": True}, worker_keys={"ranks": 2})
    got = []
    worker.script = lambda ex: (got.append(ex.read_body()), ex.respond(200, body=b"{}"))
    pin = ("X-Kvway-Pin", worker.url.removeprefix("http://") + "@1")
    for _ in range(300):
        before = dice.choice(["", "", "\ufeff"]) + dice.choice(["", " ", "\r\n\t "]) + "{"
        members = [f'"m{i}" : {some_json(dice, 1)}' for i in range(dice.randrange(3))] + ['"text": "a"']
        rest = dice.choice(["", " ", "\n"]) + ", ".join(dice.sample(members, len(members))) + dice.choice(["}", "}\n"])
        body = (before + rest).encode()
        how = {"body": body} if dice.random() < 0.5 else {"chunks": [body[:3], body[3:]]}
        assert router.ask("POST", "/generate", [pin], **how).status == 200
        assert got.pop() == (before + '"routed_dp_rank":1,' + rest).encode()
