"""fragments: cached text that is not a prefix. The kernel that moves keys, measured; what it is worth, simulated.

kernel  keys moved to other positions against memcpy, a program of its own (rope_bench)
rag     questions on 4 of 46 documents of 10,000 tokens in any order, one request at a time: mean time to first
        token of a simulated worker with exact prefixes only (the peer `recompute`: what is no prefix is computed),
        and with fragments, by the share of their tokens that is computed again. The rate at which keys move is the
        kernel's of the same run, by one thread; all else is kvsim's profile and links (bench/sim/README.md).
"""

import json
import os
import subprocess

from lib_procs import BenchError, Workshop, free_ports, wait_ready
from lib_report import emit, say, table
from lib_sim_times import answers_of, cached_share, percentile, times_of, ttfts

PROGRAM = "bench/micro/rope_bench"
TARGETS = [PROGRAM, "bench/sim/kvsim", "bench/load/kvbench"]
PARTS = ("kernel", "rag")

PROFILE = "llama-8b-h100"
SPEED = 50  # one request is under way at a time, and times are the worker's own
DOCUMENTS = 46
REQUESTS = 100
SHARES = (0, 0.05, 0.15, 0.3)
KEYS = ("bf16", "halves")  # the kernel's line that the simulation goes by


def measure_kernel(options):
    """Passes on the kernel's lines; bytes of KEYS moved a second."""
    program = os.path.join(options.build, PROGRAM)
    if not os.path.exists(program):
        raise BenchError(f"{program} is not built")
    rounds = 3 if options.quick else max(options.rounds, 9)
    done = subprocess.run([program, "-r", str(rounds)], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise BenchError(f"rope_bench ended with status {done.returncode}")
    print(done.stdout, end="", flush=True)
    for line in map(json.loads, done.stdout.splitlines()):
        if (line["metric"], line["values"], line["layout"]) == ("rotate_bytes_per_second", *KEYS):
            return line["value"]
    raise BenchError(f"rope_bench has no line for {' '.join(KEYS)}")


def simulate(options, requests, more):
    """Answers of a worker with these options; the warm-up's are left out."""
    with Workshop() as shop:
        (port,) = free_ports(1)
        worker = shop.start([os.path.join(options.build, "bench/sim/kvsim"), "--port", str(port), "--profile", PROFILE,
                             "--speed", str(SPEED), *more], log="kvsim.out")
        wait_ready(f"http://127.0.0.1:{port}/health", worker)
        done = subprocess.run([os.path.join(options.build, "bench/load/kvbench"), "rag-qa", "--engine-url",
                               f"http://127.0.0.1:{port}", "--rag-num-documents", str(DOCUMENTS),
                               "--rag-num-requests", str(requests), "--rag-max-output-length", "1",
                               "--speed", str(SPEED), "--quiet", "--no-csv"], check=False)
        answers = answers_of([times_of(port)])[DOCUMENTS:]
        if done.returncode != 0 or len(answers) != requests:
            raise BenchError(f"kvbench ended with status {done.returncode}, {len(answers)} of {requests} answers; "
                             f"kvsim said: {shop.log_tail('kvsim.out')}")
        return answers


def figures(answers):
    """Mean, median and 99th percentile of the times to first token, and what was not computed."""
    times = ttfts(answers)
    return {"mean": sum(times) / len(times), "p50": percentile(times, 50), "p99": percentile(times, 99),
            "cached": cached_share(answers)}


def bench_rag(options, rate):
    """A table and a line for each share."""
    requests = 10 if options.quick else REQUESTS
    say(f"rag: {requests} requests of 4 of {DOCUMENTS} documents; {PROFILE}, keys moved at {rate / 1e9:.2f} GB/s, "
        "simulated ...")
    peer = figures(simulate(options, requests, []))
    rows = [["exact prefixes only", peer["mean"], 1.0, peer["p50"], peer["p99"], peer["cached"]]]
    emit("fragments", "ttft_mean_s", peer["mean"], "s", caches="prefixes", simulated=True, profile=PROFILE)
    for share in SHARES:
        ours = figures(simulate(options, requests,
                                ["--fragments", str(share), "--fragments-rotate", f"{rate:.0f}"]))
        emit("fragments", "ttft_mean_s", ours["mean"], "s", peer="recompute", ratio=ours["mean"] / peer["mean"],
             peer_value=peer["mean"], caches="fragments", share=share, simulated=True, profile=PROFILE,
             rotate_bytes_per_second=rate, target=0.5)
        rows.append([f"fragments, {share:g} computed again", ours["mean"], ours["mean"] / peer["mean"], ours["p50"],
                     ours["p99"], ours["cached"]])
    table("rag-qa, simulated: time to first token, seconds", ["", "mean", "ratio", "p50", "p99", "not all computed"],
          rows)


def bench_fragments(options):
    """Both parts; the second needs the first one's rate."""
    rate = measure_kernel(options)
    if options.only != "kernel":
        bench_rag(options, rate)
