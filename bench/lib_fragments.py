"""fragments: cached text that is not a prefix. The kernel that moves keys, measured; what it is worth, simulated.

kernel  keys moved to other positions against memcpy, a program of its own (rope_bench)
rag     questions on 4 of 46 documents of 10,000 tokens in any order, one request at a time: mean time to first
        token of a simulated worker with exact prefixes only (the peer `recompute`: what is no prefix is computed),
        and with fragments, by the share of their tokens that is computed again. The rate at which keys move is the
        kernel's of the same run, by one thread; all else is kvsim's profile and links (bench/sim/README.md).
router  the same requests, four at a time, through kvway (kvaware) to four such workers, each of which has room for a
        quarter of the documents: without kvaware.fragments (the peer `prefixes`) and with it, where a request's
        documents are any, and where they are of one of eight topics; medians of rounds
quality what the answers of a small model lose, by the share of its tokens that is computed again: trained and asked in
        about eight minutes on two cores, and only where it is asked for by name. KVW_ENGINE_VENV names the Python
        environment, which needs torch (tests/engine/blend_quality.py; --plot FILE.svg draws it)
"""

import json
import os
import re
import statistics
import subprocess
import time
import urllib.request

from lib_peers import start_kvway
from lib_procs import BenchError, Workshop, raise_descriptor_limit, wait_ready, wanted
from lib_report import emit, say, table
from lib_sim_speed import defaults, limits, rates
from lib_sim_times import answers_of, cached_share, percentile, times_of, ttfts

PROGRAM = "bench/micro/rope_bench"
TARGETS = [PROGRAM, "bench/sim/kvsim", "bench/load/kvbench", "src/router/kvway"]
PARTS = ("kernel", "rag", "router", "quality")

PROFILE = "llama-8b-h100"
SPEED = 50  # one request is under way at a time, and times are the worker's own
DOCUMENTS = 46
REQUESTS = 100
LENGTH = 10000
SHARES = (0, 0.05, 0.15, 0.3)
SHARE = 0.15   # of the part `router`
WORKERS = 4
TOPICS = (1, 8)
ROUNDS = 3
KEYS = ("bf16", "halves")  # (type, layout) of the kernel's figure that the simulation uses


def measure_kernel(options):
    """Prints the kernel's lines; returns how many bytes of KEYS it moves in a second."""
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
    """Runs the requests against a worker with these options; returns its answers but for those of the warm-up."""
    with Workshop() as shop:
        (port,) = shop.ports(1)
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
    """Returns mean, median and 99th percentile of the times to first token, and the share of tokens that were not computed."""
    times = ttfts(answers)
    return {"mean": sum(times) / len(times), "p50": percentile(times, 50), "p99": percentile(times, 99),
            "cached": cached_share(answers)}


def bench_rag(options, rate):
    """Prints a table, and a JSON line for each share."""
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


def fragment_rates(speed):
    """Returns kvway's limits and kvaware.fragments, scaled to workers that run at this speed."""
    ns = float(defaults()["kvaware.fragments.ns_per_token"][0]) / speed
    return limits(speed, {"kvaware.fragments":
                          f"{{enabled: true, ns_per_token: {ns:.3f}, worker_tokens: {room()}}}"})


def room():
    """Returns how many tokens a worker's store holds: its part of the documents, and a little more."""
    return DOCUMENTS * LENGTH // WORKERS * 11 // 10


def route(options, requests, rate, topics, counted):
    """Runs the requests through kvway to four workers; returns their answers. counted: kvway takes fragments into account."""
    with Workshop() as shop:
        raise_descriptor_limit()
        ports = shop.ports(WORKERS + 2)
        worker = shop.start([os.path.join(options.build, "bench/sim/kvsim"), "--workers", str(WORKERS), "--port",
                             str(ports[0]), "--profile", PROFILE, "--speed", str(SPEED), "--fragments", str(SHARE),
                             "--fragments-rotate", f"{rate:.0f}", "--fragments-memory", str(room())], log="kvsim.out")
        wait_ready(f"http://127.0.0.1:{ports[WORKERS - 1]}/health", worker)
        extra = fragment_rates(SPEED) if counted else limits(SPEED)
        proxy = start_kvway(shop, None, ports[WORKERS:], ports[:WORKERS], "kvaware", options.build,
                            routing=rates(SPEED), extra=extra)
        time.sleep(1)  # time for kvway to read the workers' metrics
        done = subprocess.run([os.path.join(options.build, "bench/load/kvbench"), "rag-qa", "--engine-url",
                               f"http://127.0.0.1:{proxy.port}", "--rag-num-documents", str(DOCUMENTS),
                               "--rag-num-requests", str(requests), "--rag-num-inflight-requests", str(WORKERS),
                               "--rag-num-topics", str(topics),
                               "--rag-max-output-length", "1", "--speed", str(SPEED), "--quiet", "--no-csv"],
                              check=False)
        answers = [row for row in answers_of([times_of(port) for port in ports[:WORKERS]])
                   if row["prompt_tokens"] > 2 * LENGTH]
        if done.returncode != 0 or len(answers) != requests:
            raise BenchError(f"kvbench ended with status {done.returncode}, {len(answers)} of {requests} answers")
        with urllib.request.urlopen(f"http://127.0.0.1:{ports[WORKERS + 1]}/metrics", timeout=10) as page:
            predicted = re.findall(r"^kvway_predicted_fragment_tokens_total (\S+)", page.read().decode(), re.M)
        if counted and not float(predicted[0]) > 0:
            raise BenchError("kvway counted no fragments")
        return figures(answers)


def bench_router(options, rate):
    """Prints a JSON line for each number of topics, and a table."""
    requests, rounds = (10, 1) if options.quick else (REQUESTS, ROUNDS)
    rows = []
    for topics in TOPICS:
        say(f"router: {requests} requests to {WORKERS} workers, {topics} topics, {rounds} rounds, simulated ...")
        runs = [[route(options, requests, rate, topics, counted) for counted in (False, True)]
                for _ in range(rounds)]
        ratios = sorted(ours["mean"] / theirs["mean"] for theirs, ours in runs)
        theirs, ours = ({key: statistics.median(run[counted][key] for run in runs) for key in runs[0][0]}
                        for counted in (0, 1))
        rows += [[f"{topics} topics, kvaware {how} fragments", *one.values()]
                 for how, one in (("without", theirs), ("with", ours))]
        emit("fragments", "router_ttft_mean_s", ours["mean"], "s", peer="prefixes", ratio=statistics.median(ratios),
             ratio_min=ratios[0], ratio_max=ratios[-1], peer_value=theirs["mean"], cached=ours["cached"],
             peer_cached=theirs["cached"], topics=topics, workers=WORKERS, share=SHARE, rounds=rounds,
             simulated=True, profile=PROFILE)
    table("rag-qa through kvway, simulated: time to first token, seconds", ["", "mean", "p50", "p99",
                                                                            "not all computed"], rows)


def find_torch():
    """Returns the Python of the engine's environment if it has torch, else None."""
    folder = os.environ.get("KVW_ENGINE_VENV", "")
    python = os.path.join(folder, "bin", "python3")
    if not folder or not os.path.exists(python):
        raise BenchError("quality trains a small model: KVW_ENGINE_VENV has to name a Python environment with torch; "
                         f"it is {folder!r}, without bin/python3 (tests/engine/run.sh --install makes one)")
    found = subprocess.run([python, "-c", "import torch"], check=False, capture_output=True, text=True)
    if found.returncode != 0:
        raise BenchError(f"quality trains a small model, and {python} has no torch: "
                         f"{(found.stderr.strip().splitlines() or ['no reason'])[-1]}")
    return python


def bench_quality(options):
    """Prints the lines of blend_quality.py and a table of them."""
    python = find_torch()
    script = os.path.join(os.path.dirname(__file__), "..", "tests", "engine", "blend_quality.py")
    command = [python, script, *(["--steps", "10", "--texts", "2"] if options.quick else [])]
    if options.plot:
        command += ["--plot", os.path.abspath(options.plot)]
    say("quality: training a small model, then asking it; about eight minutes on two cores ...")
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            for line in running.stdout:
                print(line, end="", flush=True)
                found = json.loads(line)
                name = "exact" if found["share"] is None else f"{found['chosen']}, {found['share']:g}"
                rows.append([name + ("" if found["moved"] else ", keys not moved"), found["value"], found["kl_nats"]])
        except BaseException:
            running.kill()
            raise
    if running.returncode != 0 or not rows:
        raise BenchError(f"{script} ended with status {running.returncode}, after {len(rows)} lines")
    table(f"quality: {found['model']}, {found['texts']} texts", ["tokens computed again", "accuracy", "KL, nats"], rows)


def bench_fragments(options):
    """Runs all parts but quality, which runs only by name; the simulations use the kernel's measured rate."""
    if "quality" in (options.only or []):
        bench_quality(options)
        if options.only == ["quality"]:
            return
    rate = measure_kernel(options)
    if wanted(options, "rag"):
        bench_rag(options, rate)
    if wanted(options, "router"):
        bench_router(options, rate)
