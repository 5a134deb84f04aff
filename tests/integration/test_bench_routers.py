"""The script of `bench/run.sh routers`, without network: a released router itself is not needed."""

import argparse
import json
import os
import sys
from pathlib import Path

import pytest
from rig.router import BUILD

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def routers():
    """The module under test."""
    sys.path.insert(0, str(BENCH))
    import lib_routers
    yield lib_routers
    sys.path.remove(str(BENCH))


def options(**more):
    return argparse.Namespace(**{
        "build": str(BUILD), "speed": 20.0, "rate_scale": 1.0, "requests": 12, "workers": [2],
        "trace_rounds": 1, "peers_only": False, "more_peers": False, **more})


def lines(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_every_pinned_router_has_arguments(routers):
    pinned = routers.requirements((BENCH / "peers" / "routers.txt").read_text())
    assert [name for name, _ in pinned] == ["vllm-router", "sglang-router"]
    assert all(version[0].isdigit() for _, version in pinned)
    for name, _ in pinned:
        assert name in routers.ARGUMENTS and name in routers.SERVERS


def test_requirements_without_a_version_are_refused(routers):
    with pytest.raises(ValueError):
        routers.requirements("vllm-router\n")


def test_a_router_that_cannot_be_installed_is_named_and_leaves_nothing(
        routers, tmp_path, monkeypatch):
    monkeypatch.setattr(routers.sys, "executable", "/bin/false")
    with pytest.raises(routers.BenchError, match=r"vllm-router 9\.9 is left out"):
        routers.install(str(tmp_path), "vllm-router", "9.9")
    assert not (tmp_path / "peers" / "vllm-router-9.9").exists()


def test_lines_name_the_peer_its_version_and_the_best(routers, capsys):
    known = {"a": routers.Router("a", "1.0", ""), "b": routers.Router("b", "2.0", "")}
    ours = [{"x": 10.0}, {"x": 12.0}]
    peers = {"a": [{"x": 20.0}, {"x": 24.0}], "b variant": [{"x": 5.0}, {"x": 6.0}]}
    routers.emit_against(known, "x", "us", True, ours, peers, body_kb=2)
    told = lines(capsys)
    assert [(t["peer"], t["peer_version"], t["ratio"]) for t in told] == [
        ("a", "1.0", 0.5), ("b variant", "2.0", 2.0), ("best", "2.0", 2.0)]
    assert {t["body_kb"] for t in told} == {2} and told[2]["best"] == "b variant"


def test_a_peer_without_any_value_has_no_ratio(routers, capsys):
    known = {"a": routers.Router("a", "1.0", "")}
    routers.emit_against(known, "x", "share", False, [{"x": 0.5}], {"a": [{"x": 0.0}]})
    assert lines(capsys)[0]["ratio"] is None


def test_unequal_loads_are_a_fault(routers):
    one = {"requests": 5, "prompt_tokens": 100, "failed": 0}
    routers.check_same_load({"a": [one], "b": [dict(one)], "c": [{**one, "failed": 1, "requests": 4}]})
    with pytest.raises(routers.BenchError, match="same requests"):
        routers.check_same_load({"a": [one], "b": [{**one, "prompt_tokens": 99}]})


def test_a_failing_peer_is_left_out_and_the_others_go_on(routers, capsys):
    class Someone:
        """A proxy as the benchmark knows it."""

        def __init__(self, name, strategy=None):
            self.name, self.strategy, self.port, self.pid = name, strategy, 0, 0

    class Load:
        """Fails for the one on port 1."""

        @staticmethod
        def job(kind, port, **keys):
            if port == 1:
                raise routers.BenchError("refused")
            return {"kind": kind, **keys}

    ours, good, bad = Someone("kvway", "prefixaware"), Someone("good"), Someone("bad")
    bad.port = 1
    stage = argparse.Namespace(options=argparse.Namespace(rounds=3, seconds=1), load=Load)
    results = routers.measure_size(stage, [ours, good, bad], 2)
    assert {p.name: len(rounds) for p, rounds in results.items()} == {"kvway": 3, "good": 3}
    assert "bad is left out at 2 KB: refused" in capsys.readouterr().err


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="benchmarks need two cores")
def test_a_replay_measures_what_a_router_did(routers, tmp_path, capsys):
    """kvway alone, on a trace of two conversations whose second turns repeat the first."""
    trace = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 1000 * turn, "input_length": 512 * (turn + 2), "output_length": 4,
             "hash_ids": [100 * who + block for block in range(turn + 2)]}
            for turn in range(6) for who in (1, 2)]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = options()
    (kvway,) = routers.entries(own, {})
    result = routers.replay_once(own, kvway, 2, str(trace))
    assert (result["requests"], result["failed"]) == (12, 0)
    assert result["prompt_tokens"] == sum(row["input_length"] for row in rows)
    assert 0.3 < result["cached_share"] < 1
    assert result["trace_cpu_us_per_request"] > 0
    routers.show_quality(own, str(trace), 2, {"kvway": [result]})
    assert "kvway" in capsys.readouterr().err
