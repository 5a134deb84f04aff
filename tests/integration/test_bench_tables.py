"""`bench/run.sh tables`: its arithmetic without a run, and two small tables run for real."""

import argparse
import csv
import json
import sys
from pathlib import Path

import pytest
import yaml
from rig.router import BUILD

BENCH = Path(__file__).parents[2] / "bench"
TIMES = """submit_ns,first_ns,end_ns,prompt_tokens,cached_tokens,generated_tokens
0,1000000000,1000000000,100,0,1
1000000000,2000000000,4000000000,100,50,3
"""
# At the client, as both programs write it: times of day are real ones, kvbench's durations simulated.
ROWS = """request_id,successful,ttft,request_latency,num_input_tokens,num_output_tokens,decode_speed,submit_time,first_token_time,finish_time,error
a,True,4.0,8.0,100,5,1.25,1000.0,1002.0,1004.0,
b,True,8.0,10.0,100,3,1.5,1001.0,1005.0,1006.0,
c,False,-1.0,2.0,0,0,0,1002.0,0,1003.0,status 429
"""


@pytest.fixture(scope="module")
def tables():
    sys.path.insert(0, str(BENCH))
    import lib_tables
    yield lib_tables
    sys.path.remove(str(BENCH))


@pytest.fixture
def client(tables):
    import lib_tables_client
    return lib_tables_client


def rows():
    return list(csv.DictReader(ROWS.splitlines()))


def options(**more):
    return argparse.Namespace(**{"build": str(BUILD), "speed": 1.0, "small": True, "table": None, "plots": None,
                                 "peer": None, "rounds": 1, "duration": None, "tiers": None, "kv_tokens": None, **more})


def test_figures_are_the_clients_so_that_waiting_at_kvway_counts(client):
    figures = client.figures_of(rows(), client.Kvbench(options(speed=2.0)))
    assert (figures["sent"], figures["requests"], figures["success"]) == (3, 2, pytest.approx(2 / 3))
    assert figures["ttft_p50"] == 6.0 and figures["ttft_mean"] == 6.0
    assert figures["itl_p50"] == 1.0
    assert figures["elapsed"] == 12.0  # six real seconds
    assert figures["output_tokens_per_s"] == pytest.approx(8 / 12)
    assert client.cost(figures, 2) == pytest.approx(3000)  # seconds of servers for 1,000 tokens


def test_stock_lmcache_is_scaled_by_the_bench(client, monkeypatch):
    monkeypatch.setenv("LMCACHE_PYTHON", sys.executable)
    stock = client.Stock(options(speed=2.0))
    command = stock.command({"workload": "multi-round-chat", "mrc-qps": 8.0, "mrc-duration": 180, "json": True})
    assert command[1:5] == ["bench", "engine", "--workload", "multi-round-chat"]
    assert command[5:] == ["--mrc-qps", "16.0", "--mrc-duration", "90.0", "--json", "--quiet"]
    figures = client.figures_of(rows(), stock)
    assert figures["ttft_p50"] == 12.0 and figures["itl_p50"] == 2.0 and figures["elapsed"] == 12.0


def test_a_run_without_an_answer_is_an_error(client):
    with pytest.raises(client.BenchError, match="none of 1 requests was answered; the first: status 429"):
        client.figures_of(rows()[2:], client.Kvbench(options()))


def test_what_workers_say_leaves_the_warm_up_out(client, monkeypatch):
    monkeypatch.setattr(client, "times_of", lambda port: TIMES)
    assert client.worker_figures([1]) == {"worker_ttft_mean": 1.0, "worker_ttft_p50": 1.0, "worker_ttft_p90": 1.0,
                                          "cached_share": 0.5}


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
    import lib_tables_run as run
    for spec in tables.tables():
        for _, _, _, _, workload in tables.points_of(spec):
            said = run.asked_of(workload, 1)
            length = sum(said.get(name, 0) for name in run.LENGTHS)
            assert said["kv-cache-volume"] * said["tokens-per-gb-kvcache"] // length == workload.count


def test_the_printed_command_is_sent_word_for_word(tables):
    import lib_tables_printed as printed
    import lib_tables_run as run
    import lib_tables_client as client
    said = run.asked_of(printed.workload_of(180), 9300)
    assert " ".join(client.words_of(said)) == (
        "--engine-url http://127.0.0.1:9300 --workload multi-round-chat --tokens-per-gb-kvcache 3000 --kv-cache-volume 400 "
        "--mrc-shared-prompt-length 2000 --mrc-chat-history-length 10000 --mrc-user-input-length 50 --mrc-output-length "
        "200 --mrc-qps 8.0 --mrc-duration 180 --json --no-interactive")
    assert printed.published("l1")["requests"] == 1016 and printed.published("l1+l2")["requests"] == 1200


def test_kvway_below_round_robin_is_named(tables):
    import lib_tables_printed as printed
    good = {"requests": 100, "output_tokens_per_s": 10.0, "success": 1.0}
    assert printed.below(good, good) == []
    assert printed.below({**good, "success": 0.99}, good) == ["success"]
    assert printed.below({**good, "success": 0.997}, good) == []  # as two runs of one router differ


def test_a_success_rate_is_reproduced_by_both_arms_and_not_by_their_ratio(tables):
    spec = tables.tables()[0]
    half = {name: base for name, (base, _) in spec.published.items()}
    assert "success" in tables.hits(spec, half, half)
    half["success"] = 0.5
    assert "success" not in tables.hits(spec, half, half)


def test_a_sentence_says_what_was_reached(tables):
    spec = tables.tables()[3]
    exact = {"ttft_mean": 0.438, "elapsed": 24.274}
    base = {"ttft_mean": 1.161, "elapsed": 52.978}
    assert "All 2 published gains" in tables.sentence(spec, [(None, None, base, exact)])
    words = tables.sentence(spec, [(None, None, base, {"ttft_mean": 0.438, "elapsed": 50.0})])
    assert "Not reproducible, since no point of the sweep has it: elapsed." in words


def test_a_small_table(tables, tmp_path, capsys, monkeypatch):
    made, run_points = [], tables.run_points
    monkeypatch.setattr(tables, "run_points", lambda *args: made.append(run_points(*args)) or made[-1])
    tables.bench_tables(options(speed=50.0, table=["documents-cpu"], plots=str(tmp_path)))
    out, err = capsys.readouterr()
    told = [json.loads(line) for line in out.splitlines()]
    assert [line["figure"] for line in told] == ["ttft_mean", "elapsed"]
    assert all(line["peer"] == "published" and line["simulated"] for line in told)
    (((_, _, base, ours),), _), = made
    assert ours["cached_share"] > base["cached_share"] + 0.2, made  # documents that the GPU has lost are in memory
    assert "worker_ttft_p50" in err and "success" in err and "cost" in err
    assert "   | documents-cpu | ttft_mean | 1.16, 0.438 | " in err
    assert (tmp_path / "documents-cpu.svg").read_text().startswith("<svg")


def test_the_printed_table_runs(tables, tmp_path, capsys):
    tables.bench_tables(options(speed=50.0, duration=4.0, table=["printed"], plots=str(tmp_path), tiers=["l1"],
                                kv_tokens=[1_000_000]))
    out, err = capsys.readouterr()
    told = {line["metric"]: line for line in map(json.loads, out.splitlines())}
    assert told["requests"]["peer"] == "roundrobin" and told["requests"]["published"] == 1016
    # 8 a second, for 4 seconds; at this speed a busy machine sends fewer, and kvway's queue runs out of time.
    for arm in ("value", "peer_value"):
        assert 0 < told["requests"][arm] <= told["sent"][arm] <= 32
    assert told["ttft_p50"]["value"] > 0 and "TTFT p50 s at the workers" in err
    assert "   | 1,000,000, l1, kvbench | " in err  # the row of bench/tables/README.md


def test_a_table_that_there_is_not_is_named(tables):
    with pytest.raises(tables.BenchError, match="--table l1: there are printed, l1-l2"):
        tables.bench_tables(options(table=["l1"], plots="."))


def test_thresholds_are_the_commands_and_both_published_values_are_shown(tables, tmp_path, capsys):
    tables.bench_tables(options(table=["thresholds"], plots=str(tmp_path)))
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
