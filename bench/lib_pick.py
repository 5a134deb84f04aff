"""pick: decisions of prefixaware on a large tree, of kvaware while events arrive, and what admission takes, each a
program."""

import os
import subprocess

from lib_procs import BenchError

PROGRAM = "bench/micro/routing_bench"
KVAWARE = "bench/micro/kvaware_bench"
ADMISSION = "bench/micro/admission_bench"


def bench_pick(options):
    """Decisions per second, how long the slow ones take, inserts, bytes per token; then kvaware's. Or --admission:
    requests that admission takes in a second."""
    line = [] if options.line is None else ["-i", str(options.line)]
    if options.admission:
        run(options, ADMISSION, [*line, *([] if options.rate is None else ["-q", str(options.rate)])])
        return
    run(options, PROGRAM, line)
    if options.line is None:
        run(options, KVAWARE, [])


def run(options, name, more):
    """Runs one program for the rounds and seconds of the command line."""
    program = os.path.join(options.build, name)
    if not os.path.exists(program):
        raise BenchError(f"{program} is not built")
    rounds, seconds = (1, 0.1) if options.quick else (options.rounds, options.seconds)
    command = [program, "-r", str(rounds), "-s", str(seconds), *more]
    done = subprocess.run(command, check=False)
    if done.returncode != 0:
        raise BenchError(f"{os.path.basename(name)} ended with status {done.returncode}")
