"""`kvbench engine`, the workloads of `lmcache bench engine`, against simulated workers: what is sent,
what the files say, and what becomes of a run whose server dies."""

import csv
import json
import signal
import socket
import subprocess
import threading

import pytest

from rig.router import BUILD
from rig.sim import Sim
from rig.wait import until
from rig.wire import Closed

PROGRAM = BUILD / "bench" / "load" / "kvbench"
CONFIG = {"engine_url", "model", "workload", "kv_cache_volume_gb", "tokens_per_gb_kvcache", "seed", "output_dir",
          "export_csv", "export_json", "quiet", "ignore_eos", "warmup_policy"}
RESULTS = {"total_requests", "successful_requests", "failed_requests", "elapsed_time", "mean_ttft_ms",
           "mean_decode_speed", "mean_request_latency_ms", "input_throughput", "output_throughput",
           "total_input_tokens", "total_output_tokens",
           *(f"p{p}_{name}" for p in (50, 90, 99) for name in ("ttft_ms", "decode_speed", "request_latency_ms"))}
COLUMNS = ["request_id", "successful", "ttft", "request_latency", "num_input_tokens", "num_output_tokens",
           "decode_speed", "submit_time", "first_token_time", "finish_time", "error"]

# workload: its small options, measured requests, requests of the warm-up, output tokens of each
WORKLOADS = {
    "long-doc-qa": (["--kv-cache-volume", 1, "--tokens-per-gb-kvcache", 900, "--ldqa-document-length", 300,
                     "--ldqa-max-output-length", 4], 6, 3, 4),
    "multi-round-chat": (["--kv-cache-volume", 1, "--tokens-per-gb-kvcache", 900, "--mrc-shared-prompt-length", 100,
                          "--mrc-chat-history-length", 200, "--mrc-qps", 20, "--mrc-duration", 0.5,
                          "--mrc-output-length", 5], 10, 3, 5),
    "long-doc-permutator": (["--ldp-num-contexts", 3, "--ldp-context-length", 50, "--ldp-system-prompt-length", 16,
                             "--ldp-max-output-length", 3], 6, 1, 3),
    "prefix-suffix-tuner": (["--psf-thrash", 1, "--tokens-per-gb-kvcache", 2000, "--psf-context-length", 700,
                             "--speed", 50], 3, 4, 1),
    "rag-qa": (["--rag-num-documents", 5, "--rag-document-length", 40, "--rag-documents-per-request", 3,
                "--rag-num-requests", 7, "--rag-max-output-length", 3], 7, 5, 3),
    "random-prefill": (["--rp-num-requests", 20, "--rp-request-length", 100], 20, 0, 1),
}


@pytest.fixture
def sim(tmp_path):
    made = Sim(tmp_path, 1)
    made.workers[0].process = made
    yield made.workers[0]
    if made.alive():
        made.signal(signal.SIGTERM)
        made.wait()


def command(worker, *words):
    return [str(w) for w in (PROGRAM, *words, "--engine-url", f"http://127.0.0.1:{worker.port}")]


def bench(worker, *words, status=0):
    run = subprocess.run(command(worker, *words), capture_output=True, text=True, timeout=120)
    assert run.returncode == status, run.stdout + run.stderr
    return run


def rows(folder):
    with open(folder / "bench_results.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_sends_what_it_promises_and_says_so(sim, tmp_path, name):
    options, requests, warm_up, tokens = WORKLOADS[name]
    run = bench(sim, "engine", "--workload", name, *options, "--json", "--output-dir", tmp_path)
    summary = json.loads((tmp_path / "bench_summary.json").read_text())
    results = summary["results"]
    if name == "multi-round-chat":  # it reports what a busy machine could not send in time
        requests -= summary["kvbench"]["unsent_requests"]
    else:
        assert summary["kvbench"]["unsent_requests"] == 0
    assert f"{requests} answered, 0 failed" in run.stdout
    assert set(summary["config"]) == CONFIG and set(results) == RESULTS
    assert summary["config"]["workload"] == name and summary["config"]["model"] == "tiny"
    assert results["total_requests"] == results["successful_requests"] == requests
    assert results["total_output_tokens"] == requests * tokens
    assert results["p50_ttft_ms"] <= results["p90_ttft_ms"] <= results["p99_ttft_ms"]
    assert 0 < results["mean_ttft_ms"] <= results["mean_request_latency_ms"]
    assert summary["kvbench"]["warmup_requests"] == warm_up
    assert summary["kvbench"]["errors"] == {}
    table = rows(tmp_path)
    assert list(table[0]) == COLUMNS and len(table) == requests
    assert len({row["request_id"] for row in table}) == requests
    assert sum(int(row["num_input_tokens"]) for row in table) == results["total_input_tokens"]
    assert sim.stats()["finished"] == requests + warm_up


def test_the_warm_up_can_be_left_out(sim, tmp_path):
    options, requests, _, _ = WORKLOADS["long-doc-qa"]
    bench(sim, "long-doc-qa", *options, "--no-warmup", "--no-csv", "-q", "--output-dir", tmp_path)
    assert sim.stats()["finished"] == requests
    assert not (tmp_path / "bench_results.csv").exists()


def test_the_summary_goes_to_standard_output(sim):
    run = bench(sim, "random-prefill", "--rp-num-requests", 2, "--no-csv", "--summary", "-")
    assert json.loads(run.stdout)["results"]["successful_requests"] == 2
    assert "2 answered" in run.stderr
    quiet = bench(sim, "random-prefill", "--rp-num-requests", 2, "--no-csv", "-q")
    assert quiet.stdout == quiet.stderr == ""


def test_answers_come_back_in_the_next_question(sim, tmp_path):
    """Each session's prompt grows by its question and the answer, which the worker finds in its cache."""
    bench(sim, "multi-round-chat", "--kv-cache-volume", 1, "--tokens-per-gb-kvcache", 300,
          "--mrc-shared-prompt-length", 100, "--mrc-chat-history-length", 200, "--mrc-output-length", 40,
          "--mrc-qps", 10, "--mrc-duration", 2, "--output-dir", tmp_path)
    prompts = [int(row["num_input_tokens"]) for row in rows(tmp_path)]
    assert len(prompts) > 2
    steps = {b - a for a, b in zip(prompts, prompts[1:])}
    assert len(steps) == 1 and steps.pop() > 40 + 50  # answer, question, frames of both messages


def test_tokens_of_a_gb_are_asked_for_only_where_they_count(sim):
    assert "needs --tokens-per-gb-kvcache" in bench(sim, "long-doc-qa", status=2).stderr
    bench(sim, "random-prefill", "--rp-num-requests", 1, "--no-csv")


def test_a_configuration_is_exported_and_used(sim, tmp_path):
    file = tmp_path / "config.json"
    bench(sim, "random-prefill", "--rp-num-requests", 4, "--rp-request-length", 20, "--export-config", file)
    assert sim.stats()["finished"] == 0
    assert json.loads(file.read_text())["rp_num_requests"] == 4
    bench(sim, "engine", "--config", file, "--no-csv")
    assert sim.stats()["finished"] == 4


def test_failures_are_counted_and_nothing_is_sent_twice(sim, tmp_path):
    sim.fail("status=503", count=2)
    sim.fail("reset-after-tokens=1", count=1)
    options, requests, _, _ = WORKLOADS["long-doc-qa"]
    run = bench(sim, "long-doc-qa", *options, "--no-warmup", "--json", "--output-dir", tmp_path, status=1)
    summary = json.loads((tmp_path / "bench_summary.json").read_text())
    failed = [row for row in rows(tmp_path) if row["successful"] == "False"]
    assert summary["results"]["failed_requests"] == len(failed) == sum(summary["kvbench"]["errors"].values()) > 0
    assert summary["results"]["total_requests"] == requests
    assert all(row["error"] and float(row["ttft"]) == -1 for row in failed)
    assert "failed: " in run.stdout


def test_a_server_that_dies_in_the_middle(sim, tmp_path):
    """Every request that was asked has its row, answered or failed; the run ends by itself."""
    options = ["--kv-cache-volume", 1, "--tokens-per-gb-kvcache", 1200, "--mrc-shared-prompt-length", 100,
               "--mrc-chat-history-length", 200, "--mrc-qps", 30, "--mrc-duration", 3, "--mrc-output-length", 3]
    run = subprocess.Popen(command(sim, "multi-round-chat", *options, "--json", "-q", "--output-dir", tmp_path))

    def measured():
        try:
            return sim.stats()["finished"] > 10
        except (OSError, Closed):
            return False

    until(measured, 20, "some questions answered")
    sim.process.signal(signal.SIGKILL)
    sim.process.popen.wait()
    assert run.wait(60) == 1
    summary = json.loads((tmp_path / "bench_summary.json").read_text())
    results = summary["results"]
    assert results["failed_requests"] > 0 and results["successful_requests"] > 0
    assert results["total_requests"] == len(rows(tmp_path))
    assert results["total_requests"] + summary["kvbench"]["unsent_requests"] == 90
    assert results["elapsed_time"] >= 3


def test_interrupted_runs_report_what_they_have(sim, tmp_path):
    options = ["--kv-cache-volume", 1, "--tokens-per-gb-kvcache", 300, "--mrc-shared-prompt-length", 100,
               "--mrc-chat-history-length", 200, "--mrc-qps", 10, "--mrc-duration", 600, "--mrc-output-length", 3]
    run = subprocess.Popen(command(sim, "multi-round-chat", *options, "--json", "-q", "--output-dir", tmp_path))
    until(lambda: sim.stats()["finished"] > 3, 20, "some questions answered")
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 1
    summary = json.loads((tmp_path / "bench_summary.json").read_text())
    assert summary["kvbench"]["interrupted"] is True
    assert summary["results"]["successful_requests"] == summary["results"]["total_requests"] == len(rows(tmp_path)) > 0


def test_a_new_connection_is_not_part_of_the_time_to_first_token(tmp_path):
    """Every answer closes its connection; the wait for the next one is told apart."""
    answer = (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n"
              b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
              b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}\n\ndata: [DONE]\n\n')
    listener = socket.create_server(("127.0.0.1", 0), backlog=16)

    def serve():
        for _ in range(3):
            client, _ = listener.accept()
            with client:
                data = b""
                while b'"temperature"' not in data:
                    data += client.recv(65536)
                client.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    worker = type("Worker", (), {"port": listener.getsockname()[1]})
    run = bench(worker, "long-doc-permutator", "--ldp-num-contexts", 2, "--ldp-context-length", 20, "--model", "m",
                "--summary", "-", "--output-dir", tmp_path)
    thread.join()
    listener.close()
    summary = json.loads(run.stdout)
    assert summary["results"]["successful_requests"] == 2
    assert summary["kvbench"]["connect_ms"]["count"] == 2
    for row in rows(tmp_path):
        assert float(row["submit_time"]) <= float(row["first_token_time"]) <= float(row["finish_time"])


@pytest.mark.parametrize("words, said", [
    (["engine"], "--workload is needed"),
    (["engine", "--workload", "rag-qa-quality"], "expected long-doc-qa"),
    (["random-prefill", "--rp-num-requests", "many"], "expected a whole number"),
    (["random-prefill", "--mrc-pqs", "3"], "unknown option"),
])
def test_wrong_usage_is_explained(sim, words, said):
    assert said in bench(sim, *words, status=2).stderr


def test_an_engine_that_is_not_there(tmp_path):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        worker = type("Worker", (), {"port": port})
        run = bench(worker, "random-prefill", "--output-dir", tmp_path, status=1)
        assert "Connection refused" in run.stderr
        run = bench(worker, "random-prefill", "--model", "m", "--rp-num-requests", 3, "--output-dir", tmp_path,
                    status=1)
        assert "failed: 3 x connect" in run.stdout


def test_help_teaches(sim):
    run = bench(sim, "engine", "--help")
    for name in WORKLOADS:
        assert name in run.stdout
    assert "Try" in run.stdout
