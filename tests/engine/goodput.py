#!/usr/bin/env python3
"""How many requests two real engines answer in time when they are asked for more than they can.

    goodput.py [options] [FILE...]

`vllm bench serve` first measures through kvway what both engines together answer in a second when as many
requests as they compute at once are always there; then it sends --load times as many in a second, for
--seconds, once for each FILE: keys for kvway's file, without addresses and workers. Without FILE, kvway's
defaults. Caches are emptied before each run and the requests are the same ones.

A request is good if its first token came within the ttft and its other tokens within the tpot of --goodput (ms;
vLLM's mean over the answer). Each line says how many were offered, answered and not (with the statuses that
kvway sent, those of the question whether it is ready included), and good; then good ones per second in which
requests were offered. (`request_goodput` of vLLM's own result divides by the time until the last answer, so what
refuses early looks better there.) The results lie in --dir/NAME.json, what vLLM printed in NAME.log.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

from pair import Pair, add_options
from rig.client import ask
from server import MODEL, VENV

SEQUENCES = 16  # that an engine computes at once (serve_vllm.sh)


class Bench:
    """`vllm bench serve`, as a user runs it."""

    def __init__(self, options, directory):
        self.options, self.directory = options, directory

    def run(self, router, name, count, *how):
        """Its result. kvway's workers begin with empty caches."""
        emptied = ask(router.admin_port, "POST", "/broadcast/reset_prefix_cache", timeout=30)
        assert emptied.status == 200, f"caches are not emptied: {emptied}"
        argv = [
            f"{VENV}/bin/vllm", "bench", "serve", "--backend", "openai", "--base-url", router.url,
            "--model", self.options.model, "--tokenizer", MODEL, "--dataset-name", "random",
            "--random-input-len", str(self.options.input), "--random-output-len", str(self.options.output),
            "--random-range-ratio", "0.5", "--ignore-eos", "--num-prompts", str(count), "--seed", "1",
            "--goodput", *self.options.goodput, "--percentile-metrics", "ttft,tpot,e2el",
            "--save-result", "--result-dir", str(self.directory), "--result-filename", f"{name}.json",
            "--disable-tqdm", *how,
        ]  # fmt: skip
        with open(self.directory / f"{name}.log", "w") as log:
            print("$", *argv, file=log, flush=True)
            done = subprocess.run(
                argv, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "HF_HUB_OFFLINE": "1"}
            )  # fmt: skip
        assert done.returncode == 0, f"vllm bench serve failed, see {log.name}"
        return json.loads((self.directory / f"{name}.json").read_text())


def capacity(bench, router):
    """Requests in a second. The first ones, which find engines that have compiled nothing yet, do not count."""
    together = ["--max-concurrency", str(2 * SEQUENCES)]
    bench.run(router, "warm", 2 * SEQUENCES, *together)
    result = bench.run(router, "capacity", bench.options.measure, *together)
    print(
        f"capacity: {result['request_throughput']:.1f} requests/s; first token after "
        f"{result['median_ttft_ms']:.0f} ms (p99 {result['p99_ttft_ms']:.0f}), then one every "
        f"{result['median_tpot_ms']:.0f} ms (p99 {result['p99_tpot_ms']:.0f})",
        flush=True,
    )
    return result["request_throughput"]


def report(name, result, count, rate, statuses):
    good = round(result["request_goodput"] * result["duration"])
    per_second = good / (count / rate)
    print(
        f"{name}: {count} offered at {rate:.1f}/s, {result['completed']} answered, {result['failed']} not "
        f"({statuses}), {good} good ({good / count:.0%}): {per_second:.2f}/s; first token p50 "
        f"{result['median_ttft_ms']:.0f} ms, p99 {result['p99_ttft_ms']:.0f}; then every "
        f"{result['median_tpot_ms']:.0f} ms, p99 {result['p99_tpot_ms']:.0f}; {result['duration']:.0f} s; "
        f"vLLM's request_goodput {result['request_goodput']:.2f}/s",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    add_options(parser)
    parser.add_argument("--load", type=float, default=3, help="times what the engines can answer (default 3)")
    parser.add_argument("--seconds", type=float, default=30, help="in which requests are offered (default 30)")
    parser.add_argument("--rate", type=float, help="requests/s that engines can answer (default: measured)")
    parser.add_argument("--measure", type=int, default=300, metavar="N", help="requests to measure that (default 300)")
    parser.add_argument("--goodput", nargs=2, default=["ttft:2000", "tpot:100"], metavar=("ttft:MS", "tpot:MS"))
    parser.add_argument("--input", type=int, default=256, help="mean tokens of a prompt (default 256)")
    parser.add_argument("--output", type=int, default=32, help="mean tokens of an answer (default 32)")
    parser.add_argument("--model", default="tiny", help="as it is served (default tiny)")
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    configs = [(f.stem, f.read_text()) for f in options.files] or [("defaults", "")]
    with Pair(options) as pair:
        bench = Bench(options, pair.directory)
        rate = options.rate
        for name, text in configs:
            router = pair.router(text, name)
            try:
                if rate is None:
                    plain = pair.router("", "capacity")
                    rate = capacity(bench, plain)
                    plain.kill()
                offered = options.load * rate
                count = round(offered * options.seconds)
                before = router.by("kvway_requests_total", "status")
                result = bench.run(router, name, count, "--request-rate", f"{offered:.3f}")
                more = router.by("kvway_requests_total", "status") - before
                statuses = ", ".join(f"{number} with {status}" for status, number in sorted(more.items()))
                report(name, result, count, offered, statuses)
            finally:
                router.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
