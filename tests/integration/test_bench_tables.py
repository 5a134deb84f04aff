"""`bench/run.sh tables`: its arithmetic without a run, and one small table run for real."""

import argparse
import json
import sys
from pathlib import Path

import pytest
import yaml
from rig.router import BUILD

BENCH = Path(__file__).parents[2] / "bench"
TIMES = """submit_ns,first_ns,end_ns,prompt_tokens,cached_tokens,generated_tokens
0,1000000000,1000000000,100,0,1
1000000000,2000000000,4000000000,100,0,3
"""
MORE = """submit_ns,first_ns,end_ns,prompt_tokens,cached_tokens,generated_tokens
2000000000,4000000000,5000000000,200,0,2
"""


@pytest.fixture(scope="module")
def tables():
    sys.path.insert(0, str(BENCH))
    import lib_tables
    yield lib_tables
    sys.path.remove(str(BENCH))


def test_figures_of_a_run_are_simulated_and_leave_the_warm_up_out(tables):
    figures = tables.figures_of([TIMES, MORE])
    assert figures["requests"] == 2
    assert figures["elapsed"] == pytest.approx(4.0)
    assert figures["ttft_p50"] == pytest.approx(1.5)
    assert figures["itl_p50"] == pytest.approx(1.0)
    assert figures["output_tokens_per_s"] == pytest.approx(1.25)


def test_a_run_without_an_answer_is_an_error(tables):
    with pytest.raises(tables.BenchError, match="no request"):
        tables.figures_of(["\n".join(TIMES.splitlines()[:2])])


def test_time_limits_of_kvway_are_simulated_too(tables):
    import lib_sim_speed as scale
    assert set(scale.LIMITS) | set(scale.COSTS) | set(scale.SPEEDS) <= set(scale.defaults())
    sections = yaml.safe_load(scale.limits(20, {"admission.enabled": "false"}))
    assert sections["admission"] == {"max_wait": "1500ms", "worker_queue": "50ms", "enabled": False}
    assert sections["timeouts"] == {"first_token": "30000ms", "stream_idle": "6000ms"}  # what is off stays off
    assert sections["health"]["interval"] == "100ms"  # never below its least value
    assert "slow_start: 500ms" in scale.rates(20) and "prefill_tokens_per_second: 160000" in scale.rates(20)
    # At the clock's speed kvway's configuration is its defaults.
    assert scale.rates(1) == "" and scale.limits(1) == ""


def test_points_vary_one_assumption_at_a_time_in_both_arms(tables):
    for spec in tables.tables():
        points = tables.points_of(spec)
        assert len(points) == 1 + sum(len(sweep.values) for sweep in spec.sweeps)
        for sweep, value, base, ours, workload in points[1:]:
            changed = [(vars(base), vars(spec.base)), (vars(ours), vars(spec.ours)),
                       (workload.options, spec.workload.options)]
            differing = {key for now, then in changed for key in now if now[key] != then[key]}
            assert len(differing) == 1, (spec.name, sweep.name, value, differing)


def test_as_many_documents_and_sessions_as_published(tables):
    options = argparse.Namespace(build="b", speed=1.0)
    for spec in tables.tables():
        command = tables.bench_command(spec.workload, options, 1, "f")
        said = {word: command[i + 1] for i, word in enumerate(command[:-1]) if word.startswith("--")}
        length = sum(int(said.get(f"--{name}", 0)) for name in tables.LENGTHS)
        room = int(said["--kv-cache-volume"]) * int(said["--tokens-per-gb-kvcache"])
        assert room // length == spec.workload.count


def test_a_sentence_says_what_was_reached(tables):
    spec = tables.tables()[3]
    exact = {"ttft_mean": 0.438, "elapsed": 24.274}
    base = {"ttft_mean": 1.161, "elapsed": 52.978}
    assert "All 2 published gains" in tables.sentence(spec, [(None, None, base, exact)])
    words = tables.sentence(spec, [(None, None, base, {"ttft_mean": 0.438, "elapsed": 50.0})])
    assert "No point of the sweep has that of elapsed" in words


def test_a_small_table(tables, tmp_path, capsys):
    tables.bench_tables(argparse.Namespace(
        build=str(BUILD), speed=50.0, small=True, table=["documents-cpu"], plots=str(tmp_path)))
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["figure"] for line in told] == ["ttft_mean", "elapsed"]
    assert all(line["peer"] == "published" and line["simulated"] for line in told)
    assert told[0]["value"] < 0.5  # documents that the GPU has lost are in memory
    assert (tmp_path / "documents-cpu.svg").read_text().startswith("<svg")


def test_thresholds_are_the_commands_and_both_published_values_are_shown(tables, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tables.thresholds, "BUILD", str(BUILD))
    tables.bench_tables(argparse.Namespace(build=str(BUILD), speed=1.0, small=True, table=["thresholds"],
                                           plots=str(tmp_path)))
    out, err = capsys.readouterr()
    told = [json.loads(line) for line in out.splitlines()]
    large = [line for line in told if line["model"] == "Qwen2.5-72B"]
    assert [(line["said_in"], line["peer_value"], line["gpus"]) for line in large if line["gpus"]] == [
        ("table", 250_000, 4), ("text", 500_000, 4)]
    # 4 x 80 GiB x 0.9 - 145.4 GB of weights, 327,680 bytes a token
    assert large[0]["value"] == pytest.approx((288 * 2**30 - 145.4e9) / 327_680, rel=1e-3)
    assert [line["reproduced"] for line in large] == [False, True, False, True]
    assert "does not fit" in err
    assert (tmp_path / "thresholds.svg").read_text().startswith("<svg")
