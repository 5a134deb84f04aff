"""gpu: gathers and scatters between a paged KV cache and chunks, against plain copies."""

import os
import subprocess

from lib_procs import BenchError

PROGRAM = "bench/cache/gpu/gpu_bench"
LIBRARY = "cache/gpu/libkvtier_cuda.so.1"
ROUNDS = 9


def bench_gpu(options):
    """Measures the host backend and, where there is a CUDA device, the CUDA backend."""
    program = os.path.join(options.build, PROGRAM)
    if not os.path.exists(program):
        raise BenchError(f"{program} is not built")
    command = [program, "-r", str(max(options.rounds, ROUNDS))]
    library = os.path.abspath(os.path.join(options.build, LIBRARY))
    if os.path.exists(library):
        command += ["-l", library]
    done = subprocess.run(command, check=False)
    if done.returncode != 0:
        raise BenchError(f"gpu_bench ended with status {done.returncode}")
