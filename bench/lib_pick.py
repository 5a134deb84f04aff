"""pick: decisions of prefixaware on a large tree, a program of its own."""

import os
import subprocess

from lib_procs import BenchError

PROGRAM = "bench/micro/routing_bench"


def bench_pick(options):
    """Decisions per second, how long the slow ones take, inserts, bytes per token."""
    program = os.path.join(options.build, PROGRAM)
    if not os.path.exists(program):
        raise BenchError(f"{program} is not built")
    command = [program, "-r", str(options.rounds), "-s", str(options.seconds)]
    if options.line is not None:
        command += ["-i", str(options.line)]
    done = subprocess.run(command, check=False)
    if done.returncode != 0:
        raise BenchError(f"routing_bench ended with status {done.returncode}")
