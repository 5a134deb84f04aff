"""state: a snapshot of a large prefix tree: seconds, bytes, and what requests notice of it."""

import json
import os
import subprocess
import sys

from lib_procs import BenchError

PROGRAM = "bench/micro/state_bench"
NODES = 10_000_000


def bench_state(options):
    """One program, one JSON line; a table on standard error."""
    program = os.path.join(options.build, PROGRAM)
    if not os.path.exists(program):
        raise BenchError(f"{program} is not built")
    nodes, seconds = (100_000, 1) if options.quick else (NODES, options.seconds)
    command = [program, "-n", str(nodes), "-s", str(seconds)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise BenchError(f"state_bench ended with status {done.returncode}")
    sys.stdout.write(done.stdout)
    row = json.loads(done.stdout)
    print(f"{row['nodes']:,} nodes: written in {row['write_s']} s ({row['write_cpu_s']} s of CPU), "
          f"{row['bytes'] / 2**20:,.0f} MiB; checked in {row['check_s']} s, recalled in {row['recall_s']} s",
          file=sys.stderr)
    for when in ("alone", "meanwhile"):
        times = row[when]
        print(f"requests {when:10} p50 {times['p50_us']:8} us  p99 {times['p99_us']:8} us  "
              f"p99.9 {times['p999_us']:8} us  max {times['max_us']:8} us", file=sys.stderr)
