"""fragments: keys moved to other positions against memcpy, a program of its own."""

import os
import subprocess

from lib_procs import BenchError

PROGRAM = "bench/micro/rope_bench"


def bench_fragments(options):
    """Bytes per second of each kind of value, against memcpy."""
    program = os.path.join(options.build, PROGRAM)
    if not os.path.exists(program):
        raise BenchError(f"{program} is not built")
    rounds = 3 if options.quick else max(options.rounds, 9)
    done = subprocess.run([program, "-r", str(rounds)], check=False)
    if done.returncode != 0:
        raise BenchError(f"rope_bench ended with status {done.returncode}")
