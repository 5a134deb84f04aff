"""`bench/run.sh replay-agree`, run small: one arm on both sides, and what its gate refuses."""

import argparse
import json
import os
import sys
from pathlib import Path

import pytest
from rig.router import BUILD

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def agree():
    """The module under test."""
    sys.path.insert(0, str(BENCH))
    import lib_replay_agree
    yield lib_replay_agree
    sys.path.remove(str(BENCH))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="benchmarks need two cores")
def test_both_sides_have_the_same_figures(agree, tmp_path):
    trace = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 100 * number, "input_length": 1024, "output_length": 3, "hash_ids": [1, number + 2]}
            for number in range(12)]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = argparse.Namespace(build=str(BUILD), speed=1.0, requests=12, workers=[2])
    arm = agree.Arm("prefixaware", True, 100000, 4.0)
    arm.http.append(agree.run_http(options, arm, str(trace)))
    arm.replay.append(agree.run_replay(options, arm, str(trace), 1))
    for metric in agree.FIGURES:
        assert metric in arm.http[0] and metric in arm.replay[0], metric
    assert arm.http[0]["refused_share"] == arm.replay[0]["refused_share"] == 0
    assert 0 < arm.http[0]["cached_share"] < 0.5 and 0 < arm.replay[0]["cached_share"] < 0.5


def made_arm(agree, http, replay):
    arm = agree.Arm("roundrobin", False, 200000, 1.0)
    for side, values in ((arm.http, http), (arm.replay, replay)):
        side.extend({"ttft_mean_s": value, "e2e_mean_s": 10.0, "cached_share": 0.0} for value in values)
    return arm


def test_the_gate_allows_for_chance_and_for_no_trend(agree):
    steady = made_arm(agree, [1.02, 1.02], [1.0, 1.0])
    apart = made_arm(agree, [1.06, 1.06], [1.0, 1.0])
    noisy = made_arm(agree, [1.06, 1.06], [0.9, 1.1])
    assert not agree.apart([steady])
    assert [fault.split(":")[0] for fault in agree.apart([apart, steady])] == ["roundrobin, KV 200k, x1"]
    assert not agree.apart([noisy, steady])
    assert [fault.split(":")[0] for fault in agree.apart([noisy, noisy])] == ["all arms"]


def test_all_times_of_the_configuration_go_with_the_speed(agree):
    routing, more = agree.Arm("prefixaware", True, 200000, 1.0).settings(4.0)
    assert "slow_start: 2500ms" in routing
    for line in ("metrics_interval: 2500ms", "max_wait: 7500ms", "worker_queue: 250ms", "ttft: 500ms", "tpot: 25ms"):
        assert f"  {line}\n" in more
