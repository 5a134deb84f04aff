"""engine: what kvtier's connector gains and costs inside a real vLLM on the CPU.

Two parts, each with engines of its own: gain (lib_engine_gain.py), cost (lib_engine_cost.py). KVW_ENGINE_VENV
names an environment with vLLM; without one it is said, and nothing is installed. BenchError, and so a bad
exit status, also if the gate on the cost did not hold.
"""

import contextlib
import os

import lib_report as report
from lib_engine_cost import bench_cost
from lib_engine_gain import bench_gain
from lib_engine_plot import write_plot
from lib_engine_serve import SIZES, find_model, find_vllm
from lib_l2_daemon import DAEMON, Daemon
from lib_procs import BenchError, Workshop, wanted

TARGETS = [DAEMON, "cache/core/libkvtier.so.1.0.0"]
PARTS = ("gain", "cost")
ROUNDS = 10
SEGMENT = 1 << 30


def settle(options):
    """Fills in the rounds and the lengths of prompts that the command line does not give."""
    options.rounds = 2 if options.quick else max(options.rounds, ROUNDS)
    options.tokens = sorted(options.tokens or ([1000, 4000] if options.quick else [1000, 4000, 8000]))
    if options.tokens[-1] > 8000 or options.tokens[0] < 300:
        raise BenchError("--tokens: from 300 to 8000")


def bench_engine(options):
    """Runs both parts, or the one that --only names."""
    settle(options)
    venv = find_vllm()
    folder = options.folder or os.environ.get("BENCH_FOLDER") or options.build
    os.makedirs(folder, exist_ok=True)
    setup = (venv, find_model(venv, folder), options.build)
    lines, notes, held = {}, [], True
    with Workshop() as shop, contextlib.ExitStack() as stack:
        if wanted(options, "gain"):
            daemon = stack.enter_context(Daemon(options, shop, SEGMENT))
            lines = bench_gain(options, shop, setup, daemon)
        if wanted(options, "cost"):
            notes, held = bench_cost(options, shop, setup)
    if options.plot and lines:
        layers, hidden = SIZES["layers"], SIZES["hidden"]
        write_plot(options.plot, "Time to first token, vLLM on one CPU core "
                   f"({layers} layers, hidden size {hidden}, random weights): median, and p90", notes, lines)
        report.say(f"plot: {options.plot}")
    if not held:
        raise BenchError("the gate on added processor time did not hold")
