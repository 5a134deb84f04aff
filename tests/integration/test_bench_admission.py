"""What measures admission: `bench/run.sh pick --admission`, `trace --overload` and `crowd`, run small."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rig.router import BUILD

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def overload():
    """The module under test."""
    sys.path.insert(0, str(BENCH))
    import lib_trace_overload
    yield lib_trace_overload
    sys.path.remove(str(BENCH))


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_admissions_are_measured_with_a_queue_and_without():
    program = BUILD / "bench" / "micro" / "admission_bench"
    done = subprocess.run([program, "-r", "1", "-s", "0.02"], check=True, capture_output=True, text=True)
    told = [line for line in lines(done.stdout) if line["metric"] == "admissions_per_second"]
    assert [(line["workers"], line["waiting"]) for line in told] == [
        (workers, waiting) for workers in (8, 64) for waiting in (0, 100, 2000)]
    assert all(line["bench"] == "pick" and line["unit"] == "1/s" and line["value"] > 0 for line in told)
    waited = {(line["workers"], line["waiting"]): line["value"] for line in lines(done.stdout)
              if line["metric"] == "admission_waiting"}
    assert waited[8, 0] == waited[64, 0] == 0
    assert all(waited[workers, 2000] > 1000 for workers in (8, 64))


def test_refusals_count_against_all_requests(overload):
    figures = overload.figures_of({"completed": 6, "failed": 4, "retried": 5, "goodput": 0.5, "ttft_s": {"p50": 1, "p99": 2},
                                   "errors": {"status 429": 1, "status 503": 2, "timeout": 1}})
    assert (figures["refused_share"], figures["retries"], figures["failed_otherwise"]) == (0.3, 0.5, 1)
    assert (figures["goodput"], figures["ttft_p99_s"], figures["requests"]) == (0.5, 2, 10)


def test_a_run_without_any_answer_has_no_times(overload):
    figures = overload.figures_of({"completed": 0, "failed": 2, "retried": 0, "goodput": 0, "ttft_s": None,
                                   "errors": {"status 503": 2}})
    assert (figures["ttft_p99_s"], figures["refused_share"]) == (None, 1)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="benchmarks need two cores")
def test_admission_is_compared_over_http(overload, tmp_path, capsys):
    trace = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 50 * number, "input_length": 1024, "output_length": 3, "hash_ids": [2 * number, 2 * number + 1]}
            for number in range(12)]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    overload.bench_trace_overload(
        argparse.Namespace(build=str(BUILD), speed=1.0, rate_scale=4.0, requests=12, workers=[2], retries=1, quick=True),
        str(trace))
    told = lines(capsys.readouterr().out)
    goodput = [line for line in told if line["metric"] == "overload_goodput"]
    peers = [None, "kvway without admission", *(["HAProxy"] if shutil.which("haproxy", path="/usr/sbin:/usr/bin") else [])]
    assert [line.get("peer") for line in goodput] == peers
    assert all(line["bench"] == "trace" and line["proxy"] == "kvway" and 0 < line["value"] <= 1 for line in goodput)
    assert {line["metric"] for line in told} == {metric for metric, _, _ in overload.METRICS}


@pytest.fixture(scope="module")
def crowd():
    """The module under test."""
    sys.path.insert(0, str(BENCH))
    import lib_crowd
    yield lib_crowd
    sys.path.remove(str(BENCH))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="benchmarks need two cores")
def test_a_crowd_leaves_and_no_worker_gets_it(crowd, tmp_path):
    trace = str(tmp_path / "crowd.jsonl")
    crowd.write_trace(trace, 80, 1.0)
    options = argparse.Namespace(build=str(BUILD), speed=4.0, clients=80, retries=0, times=1)
    figures = crowd.run_load(options, "leave", 1, trace)
    assert 0 < figures["left"] < 80 and figures["failed_otherwise"] == 0, figures
    assert figures["answered"] + figures["left"] + figures["errors"].get("status 429", 0) == 80
    assert figures["memory_start"] < figures["memory_peak"] and figures["times"][0]["left"] == figures["left"]
    assert not [fault for fault in crowd.faults_of("leave", figures) if "after their client" not in fault]


def test_what_a_crowd_must_not_show_is_a_fault(crowd):
    one = {"without_retry_after": 0, "left_before": 0, "left_before_ms": 0, "left_late_ms": 0, "sim_late_ms": 0,
           "failed_otherwise": 0, "errors": {}}
    memory = {"memory_first": 50 << 20, "memory_after": 51 << 20, "bytes": 60 << 20}
    assert not list(crowd.faults_of("lost", {"times": [one], **memory}))
    wrong = {"without_retry_after": 1, "left_before_ms": 51, "failed_otherwise": 2}
    assert len(list(crowd.faults_of("lost", {"times": [one, {**one, **wrong}], **memory, "memory_after": 90 << 20}))) == 4
